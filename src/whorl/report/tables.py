"""The tables of a report as plain values, ready for a template."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from whorl.evaluation import FEWEST, Comparison, Pose, Rate
from whorl.evaluation.rate_table import percent
from whorl.geometry.pose import FURTHER_NUMBERS, PoseNumber
from whorl.report.content import CutOut, Grouped
from whorl.report.gallery import CLEAN
from whorl.report.series import Overall, Series, Transfer, attacks, overall, series, target_name, transfers
from whorl.runs.results import Cell

UNDEFINED = "–"
FEW = f"fewer than {FEWEST} images"


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """One place in a table.

    Attributes:
        text: a percentage, or a dash where there is none; or what a row is about.
        value: the share itself, in [0, 1], or the number to sort by; None where there is none.
        note: what is written small below it.
        best: whether no other in its column is better.
    """

    text: str
    value: float | None
    note: str = ""
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class MeanTable:
    """Over all poses, or all photographs: a row for each attack, a column for each target.

    Attributes:
        source: what the attacks were crafted on; "" if unknown.
        columns: the targets.
        over: what the figures are over, in words.
        success: rows of success rates, pooled, of the images whose clean version is recognised.
        means: the same as unweighted means over the poses, as in the paper's tables.
        worst: rows of shares of images that some pose fools, of those recognised in some pose.
        accuracy: rows of accuracies, of all images.
        clean: the accuracies of clean images.
        images: how many each pose has, in words; "" if they were not counted pose by pose.
    """

    source: str
    columns: tuple[Transfer, ...]
    over: str
    success: tuple[tuple[str, tuple[TableEntry, ...]], ...]
    means: tuple[tuple[str, tuple[TableEntry, ...]], ...] = ()
    worst: tuple[tuple[str, tuple[TableEntry, ...]], ...] = ()
    accuracy: tuple[tuple[str, tuple[TableEntry, ...]], ...]
    clean: tuple[TableEntry, ...]
    images: str = ""


@dataclass(frozen=True, kw_only=True)
class DetailTable:
    """One transfer, pose by pose, or step by step of something else.

    Attributes:
        transfer: whose answers.
        title: what it shows.
        group: heading over the columns that say what a row is about.
        keys: headings of these.
        attacks: headings.
        rows: what it is about, success rates by attack, accuracy of clean images, accuracies by attack.
    """

    transfer: Transfer
    title: str
    group: str
    keys: tuple[str, ...]
    attacks: tuple[str, ...]
    rows: tuple[tuple[tuple[TableEntry, ...], tuple[TableEntry, ...], TableEntry, tuple[TableEntry, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """Two attacks on the same images: who succeeded where the other did not, and whether that may be chance."""

    attack: str
    other: str
    transfer: str
    n: int
    difference: str
    ahead: int
    behind: int
    p_value: str
    verdict: str


def mean_tables(cells: Sequence[Cell]) -> list[MeanTable]:
    """A table for each source."""
    found = series(cells)
    return [_mean_table(found, source) for source in dict.fromkeys(transfer.source for transfer in transfers(found))]


def _mean_table(found: Mapping[Series, tuple[Cell, ...]], source: str) -> MeanTable:
    own = {key: cells for key, cells in found.items() if key.transfer.source == source}
    columns, names = tuple(transfers(own)), attacks(own)
    summed = {key: overall(cells) for key, cells in own.items()}
    tops = {
        transfer: _top([one.rate.value for key, one in summed.items() if key.transfer == transfer])
        for transfer in columns
    }

    def rows(entry: Callable[[Overall, Transfer], TableEntry]) -> tuple[tuple[str, tuple[TableEntry, ...]], ...]:
        made = []
        for name in names:
            known = [(summed.get(Series(name, transfer)), transfer) for transfer in columns]
            made.append((name, tuple(_entry(math.nan) if one is None else entry(one, at) for one, at in known)))
        return tuple(made)

    many = span(len(cells) for cells in own.values())
    clean = [next(one for key, one in summed.items() if key.transfer == transfer) for transfer in columns]
    several = many != "1"
    return MeanTable(
        source=source,
        columns=columns,
        over=f"pooled over {many} poses" if several else "in one pose",
        success=rows(lambda one, at: rate_entry(one.rate, best=one.rate.value == tops[at])),
        means=rows(lambda one, _: rate_entry(one.mean)) if several else (),
        worst=rows(lambda one, _: _entry(math.nan) if one.worst_case is None else rate_entry(one.worst_case))
        if several
        else (),
        accuracy=rows(lambda one, _: _entry(one.accuracy)),
        clean=tuple(_entry(one.clean_accuracy) for one in clean),
        images=span(cell.counts.n for cells in own.values() for cell in cells),
    )


def rate_entry(one: Rate, *, best: bool = False) -> TableEntry:
    """A rate with its interval, and how many transformed images it is of; marked where those are too few."""
    if math.isnan(one.value):
        return _entry(one.value)
    parts = [interval_text(one.interval), f"n = {one.n}", f"{one.left_out} poses left out"]
    note = ", ".join(part for part in parts[: 3 if one.left_out else 2] if part)
    return _entry(one.value, note=f"{note}; {FEW}" if one.few else note, best=best and not one.few)


def best_marked(entries: Sequence[TableEntry]) -> list[TableEntry]:
    """The entries of a column, the highest marked, if another is lower."""
    top = _top([math.nan if one.value is None else one.value for one in entries])
    return [replace(one, best=one.value is not None and one.value == top) for one in entries]


def pose_tables(cells: Sequence[Cell]) -> list[DetailTable]:
    """A table for each transfer."""
    found = series(cells)
    return [_pose_table(found, transfer) for transfer in transfers(found)]


def _pose_table(found: Mapping[Series, tuple[Cell, ...]], transfer: Transfer) -> DetailTable:
    own = {key.attack: {cell.pose: cell for cell in cells} for key, cells in found.items() if key.transfer == transfer}
    rows = []
    for pose in dict.fromkeys(pose for by_pose in own.values() for pose in by_pose):
        cells = [by_pose.get(pose) for by_pose in own.values()]
        clean = next(cell for cell in cells if cell is not None)
        rows.append((pose, cells, clean.counts.clean_accuracy))
    there = {name for pose, _, _ in rows for name in pose.changed}
    further = [number for number in FURTHER_NUMBERS if number.name in there]
    keys = ("angle", "scale", "shift", *(number.words for number in further))
    shown = [(_pose_keys(pose, further), cells, clean) for pose, cells, clean in rows]
    return _detail_table(transfer, str(transfer), ("pose", keys), tuple(own), shown)


def _pose_keys(pose: Pose, further: Sequence[PoseNumber]) -> tuple[TableEntry, ...]:
    values = [pose.changed.get(number.name, number.neutral) for number in further]
    return (
        TableEntry(text=f"{pose.angle:g}°", value=pose.angle),
        TableEntry(text=f"{pose.scale:g}", value=pose.scale),
        TableEntry(text="{:g}, {:g}".format(*pose.shift), value=pose.shift[0]),
        *(TableEntry(text=f"{value:g}", value=value) for value in values),
    )


def cut_out_tables(cut: CutOut) -> list[MeanTable]:
    """Over all photographs: a table for each source, or one of clean images alone."""
    clean = _clean_shares(cut.cells)
    attacked = [cell for cell in cut.cells if cell.attack != CLEAN]
    over = "over all photographs"
    if not attacked:
        columns = tuple(Transfer("", target, white_box=False) for target in clean)
        shares = tuple(_entry(share) for share in clean.values())
        return [MeanTable(source="", columns=columns, over=over, success=(), accuracy=(), clean=shares)]
    return [
        replace(
            table,
            over=over,
            images="",
            clean=tuple(_entry(clean.get(transfer.target, math.nan)) for transfer in table.columns),
        )
        for table in mean_tables(attacked)
    ]


def group_tables(group: Grouped) -> list[DetailTable]:
    """A table for each transfer, step by step of what was measured."""
    steps = {step: series(cell for cell in cells if cell.attack != CLEAN) for step, cells in group.steps.items()}
    clean = {step: _clean_shares(cells) for step, cells in group.steps.items()}
    every = dict.fromkeys(key for found in steps.values() for key in found)
    seen = transfers(every) or [
        Transfer("", target, white_box=False)
        for target in dict.fromkeys(t for shares in clean.values() for t in shares)
    ]
    tables = []
    for transfer in seen:
        names = attacks(key for key in every if key.transfer == transfer)
        rows = []
        for step in sorted(group.steps):
            cells = [next(iter(steps[step].get(Series(name, transfer), ())), None) for name in names]
            key = TableEntry(text=f"{step:g}{group.unit}", value=step)
            rows.append(((key,), cells, clean[step].get(transfer.target, math.nan)))
        tables.append(
            _detail_table(transfer, f"By {group.by}: {transfer}", ("measured", (group.by,)), tuple(names), rows)
        )
    return tables


def _clean_shares(cells: Iterable[Cell]) -> dict[str, float]:
    """By target: the share of clean images that it recognises."""
    return {target_name(cell): cell.counts.accuracy for cell in cells if cell.attack == CLEAN}


def _detail_table(
    transfer: Transfer,
    title: str,
    headings: tuple[str, tuple[str, ...]],
    names: tuple[str, ...],
    given: Iterable[tuple[tuple[TableEntry, ...], Sequence[Cell | None], float]],
) -> DetailTable:
    """Lay rows out: what each is about, its cells by attack, and the accuracy of clean images."""
    rows = []
    for keys, cells, clean in given:
        top = _top([cell.counts.rate for cell in cells if cell is not None])
        rates = tuple(
            _entry(math.nan, note="" if cell is None else f"0 of {cell.counts.n} recognised")
            if cell is None or not cell.counts.n_clean_correct
            else _entry(
                cell.counts.rate,
                note=f"{cell.counts.n_success} of {cell.counts.n_clean_correct}"
                + (f"; {FEW}" if cell.counts.few else ""),
                best=cell.counts.rate == top,
            )
            for cell in cells
        )
        shares = tuple(_entry(math.nan if cell is None else cell.counts.accuracy) for cell in cells)
        rows.append((keys, rates, _entry(clean), shares))
    group, heads = headings
    return DetailTable(transfer=transfer, title=title, group=group, keys=heads, attacks=names, rows=tuple(rows))


def comparison_rows(comparisons: Mapping[tuple[str, str, str, str], Comparison]) -> list[ComparisonRow]:
    """A row for each comparison, the better attack first."""
    rows = []
    for (attack, other, source, target), made in comparisons.items():
        first, second, found = (attack, other, made) if made.leads else (other, attack, made.swapped())
        rows.append(
            ComparisonRow(
                attack=first,
                other=second,
                transfer=str(Transfer(source, target, white_box=False)),
                n=found.n,
                difference=points_text(found),
                ahead=found.b,
                behind=found.c,
                p_value="< 0.001" if found.p_value < 0.001 else f"{found.p_value:.3f}",
                verdict=f"{first} is ahead" if found.ahead > 0 else "not significant",
            )
        )
    return rows


def span(counts: Iterable[int]) -> str:
    """The least and the most of some counts.

    >>> span([20, 12, 15]), span([8, 8])
    ('12 to 20', '8')
    """
    every = sorted(counts)
    return " to ".join(str(count) for count in dict.fromkeys((every[0], every[-1])))


def points_text(found: Comparison) -> str:
    """A difference in points, with its interval.

    >>> points_text(Comparison(n=100, b=9, c=1, difference=0.08, interval=(0.02, 0.141)))
    '8.0 (2.0 to 14.1)'
    """
    if math.isnan(found.difference):
        return UNDEFINED
    low, high = found.interval
    return f"{100 * found.difference:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def interval_text(interval: tuple[float, float]) -> str:
    """An interval in whole percent.

    >>> interval_text((0.517, 0.86))
    '52 to 86%'
    """
    return "" if math.isnan(interval[0]) else f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f}%"


def interval_words(rate: float, interval: tuple[float, float]) -> str:
    """A rate with its interval, in words."""
    if math.isnan(rate):
        return "no rate"
    if math.isnan(interval[0]):
        return f"{100 * rate:.1f}%"
    return f"{100 * rate:.1f}% (95% interval {100 * interval[0]:.0f} to {100 * interval[1]:.0f}%)"


def _top(rates: Sequence[float]) -> float | None:
    """The highest, if another is lower: where all are level, none stands out."""
    defined = [rate for rate in rates if not math.isnan(rate)]
    return max(defined) if defined and min(defined) < max(defined) else None


def _entry(share: float, *, note: str = "", best: bool = False) -> TableEntry:
    return TableEntry(text=percent(share), value=None if math.isnan(share) else share, note=note, best=best)
