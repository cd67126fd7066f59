"""Does the tasks of an experiment, with the networks kept loaded: what a process, or a machine of a cluster, runs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from whorl.data import BadImage, Images, load_image, save_image
from whorl.data.image_files import checked_size
from whorl.data.images import collect
from whorl.errors import WhorlError
from whorl.evaluation import Distance, Pose, to_8_bits
from whorl.evaluation.prediction import Precision, Predictor
from whorl.runs.cells import Record, pose_key, read_record, write_record
from whorl.runs.declaration import SAMPLES, Data
from whorl.runs.folder import RunFolder
from whorl.runs.listing import Listed
from whorl.runs.loading import Networks
from whorl.runs.pictures import SAMPLE_SIDE
from whorl.runs.plan import Task, Version

# Pillow lets other threads run while it packs and unpacks an image.
_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all tasks of an experiment share; it can be sent to another process.

    Attributes:
        folder: the run folder; absolute, and the same for every worker.
        data: how images are read.
        seed: of all randomness.
        target_keys: target's name to the hash that answers are filed under.
        precision: in which targets answer.
    """

    folder: Path
    data: Data
    seed: int
    target_keys: Mapping[str, str]
    precision: Precision = "full"


class Worker:
    """Does tasks one after the other.

    Args:
        job: what they share.
        networks: loads what is attacked and asked.
    """

    def __init__(self, job: Job, networks: Networks) -> None:
        self.job, self.networks = job, networks
        self.folder = RunFolder(job.folder)
        side = SAMPLE_SIDE if job.data.folder == SAMPLES and job.data.size is None else job.data.size
        self.size = checked_size(side)
        self._read: tuple[tuple[Listed, ...], Images] | None = None

    def do(self, task: Task) -> int:
        """Do a task and file its record.

        Returns:
            How many images it was about.
        """
        path = task.record(self.job.folder)
        images = self._clean(task.pictures)
        record = read_record(path, task.key)
        if task.version.spec is None:
            shown = images.x
            record = record or _new_record(task.key, images)
        else:
            kept = None if record is None else self._reload(task.version, record)
            if record is None or kept is None:
                path.unlink(missing_ok=True)  # before an image is replaced: it never speaks of images that are gone
                record, shown = self._craft(task, images)
                write_record(path, record)
            else:
                shown = kept
        if images.ids:
            self._ask(record, shown, images.y, task.ask)
        else:
            self._answer(record, {name: dict.fromkeys(poses, "") for name, poses in task.ask.items()})
        write_record(path, record)
        return len(task.pictures)

    def _clean(self, pictures: tuple[Listed, ...]) -> Images:
        """Decode a chunk; the last one is kept, for its other versions come next."""
        if self._read is None or self._read[0] != pictures:
            self._read = None
            with ThreadPoolExecutor(_THREADS) as pool:
                decoded = list(pool.map(self._decode, pictures))
            self._read = (pictures, _joined(decoded))
        return self._read[1]

    def _decode(self, picture: Listed) -> Images | BadImage:
        try:
            return collect([picture.entry], size=self.size)
        except WhorlError as error:
            if not self.job.data.skip_bad:
                raise
            return BadImage(path=picture.entry.path, id=picture.entry.id, reason=str(error))

    def _craft(self, task: Task, images: Images) -> tuple[Record, Tensor]:
        version, record = task.version, _new_record(task.key, images)
        if version.spec is None or not images.ids:
            return record, images.x
        model = self.networks.source(version.source)
        x, y = images.x.to(self.networks.device), images.y
        start = time.perf_counter()
        adv, info = version.spec.build()(model, x, y, seed=self.job.seed, ids=images.ids, return_info=True)
        adv = to_8_bits(adv)
        record.distance = Distance.of(x, adv)
        adv = adv.cpu()  # waits for the device, so that the time is the attack's
        record.seconds = round(time.perf_counter() - start, 4)
        record.grad_evals = [] if info.grad_evals is None else info.grad_evals.tolist()
        record.queries = [] if info.queries is None else info.queries.tolist()
        places = [self.folder.picture(version.spec.title, version.source, name) for name in images.ids]
        with ThreadPoolExecutor(_THREADS) as pool:
            record.files = list(pool.map(_save, places, adv))
        return record, adv

    def _reload(self, version: Version, record: Record) -> Tensor | None:
        """Read images back; None if one is gone or is not what was written."""
        if version.spec is None or not record.ids:
            return torch.empty(0)
        places = [self.folder.picture(version.spec.title, version.source, name) for name in record.ids]
        if not all(place.is_file() for place in places):
            return None
        with ThreadPoolExecutor(_THREADS) as pool:
            if list(pool.map(_file_sha256, places)) != record.files:
                return None
            return torch.stack(list(pool.map(load_image, places)))

    def _ask(self, record: Record, shown: Tensor, y: Tensor, ask: Mapping[str, tuple[Pose, ...]]) -> None:
        """Transform first, then predict: each pose is warped once for all targets."""
        predictor = Predictor({name: self.networks.target(name) for name in ask}, precision=self.job.precision)
        right = predictor.recognised(shown.to(self.networks.device), y, ask, ids=record.ids)
        found: dict[str, dict[Pose, str]] = {}
        for (name, pose), row in right.items():
            found.setdefault(name, {})[pose] = "".join(map(str, row.int().tolist()))
        self._answer(record, found)

    def _answer(self, record: Record, found: Mapping[str, Mapping[Pose, str]]) -> None:
        for name, rows in found.items():
            known = record.answers.setdefault(self.job.target_keys[name], {})
            known.update({pose_key(pose): row for pose, row in rows.items()})


def _new_record(key: str, images: Images) -> Record:
    return Record(key=key, ids=list(images.ids), bad=[(bad.id, bad.reason) for bad in images.bad])


def _joined(decoded: list[Images | BadImage]) -> Images:
    good = [item for item in decoded if isinstance(item, Images)]
    shapes = {item.x.shape[2:]: item.ids[0] for item in good}
    if len(shapes) > 1:
        (one, a), (other, b) = list(shapes.items())[:2]
        raise WhorlError(
            f"expected images of one size (height, width), got {a!r} of {tuple(one)} and {b!r} of {tuple(other)}. "
            "Set size to resize them all."
        )
    x = torch.cat([item.x for item in good]) if good else torch.empty(0, 3, 1, 1)
    y = torch.cat([item.y for item in good]) if good else torch.empty(0, dtype=torch.int64)
    joined = Images(x, y, [item.ids[0] for item in good])
    joined.bad = tuple(item for item in decoded if isinstance(item, BadImage))
    return joined


def _save(path: Path, picture: Tensor) -> str:
    save_image(path, picture)
    return _file_sha256(path)


def _file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
