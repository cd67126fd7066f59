"""Rewrite a frozen network's graph so that it touches memory less; what it computes stays the same, up to rounding.

Each rule applies only where the graph itself proves it right: a batch norm is folded into a convolution if nothing else
sees what lies between the two, and so on. What no rule covers stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from whorl.fast.layers import (
    AveragePool,
    Concatenation,
    Convolution,
    Geometry,
    MaxPool,
    Part,
    Room,
    SamePadded,
    Stem,
)
from whorl.fast.pointwise import Activation, Pool, Window


class Statistics(NamedTuple):
    """What pictures are normalised with before the network sees them: one number per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Rewritten(NamedTuple):
    """A rewritten network."""

    net: fx.GraphModule
    takes_pictures: bool
    """Whether it normalises pictures by itself."""


def rewrite(
    net: nn.Module, *, merge: bool = True, hand: bool = True, stem: Statistics | None = None
) -> Rewritten | None:
    """Fold, fuse and merge what can be.

    Args:
        net: in eval mode. Its modules are taken over: pass a copy.
        merge: whether to do 1×1 convolutions of one input as one, and average pools after them.
        hand: whether layers use their own backward; see :class:`whorl.fast.layers.Convolution`.
        stem: the normalisation, to be taken into the first layer where that is possible; None to leave it outside.

    Returns:
        The rewritten network, or None if its graph cannot be read.
    """
    graph_module = trace(net)
    if graph_module is None:
        return None
    work = _Rewriting(graph_module, hand=hand)
    if work.has_silent_effects():
        return None
    work.drop_what_does_nothing()
    work.fuse_convolutions()
    work.fuse_additions()
    if merge:
        work.merge_branches()
    work.replace_average_pools()
    if hand:
        work.replace_max_pools()
        work.fuse_concatenations()
    takes_pictures = stem is not None and work.replace_stem(stem)
    graph_module.graph.eliminate_dead_code()
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return Rewritten(graph_module, takes_pictures)


def trace(net: nn.Module) -> fx.GraphModule | None:
    """Read a network's graph; a module whose forward cannot be read stays a black box. None if the network's cannot."""
    opaque: set[type] = set()
    while True:
        tracer = _Tracer(opaque)
        try:
            return fx.GraphModule(tracer.root_of(net), tracer.trace(net))
        except Exception:  # noqa: BLE001 - a forward that cannot be read may fail in any way
            if tracer.failed is None or tracer.failed in opaque:
                return None
            opaque.add(tracer.failed)


class _Tracer(fx.Tracer):
    def __init__(self, opaque: set[type]) -> None:
        super().__init__()
        self.opaque = opaque
        self.failed: type | None = None

    def root_of(self, net: nn.Module) -> nn.Module:
        return net

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in self.opaque or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            # The innermost one is asked first.
            self.failed = self.failed or type(m)
            raise


class _Norm(NamedTuple):
    """A batch norm in eval mode, as a scale and a shift of each channel, in float64."""

    scale: Tensor
    shift: Tensor

    @classmethod
    def of(
        cls, mean: Tensor | None, variance: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> _Norm | None:
        if mean is None or variance is None:
            return None
        scale = (variance.double() + eps).rsqrt() * (1.0 if weight is None else weight.double())
        return cls(scale, (0.0 if bias is None else bias.double()) - mean.double() * scale)


_RELUS = (F.relu, torch.relu, F.relu_, torch.relu_)
# What an average pool takes after its input, with what is taken where nothing is said.
_AVERAGE_POOL: Mapping[str, Any] = {
    "kernel_size": None,
    "stride": None,
    "padding": 0,
    "ceil_mode": False,
    "count_include_pad": True,
    "divisor_override": None,
}
_MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_ADDITIONS = (operator.add, operator.iadd, torch.add)
_CONCATENATIONS = (torch.cat, torch.concat, torch.concatenate)


class _Rewriting:
    """One pass over a graph after the other. Kept together: they share the graph and number what they add."""

    def __init__(self, module: fx.GraphModule, *, hand: bool) -> None:
        self.module, self.graph, self.hand = module, module.graph, hand
        self.modules: dict[str, nn.Module] = dict(module.named_modules())
        self.added = 0

    # -- reading ------------------------------------------------------------------------------------------------------

    def called(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls."""
        return self.modules.get(str(node.target)) if node.op == "call_module" else None

    def only_user(self, node: fx.Node) -> fx.Node | None:
        users = list(node.users)
        # Twice by the same user, as in x + x, is not once.
        return users[0] if len(users) == 1 and users[0].all_input_nodes.count(node) == 1 else None

    def tensor(self, value: Any) -> Tensor | None:
        """The constant behind an argument."""
        if isinstance(value, fx.Node) and value.op == "get_attr":
            found: Any = self.module
            for name in str(value.target).split("."):
                found = getattr(found, name)
            return found if isinstance(found, Tensor) else None
        return value if isinstance(value, Tensor) else None

    def norm(self, node: fx.Node | None) -> _Norm | None:
        """The batch norm that a node is, if it is one in eval mode."""
        if node is None:
            return None
        module = self.called(node)
        if type(module) is nn.BatchNorm2d:
            if module.training:
                return None
            return _Norm.of(module.running_mean, module.running_var, module.weight, module.bias, module.eps)
        if node.op == "call_function" and node.target is F.batch_norm:
            names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
            given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
            mean, variance, weight, bias = (self.tensor(given.get(name)) for name in names[1:5])
            found = (mean, variance, weight, bias)
            missing = any(
                one is None and given.get(name) is not None for one, name in zip(found, names[1:5], strict=True)
            )
            eps = given.get("eps", 1e-5)
            if given.get("training", False) is not False or missing or not isinstance(eps, float):
                return None
            return _Norm.of(mean, variance, weight, bias, eps)
        return None

    def activation(self, node: fx.Node | None) -> Activation | None:
        """The activation that a node is, if it is one that is known here."""
        if node is None:
            return None
        module = self.called(node)
        if type(module) is nn.ReLU:
            return "relu"
        if type(module) is nn.ReLU6:
            return "relu6"
        if node.op == "call_function" and (node.target in _RELUS):
            return "relu"
        if node.op == "call_function" and node.target is F.relu6:
            return "relu6"
        return "relu" if node.op == "call_method" and node.target in ("relu", "relu_") else None

    def in_place(self, node: fx.Node) -> bool:
        """Whether a node may overwrite one of its inputs."""
        if getattr(self.called(node), "inplace", False) or node.kwargs.get("inplace"):
            return True
        if node.op == "call_method":
            return str(node.target).endswith("_")
        if node.op == "call_function":
            name = getattr(node.target, "__name__", "")
            return name.endswith("_") or name == "setitem" or (name.startswith("i") and hasattr(operator, name))
        return False

    def changed_in_place(self, node: fx.Node) -> bool:
        """Whether some user may overwrite what a node gives."""
        return any(self.in_place(user) for user in node.users)

    def has_silent_effects(self) -> bool:
        """Whether something is overwritten by a node that nobody asks, which the graph therefore does not show."""
        return any(self.in_place(node) and not node.users for node in self.graph.nodes)

    # -- writing ------------------------------------------------------------------------------------------------------

    def add_module(self, module: nn.Module) -> str:
        name = f"fast_{self.added}"
        self.added += 1
        self.module.add_submodule(name, module)
        self.modules[name] = module
        return name

    def replace(
        self, last: fx.Node, module: nn.Module, args: tuple[fx.Node, ...], between: Sequence[fx.Node]
    ) -> fx.Node:
        """Put a module where ``last`` was, and take out what it stands for, last first."""
        with self.graph.inserting_before(last):
            new = self.graph.call_module(self.add_module(module), args)
        last.replace_all_uses_with(new)
        for node in (last, *between):
            self.graph.erase_node(node)
        return new

    # -- rules --------------------------------------------------------------------------------------------------------

    def drop_what_does_nothing(self) -> None:
        """Identities, dropout in eval mode, and checks of shapes, which capture cannot change."""
        for node in list(self.graph.nodes):
            if node.op == "call_function" and node.target is torch._assert:
                self.graph.erase_node(node)
                continue
            module = self.called(node)
            idle = type(module) in (nn.Identity, nn.Dropout, nn.Dropout2d)
            if idle and module is not None and not module.training and len(node.args) == 1:
                [before] = node.args
                node.replace_all_uses_with(before)
                self.graph.erase_node(node)
        self.graph.eliminate_dead_code()

    def fuse_convolutions(self) -> None:
        """Convolution, then batch norm, then activation, where each is all that sees the one before."""
        for node in list(self.graph.nodes):
            conv = self.called(node)
            kind = _kind(conv)
            if kind is None or len(node.args) != 1 or node.kwargs:
                continue
            assert isinstance(conv, nn.Conv2d)  # noqa: S101 - tells mypy what _kind found out
            weight = conv.weight.detach().double()
            bias = torch.zeros(conv.out_channels, dtype=torch.float64, device=weight.device)
            bias = bias if conv.bias is None else conv.bias.detach().double()
            chain = [node]
            norm = self.norm(self.only_user(node))
            if norm is not None:
                weight = weight * norm.scale.view(-1, 1, 1, 1)
                bias = bias * norm.scale + norm.shift
                chain.append(_one(self.only_user(node)))
            act = self.activation(self.only_user(chain[-1]))
            if act is not None:
                chain.append(_one(self.only_user(chain[-1])))
            dtype = conv.weight.dtype
            parts = [Part(conv.out_channels, act or "none")]
            made = kind(weight.to(dtype), bias.to(dtype), _geometry(conv), parts, hand=self.hand)
            *between, last = chain
            self.replace(last, made, (node.args[0],), between[::-1])

    def fuse_additions(self) -> None:
        """What is added to a convolution's result, and the activation of the sum."""
        nodes: list[fx.Node] = list(self.graph.nodes)
        for node in nodes:
            if not (node.op == "call_function" and node.target in _ADDITIONS):
                continue
            if node.kwargs or len(node.args) != 2 or not all(isinstance(arg, fx.Node) for arg in node.args):
                continue
            order = {one: place for place, one in enumerate(self.graph.nodes)}
            # The later of the two takes the other as its residual, which is there by then.
            sides: list[fx.Node] = [arg for arg in node.args if isinstance(arg, fx.Node)]
            late, early = sorted(sides, key=lambda arg: order[arg], reverse=True)
            conv = self.called(late)
            if not isinstance(conv, Convolution) or len(late.args) != 1 or len(conv.parts) != 1:
                continue
            [source] = late.all_input_nodes
            if conv.parts[0].act != "none" or self.only_user(late) is not node or self.changed_in_place(early):
                continue
            chain: list[fx.Node] = [late, node]
            act = self.activation(self.only_user(node))
            if act is not None:
                chain.append(_one(self.only_user(node)))
                conv.parts = (Part(conv.parts[0].width, act),)
            *between, last = chain
            self.replace(last, conv, (source, early), between[::-1])

    def merge_branches(self) -> None:
        """1×1 convolutions of one input as one; and before an average pool rather than after it, where that is less."""
        for node in list(self.graph.nodes):
            if node.op == "output" or self.changed_in_place(node):
                continue
            direct = [user for user in node.users if self._pointwise(user) is not None]
            pooled = [found for user in node.users if (found := self._pooled(user)) is not None]
            if len(direct) + len(pooled) < 2 and not pooled:
                continue
            users = [*direct, *(after for _, after, _ in pooled)]
            convs = [_one(self._pointwise(user)) for user in users]
            weight, bias = (torch.cat([getattr(conv, name) for conv in convs]) for name in ("weight", "bias"))
            parts = [conv.parts[0] for conv in convs]
            # A pooled branch gets its bias and activation after the pool.
            parts[len(direct) :] = [
                part._replace(pool=pool) for part, (_, _, pool) in zip(parts[len(direct) :], pooled, strict=True)
            ]
            merged = Convolution(weight, bias, Geometry(), parts, hand=self.hand)
            with self.graph.inserting_after(node):
                whole = self.graph.call_module(self.add_module(merged), (node,))
            pieces = [whole]
            if len(parts) > 1:
                with self.graph.inserting_after(whole):
                    pieces = [self.graph.call_function(operator.getitem, (whole, i)) for i in range(len(parts))]
            for user, piece in zip(users, pieces, strict=True):
                user.replace_all_uses_with(piece)
                self.graph.erase_node(user)
            for pool, _, _ in pooled:
                self.graph.erase_node(pool)

    def _pointwise(self, node: fx.Node | None) -> Convolution | None:
        conv = None if node is None else self.called(node)
        if node is None or type(conv) is not Convolution or len(node.args) != 1 or len(conv.parts) != 1:
            return None
        return conv if conv.weight.shape[2:] == (1, 1) and conv.how.in_place else None

    def _pooled(self, node: fx.Node) -> tuple[fx.Node, fx.Node, Pool] | None:
        """A node, the 1×1 convolution that alone sees it, and what it is: an average pool which that may precede."""
        pool, user = self._average_pool(node), self.only_user(node)
        conv = self._pointwise(user)
        if pool is None or not pool.linear or user is None or conv is None:
            return None
        out, inner = conv.weight.shape[:2]
        return (node, user, pool) if out < inner and conv.parts[0].pool is None else None

    def replace_average_pools(self) -> None:
        """Average pools: those that reach beyond the picture, and where own kernels are used the others too."""
        for node in list(self.graph.nodes):
            pool = self._average_pool(node)
            if pool is not None and (self.hand or pool.padding != (0, 0)):
                self.replace(node, AveragePool(pool), (node.args[0],), ())

    def _average_pool(self, node: fx.Node) -> Pool | None:
        """What ``F.avg_pool2d`` is told beside its input, if a node is that and knows it beforehand."""
        module, given = self.called(node), dict(_AVERAGE_POOL)
        if type(module) is nn.AvgPool2d:
            given |= {name: getattr(module, name) for name in given}
        elif node.op == "call_function" and node.target is F.avg_pool2d and node.args:
            given |= dict(zip(given, node.args[1:], strict=False)) | dict(node.kwargs)
        else:
            return None
        given["stride"] = given["stride"] or given["kernel_size"]
        kernel, stride, padding = (_pair(given[name]) for name in ("kernel_size", "stride", "padding"))
        if kernel is None or stride is None or padding is None or not isinstance(node.args[0], fx.Node):
            return None
        divisor = given["divisor_override"]
        if isinstance(divisor, fx.Node):
            return None
        return Pool(kernel, stride, padding, bool(given["ceil_mode"]), bool(given["count_include_pad"]), divisor)

    def replace_max_pools(self) -> None:
        """Max pools with a square window and no frills."""
        for node in list(self.graph.nodes):
            window = self._max_pool(node)
            if window is not None:
                self.replace(node, MaxPool(window), (node.args[0],), ())

    def _max_pool(self, node: fx.Node) -> Window | None:
        module = self.called(node)
        given: Mapping[str, Any]
        if type(module) is nn.MaxPool2d:
            given = vars(module)
        elif node.op == "call_function" and node.target in (F.max_pool2d, torch.max_pool2d) and node.args:
            given = dict(zip(_MAX_POOL, node.args[1:], strict=False)) | dict(node.kwargs)
        else:
            return None
        if given.get("return_indices") or not isinstance(node.args[0], fx.Node):
            return None
        kernel = _square(given.get("kernel_size"))
        stride = kernel if given.get("stride") in (None, [], ()) else _square(given.get("stride"))
        padding, dilation = _square(given.get("padding", 0)), _square(given.get("dilation", 1))
        if kernel is None or stride is None or padding is None or dilation != 1 or kernel > 15:
            return None
        return Window(kernel, stride, padding, bool(given.get("ceil_mode")))

    def fuse_concatenations(self) -> None:
        """Let those whose results are concatenated, and not seen by others, write where these belong."""
        for node in list(self.graph.nodes):
            pieces, user = self._concatenated(node), self.only_user(node)
            if pieces is None or self.overwritten(node):
                continue
            if user is not None and self._concatenated(user) is not None:
                continue  # a part of that one
            widths = [self._channels(piece) for piece in pieces]
            if len(set(pieces)) < len(pieces) or None in widths or not all(map(self._can_sit, pieces)):
                continue
            makers = [self._maker(piece) for piece in pieces]
            order = {one: place for place, one in enumerate(self.graph.nodes)}
            with self.graph.inserting_before(min((maker for maker, _ in makers), key=lambda maker: order[maker])):
                room = self.graph.call_function(Room, (tuple(widths),))
            for index, (maker, part) in enumerate(makers):
                layer, before = self.called(maker), maker.kwargs.get("seats")
                count = len(layer.parts) if isinstance(layer, Convolution) else 1
                seats: list[Any] = list(before) if isinstance(before, tuple) else [None] * count
                seats[part] = (room, index)
                maker.kwargs = {**maker.kwargs, "seats": tuple(seats)}
            inner = [one for one in node.all_input_nodes if one not in pieces]
            self.replace(node, Concatenation(), (room, *pieces), inner)

    def _concatenated(self, node: fx.Node) -> list[fx.Node] | None:
        """What is concatenated along channels, that of concatenations which only this one sees included."""
        if node.op != "call_function" or node.target not in _CONCATENATIONS or not node.args:
            return None
        given = {"tensors": node.args[0], "dim": 0, **dict(zip(("tensors", "dim"), node.args, strict=False))}
        given |= {"dim" if name == "axis" else name: value for name, value in node.kwargs.items()}
        listed = given["tensors"]
        if given.keys() != {"tensors", "dim"} or given["dim"] not in (1, -3) or not isinstance(listed, list | tuple):
            return None
        found: list[fx.Node] = []
        for piece in listed:
            if not isinstance(piece, fx.Node):
                return None
            inner = self._concatenated(piece) if self.only_user(piece) is node else None
            found += [piece] if inner is None else inner
        return found

    def _maker(self, piece: fx.Node) -> tuple[fx.Node, int]:
        """The node that makes a tensor, and which of its results that is."""
        if piece.op == "call_function" and piece.target is operator.getitem:
            whole, index = piece.args
            layer = self.called(whole) if isinstance(whole, fx.Node) else None
            if isinstance(layer, Convolution) and len(layer.parts) > 1 and isinstance(index, int):
                return _one(piece.all_input_nodes[0]), index
        return piece, 0

    def _can_sit(self, piece: fx.Node) -> bool:
        """Whether a tensor has one user, and a maker that can write it anywhere."""
        maker, index = self._maker(piece)
        # Nobody else takes the same part of several.
        alone = maker is piece or [user for user in maker.users if user.args[1:] == (index,)] == [piece]
        layer = self.called(maker)
        return alone and isinstance(layer, Convolution | MaxPool) and self.only_user(piece) is not None

    def _channels(self, node: fx.Node) -> int | None:
        """How many channels a tensor has, if the layers say so."""
        maker, index = self._maker(node)
        layer = self.called(maker)
        if isinstance(layer, Convolution):
            return layer.parts[index].width
        if isinstance(layer, MaxPool | AveragePool) and isinstance(maker.args[0], fx.Node):
            return self._channels(maker.args[0])
        if isinstance(layer, Concatenation):
            room = maker.args[0]
            return sum(room.args[0]) if isinstance(room, fx.Node) else None  # type: ignore[arg-type]  # its widths
        return None

    def overwritten(self, node: fx.Node) -> bool:
        """Whether a tensor, or something that may be a view of it, may be overwritten."""
        waiting, seen = list(node.users), set()
        while waiting:
            user = waiting.pop()
            if self.in_place(user):
                return True
            fresh = isinstance(self.called(user), Convolution | MaxPool | AveragePool | Concatenation)
            if user not in seen and not fresh:
                waiting += user.users
            seen.add(user)
        return False

    def replace_stem(self, statistics: Statistics) -> bool:
        """Take the normalisation into the first layer, if the network starts with one that allows it."""
        [start] = [node for node in self.graph.nodes if node.op == "placeholder"][:1]
        first = self.only_user(start)
        conv = None if first is None else self.called(first)
        if first is None or type(conv) is not Convolution or len(first.args) != 1 or len(conv.parts) != 1:
            return False
        _, channels, *sides = conv.weight.shape
        side, padding = _square(tuple(sides)), _square(conv.how.padding)
        plain = conv.how.stride == (2, 2) and conv.how.dilation == (1, 1) and conv.how.groups == 1
        if not plain or side is None or padding is None or channels > 4 or channels != len(statistics.mean):
            return False
        [part] = conv.parts
        made = Stem(conv.weight, conv.bias, padding, part.act, mean=statistics.mean, std=statistics.std, hand=self.hand)
        self.replace(first, made, (start,), ())
        return True


def _kind(conv: nn.Module | None) -> type[Convolution] | None:
    """What to make of a convolution; None for what is none, or not one that is understood."""
    if not isinstance(conv, nn.Conv2d) or conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        return None
    if type(conv) is nn.Conv2d:
        return Convolution
    # timm's: it pads by the picture's size, and then is an ordinary one.
    return SamePadded if type(conv).__name__ == "Conv2dSame" and type(conv).__module__.startswith("timm.") else None


def _geometry(conv: nn.Conv2d) -> Geometry:
    stride, padding, dilation = (_one(_pair(value)) for value in (conv.stride, conv.padding, conv.dilation))
    return Geometry(stride, padding, dilation, conv.groups)


def _pair(value: Any) -> tuple[int, int] | None:
    if isinstance(value, int):
        return value, value
    if not isinstance(value, tuple | list) or not value or not all(isinstance(one, int) for one in value):
        return None
    return (int(value[0]), int(value[-1])) if len(value) <= 2 else None


def _square(value: Any) -> int | None:
    pair = _pair(value)
    return pair[0] if pair is not None and pair[0] == pair[1] else None


_T = TypeVar("_T")


def _one(value: _T | None) -> _T:
    assert value is not None  # noqa: S101 - the caller has just looked
    return value
