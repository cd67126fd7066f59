"""Change how a source's gradient flows back, so that it says less of this one network and more of all of them.

Each change is a number in :class:`Backward`, made to a copy over the same weights: the network itself is not touched.
Where they apply is found by running the network once, whatever its modules are called.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.models.branches import Structure, structure
from whorl.models.prepared.fold import alias
from whorl.models.prepared.versions import version_of
from whorl.models.spreads import only_input, probe, rectifier_spreads
from whorl.records import Part, Positive, Record, Share

_RECTIFIERS = (nn.ReLU.forward, nn.ReLU6.forward)
_CEILING = 6.0  # of ReLU6

Site = tuple[str, float]
"""The name of a module, as ``named_modules`` has it, and a number."""


class Sites(NamedTuple):
    """Where in a network a backward pass is changed, and by how much."""

    branches: tuple[Site, ...] = ()
    """Factors on the gradient of modules' outputs."""
    rectifiers: tuple[Site, ...] = ()
    """Sharpness of the rectifiers whose derivatives replace those of modules."""
    pools: tuple[Site, ...] = ()
    """Shares of max pools' gradients that go to all of a window."""

    def of(self, part: str) -> Sites:
        """Those in a part of the network, by that part's own names.

        >>> Sites((("0.net.conv", 0.5), ("1.net.conv", 0.5)), (("1.net.act", 2.0),)).of("1.net")
        Sites(branches=(('conv', 0.5),), rectifiers=(('act', 2.0),), pools=())
        """
        inside = part + "."
        return Sites(
            *(tuple((name.removeprefix(inside), v) for name, v in sites if name.startswith(inside)) for sites in self)
        )

    def within(self, part: str) -> Sites:
        """The same by the names that they have in a network of which theirs is a part."""
        return Sites(*(tuple((f"{part}.{name}", value) for name, value in sites) for sites in self))


class BackwardRule(Record):
    """What says how a source is changed while it is attacked."""

    changes: bool = True
    """Whether anything is changed at all."""

    @contextmanager
    def applied(self, model: object, x: Tensor) -> Iterator[Any]:
        """Give a model that is changed: a copy over the same weights, so that nobody else's gradient changes with it.

        Args:
            model: what is attacked; it stays as it is.
            x: (B, C, H, W) images, which tell the size of those that are shown to the network to find its branches.

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
        sites = self._kept_sites(model, changed, x)
        self.check(model, sites)
        hook(changed, sites)
        return changed

    def _kept_sites(self, model: nn.Module, copy: nn.Module, x: Tensor) -> Sites:
        version = (version_of(model), tuple((name, type(module)) for name, module in model.named_modules()))
        kept = _KEPT.setdefault(model, {})
        key = (self, tuple(x.shape[1:]), x.dtype)
        if key not in kept or kept[key][0] != version:
            kept[key] = version, self.sites(copy, x)
        return kept[key][1]

    def sites(self, model: nn.Module, x: Tensor) -> Sites:
        """Find where a network would be changed, of an ensemble in each member apart.

        Args:
            model: in eval mode; it is hooked while images run through it, so pass a copy.
            x: (B, C, H, W) images, of which only the shape, the dtype and the device matter: what the network is shown
                is always the same, so that no result depends on a batch.
        """
        members = getattr(model, "models", None)
        if isinstance(members, nn.ModuleList) and hasattr(model, "fuse"):
            found = [self.sites(member, x).within(f"models.{place}") for place, member in enumerate(members)]
            return Sites(*(sum(sites, ()) for sites in zip(*found, strict=True)))
        seen = probe(x.shape[1], getattr(model, "size", x.shape[-2:])).to(x)
        shown = structure(model, seen)
        return self.of(shown).found(model, seen, shown)

    def of(self, shown: Structure) -> Backward:
        """The numbers for a network of some structure."""
        raise NotImplementedError

    def check(self, model: nn.Module, sites: Sites) -> None:
        """Warn of what was said and changes nothing."""


_KEPT: WeakKeyDictionary[nn.Module, dict[Any, tuple[Any, Sites]]] = WeakKeyDictionary()
_WARNED: WeakKeyDictionary[nn.Module, set[BackwardRule]] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True, repr=False)
class Backward(BackwardRule):
    """How a source is changed while it is attacked. The defaults change nothing.

    Attributes:
        skip: factor γ in (0, 1] on the gradient of every residual branch, so that more of it comes through the
            shortcuts (the skip gradient method, Wu et al., 2020).
        rectifier: sharpness β > 0; the derivative of ReLU and ReLU6, a step, is replaced by that of x·sigmoid(βx)
            (Wang et al., 2023). Small is smooth. None leaves it.
        relative: whether ``rectifier`` counts in units of one over the standard deviation of each rectifier's own
            input, instead of absolutely: networks differ tenfold in the size of their activations.
        late: share of the rectifiers, from the first on, that are left alone all the same.
        join: factor in (0, 1] on the gradient of a concatenated branch, for each convolution that it has more than the
            shallowest branch beside it.
        pool: share of the gradient of max pooling that goes to all pixels of a window alike, and not to the largest.

    >>> Backward(skip=0.5)
    Backward(skip=0.5)
    """

    skip: Part = 1.0
    rectifier: Positive | None = None
    relative: bool = False
    late: Share = 0.0
    join: Part = 1.0
    pool: Share = 0.0

    @property
    def changes(self) -> bool:  # type: ignore[override]  # follows from the numbers
        """Whether anything is changed at all."""
        return self.skip < 1 or self.rectifier is not None or self.join < 1 or self.pool > 0

    def of(self, shown: Structure) -> Backward:  # noqa: ARG002 - the same whatever the network
        """Itself."""
        return self

    def found(self, model: nn.Module, seen: Tensor, shown: Structure) -> Sites:
        """Where these numbers apply in a network.

        Args:
            model: as of :meth:`sites`, and no ensemble.
            seen: what it is shown.
            shown: its structure.
        """
        names = {module: name for name, module in model.named_modules()}
        factors = [(branch, self.skip) for branch in shown.residual]
        factors += [(branch.module, self.join**branch.deeper) for branch in shown.joined]
        branches: dict[str, float] = {}
        for module, factor in factors:
            if factor != 1:
                branches[names[module]] = branches.get(names[module], 1.0) * factor
        rectifiers = [module for module in names if rectifies(module)]
        late = [] if self.rectifier is None else rectifiers[round(self.late * len(rectifiers)) :]
        pools = [module for module in names if _pools(module)] if self.pool else []
        return Sites(
            tuple(branches.items()),
            tuple((names[module], sharpness) for module, sharpness in self._sharpness(model, late, seen)),
            tuple((names[module], self.pool) for module in pools),
        )

    def _sharpness(self, model: nn.Module, late: Sequence[nn.Module], seen: Tensor) -> list[tuple[nn.Module, float]]:
        if self.rectifier is None or not late:
            return []
        if not self.relative:
            return [(module, self.rectifier) for module in late]
        spreads = rectifier_spreads(model, late, seen)
        # Three digits: the same on every device. One that never ran is left alone.
        return [(module, float(f"{self.rectifier / spreads[module]:.3g}")) for module in late if module in spreads]

    def check(self, model: nn.Module, sites: Sites) -> None:
        """Warn, once for each network, of a number that has nothing to act on."""
        warned = _WARNED.setdefault(model, set())
        nowhere = {
            "branch of the kind": (self.skip < 1 or self.join < 1) and not sites.branches,
            "rectifier of torch's": self.rectifier is not None and self.late < 1 and not sites.rectifiers,
            "max pool": self.pool > 0 and not sites.pools,
        }
        if self not in warned and any(nowhere.values()):
            warned.add(self)
            what = next(kind for kind, missing in nowhere.items() if missing)
            name = getattr(model, "name", "") or type(model).__name__
            warnings.warn(
                f"{name} has no {what} that {self!r} acts on: its gradient is the plain one there.", stacklevel=9
            )


UNCHANGED, NOWHERE = Backward(), Sites()
"""A source as it is: what says so, and where it is changed."""


def hook(model: nn.Module, sites: Sites) -> None:
    """Change a network's backward pass; for good, so pass a copy."""
    for name, sharpness in sites.rectifiers:
        rectifier = model.get_submodule(name)
        assert isinstance(rectifier, nn.ReLU | nn.ReLU6)  # noqa: S101 - tells mypy what is found
        rectifier.forward = _smooth(rectifier, sharpness)  # type: ignore[method-assign, assignment]  # of this module alone
    for name, share in sites.pools:
        pool = model.get_submodule(name)
        assert isinstance(pool, nn.MaxPool2d)  # noqa: S101 - tells mypy what is found
        pool.register_forward_hook(_on_pool(pool, share), with_kwargs=True)
    for name, factor in sites.branches:
        model.get_submodule(name).register_forward_hook(_on_branch(factor))


def scripted(model: object) -> bool:
    """Whether a model is a ScriptModule, or holds one, so that its backward pass cannot be changed."""
    return isinstance(model, nn.Module) and any(isinstance(part, torch.jit.ScriptModule) for part in model.modules())


def rectifies(module: nn.Module) -> bool:
    """Whether a module is torch's ReLU or ReLU6: a subclass may answer anything."""
    if type(module).forward not in _RECTIFIERS or "forward" in vars(module):
        return False
    return isinstance(module, nn.ReLU) or (
        isinstance(module, nn.ReLU6) and (module.min_val, module.max_val) == (0, _CEILING)
    )


def _pools(module: nn.Module) -> bool:
    """Whether a module takes the largest of windows that have a mean, too: torch's has no dilation."""
    return (
        isinstance(module, nn.MaxPool2d)
        and (type(module).forward, "forward" in vars(module)) == (nn.MaxPool2d.forward, False)
        and module.dilation in {1, (1, 1)}
        and not module.return_indices
    )


def _on_branch(factor: float) -> Callable[[nn.Module, Any, Any], None]:
    def change(_: nn.Module, __: Any, out: Any) -> None:
        if isinstance(out, Tensor):
            scale_gradient(out, factor)

    return change


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """Give ``x`` itself, whose gradient is scaled: by a hook, so that who adds to it in place may."""
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * factor)
    return x


def _smooth(rectifier: nn.ReLU | nn.ReLU6, sharpness: float) -> Callable[[Tensor], Tensor]:
    ceiling = _CEILING if isinstance(rectifier, nn.ReLU6) else torch.inf

    def forward(input: Tensor) -> Tensor:  # noqa: A002 - torch's name: callers may use it
        # In place as before: a network may go on with the tensor that it gave.
        out: Tensor = _SmoothRectifier.apply(  # type: ignore[no-untyped-call]  # torch leaves apply untyped
            input, sharpness, ceiling, rectifier.inplace
        )
        return out

    return forward


def _on_pool(pool: nn.MaxPool2d, share: float) -> Callable[[nn.Module, Any, Any, Tensor], Tensor]:
    def change(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Tensor) -> Tensor:
        x = only_input(given, named)
        return shared_pool(x, out, share, pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode)

    return change


class _SmoothRectifier(torch.autograd.Function):
    """ReLU forward; backward the derivative of x·sigmoid(βx), at both ends where there are two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sharpness: float, ceiling: float, inplace: bool) -> Tensor:
        # What is kept is a copy anyway where x is overwritten, so it can be what the backward pass would make of it.
        ctx.scaled = inplace and ceiling == torch.inf and x.dtype == _wide(x)
        ctx.sharpness, ctx.ceiling = sharpness, ceiling
        if not inplace:
            ctx.save_for_backward(x)
            return x.clamp(0, ceiling)
        ctx.save_for_backward(x * sharpness if ctx.scaled else x.clone())
        ctx.mark_dirty(x)
        return x.clamp_(0, ceiling)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (kept,), (gradient,) = ctx.saved_tensors, gradients
        if ctx.scaled:
            return _scaled_step(gradient, kept), None, None, None
        stepped = soft_step(gradient.to(_wide(kept)), kept.to(_wide(kept)), ctx.sharpness, ctx.ceiling)
        return stepped.to(gradient.dtype), None, None, None


def _wide(x: Tensor) -> torch.dtype:
    """In which sharpness times x has a place: it may be beyond a half's range."""
    return torch.promote_types(x.dtype, torch.float32)


def soft_step(gradient: Tensor, x: Tensor, sharpness: float, ceiling: float = torch.inf) -> Tensor:
    """A gradient times the derivative of x·sigmoid(βx): 0 far below zero, 1/2 at zero, 1 far above.

    Args:
        gradient: any shape.
        x: the same shape.
        sharpness: β.
        ceiling: where the derivative falls to 0 again, in the same way.

    >>> soft_step(torch.ones(3), torch.tensor([-50.0, 0.0, 50.0]), 1.0).round(decimals=6).abs().tolist()
    [0.0, 0.5, 1.0]
    """
    stepped = _scaled_step(gradient, x * sharpness)
    return stepped if ceiling == torch.inf else soft_step(stepped, ceiling - x, sharpness)


def _scaled_step(gradient: Tensor, scaled: Tensor) -> Tensor:
    """The same of βx: x·sigmoid(βx) is SiLU(βx) / β, whose derivative torch multiplies with in one pass over memory."""
    stepped: Tensor = torch.ops.aten.silu_backward(gradient, scaled)
    return stepped


def shared_pool(
    x: Tensor, out: Tensor, share: float, kernel: Any, stride: Any, padding: Any, ceil_mode: bool
) -> Tensor:
    """The result ``out`` of max pooling ``x``, with a share of its gradient for all pixels of each window alike.

    What would go to pixels outside the image is lost.
    """
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    mean = F.avg_pool2d(x, kernel, stride, padding, ceil_mode, divisor_override=height * width)
    return out.detach() + (1 - share) * (out - out.detach()) + share * (mean - mean.detach())


def compiled(model: nn.Module) -> bool:
    """Whether any part of a network went through torch.compile."""
    # Without the compiler loaded there is nothing compiled, and loading it takes seconds.
    loaded = "torch._dynamo" in sys.modules
    return loaded and any(isinstance(module, torch._dynamo.OptimizedModule) for module in model.modules())
