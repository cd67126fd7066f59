"""Tables of docs/results/visibility.md, from the outcome, SSIM and L2 of each image (``visibility.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from doc_data import HeldOut, read
from doc_tables import Cell, Printed, table
from whorl.evaluation.statistics import Comparison, compare, holm, mean_interval, rate

TARGETS = ("efficientnet_lite2", "efficientnet_lite0.alp")
EPS = ("16", "8")
OURS, OTHERS = "ai-best", ("dim", "ai-dim")
# What the pages call images as crafted, and scaled by each SSIM; and which SSIM that is.
_KINDS = {"as crafted": "", "equal SSIM": "-equal", "equal SSIM at ¼ size": "-quarter"}
_SSIM = {"SSIM": "ssim", "SSIM at ¼ size": "ssim_quarter"}


@cache
def _found() -> HeldOut:
    return HeldOut(read("visibility-resnet18-cpu.json"))


def photographs() -> int:
    """How many were measured."""
    return len(_found().data["ids"])


def _cell(attack: str, eps: str, kind: str = "as crafted") -> str:
    reference = attack == _found().data["metadata"]["as_visible_as"]
    return f"{attack}{'' if reference else _KINDS[kind]}-{eps}"


def _each(what: str, cell: str) -> np.ndarray:
    return np.array(_found().data[what][cell])


def _mean(values: np.ndarray) -> list[float]:
    return [float(values.mean()), *mean_interval(values)]


def _success(target: str, cell: str) -> list[float]:
    found = rate(_found().counts(target, cell, photographs()))
    return [100 * value for value in (found.value, *found.interval)]


@table("visibility")
def _(eps: str, *kind: str) -> Cell:
    """At an ε, of images as crafted or scaled as one of ``_KINDS``."""
    named = " ".join(kind)

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        attack = row["attack"].partition(",")[0]
        one = _cell(attack, eps, named)
        if column in _SSIM:
            return _mean(_each(_SSIM[column], one))
        if column == "L2":
            return _mean(_each("l2", one))
        if column == "lowest SSIM":
            return [float(_each("ssim", one).min())]
        return [scaled(attack, eps, named)] if column == "images scaled" else _success(column, one)

    return cell


def scaled(attack: str, eps: str, kind: str) -> int:
    """How many images of an attack are more visible than ``dim``'s of the same photograph, and so are scaled."""
    what = _SSIM[kind.removeprefix("equal ")]
    return int((_each(what, _cell(attack, eps)) < _each(what, _cell("dim", eps))).sum())


@cache
def _gains() -> Mapping[tuple[str, str, str, str], Comparison]:
    """By other attack, ε, kind and target, with Holm's correction."""
    n, found = photographs(), {}
    for other in OTHERS:
        for eps in EPS:
            for kind in _KINDS:
                for target in TARGETS:
                    ours, theirs = (_found().counts(target, _cell(one, eps, kind), n) for one in (OURS, other))
                    found[other, eps, kind, target] = compare(ours, theirs)
    return holm(found)


def apart(what: str, other: str, eps: str, kind: str = "as crafted") -> list[float]:
    """SSIM of ``ai-best`` less that of another, mean over the photographs with its paired interval."""
    ours, theirs = (_each(_SSIM[what], _cell(one, eps, kind)) for one in (OURS, other))
    return _mean(ours - theirs)


@table("visibility-gains")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        other, eps, kind = row["gain"].partition(" over ")[2], row["ε"], row["images"]
        if column in _SSIM:
            return apart(column, other, eps, kind)
        if column not in TARGETS:
            return None
        found = _gains()[other, eps, kind, column]
        shown = Printed([100 * found.difference, *(100 * end for end in found.interval), found.p_value])
        shown.marks = {1: "✓", 0: "", -1: "✗"}[found.ahead]
        return shown

    return cell


def ahead(sign: int = 1, kind: str | None = None) -> int:
    """In how many cells of the table of gains ``ai-best`` is significantly ahead, or with -1 behind."""
    return [one.ahead for (_, _, how, _), one in _gains().items() if kind in (None, how)].count(sign)
