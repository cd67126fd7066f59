"""One process or several: who computes which part of a batch, and who writes files."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from whorl.errors import WhorlError


@dataclass(frozen=True)
class Team:
    """The processes that train together.

    Attributes:
        rank: number of this one, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process measures, reports and writes."""
        return self.rank == 0

    def part(self, batch: int) -> tuple[int, int]:
        """This process's part of a batch: its first place, and how many places.

        >>> Team(1, 2).part(8)
        (4, 4)
        """
        if batch % self.size:
            raise WhorlError(f"the batch must divide evenly among {self.size} processes; got {batch}.")
        share = batch // self.size
        return self.rank * share, share

    def mean(self, value: Tensor) -> Tensor:
        """Average a tensor over all processes."""
        if self.size == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total / self.size

    def agree(self, number: int) -> int:
        """The leader's number, for all."""
        if self.size == 1:
            return number
        said = [number]
        dist.broadcast_object_list(said, src=0)
        return said[0]


def leads() -> bool:
    """Whether this is the only process, or the first of those that ``torchrun`` started: the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def team(device: torch.device) -> Iterator[tuple[Team, torch.device]]:
    """Join the processes that ``torchrun`` started, if it did; give this one's place, and its device.

    Args:
        device: of a single process. Of several, each takes the GPU of its number, where there are GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team(), device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    joined = not dist.is_initialized()
    if joined:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Team(dist.get_rank(), dist.get_world_size()), device
        dist.barrier()
    finally:
        if joined:
            # What holds the group must go before it: freed afterwards, it waits for threads that wait for Python.
            gc.collect()
            dist.destroy_process_group()
