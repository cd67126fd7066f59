"""A function of fixed buffers, recorded once as a CUDA graph and replayed: no launch by launch, no waiting."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Twice: the first call builds plans and kernels, the second shows that nothing is left to build.
_WARM_UPS = 2


@contextmanager
def searching(search: bool) -> Iterator[None]:
    """Let cuDNN time its convolutions and take the fastest, or take what it thinks best without trying."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = search
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class Recorded:
    """Calls ``function``; on a GPU as a graph that is recorded here.

    Args:
        function: reads and writes tensors that stay where they are, and nothing else. It is called a few times while
            it is recorded, so the caller fills its buffers afterwards.
        device: where those tensors are.
    """

    def __init__(self, function: Callable[[], None], device: torch.device) -> None:
        self.function = function
        self.graph: Any = None
        self.constants = Constants()
        if device.type != "cuda":
            return
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                function()
        torch.cuda.current_stream(device).wait_stream(side)
        self.constants = Constants()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                function()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # It has just run twice, so it is right; only the recording does not work here.
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            warnings.warn(f"the step cannot be recorded, and runs operation by operation: {why}", RuntimeWarning, 2)
            return
        self.graph = graph

    def __call__(self) -> None:
        """Run it once more."""
        if self.graph is None:
            self.function()
        else:
            self.graph.replay()


class Constants:
    """The kernels, grids and matrices that a recorded graph reads, which live in the package's caches.

    A graph knows addresses only. Should a cache ever drop an entry, the graph would read what has taken its place.
    """

    def __init__(self) -> None:
        self.seen = {cached: cached.cache_info().misses for cached in _caches()}

    def held(self) -> bool:
        """Whether no cache can have dropped anything since."""
        for cached, misses in self.seen.items():
            now = cached.cache_info()
            cleared = now.misses < misses
            full = now.maxsize is not None and now.currsize >= now.maxsize
            if cleared or (full and now.misses > misses):
                return False
        return True


def _caches() -> list[Any]:
    """Every ``lru_cache`` of the modules that take part in a step."""
    parts = ("whorl.geometry", "whorl.fast", "whorl.transforms", "whorl.estimators")
    found = {}
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith(parts):
            for value in list(vars(module).values()):
                if callable(getattr(value, "cache_info", None)):
                    found[id(value)] = value
    return list(found.values())
