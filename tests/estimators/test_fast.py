"""The fast estimators against the literal sums of DESIGN §4: the GPU's kernels in Triton's interpreter, the CPU's rows.

Triton decides at its import whether it interprets. So this file is run once more, as a program, in a process of its own
that estimates every case and saves what came out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import reference
from estimator_cases import Kernel, gaussian, own, uniform
from reference import Array, noise, relative_error
from whorl.estimators import AffineInvariant, RotationInvariant, TranslationInvariant, rotations_gpu
from whorl.estimators import fast as estimator
from whorl.estimators import gpu as estimator_gpu
from whorl.estimators.cpu import _across_lines

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
ROUNDING = {"float32": 3e-6, "bfloat16": 4e-3, "float16": 6e-4}
# The kernels round bfloat16 three times, and the interpreter cuts digits off where a GPU rounds to the nearest.
INTERPRETED = {**ROUNDING, "bfloat16": 3 * 2**-8}


@dataclass(frozen=True, eq=False)
class Case:
    shape: tuple[int, int, int, int]
    kernel: Kernel
    polar: Kernel | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    translation_only: bool = False

    def __str__(self) -> str:
        names = [self.kernel.label, *([self.polar.label] if self.polar else [])]
        off = [f"no {part}" for part, on in self.parts.items() if not on]
        return f"{'x'.join(map(str, self.shape))} {', '.join(names + off)} {self.dtype}"

    def gradient(self) -> Tensor:
        values: Tensor = noise(*self.shape).to(getattr(torch, self.dtype))
        return values

    def estimator(self) -> AffineInvariant | TranslationInvariant:
        if self.translation_only:
            return TranslationInvariant(**self.kernel.settings)
        polar = self.polar.polar_settings() if self.polar else {}  # without, as the other
        return AffineInvariant(**self.kernel.settings, **polar, **self.parts)

    def expected(self) -> Array:
        g = self.gradient().double().numpy()
        if self.translation_only:
            return reference.average_of_shifts(g, self.kernel.weights)
        return reference.affine_average(g, self.kernel.weights, (self.polar or self.kernel).weights, **self.parts)


CASES = [
    Case((2, 3, 12, 14), gaussian(5, 1.0)),
    Case((1, 1, 13, 7), gaussian(15, "reference")),
    Case((11, 3, 6, 6), gaussian(3, "printed")),  # planes of two groups, the second not full
    Case((1, 2, 9, 12), own(3, 5, separable=True), own(5, 3, separable=True)),
    Case((1, 3, 12, 9), gaussian(3, 1.0), parts={"translation": False}),
    Case((1, 1, 8, 8), gaussian(5, 1.0), parts={"scaling": False}),
    Case((1, 1, 8, 8), gaussian(5, 1.0), parts={"rotation": False}),
    Case((2, 1, 20, 9), gaussian(5, 1.0), parts={"rotation": False, "scaling": False}),
    Case((1, 3, 37, 11), gaussian((3, 5), 1.0), translation_only=True),
    # A long polar kernel is blurred apart, a short one while polar coordinates are left.
    Case((1, 3, 12, 11), gaussian(3, 1.0), gaussian(9, 1.5)),
    Case((3, 3, 12, 11), gaussian(15, 0.5)),
    Case((3, 3, 12, 11), gaussian(15, 1.7), parts={"translation": False, "scaling": False}),
    Case((2, 2, 11, 12), gaussian(15, 1.7), parts={"translation": False, "scaling": False}, dtype="bfloat16"),
    Case((1, 3, 9, 10), gaussian(15, 1.7), parts={"rotation": False}),
    Case((1, 3, 10, 10), gaussian(3, 1.0), dtype="bfloat16"),
    Case((1, 3, 10, 10), gaussian(3, 1.0), dtype="float16"),
    # bfloat16 is read in pairs of planes: a single one, groups that are full, one that is not.
    Case((1, 1, 9, 8), gaussian(3, 1.0), dtype="bfloat16"),
    Case((4, 2, 7, 10), gaussian(5, 1.0), dtype="bfloat16"),
    Case((11, 3, 11, 6), gaussian(3, "printed"), dtype="bfloat16"),
    # Wider and higher than one program, with one column left for the last: the border.
    Case((4, 2, 20, 127), gaussian(3, 1.0), dtype="bfloat16"),
    # Edges of what an image can be: a kernel wider than it, a single line, two by two.
    Case((1, 1, 4, 5), uniform(17)),
    Case((1, 1, 1, 8), gaussian(3, 1.0)),
    Case((1, 1, 8, 1), gaussian(3, 1.0)),
    Case((1, 1, 2, 2), uniform(3)),
]


# Shape, dtype, degrees; by what name the kernels sum them: so many taps, or terms of the Fourier series.
ROTATIONS: dict[str, tuple[tuple[int, int, int, int], str, float]] = {
    "7 taps": ((2, 3, 12, 14), "float32", 5.0),
    "15 taps": ((1, 3, 20, 9), "float32", 9.0),
    "31 taps": ((1, 1, 11, 40), "float32", 10.0),
    "63 taps": ((1, 1, 188, 3), "float32", 2.6),
    "7 taps, bfloat16": ((1, 1, 9, 12), "bfloat16", 8.0),
    "31 taps, in two groups": ((11, 3, 16, 6), "float32", 25.0),
    "16 terms": ((1, 1, 13, 17), "float32", 90.0),
    "16 terms, all around": ((2, 3, 12, 14), "float32", 180.0),
    "16 terms, in two groups": ((11, 3, 6, 6), "float32", 120.0),
    "16 terms, a full group": ((11, 3, 16, 15), "float32", 60.0),
    "16 terms, bfloat16": ((2, 3, 9, 12), "bfloat16", 70.0),
    "16 terms, bfloat16 in two groups": ((11, 3, 12, 9), "bfloat16", 70.0),
    "16 terms, float16": ((1, 2, 10, 10), "float16", 100.0),
    "16 terms, a line": ((1, 1, 1, 8), "float32", 130.0),
    "32 terms": ((1, 3, 50, 21), "float32", 10.1),
    "64 terms": ((1, 1, 96, 6), "float32", 5.2),
    "128 terms": ((1, 1, 4, 384), "float32", 2.6),
}
# Degrees from step to step, which take 16 terms, 31, 15 and 7 taps; and all of one kind.
NARROWING = {"kinds that change": (80.0, 15.0, 7.0, 3.0), "one kind": (80.0, 60.0)}
NARROWING_SHAPE = (1, 3, 30, 13)


def turning(shape: tuple[int, ...], dtype: str) -> Tensor:
    g: Tensor = noise(*shape, dtype=torch.float32).to(getattr(torch, dtype))
    return g


def interpret(folder: Path) -> None:
    """Estimate every case with the GPU's kernels; runs where Triton interprets."""
    launched = 0
    original = estimator_gpu._estimate

    def counted(*arguments: Any) -> Tensor:
        nonlocal launched
        launched += 1
        return original(*arguments)

    vars(estimator_gpu)["_estimate"] = counted
    vars(estimator)["on_gpu"] = lambda _: True
    vars(estimator)["_FUSED"] = True
    for number, case in enumerate(CASES):
        before = launched
        out = case.estimator()(case.gradient())
        assert launched == before + 1, f"{case} did not take the fused way"
        assert out.dtype == case.gradient().dtype
        np.save(folder / f"{number}.npy", out.float().numpy())
    how: list[str] = []
    chosen = rotations_gpu.summed

    def noted(*arguments: Any) -> Any:
        curve = chosen(*arguments)
        how.append("nothing" if curve is None else f"{curve.terms} terms" if curve.terms else f"{len(curve.taps)} taps")
        return curve

    vars(rotations_gpu)["summed"] = noted
    for name, (shape, dtype, degrees) in ROTATIONS.items():
        out = RotationInvariant(degrees=degrees)(turning(shape, dtype))
        assert how.pop() == name.partition(",")[0], name
        assert out.dtype == getattr(torch, dtype)
        np.save(folder / f"rotations {name}.npy", out.float().numpy())
    g, step, angles = turning(NARROWING_SHAPE, "float32"), torch.tensor(0), 64
    for name, widths in NARROWING.items():
        sigmas = tuple(width / 360 * angles for width in widths)
        for now in range(len(widths) + 1):  # one too far is the last
            out = estimator.average_rotations_by_step(g, sigmas, step.fill_(now), angles)
            plain = estimator.average_rotations(g, sigmas[min(now, len(sigmas) - 1)], angles)
            assert plain is not None
            assert torch.equal(out, plain), "the same bits, however the step is told"
            np.save(folder / f"{name} {now}.npy", out.numpy())
    small = AffineInvariant(kernel_size=3, sigma=1.0)
    g = noise(2, 2, 6, 7, dtype=torch.float32)
    np.save(folder / "contiguous.npy", small(g).numpy())
    np.save(folder / "channels_last.npy", small(g.to(memory_format=torch.channels_last)).numpy())
    np.save(folder / "alone.npy", small(g[1:]).numpy())
    leaf = torch.zeros(2, 2, 6, 7, requires_grad=True)
    before = launched
    (small.wrap(nn.Flatten())(leaf) * g.flatten(1)).sum().backward()
    assert launched == before + 1, "a wrapped network's backward pass did not take the fused way"
    assert leaf.grad is not None
    np.save(folder / "wrapped.npy", leaf.grad.numpy())
    for unfit in (g.double(), g.clone().requires_grad_(), g[..., :1, :1]):
        before = launched
        small(unfit)
        assert launched == before, "the fused way was taken where it does not serve"


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interpreted")
    tests = Path(__file__).parent.parent
    path = os.pathsep.join([str(tests.parent / "src"), str(tests), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@needs_triton
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: str(CASES[number]))
def test_the_kernels_equal_the_literal_sums(number: int, interpreted: Path) -> None:
    case = CASES[number]
    out = torch.from_numpy(np.load(interpreted / f"{number}.npy"))
    assert out.shape == case.shape
    assert relative_error(out, case.expected()) < INTERPRETED[case.dtype]


@needs_triton
@pytest.mark.parametrize("name", ROTATIONS)
def test_fused_rotations_equal_the_literal_sums(name: str, interpreted: Path) -> None:
    shape, dtype, degrees = ROTATIONS[name]
    out = torch.from_numpy(np.load(interpreted / f"rotations {name}.npy"))
    expected = reference.rotation_average(turning(shape, dtype).double().numpy(), degrees)
    assert relative_error(out, expected) < INTERPRETED[dtype]


@needs_triton
@pytest.mark.parametrize("name", NARROWING)
def test_rotations_by_a_step_on_the_device_equal_the_literal_sums(name: str, interpreted: Path) -> None:
    g, widths = turning(NARROWING_SHAPE, "float32").double().numpy(), NARROWING[name]
    for now in range(len(widths) + 1):
        out = torch.from_numpy(np.load(interpreted / f"{name} {now}.npy"))
        assert (
            relative_error(out, reference.rotation_average(g, widths[min(now, len(widths) - 1)])) < ROUNDING["float32"]
        )


def test_a_kernel_is_launched_for_each_kind_of_curve() -> None:
    cpu = torch.device("cpu")
    curves = rotations_gpu.curves_of(tuple(width / 360 * 64 for width in NARROWING["kinds that change"]), 64, 3e-8, cpu)
    assert curves is not None
    assert curves.kinds == (-31, -15, -7, 16)
    assert rotations_gpu.curves_of((40.0, 0.9 / 360 * 4096), 4096, 3e-8, cpu) is None


@needs_triton
def test_neither_layout_nor_batch_nor_wrapping_changes_what_the_kernels_give(interpreted: Path) -> None:
    plain = np.load(interpreted / "contiguous.npy")
    assert np.array_equal(np.load(interpreted / "channels_last.npy"), plain)
    assert np.array_equal(np.load(interpreted / "alone.npy"), plain[1:])
    assert np.array_equal(np.load(interpreted / "wrapped.npy"), plain)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_rows_of_a_cpu_equal_the_literal_sums(case: Case) -> None:
    given = case.estimator()
    polar = None if case.translation_only else given.polar_kernel  # type: ignore[union-attr]
    out = estimator.estimate(case.gradient(), given.kernel, polar)
    if polar is None:
        assert out is None, "a blur alone is for plain torch"
        return
    assert out is not None
    assert relative_error(out, case.expected()) < ROUNDING[case.dtype]


@pytest.mark.parametrize("sigma", ["reference", 0.5])
@pytest.mark.parametrize("count", [1, 2, 5, 11])
def test_on_a_cpu_the_batch_does_not_change_a_bit(count: int, sigma: Any) -> None:
    g, est = noise(13, 3, 21, 18, dtype=torch.float32), AffineInvariant(sigma=sigma)
    assert torch.equal(est(g[:count]), est(g)[:count])


def test_weights_that_float32_does_not_feel_are_left_out() -> None:
    line = tuple(reference.gaussian((1, 15), "reference").ravel().tolist())
    short = estimator.trimmed(line)
    assert len(short) == 13
    assert short == line[1:-1]
    assert sum(line) - sum(short) < 2e-8
    assert estimator.trimmed((0.0, 1.0, 0.5)) == (0.0, 1.0, 0.5)
    assert estimator.trimmed((1.0,)) == (1.0,)


def unfit() -> dict[str, Callable[[], tuple[Tensor, Any, Any]]]:
    kernel = AffineInvariant(kernel_size=3, sigma=1.0).kernel
    whole = AffineInvariant(**own(3, 3, separable=False).settings).kernel
    g = noise(2, 3, 8, 8, dtype=torch.float32)
    return {
        "float64": lambda: (g.double(), kernel, kernel),
        "differentiated": lambda: (g.clone().requires_grad_(), kernel, kernel),
        "not separable": lambda: (g, whole, kernel),
        "polar not separable": lambda: (g, kernel, whole),
        "one pixel": lambda: (g[..., :1, :1], kernel, kernel),
        "no pixel": lambda: (g[:0], kernel, kernel),
        "meta": lambda: (g.to("meta"), kernel, kernel),
    }


@pytest.mark.parametrize("name", unfit())
def test_what_no_fast_way_serves_is_left_to_plain_torch(name: str) -> None:
    assert estimator.estimate(*unfit()[name]()) is None


def test_inside_vmap_plain_torch_does_it() -> None:
    g = noise(3, 2, 3, 8, 8, dtype=torch.float32)
    est = AffineInvariant(kernel_size=3, sigma=1.0)
    together = torch.vmap(est)(g)
    assert torch.allclose(together, torch.stack([est(part) for part in g]), rtol=0, atol=1e-6)


def test_a_gpu_without_triton_and_one_with_too_many_taps_get_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = AffineInvariant(kernel_size=3, sigma=1.0).kernel
    wide = AffineInvariant(kernel_size=65, kind="uniform").kernel
    with FakeTensorMode():
        g = torch.empty(2, 3, 8, 8, device="cuda")
        monkeypatch.setattr(estimator, "_HAS_TRITON", True)
        monkeypatch.setattr(estimator, "_FUSED", False)
        assert estimator.estimate(g, kernel, kernel) is None, "the fused way was taken though switched off"
        monkeypatch.setattr(estimator, "_FUSED", True)
        assert estimator.estimate(g, wide, kernel) is None
        monkeypatch.setattr(estimator, "_HAS_TRITON", False)
        assert estimator.estimate(g, kernel, kernel) is None


def test_to_a_compiler_the_fused_estimate_is_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "_HAS_TRITON", True)
    monkeypatch.setattr(estimator, "_FUSED", True)
    seen: list[str] = []

    def backend(module: Any, _inputs: Any) -> Any:
        seen.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module

    est = AffineInvariant(kernel_size=3, sigma=1.0)
    with FakeTensorMode():
        out = torch.compile(lambda g: est(g).neg(), backend=backend, fullgraph=True)(
            torch.empty(2, 3, 8, 8, device="cuda")
        )
    assert out.shape == (2, 3, 8, 8)
    assert out.device.type == "cuda"
    assert seen == ["whorl.fused_estimate"]


def test_tables_are_built_once() -> None:
    g, est = noise(2, 3, 17, 15, dtype=torch.float32), AffineInvariant(kernel_size=3, sigma=1.0)
    est(g)
    before = _across_lines.cache_info().misses
    est(g)
    assert _across_lines.cache_info().misses == before


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", [(64, 3, 299, 299), (3, 1, 97, 131), (1, 3, 224, 224)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"sigma": "printed"}, {"kernel_size": 61, "kind": "uniform"}], ids=str)
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_fused_estimate_equals_plain_torch(
    settings: dict[str, Any], shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimator, "_FUSED", True)
    est = AffineInvariant(**settings)
    g = torch.randn(shape, device="cuda").to(getattr(torch, dtype))
    out = estimator.estimate(g, est.kernel, est.polar_kernel)
    assert out is not None
    expected = est(g.double())
    assert float((out.double() - expected).norm() / expected.norm()) < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("degrees", [0.4, 1.6, 2.3, 3.2, 7.2, 32.0, 180.0])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(64, 3, 299, 299), (3, 1, 97, 131), (5, 3, 224, 160)], ids=str)
def test_on_a_gpu_fused_rotations_equal_plain_torch(
    shape: tuple[int, ...], degrees: float, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimator, "_FUSED", True)
    est = RotationInvariant(degrees=degrees)
    g = torch.randn(shape, device="cuda").to(getattr(torch, dtype))
    out, expected = est(g), est(g.double())
    assert out.dtype == g.dtype
    assert float((out.double() - expected).norm() / expected.norm()) < 2 * ROUNDING[dtype]


@pytest.mark.parametrize("degrees", [1.6, 3.2, 7.2, 32.0])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_batch_does_not_change_a_bit_of_fused_rotations(degrees: float) -> None:
    g, est = torch.randn(64, 3, 299, 299, device="cuda"), RotationInvariant(degrees=degrees)
    for count in (1, 5, 22):
        assert torch.equal(est(g[:count]), est(g)[:count])


def test_curves_that_are_too_long_are_left_to_plain_torch() -> None:
    assert rotations_gpu.summed(0.9 / 360 * 4096, 4096, 3e-8) is None
    for degrees in (1.4, 5.0, 180.0):  # whatever the image
        assert rotations_gpu.summed(degrees / 360 * 4096, 4096, 3e-8) is not None


if __name__ == "__main__":
    interpret(Path(sys.argv[1]))
