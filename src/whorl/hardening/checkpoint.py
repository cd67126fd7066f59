"""Checkpoints: everything that a run needs to go on exactly where it stopped.

Randomness is a function of seed, epoch, step and image, so there is no generator's state to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from whorl.errors import WhorlError
from whorl.files import atomic_write, writing
from whorl.models.weights import StateDict

FILE = "checkpoint.pt"
_FORMAT = 1


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
        content = {"format": _FORMAT, **vars(self)}
        with writing(path), atomic_write(path) as file:
            torch.save(content, file)


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
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return None
    except Exception as error:  # the unpickler and the archive reader raise all sorts
        raise WhorlError(f"{path} is no sound checkpoint ({error}). Remove it to start anew.") from error
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise WhorlError(f"{path} is no checkpoint of this version. Remove it to start anew.")
    found = Checkpoint(**content)
    for what, expected in about.items():
        got = found.about.get(what)
        if got != expected:
            raise WhorlError(
                f"{path} belongs to another run: its {what} is {got}, expected {expected}. "
                "Choose another folder, or remove the checkpoint to start anew."
            )
    return found
