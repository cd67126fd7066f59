"""Checkpoints: everything that a run needs to go on exactly where it stopped.

Randomness is a function of seed, epoch, step and image, so there is no generator's state to keep.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from whorl.errors import WhorlError
from whorl.files import read_back, write_file
from whorl.models.weights import StateDict

FILE = "checkpoint.pt"
_MAGIC = b"whorl checkpoint 2\n"  # then the SHA-256 of the rest, 64 digits, and what torch wrote
_DIGITS = 64


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state after some steps.

    Attributes:
        about: what the run is: recipe, settings, network, pool, teacher and data, each as text. A run goes on only if
            all agree.
        step: steps done.
        steps: steps that the run is to have; the learning rate follows from it.
        student: what was learned, by name.
        average: its running average.
        optimizer: state dict of the optimiser.
        history: measurements so far.
        seconds: spent so far.
    """

    about: dict[str, str]
    step: int
    steps: int
    student: StateDict
    average: StateDict
    optimizer: dict[str, Any]
    history: list[dict[str, float]]
    seconds: float

    def save(self, path: Path) -> None:
        """Write to ``path``; the file appears whole or not at all."""
        written = io.BytesIO()
        torch.save(vars(self), written)
        content = written.getvalue()
        # torch does not notice a flipped bit in a tensor.
        write_file(path, _MAGIC + hashlib.sha256(content).hexdigest().encode() + content)


def load_checkpoint(path: Path, about: Mapping[str, str]) -> Checkpoint | None:
    """Read a checkpoint, running none of the code that the file may name.

    Args:
        path: the file.
        about: what the run is that wants to go on.

    Returns:
        None if there is no such file.

    Raises:
        WhorlError: the file is damaged, or it belongs to a run of another recipe, settings, network or data.
    """
    found = read_back(path, _unpacked, remedy="to start anew")
    if found is None:
        return None
    for what, expected in about.items():
        got = found.about.get(what)
        if got != expected:
            raise WhorlError(
                f"{path} belongs to another run: its {what} is {got}, expected {expected}. "
                "Choose another folder, or remove the checkpoint to start anew."
            )
    return found


def _unpacked(text: bytes) -> Checkpoint:
    if not text.startswith(_MAGIC):
        raise ValueError("it is no checkpoint of this version")
    digest, content = text[len(_MAGIC) :][:_DIGITS], text[len(_MAGIC) + _DIGITS :]
    if digest != hashlib.sha256(content).hexdigest().encode():
        raise ValueError("its SHA-256 is not the one that it was written with")
    return Checkpoint(**torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
