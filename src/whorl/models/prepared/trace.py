"""Read a network's graph, with black boxes where its code cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx, nn


def trace(net: nn.Module) -> fx.GraphModule | None:
    """Read a network's graph; a module whose forward cannot be read stays a black box. None if the network's cannot."""
    opaque: set[type] = set()
    while True:
        tracer = _Tracer(opaque)
        try:
            return fx.GraphModule(net, tracer.trace(net))
        except Exception:  # noqa: BLE001 - a forward that cannot be read may fail in any way
            if tracer.failed is None or tracer.failed in opaque:
                return None
            opaque.add(tracer.failed)


class _Tracer(fx.Tracer):
    def __init__(self, opaque: set[type]) -> None:
        super().__init__()
        self.opaque = opaque
        self.failed: type | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in self.opaque or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:  # whatever it is, it goes on to whoever traces
            # The innermost one is asked first.
            self.failed = self.failed or type(m)
            raise
