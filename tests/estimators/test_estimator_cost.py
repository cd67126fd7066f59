"""What an estimate costs: operations, memory, nothing built twice."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from estimator_cases import ESTIMATORS, Function, own
from reference import noise
from whorl.estimators import AffineInvariant, TranslationInvariant, invariant
from whorl.geometry import kernels
from whorl.geometry.polar import polar_plan


class Operations(TorchDispatchMode):
    """Writes down the name of every operation that runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def operations(function: Callable[[], object]) -> set[str]:
    seen = Operations()
    with seen:
        function()
    return seen.names


@pytest.mark.parametrize("name", ["ti", "ai", "ai own", "chain"])
def test_the_second_call_builds_nothing_and_asks_the_device_nothing(name: str) -> None:
    estimator, g = ESTIMATORS[name], noise(1, 3, 25, 31, dtype=torch.float32)
    estimator(g)
    before = polar_plan.cache_info()
    seen = operations(lambda: estimator(g))
    assert polar_plan.cache_info().misses == before.misses
    assert seen
    rebuilding = {
        "exp",
        "cos",
        "sin",
        "atan2",
        "sqrt",
        "hypot",
        "arange",
        "linspace",
        "floor",
        "linalg_svd",
        "_linalg_svd",
    }
    waiting = {"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "allclose"}
    assert not seen & (rebuilding | waiting)


def test_the_probe_of_operations_sees_what_it_should() -> None:
    assert {"arange", "exp", "_local_scalar_dense"} <= operations(lambda: float(torch.arange(3).float().exp()[0]))


def peak_extra_bytes(function: Callable[[], object]) -> int:
    """How far the allocator's total rises above where it stood, result included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        function()
    events = record.profiler.kineto_results.events()
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    total = peak = 0
    for _, change in sorted(changes):
        total += change
        peak = max(peak, total)
    return peak


def test_the_probe_of_memory_sees_what_it_should() -> None:
    x = torch.ones(1000, 100)
    size = x.numel() * 4
    assert 3 * size <= peak_extra_bytes(lambda: (x + 1) * (x + 2)) < 3.1 * size
    assert peak_extra_bytes(lambda: x.mul_(1)) < 0.1 * size


HUNGRY: dict[str, Function] = {
    "ti": TranslationInvariant(),
    "ai": AffineInvariant(),
    "ai narrow": AffineInvariant(sigma=0.5),
    "ai reference": AffineInvariant(sigma="reference"),
    "ai uniform": AffineInvariant(kernel_size=31, kind="uniform"),
    "ai own": AffineInvariant(**own(5, 5, separable=False).settings, **own(5, 5, separable=False).polar_settings()),
    "polar only": AffineInvariant(sigma=0.5, translation=False),
}


@pytest.mark.parametrize("name", HUNGRY)
@pytest.mark.parametrize("shape", [(8, 3, 128, 128), (1, 1, 224, 224)], ids=str)
def test_needs_at_most_three_more_buffers(name: str, shape: tuple[int, ...]) -> None:
    estimator = HUNGRY[name]
    g = noise(*shape, dtype=torch.float32)
    estimator(g)
    peak = peak_extra_bytes(lambda: estimator(g))
    buffer = g.numel() * g.element_size()
    bookkeeping = 8 * shape[-2] * shape[-1]  # two integers a pixel, whatever the batch
    assert buffer <= peak <= 3 * buffer + bookkeeping + 16 * 1024  # a kernel or two is no buffer


class LiveBytes(TorchDispatchMode):
    """Adds up the storages of all results that are still alive after each operation, and keeps the largest sum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: list[weakref.ref[Tensor]] = []
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        # a view counts only if what it views was made here: the polar plan, for one, is kept from before
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)} - self._storages().keys()
        if isinstance(out, Tensor) and out.untyped_storage().data_ptr() not in given:
            self.alive.append(weakref.ref(out))
        self.peak = max(self.peak, sum(self._storages().values()))
        return out

    def _storages(self) -> dict[int, int]:
        storages = [tensor.untyped_storage() for ref in self.alive if (tensor := ref()) is not None]
        return {storage.data_ptr(): storage.nbytes() for storage in storages}


def test_the_probe_of_live_bytes_sees_what_it_should() -> None:
    x = torch.ones(1000)
    with LiveBytes() as seen:
        _ = (x + 1) * (x + 2)
    assert seen.peak == 3 * 4000


@pytest.mark.parametrize("name", HUNGRY)
def test_the_convolutions_that_gpus_use_need_no_more_buffers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # counted in tensors: what a CPU's convolution allocates inside is not what a GPU's does
    monkeypatch.setattr(kernels, "_as_convolution", lambda _: True)
    monkeypatch.setattr(invariant, "estimate", lambda *_: None)  # where there is no Triton
    g = noise(8, 3, 128, 128, dtype=torch.float32)
    HUNGRY[name](g)
    with LiveBytes() as seen:
        HUNGRY[name](g)
    assert g.nbytes < seen.peak <= 3 * g.nbytes + 16 * 1024
