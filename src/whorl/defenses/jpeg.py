"""JPEG compression as a defence: the quantisation that removes invisible detail also removes part of an attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from whorl.defenses.checks import at_least_single, require_images, require_whole, straight_through
from whorl.defenses.jpeg_codec import coded
from whorl.defenses.registry import DEFENSES
from whorl.records import Record


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
    require_whole("quality", quality, 1, 100)
    exact = at_least_single(x.detach())
    # One copy to the host and one back, whatever the batch.
    pixels = (exact * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    decoded = torch.from_numpy(coded(pixels, quality)).to(x.device).permute(0, 3, 1, 2)
    return straight_through((decoded.to(exact.dtype) / 255).to(x.dtype), x)


@DEFENSES.add
@dataclass(frozen=True, kw_only=True, repr=False)
class Jpeg(Record):
    """JPEG compression; see ``jpeg``.

    Args:
        quality: 1 to 100.
    """

    name: ClassVar[str] = "jpeg"
    about: ClassVar[str] = "compress as JPEG and decompress"
    quality: int = 75

    def __post_init__(self) -> None:
        require_whole("quality", self.quality, 1, 100)

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:  # noqa: ARG002 - nothing here is random
        """Compress ``x``."""
        return jpeg(x, quality=self.quality)
