"""What is known of some images in one version: how they were made, and who recognises them in which pose.

    DIR/cells/<attack>/<source>/<number>.json     of adversarial images
    DIR/cells/_clean/<number>.json                of the clean ones

A file holds one chunk of the data set. It carries the hash of everything that can change what it says, so that it
counts only while that hash is what the plan expects; and it appears whole or not at all, after the images it lists.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError
from whorl.evaluation import Distance, Pose
from whorl.files import atomic_write
from whorl.runs.folder import Json

_FORMAT = 1


@dataclass(kw_only=True)
class Record:
    """One chunk in one version.

    Attributes:
        key: hash of everything that the images depend on.
        ids: the images that could be used, in order.
        bad: those that could not: id and reason.
        files: SHA-256 of each image's PNG file; empty for clean ones.
        grad_evals: input gradients spent on each image; empty for clean ones.
        queries: queries spent on each image; empty unless the attack asks queries.
        seconds: spent on all of them.
        distance: of the adversarial images to the clean ones.
        answers: by the target's key, then by pose: for each image "1" if it is recognised and "0" if not.
    """

    key: str
    ids: list[str]
    bad: list[tuple[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    grad_evals: list[int] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    seconds: float = 0.0
    distance: Distance = field(default_factory=Distance)
    answers: dict[str, dict[str, str]] = field(default_factory=dict)

    def missing(self, target: str, poses: Sequence[Pose]) -> tuple[Pose, ...]:
        """The poses in which a target, by its key, has not been asked."""
        known = self.answers.get(target, {})
        return tuple(pose for pose in poses if pose_key(pose) not in known)

    def recognised(self, target: str, pose: Pose) -> str:
        """A digit for each image."""
        return self.answers[target][pose_key(pose)]


def pose_key(pose: Pose) -> str:
    """Write a pose as text that is the same for equal poses.

    >>> pose_key(Pose(angle=30, scale=0.7, shift=(20, 20)))
    '30 0.7 20 20'
    """
    return " ".join(f"{number:.12g}" for number in (pose.angle, pose.scale, *pose.shift))


def hashed(value: Any) -> str:
    """Hash a JSON value; the order of keys does not matter.

    >>> hashed({"a": 1, "b": 2}) == hashed({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_record(path: Path, key: str) -> Record | None:
    """Read a record; None if there is none, or if it speaks of other images than the key.

    Raises:
        WhorlError: the file is there but cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WhorlError(f"{path} cannot be read ({error}). Remove it to have its images made again.") from error
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT or content.get("key") != key:
        return None
    content["distance"] = Distance(**content["distance"])
    content["bad"] = [(name, reason) for name, reason in content["bad"]]
    return Record(**content)


def write_record(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    content: Json = {"format": _FORMAT, **asdict(record)}
    with atomic_write(path) as file:
        file.write(json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def records_below(folder: Path) -> Iterator[Json]:
    """Read every record of a version as JSON, whatever its key, chunk by chunk."""
    for path in sorted(folder.glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))
