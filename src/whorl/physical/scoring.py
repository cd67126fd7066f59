"""Score photographs: find the pictures, cut them out, ask the networks, count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from whorl.artifacts import sha256_of
from whorl.data import save_image
from whorl.data.pictures import to_tensor
from whorl.errors import WhorlError
from whorl.physical.extraction import SURROUNDINGS, Seen, as_seen, measure, rectified, unit
from whorl.physical.finding import Findings, Found, find_cells
from whorl.physical.libraries import opencv
from whorl.physical.overlay import save_overlay
from whorl.physical.patches import Curves, balanced, grey_curves
from whorl.physical.photos import list_photos, read_photo
from whorl.physical.sheet import Print, Sheet
from whorl.runs.progress import Report, silent
from whorl.runs.targets import Target

Pixels = NDArray[np.uint8]
View = Literal["as seen", "rectified"]

VIEWS: tuple[View, ...] = ("as seen", "rectified")
_BATCH = 32
SHOWN = 6
"""So many pictures does a contact sheet show, each with all its versions."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One printed picture in one photograph.

    Attributes:
        photo: the photograph's name.
        sheet: the sheet's name.
        item: what was printed.
        seen: how it lies in the photograph.
        misfit: how far marker corners lie off a plane, in pixels.
        answers: what each network says, by view and target.
    """

    photo: str
    sheet: str
    item: Print
    seen: Seen
    misfit: float
    answers: dict[tuple[View, str], int]

    def right(self, view: View, target: str) -> bool:
        """Whether a network recognises it."""
        return self.answers[view, target] == self.item.label


@dataclass(frozen=True, kw_only=True)
class Photographed:
    """What came of one photograph.

    Attributes:
        photo: its name.
        captures: every picture that is wholly visible.
        partly: how many are not.
        reason: why there are no pictures; empty if there are.
        unbalanced: whether colours were to be put right, and no patch strip could be seen for some page.
    """

    photo: str
    captures: Sequence[Capture] = ()
    partly: int = 0
    reason: str = ""
    unbalanced: bool = False


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A photograph that gave nothing.

    Attributes:
        photo: its path.
        reason: why.
    """

    photo: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How photographs are looked at.

    Args:
        views: ways to cut pictures out.
        scale_one: what counts as scale 1 in a photograph; see ``extraction.unit``.
        offset: windows of the view as seen are off the picture's middle by up to so many pixels of a 299-pixel picture,
            at random, as a camera that is held by hand is. Cut out of a photograph of a whole page, pictures would
            always be in the middle.
        surroundings: what is seen beyond a picture's edge, "black" or "photo".
        white_balance: whether to put colours right by the patch strip.
        seed: of the offsets.
    """

    views: tuple[View, ...] = VIEWS
    scale_one: str | float = "page"
    offset: float = 0.0
    surroundings: str = "black"
    white_balance: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.views or any(view not in VIEWS for view in self.views):
            raise WhorlError(f"views must be some of {', '.join(VIEWS)}; got {self.views!r}.")
        if not 0 <= self.offset <= 299:
            raise WhorlError(f"offset must be from 0 to 299 pixels; got {self.offset!r}.")
        if self.surroundings not in SURROUNDINGS:
            raise WhorlError(f"surroundings must be {' or '.join(SURROUNDINGS)}; got {self.surroundings!r}.")

    def shift(self, photo: str, number: int) -> tuple[float, float]:
        """Draw the offset of one picture in one photograph."""
        if not self.offset:
            return (0.0, 0.0)
        digest = hashlib.blake2b(f"{self.seed}/{photo}/{number}".encode(), digest_size=16).digest()
        random = np.random.default_rng(int.from_bytes(digest, "big"))
        right, down = random.uniform(0, self.offset, 2) * random.choice((-1, 1), 2)
        return (float(right), float(down))


@dataclass(kw_only=True)
class Scored:
    """What came of photographs.

    Attributes:
        settings: how they were looked at.
        targets: names of the networks that were asked.
        photos: how many photographs there were.
        captures: every picture that was identified.
        unread: photographs that gave nothing, with the reason.
        partly: how many pictures were seen in part only, and left out.
        unbalanced: photographs, of those to be balanced, in which no patch strip could be seen for some page.
        shown: a few pictures as they were cut out, by photograph, id, version and view.
    """

    settings: Settings
    targets: tuple[str, ...]
    photos: int = 0
    captures: list[Capture] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    partly: int = 0
    unbalanced: list[str] = field(default_factory=list)
    shown: dict[tuple[str, str], dict[tuple[str, View], Pixels]] = field(default_factory=dict)


def together(parts: Sequence[Scored]) -> Scored:
    """Put several scores into one, with a few pictures of each to show. All must have the same settings and targets."""
    whole = Scored(settings=parts[0].settings, targets=parts[0].targets)
    for part in parts:
        whole.photos += part.photos
        whole.partly += part.partly
        whole.captures += part.captures
        whole.unread += part.unread
        whole.unbalanced += part.unbalanced
        whole.shown |= dict(list(part.shown.items())[: max(1, SHOWN // len(parts))])
    return whole


@dataclass(frozen=True, eq=False, kw_only=True)
class Cut:
    """One picture, cut out of a photograph.

    Attributes:
        sheet: fingerprint of its sheet.
        number: of its cell.
        seen: how it lies in the photograph.
        misfit: how far marker corners lie off a plane, in pixels.
        pictures: (h, w, 3) uint8 for each view.
    """

    sheet: int
    number: int
    seen: Seen
    misfit: float
    pictures: dict[View, Pixels]


@dataclass(frozen=True, eq=False, kw_only=True)
class Looked:
    """What a photograph shows, before any network is asked; small enough to be sent between processes.

    Attributes:
        photo: its name.
        cuts: every picture that is wholly visible.
        partly: how many are not.
        reason: why there are no pictures; empty if there are.
        unbalanced: whether colours were to be put right, and no patch strip could be seen for some page.
    """

    photo: str
    cuts: list[Cut]
    partly: int = 0
    reason: str = ""
    unbalanced: bool = False


def look(photo: Pixels, name: str, sheets: Sequence[Sheet], settings: Settings) -> tuple[Looked, Findings]:
    """Find the pictures of a photograph, and cut them out.

    Args:
        photo: (H, W, 3) RGB, uint8.
        name: of the photograph.
        sheets: that may be in it.
        settings: how to look.
    """
    cv2 = opencv()
    found = find_cells(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), sheets)
    curves = _curves(photo, found.cells) if settings.white_balance else {}
    cuts = []
    for cell in found.cells:
        number, per_pixel = cell.sheet.number(cell.item), unit(cell, photo.shape, settings.scale_one)
        shift = settings.shift(name, number)
        pictures: dict[View, Pixels] = {}
        for view in settings.views:
            if view == "rectified":
                cut = rectified(photo, cell)
            else:
                cut = as_seen(photo, cell, per_pixel, shift, surroundings=settings.surroundings)
            curve = curves.get((cell.sheet.fingerprint, cell.item.page))
            if curve is not None:
                # Black around the picture is no part of the photograph, and stays black.
                cut = np.where(cut.any(axis=-1, keepdims=True), balanced(cut, curve), cut)
            pictures[view] = cut
        seen = measure(cell, per_pixel, shift)
        cuts.append(Cut(sheet=cell.sheet.fingerprint, number=number, seen=seen, misfit=cell.misfit, pictures=pictures))
    looked = Looked(
        photo=name,
        cuts=cuts,
        partly=len(found.partly),
        reason="" if cuts else why_nothing(found),
        unbalanced=any(curve is None for curve in curves.values()),
    )
    return looked, found


class Scorer:
    """Takes photographs one by one, asks networks about them, and keeps what they say.

    Args:
        sheets: that may be in the photographs.
        targets: networks to ask.
        settings: how to look.
        device: of the networks.
        save: folder for the pictures that are cut out; None keeps none.
    """

    def __init__(
        self,
        sheets: Sequence[Sheet],
        targets: Sequence[Target],
        settings: Settings | None = None,
        *,
        device: torch.device | None = None,
        save: Path | None = None,
    ) -> None:
        if not targets:
            raise WhorlError("expected at least one network to ask, got none. `whorl models` lists all.")
        self.sheets, self.targets, self.save = sheets, targets, save
        self.device = device or torch.device("cpu")
        self.result = Scored(settings=settings or Settings(), targets=tuple(target.name for target in targets))
        self._by_fingerprint = {sheet.fingerprint: sheet for sheet in sheets}

    def add(self, photo: Pixels, name: str) -> Findings:
        """Score one photograph.

        Args:
            photo: (H, W, 3) RGB, uint8.
            name: of the photograph.
        """
        looked, found = look(photo, name, self.sheets, self.result.settings)
        self.take(looked)
        return found

    def skip(self, name: str, reason: str) -> None:
        """Note a photograph that cannot be scored."""
        self.count(Photographed(photo=name, reason=reason))

    def take(self, looked: Looked) -> Photographed:
        """Ask the networks about the pictures of one photograph, and count what they say."""
        answers = {
            (view, target.name): self._ask(target, [cut.pictures[view] for cut in looked.cuts])
            for view in self.result.settings.views
            for target in self.targets
        }
        captures = []
        for place, cut in enumerate(looked.cuts):
            sheet = self._by_fingerprint[cut.sheet]
            item = sheet.by_number[cut.number]
            given = {key: said[place] for key, said in answers.items()}
            captures.append(
                Capture(
                    photo=looked.photo, sheet=sheet.name, item=item, seen=cut.seen, misfit=cut.misfit, answers=given
                )
            )
            self._keep(looked.photo, sheet, item, cut.pictures)
        found = Photographed(
            photo=looked.photo,
            captures=captures,
            partly=looked.partly,
            reason=looked.reason,
            unbalanced=looked.unbalanced,
        )
        self.count(found)
        return found

    def count(self, found: Photographed) -> None:
        """Add one photograph that networks were asked about, here or earlier."""
        result = self.result
        result.photos += 1
        result.partly += found.partly
        result.captures += found.captures
        if found.unbalanced:
            result.unbalanced.append(found.photo)
        if not found.captures:
            result.unread.append(Unread(photo=found.photo, reason=found.reason))

    @torch.no_grad()
    def _ask(self, target: Target, pictures: Sequence[Pixels]) -> list[int]:
        """Ask a network about pictures, those of one size together."""
        answers = [0] * len(pictures)
        by_size: dict[tuple[int, ...], list[int]] = {}
        for place, picture in enumerate(pictures):
            by_size.setdefault(picture.shape, []).append(place)
        for places in by_size.values():
            for start in range(0, len(places), _BATCH):
                part = places[start : start + _BATCH]
                batch = to_tensor(np.stack([pictures[place] for place in part])).to(self.device)
                for place, answer in zip(part, target.net(batch).argmax(1).tolist(), strict=True):
                    answers[place] = answer
        return answers

    def _keep(self, photo: str, sheet: Sheet, item: Print, views: dict[View, Pixels]) -> None:
        shown = self.result.shown
        if (photo, item.id) in shown or len(shown) < SHOWN:
            kept = shown.setdefault((photo, item.id), {})
            kept |= {(item.version, view): picture for view, picture in views.items()}
        if self.save is not None:
            file = f"{Path(photo).stem}/{sheet.name}-{item.page + 1}-{item.place + 1}.png"
            for view, picture in views.items():
                save_image(self.save / view.replace(" ", "-") / file, to_tensor(picture))


def _curves(photo: Pixels, cells: Sequence[Found]) -> dict[tuple[int, int], Curves | None]:
    """Curves of each page, by sheet and page."""
    pages: dict[tuple[int, int], list[Found]] = {}
    for cell in cells:
        pages.setdefault((cell.sheet.fingerprint, cell.item.page), []).append(cell)
    return {page: grey_curves(photo, own) for page, own in pages.items()}


def score(
    photos: Iterable[str | Path],
    sheets: Sequence[Sheet],
    targets: Sequence[Target],
    settings: Settings | None = None,
    *,
    device: torch.device | None = None,
    save: Path | None = None,
    overlays: Path | None = None,
    report: Report = silent,
) -> Scored:
    """Score photographs, one in memory at a time. What cannot be scored is listed, and the others go on.

    Args:
        photos: files and folders.
        sheets: that they may show; ``sheet.read_sheets`` finds those of a run.
        targets: networks to ask.
        settings: how to look.
        device: of the networks.
        save: folder for the pictures that are cut out; None keeps none.
        overlays: folder for small copies of the photographs with what was found drawn in; None keeps none.
        report: told of each photograph.

    Raises:
        WhorlError: nothing to score.
    """
    paths = list_photos(photos)
    names = _names(paths)
    scorer = Scorer(sheets, targets, settings, device=device, save=save)
    seen: dict[str, str] = {}
    for done, path in enumerate(paths):
        report("scoring photographs", done, len(paths))
        name = names[done]
        try:
            digest = sha256_of(path)
            if digest in seen:
                scorer.skip(name, f"the same photograph as {seen[digest]}, which counts once.")
                continue
            photo = read_photo(path)
        except (WhorlError, OSError) as error:
            scorer.skip(name, str(error).removeprefix(f"{path}: "))
            continue
        seen[digest] = name
        found = scorer.add(photo, name)
        if overlays is not None:
            save_overlay(overlays / f"{done + 1:04d}-{path.stem}.jpg", photo, found)
        del photo  # or two would be in memory while the next is read
    report("scoring photographs", len(paths), len(paths))
    return scorer.result


def why_nothing(found: Findings) -> str:
    """Say why a photograph has no cell that counts."""
    if found.partly:
        return (
            f"{len(found.partly)} pictures are seen in part only: a picture counts if all four markers are seen. "
            "Move back, or uncover the page."
        )
    if found.strangers:
        names = ", ".join(f"{fingerprint:05x}" for fingerprint in found.strangers)
        return f"markers of another print, sheet {names}. Score it with the run that it was printed from."
    return "no markers to be seen. Is it a photograph of a printed sheet, sharp and near enough?"


def _names(paths: Sequence[Path]) -> list[str]:
    """Name photographs by file name, and by path where two share one."""
    short = [path.name for path in paths]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
