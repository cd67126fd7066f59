"""Tables of the paper that rest on the outcome of each image, recomputed by ``recompute_paper`` and numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from doc_data import RESULTS
from doc_tables import Cell, Printed, table
from recompute_paper import Figure, gaps, read, recompute, unpacked
from whorl.evaluation.image_counts import FEWEST

BASES = ("fgsm", "pgd", "mim", "dim")
SOURCES = {"inception": "inception_v3", "resnet18": "resnet18"}
ADAM = tuple(f"table{i}-inception-adam" for i in (1, 2, 3))
_OURS = " (ours)"


@cache
def _outcomes(name: str) -> Any:
    return read(RESULTS / "paper" / f"{name}-outcomes.json")


@cache
def _figures(name: str) -> dict[tuple[str, str, str, str], Figure]:
    return recompute(_outcomes(name))


@cache
def _recognised(name: str) -> dict[tuple[str, str], list[int]]:
    """By target and heading: of each pose, how many clean images."""
    data = _outcomes(name)
    clean = unpacked(data)[0].sum(-1)
    return {
        (column["target"], column["heading"]): clean[data["targets"].index(column["target"]), column["poses"]].tolist()
        for column in data["columns"]
    }


@cache
def _printed(name: str) -> dict[tuple[str, str, str, str], float]:
    """By source, target, heading and row."""
    return {
        (column["source"], column["target"], column["heading"], row): value
        for column in _outcomes(name)["columns"]
        for row, value in column["printed"].items()
    }


def _label(name: str, text: str) -> str:
    """The row that a label names; ours must say so, and no other may."""
    row = text.removesuffix(_OURS)
    if (row != text) != all(row != printed for *_, printed in _printed(name)):
        raise LookupError(f"{text!r} is said to be whose it is not")
    return row


def _source(name: str, wanted: str | None = None) -> str:
    """What a table was crafted on; of several, the one that is wanted."""
    [source] = {source for _, source in _outcomes(name)["rows"] if wanted in (None, source)}
    return str(source)


def _own(source: str, target: str) -> bool:
    """Whether source and target are the paper's own network, with a defence before the target or none."""
    return source == target.partition("+")[0] == "inception_v3"


def _cell(name: str, label: str, source: str, target: str, heading: str) -> Printed:
    """A rate with its marks, or how many clean images are recognised."""
    seen = _recognised(name)[target, heading]
    if label == "n":
        return Printed([sum(seen)])
    key = (source, target, heading, _label(name, label))
    value, _, _, marks = _figures(name)[key]
    values = Printed([value])
    values.few, values.marks = len(seen) == 1 and seen[0] < FEWEST, marks
    values.printed = [_printed(name)[key]] if key in _printed(name) else []
    return values


def _apart(name: str, key: tuple[str, str, str, str]) -> list[float]:
    """What a rate is above the printed one, with its interval."""
    return [value - _printed(name)[key] for value in _figures(name)[key][:3]]


def _target(label: str) -> str:
    """The network of a label that names the paper's first."""
    return label.rpartition("→ ")[2]


@table("paper-outcomes")
def _(name: str, *filters: str) -> Cell:
    """Rates with marks, or under "levels" what they are above the printed ones, with intervals.

    Of the target that a filter names, or else the row.
    """
    wanted = dict(one.split("=", 1) for one in filters)
    source = _source(name, wanted.get("source"))

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("evaluated on", "attack", "levels"):
            return None
        target = wanted["target"] if "target" in wanted else _target(row["evaluated on"])
        if "levels" in row:
            return _apart(name, (source, target, column, row["levels"]))
        return _cell(name, row["attack"], source, target, column)

    return cell


@table("paper-outcomes-targets")
def _(name: str, source: str = "") -> Cell:
    """Rates with marks, a column a target; of a table with several sources, those of one."""
    crafted_on = _source(name, source.removeprefix("source=") or None)

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        return _cell(name, row["attack"], crafted_on, _target(column), column)

    return cell


@table("paper-levels")
def _() -> Cell:
    """Means of tables 1 to 3 on the attacked Inception-v3: ours, the paper's, the difference and its interval."""

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        name, target = f"table{column.rpartition(' ')[2]}-inception", "inception_v3"
        key = (target, target, "mean", row["attack"])
        return [_figures(name)[key][0], _printed(name)[key], *_apart(name, key)]

    return cell


@cache
def _gaps(files: tuple[str, ...], first: str, second: str) -> dict[tuple[str, str], tuple[float, ...]]:
    return {**gaps([_outcomes(name) for name in files], first, second)}


def _twelve(source: str) -> tuple[str, ...]:
    """The tables whose poses are the paper's twelve."""
    return tuple(f"table{i}-{source}" for i in (1, 2, 3))


def _printed_gap(files: tuple[str, ...], source: str, target: str, first: str, second: str) -> float:
    """Of the paper, likewise the mean over the poses of some tables."""
    values = [
        _printed(name)[source, target, column["heading"], first]
        - _printed(name)[source, target, column["heading"], second]
        for name in files
        for column in _outcomes(name)["columns"]
        if (column["source"], column["target"]) == (source, target) and not column["extra"]
    ]
    return sum(values) / len(values)


@table("paper-gains")
def _(source: str) -> Cell:
    """How far an ai- attack is above the plain one over the twelve poses: ours, its interval, the paper's."""

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "evaluated on":
            return None
        base, files = column.lower(), _twelve(source)
        key = (SOURCES[source], _target(row["evaluated on"]))
        found = _gaps(files, f"ai-{base}", base)[key]
        return [*found[:3], _printed_gap(files, *key, f"ai-{base}", base)]

    return cell


@table("paper-gap")
def _(first: str, second: str, *files: str) -> Cell:
    """How far a row is above another over all poses of some tables that were crafted on one network."""
    source = _source(files[0])

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "evaluated on":
            return None
        key = (source, _target(row["evaluated on"]))
        if column == "the paper's":
            return [_printed_gap(files, *key, first, second)]
        gap = _gaps(files, first, second)[key]
        return list(gap)[:3] if column == "difference" else [gap[3]]

    return cell


def gaps_held(name: str, first: str, second: str) -> list[int]:
    """On how many targets our interval of a row's lead over another holds the paper's, and of how many."""
    found = _gaps((name,), first, second).items()
    held = [low <= _printed_gap((name,), *key, first, second) <= high for key, (_, low, high, _) in found]
    return [sum(held), len(held)]


def agreements_on_no_difference(name: str) -> int:
    """How many orderings agree because the paper printed the same figure twice and ours do not differ significantly."""
    printed, held = _printed(name), _outcomes(name)["orderings"]
    return sum(
        shown == "✓" and printed.get(key) == printed.get((*key[:3], other))
        for key, (*_, marks) in _figures(name).items()
        for other, shown in zip([b for a, b in held if a == key[3]], marks, strict=False)
    )


def orderings(name: str) -> list[int]:
    """How many agree with the paper, of how many, how many are the other way round, and not significant."""
    marks = Counter("".join(marks for *_, marks in _figures(name).values()))
    return [marks["✓"], marks.total(), marks["✗"], marks["~"]]


def levels(name: str, *, without: str = "") -> list[int]:
    """Of the poses' figures on the attacked Inception-v3: how many are within 5 points of the paper's, of how many."""
    near = [
        abs(_apart(name, key)[0]) <= 5
        for key in _printed(name)
        if _own(*key[:2]) and key[2] != "mean" and key[3] != without
    ]
    return [sum(near), len(near)]


def far_means(name: str) -> list[str]:
    """Rows but EOT whose mean on the attacked Inception-v3 is more than 5 points from the paper's."""
    means = [key for key in _printed(name) if _own(*key[:2]) and key[2] == "mean" and key[3] != "eot"]
    return [key[3] for key in means if abs(_apart(name, key)[0]) > 5]


def printed_range(name: str, row: str) -> list[float]:
    """The least and the most that the paper has for a row on the attacked network."""
    found = [value for (_, target, _, one), value in _printed(name).items() if (target, one) == ("inception_v3", row)]
    return [min(found), max(found)]


def no_gain(source: str, base: str) -> list[str]:
    """Targets on which ai- is not significantly ahead over the twelve poses."""
    found = _gaps(_twelve(source), f"ai-{base}", base).items()
    return [target for (_, target), (value, _, _, p) in found if not (value > 0 and p < 0.05)]


def row_is_ahead(name: str, first: str, second: str) -> list[str]:
    """Targets on which a row is significantly ahead of another, in the mean over the poses of a table."""
    return [target for (_, target), (value, _, _, p) in _gaps((name,), first, second).items() if value > 0 and p < 0.05]


def eot_is_above_the_paper() -> bool:
    """Whether our EOT is significantly above the printed rate wherever source and target are the paper's own."""
    return all(
        _apart(name, key)[1] > 0
        for name in _twelve("inception")
        for key in _printed(name)
        if _own(*key[:2]) and key[3] == "eot"
    )


def eot_is_unbeaten_white_box() -> bool:
    """Whether no row of tables 1 to 4 is significantly above EOT on the network that it was crafted on."""
    files = [f"table{i}-{source}" for source in SOURCES for i in (1, 2, 3, 4)]
    others = {name: [row for row, _ in _outcomes(name)["rows"] if row != "eot"] for name in files}
    return not any(
        source == target and value > 0 and p < 0.05
        for name, rows in others.items()
        for row in rows
        for (source, target), (value, _, _, p) in _gaps((name,), row, "eot").items()
    )


def only_differs(files: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether EOT with Adam is significantly above EOT with the sign on these targets, and nowhere else differs."""
    found = _gaps(tuple(files), "eot-adam", "eot").items()
    return [(target, value > 0) for (_, target), (value, _, _, p) in found if p < 0.05] == [(t, True) for t in targets]


def crossed(name: str) -> set[tuple[str, str, str]]:
    """Orderings that are significantly the other way round: heading, row, and what it is held against."""
    data = _outcomes(name)
    against = {row: [b for a, b in data["orderings"] if a == row] for row, _ in data["rows"]}
    return {
        (heading, row, other)
        for (_, _, heading, row), (*_, marks) in _figures(name).items()
        for other, shown in zip(against[row], marks, strict=False)
        if shown == "✗"
    }


@table("pgd-step")
def _() -> Cell:
    """Plain PGD on Inception-v3 by start and step."""
    name = "pgd-step"

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "PGD":
            return None
        source = "inception_v3"
        if row["PGD"] == "the paper":
            [value] = {printed for (_, _, heading, _), printed in _printed(name).items() if heading == column}
            return [value]
        return list(_figures(name)[source, source, column, row["PGD"]][:3])

    return cell


def pgd_differs(first: str, second: str) -> bool:
    """Whether two ways to run plain PGD differ significantly over all poses of ``pgd_step.py``."""
    [(_, _, _, p)] = _gaps(("pgd-step",), first, second).values()
    return p < 0.05
