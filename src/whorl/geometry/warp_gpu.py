"""Affine warps on a GPU whose gradient is the same every time.

torch adds the gradient of ``grid_sample`` up in whatever order the GPU comes to it, so that two runs of one attack
differ in their rounding, and soon in their images. Here every pixel gathers its own sum, in one order; and no grid of
positions goes over memory.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from whorl.geometry.triton_modules import kernel_module, wrapped

# The way out, should a driver or compiler not agree with the kernels.
_ASKED = os.environ.get("WHORL_FUSED_WARP", "1") != "0"
# The second axis of a grid of programs.
_MOST_PLANES = 65535


kernels = partial(kernel_module, "whorl.geometry.warp_kernels")
"""Gives the module of Triton kernels, or None where Triton cannot be imported."""


def warp_on_gpu(
    x: Tensor,
    angle: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    mirrored: Tensor | None = None,
    gain: Tensor | None = None,
) -> Tensor | None:
    """Do what :func:`whorl.geometry.affine.warp` says, if that can be done here; mirror before it, dim after it.

    Args:
        x: (B, C, H, W), any dtype.
        angle: (B,) degrees.
        scale: (B,) factors > 0.
        shift: (B, 2) pixels, (right, down).
        mirrored: (B,) bool, whether left and right are swapped first; None for no image.
        gain: (B,) factors on the result; None for 1.

    Returns:
        (B, C, H, W), dtype of ``x``, added up in float32; None where plain torch is to do it.
    """
    if not _fits(x, *(part for part in (angle, scale, shift, gain) if part is not None)):
        return None
    theta = torch.deg2rad(angle)
    parts = [torch.cos(theta) / scale, torch.sin(theta) / scale, shift[:, 0], shift[:, 1]]
    parts += [torch.zeros_like(angle) if mirrored is None else mirrored.to(angle.dtype)]
    parts += [torch.ones_like(angle) if gain is None else gain]
    out: Tensor = _Warped.apply(x.contiguous(), torch.stack(parts, dim=1))  # type: ignore[no-untyped-call]  # torch's own
    return out


def _fits(x: Tensor, *parameters: Tensor) -> bool:
    if not _ASKED or not _on_gpu(x) or torch.compiler.is_compiling() or kernels() is None:
        return False
    if any(parameter.requires_grad or parameter.dtype != torch.float32 for parameter in parameters):
        return False
    short = x.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return not wrapped(x, *parameters) and short and 0 < x.shape[0] * x.shape[1] <= _MOST_PLANES and x.numel() > 0


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


class _Warped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, poses: Tensor) -> Tensor:
        ctx.save_for_backward(poses)
        with torch.cuda.device_of(x):
            out: Tensor = kernels().warp(x, poses)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (poses,) = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        with torch.cuda.device_of(gradient):
            return kernels().warp_backward(gradient, poses), None
