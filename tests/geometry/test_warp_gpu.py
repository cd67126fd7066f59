"""Warps by kernels against plain torch in float64, in Triton's interpreter: images, gradients, edges.

Triton decides at its import whether it interprets, so this file is run once more, as a program.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import whorl
from interpreter import check_interpreted, needs_triton
from whorl.geometry import warp_gpu as warping
from whorl.geometry.affine import warp
from whorl.geometry.views import AffinePose, View, shown

POSES = {
    "still": (0.0, 1.0, 0.0, 0.0),
    "turned": (30.0, 1.0, 0.0, 0.0),
    "right angle": (90.0, 1.0, 0.0, 0.0),
    "smaller": (-17.0, 0.5, 1.5, -2.25),
    "larger": (11.0, 1.5, -3.0, 0.5),
    "much larger": (5.0, 7.0, 0.0, 0.0),
    "much smaller": (5.0, 0.1, 0.0, 0.0),
    "gone": (0.0, 1.0, 1000.0, 0.0),
    "far gone": (45.0, 1e-6, 0.0, 1e9),
}
SHAPES = [(1, 3, 13, 17), (1, 1, 1, 5), (1, 2, 8, 8)]


def parameters(name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    angle, scale, right, down = POSES[name]
    return tuple(torch.tensor(value, dtype=dtype) for value in ([angle], [scale], [[right, down]]))  # type: ignore[return-value]


def noise(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def compare() -> None:
    """Hold every case against plain torch; runs where Triton interprets."""
    for name in POSES:
        for shape in SHAPES:
            exact = noise(shape, 0).double().requires_grad_()
            expected = warp(exact, *parameters(name, torch.float64))
            g = noise(shape, 1)
            (backwards,) = torch.autograd.grad(expected, exact, g.double())
            leaf = noise(shape, 0).requires_grad_()
            out = warping.warp_on_gpu(leaf, *parameters(name, torch.float32))
            assert out is not None, (name, shape)
            (made,) = torch.autograd.grad(out, leaf, g)
            for got, right, most in ((out, expected, 3e-5), (made, backwards, 3e-4)):
                assert float((got.double() - right).abs().max()) <= most, (name, shape)
    # Images of a batch have poses of their own, and do not know of each other.
    x, together = noise((3, 2, 9, 7), 2), [torch.cat(p) for p in zip(*map(_float, list(POSES)[1:4]), strict=True)]
    whole = warping.warp_on_gpu(x, *together)
    assert whole is not None
    for i, name in enumerate(list(POSES)[1:4]):
        alone = warping.warp_on_gpu(x[i : i + 1], *_float(name))
        assert alone is not None
        assert torch.equal(whole[i], alone[0])
    half = warp(x.bfloat16(), *together)
    assert half.dtype == torch.bfloat16
    compare_views(x, together)
    turned = together[0].clone().requires_grad_()
    for unfit in ((x.double(), *together), (x, turned, *together[1:]), (x[:0], *(p[:0] for p in together))):
        assert warping.warp_on_gpu(*unfit) is None
    attack = whorl.RandomAffine()
    leaf = x.clone().requires_grad_()
    assert "_Warped" in type(attack(leaf, torch.arange(3)).grad_fn).__name__


def compare_views(x: Tensor, together: list[Tensor]) -> None:
    """Mirrored first and dimmed after, whatever the number of colours; in bfloat16 as well."""
    mirrored, gain = torch.tensor([True, False, True]), torch.tensor([0.5, 1.0, 0.75])
    for colours in (1, 2, 3, 4, 5):
        images = noise((3, colours, 9, 7), colours)
        for given, most in ((images, 3e-4), (images.bfloat16(), 0.03)):
            exact, leaf = given.double().requires_grad_(), given.clone().requires_grad_()
            swapped = torch.where(mirrored[:, None, None, None], exact.flip(-1), exact)
            expected = warp(swapped, *(part.double() for part in together)) * gain[:, None, None, None]
            out = shown(leaf, View(mirrored, AffinePose(*together), gain))
            assert "_Warped" in type(out.grad_fn).__name__
            assert out.dtype == given.dtype
            g = noise((3, colours, 9, 7), 6).to(given.dtype)
            (backwards,) = torch.autograd.grad(expected, exact, g.double())
            (made,) = torch.autograd.grad(out, leaf, g)
            for got, right in ((out, expected), (made, backwards)):
                torch.testing.assert_close(got.double(), right, rtol=most, atol=most)
    # The same bits as one after the other.
    seen = shown(x, View(mirrored, AffinePose(*together), gain))
    step_by_step = torch.where(mirrored[:, None, None, None], x.flip(-1), x)
    alone = warping.warp_on_gpu(step_by_step, *together)
    assert alone is not None
    assert torch.equal(seen, alone * gain[:, None, None, None])


def _float(name: str) -> tuple[Tensor, Tensor, Tensor]:
    return parameters(name, torch.float32)


@needs_triton
def test_images_and_gradients_equal_plain_torch() -> None:
    check_interpreted(__file__, WHORL_FUSED_WARP="1")


def test_on_a_cpu_plain_torch_does_it() -> None:
    x = noise((1, 3, 8, 8), 0)
    assert warping.warp_on_gpu(x, *_float("turned")) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_gradient_is_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warping, "_ASKED", True)
    x = torch.rand(16, 3, 224, 224, device="cuda").requires_grad_()
    keys, g = torch.arange(16, device="cuda"), torch.randn(16, 3, 224, 224, device="cuda")
    transform = whorl.RandomAffine()
    out = transform(x, keys)
    exact = x.detach().cpu().double().requires_grad_()
    expected = transform(exact, keys.cpu())
    (backwards,) = torch.autograd.grad(expected, exact, g.cpu().double())
    torch.testing.assert_close(out.detach().cpu().double(), expected.detach(), rtol=0, atol=1e-3)
    first = torch.autograd.grad(out, x, g, retain_graph=True)[0]
    assert float((first.cpu().double() - backwards).norm() / backwards.norm()) < 1e-4
    for _ in range(5):
        assert torch.equal(torch.autograd.grad(transform(x, keys), x, g)[0], first)


if __name__ == "__main__":
    vars(warping)["_on_gpu"] = lambda _: True
    compare()
