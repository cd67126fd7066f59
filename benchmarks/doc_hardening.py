"""Tables of docs/hardening/frontier.md, from the outcome of each image (``hardening_frontier.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from doc_data import HeldOut, read
from doc_tables import Cell, Printed, page, table
from whorl.evaluation.image_counts import ImageCounts, bca_interval
from whorl.evaluation.statistics import Comparison, compare, holm, rate
from whorl.models.defended import shipped

BASE = "efficientnet_lite0"
ATTACKS = ("ai-best", "ai-best-50", "dim", "ai-dim", "ri-dim")
EPS = ("8", "16")
HALF, WHOLE = "best-at@0.5", "best-at@1"
PLACES = {"poses": False, "as they are": True}
_CLEAN = "clean"
# Whose training had examples of an attack's kind, at radii that reach this one.
_MET: Mapping[tuple[str, str], Sequence[str]] = {
    **{("dim", eps): ("ens-at", "alp", "ai-at", HALF, WHOLE) for eps in EPS},
    **{("ai-dim", eps): ("ai-at",) for eps in EPS},
    ("ai-best", "8"): (HALF, WHOLE),
}


@cache
def judged() -> HeldOut:
    """On the photographs that chose nothing."""
    return HeldOut(read("hardening-frontier-resnet18.json"))


@cache
def chosen_on() -> HeldOut:
    """On those that chose the share of the way."""
    return HeldOut(read("hardening-frontier-choice.json"))


def photographs(found: HeldOut) -> int:
    """How many there are."""
    return len(found.data["ids"])


def _network(name: str) -> str:
    """As the data has it.

    >>> _network("original"), _network("best-at@1")
    ('efficientnet_lite0', 'efficientnet_lite0.best-at@1')
    """
    return BASE if name == "original" else f"{BASE}.{name}"


@cache
def _fooled(found: HeldOut, network: str, cell: str, *, identity: bool = False) -> ImageCounts:
    return found.counts(_network(network), cell, photographs(found), identity=identity)


@cache
def _recognised(found: HeldOut, network: str, cell: str = _CLEAN, *, identity: bool = False) -> ImageCounts:
    """Of all photographs, whatever the network makes of the clean ones."""
    answers = found.reached(_network(network), cell, photographs(found), identity=identity)
    return ImageCounts(np.ones_like(answers), answers)


def _shown(counts: ImageCounts) -> list[float]:
    """In percent, with its interval."""
    made = rate(counts)
    return [100 * value for value in (made.value, *made.interval)]


def _apart(made: Comparison) -> list[float]:
    return [100 * value for value in (made.difference, *made.interval)]


def success(network: str, cell: str, *, identity: bool = False, choice: bool = False) -> list[float]:
    """In percent, with its interval: on the photographs that chose nothing, or on those of the choice."""
    return _shown(_fooled(chosen_on() if choice else judged(), network, cell, identity=identity))


@cache
def lost(network: str, *, choice: bool = False) -> list[float]:
    """Points of top-1 on images as they are, paired with the original's, with their interval."""
    found = chosen_on() if choice else judged()
    original, own = (_recognised(found, name, identity=True) for name in ("original", network))
    return _apart(compare(original, own))


@cache
def above_half(network: str, *, choice: bool = False) -> list[float]:
    """How far ``ai-best``'s success at ε = 8/255 is above half of the original's, in points, with its interval."""
    found = chosen_on() if choice else judged()
    own, original = (_fooled(found, name, "ai-best-8") for name in (network, "original"))
    value = own.value() - original.value() / 2
    drawn = own.drawn("pooled") - original.drawn("pooled") / 2
    ends = bca_interval(drawn, value, own.without_each("pooled") - original.without_each("pooled") / 2)
    return [100 * one for one in (value, *ends)]


def shares() -> list[str]:
    """The networks that were chosen among."""
    return [name.partition(".")[2] for name in chosen_on().data["recognised"] if "@" in name]


@table("hardening-shares")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "share of the way":
            return None
        share = row["share of the way"].partition(",")[0]
        network = "original" if share == "0" else f"best-at@{share}"
        if column == "clean top-1":
            return _shown(_recognised(chosen_on(), network, identity=True))
        if column == "lost":
            return [] if network == "original" else lost(network, choice=True)
        return success(network, "ai-best-8", identity=PLACES[column.partition(", ")[2]], choice=True)

    return cell


@table("hardening-frontier")
def _(eps: str) -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        network = row["network"]
        if column == "network":
            return None
        if column == "clean top-1":
            return _shown(_recognised(judged(), network, identity=True))
        if column.startswith("recognised"):
            return [int(_fooled(judged(), network, "dim-8").eligible.sum())]
        if ("met" in row[column]) != (network in _MET.get((column.strip("`"), eps), ())):
            raise ValueError("the cell must say whether its network has met such examples")
        return success(network, f"{column.strip('`')}-{eps}")

    return cell


@table("hardening-remaining")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "network":
            return None
        name, _, eps = column.partition(", ε ")
        return _shown(_recognised(judged(), row["network"], f"{name.strip('`')}-{eps}" if eps else _CLEAN))

    return cell


@cache
def _beside() -> Mapping[tuple[str, str, str, str], Comparison]:
    """How much less often a network is fooled than ``ai-at``, and recognises more, with Holm's correction.

    By attack ("clean" for what is recognised), ε, network and place.
    """
    found = {}
    for network in (HALF, WHOLE):
        for place, identity in PLACES.items():
            own, other = (_recognised(judged(), name, identity=identity) for name in (network, "ai-at"))
            found[_CLEAN, "", network, place] = compare(own, other)
            for attack in ATTACKS:
                for eps in EPS:
                    cell = f"{attack}-{eps}"
                    own, other = (_fooled(judged(), name, cell, identity=identity) for name in (network, "ai-at"))
                    found[attack, eps, network, place] = compare(other, own)
    return holm(found)


@table("hardening-beside")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("images", "ε"):
            return None
        attack, eps = row["images"], row["ε"].strip("–")
        network, _, place = column.partition(", ")
        made = _beside()[attack, eps, network.strip("`"), place]
        shown = Printed([*_apart(made), made.p_value])
        shown.marks = {1: "✓", 0: "", -1: "✗"}[made.ahead]
        return shown

    return cell


def tests() -> int:
    """Differences that are corrected together."""
    return len(_beside())


def verdicts(network: str) -> list[int]:
    """In how many cells it is significantly less often fooled than ``ai-at``, of how many, and more often."""
    found = [one.ahead for (attack, _, name, _), one in _beside().items() if name == network and attack != _CLEAN]
    return [found.count(1), len(found), found.count(-1)]


def rule_chose() -> bool:
    """Whether the rule gives the share that is called chosen: the least fooled of those that lose 3 points at most."""
    kept = [name for name in shares() if lost(name, choice=True)[0] <= chosen_on().data["choice"]["most_lost"] + 1e-9]
    least = min(kept, key=lambda name: _fooled(chosen_on(), name, "ai-best-8").value())
    return bool(_network(least) == chosen_on().data["choice"]["chosen"] == _network(HALF))


def ahead_in(network: str, attacks: Sequence[str], sign: int) -> bool:
    """Whether it is so in every cell of these attacks: 1 less often fooled than ``ai-at``, -1 more often, 0 neither."""
    return all(
        one.ahead == sign for (attack, _, name, _), one in _beside().items() if name == network and attack in attacks
    )


def all_behind_but(network: str, but: tuple[str, str, str]) -> bool:
    """Whether ``dim``, ``ai-dim`` and ``ri-dim`` fool it significantly more often than ``ai-at``, but for one cell."""
    cells = {
        (attack, eps, place): one.ahead for (attack, eps, name, place), one in _beside().items() if name == network
    }
    met = {cell: ahead for cell, ahead in cells.items() if cell[0] in ("dim", "ai-dim", "ri-dim")}
    return met.pop(but) == 0 and set(met.values()) == {-1}


def plain_gain(*, shared: bool) -> list[float]:
    """How much less often ``dim`` and ``ai-dim`` fool the whole training than ``ai-at``: least and most, in points.

    On the clean images that each recognises, or that both do.
    """
    found = []
    for cell in (f"{attack}-{eps}" for attack in ("dim", "ai-dim") for eps in EPS):
        for identity in PLACES.values():
            own, other = (_fooled(judged(), name, cell, identity=identity) for name in (WHOLE, "ai-at"))
            pair = (other.shared_with(own), own.shared_with(other)) if shared else (other, own)
            found.append(100 * (pair[0].value() - pair[1].value()))
    return [min(found), max(found)]


def clean_beside(network: str, place: str) -> int:
    """1 where it recognises significantly more clean images than ``ai-at``, -1 fewer, 0 neither."""
    return _beside()[_CLEAN, "", network, place].ahead


def no_share_holds() -> bool:
    """Whether each share, on the photographs of the choice, loses too much or is above half."""
    most = chosen_on().data["choice"]["most_lost"]
    return all(lost(name, choice=True)[0] > most or above_half(name, choice=True)[0] > 0 for name in shares())


def trained() -> list[float]:
    """Steps, and images of a batch."""
    record = read("hardening-frontier-training.json")
    return [record["steps"], record["batch"]]


def white_box() -> list[float]:
    """Images that the trained network recognises under its own gradient after the last step, and of how many."""
    last = read("hardening-frontier-training.json")["history"][-1]
    return [last["white_box"] * last["held_out"], last["held_out"]]


def from_held_out() -> float:
    """The largest difference, in points over the poses, to the same rates where they were measured before."""
    before, n = HeldOut(), photographs(judged())
    return max(
        abs(100 * _fooled(judged(), network, cell).value() - 100 * before.counts(_network(network), cell, n).value())
        for network in ("original", "ens-at", "alp", "ai-at")
        for cell in judged().data["settings"]
    )


page(
    "docs/hardening/frontier.md",
    sentences=(
        (
            "`ai-best` succeeds in {}%, and against the original in {}%: {} points ({} to {}) above half of that, for "
            "{} points ({} to {}) of top-1. Against `best-at@1`, the weights at the end of the training, it succeeds "
            "in {}%, which is {} points ({} to {}) below half, and they cost {} points ({} to {}).",
            lambda: [
                *(success(name, "ai-best-8")[0] for name in (HALF, "original")),
                *above_half(HALF),
                *lost(HALF),
                success(WHOLE, "ai-best-8")[0],
                *(-above_half(WHOLE)[end] for end in (0, 2, 1)),
                *lost(WHOLE),
            ],
        ),
        ("One training of {} steps with batches of {} at 192 pixels", trained),
        ("after the last step it recognised {} of the {} images that were held out", white_box),
        (
            "0.8 is {} points above half of the original's rate and loses {}, and 0.9, which is {} below half, loses "
            "{}.",
            lambda: [
                above_half("best-at@0.8", choice=True)[0],
                lost("best-at@0.8", choice=True)[0],
                -above_half("best-at@0.9", choice=True)[0],
                lost("best-at@0.9", choice=True)[0],
            ],
        ),
        (
            "Judged on the {} [held-out photographs]",
            lambda: [photographs(judged())],
        ),
        (
            "over the poses these rates differ by up to {} points from those",
            lambda: [from_held_out()],
        ),
        ("Holm's correction for the {} differences", lambda: [tests()]),
        (
            "It has lost fewer points of top-1, {} where `ai-at` has lost {}, which",
            lambda: [lost(name)[0] for name in (HALF, "ai-at")],
        ),
        (
            "**The whole training is significantly less often fooled in {} of {} cells, and more often in {}**",
            lambda: verdicts(WHOLE),
        ),
        (
            "by {} to {} points, but by {} to {} on the images that both recognise",
            lambda: [*plain_gain(shared=False), *plain_gain(shared=True)],
        ),
    ),
    claims=(
        ("one that `ai-best` fools least over the poses, on 500 NIPS17 photographs", rule_chose),
        ("On these photographs no share meets both halves of the bar", no_share_holds),
        (
            "**That bar is not reached.**",
            lambda: above_half(HALF)[1] > 0 and lost(WHOLE)[1] > 3,
        ),
        (
            "**The chosen share is no better than `ai-at` against `ai-best`, and worse against what `ai-at` resists.** "
            "Against `ai-best`, with 10 gradients or 50, no difference is significant. `dim`, `ai-dim` and `ri-dim` "
            "fool it significantly more often in every cell but one: `ai-dim` at ε = 8/255, images as they are.",
            lambda: (
                ahead_in(HALF, ("ai-best", "ai-best-50"), 0) and all_behind_but(HALF, ("ai-dim", "8", "as they are"))
            ),
        ),
        (
            "which is not significant either.",
            lambda: clean_beside(HALF, "as they are") == 0,
        ),
        (
            "in every cell of `ai-best`, and of `ri-dim`, which neither has met.",
            lambda: ahead_in(WHOLE, ("ai-best", "ai-best-50", "ri-dim"), 1),
        ),
        (
            "which is not significant: the clean images that only `ai-at` recognises are easily fooled.",
            lambda: ahead_in(WHOLE, ("dim", "ai-dim"), 0) and plain_gain(shared=False)[0] > plain_gain(shared=True)[0],
        ),
        (
            "It recognises significantly fewer clean images in the poses.",
            lambda: clean_beside(WHOLE, "poses") == -1,
        ),
        ("**These weights are not part of the package**", lambda: not any("best-at" in name for name in shipped())),
        ("the nine shares above", lambda: len(shares()) == 9),
    ),
)
