"""Small estimators that change a gradient's values, not its place: fewer outliers, more agreement of the colours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from whorl.estimators.fast import fits, fused, on_gpu
from whorl.estimators.invariant import ESTIMATORS, _Wraps
from whorl.geometry.triton_modules import kernel_module
from whorl.records import Part, Record, Share

kernels = partial(kernel_module, "whorl.estimators.values_kernels")
"""Gives the module of Triton kernels, or None where Triton cannot be imported."""


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class CompressedGradient(_Wraps, Record):
    """Raise every value's size to a power and keep its sign, so that few large values do not outweigh the rest.

    Attributes:
        power: in (0, 1]; 1 leaves the gradient, towards 0 it becomes its sign.

    >>> import torch
    >>> CompressedGradient(power=0.5)(torch.tensor([[[[-4.0, 9.0]]]])).tolist()
    [[[[-2.0, 3.0]]]]
    """

    power: Part = 0.5

    def __call__(self, gradient: Tensor) -> Tensor:
        """Compress (B, C, H, W)."""
        if by_kernel(gradient):
            with torch.cuda.device_of(gradient):
                compressed: Tensor = kernels().compress(gradient.contiguous(), self.power)
            return compressed
        return gradient.sign() * gradient.abs() ** self.power


@ESTIMATORS.add
@dataclass(frozen=True, kw_only=True, repr=False)
class SharedChannels(_Wraps, Record):
    """Replace part of each colour's gradient by the mean over the colours.

    Attributes:
        share: in [0, 1]; 1 makes all colours alike.

    >>> import torch
    >>> SharedChannels(share=0.5)(torch.tensor([[[[2.0]], [[4.0]]]])).flatten().tolist()
    [2.5, 3.5]
    """

    share: Share = 0.5

    def __call__(self, gradient: Tensor) -> Tensor:
        """Mix (B, C, H, W)."""
        if by_kernel(gradient) and gradient.dim() == 4 and gradient.shape[1] <= kernels().MOST_COLOURS:
            with torch.cuda.device_of(gradient):
                mixed: Tensor = kernels().share(gradient.contiguous(), self.share)
            return mixed
        return gradient + self.share * (gradient.mean(dim=1, keepdim=True) - gradient)


def by_kernel(gradient: Tensor) -> bool:
    """Whether a kernel can take a gradient."""
    here = on_gpu(gradient) and fused() and not torch.compiler.is_compiling()
    return here and fits(gradient, 0) and kernels() is not None
