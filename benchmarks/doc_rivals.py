"""Tables of docs/frontier/rivals.md and docs/results/targeted.md, from the outcome of each image (``rivals.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from doc_data import HeldOut, read
from doc_tables import Cell, Printed, apart, marked, page, table
from whorl.evaluation.image_counts import ImageCounts
from whorl.evaluation.statistics import Comparison, compare, holm, rate

UNTARGETED, TARGETED = "rivals-resnet18.json", "rivals-targeted-resnet18.json"
OPS = "ops/published"
# What stands beside rivals as published: ours with these gradients, and EOT with its own.
_BESIDE = {"dim": "10", "ai-dim": "10", "ai-best": "10", "ai-max": "200", "eot": "2500"}
_OURS = ("dim", "ai-dim", "ai-best", "ai-max")
_IMAGES = {"poses": False, "as it is": True}
_WHERE = tuple((images, kind) for images in _IMAGES for kind in ("plain", "hardened"))


@cache
def _found(file: str) -> HeldOut:
    return HeldOut(read(file))


def networks(file: str, kind: str = "all") -> tuple[str, ...]:
    """Those that answered: ``plain``, ``hardened``, or ``all``."""
    return tuple(
        one for one in _found(file).data["recognised"] if kind == "all" or (kind == "hardened") == ("." in one)
    )


def photographs(file: str = UNTARGETED) -> int:
    """How many there are."""
    return len(_found(file).data["ids"])


def _cell(row: Mapping[str, str], budget: str, eps: str) -> str:
    """The label of a row's attack at a budget, as the data has it."""
    name = row["attack"].partition(",")[0].lower()
    own = _BESIDE.get(name, budget) if budget == "published" else budget
    return f"{name}/{own}-{eps}"


def measured(label: str, file: str = UNTARGETED) -> bool:
    """Whether all networks have answered for a cell."""
    return all(label in cells for cells in _found(file).data["recognised"].values())


def _of(label: str, file: str) -> int:
    return int(min(cells[label]["n"] for cells in _found(file).data["recognised"].values()))


@cache
def _counts(file: str, label: str, kind: str, images: str, n: int) -> ImageCounts:
    """A row for each network, poses pooled."""
    return _found(file).mean(networks(file, kind), label, n, identity=_IMAGES[images])


def rated(label: str, kind: str, images: str, file: str = UNTARGETED) -> list[float]:
    """The mean over networks of the pooled rate in percent, with its interval."""
    found = rate(_counts(file, label, kind, images, _of(label, file)), "mean")
    return [100 * value for value in (found.value, *found.interval)]


@cache
def lead(first: str, second: str, kind: str, images: str, file: str = UNTARGETED) -> Comparison:
    """How far one is ahead of another in the mean over networks, on the images that both have."""
    n = min(_of(first, file), _of(second, file))
    ours, other = (_counts(file, label, kind, images, n) for label in (first, second))
    return compare(ours, other, "mean")


def spent(label: str, file: str = UNTARGETED) -> list[float]:
    """Gradients an image, the mean over the images."""
    return [float(np.mean(_found(file).data["cost"][label]["gradients"]))]


@table("rivals")
def _(budget: str) -> Cell:
    """Attacks with about so many gradients, or ``published``; columns such as ``poses, plain``."""

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        label = _cell(row, budget, "16")
        if column in ("attack", "gradients"):
            return spent(label) if column == "gradients" else None
        images, _, kind = column.partition(", ")
        return rated(label, kind, images)

    return cell


def rivals(budget: str, eps: str) -> list[str]:
    """Cells of those that are not ours, with about so many gradients or as published."""
    labels = [label for label in _found(UNTARGETED).data["cost"] if label.endswith(f"-{eps}") and measured(label)]
    kept = {budget, "2500"} if budget == "published" else {budget}
    return [
        label
        for label in labels
        if label.rpartition("-")[0].partition("/")[2] in kept and label.partition("/")[0] not in _OURS
    ]


@cache
def leads(ours: str, budget: str, eps: str) -> Mapping[tuple[str, str, str], Comparison]:
    """Of ours, such as ``ai-best/10``, over each rival: by its cell, images and kind of network, with Holm's."""
    return holm(
        {
            (label, images, kind): lead(f"{ours}-{eps}", label, kind, images)
            for label in rivals(budget, eps)
            for images, kind in _WHERE
        }
    )


@table("rivals-leads")
def _(eps: str, ours: str, budget: str) -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "over":
            return None
        images, _, kind = column.partition(", ")
        label = _cell({"attack": row["over"]}, budget, eps)
        return marked(leads(ours, budget, eps)[label, images, kind]) if measured(label) else []

    return cell


def ahead_and_behind(ours: str, budget: str, eps: str, images: str, kind: str) -> list[int]:
    """Over how many rivals ours is significantly ahead, and behind."""
    found = [one.ahead for (_, *where), one in leads(ours, budget, eps).items() if where == [images, kind]]
    return [found.count(1), found.count(-1)]


def behind(ours: str, budget: str, eps: str) -> list[tuple[str, str, str]]:
    """Where ours is significantly behind: the rival's cell, images and kind of network."""
    return [where for where, one in leads(ours, budget, eps).items() if one.ahead == -1]


@table("rivals-tally")
def _() -> Cell:
    """Rows: ours, its gradients and the rivals, ``about 10``, ``as published``; columns such as ``poses, plain ✓``."""

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        images, _, rest = column.partition(", ")
        if images not in _IMAGES:
            return None
        kind, mark = rest.split()
        ours, budget = f"{row['ours']}/{row['gradients']}", row["rivals"].rpartition(" ")[2]
        return [ahead_and_behind(ours, budget, "16", images, kind)["✓✗".index(mark)]]

    return cell


GOALS = tuple((images, kind) for images in _IMAGES for kind in ("all", "plain", "hardened"))


@cache
def over_ops() -> Mapping[tuple[str, str], Comparison]:
    """The lead of ``ai-max`` over OPS as published at ε 16: by images and kind of network, with Holm's correction."""
    return holm({(images, kind): lead("ai-max/200-16", f"{OPS}-16", kind, images) for images, kind in GOALS})


def ops_goal_is_met(images: str, kind: str) -> bool:
    """Significantly ahead of OPS under poses and on hardened networks; not more than a point below elsewhere."""
    found = over_ops()[images, kind]
    return found.ahead == 1 if images == "poses" or kind == "hardened" else 100 * found.difference >= -1


@table("rivals-ops")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        images, kind = row["images"], row["networks"]
        labels = {"ai-max": "ai-max/200-16", "OPS": f"{OPS}-16"}
        if (name := column.strip("`")) in labels:
            return rated(labels[name], kind, images)[:1]
        if column == "difference":
            found = over_ops()[images, kind]
            return [*apart(found), found.p_value]
        if column != "met":
            return None
        shown = Printed()
        shown.marks = "✓" if ops_goal_is_met(images, kind) else "✗"
        return shown

    return cell


def _targeted(row: Mapping[str, str], name: str = "attack") -> str:
    """The cell of a row, whose gradients are how many it spends: rivals are as published."""
    attack = row[name].partition(",")[0].lower()
    budget = row["gradients"] if attack in _OURS else "published"
    return f"{attack}/{budget}-16"


@table("targeted")
def _() -> Cell:
    """Columns such as ``poses, plain``, and gradients."""

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        label = _targeted(row)
        if column in ("attack", "gradients"):
            return spent(label, TARGETED) if column == "gradients" else None
        images, _, kind = column.partition(", ")
        return rated(label, kind, images, TARGETED)

    return cell


@table("targeted-networks")
def _(images: str) -> Cell:
    named = {"poses": "poses", "identity": "as it is"}[images]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        label = _targeted(row)
        if column in ("attack", "gradients"):
            return spent(label, TARGETED) if column == "gradients" else None
        found = rate(_found(TARGETED).counts(column, label, _of(label, TARGETED), identity=_IMAGES[named]))
        return [100 * value for value in (found.value, *found.interval)]

    return cell


def targeted_rivals() -> list[str]:
    """Cells of those that are not ours."""
    return [label for label in _found(TARGETED).data["cost"] if label.partition("/")[0] not in _OURS]


def targeted_ours() -> list[str]:
    """Cells of ours."""
    return [label for label in _found(TARGETED).data["cost"] if label not in targeted_rivals()]


def best_rival(images: str, kind: str = "all") -> str:
    """The rival with the highest rate."""
    return max(targeted_rivals(), key=lambda label: rated(label, kind, images, TARGETED)[0])


@cache
def over_the_best() -> Mapping[tuple[str, str, str], Comparison]:
    """The lead of each of ours over the best rival there: by cell, images and kind of network, with Holm's."""
    return holm(
        {
            (ours, images, kind): lead(ours, best_rival(images, kind), kind, images, TARGETED)
            for ours in targeted_ours()
            for images, kind in GOALS
        }
    )


def targeted_goal_is_met() -> bool:
    """At least the best rival with 50 gradients and with 300, over all networks, under poses and as it is."""
    return all(
        over_the_best()[f"ai-best/{gradients}-16", images, "all"].difference >= 0
        for gradients in (50, 300)
        for images in _IMAGES
    )


@table("targeted-best")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("attack", "gradients"):
            return None
        images, _, kind = column.partition(", ")
        return marked(over_the_best()[_targeted(row), images, kind])

    return cell


page(
    "docs/frontier/rivals.md",
    sentences=(
        ("The first {} of the [held-out photographs]", lambda: [photographs()]),
        ("was to be above OPS with its {} at", lambda: spent(f"{OPS}-16")),
        (
            "No difference is significant: {} over the poses, {} as the image is, over all networks.",
            lambda: [100 * over_ops()[images, "all"].difference for images in ("poses", "as it is")],
        ),
    ),
    claims=(
        (
            "the mean over four plain networks of other families, and over five hardened ones",
            lambda: [len(networks(UNTARGETED, kind)) for kind in ("plain", "hardened")] == [4, 5],
        ),
        (
            "`ai-max` is level with OPS, at a 45th of its gradients, and not ahead of it.** No difference is "
            "significant",
            lambda: (
                not any(one.ahead for one in over_ops().values())
                and round(spent(f"{OPS}-16")[0] / spent("ai-max/200-16")[0]) == 45
            ),
        ),
        (
            "On plain networks both fool all that is recognised",
            lambda: all(
                rated(label, "plain", images)[0] == 100
                for label in ("ai-max/200-16", f"{OPS}-16")
                for images in ("poses", "as it is")
            ),
        ),
        (
            "No rival is significantly ahead of ours in any of these cases",
            lambda: (
                not any(
                    behind(ours, budget, "16")
                    for ours, budget in (
                        *(("ai-best/10", budget) for budget in ("10", "published")),
                        ("ai-best/50", "50"),
                        *(("ai-max/200", budget) for budget in ("200", "published")),
                    )
                )
            ),
        ),
    ),
)


page(
    "docs/results/targeted.md",
    sentences=(
        ("The first {} of the [held-out photographs]", lambda: [photographs(TARGETED)]),
        (
            "and with 300 it is {} points ahead under poses and {} as it is, over all networks.** With 10 it is behind "
            "on images as they are, by {}. On plain networks as they are nothing is significant from 50 gradients on: "
            "{} with 50, {} with 300.",
            lambda: [
                sign * 100 * over_the_best()[f"ai-best/{gradients}-16", images, kind].difference
                for sign, gradients, images, kind in (
                    (1, 300, "poses", "all"),
                    (1, 300, "as it is", "all"),
                    (-1, 10, "as it is", "all"),
                    (1, 50, "as it is", "plain"),
                    (1, 300, "as it is", "plain"),
                )
            ],
        ),
    ),
    claims=(
        (
            "mean over four plain networks of other families and over five hardened ones",
            lambda: [len(networks(TARGETED, kind)) for kind in ("plain", "hardened")] == [4, 5],
        ),
        ("**With 50 gradients it is, and with 300 it is", targeted_goal_is_met),
        (
            "With 10 it is behind on images as they are",
            lambda: over_the_best()["ai-best/10-16", "as it is", "all"].ahead == -1,
        ),
        (
            "On plain networks as they are nothing is significant from 50 gradients on",
            lambda: (
                not any(
                    over_the_best()[f"{ours}-16", "as it is", "plain"].ahead
                    for ours in ("ai-best/50", "ai-max/200", "ai-best/300")
                )
            ),
        ),
    ),
)
