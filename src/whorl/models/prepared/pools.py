"""Rules for pools: what a node is told beside its input, and the layer that does it with own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from whorl.models.prepared.layers import AveragePool, MaxPool
from whorl.models.prepared.network_graph import NetworkGraph, pair, square
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
    """Average pools: those that reach beyond the image, and where own kernels are used the others too."""
    for node in list(work.graph.nodes):
        pool = average_pool(work, node)
        if pool is not None and (work.hand or pool.padding != (0, 0)):
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
    given: Mapping[str, Any]
    if type(module) is nn.MaxPool2d:
        given = vars(module)
    elif node.op == "call_function" and node.target in (F.max_pool2d, torch.max_pool2d) and node.args:
        given = dict(zip(_MAX_POOL, node.args[1:], strict=False)) | dict(node.kwargs)
    else:
        return None
    if given.get("return_indices") or not isinstance(node.args[0], fx.Node):
        return None
    kernel = square(given.get("kernel_size"))
    stride = kernel if given.get("stride") in (None, [], ()) else square(given.get("stride"))
    padding, dilation = square(given.get("padding", 0)), square(given.get("dilation", 1))
    if kernel is None or stride is None or padding is None or dilation != 1 or kernel > 15:
        return None
    return Window(kernel, stride, padding, bool(given.get("ceil_mode")))
