"""Score adversarial images that lie in folders, whoever made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from whorl.data import BadImage
from whorl.evaluation import PAPER_POSES, Comparison, Distance, Outcomes, Pose, SuccessRate, check_recognised, outcomes
from whorl.progress import Progress, silent
from whorl.runs.adversarial import AdversarialFolder
from whorl.runs.networks import Target
from whorl.runs.pairs import PairedImages
from whorl.runs.results import Cell, mean_rate


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One attack on one target, over all poses.

    Attributes:
        attack: the folder's label.
        target: the network's name with its defence.
        mean: success rate, each pose counting the same; NaN if the target recognised no clean image in any.
        lowest: the pose with the lowest rate, and that rate; None if there is no rate.
        highest: likewise.
        interval: Wilson's, 95%, of the pooled counts; as wide as the images alone make it, however many the poses.
        pooled: counts of all poses.
        distance: of the adversarial images to the clean ones.
        versus_first: paired comparison with the first folder; None of that folder itself.
    """

    attack: str
    target: str
    mean: float
    lowest: tuple[Pose, float] | None
    highest: tuple[Pose, float] | None
    interval: tuple[float, float]
    pooled: SuccessRate
    distance: Distance
    versus_first: Comparison | None


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What came of evaluating folders.

    Attributes:
        ids: the images that were scored.
        poses: in which they were shown.
        cells: one for each attack, target and pose: the rows of ``results.csv``.
        summaries: one for each attack and target.
        comparisons: of every two attacks over all poses, by (one, other, target).
        left_out: images that were not scored.
    """

    ids: list[str]
    poses: tuple[Pose, ...]
    cells: tuple[Cell, ...]
    summaries: tuple[Summary, ...]
    comparisons: dict[tuple[str, str, str], Comparison]
    left_out: list[BadImage]

    def above(self, percent: float) -> list[Summary]:
        """Give the attacks whose mean success rate is above a limit.

        Raises:
            WhorlError: a rate is undefined. A test that passes because nothing was recognised would be worse than none.
        """
        for summary in self.summaries:
            check_recognised(summary.target, summary.pooled)
        return [summary for summary in self.summaries if 100 * summary.mean > percent]


def evaluate_folders(
    images: PairedImages,
    targets: Sequence[Target],
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    progress: Progress = silent,
) -> Evaluated:
    """Score folders of adversarial images against the clean ones, in one pass, a batch in memory at a time.

    Args:
        images: clean and adversarial ones.
        targets: networks to evaluate, on the images' device.
        poses: in which to show the images.
        progress: called with each batch.

    Raises:
        WhorlError: an image is unreadable or of another size, and is not to be left out.
    """
    folders, asked = images.folders, {target.name: target.net for target in targets}
    done = outcomes(images.batches(asked, progress), asked, poses)
    cells: list[Cell] = []
    summaries: list[Summary] = []
    for folder in folders:
        spent = folder.spent("grad_evals", done.ids), folder.spent("seconds", done.ids)
        for target in targets:
            own = [_cell(folder, target, pose, spent, done) for pose in done.poses]
            cells += own
            summaries.append(_summary(folder.label, target.name, own, folders[0].label, done))
    compared = [(a.label, b.label, target.name) for a, b in combinations(folders, 2) for target in targets]
    return Evaluated(
        ids=list(done.ids),
        poses=done.poses,
        cells=tuple(cells),
        summaries=tuple(summaries),
        comparisons={names: done.compare(*names) for names in compared},
        left_out=images.left_out,
    )


def _cell(
    folder: AdversarialFolder,
    target: Target,
    pose: Pose,
    spent: tuple[float | None, float | None],
    done: Outcomes,
) -> Cell:
    grad_evals, seconds = spent
    return Cell(
        attack=folder.attack,
        source=folder.source,
        target=target.model,
        defense=target.defense,
        pose=pose,
        eps=folder.eps,
        counts=done.counts[folder.label, target.name, pose],
        grad_evals=int(grad_evals or 0),
        seconds=seconds or 0.0,
        recorded=grad_evals is not None and seconds is not None,
    )


def _summary(attack: str, target: str, cells: Sequence[Cell], first: str, done: Outcomes) -> Summary:
    rates = {cell.pose: cell.counts.rate for cell in cells if cell.counts.n_clean_correct}
    pooled = sum((cell.counts for cell in cells), SuccessRate())
    return Summary(
        attack=attack,
        target=target,
        mean=mean_rate(cells),
        lowest=min(rates.items(), key=lambda item: item[1], default=None),
        highest=max(rates.items(), key=lambda item: item[1], default=None),
        interval=pooled.interval(poses=len(rates)),
        pooled=pooled,
        distance=done.distances[attack],
        versus_first=None if attack == first else done.compare(attack, first, target),
    )
