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
_KINDS = {"same ε": "", "equal visibility": "-equal"}


@cache
def _found() -> HeldOut:
    return HeldOut(read("visibility-resnet18-cpu.json"))


def photographs() -> int:
    """How many were measured."""
    return len(_found().data["ids"])


def _cell(attack: str, eps: str, kind: str = "same ε") -> str:
    as_it_is = kind == "same ε" or attack == _found().data["metadata"]["as_visible_as"]
    return f"{attack}{'' if as_it_is else _KINDS[kind]}-{eps}"


def _each(what: str, cell: str) -> np.ndarray:
    return np.array(_found().data[what][cell])


def _mean(values: np.ndarray) -> list[float]:
    return [float(values.mean()), *mean_interval(values)]


def _success(target: str, cell: str) -> list[float]:
    found = rate(_found().counts(target, cell, photographs()))
    return [100 * value for value in (found.value, *found.interval)]


@table("visibility")
def _(eps: str, kind: str = "same") -> Cell:
    """At an ε as crafted; or ``equal``, scaled down to the visibility of ``dim``."""
    named = {"same": "same ε", "equal": "equal visibility"}[kind]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        attack = row["attack"].partition(",")[0]
        one = _cell(attack, eps, named)
        if column in ("SSIM", "L2"):
            return _mean(_each(column.lower(), one))
        if column == "lowest SSIM":
            return [float(_each("ssim", one).min())]
        return [scaled(attack, eps)] if column == "images scaled" else _success(column, one)

    return cell


def scaled(attack: str, eps: str) -> int:
    """How many images of an attack are more visible than ``dim``'s of the same photograph."""
    reference = _cell(_found().data["metadata"]["as_visible_as"], eps)
    return int((_each("ssim", _cell(attack, eps)) < _each("ssim", reference)).sum())


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


def more_similar(other: str, eps: str, kind: str = "same ε") -> list[float]:
    """SSIM of ``ai-best`` less that of another, mean over the photographs with its paired interval."""
    ours, theirs = (_each("ssim", _cell(one, eps, kind)) for one in (OURS, other))
    return _mean(ours - theirs)


@table("visibility-gains")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        other, eps, kind = row["gain"].partition(" over ")[2], row["ε"], row["images"]
        if column == "SSIM":
            return more_similar(other, eps, kind)
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

