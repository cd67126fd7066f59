"""Find the residual branches of any network by running it once, whatever its modules are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_ADDITIONS = {"add", "add_", "__add__", "__radd__", "__iadd__"}
# A node of autograd's graph. Its type has no name that can be imported.
Node = Any


def residual_branches(model: nn.Module, x: Tensor) -> tuple[nn.Module, ...]:
    """Find where a network adds a branch to a shortcut.

    The network runs once on one image while its additions are watched. An addition of two activations that come from
    a common ancestor is a residual one; the operand with more work behind it is the branch, the other the shortcut.
    So blocks of torchvision, timm or your own are found alike, with or without a convolution in the shortcut.

    Args:
        model: from (B, C, H, W) images to logits, in eval mode.
        x: (B, C, H, W) images; the first is shown.

    Returns:
        For each branch the module whose output it is, in the order in which they run; empty where the network has none
        (VGG, Inception-v3, DenseNet). Each runs once in a forward pass, so that a hook on it meets this branch alone.

    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.conv = nn.Conv2d(3, 3, 3, padding=1)
    ...     def forward(self, x):
    ...         return x + self.conv(x)
    >>> len(residual_branches(nn.Sequential(Block(), nn.ReLU(), Block()), torch.rand(1, 3, 8, 8)))
    2
    """
    watch = _Watch(model)
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        # Else every bias and weight would be an ancestor of its own.
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.enable_grad(), watch:
            # A step away from the leaf, for an addition may write into its operand.
            model(_in_precision_of(model, x[:1].detach()).clone().requires_grad_() * 1)
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        watch.remove()
    found = (_branch(watch, addition) for addition in watch.additions)
    return tuple(branch for branch in found if branch is not None)


def _in_precision_of(model: nn.Module, x: Tensor) -> Tensor:
    floating = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return x.to(next(floating, x.dtype))


@dataclass(frozen=True)
class _Addition:
    first: Node
    second: Node


class _Watch(TorchFunctionMode):
    """Sees every addition of activations, and which module made which activation."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.additions: list[_Addition] = []
        self.made: dict[Node, list[nn.Module]] = {}
        self.calls: Counter[nn.Module] = Counter()
        self.handles = []
        for module in model.modules():
            self.handles.append(module.register_forward_hook(self._leave))

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self.handles:
            handle.remove()

    def _leave(self, module: nn.Module, _: Any, out: Any) -> None:
        self.calls[module] += 1
        if isinstance(out, Tensor) and out.grad_fn is not None:
            self.made.setdefault(out.grad_fn, []).append(module)

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in _ADDITIONS and len(args) >= 2:
            first, second = args[:2]
            # Before the call: an addition in place gives its operand another history.
            if _activation(first) and _activation(second) and first.shape == second.shape:
                self.additions.append(_Addition(first.grad_fn, second.grad_fn))
        return func(*args, **(kwargs or {}))


def _activation(value: Any) -> bool:
    """Whether something is the image's (B, C, H, W) or (B, tokens, channels) activation."""
    return isinstance(value, Tensor) and value.dim() >= 3 and value.grad_fn is not None


def _branch(watch: _Watch, addition: _Addition) -> nn.Module | None:
    first, second = _ancestors(addition.first), _ancestors(addition.second)
    common = first & second
    if not common or len(first) == len(second):
        return None
    own, node = (first - common, addition.first) if len(first) > len(second) else (second - common, addition.second)
    # From the addition backwards, past what no module did (a constant factor), as long as there is one way back.
    while node in own:
        once = [module for module in watch.made.get(node, ()) if watch.calls[module] == 1]
        if once:
            return once[0]
        back = [parent for parent in _parents(node) if parent in own]
        if len(back) != 1:
            return None
        node = back[0]
    return None


def _ancestors(node: Node) -> set[Node]:
    """A node and all that come before it."""
    seen, waiting = {node}, [node]
    while waiting:
        for parent in _parents(waiting.pop()):
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return seen


def _parents(node: Node) -> Iterable[Node]:
    return [parent for parent, _ in node.next_functions if parent is not None]
