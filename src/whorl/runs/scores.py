"""Score adversarial images that lie in folders, whoever made them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from whorl.data import BadImage
from whorl.errors import WhorlError
from whorl.evaluation import (
    PAPER_POSES,
    BatchEvaluator,
    Comparison,
    Distance,
    Outcomes,
    Pose,
    Rate,
    SuccessRate,
    holm,
    rate,
)
from whorl.progress import Progress, silent
from whorl.runs.adversarial import AdversarialFolder
from whorl.runs.engines import Interrupted
from whorl.runs.folder import folder_name
from whorl.runs.networks import Target, identify
from whorl.runs.pairs import PairedImages
from whorl.runs.plan import surroundings
from whorl.runs.results import Cell
from whorl.runs.store import Store, hashed, pose_key

_PLACE = Path("_evaluated")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One attack on one target, over all poses.

    Attributes:
        attack: the folder's label.
        target: the network's name with its defence.
        rate: success rate over all poses, pooled, with its interval over images; NaN if the target recognised no clean
            image in any.
        mean: the unweighted mean over the poses, as in the paper's tables, likewise.
        worst_case: counts of images that some pose fools.
        lowest: the pose with the lowest rate, and that rate; None if there is no rate.
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
    lowest: tuple[Pose, float] | None
    highest: tuple[Pose, float] | None
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
        comparisons: of every two attacks over all poses, pooled, by (one, other, target), corrected after Holm.
        left_out: images that were not scored.
    """

    ids: list[str]
    poses: tuple[Pose, ...]
    cells: tuple[Cell, ...]
    summaries: tuple[Summary, ...]
    comparisons: dict[tuple[str, str, str], Comparison]
    left_out: list[BadImage]

    def above(self, percent: float) -> list[Summary]:
        """Give the attacks whose success rate, pooled over the poses, is above a limit.

        Raises:
            WhorlError: a rate is undefined. A test that passes because nothing was recognised would be worse than none.
        """
        for summary in self.summaries:
            if math.isnan(summary.rate.value):
                raise WhorlError(
                    f"{summary.target} recognises no clean image in any pose, so there is no success rate to judge. "
                    "Check the labels, and that it is the right network."
                )
        return [summary for summary in self.summaries if 100 * summary.rate.value > percent]


def evaluate_folders(
    images: PairedImages,
    targets: Sequence[Target],
    *,
    poses: Sequence[Pose] = PAPER_POSES,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Evaluated:
    """Score folders of adversarial images against the clean ones, in one pass, a batch in memory at a time.

    Args:
        images: clean and adversarial ones.
        targets: networks to evaluate, on the images' device.
        poses: in which to show the images.
        keep: folder that keeps what became of each batch, so that an interrupted evaluation goes on where it stopped;
            ``forget_kept`` removes it. None keeps nothing.
        progress: called with each batch.

    Raises:
        WhorlError: an image is unreadable or of another size, and is not to be left out.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    folders = images.folders
    with nullcontext() if keep is None else Store.open(keep, ["whorl", "evaluate"]) as store:
        try:
            done = Outcomes.joined(list(_evaluated(images, targets, poses, store, progress)))
        except KeyboardInterrupt as error:
            again = "" if keep is None else f"What was finished is in {keep}. Run the same command again to go on."
            raise Interrupted(again) from error
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
    )


def kept_beside(out: Path) -> Path:
    """Where an evaluation keeps what it has finished, until its table is written.

    >>> kept_beside(Path("results.csv"))
    PosixPath('.results.csv.unfinished')
    """
    return out.with_name(f".{folder_name(out.name)}.unfinished")


def forget_kept(keep: Path) -> None:
    """Remove what an evaluation kept, once its table is written; one that waits for the folder is waited for."""
    with Store.open(keep) as store:
        shutil.rmtree(store.path, ignore_errors=True)


def _evaluated(
    images: PairedImages,
    targets: Sequence[Target],
    poses: Sequence[Pose],
    store: Store | None,
    progress: Progress,
) -> Iterator[Outcomes]:
    """Evaluate chunk by chunk; one that is kept from before is not evaluated again."""
    evaluate = BatchEvaluator({target.name: target.net for target in targets}, poses)
    about: dict[str, Any] = {}
    if store is not None:
        about = {
            "targets": {target.name: identify(target.net) for target in targets},
            "poses": [pose_key(pose) for pose in evaluate.poses],
            "attacks": [folder.label for folder in images.folders],
            "crafted": [hashed(folder.crafted) for folder in images.folders],
            "read": [images.size, images.skip_bad],
            **surroundings(images.device),
        }
    for chunk in images.counted(progress):
        key = "" if store is None else hashed({**about, "images": images.hashes(chunk)})
        kept = None if store is None else store.record(_PLACE, key)
        found = _from_json(kept, images, evaluate) if kept is not None else None
        if kept is None:
            before = len(images.left_out)
            batch = images.read(chunk)
            found = evaluate(batch) if batch.ids else None
            if store is not None:
                store.put_record(_PLACE, key, _to_json(found, images, before))
        if found is not None:
            yield found


def _to_json(found: Outcomes | None, images: PairedImages, before: int) -> dict[str, Any]:
    """What became of a chunk: outcomes as bits, distances, and which images were left out, and why."""
    return {
        "ids": [] if found is None else list(found.ids),
        "bits": "" if found is None else found.to_bits().hex(),
        "distances": {} if found is None else {name: asdict(one) for name, one in found.distances.items()},
        "shape": images.shape,
        "left_out": [[str(bad.path), bad.id, bad.reason] for bad in images.left_out[before:]],
    }


def _from_json(kept: dict[str, Any], images: PairedImages, evaluate: BatchEvaluator) -> Outcomes | None:
    images.shape = None if kept["shape"] is None else tuple(kept["shape"])
    images.left_out += [BadImage(path=Path(path), id=name, reason=why) for path, name, why in kept["left_out"]]
    if not kept["ids"]:
        return None
    return Outcomes.from_bits(
        bytes.fromhex(kept["bits"]),
        ids=kept["ids"],
        attacks=[folder.label for folder in images.folders],
        targets=evaluate.targets,
        poses=evaluate.poses,
        distances={name: Distance(**one) for name, one in kept["distances"].items()},
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


def _summary(attack: str, target: str, cells: Sequence[Cell], done: Outcomes, versus: Comparison | None) -> Summary:
    """Sum up; ``versus`` is the comparison of the first folder with this one."""
    rates = {cell.pose: cell.counts.rate for cell in cells if cell.counts.n_clean_correct}
    counts = done.counted(attack, target)
    return Summary(
        attack=attack,
        target=target,
        rate=rate(counts),
        mean=rate(counts, "mean"),
        worst_case=done.worst_case(attack, target),
        lowest=min(rates.items(), key=lambda item: item[1], default=None),
        highest=max(rates.items(), key=lambda item: item[1], default=None),
        pooled=sum((cell.counts for cell in cells), SuccessRate()),
        distance=done.distances[attack],
        versus_first=None if versus is None else versus.swapped(),
    )
