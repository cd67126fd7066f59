"""The paper's table 5, with a simulated printer and camera in place of real ones.

The paper printed a thousand images and photographed them by hand. Nothing here was printed or photographed: the
numbers say how attacks fare with the camera of :mod:`whorl.physical.camera`, and that is all that they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from whorl.evaluation import Comparison, SuccessRate
from whorl.files import sha256_of
from whorl.physical.camera import PRESETS, Camera
from whorl.physical.captures import SHOWN, Photographed, Scored, View, ViewSettings
from whorl.physical.libraries import opencv
from whorl.physical.scorer import Scorer, Views, extract
from whorl.physical.sheet import PrintedSheet
from whorl.physical.simulation import shoot, title
from whorl.physical.summary import VersionSummary, compared, summarise
from whorl.progress import Progress, silent
from whorl.records import Count, Record, checked
from whorl.runs.folder import as_json
from whorl.runs.networks import Target
from whorl.runs.store import Store

SETTINGS = ("setting1", "setting2", "setting3")
OFFSET = 20.0
VIEW: View = "as seen"
WIDTH, HEIGHT = 3000, 4000  # twelve megapixels, as phones have: a printed pixel is 2.3 of the photograph's


@dataclass(frozen=True, kw_only=True, repr=False)
class Rehearsal(Record):
    """How a sheet is photographed and scored in effect.

    Args:
        settings: presets of the camera.
        size: (width, height) of the photographs, of an upright page.
        seed: of all randomness.
    """

    settings: tuple[str, ...] = SETTINGS
    size: tuple[int, int] = (WIDTH, HEIGHT)
    seed: int = 0

    @property
    def cameras(self) -> dict[str, Camera]:
        """The camera of each setting."""
        width, height = self.size
        return {name: PRESETS[name].with_(width=width, height=height) for name in self.settings}

    @property
    def views(self) -> ViewSettings:
        """How images are cut out."""
        return ViewSettings(views=(VIEW,), offset=OFFSET, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class Table5:
    """Recognition accuracy of attacked prints, by setting.

    Attributes:
        scored: by setting: every capture, its pose and what was predicted for it.
        printed: how many images each setting should show.
    """

    scored: dict[str, Scored]
    printed: int

    def lines(self, setting: str) -> dict[tuple[str, str], VersionSummary]:
        """Counts by version and target."""
        return {(line.version, line.target): line for line in summarise(self.scored[setting])}

    def identified(self, setting: str) -> float:
        """Share of the printed images that were found."""
        return len(self.scored[setting].captures) / self.printed

    def compared(self, setting: str, first: str, second: str, target: str) -> Comparison:
        """Whether two versions differ, on the images that both were captured of: McNemar's test."""
        return compared(self.scored[setting], VIEW, first, second, target)

    def counts(self, setting: str, version: str, target: str) -> SuccessRate:
        """Counts of one version under one setting."""
        return self.lines(setting)[version, target].counts


def table5(
    sheet: PrintedSheet,
    targets: Sequence[Target],
    rehearsal: Rehearsal | None = None,
    *,
    workers: int = 1,
    folder: Path | None = None,
    progress: Progress = silent,
) -> Table5:
    """Print (in effect) a sheet, photograph it under each setting, and score what comes back.

    One page is in memory at a time, in each process.

    Args:
        sheet: clean and attacked images, interleaved.
        targets: networks to evaluate; the paper evaluates the one that was attacked.
        rehearsal: cameras and seed; the paper's if None.
        workers: processes that photograph and cut out; networks are evaluated by this one. The result is the same.
        folder: keeps what came of each photograph; with it, a run that was interrupted goes on where it stopped.
        progress: called with each page.
    """
    checked("workers", workers, Count)
    rehearsal = rehearsal or Rehearsal()
    total = sheet.pages * len(rehearsal.settings)
    progress("photographing and scoring", 0, total)
    # The first pages are photographed again: a contact sheet shows images of them, and images are not stored.
    shown = list(dict.fromkeys(item.id for item in sheet.prints))[:SHOWN]
    again = {item.page for item in sheet.prints if item.id in shown}
    with (
        nullcontext() if folder is None else Store.open(folder, ["whorl", "paper", "table5"]) as store,
        _pool(workers) as spread,
    ):
        scorers = {name: Scorer([sheet], targets, rehearsal.views, store=store) for name in rehearsal.settings}
        origins = [{} if store is None else _origins(sheet, rehearsal, page) for page in range(sheet.pages)]
        stored = [{} if page in again else _stored(sheet, page, scorers, origins[page]) for page in range(sheet.pages)]
        left = [page for page, own in enumerate(stored) if not own]
        fresh = iter(spread(partial(_photograph, sheet, rehearsal), left))
        for page, own in enumerate(stored):
            for setting, photographed in own.items():
                scorers[setting].result.photographed.append(photographed)
            for setting, (photographed, images) in {} if own else next(fresh).items():
                scorers[setting].evaluate(photographed, images, origins[page].get(setting))
            progress("photographing and scoring", (page + 1) * len(scorers), total)
    results = {name: scorer.result for name, scorer in scorers.items()}
    return Table5(scored=results, printed=len(sheet.prints))


def _origins(sheet: PrintedSheet, rehearsal: Rehearsal, page: int) -> dict[str, object]:
    """Give all that decides the pixels of each photograph of a page, by the camera's setting."""
    files = [sha256_of(item.file) for item in sheet.on_page(page)]
    return {setting: [as_json(camera), rehearsal.seed, files] for setting, camera in rehearsal.cameras.items()}


def _stored(
    sheet: PrintedSheet, page: int, scorers: Mapping[str, Scorer], origins: Mapping[str, object]
) -> dict[str, Photographed]:
    """Read what came of a page earlier, by the camera's setting; nothing unless all of it is there."""
    found = {name: scorer.stored(title(sheet, page, name), origins.get(name)) for name, scorer in scorers.items()}
    whole = {name: own for name, own in found.items() if own is not None}
    return whole if len(whole) == len(scorers) else {}


_Extracted = dict[str, tuple[Photographed, list[Views]]]


def _photograph(sheet: PrintedSheet, rehearsal: Rehearsal, page: int) -> _Extracted:
    """Photograph one page under every setting, and cut its images out."""
    cameras = rehearsal.cameras
    shots = zip(cameras, shoot(sheet, cameras, seed=rehearsal.seed, pages=[page]), strict=True)
    return {setting: extract(shot.photo, name, [sheet], rehearsal.views)[:2] for setting, (name, _, shot) in shots}


@contextmanager
def _pool(workers: int) -> Iterator[Callable[..., Iterable[_Extracted]]]:
    if workers == 1:
        yield map
        return
    # A fresh process: one that is forked may inherit locks of torch's threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        yield pool.map


def _one_thread() -> None:
    opencv().setNumThreads(1)
    torch.set_num_threads(1)
