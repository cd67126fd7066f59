"""What became of each chunk of an evaluation, kept until its table is written, so that it goes on where it stopped."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl.data import BadImage
from whorl.evaluation import AttackedImages, BatchEvaluator, Distance, Outcomes, Pose, WorstPoses, to_8_bits, worst_pose
from whorl.files import hashed
from whorl.progress import Progress
from whorl.runs.folder import as_json, folder_name
from whorl.runs.networks import Target, identify
from whorl.runs.pairs import PairedImages
from whorl.runs.plan import surroundings
from whorl.runs.store import Store, pose_key
from whorl.transforms import RandomAffine

_PLACE = Path("_evaluated")

WorstByVersion = dict[tuple[str | None, str], WorstPoses]
"""By attack, None for the clean images, and target."""


@dataclass(frozen=True, kw_only=True)
class ChunkOutcomes:
    """What became of some images.

    Attributes:
        outcomes: under every attack, on every target, in every pose; None if no image could be used.
        worst: the worst poses that a search found, if there was one.
    """

    outcomes: Outcomes | None
    worst: WorstByVersion = field(default_factory=dict)


def kept_beside(out: Path) -> Path:
    """Where an evaluation keeps what it has finished, until its table is written.

    >>> kept_beside(Path("results.csv")).name
    '.results.csv.unfinished'
    """
    return out.with_name(f".{folder_name(out.name)}.unfinished")


def forget_kept(keep: Path) -> None:
    """Remove what an evaluation kept, once its table is written; one that is at work there is waited for."""
    with Store.open(keep) as store:
        # Moved away first: whoever comes meanwhile makes a folder and a lock of his own, and meets none half removed.
        store.path.rename(store.path.with_name(f"{keep.name}.{os.getpid()}"))
        for gone in keep.parent.glob(f"{glob.escape(keep.name)}.*"):  # and what one that was killed here left
            shutil.rmtree(gone, ignore_errors=True)


def evaluate_chunks(
    images: PairedImages,
    targets: Sequence[Target],
    poses: Sequence[Pose],
    *,
    box: RandomAffine | None,
    store: Store | None,
    progress: Progress,
) -> Iterator[ChunkOutcomes]:
    """Evaluate chunk by chunk; one that is kept from before is not evaluated again.

    Args:
        images: clean and adversarial ones.
        targets: networks to evaluate.
        poses: in which to show the images.
        box: within which to search for the worst pose of each image; None searches not.
        store: keeps what became of each chunk; None keeps nothing.
        progress: called with each chunk.
    """
    nets = {target.name: target.net for target in targets}
    evaluate, about = BatchEvaluator(nets, poses), dict[str, Any]()
    if store is not None:
        about = {
            "targets": {name: identify(net) for name, net in nets.items()},
            "poses": [pose_key(pose) for pose in evaluate.poses],
            "box": as_json(box),
            "attacks": [folder.label for folder in images.folders],
            "crafted": [hashed(folder.crafted) for folder in images.folders],
            "read": [images.size, images.skip_bad],
            **surroundings(images.device),
        }
    for chunk in images.chunks(nets, progress):
        key = "" if store is None else hashed({**about, "images": images.hashes(chunk)})
        kept = None if store is None else store.record(_PLACE, key)
        if kept is not None:
            yield _from_json(kept, images, evaluate)
            continue
        before, batch = len(images.left_out), images.read(chunk)
        found = ChunkOutcomes(outcomes=None)
        if batch.ids:
            found = ChunkOutcomes(outcomes=evaluate(batch), worst={} if box is None else _searched(batch, nets, box))
        if store is not None:
            store.put_record(_PLACE, key, _to_json(found, images, before))
        yield found


def _searched(batch: AttackedImages, targets: Mapping[str, Any], box: RandomAffine) -> WorstByVersion:
    """Search for the worst pose of all versions of the images, target by target."""
    versions: dict[str | None, Tensor] = {None: batch.x}
    versions |= {name: to_8_bits(adv) for name, adv in batch.adversarial.items()}
    return {
        (name, target): worst_pose(net, shown, batch.y, ids=batch.ids, box=box)
        for target, net in targets.items()
        for name, shown in versions.items()
    }


def _to_json(found: ChunkOutcomes, images: PairedImages, before: int) -> dict[str, Any]:
    """Outcomes as bits, distances, worst poses, and which images were left out, and why."""
    outcomes, bad = found.outcomes, images.left_out[before:]
    content: dict[str, Any] = {"shape": images.shape, "left_out": [[str(one.path), one.id, one.reason] for one in bad]}
    if outcomes is None:
        return content
    worst = [
        {
            "version": list(version),
            "poses": [asdict(pose) for pose in one.poses],
            **{name: getattr(one, name).tolist() for name in ("fooled", "recognised", "margins", "queries")},
        }
        for version, one in found.worst.items()
    ]
    distances = {name: asdict(one) for name, one in outcomes.distances.items()}
    return content | {"ids": outcomes.ids, "bits": outcomes.to_bits().hex(), "distances": distances, "worst": worst}


def _from_json(kept: Mapping[str, Any], images: PairedImages, evaluate: BatchEvaluator) -> ChunkOutcomes:
    images.shape = None if kept["shape"] is None else tuple(kept["shape"])
    images.left_out += [BadImage(path=Path(path), id=name, reason=why) for path, name, why in kept["left_out"]]
    if "bits" not in kept:
        return ChunkOutcomes(outcomes=None)
    outcomes = Outcomes.from_bits(
        bytes.fromhex(kept["bits"]),
        ids=kept["ids"],
        attacks=[folder.label for folder in images.folders],
        targets=evaluate.targets,
        poses=evaluate.poses,
        distances={name: Distance(**one) for name, one in kept["distances"].items()},
    )
    worst: WorstByVersion = {}
    for one in kept["worst"]:
        attack, target = one["version"]
        worst[attack, target] = WorstPoses(
            ids=outcomes.ids,
            poses=tuple(Pose(**pose) for pose in one["poses"]),
            fooled=torch.tensor(one["fooled"]),
            recognised=torch.tensor(one["recognised"]),
            margins=torch.tensor(one["margins"]),
            queries=torch.tensor(one["queries"]),
        )
    return ChunkOutcomes(outcomes=outcomes, worst=worst)
