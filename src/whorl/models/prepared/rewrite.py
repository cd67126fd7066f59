"""Rewrite a frozen network's graph so that it touches memory less; what it computes stays the same, up to rounding.

Each rule applies only where the graph itself proves it right: a batch norm is folded into a convolution if nothing else
sees what lies between the two, and so on. What no rule covers stays as it is.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from whorl.models.backward import NOWHERE, Sites, hook, scale_gradient
from whorl.models.prepared.fold import same_padded
from whorl.models.prepared.fusions import (
    average_pool,
    fuse_concatenations,
    replace_average_pools,
    replace_max_pools,
    shared_max_pool,
)
from whorl.models.prepared.layers import (
    Convolution,
    Geometry,
    MaxPool,
    OutputPart,
    Rectifier,
    SamePadded,
    Stem,
)
from whorl.models.prepared.network_graph import Following, NetworkGraph, pair, square, sure
from whorl.models.prepared.pointwise import Pool

_ADDITIONS = (operator.add, operator.iadd, torch.add)


class Statistics(NamedTuple):
    """What images are normalised with before the network sees them: one number per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Rewritten(NamedTuple):
    """A rewritten network."""

    net: fx.GraphModule
    takes_images: bool
    """Whether it normalises images by itself."""


def rewrite(net: nn.Module, *, stem: Statistics | None = None, changes: Sites = NOWHERE) -> Rewritten | None:
    """Fold, fuse and merge what can be.

    Args:
        net: in eval mode. Its modules are taken over: pass a copy.
        stem: the normalisation, to be taken into the first layer where that is possible; None to leave it outside.
        changes: what is to become of its backward pass.

    Returns:
        The rewritten network, or None if its graph cannot be read.
    """
    graph_module = trace(net, changes)
    if graph_module is None:
        return None
    work = NetworkGraph(graph_module)
    if work.has_silent_effects():
        return None
    drop_what_does_nothing(work)
    fuse_convolutions(work)
    fuse_additions(work)
    merge_branches(work)
    replace_average_pools(work)
    replace_max_pools(work)
    fuse_concatenations(work)
    takes_images = stem is not None and replace_stem(work, stem)
    graph_module.graph.eliminate_dead_code()
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return Rewritten(graph_module, takes_images)


def drop_what_does_nothing(work: NetworkGraph) -> None:
    """Identities, dropout in eval mode, and checks of shapes, which capture cannot change."""
    for node in list(work.graph.nodes):
        if node.op == "call_function" and node.target is torch._assert:
            work.graph.erase_node(node)
            continue
        module = work.called(node)
        idle = type(module) in (nn.Identity, nn.Dropout, nn.Dropout2d)
        if idle and module is not None and not module.training and len(node.args) == 1:
            [before] = node.args
            node.replace_all_uses_with(before)
            work.graph.erase_node(node)
    work.graph.eliminate_dead_code()


def fuse_convolutions(work: NetworkGraph) -> None:
    """Convolution, then batch norm, then activation, where each is all that sees the one before."""
    for node in list(work.graph.nodes):
        conv = work.called(node)
        kind = _kind(conv)
        if kind is None or len(node.args) != 1 or node.kwargs:
            continue
        assert isinstance(conv, nn.Conv2d)  # noqa: S101 - tells mypy what _kind found out
        weight = conv.weight.detach().double()
        bias = torch.zeros(conv.out_channels, dtype=torch.float64, device=weight.device)
        bias = bias if conv.bias is None else conv.bias.detach().double()
        chain = [node]
        scale = _scaled(work, chain)
        norm = work.norm(work.only_user(chain[-1]))
        if norm is not None:
            weight = weight * norm.scale.view(-1, 1, 1, 1)
            bias = bias * norm.scale + norm.shift
            chain.append(sure(work.only_user(chain[-1])))
            scale *= _scaled(work, chain)
        act = work.activation(work.only_user(chain[-1]))
        if act is not None:
            chain.append(sure(work.only_user(chain[-1])))
            scale *= _scaled(work, chain)
        dtype = conv.weight.dtype
        follows = act or Following()
        parts = [OutputPart(conv.out_channels, follows.act, smooth=follows.smooth, scale=scale)]
        made = kind(weight.to(dtype), bias.to(dtype), _geometry(conv), parts)
        *between, last = chain
        work.replace(last, made, (node.args[0],), between[::-1])


def _scaled(work: NetworkGraph, chain: list[fx.Node]) -> float:
    """Take in what only scales the gradient of the last of a chain; gives the factor.

    All that is in the chain is linear in the gradient, element by element, so it does not matter where that is scaled.
    """
    scale = 1.0
    while (factor := work.factor(work.only_user(chain[-1]))) is not None:
        chain.append(sure(work.only_user(chain[-1])))
        scale *= factor
    return scale


def fuse_additions(work: NetworkGraph) -> None:
    """What is added to a convolution's result, and the activation of the sum."""
    nodes: list[fx.Node] = list(work.graph.nodes)
    for node in nodes:
        if not (node.op == "call_function" and node.target in _ADDITIONS):
            continue
        if node.kwargs or len(node.args) != 2 or not all(isinstance(arg, fx.Node) for arg in node.args):
            continue
        order = {one: place for place, one in enumerate(work.graph.nodes)}
        # The later of the two takes the other as its residual, which is there by then.
        sides: list[fx.Node] = [arg for arg in node.args if isinstance(arg, fx.Node)]
        late, early = sorted(sides, key=lambda arg: order[arg], reverse=True)
        conv = work.called(late)
        if not isinstance(conv, Convolution) or len(late.args) != 1 or len(conv.parts) != 1:
            continue
        [source] = late.all_input_nodes
        if conv.parts[0].act != "none" or work.only_user(late) is not node or work.changed_in_place(early):
            continue
        chain: list[fx.Node] = [late, node]
        act = work.activation(work.only_user(node))
        if act is not None:
            chain.append(sure(work.only_user(node)))
            conv.parts = (conv.parts[0]._replace(act=act.act, smooth=act.smooth),)
        *between, last = chain
        work.replace(last, conv, (source, early), between[::-1])


def merge_branches(work: NetworkGraph) -> None:
    """1×1 convolutions of one input as one; and before an average pool rather than after it, where that is less."""
    for node in list(work.graph.nodes):
        if node.op == "output" or work.changed_in_place(node):
            continue
        direct = [user for user in node.users if _pointwise(work, user) is not None]
        pooled = [found for user in node.users if (found := _pooled(work, user)) is not None]
        if len(direct) + len(pooled) < 2 and not pooled:
            continue
        users = [*direct, *(after for _, after, _ in pooled)]
        convs = [sure(_pointwise(work, user)) for user in users]
        weight, bias = (torch.cat([getattr(conv, name) for conv in convs]) for name in ("weight", "bias"))
        parts = [conv.parts[0] for conv in convs]
        # A pooled branch gets its bias and activation after the pool.
        parts[len(direct) :] = [
            part._replace(pool=pool) for part, (_, _, pool) in zip(parts[len(direct) :], pooled, strict=True)
        ]
        merged = Convolution(weight, bias, Geometry(), parts)
        with work.graph.inserting_after(node):
            whole = work.graph.call_module(work.add_module(merged), (node,))
        pieces = [whole]
        if len(parts) > 1:
            with work.graph.inserting_after(whole):
                pieces = [work.graph.call_function(operator.getitem, (whole, i)) for i in range(len(parts))]
        for user, piece in zip(users, pieces, strict=True):
            user.replace_all_uses_with(piece)
            work.graph.erase_node(user)
        for pool, _, _ in pooled:
            work.graph.erase_node(pool)


def _pointwise(work: NetworkGraph, node: fx.Node | None) -> Convolution | None:
    conv = None if node is None else work.called(node)
    if node is None or type(conv) is not Convolution or len(node.args) != 1 or len(conv.parts) != 1:
        return None
    return conv if conv.weight.shape[2:] == (1, 1) and conv.how.in_place else None


def _pooled(work: NetworkGraph, node: fx.Node) -> tuple[fx.Node, fx.Node, Pool] | None:
    """A node, the 1×1 convolution that alone sees it, and what it is: an average pool which that may precede."""
    pool, user = average_pool(work, node), work.only_user(node)
    conv = _pointwise(work, user)
    if pool is None or not pool.linear or user is None or conv is None:
        return None
    out, inner = conv.weight.shape[:2]
    return (node, user, pool) if out < inner and conv.parts[0].pool is None else None


def replace_stem(work: NetworkGraph, statistics: Statistics) -> bool:
    """Take the normalisation into the first layer, if the network starts with one that allows it."""
    start = next(node for node in work.graph.nodes if node.op == "placeholder")
    first = work.only_user(start)
    conv = None if first is None else work.called(first)
    if first is None or type(conv) is not Convolution or len(first.args) != 1 or len(conv.parts) != 1:
        return False
    _, channels, *sides = conv.weight.shape
    side, padding = square(tuple(sides)), square(conv.how.padding)
    plain = conv.how.stride == (2, 2) and conv.how.dilation == (1, 1) and conv.how.groups == 1
    if not plain or side is None or padding is None or channels > 4 or channels != len(statistics.mean):
        return False
    [part] = conv.parts
    made = Stem(conv.weight, conv.bias, padding, part, mean=statistics.mean, std=statistics.std)
    work.replace(first, made, (start,), ())
    return True


def _kind(conv: nn.Module | None) -> type[Convolution] | None:
    """What to make of a convolution; None for what is none, or not one that is understood."""
    if not isinstance(conv, nn.Conv2d) or conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        return None
    if type(conv) is nn.Conv2d:
        return Convolution
    # timm's: it pads by the image's size, and then is an ordinary one.
    return SamePadded if same_padded(conv) else None


def _geometry(conv: nn.Conv2d) -> Geometry:
    stride, padding, dilation = (sure(pair(value)) for value in (conv.stride, conv.padding, conv.dilation))
    return Geometry(stride, padding, dilation, conv.groups)


def trace(net: nn.Module, changes: Sites = NOWHERE) -> fx.GraphModule | None:
    """Read a network's graph; a module whose forward cannot be read stays a black box. None if the network's cannot.

    With a changed backward pass, what is read has it: rectifiers are replaced in ``net`` itself, and what scales a
    gradient is a node after the branch; inside a black box, a hook.
    """
    _replace(net, {name: _rectifier(net.get_submodule(name), sharpness) for name, sharpness in changes.rectifiers})
    pools = {name: (net.get_submodule(name), share) for name, share in changes.pools}
    made = {
        name: shared for name, (pool, share) in pools.items() if (shared := shared_max_pool(pool, share)) is not None
    }
    _replace(net, made)
    hook(net, Sites(pools=tuple(pool for pool in changes.pools if pool[0] not in made)))
    branches = {net.get_submodule(name): (name, factor) for name, factor in changes.branches}
    opaque: set[type] = set()
    while True:
        tracer = _Tracer(opaque, {module: factor for module, (_, factor) in branches.items()})
        try:
            graph = tracer.trace(net)
        except Exception:  # noqa: BLE001 - a forward that cannot be read may fail in any way
            if tracer.failed is None or tracer.failed in opaque:
                return None
            opaque.add(tracer.failed)
            continue
        hook(net, Sites(branches=tuple(site for module, site in branches.items() if module not in tracer.scaled)))
        return fx.GraphModule(net, graph)


def _rectifier(module: nn.Module, sharpness: float) -> Rectifier:
    return Rectifier("relu6" if isinstance(module, nn.ReLU6) else "relu", sharpness)


def _replace(net: nn.Module, by_name: Mapping[str, nn.Module]) -> None:
    """Put other modules in the place of some, wherever the network has them."""
    made = {net.get_submodule(name): other for name, other in by_name.items()}
    for parent in list(net.modules()):
        for name, child in list(parent._modules.items()):  # all names of one that has several
            if child in made:
                setattr(parent, name, made[child])


class _Tracer(fx.Tracer):
    """Reads a graph, in which the gradient of some modules' results is scaled.

    Args:
        opaque: modules that stay black boxes.
        branches: modules whose result's gradient is scaled, and the factor.
    """

    def __init__(self, opaque: set[type], branches: Mapping[nn.Module, float]) -> None:
        super().__init__()
        self.opaque, self.branches = opaque, branches
        self.scaled: set[nn.Module] = set()
        self.failed: type | None = None
        self.thread = threading.get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = isinstance(m, Rectifier | MaxPool) or type(m) in self.opaque
        return own or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        # torch looks into every call of a module while it traces, also those of other threads.
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        try:
            out = super().call_module(m, forward, args, kwargs)
        except Exception:  # whatever it is, it goes on to whoever traces
            # The innermost one is tried first.
            self.failed = self.failed or type(m)
            raise
        if m not in self.branches or not isinstance(out, fx.Proxy):
            return out
        self.scaled.add(m)
        return self.create_proxy("call_function", scale_gradient, (out, self.branches[m]), {})
