"""A function of fixed buffers, recorded once as a CUDA graph and replayed: no launch by launch, no waiting."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import torch

from whorl.errors import reason

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


# ---------------------------------------------------------------------------------------------------------------------
# Taking turns


class Turns:
    """Lets one at a time work on what is shared on a device, whatever thread and stream it comes from."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.lock = device, threading.RLock()
        self.last: Any = None

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for whoever was before: the thread until that has given all its orders, the stream until they are done.

        The thread itself does not wait for the device.
        """
        with self.lock:
            if self.device.type != "cuda":
                yield
                return
            stream = torch.cuda.current_stream(self.device)
            if self.last is not None:
                stream.wait_event(self.last)
            try:
                yield
            finally:
                self.last = stream.record_event()


_TURNS: dict[torch.device, Turns] = {}
_LOCK = threading.Lock()


def turns(device: torch.device) -> Turns:
    """Those of a device."""
    with _LOCK:
        return _TURNS.setdefault(device, Turns(device))


# ---------------------------------------------------------------------------------------------------------------------
# Recording


class _Memory:
    """The memory that a graph, or several of one device, have for what they make on the way.

    Each graph would keep as much as a whole step needs. One memory serves several, in any order, because

    - no two of them run at the same time: who records or replays one has taken the device's turn (:class:`Turns`);
    - none of them finds or leaves anything in it: what a step reads and changes lies in the loop's buffers. It is made
      sure after each recording that nobody holds anything there.

    torch forgets a memory with the last graph in it, and its handle cannot be used again. So this is held by the graphs
    alone, and the next one to be recorded makes a new one.
    """

    def __init__(self, device: torch.device) -> None:
        self.handle: Any = torch.cuda.graph_pool_handle()
        # Memory passes from one recording to the next on one stream only. It is never that of the warm-ups, which has
        # another priority: cuBLAS keeps a work space for each stream, and that of a graph has to lie in its memory.
        self.stream = torch.cuda.Stream(device)
        self.spoiled = False

    def live(self) -> int:
        """Bytes that somebody still holds."""
        segments = torch.cuda.memory_snapshot()
        mine = (segment for segment in segments if tuple(segment["segment_pool_id"]) == tuple(self.handle))
        return sum(segment["allocated_size"] for segment in mine)

    def empty(self) -> bool:
        """Whether nobody holds anything; asks torch to give back what it keeps for cuBLAS, and collects garbage."""
        for release in (torch._C._cuda_clearCublasWorkspaces, gc.collect):
            if not self.live():
                return True
            release()
        return not self.live()


_MEMORIES: WeakValueDictionary[torch.device, _Memory] = WeakValueDictionary()


@cache
def _warm_up_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device, priority=-1)


class Recorded:
    """Calls ``function``; on a GPU as a graph that is recorded here.

    Args:
        function: reads and writes tensors that stay where they are, and nothing else. It is called a few times while
            it is recorded, so the caller fills its buffers afterwards.
        device: where those tensors are.
        shared: whether the graph's memory is shared with others. Then the device's turn has to be taken, both while
            this is made and when it is called (:func:`turns`), and it has to be made anew once it is not :meth:`held`.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, *, shared: bool = False) -> None:
        self.function = function
        self.graph: Any = None
        self.memory: _Memory | None = None
        self.constants = Constants()
        if device.type != "cuda":
            return
        side = _warm_up_stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                function()
        torch.cuda.current_stream(device).wait_stream(side)
        self.constants = Constants()
        try:
            if shared:
                self._share(device)
            else:
                self._record(_Memory(device))
        except RuntimeError as error:
            # A handle is of no use after a recording that failed.
            _MEMORIES.pop(device, None)
            self.graph = self.memory = None
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            # It has just run twice, so it is right; only the recording does not work here.
            said = f"the step cannot be recorded, and runs operation by operation: {reason(error)}"
            warnings.warn(said, RuntimeWarning, 2)

    def _share(self, device: torch.device) -> None:
        for again in (False, True):
            memory = _MEMORIES.get(device) or _MEMORIES.setdefault(device, _Memory(device))
            self._record(memory)
            if memory.empty():
                return
            # Where that lies which is alive, graphs that were recorded before may write. So they are not replayed any
            # more, and this one gets a memory that it shares with no other if it does so once more.
            memory.spoiled = not again
            _MEMORIES.pop(device, None)

    def _record(self, memory: _Memory) -> None:
        graph = torch.cuda.CUDAGraph()
        mode = "thread_local"  # other threads may go on with what they do
        with torch.cuda.graph(graph, pool=memory.handle, stream=memory.stream, capture_error_mode=mode):
            self.function()
        self.graph, self.memory = graph, memory

    def held(self) -> bool:
        """Whether all that it reads is still where it was."""
        return self.constants.held() and not (self.memory is not None and self.memory.spoiled)

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
    parts = ("whorl.geometry", "whorl.models.prepared", "whorl.transforms", "whorl.estimators")
    found = {}
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith(parts):
            for value in list(vars(module).values()):
                if callable(getattr(value, "cache_info", None)):
                    found[id(value)] = value
    return list(found.values())
