"""One input gradient of a network: as attacks replay it, and as ``torch.compile`` makes it of the same network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.optimization import fuse

from whorl.bench.peers import TimedCall, Workload
from whorl.errors import WhorlError
from whorl.models.prepared.graph import Recorded, turns
from whorl.models.prepared.network import prepared

GRADIENT = "input gradient"
MODES = {"torch.compile": "default", "torch.compile, reduce-overhead": "reduce-overhead"}


def gradient_calls(work: Workload, ours: str) -> list[TimedCall]:
    """Ours as attacks replay it, then compiled and not, from a network that was folded and cast by hand.

    The first call of each does all that it takes to begin: prepare and record, or compile.

    Args:
        work: network and images, on a GPU.
        ours: what our library is called.
    """

    def entry(name: str, library: str, make: Callable[[], Callable[[], object]], note: str = "") -> TimedCall:
        return TimedCall(attack=GRADIENT, library=library, name=name, run=_begun_late(make), note=note)

    by_hand = "batch norms folded, bfloat16 and channels-last"
    return [
        entry("replayed", ours, lambda: replayed_gradient(work)),
        *(entry(name, "torch", lambda mode=mode: _compiled(work, mode), by_hand) for name, mode in MODES.items()),  # type: ignore[misc]  # mypy cannot see the default
        entry("as it is", "torch", lambda: _gradient_of(work.model, work.x, work.y), "float32"),
        entry("by hand", "torch", lambda: _gradient_of(by_careful_hands(work.model), *_short(work)), by_hand),
    ]


def replayed_gradient(work: Workload) -> Callable[[], None]:
    """The gradient alone of what an attack's loop replays."""
    kept = prepared(work.model)
    if kept is None or kept.network is None:
        raise WhorlError(
            "the fast loop needs a network that can be prepared; this one cannot. It is attacked as it is."
        )
    network, made = kept.network, torch.empty_like(work.x)

    def gradient() -> None:
        leaf = work.x.detach().requires_grad_()
        made.copy_(torch.autograd.grad(F.cross_entropy(network(leaf), work.y, reduction="sum"), leaf)[0])

    device = work.x.device
    with turns(device).taken():
        recorded = Recorded(gradient, device, shared=True)

    def replay() -> None:
        with turns(device).taken():
            recorded()

    return replay


def by_careful_hands(model: Any) -> Any:
    """A copy of a classifier as a careful user would make it fast: folded, in bfloat16, in channels-last memory."""
    made = copy.deepcopy(model).eval().requires_grad_(False)
    net: Any = fuse(made.net)
    made.net = net.to(torch.bfloat16).to(memory_format=torch.channels_last)
    return made


def _short(work: Workload) -> tuple[Tensor, Tensor]:
    return work.x.contiguous(memory_format=torch.channels_last), work.y


def _compiled(work: Workload, mode: str) -> Callable[[], Tensor]:
    net = torch.compile(by_careful_hands(work.model), mode=mode)
    return _gradient_of(net, *_short(work))


def _gradient_of(net: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    def gradient() -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(net(leaf).float(), y, reduction="sum"), leaf)[0]

    return gradient


def _begun_late(make: Callable[[], Callable[[], object]]) -> Callable[[], object]:
    """A call that begins with what it takes to begin."""
    made: list[Callable[[], object]] = []

    def run() -> object:
        if not made:
            made.append(make())
        return made[0]()

    return run
