"""Score adversarial images that lie in folders, whoever made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from whorl.data import BadImage
from whorl.evaluation import (
    PAPER_POSES,
    Comparison,
    Distance,
    ImageCounts,
    Outcomes,
    Pose,
    Rate,
    SuccessRate,
    WorstPoses,
    check_recognised,
    headline,
    holm,
    rate,
)
from whorl.evaluation.rate_table import RateRow, rate_table
from whorl.files import defined
from whorl.progress import Progress, silent
from whorl.runs.adversarial import AdversarialFolder
from whorl.runs.engines import Interrupted
from whorl.runs.kept_outcomes import WorstByVersion, evaluate_chunks
from whorl.runs.networks import Target
from whorl.runs.pairs import PairedImages
from whorl.runs.results import Cell, CellTable, records
from whorl.runs.store import Store
from whorl.transforms import RandomAffine


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One attack on one target, over all poses.

    Attributes:
        attack: the folder's label.
        target: the network's name with its defence.
        rate: success rate, pooled over the poses that have enough images, with its interval over images; see
            ``whorl.evaluation.headline``. NaN if the target recognised no clean image in any.
        mean: the unweighted mean over all poses, as in the paper's tables, likewise.
        worst_case: counts of images that some pose fools.
        lowest: the pose with the lowest rate, and its counts; None if there is no rate.
        highest: likewise.
        pooled: counts of all poses.
        distance: of the adversarial images to the clean ones.
        versus_first: paired comparison with the first folder, corrected for all that are made (Holm); None of that one.
    """

    attack: str
    target: str
    rate: Rate
    mean: Rate
    worst_case: SuccessRate
    lowest: tuple[Pose, SuccessRate] | None
    highest: tuple[Pose, SuccessRate] | None
    pooled: SuccessRate
    distance: Distance
    versus_first: Comparison | None


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """What a search for the worst pose of each image found: clean images, or one attack's.

    Attributes:
        attack: the folder's label; None for the clean images.
        target: the network's name with its defence.
        rate: of the images that the target recognises clean and as they are, those that some pose fools.
        found: of every image.
    """

    attack: str | None
    target: str
    rate: Rate
    found: WorstPoses


@dataclass(frozen=True, kw_only=True)
class Evaluated(CellTable):
    """What came of evaluating folders; ``to_pandas`` and ``plot`` give its cells as a data frame and as figures.

    Attributes:
        ids: the images that were scored.
        poses: in which they were shown.
        cells: one for each attack, target and pose: the rows of ``results.csv``.
        summaries: one for each attack and target.
        comparisons: of every two attacks over all poses, pooled, by (one, other, target), corrected after Holm.
        left_out: images that were not scored.
        worst_cases: of the clean images, then of each folder, for each target; empty if they were not searched.
    """

    ids: list[str]
    poses: tuple[Pose, ...]
    cells: tuple[Cell, ...]
    summaries: tuple[Summary, ...]
    comparisons: dict[tuple[str, str, str], Comparison]
    left_out: list[BadImage]
    worst_cases: tuple[WorstCase, ...] = ()

    def above(self, percent: float) -> list[Summary]:
        """Give the attacks whose success rate, pooled over the poses, is above a limit.

        Raises:
            WhorlError: a rate is undefined. A test that passes because nothing was recognised would be worse than none.
        """
        for summary in self.summaries:
            check_recognised(summary.target, summary.pooled.n_clean_correct)
        return [summary for summary in self.summaries if 100 * summary.rate.value > percent]

    def _repr_html_(self) -> str:
        """The summaries as a table, for notebooks."""
        rows = [RateRow(one.attack, one.target, one.rate, one.mean, one.worst_case) for one in self.summaries]
        return rate_table(f"Success rates: {len(self.ids)} images, {len(self.poses)} poses", rows)


def evaluate_folders(
    images: PairedImages,
    targets: Sequence[Target],
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    box: RandomAffine | None = None,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Evaluated:
    """Score folders of adversarial images against the clean ones, in one pass, a batch in memory at a time.

    Args:
        images: clean and adversarial ones.
        targets: networks to evaluate, on the images' device.
        poses: in which to show the images.
        box: within which to search for the worst pose of each image, by ``whorl.worst_pose``; None searches not.
        keep: folder that keeps what became of each batch, so that an interrupted evaluation goes on where it stopped;
            ``kept_outcomes.forget_kept`` removes it. None keeps nothing.
        progress: called with each batch.

    Raises:
        WhorlError: an image is unreadable or of another size, and is not to be left out.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    folders = images.folders
    parts: list[Outcomes] = []
    found: WorstByVersion = {}
    with nullcontext() if keep is None else Store.open(keep, ["whorl", "evaluate"]) as store:
        try:
            for chunk in evaluate_chunks(images, targets, poses, box=box, store=store, progress=progress):
                parts += [] if chunk.outcomes is None else [chunk.outcomes]
                found |= {key: found[key] + more if key in found else more for key, more in chunk.worst.items()}
        except KeyboardInterrupt as error:
            again = "" if keep is None else f"What was finished is in {keep}. Run the same command again to go on."
            raise Interrupted(again) from error
    done = Outcomes.joined(parts)
    pairs = [(a.label, b.label, target.name) for a, b in combinations(folders, 2) for target in targets]
    compared = holm({names: done.compare(*names) for names in pairs})
    cells: list[Cell] = []
    summaries: list[Summary] = []
    for folder in folders:
        spent = folder.spent("grad_evals", done.ids), folder.spent("seconds", done.ids)
        for target in targets:
            own = [_cell(folder, target, pose, spent, done) for pose in done.poses]
            cells += own
            versus = compared.get((folders[0].label, folder.label, target.name))
            summaries.append(_summary(folder.label, target.name, own, done, versus))
    return Evaluated(
        ids=list(done.ids),
        poses=done.poses,
        cells=tuple(cells),
        summaries=tuple(summaries),
        comparisons=compared,
        left_out=images.left_out,
        worst_cases=tuple(_worst_case(found, *names) for names in found),
    )


def _worst_case(found: Mapping[tuple[str | None, str], WorstPoses], attack: str | None, target: str) -> WorstCase:
    recognised, own = found[None, target].recognised, found[attack, target]
    return WorstCase(attack=attack, target=target, rate=rate(ImageCounts.of(recognised, ~own.fooled)), found=own)


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
        images=done.counted(folder.label, target.name, [pose]),
    )


def _summary(attack: str, target: str, cells: Sequence[Cell], done: Outcomes, versus: Comparison | None) -> Summary:
    """Sum up; ``versus`` is the comparison of the first folder with this one."""
    rates = {cell.pose: cell.counts for cell in cells if cell.counts.n_clean_correct}
    counts = done.counted(attack, target)
    return Summary(
        attack=attack,
        target=target,
        rate=headline(counts),
        mean=rate(counts, "mean"),
        worst_case=done.worst_case(attack, target),
        lowest=min(rates.items(), key=lambda item: item[1].rate, default=None),
        highest=max(rates.items(), key=lambda item: item[1].rate, default=None),
        pooled=sum((cell.counts for cell in cells), SuccessRate()),
        distance=done.distances[attack],
        versus_first=None if versus is None else versus.swapped(),
    )


def as_json(done: Evaluated) -> dict[str, Any]:
    """Everything as plain JSON; rates that are undefined are null."""
    content = {
        "n": len(done.ids),
        "summary": [_summary_json(summary) for summary in done.summaries],
        "comparisons": [
            {"first": first, "second": second, "target": target, **vars(one)}
            | {"p_value": one.p_value, "differs": one.differs()}
            for (first, second, target), one in done.comparisons.items()
        ],
        "cells": records(done.cells),
        "left_out": [{"id": bad.id, "reason": bad.reason} for bad in done.left_out],
        **({"worst_cases": [_worst_case_json(case) for case in done.worst_cases]} if done.worst_cases else {}),
    }
    return defined(content)


def _worst_case_json(case: WorstCase) -> dict[str, Any]:
    found = case.found
    each = zip(found.ids, found.poses, found.fooled.tolist(), found.queries.tolist(), strict=True)
    return {
        "attack": case.attack,
        "target": case.target,
        "asr": case.rate.value,
        "interval": case.rate.interval,
        "n_clean_correct": case.rate.n,
        "n_success": case.rate.successes,
        "queries": int(found.queries.sum()),
        "poses": [
            {"id": name, "fooled": fooled, "queries": queries, "pose": vars(pose)}
            for name, pose, fooled, queries in each
        ],
    }


def _summary_json(summary: Summary) -> dict[str, Any]:
    rate, mean, distance, worst = summary.rate, summary.mean, summary.distance, summary.worst_case
    return {
        "attack": summary.attack,
        "target": summary.target,
        "clean_accuracy": summary.pooled.clean_accuracy,
        "asr": rate.value,
        "interval": rate.interval,
        "n_clean_correct": rate.n,
        "images": rate.images,
        "few": rate.few,
        "poses_left_out": rate.left_out,
        "mean": mean.value,
        "mean_interval": mean.interval,
        "worst_case": {"n_clean_correct": worst.n_clean_correct, "n_success": worst.n_success},
        "lowest": summary.lowest and _edge_json(*summary.lowest),
        "highest": summary.highest and _edge_json(*summary.highest),
        "linf": {"mean": distance.linf_mean, "max": distance.linf_max},
        "l2": {"mean": distance.l2_mean, "max": distance.l2_max},
        "ssim": {"mean": distance.ssim_mean, "min": distance.ssim_min},
    }


def _edge_json(pose: Pose, counts: SuccessRate) -> dict[str, Any]:
    return {**vars(pose), "asr": counts.rate, "n_clean_correct": counts.n_clean_correct}
