"""Copies of a network over the same weights, and shares of a batch that are worked on side by side, a copy for each.

A CPU shows a network one image at a time, so that no result depends on a batch. An image is the work of one thread: its
result does not depend on how many there are either, and threads that share no layer do not wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from itertools import pairwise, starmap
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from whorl.models.prepared.fold import alias, fold_copy
from whorl.models.prepared.versions import simple, version_of
from whorl.progress import share_of_work

_Made = TypeVar("_Made")


def shares(count: int) -> list[slice]:
    """Cut a batch of ``count`` images into shares of about one size, one for each of torch's threads.

    >>> before = torch.get_num_threads()
    >>> torch.set_num_threads(2)
    >>> shares(5), shares(1)
    ([slice(0, 3, None), slice(3, 5, None)], [slice(0, 1, None)])
    >>> torch.set_num_threads(before)
    """
    number = max(1, min(count, torch.get_num_threads()))
    ends = [-(-count * place // number) for place in range(number + 1)]
    return list(starmap(slice, pairwise(ends)))


def side_by_side(work: Callable[[int], _Made], number: int) -> list[_Made]:
    """Call ``work`` with 0, 1, ... ``number`` - 1, each in a thread of its own, in which torch has no further threads.

    What one of them raises is raised here, once all have ended: the others end when they next count something as done
    (:func:`whorl.progress.count_work`). So they do at Ctrl-C.

    >>> side_by_side(lambda place: (place, torch.get_num_threads()), 3)
    [(0, 1), (1, 1), (2, 1)]
    """
    threads = torch.get_num_threads()
    if number == threads == 1:
        return [work(0)]
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    made: dict[int, _Made] = {}
    failed: list[BaseException] = []
    stopped, begun = threading.Event(), threading.Barrier(number + 1)

    def run(place: int) -> None:
        try:
            # Their number, and whether graphs are kept, belong to a thread. A new one takes over the number that was
            # set last anywhere when that is first needed; only then it can be given its own.
            torch.get_num_threads()
            torch.set_num_threads(1)
            begun.wait()
            with share_of_work(1 / number, stopped), torch.inference_mode(inference), torch.set_grad_enabled(grad):
                made[place] = work(place)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            failed.append(error)
            stopped.set()

    crew = [threading.Thread(target=copy_context().run, args=(run, place)) for place in range(number)]
    try:
        for one in crew:
            one.start()
        begun.wait()
        torch.set_num_threads(threads)  # a thread that begins from now on has as many as were set last
        for one in crew:
            one.join()
    except BaseException:  # Ctrl-C above all
        stopped.set()
        begun.abort()
        for one in crew:
            if one.ident is not None:
                one.join()
        raise
    if failed:
        raise failed[0]
    return [made[place] for place in range(number)]


class Copies:
    """Copies of a model that answer without a gradient, a share of the images each; kernels are laid out once.

    Args:
        model: a classifier or an ensemble, as :func:`whorl.models.prepared.versions.simple` has it, on a CPU.

    Raises:
        Exception: whatever a module of somebody's own raises that cannot be copied.
    """

    def __init__(self, model: nn.Module) -> None:
        self.version = _version(model)
        # They outlive the mode they are first needed in.
        with torch.inference_mode(False):
            first = alias(model)
            fold_copy(first, norms=False)
        self.all: list[nn.Module] = [first]

    def __call__(self, x: Tensor) -> Tensor:
        """(B, C, H, W) images in [0, 1] to (B, classes) logits."""
        parts = shares(len(x))
        while len(self.all) < len(parts):
            if len(self.all) == 1:
                self.all[0](x[:1])  # lays out its kernels, which the others then take over
            with torch.inference_mode(False):
                self.all.append(alias(self.all[0]))
        return torch.cat(side_by_side(lambda place: self.all[place](x[parts[place]]), len(parts)))


_KEPT: WeakKeyDictionary[nn.Module, Copies | None] = WeakKeyDictionary()
_LOCK = threading.Lock()


def answer(model: Callable[[Tensor], Any], x: Tensor) -> Any:
    """What a model answers to (B, C, H, W) images, without a gradient: on a CPU by its copies, if it can have some."""
    kept = copies(model) if x.device.type == "cpu" else None
    return model(x) if kept is None else kept(x)


def copies(model: object) -> Copies | None:
    """Copies of a model on a CPU, or those that were made before; None where it has to be used as it is.

    >>> from whorl.models import Classifier
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5))
    >>> clf = Classifier.from_module(net, size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    >>> x, kept = torch.rand(3, 3, 8, 8), copies(clf)
    >>> with torch.no_grad():
    ...     print(torch.allclose(kept(x), clf(x), atol=1e-5), copies(clf) is kept, copies(net))
    True True None
    """
    if not simple(model):
        return None
    assert isinstance(model, nn.Module)  # noqa: S101 - tells mypy what simple found out
    with _LOCK:
        kept = _KEPT.get(model)
        if model not in _KEPT or (kept is not None and kept.version != _version(model)):
            try:
                kept = _KEPT[model] = Copies(model)
            except Exception:  # noqa: BLE001 - a module is anyone's code, and may hold what cannot be copied
                kept = _KEPT[model] = None
        return kept


def _version(model: nn.Module) -> tuple[Any, ...]:
    """What changes whenever a weight, a layer or a setting of a layer does."""
    return version_of(model), tuple((id(module), *_settings(vars(module))) for module in model.modules())


def _settings(own: dict[str, Any]) -> list[Any]:
    """A module's own attributes: values where they are plain, otherwise which object it is."""
    return [value if type(value) in _PLAIN else id(value) for name, value in own.items() if name not in _EVERY_MODULE_S]


_PLAIN = {bool, int, float, str, tuple, type(None)}
_EVERY_MODULE_S = set(vars(nn.Module()))  # weights, and hooks, of which :func:`simple` knows
