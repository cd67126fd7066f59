"""JPEG compression as a defence: the quantisation that removes invisible detail also removes part of an attack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from whorl.defenses.defended import at_least_single, require_images, straight_through
from whorl.defenses.registry import DEFENSES
from whorl.records import Limits, Record, checked

Quality = Annotated[int, Limits(least=1, most=100)]


def jpeg(x: Tensor, *, quality: int = 75) -> Tensor:
    """Compress and decompress images with Pillow's JPEG codec, in memory.

    Args:
        x: (B, 3, H, W) in [0, 1]; rounded to 8 bits first.
        quality: 1 to 100, with Pillow's default chroma subsampling (4:2:0).

    Returns:
        Like ``x``: exactly the 8-bit pixels that Pillow decodes, divided by 255. The gradient passes straight through.

    >>> jpeg(torch.rand(2, 3, 16, 16)).shape
    torch.Size([2, 3, 16, 16])
    """
    require_images(x)
    quality = checked("quality", quality, Quality)
    exact = at_least_single(x.detach())
    # One copy to the host and one back, whatever the batch.
    pixels = (exact * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    decoded = torch.from_numpy(coded(pixels, quality)).to(x.device).permute(0, 3, 1, 2)
    return straight_through((decoded.to(exact.dtype) / 255).to(x.dtype), x)


def coded(pixels: Iterable[NDArray[np.uint8]], quality: int) -> NDArray[np.uint8]:
    """Compress and decompress (N, H, W, 3) images.

    >>> coded(np.zeros((2, 8, 16, 3), dtype=np.uint8), 75).shape
    (2, 8, 16, 3)
    """
    decoded = []
    for image in pixels:
        file = BytesIO()
        Image.fromarray(np.ascontiguousarray(image)).save(file, format="JPEG", quality=quality)
        decoded.append(np.asarray(Image.open(file, formats=("JPEG",))))
    return np.stack(decoded)


@DEFENSES.add
@dataclass(frozen=True, kw_only=True, repr=False)
class Jpeg(Record):
    """JPEG compression; see ``jpeg``.

    Args:
        quality: 1 to 100.
    """

    name: ClassVar[str] = "jpeg"
    about: ClassVar[str] = "compress as JPEG and decompress"
    quality: Quality = 75

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:  # noqa: ARG002 - nothing here is random
        """Compress ``x``."""
        return jpeg(x, quality=self.quality)
