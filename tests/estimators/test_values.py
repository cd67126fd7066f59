"""Compressed and shared gradients by kernels against their formulas in float64; in Triton's interpreter.

Triton decides at its import whether it interprets, so this file is run once more, as a program.
"""

from __future__ import annotations

import torch
from torch import Tensor

import whorl
from interpreter import check_interpreted, needs_triton
from whorl.estimators import CompressedGradient, SharedChannels, at_step, fast, following, values

ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def noise(*shape: int) -> Tensor:
    g = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    g[0, 0, 0, :3] = torch.tensor([0.0, 1e-6, -1e4])
    return g


def interpreted() -> None:
    """Hold the kernels against the formulas, element by element."""
    for shape in ((2, 3, 9, 11), (1, 1, 50, 60), (3, 8, 4, 4), (2, 9, 4, 4)):
        for dtype, most in ROUNDING.items():
            g = noise(*shape).to(dtype)
            assert values.by_kernel(g)
            exact = g.double()
            for power in (0.5, 0.3, 1.0):
                made = CompressedGradient(power=power)(g)
                assert made.dtype == dtype
                torch.testing.assert_close(made.double(), exact.sign() * exact.abs() ** power, rtol=most, atol=1e-6)
            for share in (0.0, 0.5, 1.0):
                made = SharedChannels(share=share)(g)
                assert made.dtype == dtype
                expected = (1 - share) * exact + share * exact.mean(1, keepdim=True)
                scale = float(exact.abs().max())
                torch.testing.assert_close(made.double(), expected, rtol=most, atol=most * scale)
    last = noise(2, 3, 9, 11).to(memory_format=torch.channels_last)
    assert torch.equal(SharedChannels()(last), SharedChannels()(last.contiguous()))
    for bad in (float("nan"), float("inf"), -float("inf")):
        g = noise(1, 3, 4, 4)
        g[0, 1, 2, 2] = bad
        assert not bool(CompressedGradient()(g)[0, 1, 2, 2].isfinite())
        assert not bool(SharedChannels()(g)[0, 0, 2, 2].isfinite())
    assert not values.by_kernel(noise(2, 3, 9, 11).double())
    leaf = noise(1, 3, 4, 4).requires_grad_()
    assert not values.by_kernel(leaf)


@needs_triton
def test_kernels_do_what_the_formulas_say() -> None:
    check_interpreted(__file__)


def test_a_wrapped_network_has_the_changed_gradient() -> None:
    x = torch.tensor([[[[-4.0, 9.0]]]], requires_grad=True)
    (g,) = torch.autograd.grad((CompressedGradient().wrap(torch.nn.Identity())(x) * x.detach()).sum(), x)
    assert g.tolist() == [[[[-2.0, 3.0]]]]


def test_what_an_estimator_is_in_the_step_that_a_tensor_holds() -> None:
    step, g = torch.tensor(0), torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(0))
    narrowing = whorl.RotationInvariant(degrees=(40.0, 4.0))
    chain = whorl.Chain(SharedChannels(), narrowing)
    for estimator in (narrowing, chain):
        whole = following(estimator, step, 4, g)
        assert whole is not None
        assert at_step(whole, 0, 4) is whole
        for index in range(4):
            step.fill_(index)
            assert torch.equal(whole(g), at_step(estimator, index, 4)(g))
    still = whorl.Chain(SharedChannels(), whorl.RotationInvariant(degrees=3.0))
    assert following(still, step, 4, g) is still

    class Growing:
        def at(self, step: int, steps: int) -> whorl.Estimator:
            return lambda g: g * (step + 1) / steps

        def __call__(self, gradient: Tensor) -> Tensor:
            return gradient

    assert following(Growing(), step, 4, g) is None
    assert following(whorl.Chain(narrowing, Growing()), step, 4, g) is None


if __name__ == "__main__":
    vars(fast)["on_gpu"] = lambda _: True
    vars(values)["on_gpu"] = lambda _: True
    vars(values)["fused"] = lambda: True
    interpreted()
