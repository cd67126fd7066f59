"""Where a program spends its time, seen from beside it: which stage each thread is in, and when the GPU is at work.

Nothing of the program is changed, so that any checkout of it can be measured.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

import torch
from torch.profiler import ProfilerActivity, profile

# The innermost frame that is named here says what a thread is doing: a part of its file's path, then its function,
# "" for any. Where the stage is "", whoever called it says.
STAGES: tuple[tuple[str, str, str], ...] = (
    ("whorl/data/image_files.py", "save_image", "encoding"),
    ("whorl/data/image_files.py", "encoded", "encoding"),
    ("whorl/data/image_files.py", "", "decoding"),
    ("whorl/data/images.py", "", "decoding"),
    ("whorl/files.py", "sha256_of", "hashing"),
    ("whorl/files.py", "has_sha256", "hashing"),
    ("whorl/runs/folder.py", "pixels_sha256", "hashing"),
    ("whorl/runs/images.py", "listed", "hashing"),
    ("whorl/runs/images.py", "hashed_images", "hashing"),
    ("whorl/runs/images.py", "", "decoding"),
    ("whorl/evaluation/distance.py", "", "distances"),
    ("whorl/evaluation/prediction.py", "", "evaluating"),
    ("whorl/runs/store.py", "", "storing"),
    ("whorl/runs/done.py", "", "counting"),
    ("whorl/runs/results.py", "", "counting"),
    ("whorl/evaluation/", "", "counting"),
    ("whorl/attacks/contract.py", "", ""),
    ("whorl/attacks/", "", "crafting"),
    ("whorl/runs/worker.py", "_craft", "crafting"),
    ("whorl/runs/worker.py", "", "between tasks"),
    ("whorl/models/weights.py", "", "identifying networks"),
    ("whorl/runs/networks.py", "", "identifying networks"),
    ("whorl/runs/plan.py", "", "planning"),
    ("whorl/report/", "", "report"),
)
OTHER = "other"
_PERIOD = 0.004


class StageClock:
    """Seconds that threads spend in each stage, by looking at their stacks every few milliseconds.

    Attributes:
        main: seconds of the thread that started the clock, which add up to the wall time.
        others: seconds of all other threads together; those that wait for work do not count.

    >>> with StageClock() as clock:
    ...     time.sleep(0.05)
    >>> clock.main.keys() <= {"other"}
    True
    """

    def __init__(self) -> None:
        self.main: defaultdict[str, float] = defaultdict(float)
        self.others: defaultdict[str, float] = defaultdict(float)
        self._stop = threading.Event()

    def __enter__(self) -> StageClock:
        self._watched = threading.get_ident()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        before = time.perf_counter()
        while not self._stop.wait(_PERIOD):
            now = time.perf_counter()
            for thread, frame in sys._current_frames().items():
                stage = stage_of(frame)
                if thread == self._watched:
                    self.main[stage] += now - before
                elif stage != OTHER:
                    self.others[stage] += now - before
            before = now


def stage_of(frame: FrameType | None) -> str:
    """What a thread is doing; "other" where none of the frames is known."""
    while frame is not None:
        code = frame.f_code
        if "whorl/" in code.co_filename:
            named = (s for path, function, s in STAGES if path in code.co_filename and function in ("", code.co_name))
            if stage := next(named, ""):
                return stage
        frame = frame.f_back
    return OTHER


class Busy:
    """When a GPU was at work.

    Attributes:
        seconds: in which at least one kernel or copy ran.
        kernels: how many of them there were.
        longest: milliseconds by name of those that took most in all.
    """

    seconds, kernels = 0.0, 0
    longest: Mapping[str, float] = {}


@contextmanager
def gpu_watched(most: int = 15) -> Iterator[Busy]:
    """Record every kernel and copy of the GPU within the block, which takes some time of its own."""
    found = Busy()
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        yield found
        torch.cuda.synchronize()
    spans, by_name = list[tuple[int, int]](), Counter[str]()
    for event in watched.profiler.kineto_results.events():
        if "CUDA" in str(event.device_type()) and event.duration_ns() > 0:
            spans.append((event.start_ns(), event.start_ns() + event.duration_ns()))
            by_name[event.name()[:100]] += event.duration_ns()
    found.seconds, found.kernels = covered(spans) / 1e9, len(spans)
    found.longest = {name: round(spent / 1e6, 3) for name, spent in by_name.most_common(most)}


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """How much of a line some spans cover, where they overlap once.

    >>> covered([(0, 4), (2, 6), (10, 11)])
    7
    """
    total, end = 0, None
    for first, last in sorted(spans):
        total += max(0, last - (first if end is None else max(first, end)))
        end = last if end is None else max(end, last)
    return total
