"""Rules for pools and concatenations: what a node is given beside its input, and the layer that does it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from whorl.models.prepared.layers import AveragePool, Concatenation, Convolution, MaxPool, Room
from whorl.models.prepared.network_graph import NetworkGraph, pair, square, sure
from whorl.models.prepared.pointwise import Pool, Window

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


def replace_average_pools(work: NetworkGraph) -> None:
    """Average pools, as layers with own kernels."""
    for node in list(work.graph.nodes):
        pool = average_pool(work, node)
        if pool is not None:
            work.replace(node, AveragePool(pool), (node.args[0],), ())


def average_pool(work: NetworkGraph, node: fx.Node) -> Pool | None:
    """What ``F.avg_pool2d`` is told beside its input, if a node is that and knows it beforehand."""
    module, given = work.called(node), dict(_AVERAGE_POOL)
    if type(module) is nn.AvgPool2d:
        given |= {name: getattr(module, name) for name in given}
    elif node.op == "call_function" and node.target is F.avg_pool2d and node.args:
        given |= dict(zip(given, node.args[1:], strict=False)) | dict(node.kwargs)
    else:
        return None
    given["stride"] = given["stride"] or given["kernel_size"]
    kernel, stride, padding = (pair(given[name]) for name in ("kernel_size", "stride", "padding"))
    if kernel is None or stride is None or padding is None or not isinstance(node.args[0], fx.Node):
        return None
    divisor = given["divisor_override"]
    if isinstance(divisor, fx.Node):
        return None
    return Pool(kernel, stride, padding, bool(given["ceil_mode"]), bool(given["count_include_pad"]), divisor)


def replace_max_pools(work: NetworkGraph) -> None:
    """Max pools with a square window and no frills."""
    for node in list(work.graph.nodes):
        window = _max_pool(work, node)
        if window is not None:
            work.replace(node, MaxPool(window), (node.args[0],), ())


def _max_pool(work: NetworkGraph, node: fx.Node) -> Window | None:
    module = work.called(node)
    if type(module) is nn.MaxPool2d:
        return _window(vars(module)) if isinstance(node.args[0], fx.Node) else None
    if node.op == "call_function" and node.target in (F.max_pool2d, torch.max_pool2d) and node.args:
        given = dict(zip(_MAX_POOL, node.args[1:], strict=False)) | dict(node.kwargs)
        return _window(given) if isinstance(node.args[0], fx.Node) else None
    return None


def shared_max_pool(module: nn.Module, share: float) -> MaxPool | None:
    """A max pool of which a share of the gradient goes to all of a window; None for what is none of those above."""
    window = _window(vars(module)) if type(module) is nn.MaxPool2d else None
    return None if window is None else MaxPool(window, share)


def _window(given: Mapping[str, Any]) -> Window | None:
    if given.get("return_indices"):
        return None
    kernel = square(given.get("kernel_size"))
    stride = kernel if given.get("stride") in (None, [], ()) else square(given.get("stride"))
    padding, dilation = square(given.get("padding", 0)), square(given.get("dilation", 1))
    if kernel is None or stride is None or padding is None or dilation != 1 or kernel > 15:
        return None
    return Window(kernel, stride, padding, bool(given.get("ceil_mode")))


_CONCATENATIONS = (torch.cat, torch.concat, torch.concatenate)


def fuse_concatenations(work: NetworkGraph) -> None:
    """Let those whose results are concatenated, and not seen by others, write where these belong."""
    for node in list(work.graph.nodes):
        pieces, user = _concatenated(work, node), work.only_user(node)
        if pieces is None or work.overwritten(node):
            continue
        if user is not None and _concatenated(work, user) is not None:
            continue  # a part of that one
        widths = [_channels(work, piece) for piece in pieces]
        if len(set(pieces)) < len(pieces) or None in widths or not all(_can_sit(work, piece) for piece in pieces):
            continue
        makers = [_maker(work, piece) for piece in pieces]
        order = {one: place for place, one in enumerate(work.graph.nodes)}
        with work.graph.inserting_before(min((maker for maker, _ in makers), key=lambda maker: order[maker])):
            room = work.graph.call_function(Room, (tuple(widths),))
        for index, (maker, part) in enumerate(makers):
            layer, before = work.called(maker), maker.kwargs.get("seats")
            count = len(layer.parts) if isinstance(layer, Convolution) else 1
            seats: list[Any] = list(before) if isinstance(before, tuple) else [None] * count
            seats[part] = (room, index)
            maker.kwargs = {**maker.kwargs, "seats": tuple(seats)}
        inner = [one for one in node.all_input_nodes if one not in pieces]
        work.replace(node, Concatenation(), (room, *pieces), inner)


def _concatenated(work: NetworkGraph, node: fx.Node) -> list[fx.Node] | None:
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
        inner = _concatenated(work, piece) if work.only_user(piece) is node else None
        found += [piece] if inner is None else inner
    return found


def _maker(work: NetworkGraph, piece: fx.Node) -> tuple[fx.Node, int]:
    """The node that makes a tensor, and which of its results that is."""
    if piece.op == "call_function" and piece.target is operator.getitem:
        whole, index = piece.args
        layer = work.called(whole) if isinstance(whole, fx.Node) else None
        if isinstance(layer, Convolution) and len(layer.parts) > 1 and isinstance(index, int):
            return sure(piece.all_input_nodes[0]), index
    return piece, 0


def _can_sit(work: NetworkGraph, piece: fx.Node) -> bool:
    """Whether a tensor has one user, and a maker that can write it anywhere."""
    maker, index = _maker(work, piece)
    # Nobody else takes the same part of several.
    alone = maker is piece or [user for user in maker.users if user.args[1:] == (index,)] == [piece]
    layer = work.called(maker)
    return alone and isinstance(layer, Convolution | MaxPool) and work.only_user(piece) is not None


def _channels(work: NetworkGraph, node: fx.Node) -> int | None:
    """How many channels a tensor has, if the layers say so."""
    maker, index = _maker(work, node)
    layer = work.called(maker)
    if isinstance(layer, Convolution):
        return layer.parts[index].width
    if isinstance(layer, MaxPool | AveragePool) and isinstance(maker.args[0], fx.Node):
        return _channels(work, maker.args[0])
    if isinstance(layer, Concatenation):
        room = maker.args[0]
        return sum(room.args[0]) if isinstance(room, fx.Node) else None  # type: ignore[arg-type]  # its widths
    return None
