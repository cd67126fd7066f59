"""The paper's table 5, with a simulated printer and camera in place of real ones.

The paper printed a thousand images and photographed them by hand. Nothing here was printed or photographed: the
numbers say how attacks fare with the camera of :mod:`whorl.physical.camera`, and that is all that they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from whorl.errors import WhorlError
from whorl.evaluation import Comparison, SuccessRate
from whorl.physical.camera import PRESETS, Camera
from whorl.physical.captures import SHOWN, Scored, Settings, View
from whorl.physical.libraries import opencv
from whorl.physical.looking import Looked, look
from whorl.physical.notes import Notes, identity_of
from whorl.physical.scoring import Scorer
from whorl.physical.sheet import Sheet
from whorl.physical.simulating import shoot
from whorl.physical.summary import Line, compared, summarise
from whorl.progress import Progress, silent
from whorl.runs.networks import Target

ATTACKS = ("eot", "dim", "ti-dim", "ai-dim", "ai-ram")
SETTINGS = ("setting1", "setting2", "setting3")
OFFSET = 20.0
PAPER = {
    "eot": (24.3, 21.6, 18.0),
    "dim": (11.8, 12.7, 15.3),
    "ti-dim": (10.7, 8.5, 7.6),
    "ai-dim": (10.5, 5.5, 5.6),
}
"""What the paper reports: recognition accuracy (%) of Inception-v3 on real photographs of prints."""
SIMULATED = (
    "Simulated: a model of a printer and a camera took the place of real ones. These are not photographs of prints, "
    "and the numbers do not replace the paper's."
)
WIDTH, HEIGHT = 3000, 4000  # twelve megapixels, as phones have: a printed pixel is 2.3 of the photograph's


@dataclass(frozen=True, kw_only=True)
class Table5:
    """Recognition accuracy of attacked prints, by setting.

    Attributes:
        scored: by setting: every capture, its pose and its answers.
        printed: how many images each setting should show.
        view: how images were cut out.
    """

    scored: dict[str, Scored]
    printed: int
    view: View

    def lines(self, setting: str) -> dict[tuple[str, str], Line]:
        """Counts by version and target."""
        return {(line.version, line.target): line for line in summarise(self.scored[setting]) if line.view == self.view}

    def identified(self, setting: str) -> float:
        """Share of the printed images that were found."""
        return len(self.scored[setting].captures) / self.printed

    def compared(self, setting: str, first: str, second: str, target: str) -> Comparison:
        """Whether two versions differ, on the images that both were captured of: McNemar's test."""
        return compared(self.scored[setting], self.view, first, second, target)

    def counts(self, setting: str, version: str, target: str) -> SuccessRate:
        """Counts of one version under one setting."""
        return self.lines(setting)[version, target].counts


def table5(
    sheet: Sheet,
    targets: Sequence[Target],
    *,
    settings: Sequence[str] = SETTINGS,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    view: View = "as seen",
    device: torch.device | None = None,
    seed: int = 0,
    workers: int = 1,
    notes: Path | None = None,
    progress: Progress = silent,
) -> Table5:
    """Print (in effect) a sheet, photograph it under each setting, and score what comes back.

    One page is in memory at a time, in each process.

    Args:
        sheet: clean and attacked images, interleaved.
        targets: networks to ask; the paper asks the one that was attacked.
        settings: presets of the camera.
        size: (width, height) of the photographs, of an upright page.
        view: how to cut images out.
        device: of the networks.
        seed: of all randomness.
        workers: processes that photograph and cut out; networks are asked by this one. The result is the same.
        notes: file for what was said of each page; with it, a run that was interrupted goes on where it stopped.
        progress: called with each photograph.
    """
    if workers < 1:
        raise WhorlError(f"workers must be a whole number from 1; got {workers}.")
    cameras = {name: PRESETS[name].with_(width=size[0], height=size[1]) for name in settings}
    looking = Settings(views=(view,), offset=OFFSET, seed=seed)
    scorers = {name: Scorer([sheet], targets, looking, device=device) for name in cameras}
    told = identity_of(sheet, targets, cameras=cameras, looking=looking) if notes else ""
    known = Notes(notes, told, sheet)
    # The first pages are photographed again: a contact sheet shows images of them, and images are not noted.
    shown = list(dict.fromkeys(item.id for item in sheet.prints))[:SHOWN]
    again = {item.page for item in sheet.prints if item.id in shown}
    left = [page for page in range(sheet.pages) if page not in known.pages or page in again]
    total = sheet.pages * len(cameras)
    progress("photographing and scoring", 0, total)
    work = partial(_photograph, sheet, cameras, looking, seed)
    with _pool(workers) as spread:
        fresh = zip(left, spread(work, left), strict=True)
        for page in range(sheet.pages):
            if page in left:
                _, shots = next(fresh)
                known.add(page, {setting: scorers[setting].take(looked) for setting, looked in shots})
            else:
                for setting, found in known.pages[page].items():
                    scorers[setting].count(found)
            progress("photographing and scoring", (page + 1) * len(cameras), total)
    results = {name: scorer.result for name, scorer in scorers.items()}
    return Table5(scored=results, printed=len(sheet.prints), view=view)


def _photograph(
    sheet: Sheet, cameras: Mapping[str, Camera], looking: Settings, seed: int, page: int
) -> list[tuple[str, Looked]]:
    """Photograph one page under every setting, and cut its images out."""
    shots = zip(cameras, shoot(sheet, cameras, seed=seed, pages=[page]), strict=True)
    return [(setting, look(shot.photo, title, [sheet], looking)[0]) for setting, (title, _, shot) in shots]


@contextmanager
def _pool(workers: int) -> Iterator[Callable[..., Iterable[list[tuple[str, Looked]]]]]:
    if workers == 1:
        yield map
        return
    # A fresh process: one that is forked may inherit locks of torch's threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        yield pool.map


def _one_thread() -> None:
    opencv().setNumThreads(1)
    torch.set_num_threads(1)
