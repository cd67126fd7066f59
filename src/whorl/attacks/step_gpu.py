"""A step on fixed buffers: one pass over memory where a GPU's kernel can, else the definition, copied in."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from whorl.attacks.step import State, Step
from whorl.geometry.triton_modules import kernel_module
from whorl.models.prepared.pointwise import by_kernel

kernels = partial(kernel_module, "whorl.attacks.step_kernels")
"""Gives the module of Triton kernels, or None where Triton cannot be imported."""


def move_in_place(step: Step, state: State, g: Tensor, alpha: Tensor) -> Tensor:
    """Do what :meth:`whorl.attacks.step.Step.move` says to the state's own tensors.

    Args:
        step: on buffers: ``x`` (B, C, H, W) and ``eps`` (B, 1, 1, 1), whose values may have changed.
        state: is changed.
        g: (B, C, H, W) estimated gradient, of the images' dtype or bfloat16.
        alpha: (B, 1, 1, 1) size of the step.

    Returns:
        (B,) mean absolute gradient of each image; not finite as soon as one value is not.
    """
    x, eps = step.x, step.eps
    g = g.contiguous()
    total: Tensor = torch.linalg.vector_norm(g, ord=1, dim=(1, 2, 3), dtype=x.dtype)
    size = (total / g[0].numel()).clamp_min(torch.finfo(x.dtype).tiny)
    contiguous = all(part.is_contiguous() for part in (x, state.adv, state.velocity))
    if step.norm.name == "linf" and contiguous and x.dtype == torch.float32 and by_kernel(g) and kernels() is not None:
        with torch.cuda.device_of(g):
            kernels().linf_step(g, x, eps, alpha, size, step.momentum, state.velocity, state.adv)
        return size
    step.project = step.norm.ball(x, eps)
    moved = step.move(state, g.to(x.dtype), alpha)
    state.adv.copy_(moved.adv)
    if step.momentum:
        state.velocity.copy_(moved.velocity)
    return size
