"""Tables of docs/results/visibility.md, from the outcome, SSIM and L2 of each image (``visibility.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from doc_data import HeldOut, read
from doc_tables import Cell, marked, page, table
from whorl.evaluation.statistics import Comparison, compare, holm, mean_interval, rate

TARGETS = ("efficientnet_lite2", "efficientnet_lite0.alp")
EPS = ("16", "8")
GAINS = (("ai-best", "dim"), ("ai-best", "ai-dim"), ("ai-dim", "dim"))
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
    """By gain ("this over that"), ε, kind and target, with Holm's correction."""
    n, found = photographs(), {}
    for first, second in GAINS:
        for eps in EPS:
            for kind in _KINDS:
                for target in TARGETS:
                    one, other = (_found().counts(target, _cell(name, eps, kind), n) for name in (first, second))
                    found[f"{first} over {second}", eps, kind, target] = compare(one, other)
    return holm(found)


def apart(what: str, gain: str, eps: str, kind: str = "as crafted") -> list[float]:
    """One attack's SSIM less another's, mean over the photographs with its paired interval."""
    first, second = (_each(_SSIM[what], _cell(name, eps, kind)) for name in gain.split(" over "))
    return _mean(first - second)


@table("visibility-gains")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        key = row["gain"], row["ε"], row["images"]
        if column in _SSIM:
            return apart(column, *key)
        if column not in TARGETS:
            return None
        return marked(_gains()[*key, column])

    return cell


def tests() -> int:
    """Differences of success that are corrected together."""
    return len(_gains())


def verdicts(gain: str, kind: str) -> list[int]:
    """In how many of the four cells (two ε, two networks) it is significantly ahead, and behind."""
    found = [one.ahead for (name, _, how, _), one in _gains().items() if (name, how) == (gain, kind)]
    return [found.count(1), found.count(-1)]


def nearer_and_farther(first: str, second: str) -> bool:
    """Whether one is more similar than another as it is, and less at ¼ size, at both ε, as intervals have it."""
    gain = f"{first} over {second}"
    return all(apart("SSIM", gain, eps)[1] > 0 > apart("SSIM at ¼ size", gain, eps)[2] for eps in EPS)


def between() -> bool:
    """Whether ``ai-best`` lies between ``dim`` and ``ai-dim`` in both, at both ε, as intervals have it."""
    less = all(
        apart("SSIM", "ai-best over ai-dim", eps)[2] < 0 < apart("SSIM at ¼ size", "ai-best over ai-dim", eps)[1]
        for eps in EPS
    )
    return less and nearer_and_farther("ai-best", "dim")


def lengths_are_alike() -> bool:
    """Whether the mean L2 of all attacks but ``fgsm`` is within 3% of ``dim``'s, and ``fgsm``'s above, at both ε."""
    ratios = {
        label: float(_each("l2", label).mean() / _each("l2", _cell("dim", label.rpartition("-")[2])).mean())
        for label in _found().data["settings"]
    }
    return all(
        (ratio > 1.03) if label.startswith("fgsm") else (abs(ratio - 1) < 0.03) for label, ratio in ratios.items()
    )


def keeps(kind: str) -> bool:
    """Whether the gains of ``ai-best`` over ``dim``, scaled alike, are those of the images as crafted, to a tenth."""
    return all(
        one.difference - _gains()[gain, eps, "as crafted", target].difference > -0.001
        for (gain, eps, how, target), one in _gains().items()
        if (gain, how) == ("ai-best over dim", kind)
    )


def below_when_scaled(attack: str, kind: str) -> bool:
    """Whether an attack has a lower rate than ``dim`` in all four cells."""
    rates = [[_success(t, _cell(name, eps, kind))[0] for name in (attack, "dim")] for t in TARGETS for eps in EPS]
    return all(mine < other for mine, other in rates)


page(
    "docs/results/visibility.md",
    sentences=(
        ("Measured on the first {} of the [held-out photographs]", lambda: [photographs()]),
        (
            "more visible at ¼ size**: {} and {} at ε = 16/255, {} and {} at 8/255",
            lambda: [apart(what, "ai-best over dim", eps)[0] for eps in EPS for what in ("SSIM", "SSIM at ¼ size")],
        ),
        ("correction for the {} differences of success", lambda: [tests()]),
        (
            "{} and {} of its {} images are scaled, at ε = 16/255 and 8/255.",
            lambda: [*(scaled("ai-best", eps, "equal SSIM") for eps in EPS), photographs()],
        ),
        (
            "{} and {} of its images are scaled.",
            lambda: [scaled("ai-best", eps, "equal SSIM at ¼ size") for eps in EPS],
        ),
        (
            "In the four cells (two ε, two networks) it is significantly ahead of `dim` in {} and behind in {}.",
            lambda: verdicts("ai-best over dim", "equal SSIM"),
        ),
        (
            "It is significantly ahead of `dim` in {} of the four and behind in {}, and ahead of `ai-dim` in {}.",
            lambda: [
                *verdicts("ai-best over dim", "equal SSIM at ¼ size"),
                verdicts("ai-best over ai-dim", "equal SSIM at ¼ size")[0],
            ],
        ),
        (
            "at equal SSIM at ¼ size it is significantly ahead of `dim` in {} of the four cells and behind in {}; as "
            "crafted ahead in {} and behind in {}.",
            lambda: [
                *verdicts("ai-dim over dim", "equal SSIM at ¼ size"),
                *verdicts("ai-dim over dim", "as crafted"),
            ],
        ),
    ),
    claims=(
        (
            "**`ai-best` is less visible than `dim` by SSIM, and more visible at ¼ size**",
            lambda: nearer_and_farther("ai-best", "dim"),
        ),
        ("`ai-dim` is less visible than `ai-best` by SSIM and more visible at ¼ size.", between),
        (
            "L2 hardly distinguishes the attacks of one ε: all but `fgsm`, which is longer, are within 3% of `dim`.",
            lengths_are_alike,
        ),
        ("**At equal SSIM `ai-best` keeps all that it gains**", lambda: keeps("equal SSIM")),
        ("**At equal SSIM at ¼ size it loses a part of it**", lambda: not keeps("equal SSIM at ¼ size")),
        (
            "**The paper's `ai-dim` pays for its smoothness there**",
            lambda: below_when_scaled("ai-dim", "equal SSIM at ¼ size"),
        ),
    ),
)
