"""The paper's table 5, with a simulated printer and camera in place of real ones.

The paper printed a thousand pictures and photographed them by hand. Nothing here was printed or photographed: the
numbers say how attacks fare with the camera of :mod:`whorl.physical.camera`, and that is all that they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import torch

from whorl.errors import WhorlError
from whorl.evaluation import Comparison, Outcomes, SuccessRate, compare
from whorl.physical.camera import PRESETS, Camera
from whorl.physical.libraries import opencv
from whorl.physical.scoring import Capture, Looked, Scored, Scorer, Settings, View, look
from whorl.physical.sheet import CLEAN, Sheet
from whorl.physical.simulating import shoot
from whorl.physical.summary import Line, summarise
from whorl.runs.progress import Report, silent
from whorl.runs.targets import Target

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
        printed: how many pictures each setting should show.
        view: how pictures were cut out.
    """

    scored: dict[str, Scored]
    printed: int
    view: View

    def lines(self, setting: str) -> dict[tuple[str, str], Line]:
        """Counts by version and target."""
        return {(line.version, line.target): line for line in summarise(self.scored[setting]) if line.view == self.view}

    def identified(self, setting: str) -> float:
        """Share of the printed pictures that were found."""
        return len(self.scored[setting].captures) / self.printed

    def compared(self, setting: str, first: str, second: str, target: str) -> Comparison:
        """Whether two versions differ, on the pictures that both were captured of: McNemar's test."""
        captures = self.scored[setting].captures
        by_id = {
            version: {capture.item.id: capture for capture in captures if capture.item.version == version}
            for version in (CLEAN, first, second)
        }
        ids = [name for name in by_id[CLEAN] if name in by_id[first] and name in by_id[second]]

        def right(version: str) -> torch.Tensor:
            said: list[Capture] = [by_id[version][name] for name in ids]
            return torch.tensor([capture.right(self.view, target) for capture in said], dtype=torch.bool)

        clean = right(CLEAN)
        return compare(Outcomes(clean, right(first)), Outcomes(clean, right(second)))

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
    report: Report = silent,
) -> Table5:
    """Print (in effect) a sheet, photograph it under each setting, and score what comes back.

    Nothing is written to disk, and one page is in memory at a time, in each process.

    Args:
        sheet: clean and attacked pictures, interleaved.
        targets: networks to ask; the paper asks the one that was attacked.
        settings: presets of the camera.
        size: (width, height) of the photographs, of an upright page.
        view: how to cut pictures out.
        device: of the networks.
        seed: of all randomness.
        workers: processes that photograph and cut out; networks are asked by this one. The result is the same.
        report: told of each photograph.
    """
    if workers < 1:
        raise WhorlError(f"workers must be a whole number from 1; got {workers}.")
    cameras = {name: PRESETS[name].with_(width=size[0], height=size[1]) for name in settings}
    looking = Settings(views=(view,), offset=OFFSET, seed=seed)
    scorers = {name: Scorer([sheet], targets, looking, device=device) for name in cameras}
    total = sheet.pages * len(cameras)
    report("photographing and scoring", 0, total)
    done = 0
    work = partial(_photograph, sheet, cameras, looking, seed)
    with _pool(workers) as spread:
        for shots in spread(work, range(sheet.pages)):
            for setting, looked in shots:
                scorers[setting].take(looked)
            done += len(shots)
            report("photographing and scoring", done, total)
    results = {name: scorer.result for name, scorer in scorers.items()}
    return Table5(scored=results, printed=len(sheet.prints), view=view)


def _photograph(
    sheet: Sheet, cameras: Mapping[str, Camera], looking: Settings, seed: int, page: int
) -> list[tuple[str, Looked]]:
    """Photograph one page under every setting, and cut its pictures out."""
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
