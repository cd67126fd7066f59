"""Change how a source's gradient flows back, so that it says less of this one network and more of all of them.

Each change is a number in :class:`Backward`; nothing in the network itself is altered, and all is as before afterwards.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from whorl.errors import WhorlError
from whorl.models.residual import residual_branches
from whorl.records import Record

_RECTIFIERS = (nn.ReLU, nn.ReLU6)


@dataclass(frozen=True, kw_only=True, repr=False)
class Backward(Record):
    """How a source is changed while it is attacked. The defaults change nothing.

    Attributes:
        skip: factor γ in (0, 1] on the gradient of every residual branch, so that more of it comes through the
            shortcuts (the skip gradient method, Wu et al., 2020).
        rectifier: sharpness β > 0; the derivative of ReLU and ReLU6, a step, is replaced by that of x·sigmoid(βx)
            (Wang et al., 2023). Small is smooth. None leaves it.
        late: share of the rectifiers, from the first on, that are left alone all the same.

    >>> Backward(skip=0.5)
    Backward(skip=0.5)
    """

    skip: float = 1.0
    rectifier: float | None = None
    late: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.skip <= 1:
            raise WhorlError(f"skip must lie in (0, 1]; got {self.skip}.")
        if self.rectifier is not None and not self.rectifier > 0:
            raise WhorlError(f"rectifier must be above 0, or None; got {self.rectifier}.")
        if not 0 <= self.late <= 1:
            raise WhorlError(f"late must lie in [0, 1]; got {self.late}.")

    @property
    def changes(self) -> bool:
        """Whether anything is changed at all."""
        return self != Backward(late=self.late)

    @contextmanager
    def applied(self, model: object, x: Tensor) -> Iterator[None]:
        """Hold a model changed.

        Args:
            model: what is attacked.
            x: (B, C, H, W) images, of which one is shown to the network to find its branches.

        Raises:
            WhorlError: the model is no ``nn.Module``, so nothing in it can be changed.
        """
        with ExitStack() as stack:
            if self.changes:
                if not isinstance(model, nn.Module):
                    raise WhorlError(
                        f"a source whose backward pass is changed must be an nn.Module; got {type(model).__name__}. "
                        "Pass the network itself, or backward=Backward()."
                    )
                self._change(model, x, stack)
            yield

    def _change(self, model: nn.Module, x: Tensor, stack: ExitStack) -> None:
        if _compiled(model):
            # Compiled code does not look for hooks: it would miss ours, or keep them.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if self.skip < 1:
            branches = residual_branches(model, x)
            if not branches:
                warnings.warn(_without_branches(model, self), stacklevel=6)
            for branch in branches:
                stack.callback(_hook(branch, _on_branch(self.skip)).remove)
        rectifiers = [module for module in model.modules() if isinstance(module, _RECTIFIERS)]
        if self.rectifier is not None:
            for rectifier in rectifiers[round(self.late * len(rectifiers)) :]:
                _not_in_place(rectifier, stack)
                stack.callback(_hook(rectifier, _on_rectifier(rectifier, self.rectifier)).remove)


Change = Callable[[Tensor, Any], Any]


def _hook(module: nn.Module, change: Change) -> RemovableHandle:
    """Replace a module's output by ``change(output, inputs)``."""
    return module.register_forward_hook(lambda _, given, out: change(out, given) if isinstance(out, Tensor) else out)


def _on_branch(skip: float) -> Change:
    def change(out: Tensor, _: Any) -> Tensor:
        if out.requires_grad:
            # A hook on the tensor, not a function of it: blocks that add in place refuse to write into a view.
            out.register_hook(lambda gradient: gradient * skip)
        return out

    return change


def _on_rectifier(module: nn.Module, sharpness: float) -> Change:
    ceiling = 6.0 if isinstance(module, nn.ReLU6) else torch.inf

    def change(_: Tensor, given: tuple[Tensor, ...]) -> Tensor:
        out: Tensor = _SmoothRectifier.apply(given[0], sharpness, ceiling)  # type: ignore[no-untyped-call]
        return out

    return change


class _SmoothRectifier(torch.autograd.Function):
    """ReLU forward; backward the derivative of x·sigmoid(βx), at both ends where there are two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sharpness: float, ceiling: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.sharpness, ctx.ceiling = sharpness, ceiling
        return x.clamp(0, ceiling)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        slope = soft_step(x, ctx.sharpness)
        if ctx.ceiling < torch.inf:
            slope = slope * soft_step(ctx.ceiling - x, ctx.sharpness)
        return gradients[0] * slope, None, None


def soft_step(x: Tensor, sharpness: float) -> Tensor:
    """Derivative of x·sigmoid(βx): 0 far below zero, 1/2 at zero, 1 far above.

    >>> soft_step(torch.tensor([-50.0, 0.0, 50.0]), 1.0).round(decimals=6).abs().tolist()
    [0.0, 0.5, 1.0]
    """
    z = x * sharpness
    gate = torch.sigmoid(z)
    return gate * (1 + z * (1 - gate))


def _compiled(model: nn.Module) -> bool:
    """Whether any part of a network went through torch.compile."""
    # Without the compiler loaded there is nothing compiled, and loading it takes seconds.
    loaded = "torch._dynamo" in sys.modules
    return loaded and any(isinstance(module, torch._dynamo.OptimizedModule) for module in model.modules())


def _not_in_place(module: nn.Module, stack: ExitStack) -> None:
    """Let a rectifier keep its input until the stack is closed."""
    if getattr(module, "inplace", False):
        module.__dict__["inplace"] = False
        stack.callback(module.__dict__.__setitem__, "inplace", True)


def _without_branches(model: nn.Module, backward: Backward) -> str:
    name = getattr(model, "name", "") or type(model).__name__
    return (
        f"{name} has no residual branch, so the skip factor of {backward!r} changes nothing: "
        "its gradient is the plain one there."
    )
