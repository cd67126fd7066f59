"""Score photographs: look at each, ask the networks about its images, count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from whorl.data import save_image
from whorl.data.image_files import to_tensor
from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.physical.captures import SHOWN, Capture, Photographed, Pixels, Scored, Settings, Unread, View
from whorl.physical.finding import Findings
from whorl.physical.looking import Looked, look
from whorl.physical.overlay import save_overlay
from whorl.physical.photos import list_photos, read_photo
from whorl.physical.sheet import Print, Sheet
from whorl.progress import Progress, silent
from whorl.runs.networks import Target

_BATCH = 32


class Scorer:
    """Takes photographs one by one, asks networks about them, and keeps what they say.

    Args:
        sheets: that may be in the photographs.
        targets: networks to ask.
        settings: how to look.
        device: of the networks.
        save: folder for the images that are cut out; None keeps none.
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
        """Ask the networks about the images of one photograph, and count what they say."""
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
        """Ask a network about images, those of one size together."""
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


def score(
    photos: Iterable[str | Path],
    sheets: Sequence[Sheet],
    targets: Sequence[Target],
    settings: Settings | None = None,
    *,
    device: torch.device | None = None,
    save: Path | None = None,
    overlays: Path | None = None,
    progress: Progress = silent,
) -> Scored:
    """Score photographs, one in memory at a time. What cannot be scored is listed, and the others go on.

    Args:
        photos: files and folders.
        sheets: that they may show; ``sheet.read_sheets`` finds those of a run.
        targets: networks to ask.
        settings: how to look.
        device: of the networks.
        save: folder for the images that are cut out; None keeps none.
        overlays: folder for small copies of the photographs with what was found drawn in; None keeps none.
        progress: called with each photograph.

    Raises:
        WhorlError: nothing to score.
    """
    paths = list_photos(photos)
    names = _names(paths)
    scorer = Scorer(sheets, targets, settings, device=device, save=save)
    seen: dict[str, str] = {}
    for done, path in enumerate(paths):
        progress("scoring photographs", done, len(paths))
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
    progress("scoring photographs", len(paths), len(paths))
    return scorer.result


def _names(paths: Sequence[Path]) -> list[str]:
    """Name photographs by file name, and by path where two share one."""
    short = [path.name for path in paths]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
