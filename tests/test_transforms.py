"""Input transforms against literal versions, one image at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conftest import pictures
from whorl.errors import WhorlError
from whorl.geometry import affine
from whorl.randomness import uniform
from whorl.transforms import DiverseInput, RandomAffine


def nearest(x: Tensor, height: int, width: int) -> Tensor:
    """Nearest-neighbour resize by integer arithmetic: output i shows input floor(i * from / to)."""
    rows = [i * x.shape[-2] // height for i in range(height)]
    columns = [j * x.shape[-1] // width for j in range(width)]
    return x[..., rows, :][..., columns]


def literal_diverse_input(x: Tensor, draws: list[float]) -> Tensor:
    """Enlarge, pad and shrink back as three separate steps on one (C, H, W) picture."""
    use, enlarge, down, right = draws
    if use >= 0.7:
        return x
    height, width = x.shape[-2:]
    canvas_h, canvas_w = int(height * 1.1), int(width * 1.1)
    new_h = min(canvas_h, int(height + enlarge * (canvas_h - height + 1)))
    new_w = min(canvas_w, int(width + enlarge * (canvas_w - width + 1)))
    top, left = int(down * (canvas_h - new_h + 1)), int(right * (canvas_w - new_w + 1))
    padded = F.pad(nearest(x, new_h, new_w), (left, canvas_w - new_w - left, top, canvas_h - new_h - top))
    back = F.interpolate(padded[None], (height, width), mode="bilinear", align_corners=False, antialias=True)
    return back[0]


@pytest.mark.parametrize(("height", "width"), [(40, 40), (31, 57)])
def test_diverse_input_is_resize_pad_resize(height: int, width: int) -> None:
    x, keys = pictures(40, 2, height, width), torch.arange(40)
    draws = uniform(keys, (4,)).tolist()
    expected = torch.stack([literal_diverse_input(one, d) for one, d in zip(x, draws, strict=True)])
    out = DiverseInput()(x, keys)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)
    changed = (out != x).flatten(1).any(1).float().mean()
    assert 0.5 < changed < 0.9


def test_torch_resizes_the_same_way() -> None:
    x = pictures(1, 1, 40, 40)
    assert torch.equal(nearest(x, 44, 44), F.interpolate(x, (44, 44), mode="nearest"))


def test_diverse_input_keeps_one_shape_and_passes_the_gradient() -> None:
    x = pictures(6, 3, 40, 40).requires_grad_()
    out = DiverseInput(probability=1.0)(x, torch.arange(6))
    assert out.shape == x.shape
    (gradient,) = torch.autograd.grad(out.sum(), x)
    # every pixel is seen: none is lost between enlarging and shrinking back, and no border counts twice
    assert float(gradient.min()) > 0.3
    assert 0.8 < float(gradient.mean()) <= 1.0


def test_random_affine_is_the_affine_warp_of_its_draws() -> None:
    x, keys = pictures(5, 3, 23, 31), torch.arange(5)
    out = RandomAffine(angle=10, scale=(0.8, 1.2), shift=29.9)(x, keys)
    for i, (a, s, m, n) in enumerate(uniform(keys, (4,)).tolist()):
        shift = ((2 * m - 1) * 3.1, (2 * n - 1) * 2.3)
        expected = affine(x[i : i + 1], angle=(2 * a - 1) * 10, scale=0.8 + 0.4 * s, shift=shift)
        torch.testing.assert_close(out[i : i + 1], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiverseInput(probability=1.5), "probability must lie in"),
        (lambda: DiverseInput(largest=0.9), "largest must lie in"),
        (lambda: RandomAffine(scale=(0, 1)), "0 < lowest <= highest"),
    ],
)
def test_settings_out_of_range(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(WhorlError, match=message):
        make()
