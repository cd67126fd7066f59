"""Score photographs: find the images of each, cut them out, evaluate networks on them, and keep what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import whorl
from whorl.data import save_image
from whorl.data.classes import match
from whorl.data.image_files import Pixels, to_tensor
from whorl.errors import WhorlError
from whorl.evaluation import Pose, Predictor
from whorl.evaluation.prediction import slices
from whorl.files import hashed, sha256_of
from whorl.models.labels import named, shared_labels
from whorl.physical.captures import SHOWN, Capture, Photographed, Scored, View, ViewSettings
from whorl.physical.detection import Findings, by_page, find_cells
from whorl.physical.extraction import as_seen, balanced, grey_curves, measure, rectified, unit
from whorl.physical.libraries import opencv
from whorl.physical.photos import list_photos, read_photo, save_overlay
from whorl.physical.sheet import Print, PrintedSheet
from whorl.physical.simulation import simulated
from whorl.progress import Progress, silent
from whorl.runs.folder import as_json
from whorl.runs.networks import Target, device_of, identify
from whorl.runs.store import Store

Views = dict[View, Pixels]
"""One image as it was cut out, (h, w, 3) uint8, by the way of cutting it out."""

VERSION = 1
"""Of photographs and what is read in them. Raise it with every change of ``layout``, ``pdf``, ``camera``,
``simulation``, ``detection``, ``extraction`` or this module that changes a pixel or a measured number: what a store
holds of photographs from before then no longer counts."""

_BATCH = 32
_PLACE = Path("_photographs")


def extract(
    photo: Pixels, name: str, sheets: Sequence[PrintedSheet], settings: ViewSettings
) -> tuple[Photographed, list[Views], Findings]:
    """Find the images of a photograph, and cut them out. No network is evaluated.

    Args:
        photo: (H, W, 3) RGB, uint8.
        name: of the photograph.
        sheets: that may be in it.
        settings: how to cut images out.

    Returns:
        What came of it, with captures that nothing has been predicted for yet; the image of each capture; and what
        was found where. The first two are small enough to be sent between processes.
    """
    cv2 = opencv()
    found = find_cells(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), sheets)
    curves = {}
    if settings.white_balance:
        curves = {page: grey_curves(photo, cells) for page, cells in by_page(found.cells).items()}
    captures, images = [], []
    for cell in found.cells:
        per_pixel = unit(cell, photo.shape, settings.scale_one)
        shift = settings.shift(name, cell.sheet.number(cell.item))
        curve = curves.get((cell.sheet.fingerprint, cell.item.page))
        views: Views = {}
        for view in settings.views:
            if view == "rectified":
                cut = rectified(photo, cell)
            else:
                cut = as_seen(photo, cell, per_pixel, shift, surroundings=settings.surroundings)
            if curve is not None:
                # Black around the image is no part of the photograph, and stays black.
                cut = np.where(cut.any(axis=-1, keepdims=True), balanced(cut, curve), cut)
            views[view] = cut
        images.append(views)
        lies = measure(cell, per_pixel, shift)
        captures.append(Capture(photo=name, sheet=cell.sheet.name, item=cell.item, appearance=lies, misfit=cell.misfit))
    photographed = Photographed(
        photo=name,
        captures=captures,
        partly=len(found.partly),
        reason="" if captures else why_nothing(found),
        unbalanced=any(curve is None for curve in curves.values()),
    )
    return photographed, images, found


def why_nothing(found: Findings) -> str:
    """Say why a photograph has no cell that counts."""
    if found.partly:
        return (
            f"{len(found.partly)} images are seen in part only: an image counts if all four markers are seen. "
            "Move back, or uncover the page."
        )
    if found.strangers:
        names = ", ".join(f"{fingerprint:05x}" for fingerprint in found.strangers)
        return f"markers of another print, sheet {names}. Score it with the run that it was printed from."
    return "no markers found. Expected a photograph of a printed sheet, in focus and near enough."


class Scorer:
    """Takes photographs one by one, evaluates networks on their images, and keeps what they predict.

    Args:
        sheets: that may be in the photographs.
        targets: networks to evaluate, on one device.
        settings: how to cut images out.
        save: folder for the images that are cut out; None keeps none.
        store: keeps what came of each photograph, for the next time; None keeps nothing.
    """

    def __init__(
        self,
        sheets: Sequence[PrintedSheet],
        targets: Sequence[Target],
        settings: ViewSettings | None = None,
        *,
        save: Path | None = None,
        store: Store | None = None,
    ) -> None:
        if not targets:
            raise WhorlError("expected at least one network to evaluate, got none. `whorl models` lists all.")
        self.sheets, self.save, self.store = {sheet.name: sheet for sheet in sheets}, save, store
        self._predictor = Predictor({target.name: target.net for target in targets})
        self._labels = shared_labels(self._predictor.targets)
        self.device = device_of(targets[0].net)
        self.result = Scored(settings=settings or ViewSettings(), targets=tuple(target.name for target in targets))
        self._about = "" if store is None else _about(sheets, targets, self.result.settings)

    def add(self, photo: Pixels, name: str, origin: object = None) -> Findings:
        """Score one photograph.

        Args:
            photo: (H, W, 3) RGB, uint8.
            name: of the photograph.
            origin: see ``evaluate``.
        """
        photographed, images, found = extract(photo, name, list(self.sheets.values()), self.result.settings)
        self.evaluate(photographed, images, origin)
        return found

    def stored(self, name: str, origin: object) -> Photographed | None:
        """Read what came of a photograph earlier, of the same sheets, networks and settings; None if nothing did.

        Args:
            name: of the photograph.
            origin: what decides its pixels, as JSON: the hash of its file, or every setting of the simulation.
        """
        content = None if self.store is None else self.store.record(_PLACE, self._key(name, origin))
        return None if content is None else self._matched(Photographed.from_json(content, self.sheets))

    def skip(self, name: str, reason: str) -> None:
        """Note a photograph that cannot be scored."""
        self.result.photographed.append(Photographed(photo=name, reason=reason))

    def evaluate(self, photographed: Photographed, images: Sequence[Views], origin: object = None) -> None:
        """Evaluate the networks on the images of one photograph, and keep what they predict.

        Args:
            photographed: as ``extract`` gives it.
            images: of its captures.
            origin: what decides its pixels, for the store; see ``stored``.

        Raises:
            WhorlError: a network's answer cannot be trusted, or a label is none of its classes; see
                ``whorl.evaluation.Predictor``.
        """
        photographed = self._matched(photographed)
        predictions: list[dict[tuple[View, str], int]] = [{} for _ in images]
        for view in self.result.settings.views:
            for places in _batches([views[view].shape for views in images]):
                batch = to_tensor(np.stack([images[place][view] for place in places])).to(self.device)
                items = [photographed.captures[place].item for place in places]
                found = self._predictor.labels(
                    batch,
                    dict.fromkeys(self._predictor.targets, (Pose(),)),
                    y=torch.tensor([item.label for item in items]),
                    ids=[f"{item.id} in {photographed.photo}" for item in items],
                )
                for (name, _), labels in found.items():
                    for place, label in zip(places, labels.tolist(), strict=True):
                        predictions[place][view, name] = label
        captures = [
            replace(capture, predictions=own) for capture, own in zip(photographed.captures, predictions, strict=True)
        ]
        for capture, views in zip(captures, images, strict=True):
            self._keep(capture, views)
        whole = replace(photographed, captures=captures)
        self.result.photographed.append(whole)
        if self.store is not None:
            self.store.put_record(_PLACE, self._key(whole.photo, origin), whole.to_json(self.sheets))

    def _matched(self, photographed: Photographed) -> Photographed:
        """Give images that are known by the name of their class folder the class of that name."""

        def matched(item: Print) -> Print:
            if not item.class_name or self._labels is None or not named(self._labels):
                return item
            return replace(item, label=match([item.class_name], self._labels, item.id)[0], class_name="")

        captures = [replace(capture, item=matched(capture.item)) for capture in photographed.captures]
        return replace(photographed, captures=captures)

    def _key(self, name: str, origin: object) -> str:
        return hashed([self._about, name, origin])

    def _keep(self, capture: Capture, views: Views) -> None:
        photo, item, shown = capture.photo, capture.item, self.result.shown
        if (photo, item.id) in shown or len(shown) < SHOWN:
            kept = shown.setdefault((photo, item.id), {})
            kept |= {(item.version, view): image for view, image in views.items()}
        if self.save is not None:
            file = f"{Path(photo).stem}/{capture.sheet}-{item.page + 1}-{item.place + 1}.png"
            for view, image in views.items():
                save_image(self.save / view.replace(" ", "-") / file, to_tensor(image))


def score(
    photos: Iterable[str | Path],
    sheets: Sequence[PrintedSheet],
    targets: Sequence[Target],
    settings: ViewSettings | None = None,
    *,
    save: Path | None = None,
    overlays: Path | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
) -> Scored:
    """Score photographs, one in memory at a time. What cannot be scored is listed, and the others go on.

    Args:
        photos: files and folders.
        sheets: that they may show; :func:`whorl.physical.read_sheets` finds those of a run.
        targets: networks to evaluate.
        settings: how to cut images out.
        save: folder for the images that are cut out; None keeps none.
        overlays: folder for small copies of the photographs with what was found drawn in; None keeps none.
        folder: keeps what came of each photograph: one that was scored before, by the same networks in the same way, is
            not scored again, unless its images are to be shown or kept. None keeps nothing.
        progress: called with each photograph.

    Raises:
        WhorlError: nothing to score.
    """
    paths, known = list_photos(photos), dict[str, str]()
    with nullcontext() if folder is None else Store.open(folder, ["whorl", "physical", "score"]) as store:
        scorer, names = Scorer(sheets, targets, settings, save=save, store=store), _names(paths)
        scorer.result.simulated = {names[paths.index(path)] for path in simulated(paths)}
        for done, (path, name) in enumerate(zip(paths, names, strict=True)):
            progress("scoring photographs", done, len(paths))
            try:
                digest = sha256_of(path)
            except OSError as error:
                scorer.skip(name, str(error))
                continue
            if digest in known:
                scorer.skip(name, f"the same photograph as {known[digest]}, which counts once.")
                continue
            # Images are not stored: where they are to be shown or kept, they are cut out again.
            fresh = save is not None or overlays is not None or len(scorer.result.shown) < SHOWN
            stored = None if fresh else scorer.stored(name, digest)
            if stored is not None:
                known[digest] = name
                scorer.result.photographed.append(stored)
                continue
            try:
                photo = read_photo(path)
            except WhorlError as error:
                scorer.skip(name, str(error).removeprefix(f"{path}: "))
                continue
            known[digest] = name
            found = scorer.add(photo, name, digest)
            if overlays is not None:
                save_overlay(overlays / f"{done + 1:04d}-{path.stem}.jpg", photo, found)
            del photo  # or two would be in memory while the next is read
    progress("scoring photographs", len(paths), len(paths))
    return scorer.result


def _about(sheets: Sequence[PrintedSheet], targets: Sequence[Target], settings: ViewSettings) -> str:
    """Hash all that what comes of any photograph depends on, besides the photograph."""
    prints = [
        [item.id, item.label, item.version, item.size, sheet.number(item)] for sheet in sheets for item in sheet.prints
    ]
    networks = {target.name: identify(target.net) for target in targets}
    layouts = [as_json(sheet.layout) for sheet in sheets]
    return hashed([VERSION, whorl.__version__, layouts, prints, networks, as_json(settings)])


def _batches(shapes: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Places of images that can be evaluated together: of one size, and not too many."""
    by_size: dict[tuple[int, ...], list[int]] = {}
    for place, shape in enumerate(shapes):
        by_size.setdefault(shape, []).append(place)
    for places in by_size.values():
        yield from (places[part] for part in slices(len(places), _BATCH))


def _names(paths: Sequence[Path]) -> list[str]:
    """Name photographs by file name, and by path where two share one."""
    short = [path.name for path in paths]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
