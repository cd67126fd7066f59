"""Bit-depth reduction: fewer levels a channel leave less room for small changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from whorl.defenses.defended import at_least_single, require_images, straight_through
from whorl.defenses.registry import DEFENSES
from whorl.records import Limits, Record, checked

Levels = Annotated[int, Limits(least=2, most=256)]


def reduce_bits(x: Tensor, *, levels: int = 4) -> Tensor:
    """Quantise each channel to evenly spaced levels from 0 to 1.

    [0, 1] is cut into ``levels`` bins of equal width, and the i-th bin becomes i / (levels - 1). (Rounding to the
    nearest level would make the first and the last bin half as wide.)

    Args:
        x: (B, 3, H, W) in [0, 1]; values outside count as the end they are past.
        levels: 2 to 256; 4 is 2 bits.

    Returns:
        Like ``x``. The gradient passes straight through.

    >>> import torch
    >>> reduce_bits(torch.tensor([0.1, 0.3, 0.9]).reshape(1, 3, 1, 1), levels=4).flatten()
    tensor([0.0000, 0.3333, 1.0000])
    """
    require_images(x)
    levels = checked("levels", levels, Levels)
    value = (at_least_single(x.detach()) * levels).floor().clamp(0, levels - 1) / (levels - 1)
    return straight_through(value.to(x.dtype), x)


@DEFENSES.add
@dataclass(frozen=True, kw_only=True, repr=False)
class BitDepth(Record):
    """Bit-depth reduction; see ``reduce_bits``.

    Args:
        levels: 2 to 256; 4 is 2 bits.
    """

    name: ClassVar[str] = "bitdepth"
    about: ClassVar[str] = "round each channel to a few levels"
    levels: Levels = 4

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:  # noqa: ARG002 - nothing here is random
        """Quantise ``x``."""
        return reduce_bits(x, levels=self.levels)
