"""Rule for concatenations: whoever makes a part of one writes it where it belongs."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from whorl.models.prepared.layers import AveragePool, Concatenation, Convolution, MaxPool, Room
from whorl.models.prepared.network_graph import NetworkGraph, sure

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
