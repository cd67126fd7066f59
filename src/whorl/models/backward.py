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
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from whorl.errors import WhorlError
from whorl.models.residual import residual_branches
from whorl.randomness import substream, uniform
from whorl.records import Record

# Random numbers of the branches, apart from those that the input transform draws from the same key.
_STREAM = 7919

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
        pool: sharpness t > 0; the gradient of max pooling, which reaches one pixel of each window, is shared among all
            by softmax(t·x) (Wang et al., 2023). None leaves it.
        ghost: every residual branch is scaled in the forward pass by a factor drawn for each image and pass from
            [1 - ghost, 1 + ghost] (ghost networks, Li et al., 2020); 0 is none.
        decay: factor in (0, 1] on what the perturbation changes in an intermediate activation, before the rest of the
            network sees it (intermediate-level perturbation decay, Li et al., 2023). Costs a forward pass without
            gradient for each gradient.
        depth: where that activation is, as a share of the residual blocks: 0 is after the first, 1 after the last.

    >>> Backward(skip=0.5)
    Backward(skip=0.5)
    """

    skip: float = 1.0
    rectifier: float | None = None
    late: float = 0.0
    pool: float | None = None
    ghost: float = 0.0
    decay: float = 1.0
    depth: float = 0.5

    def __post_init__(self) -> None:
        for name in ("skip", "decay"):
            if not 0 < getattr(self, name) <= 1:
                raise WhorlError(f"{name} must lie in (0, 1]; got {getattr(self, name)}.")
        for name in ("rectifier", "pool"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise WhorlError(f"{name} must be above 0, or None; got {value}.")
        for name in ("ghost", "depth", "late"):
            if not 0 <= getattr(self, name) <= 1:
                raise WhorlError(f"{name} must lie in [0, 1]; got {getattr(self, name)}.")

    @property
    def changes(self) -> bool:
        """Whether anything is changed at all."""
        return self != Backward(depth=self.depth, late=self.late)

    @contextmanager
    def applied(self, model: object, x: Tensor) -> Iterator[Changed]:
        """Hold a model changed.

        Args:
            model: what is attacked.
            x: (B, C, H, W) images, of which one is shown to the network to find its branches.

        Yields:
            What must be told of each forward pass beforehand.

        Raises:
            WhorlError: the model is no ``nn.Module``, so nothing in it can be changed.
        """
        changed = Changed()
        with ExitStack() as stack:
            if self.changes:
                if not isinstance(model, nn.Module):
                    raise WhorlError(
                        f"a source whose backward pass is changed must be an nn.Module; got {type(model).__name__}. "
                        "Pass the network itself, or backward=Backward()."
                    )
                self._change(model, x, changed, stack)
            yield changed

    def _change(self, model: nn.Module, x: Tensor, changed: Changed, stack: ExitStack) -> None:
        if _compiled(model):
            # Compiled code does not look for hooks: it would miss ours, or keep them.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if self.skip < 1 or self.ghost or self.decay < 1:
            branches = residual_branches(model, x)
            if not branches:
                warnings.warn(_without_branches(model, self), stacklevel=6)
            for place, branch in enumerate(branches):
                stack.callback(_hook(branch.output, _on_branch(self.skip, self.ghost, place, changed)).remove)
            blocks = [branch.block for branch in branches if branch.block is not None and branch.block is not model]
            if self.decay < 1 and blocks:
                changed.model, changed.factor = model, self.decay
                block = blocks[round(self.depth * (len(blocks) - 1))]
                stack.callback(_hook(block, changed.on_features).remove)
        rectifiers = [module for module in model.modules() if isinstance(module, _RECTIFIERS)]
        if self.rectifier is not None:
            for rectifier in rectifiers[round(self.late * len(rectifiers)) :]:
                _not_in_place(rectifier, stack)
                stack.callback(_hook(rectifier, _on_rectifier(rectifier, self.rectifier)).remove)
        if self.pool is not None:
            for module in model.modules():
                if isinstance(module, nn.MaxPool2d) and _windows_fit(module):
                    stack.callback(_hook(module, _on_pool(module, self.pool)).remove)


class Changed:
    """A model that is held changed. Tell it of every forward pass with :meth:`begin`."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.model: nn.Module | None = None
        self.factor = 1.0
        self._clean: Tensor | None = None
        self._recording = False

    def begin(self, keys: Tensor, clean: Callable[[], Tensor]) -> None:
        """Announce a forward pass.

        Args:
            keys: (B,) int64, one for each image of the pass.
            clean: gives the images without perturbation, as the network would see them.
        """
        self.keys = keys
        if self.model is None:
            return
        self._recording, self._clean = True, None
        try:
            with torch.no_grad():
                self.model(clean())
        except _Stop:
            pass
        finally:
            self._recording = False

    def on_features(self, out: Tensor, _: Any) -> Tensor:
        """Hold the clean activation in mind, or bring the attacked one nearer to it."""
        if self._recording:
            self._clean = out
            raise _Stop
        if self._clean is None or self._clean.shape != out.shape:
            return out
        return self._clean + self.factor * (out - self._clean)


class _Stop(Exception):  # noqa: N818 - not an error: the rest of a forward pass is not needed
    """Ends a forward pass."""


Change = Callable[[Tensor, Any], Any]


def _hook(module: nn.Module, change: Change) -> RemovableHandle:
    """Replace a module's output by ``change(output, inputs)``."""
    return module.register_forward_hook(lambda _, given, out: change(out, given) if isinstance(out, Tensor) else out)


def _on_branch(skip: float, ghost: float, place: int, changed: Changed) -> Change:
    def change(out: Tensor, _: Any) -> Tensor:
        if ghost and changed.keys is not None and len(changed.keys) == len(out):
            factor = uniform(substream(changed.keys, _STREAM, place), (), 1 - ghost, 1 + ghost).to(out.dtype)
            out = out * factor.reshape(-1, *[1] * (out.dim() - 1))
        if skip < 1 and out.requires_grad:
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


def _on_pool(module: nn.MaxPool2d, sharpness: float) -> Change:
    window = {name: getattr(module, name) for name in ("kernel_size", "stride", "padding", "dilation")}

    def change(out: Tensor, given: tuple[Tensor, ...]) -> Tensor:
        shared: Tensor = _SharedPool.apply(given[0], out.detach(), sharpness, window)  # type: ignore[no-untyped-call]
        return shared

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


class _SharedPool(torch.autograd.Function):
    """Max pooling forward; backward each window's gradient goes to all its pixels, by softmax(t·x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, sharpness: float, window: dict[str, Any]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.sharpness, ctx.window = sharpness, window
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        batch, channels, height, width = x.shape
        (gradient,) = gradients
        # Channels as images of one channel; a pixel outside is below all others, as pooling has it.
        side = _pair(ctx.window["padding"])
        padded = F.pad(x, (side[1], side[1], side[0], side[0]), value=torch.finfo(x.dtype).min)
        inner = {**ctx.window, "padding": 0}
        windows = F.unfold(padded.reshape(batch * channels, 1, *padded.shape[-2:]), **inner)
        weights = torch.softmax(windows * ctx.sharpness, dim=1)
        shared = weights * gradient.reshape(batch * channels, 1, -1)
        back = F.fold(shared, padded.shape[-2:], **inner).reshape(padded.shape)
        return back[..., side[0] : side[0] + height, side[1] : side[1] + width], None, None, None


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


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _windows_fit(module: nn.MaxPool2d) -> bool:
    """Whether a pooling layer returns its maxima alone, over windows that all begin inside the padded image."""
    return not module.return_indices and not module.ceil_mode


def _without_branches(model: nn.Module, backward: Backward) -> str:
    name = getattr(model, "name", "") or type(model).__name__
    return (
        f"{name} has no residual branch, so skip, ghost and decay of {backward!r} change nothing: "
        "its gradient is the plain one there."
    )
