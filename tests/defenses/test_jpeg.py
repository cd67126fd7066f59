"""JPEG: exactly what Pillow decodes."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from whorl.defenses import jpeg
from whorl.errors import WhorlError


def literal_jpeg(picture: np.ndarray, quality: int) -> np.ndarray:
    """(H, W, 3) levels in, (H, W, 3) levels out, by way of a file's bytes."""
    file = BytesIO()
    Image.fromarray(picture, mode=None).save(file, "JPEG", quality=quality)
    return np.array(Image.open(BytesIO(file.getvalue())).convert("RGB"))


@pytest.mark.parametrize("quality", [1, 30, 75, 95, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_byte_equal_to_pillow(quality: int, dtype: torch.dtype) -> None:
    pixels = np.random.default_rng(quality).integers(0, 256, (3, 21, 34, 3), dtype=np.uint8)
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(dtype) / 255
    out = jpeg(x, quality=quality)
    assert out.dtype == dtype
    expected = np.stack([literal_jpeg(picture, quality) for picture in pixels])
    assert torch.equal(out, torch.from_numpy(expected).permute(0, 3, 1, 2).to(dtype) / 255)


def test_rounds_to_eight_bits_first() -> None:
    x = torch.rand(1, 3, 16, 16)
    assert torch.equal(jpeg(x), jpeg((x * 255).round() / 255))
    beyond = torch.full((1, 3, 8, 8), 1.2)
    assert torch.equal(jpeg(beyond), torch.ones(1, 3, 8, 8))


def test_half_precision() -> None:
    x = torch.rand(1, 3, 16, 16).to(torch.bfloat16)
    assert torch.equal(jpeg(x), jpeg(x.float()).to(torch.bfloat16))


@pytest.mark.parametrize("quality", [0, 101, 75.0, True, None])
def test_quality_out_of_range(quality: object) -> None:
    with pytest.raises(WhorlError, match=r"quality must be a whole number in \[1, 100\]"):
        jpeg(torch.rand(1, 3, 8, 8), quality=quality)  # type: ignore[arg-type]
