"""Actors that tests start on a cluster; its workers import them from here."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from cli.toy_networks import KillOnce
from whorl.runs import ray_cluster


class Occupant:
    """Somebody else's work, which holds what it was given."""

    def here(self) -> None:
        """Answers once it runs."""


class Stillborn(ray_cluster._Actor):
    """Dies at its start if the file that WHORL_TEST_KILL names is there, and removes the file first."""

    def __init__(self, *orders: Any) -> None:
        KillOnce()(torch.empty(0))
        super().__init__(*orders)


class NeverBorn(ray_cluster._Actor):
    """Dies at its start."""

    def __init__(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
