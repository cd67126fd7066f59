"""Input transforms against literal versions, one image at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import reference
import whorl
from conftest import random_images, small_net
from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.geometry import affine
from whorl.randomness import uniform
from whorl.transforms import DiverseInput, RandomAffine


@pytest.mark.parametrize(("height", "width"), [(40, 40), (31, 57)])
def test_diverse_input_is_resize_pad_resize(height: int, width: int) -> None:
    x, keys = random_images(40, 2, height, width), torch.arange(40)
    draws = uniform(keys, (4,)).tolist()
    expected = torch.stack([reference.diverse_input(one, d) for one, d in zip(x, draws, strict=True)])
    out = DiverseInput()(x, keys)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)
    changed = (out != x).flatten(1).any(1).float().mean()
    assert 0.5 < changed < 0.9


@pytest.mark.parametrize("largest", [1.0, 1.1, 1.5, 1.95])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("height", "width"), [(31, 57), (7, 9), (1, 12)])
def test_diverse_input_and_its_gradient_at_every_size(
    height: int, width: int, dtype: torch.dtype, largest: float
) -> None:
    x, keys = random_images(20, 2, height, width).to(dtype), torch.arange(20)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out = DiverseInput(largest=largest)(ours, keys)
    draws = uniform(keys, (4,)).tolist()
    pairs = zip(theirs, draws, strict=True)
    expected = torch.stack([reference.diverse_input(one, d, largest=largest) for one, d in pairs])
    atol = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(out, expected, rtol=0, atol=atol)
    weights = random_images(20, 2, height, width).flip(0).to(dtype)
    (gradient,) = torch.autograd.grad(out, ours, weights)
    (literal,) = torch.autograd.grad(expected, theirs, weights)
    torch.testing.assert_close(gradient, literal, rtol=0, atol=3 * atol)


def test_diverse_input_line_by_line_is_the_product_of_matrices() -> None:
    """The two ways of computing it: the one for a CPU, and the one for other devices."""
    x, draws = random_images(12, 3, 61, 83).double(), uniform(torch.arange(12), (4,))
    transform = DiverseInput()
    rows = transform._warp(61, draws[:, 1], draws[:, 2], x.dtype)
    columns = transform._warp(83, draws[:, 1], draws[:, 3], x.dtype)
    expected = torch.where(draws[:, 0, None, None, None] < 0.7, rows[:, None] @ x @ columns[:, None].mT, x)
    torch.testing.assert_close(transform(x, torch.arange(12)), expected, rtol=0, atol=1e-14)


def test_diverse_input_does_not_depend_on_the_batch() -> None:
    x, keys = random_images(9, 3, 33, 40), torch.arange(9)
    together = _value_and_gradient(x, keys)
    alone = [_value_and_gradient(x[i : i + 1], keys[i : i + 1]) for i in range(9)]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(parts))


def test_diverse_input_does_not_depend_on_the_memory_format() -> None:
    x, keys = random_images(5, 3, 33, 40), torch.arange(5)
    last = x.contiguous(memory_format=torch.channels_last)
    for one, other in zip(_value_and_gradient(x, keys), _value_and_gradient(last, keys), strict=True):
        assert torch.equal(one, other)


def _value_and_gradient(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    out = DiverseInput()(leaf, keys)
    return out.detach(), torch.autograd.grad(out.square().sum(), leaf)[0]


def test_diverse_input_can_be_differentiated_twice() -> None:
    x = random_images(3, 1, 6, 7).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: DiverseInput()(x, torch.arange(3)).pow(3), (x,))


def test_what_diverse_input_leaves_alone_is_exactly_as_it_was() -> None:
    x, keys = random_images(40, 3, 20, 20), torch.arange(40)
    still = uniform(keys, (4,))[:, 0] >= 0.7
    assert still.any()
    assert torch.equal(DiverseInput()(x, keys)[still], x[still])
    assert torch.equal(DiverseInput(probability=0)(x, keys), x)


def test_torch_resizes_the_same_way() -> None:
    x = random_images(1, 1, 40, 40)
    assert torch.equal(reference.nearest(x, 44, 44), F.interpolate(x, (44, 44), mode="nearest"))


def test_diverse_input_keeps_one_shape_and_passes_the_gradient() -> None:
    x = random_images(6, 3, 40, 40).requires_grad_()
    out = DiverseInput(probability=1.0)(x, torch.arange(6))
    assert out.shape == x.shape
    (gradient,) = torch.autograd.grad(out.sum(), x)
    # every pixel is seen: none is lost between enlarging and shrinking back, and no border counts twice
    assert float(gradient.min()) > 0.3
    assert 0.8 < float(gradient.mean()) <= 1.0


def test_random_affine_is_the_affine_warp_of_its_draws() -> None:
    x, keys = random_images(5, 3, 23, 31), torch.arange(5)
    out = RandomAffine(angle=10, scale=(0.8, 1.2), shift=29.9)(x, keys)
    for i, (a, s, m, n) in enumerate(uniform(keys, (4,)).tolist()):
        shift = ((2 * m - 1) * 3.1, (2 * n - 1) * 2.3)
        expected = affine(x[i : i + 1], angle=(2 * a - 1) * 10, scale=0.8 + 0.4 * s, shift=shift)
        torch.testing.assert_close(out[i : i + 1], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiverseInput(probability=1.5), "probability must be a number in"),
        (lambda: DiverseInput(largest=0.9), "largest must be a number in"),
        (lambda: RandomAffine(scale=(0, 1)), "scale must be a pair, each a number above 0"),
    ],
)
def test_settings_out_of_range(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(WhorlError, match=message):
        make()


FURTHER = RandomAffine(
    angle=10,
    scale=(0.8, 1.2),
    shift=29.9,
    shear=15,
    stretch=(0.9, 1.3),
    tilt=25,
    brightness=0.2,
    contrast=(0.5, 1.5),
    blur=4,
)


def test_random_poses_are_the_poses_of_their_draws() -> None:
    x, keys = random_images(3, 3, 20, 26), torch.tensor([5, 6, 7])
    assert FURTHER.dimensions == 12
    out, draws = FURTHER(x, keys), uniform(keys, (12,)).tolist()
    for i, row in enumerate(draws):
        angle, scale, right, down, shear, wide, high, first, second, brightness, contrast, blur = row
        pose = Pose(
            angle=20 * angle - 10,
            scale=0.8 + 0.4 * scale,
            shift=(59.8 * right - 29.9, 59.8 * down - 29.9),
            shear=30 * shear - 15,
            stretch=(0.9 + 0.4 * wide, 0.9 + 0.4 * high),
            tilt=(50 * first - 25, 50 * second - 25),
            brightness=0.4 * brightness - 0.2,
            contrast=0.5 + contrast,
            blur=4 * blur,
        )
        torch.testing.assert_close(out[i : i + 1], pose.apply(x[i : i + 1]), rtol=0, atol=1e-4)


def test_what_is_drawn_beside_does_not_change_the_first_four_draws() -> None:
    x, keys = random_images(2, 3, 20, 20), torch.tensor([5, 6])
    darker = RandomAffine(brightness=1e-9)
    assert darker.drawn == ("angle", "scale", "shift_x", "shift_y", "brightness")
    torch.testing.assert_close(darker(x, keys), RandomAffine()(x, keys), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["shear", "tilt", "brightness", "blur", "stretch", "contrast"])
def test_eot_and_ram_draw_every_family_and_its_gradient_flows(name: str) -> None:
    value = (0.5, 1.4) if name in ("stretch", "contrast") else {"brightness": 0.2}.get(name, 20.0)
    drawn, net, x = RandomAffine(**{name: value}), small_net(), random_images(2, 3, 16, 16)  # type: ignore[arg-type]
    y = net(x).argmax(1).detach()
    for attack in (whorl.attack("eot", samples=2, steps=2, input=drawn), whorl.attack("ram", steps=2, input=drawn)):
        adversarial = attack(net, x, y, seed=1, ids=["a", "b"])
        assert bool(((adversarial - x).abs().flatten(1).amax(1) > 0).all())
        other = attack.with_(input=RandomAffine())(net, x, y, seed=1, ids=["a", "b"])
        assert not torch.equal(adversarial, other), "the family took no part"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stretch": (0, 1)}, "stretch must be a pair, each a number above 0"),
        ({"contrast": (2, 1)}, "contrast must be .lowest, highest."),
        ({"tilt": 90}, "tilt_x must be inside"),
        ({"blur": -1}, "blur must be a number >= 0"),
        ({"brightness": float("nan")}, "brightness must be a number; got nan"),
    ],
)
def test_ranges_that_are_none_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        RandomAffine(**settings)
