"""Tables of docs/results/behind-defences.md, from the outcome of each image (``behind_defences.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from doc_data import HeldOut, read
from doc_tables import Cell, Printed, marked, page, table
from whorl.evaluation.image_counts import ImageCounts
from whorl.evaluation.statistics import Comparison, compare, holm, rate

ATTACKS = ("dim", "ai-dim", "ai-best")
GAINS = (("ai-best", "dim"), ("ai-best", "ai-dim"), ("ai-dim", "dim"))
ONE, SEVERAL = SOURCES = ("resnet18", "ensemble")
BARE = "efficientnet_lite2"
PLACES = {"poses": False, "as they are": True}


@cache
def _in_poses() -> HeldOut:
    return HeldOut(read("behind-defences-cpu.json"))


@cache
def _as_they_are() -> HeldOut:
    """Of the targets that were shown images in no pose alone."""
    data = _in_poses().data
    alone = [{"angle": 0, "scale": 1, "shift": [0, 0]}]
    return HeldOut({**data, "poses": alone, "recognised": data["recognised_as_they_are"]})


def targets(images: str) -> tuple[str, ...]:
    """Those that were evaluated on all photographs: over the poses, or as they are."""
    in_poses = [name for name, kept in _in_poses().data["recognised"].items() if kept and _all(kept)]
    alone = _as_they_are().data["recognised"] if PLACES[images] else {}
    return (*(name for name in in_poses if name not in alone), *alone)


def _all(kept: Mapping[str, Mapping[str, int]]) -> bool:
    return kept["clean"]["n"] == photographs()


def photographs() -> int:
    """How many were measured."""
    return len(_in_poses().data["ids"])


def _target(column: str) -> str:
    """As the data has it.

    >>> _target("bare"), _target("`jpeg`"), _target("mobilenet_v2.ens-at")
    ('efficientnet_lite2', 'efficientnet_lite2+jpeg', 'mobilenet_v2.ens-at')
    """
    name = column.strip("`")
    if name == "bare":
        return BARE
    return name if "." in name else f"{BARE}+{name}"


@cache
def _counts(images: str, target: str, source: str, attack: str) -> ImageCounts:
    alone = PLACES[images] and target in _as_they_are().data["recognised"]
    found = _as_they_are() if alone else _in_poses()
    return found.counts(target, f"{source}-{attack}-16", photographs(), identity=PLACES[images])


def success(images: str, target: str, source: str, attack: str) -> list[float]:
    """In percent, with its interval."""
    found = rate(_counts(images, target, source, attack))
    return [100 * value for value in (found.value, *found.interval)]


def recognised(images: str, target: str) -> int:
    """Clean images, in all poses together or as they are."""
    return int(_counts(images, target, ONE, ATTACKS[0]).eligible.sum())


@table("behind-defences")
def _(*words: str) -> Cell:
    """Success over the ``poses``, or ``as they are``."""
    images = " ".join(words)

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("source", "attack"):
            return None
        if row["source"] == "recognised clean":
            return [recognised(images, _target(column))]
        return success(images, _target(column), row["source"], row["attack"].partition(",")[0])

    return cell


Differences = Mapping[tuple[str, str, str], Comparison]
"""Of one table, corrected together: by what its first two columns say, and the target."""


Attacked = tuple[str, str]
"""A source and an attack."""


def _differences(images: str, pairs: Mapping[tuple[str, str], tuple[Attacked, Attacked]]) -> Differences:
    """The first of each pair less the second, on each target."""
    return holm(
        {
            (*names, target): compare(_counts(images, target, *first), _counts(images, target, *second))
            for names, (first, second) in pairs.items()
            for target in targets(images)
        }
    )


@cache
def gains(images: str) -> Differences:
    """One attack over another from the same source: by gain ("this over that"), source and target."""
    pairs = {(f"{a} over {b}", source): ((source, a), (source, b)) for a, b in GAINS for source in SOURCES}
    return _differences(images, pairs)


@cache
def several(images: str) -> Differences:
    """An attack from the ensemble over the same from one network: by "ensemble over resnet18", attack and target."""
    pairs = {(f"{SEVERAL} over {ONE}", attack): ((SEVERAL, attack), (ONE, attack)) for attack in ATTACKS}
    return _differences(images, pairs)


@cache
def behind(images: str) -> Differences:
    """An attack on the network behind a defence, less the same on the bare one: by source, attack and target.

    Of the clean images that both recognise, so that a difference is of the defence and not of the images.
    """
    found = {}
    for source in SOURCES:
        for attack in ATTACKS:
            for target in targets(images):
                if "+" in target:
                    one, other = (_counts(images, name, source, attack) for name in (target, BARE))
                    found[source, attack, target] = compare(one.shared_with(other), other.shared_with(one))
    return holm(found)


KINDS = {"gains": gains, "ensemble": several, "cost": behind}


@table("behind-defences-differences")
def _(kind: str, *words: str) -> Cell:
    """Of a kind, over the ``poses`` or ``as they are``; the columns that are no target say of what."""
    found = KINDS[kind](" ".join(words))

    def cell(row: Mapping[str, str], column: str) -> Printed | None:
        labels = [name for name in row if name in ("gain", "source", "attack")]
        if column in labels:
            return None
        first, second = (row[name].partition(",")[0] for name in labels)
        return marked(found[first, second, _target(column)])

    return cell


def significant(kind: str, images: str) -> set[tuple[str, str, str]]:
    """Where a difference is significant, either way."""
    return {cell for cell, one in KINDS[kind](images).items() if one.ahead}


def held_off() -> bool:
    """Whether a defence holds off ``dim`` from resnet18 behind ``bitdepth``, and nothing else significantly."""
    return all(significant("cost", images) == {(ONE, "dim", f"{BARE}+bitdepth")} for images in PLACES)


def ensemble_helps_the_weaker() -> bool:
    """Whether the ensemble's leads are on hardened networks or behind ``bitdepth``, and none is ``ai-best``'s."""
    found = [cell for images in PLACES for cell in significant("ensemble", images)]
    return all("." in target or "bitdepth" in target for _, _, target in found) and not any(
        attack == "ai-best" for _, attack, _ in found
    )


def lowest_gain() -> float:
    """The paper's ``ai-dim`` less ``dim`` from resnet18 behind ``resize-pad``, as they are: the largest loss of all."""
    worst = min((one.difference, cell) for cell, one in gains("as they are").items())
    assert worst[1] == ("ai-dim over dim", ONE, f"{BARE}+resize-pad"), worst
    assert all(one.difference >= worst[0] for one in gains("poses").values())
    return 100 * worst[0]


def verdicts(kind: str, images: str, first: str = "", second: str = "", which: str = "") -> list[int]:
    """In how many cells a difference is significantly above 0, of how many, and in how many below.

    Args:
        kind: one of :data:`KINDS`.
        images: over the ``poses`` or ``as they are``.
        first: what the first column says, or any.
        second: what the second says, or any.
        which: of targets, those with ``+`` (behind a defence) or ``.`` (hardened) in their name; or any.
    """
    kept = [
        one.ahead
        for (what, other, target), one in KINDS[kind](images).items()
        if first in ("", what) and second in ("", other) and which in target
    ]
    return [kept.count(1), len(kept), kept.count(-1)]


page(
    "docs/results/behind-defences.md",
    sentences=(
        ("Measured on the first {} of the [held-out photographs]", lambda: [photographs()]),
        (
            "over the poses it is significantly ahead of `dim` in {} of {} cells and behind in {}, and of `ai-dim` in "
            "{} of {} and behind in {}; as they are ahead of `dim` in {} of {} and behind in {}, and of `ai-dim` in {} "
            "of {} and behind in {}.",
            lambda: [
                count
                for images in PLACES
                for other in ("dim", "ai-dim")
                for count in verdicts("gains", images, f"ai-best over {other}")
            ],
        ),
        (
            "over the poses, behind the defences, it is significantly ahead of `dim` in {} of {} cells and behind in "
            "{}; on hardened networks ahead in {} of {} and behind in {}.",
            lambda: [count for which in "+." for count in verdicts("gains", "poses", "ai-dim over dim", which=which)],
        ),
        (
            "The largest loss, not significant, is of `ai-dim` from resnet18 behind `resize-pad`, as they are: {} "
            "points.",
            lambda: [lowest_gain()],
        ),
        (
            "Over the poses the ensemble is significantly ahead in {} of {} cells and behind in {}; as they are ahead "
            "in {} of {} and behind in {}.",
            lambda: [count for images in PLACES for count in verdicts("ensemble", images)],
        ),
        (
            "Over the poses success is significantly below that on the bare network in {} of {} cells, and above it in "
            "{}; as they are below it in {} of {} and above it in {}.",
            lambda: [count for images in PLACES for count in verdicts("cost", images)[::-1]],
        ),
    ),
    claims=(
        (
            "Each significant lead is on a hardened network or behind `bitdepth`; none is of `ai-best`.",
            ensemble_helps_the_weaker,
        ),
        ("Both are of `dim` from resnet18 behind `bitdepth`.", held_off),
        (
            "The largest loss, not significant, is of",
            lambda: (
                ("ai-dim over dim", "resnet18", "efficientnet_lite2+resize-pad")
                not in significant("gains", "as they are")
            ),
        ),
    ),
)
