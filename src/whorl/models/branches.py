"""Where a network's ways part and meet: residual branches, concatenated ones, attention; found by running it once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whorl.models.classifier import network_dtype

_ADDITIONS = {"add", "add_", "__add__", "__radd__", "__iadd__"}
_CONCATENATIONS = {"cat", "concat", "concatenate"}
_RECTIFICATIONS = {"relu", "relu_", "relu6", "hardtanh", "hardtanh_"}
_ATTENTION = {"softmax", "scaled_dot_product_attention", "multi_head_attention_forward"}
# A node of autograd's graph. Its type has no name that can be imported.
Node = Any


class Joined(NamedTuple):
    """A branch that is concatenated with others."""

    module: nn.Module
    """Whose output it is."""
    deeper: int
    """Convolutions that it has more than the shallowest branch beside it."""


class Structure(NamedTuple):
    """What a run of a network shows; every module in it runs once in a forward pass."""

    residual: tuple[nn.Module, ...] = ()
    """For each residual branch the module whose output it is, in the order in which they run."""
    rectified: int = 0
    """Residual branches whose sum with the shortcut goes through a rectifier."""
    joined: tuple[Joined, ...] = ()
    """Branches that are concatenated with others of the same input."""
    attention: bool = False
    """Whether activations go through a softmax."""


def structure(model: nn.Module, x: Tensor) -> Structure:
    """Run a network on one image while its additions and concatenations are watched.

    An addition of two activations that come from a common ancestor is a residual one; the operand with more work
    behind it is the branch, the other the shortcut. So blocks of torchvision, timm or your own are found alike, with
    or without a convolution in the shortcut. A concatenation counts where no piece is made from another.

    Args:
        model: from (B, C, H, W) images to logits, in eval mode.
        x: (B, C, H, W) images; the first is shown.

    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.conv = nn.Conv2d(3, 3, 3, padding=1)
    ...     def forward(self, x):
    ...         return x + self.conv(x)
    >>> len(structure(nn.Sequential(Block(), nn.ReLU(), Block()), torch.rand(1, 3, 8, 8)).residual)
    2
    """
    watch = _Watch(model)
    try:
        with frozen(model), torch.enable_grad(), watch:  # else every bias and weight would be an ancestor of its own
            # A step away from the leaf, for an addition may write into its operand.
            model(x[:1].detach().to(network_dtype(model, x)).clone().requires_grad_() * 1)
    finally:
        watch.remove()
    found = [(_branch(watch, addition), addition.sum) for addition in watch.additions]
    residual = [(branch, total) for branch, total in found if branch is not None]
    return Structure(
        residual=tuple(branch for branch, _ in residual),
        rectified=sum(total in watch.rectified for _, total in residual),
        joined=tuple(branch for pieces in watch.concatenations for branch in _joined(watch, pieces)),
        attention=watch.attention,
    )


@contextmanager
def frozen(model: object) -> Iterator[None]:
    """Keep gradients away from a model's own parameters, if it is a module."""
    held = [part for part in model.parameters() if part.requires_grad] if isinstance(model, nn.Module) else []
    try:
        for parameter in held:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


class _Addition(NamedTuple):
    first: Node
    second: Node
    sum: Node


class _Watch(TorchFunctionMode):
    """Sees every addition and concatenation of activations, and which module made which activation."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.additions: list[_Addition] = []
        self.concatenations: list[list[Node]] = []
        self.rectified: set[Node] = set()
        self.attention = False
        self.made: dict[Node, list[nn.Module]] = {}
        self.calls: Counter[nn.Module] = Counter()
        self.handles = []
        for module in model.modules():
            self.handles.append(module.register_forward_hook(self._leave))

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self.handles:
            handle.remove()

    def once(self, node: Node) -> nn.Module | None:
        """The innermost module that made an activation, and runs once."""
        return next((module for module in self.made.get(node, ()) if self.calls[module] == 1), None)

    def _leave(self, module: nn.Module, _: Any, out: Any) -> None:
        self.calls[module] += 1
        if isinstance(out, Tensor) and out.grad_fn is not None:
            self.made.setdefault(out.grad_fn, []).append(module)

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        # Before the call: an operation in place gives its operand another history.
        operands: list[Node] = []
        if name in _ADDITIONS and len(args) >= 2:
            first, second = args[:2]
            if _activation(first) and _activation(second) and first.shape == second.shape:
                operands = [first.grad_fn, second.grad_fn]
        elif name in _CONCATENATIONS and args and len(args[0]) > 1 and all(map(_activation, args[0])):
            self.concatenations.append([piece.grad_fn for piece in args[0]])
        elif name in _RECTIFICATIONS and args and _activation(args[0]):
            self.rectified.add(args[0].grad_fn)
        elif name in _ATTENTION and args and _activation(args[0]):
            self.attention = True
        out = func(*args, **(kwargs or {}))
        if operands:
            self.additions.append(_Addition(operands[0], operands[1], out.grad_fn))
        return out


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
        once = watch.once(node)
        if once is not None:
            return once
        back = [parent for parent in _parents(node) if parent in own]
        if len(back) != 1:
            return None
        node = back[0]
    return None


def _joined(watch: _Watch, pieces: Sequence[Node]) -> list[Joined]:
    before = [_ancestors(piece) for piece in pieces]
    common = set.intersection(*before)
    # What is passed on beside what is made from it is no branch.
    apart = all(piece not in own for i, own in enumerate(before) for j, piece in enumerate(pieces) if i != j)
    if not common or not apart:
        return []
    depths = [sum("Convolution" in node.name() for node in own - common) for own in before]
    branches = [(watch.once(piece), depth - min(depths)) for piece, depth in zip(pieces, depths, strict=True)]
    return [Joined(module, deeper) for module, deeper in branches if module is not None]


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
    return (parent for parent, _ in node.next_functions if parent is not None)
