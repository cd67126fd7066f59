"""Random resizing and padding (R&P): the attacked pixels no longer meet the weights that they were made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from whorl.defenses.defended import require_images
from whorl.defenses.registry import DEFENSES
from whorl.randomness import uniform
from whorl.records import Record, Share, checked


class Placement(NamedTuple):
    """Where a shrunken image goes on a canvas of the original size. All (B,) int64, in pixels."""

    height: Tensor
    width: Tensor
    top: Tensor
    left: Tensor


def draw_placements(keys: Tensor, size: tuple[int, int], *, min_scale: float = 0.875) -> Placement:
    """Draw a size and a position for each image.

    Args:
        keys: (B,) int64, one random key an image.
        size: (height, width) of the canvas.
        min_scale: both sides shrink by one factor, uniform in [min_scale, 1), rounded down to whole pixels.

    Returns:
        Placement whose every position on the canvas is equally likely.
    """
    unit, down, right = uniform(keys, (3,)).unbind(1)
    scale = min_scale + (1 - min_scale) * unit
    height, width = ((scale * side).long().clamp(min=1) for side in size)
    top = (down * (size[0] - height + 1)).long()
    left = (right * (size[1] - width + 1)).long()
    return Placement(height, width, top, left)


def resize_pad(x: Tensor, keys: Tensor, *, min_scale: float = 0.875) -> Tensor:
    """Shrink each image at random and place it at random on black, at the size it came in.

    Args:
        x: (B, 3, H, W) in [0, 1].
        keys: (B,) int64, one random key an image (``whorl.randomness.image_keys``).
        min_scale: the smallest factor, in [0, 1]; 1 leaves images as they are.

    Returns:
        Like ``x``, nearest neighbour with corners aligned. Differentiable: each pixel kept hands its gradient back.

    >>> resize_pad(torch.ones(1, 3, 32, 32), torch.tensor([7])).shape
    torch.Size([1, 3, 32, 32])
    """
    require_images(x)
    min_scale = checked("min_scale", min_scale, Share)
    batch, channels, height, width = x.shape
    at = draw_placements(keys, (height, width), min_scale=min_scale)
    rows, in_rows = _source(at.height, at.top, height)
    columns, in_columns = _source(at.width, at.left, width)
    # One gather of fixed shape, whatever the draw: no new shape for a compiler, and no loop over the batch.
    index = (rows[:, :, None] * width + columns[:, None, :]).reshape(batch, 1, -1).expand(-1, channels, -1)
    inside = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]
    return x.flatten(2).gather(2, index).reshape(x.shape) * inside


@DEFENSES.add
@dataclass(frozen=True, kw_only=True, repr=False)
class ResizePad(Record):
    """Random resizing and padding; see ``resize_pad``.

    Args:
        min_scale: the smallest factor, in [0, 1].
    """

    name: ClassVar[str] = "resize-pad"
    about: ClassVar[str] = "shrink at random and pad with black at random"
    samples: ClassVar[int] = 1  # draws that are averaged by default
    min_scale: Share = 0.875

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Shrink and place ``x``."""
        return resize_pad(x, keys, min_scale=self.min_scale)


def _source(length: Tensor, start: Tensor, canvas: int) -> tuple[Tensor, Tensor]:
    """Tell, for each place along one side of the canvas, which pixel lands there, and whether any does."""
    offset = torch.arange(canvas, device=length.device) - start[:, None]
    last = (length - 1)[:, None]
    inside = (offset >= 0) & (offset <= last)
    # round(offset · (canvas - 1) / last) in whole numbers: exact, hence the same on every device
    nearest = (2 * offset * (canvas - 1) + last) // (2 * last.clamp(min=1))
    return nearest.clamp(0, canvas - 1), inside
