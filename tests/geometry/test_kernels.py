"""Kernels and blur, against Eq. 9 written out."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import reference
from reference import noise
from whorl.errors import WhorlError
from whorl.estimators import AffineInvariant
from whorl.geometry import blur, gaussian_kernel, kernels, uniform_kernel

Sigma = Literal["printed", "reference"] | float


@pytest.mark.parametrize("size", [1, 3, 7, 15, 31, (3, 3), (5, 9), (9, 5), (1, 7), (7, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("sigma", ["printed", "reference", 0.5, 7 / 3, 10])
def test_gaussian_equals_the_definition(size: int | tuple[int, int], sigma: Sigma) -> None:
    expected = reference.gaussian(size, sigma)
    kernel = gaussian_kernel(size, sigma)
    assert kernel.dtype == torch.float64
    assert kernel.shape == expected.shape
    np.testing.assert_allclose(kernel.numpy(), expected, rtol=1e-10, atol=1e-15)
    assert float(kernel.sum()) == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("size", [1, 15, (5, 9), (1, 7), (7, 1)], ids=str)
@pytest.mark.parametrize("sigma", ["printed", "reference", 0.5, (1.0, 3.0)])
def test_factors_are_those_of_the_whole_kernel(size: int | tuple[int, int], sigma: Any) -> None:
    assert kernels.gaussian_factors(size, sigma) == kernels.factor(gaussian_kernel(size, sigma))
    assert kernels.uniform_factors(size) == kernels.factor(uniform_kernel(size))


@pytest.mark.parametrize("kind", ["gaussian", "uniform"])
def test_the_largest_kernel_is_never_made_whole(kind: Literal["gaussian", "uniform"]) -> None:
    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            if isinstance(made, Tensor):
                Largest.numbers = max(Largest.numbers, made.numel())
            return made

    with Largest():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        assert AffineInvariant(kernel_size=2**14 - 1, kind=kind).kernel is not None
    assert 2**14 - 1 <= Largest.numbers < 2**15


def test_gaussian_values_worked_out_by_hand() -> None:
    # k = 3, printed: σ² = 1/3, so the neighbours weigh e^-1.5 and the corners e^-3.
    total = 1 + 4 * math.exp(-1.5) + 4 * math.exp(-3)
    printed = gaussian_kernel(3, "printed")
    assert float(printed[1, 1]) == pytest.approx(1 / total, rel=1e-12)
    assert float(printed[0, 1]) == pytest.approx(math.exp(-1.5) / total, rel=1e-12)
    assert float(printed[2, 0]) == pytest.approx(math.exp(-3) / total, rel=1e-12)
    # k = 15, reference: 7/6 px; printed: 7/√3 px.
    assert torch.allclose(gaussian_kernel(15, "reference"), gaussian_kernel(15, 7 / 6), rtol=1e-12, atol=0)
    assert torch.allclose(gaussian_kernel(15, "printed"), gaussian_kernel(15, 7 / math.sqrt(3)), rtol=1e-12, atol=0)
    # 3 by 9: l = 1 and 4, so σ² = (1/6)(4/6) = 1/9, the same along both axes.
    wide = gaussian_kernel((3, 9), "reference")
    assert torch.allclose(wide, gaussian_kernel((3, 9), 1 / 3), rtol=1e-12, atol=0)
    assert float(wide[0, 4]) == pytest.approx(float(wide[1, 3]), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_blur_leaves_out_what_no_sum_feels_and_nothing_of_the_authors_kernel(dtype: torch.dtype) -> None:
    one = torch.zeros(1, 1, 31, 31, dtype=dtype)
    one[..., 15, 15] = 1
    least = torch.finfo(dtype).eps ** 2
    for kernel in (gaussian_kernel(15, 0.5), gaussian_kernel(15, "reference"), gaussian_kernel((1, 31), 0.3)):
        row, column = kernels.factor(kernel).rows, kernels.factor(kernel).columns
        out = blur(one, kernel)[0, 0, 15].double()
        for offset, weight in enumerate(column, start=-(len(column) // 2)):
            felt = weight >= least * max(column)
            assert float(out[15 + offset]) == pytest.approx(weight * max(row) if felt else 0.0, rel=1e-6, abs=0)
    assert min(kernels.factor(gaussian_kernel(15, "reference")).columns) > least
    assert min(kernels.factor(gaussian_kernel(15, 0.5)).columns) < torch.finfo(torch.float32).tiny


def test_two_sigmas_are_one_along_each_axis() -> None:
    both = gaussian_kernel((5, 9), (0.7, 2.0))
    down, right = reference.gaussian((5, 1), 0.7), reference.gaussian((1, 9), 2.0)
    np.testing.assert_allclose(both.numpy(), down @ right, rtol=1e-12, atol=0)
    assert torch.equal(gaussian_kernel((5, 9), (0.7, 0.7)), gaussian_kernel((5, 9), 0.7))


def test_reference_is_the_default_sigma() -> None:
    assert torch.equal(gaussian_kernel(15), gaussian_kernel(15, "reference"))


@pytest.mark.parametrize("size", [1, 3, 15, 31, (1, 7), (5, 3)], ids=str)
def test_uniform_weighs_all_alike(size: int | tuple[int, int]) -> None:
    kernel = uniform_kernel(size)
    assert kernel.dtype == torch.float64
    np.testing.assert_allclose(kernel.numpy(), reference.uniform(size), rtol=1e-14)


@pytest.mark.parametrize(
    ("size", "quoted"),
    [(0, "0"), (2, "2"), (16, "16"), (-3, "-3"), ((3, 4), "4"), ((4, 3), "4"), ((-1, 3), "-1"), ((3, 0), "0")],
    ids=str,
)
def test_sizes_that_are_not_odd_and_positive_are_refused(size: int | tuple[int, int], quoted: str) -> None:
    with pytest.raises(WhorlError, match=quoted):
        gaussian_kernel(size)
    with pytest.raises(WhorlError, match=quoted):
        uniform_kernel(size)


@pytest.mark.parametrize("sigma", [0, 0.0, -1.5, math.nan, "paper", "", (1.0,), (1.0, 0.0), (1, 2, 3), (1, "2"), None])
def test_sigmas_that_are_not_positive_or_known_are_refused(sigma: Any) -> None:
    with pytest.raises(WhorlError):
        gaussian_kernel(5, sigma)


def weights(rows: int, cols: int, *, separable: bool, seed: int = 0) -> Tensor:
    """A lopsided kernel: no symmetry of any kind, negative weights too."""
    rng = np.random.default_rng(seed)
    if separable:
        return torch.from_numpy(np.outer(rng.standard_normal(rows), rng.standard_normal(cols)))
    return torch.from_numpy(rng.standard_normal((rows, cols)))


KERNELS = {
    "one": torch.ones(1, 1, dtype=torch.float64),
    "gaussian": torch.from_numpy(reference.gaussian(15, "reference")),
    "wide gaussian": torch.from_numpy(reference.gaussian(31, "printed")),
    "flat gaussian": torch.from_numpy(reference.gaussian((5, 9), 2.0)),
    "uniform": torch.from_numpy(reference.uniform((3, 7))),
    "row": weights(1, 9, separable=True),
    "column": weights(9, 1, separable=True),
    "separable": weights(7, 5, separable=True),
    "non-separable": weights(5, 7, separable=False),
    "large non-separable": weights(15, 15, separable=False),
    "zero middle": weights(3, 3, separable=False) * torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 0, 1]]).double(),
    "nearly separable": weights(5, 5, separable=True) + 1e-4 * weights(5, 5, separable=False),
}


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_blur_equals_the_sum_of_shifts(name: str, circular: bool) -> None:
    x, kernel = noise(2, 3, 20, 34), KERNELS[name]
    expected = reference.average_of_shifts(x.numpy(), kernel.numpy(), circular=circular)
    scale = np.linalg.norm(expected)
    assert np.linalg.norm(blur(x, kernel, circular=circular).numpy() - expected) < 1e-12 * scale
    x32 = x.float()
    expected = reference.average_of_shifts(x32.double().numpy(), kernel.numpy(), circular=circular)
    out = blur(x32, kernel, circular=circular)
    assert out.dtype == torch.float32
    assert np.linalg.norm(out.double().numpy() - expected) < 1e-6 * scale


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("separable", [False, True])
def test_blur_with_a_kernel_wider_than_the_image(separable: bool, circular: bool) -> None:
    x, kernel = noise(1, 2, 4, 5), weights(15, 13, separable=separable)
    expected = reference.average_of_shifts(x.numpy(), kernel.numpy(), circular=circular)
    np.testing.assert_allclose(blur(x, kernel, circular=circular).numpy(), expected, rtol=0, atol=1e-11)


@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    half=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    separable=st.booleans(),
    circular=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_blur_equals_the_sum_of_shifts_for_any_shape(
    height: int, width: int, half: tuple[int, int], separable: bool, circular: bool, seed: int
) -> None:
    x = noise(2, 1, height, width, seed=seed)
    kernel = weights(2 * half[0] + 1, 2 * half[1] + 1, separable=separable, seed=seed + 1)
    expected = reference.average_of_shifts(x.numpy(), kernel.numpy(), circular=circular)
    np.testing.assert_allclose(blur(x, kernel, circular=circular).numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("row", "col"), [(0, 0), (0, 2), (1, 4), (2, 1)])
@pytest.mark.parametrize("circular", [False, True])
def test_a_single_weight_moves_the_image(row: int, col: int, circular: bool) -> None:
    kernel = torch.zeros(3, 5, dtype=torch.float64)
    kernel[row, col] = 1
    x = noise(1, 1, 6, 7)
    out = blur(x, kernel, circular=circular)
    m, n = row - 1, col - 2
    for i in range(6):
        for j in range(7):
            inside = 0 <= i + m < 6 and (circular or 0 <= j + n < 7)
            assert float(out[0, 0, i, j]) == pytest.approx(
                float(x[0, 0, i + m, (j + n) % 7]) if inside else 0, abs=1e-12
            )


def test_circular_keeps_row_sums_and_commutes_with_rolling() -> None:
    x, kernel = noise(2, 2, 9, 12), weights(1, 5, separable=True)
    out = blur(x, kernel, circular=True)
    assert torch.allclose(out.sum(3), x.sum(3) * kernel.sum(), rtol=0, atol=1e-11)
    assert torch.allclose(blur(x.roll(5, 3), kernel, circular=True), out.roll(5, 3), rtol=0, atol=1e-11)


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("circular", [False, True])
def test_gradcheck(separable: bool, circular: bool) -> None:
    kernel = weights(3, 5, separable=separable)
    x = noise(2, 2, 4, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: blur(x, kernel, circular=circular), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["gaussian", "non-separable"])
def test_half_precision_is_kept_and_close(dtype: torch.dtype, name: str) -> None:
    x = noise(1, 2, 16, 16).to(dtype)
    out = blur(x, KERNELS[name])
    exact = blur(x.double(), KERNELS[name])
    assert out.dtype == dtype
    assert (out.double() - exact).abs().max() <= 4 * torch.finfo(dtype).eps * exact.abs().max()


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (3,), (1, 1, 3, 3)], ids=str)
def test_kernels_without_a_centre_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(WhorlError):
        blur(torch.ones(1, 1, 8, 8), torch.ones(shape))


class Work(TorchDispatchMode):
    """Counts what every operation writes: with the multiply-adds of convolutions and products, the work done."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: int = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and not func.is_view:
            self.written += out.numel()
        return out


def work(x: Tensor, kernel: Tensor, *, circular: bool) -> int:
    blur(x, kernel, circular=circular)
    writes, products = Work(), FlopCounterMode(display=False)
    with writes, products:
        blur(x, kernel, circular=circular)
    flops: int = products.get_total_flops()
    return writes.written + flops


@pytest.mark.parametrize("circular", [False, True])
def test_a_separable_kernel_costs_two_lines_not_a_square(circular: bool) -> None:
    x = noise(1, 2, 40, 40, dtype=torch.float32)
    lines = work(x, weights(31, 31, separable=True), circular=circular)
    square = work(x, weights(31, 31, separable=False), circular=circular)
    assert lines < square / 5


@pytest.mark.parametrize("shape", [(2, 3, 17, 23), (3, 1, 9, 12), (1, 2, 20, 5)], ids=str)
@pytest.mark.parametrize("size", [(3, 7), (15, 15), (1, 31)], ids=str)
@pytest.mark.parametrize("separable", [True, False])
@pytest.mark.parametrize("circular", [True, False])
def test_the_convolution_that_gpus_use_gives_the_same(
    shape: tuple[int, ...], size: tuple[int, int], separable: bool, circular: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    rows, columns = (torch.rand(side, dtype=torch.float64, generator=generator) for side in size)
    kernel = torch.outer(rows, columns)
    if not separable:
        kernel = kernel + torch.rand(size, dtype=torch.float64, generator=generator)
    expected = blur(x, kernel, circular=circular)
    monkeypatch.setattr(kernels, "_as_convolution", lambda _: True)
    torch.testing.assert_close(blur(x, kernel, circular=circular), expected, rtol=1e-12, atol=1e-12)
