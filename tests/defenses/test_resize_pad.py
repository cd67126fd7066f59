"""R&P: shrink to the nearest pixel, place on black."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from whorl.defenses import resize_pad
from whorl.defenses.resize_pad import draw_placements
from whorl.errors import WhorlError
from whorl.randomness import substream


def keys(count: int, seed: int = 0) -> torch.Tensor:
    return substream(torch.arange(count), seed)


def literal_resize_pad(picture: np.ndarray, height: int, width: int, top: int, left: int) -> np.ndarray:
    """Pixel by pixel, for one (3, H, W) image; corners go to corners."""
    out = np.zeros_like(picture)
    _, full_height, full_width = picture.shape
    for i in range(height):
        for j in range(width):
            row = int(np.floor(i * (full_height - 1) / max(height - 1, 1) + 0.5))
            column = int(np.floor(j * (full_width - 1) / max(width - 1, 1) + 0.5))
            out[:, top + i, left + j] = picture[:, row, column]
    return out


@pytest.mark.parametrize("size", [(32, 32), (21, 40), (1, 5), (2, 2)])
@pytest.mark.parametrize("min_scale", [0.875, 0.3, 0.0])
def test_matches_the_literal_definition(size: tuple[int, int], min_scale: float) -> None:
    x = torch.rand(6, 3, *size, dtype=torch.float64)
    drawn = keys(6)
    out = resize_pad(x, drawn, min_scale=min_scale)
    for i, placed in enumerate(zip(*draw_placements(drawn, size, min_scale=min_scale), strict=True)):
        height, width, top, left = (int(part) for part in placed)
        np.testing.assert_array_equal(out[i], literal_resize_pad(x[i].numpy(), height, width, top, left))


def test_draws_cover_their_range_evenly() -> None:
    height, width, top, left = (part.double() for part in draw_placements(keys(20_000), (224, 100)))
    assert height.min() == 196
    assert height.max() == 223
    assert width.min() == 87
    assert width.max() == 99
    assert abs(height.mean() / 224 - (1.875 / 2 - 0.5 / 224)) < 0.002  # rounded down: half a pixel less on average
    for offset, room in ((top, 224 - height), (left, 100 - width)):
        assert (offset >= 0).all()
        assert (offset <= room).all()
        assert (offset == 0).any()
        assert (offset == room).any()
        assert abs((offset / room).mean() - 0.5) < 0.01


def test_scale_of_one_changes_nothing() -> None:
    x = torch.rand(4, 3, 9, 13)
    assert torch.equal(resize_pad(x, keys(4), min_scale=1), x)


def test_gradient_is_exact() -> None:
    x = torch.rand(2, 3, 6, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: resize_pad(z, keys(2), min_scale=0.5), x)


def test_half_precision_keeps_the_pixels() -> None:
    x = torch.rand(2, 3, 16, 16).to(torch.bfloat16)
    assert torch.equal(resize_pad(x, keys(2)).float(), resize_pad(x.float(), keys(2)))


@pytest.mark.parametrize("min_scale", [-0.1, 1.1, float("nan"), "1", True])
def test_min_scale_out_of_range(min_scale: object) -> None:
    with pytest.raises(WhorlError, match="min_scale must be"):
        resize_pad(torch.rand(1, 3, 8, 8), keys(1), min_scale=min_scale)  # type: ignore[arg-type]
