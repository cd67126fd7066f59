"""The paper's table 5, with a simulated printer and camera in place of real ones.

The paper printed a thousand images and photographed them by hand. Nothing here was printed or photographed: the
numbers say how attacks fare with the camera of :mod:`whorl.physical.camera`, and that is all that they say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import whorl
from whorl.errors import WhorlError
from whorl.evaluation import Comparison, SuccessRate
from whorl.files import sha256_of, write_file
from whorl.physical.camera import PRESETS, Camera
from whorl.physical.captures import SHOWN, Photographed, Scored, View, ViewSettings
from whorl.physical.libraries import opencv
from whorl.physical.scorer import Scorer, Views, extract
from whorl.physical.sheet import PrintedSheet
from whorl.physical.simulation import shoot
from whorl.physical.summary import VersionSummary, compared, summarise
from whorl.progress import Progress, silent
from whorl.records import Record
from whorl.runs.folder import as_json
from whorl.runs.networks import Target, identify

SETTINGS = ("setting1", "setting2", "setting3")
OFFSET = 20.0
VIEW: View = "as seen"
SIMULATED = (
    "Simulated: a model of a printer and a camera took the place of real ones. These are not photographs of prints, "
    "and the numbers do not replace the paper's."
)
WIDTH, HEIGHT = 3000, 4000  # twelve megapixels, as phones have: a printed pixel is 2.3 of the photograph's
VERSION = 1
"""Of the simulated photographs and of what is cut out of them. Raise it with every change of ``layout``, ``pdf``,
``camera``, ``simulation``, ``detection``, ``extraction`` or ``scorer`` that changes a pixel or a measured number: what
was noted before then no longer counts."""


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


class Notes:
    """What came of simulated photographs, a file each, so that a run that was interrupted goes on where it stopped.

    Args:
        folder: of the files; None keeps none.
        sheet: what is photographed.
        targets: networks that are evaluated.
        rehearsal: how.
    """

    def __init__(
        self, folder: Path | None, sheet: PrintedSheet, targets: Sequence[Target], rehearsal: Rehearsal
    ) -> None:
        self.folder, self.sheet, self.rehearsal = folder, sheet, rehearsal
        self._about: dict[str, Any] = {}
        if folder is not None:
            prints = [
                [item.id, item.label, item.version, item.size, sheet.number(item), sha256_of(item.file)]
                for item in sheet.prints
            ]
            self._about = {
                "version": VERSION,
                "whorl": whorl.__version__,
                "layout": as_json(sheet.layout),
                "prints": prints,
                "targets": {target.name: identify(target.net) for target in targets},
                "views": as_json(rehearsal.views),
                "seed": rehearsal.seed,
            }

    def read(self, page: int) -> dict[str, Photographed]:
        """What was noted of a page, by the camera's setting; nothing unless all of it was."""
        noted: dict[str, Photographed] = {}
        for setting in self.rehearsal.settings if self.folder is not None else ():
            try:
                content = json.loads(self._file(page, setting).read_text(encoding="utf-8"))
            except FileNotFoundError:
                return {}
            noted[setting] = Photographed.from_json(content, self.sheet)
        return noted

    def write(self, page: int, setting: str, photographed: Photographed) -> None:
        """Note what came of the photograph of one page."""
        if self.folder is not None:
            write_file(self._file(page, setting), json.dumps(photographed.to_json(self.sheet)))

    def _file(self, page: int, setting: str) -> Path:
        key = self._about | {"page": page, "camera": as_json(self.rehearsal.cameras[setting]), "setting": setting}
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return Path(self.folder or "") / f"{digest}.json"


def table5(
    sheet: PrintedSheet,
    targets: Sequence[Target],
    rehearsal: Rehearsal | None = None,
    *,
    device: torch.device | None = None,
    workers: int = 1,
    notes: Path | None = None,
    progress: Progress = silent,
) -> Table5:
    """Print (in effect) a sheet, photograph it under each setting, and score what comes back.

    One page is in memory at a time, in each process.

    Args:
        sheet: clean and attacked images, interleaved.
        targets: networks to evaluate; the paper evaluates the one that was attacked.
        rehearsal: cameras, view and seed; the paper's if None.
        device: of the networks.
        workers: processes that photograph and cut out; networks are evaluated by this one. The result is the same.
        notes: folder for what came of each photograph; with it, a run that was interrupted goes on where it stopped.
        progress: called with each page.
    """
    if workers < 1:
        raise WhorlError(f"workers must be a whole number from 1; got {workers}.")
    rehearsal = rehearsal or Rehearsal()
    scorers = {name: Scorer([sheet], targets, rehearsal.views, device=device) for name in rehearsal.settings}
    known = Notes(notes, sheet, targets, rehearsal)
    # The first pages are photographed again: a contact sheet shows images of them, and images are not noted.
    shown = list(dict.fromkeys(item.id for item in sheet.prints))[:SHOWN]
    again = {item.page for item in sheet.prints if item.id in shown}
    noted = {page: {} if page in again else known.read(page) for page in range(sheet.pages)}
    total = sheet.pages * len(scorers)
    progress("photographing and scoring", 0, total)
    with _pool(workers) as spread:
        fresh = iter(spread(partial(_photograph, sheet, rehearsal), [page for page, own in noted.items() if not own]))
        for page, own in noted.items():
            for setting, photographed in own.items():
                scorers[setting].result.photographed.append(photographed)
            for setting, (photographed, images) in {} if own else next(fresh).items():
                known.write(page, setting, scorers[setting].evaluate(photographed, images))
            progress("photographing and scoring", (page + 1) * len(scorers), total)
    results = {name: scorer.result for name, scorer in scorers.items()}
    return Table5(scored=results, printed=len(sheet.prints))


_Cut = dict[str, tuple[Photographed, list[Views]]]


def _photograph(sheet: PrintedSheet, rehearsal: Rehearsal, page: int) -> _Cut:
    """Photograph one page under every setting, and cut its images out."""
    cameras = rehearsal.cameras
    shots = zip(cameras, shoot(sheet, cameras, seed=rehearsal.seed, pages=[page]), strict=True)
    return {setting: extract(shot.photo, title, [sheet], rehearsal.views)[:2] for setting, (title, _, shot) in shots}


@contextmanager
def _pool(workers: int) -> Iterator[Callable[..., Iterable[_Cut]]]:
    if workers == 1:
        yield map
        return
    # A fresh process: one that is forked may inherit locks of torch's threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        yield pool.map


def _one_thread() -> None:
    opencv().setNumThreads(1)
    torch.set_num_threads(1)
