"""Change how a source's gradient flows back, so that it says less of this one network and more of all of them.

Each change is a number in :class:`Backward`, made to a copy over the same weights: the network itself is not touched.
Residual branches are found by running the network once, whatever its modules are called.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whorl.errors import WhorlError
from whorl.models.prepared.fold import alias
from whorl.records import Part, Positive, Record, Share

_RECTIFIERS = (nn.ReLU, nn.ReLU6)


class Sites(NamedTuple):
    """Where in a network a backward pass is changed: names of modules, as ``named_modules`` has them."""

    branches: tuple[str, ...] = ()
    """Whose output's gradient is scaled."""
    rectifiers: tuple[str, ...] = ()
    """Whose derivative is replaced."""

    def of(self, part: str) -> Sites:
        """Those in a part of the network, by that part's own names.

        >>> Sites(("0.net.conv", "1.net.conv"), ("1.net.act",)).of("1.net")
        Sites(branches=('conv',), rectifiers=('act',))
        """
        inside = part + "."
        found = (tuple(name.removeprefix(inside) for name in names if name.startswith(inside)) for names in self)
        return Sites(*found)


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

    skip: Part = 1.0
    rectifier: Positive | None = None
    late: Share = 0.0

    @property
    def changes(self) -> bool:
        """Whether anything is changed at all."""
        return self.skip < 1 or self.rectifier is not None

    @contextmanager
    def applied(self, model: object, x: Tensor) -> Iterator[Any]:
        """Give a model that is changed: a copy over the same weights, so that nobody else's gradient changes with it.

        Args:
            model: what is attacked; it stays as it is.
            x: (B, C, H, W) images, of which one is shown to the network to find its branches.

        Yields:
            The changed copy, or the model itself where nothing is changed.

        Raises:
            WhorlError: the model is no ``nn.Module`` that can be copied, so nothing in it can be changed.
        """
        if not self.changes:
            yield model
            return
        if not isinstance(model, nn.Module):
            raise WhorlError(
                f"a source whose backward pass is changed must be an nn.Module; got {type(model).__name__}. "
                "Pass the network itself, or backward=Backward()."
            )
        if scripted(model):
            raise WhorlError(
                "a source whose backward pass is changed must not be a ScriptModule: it takes no hooks. "
                "Pass the network that it was scripted from, or leave its backward pass as it is, with "
                "backward=Backward() in Python and --set backward={} on the command line."
            )
        # Compiled code does not look for hooks: it would miss ours, or keep them.
        eager = torch.compiler.set_stance("force_eager") if compiled(model) else nullcontext()
        with eager:
            yield self._changed(model, x)

    def _changed(self, model: nn.Module, x: Tensor) -> nn.Module:
        try:
            changed = alias(model)
        except Exception as error:  # a module is anyone's code, and may hold what cannot be copied
            raise WhorlError(
                f"a source whose backward pass is changed is copied first; {type(model).__name__} cannot be: {error}. "
                "Attack it with backward=Backward()."
            ) from error
        sites = self.sites(changed, x)
        self.check_branches(model, sites)
        self.hook(changed, sites)
        return changed

    def sites(self, model: nn.Module, x: Tensor) -> Sites:
        """Find where a network would be changed.

        Args:
            model: in eval mode; it is hooked while one image runs through it, so pass a copy.
            x: (B, C, H, W) images; the first is shown.
        """
        names = {module: name for name, module in model.named_modules()}
        branches = residual_branches(model, x) if self.skip < 1 else ()
        rectifiers = (
            [module for module in names if isinstance(module, _RECTIFIERS)] if self.rectifier is not None else []
        )
        late = rectifiers[round(self.late * len(rectifiers)) :]
        return Sites(*(tuple(names[module] for module in modules) for modules in (branches, late)))

    def check_branches(self, model: nn.Module, sites: Sites) -> None:
        """Warn of a network without residual branches, in which the skip factor changes nothing."""
        if self.skip < 1 and not sites.branches:
            warnings.warn(_without_branches(model, self), stacklevel=9)

    def hook(self, model: nn.Module, sites: Sites) -> None:
        """Change a network's backward pass there; for good, so pass a copy."""
        for name in sites.branches:
            _hook(model.get_submodule(name), _on_branch(self.skip))
        for name in sites.rectifiers:
            rectifier = model.get_submodule(name)
            assert self.rectifier is not None  # noqa: S101 - else there were no sites
            rectifier.inplace = False  # type: ignore[assignment]  # it keeps its input
            _hook(rectifier, _on_rectifier(rectifier, self.rectifier))


def scripted(model: object) -> bool:
    """Whether a model is a ScriptModule, or holds one, so that its backward pass cannot be changed."""
    return isinstance(model, nn.Module) and any(isinstance(part, torch.jit.ScriptModule) for part in model.modules())


Change = Callable[[Tensor, Any], Any]


def _hook(module: nn.Module, change: Change) -> None:
    """Replace a module's output by ``change(output, inputs)``."""
    module.register_forward_hook(lambda _, given, out: change(out, given) if isinstance(out, Tensor) else out)


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


def compiled(model: nn.Module) -> bool:
    """Whether any part of a network went through torch.compile."""
    # Without the compiler loaded there is nothing compiled, and loading it takes seconds.
    loaded = "torch._dynamo" in sys.modules
    return loaded and any(isinstance(module, torch._dynamo.OptimizedModule) for module in model.modules())


def _without_branches(model: nn.Module, backward: Backward) -> str:
    name = getattr(model, "name", "") or type(model).__name__
    return (
        f"{name} has no residual branch, so the skip factor of {backward!r} changes nothing: "
        "its gradient is the plain one there."
    )


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
