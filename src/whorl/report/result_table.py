"""Success rates as people publish them: an attack a row, a target a column; as LaTeX, Markdown and wide CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whorl.evaluation import FEWEST, Comparison, Rate, rate
from whorl.report.latex import latex_label, latex_text
from whorl.report.series import Transfer, bound, headline_rate, transfer_of
from whorl.report.tables import FEW, UNDEFINED
from whorl.runs.overrides import SWEPT
from whorl.runs.results import Cell, joined_images, swept_columns

FEW_MARK = "†"
EPS = "ε"
TEST = "(exact paired test by image, Holm, 5%)"
Compared = Mapping[tuple[str, str, str, str], Comparison]
Wide = tuple[str | float | int, ...]
_COUNTED = ("n", "few")


@dataclass(frozen=True, kw_only=True)
class ResultEntry:
    """One figure.

    Attributes:
        value: in percent, or whatever the table is about; None if there is none.
        n: how many it is of.
        interval: 95%, likewise; None if there is none.
        printed: what a paper printed in its place; None if nothing.
        best: whether it is set in bold; the table says what that means.
        few: whether it rests on too few images.
        any_pose: of the images recognised in some of several poses, those that some pose fools, in percent.
    """

    value: float | None
    n: int = 0
    interval: tuple[float, float] | None = None
    printed: float | None = None
    best: bool = False
    few: bool = False
    any_pose: float | None = None


class ResultRow(NamedTuple):
    """A row of a table."""

    keys: tuple[bool | int | float | str | None, ...]
    """What it is about, as many as the table has ``keys``: names, and values of settings; None where it has none."""
    entries: tuple[ResultEntry, ...]
    """One for each column."""
    group: object = None
    """Rows of one group are compared with each other, and stand together."""


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table for people.

    Attributes:
        name: a short one, for references.
        subject: what the whole table is about: the heading of that in a CSV file, and its value.
        about: sentences to stand below it.
        keys: headings of what a row is about.
        columns: headings of the figures.
        rows: in groups.
        digits: after the point.
        unit: of the figures.
    """

    name: str
    subject: tuple[str, str]
    about: tuple[str, ...]
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    digits: int = 1
    unit: str = "%"

    @property
    def counts(self) -> tuple[int, ...] | None:
        """How many each column's figures are of, where it is the same in all rows; None where it is not."""
        below = [{row.entries[place].n for row in self.rows} for place in range(len(self.columns))]
        return tuple(counts.pop() for counts in below) if all(len(counts) == 1 for counts in below) else None

    def sentences(self, *, intervals: bool) -> Iterator[str]:
        """What stands below the table."""
        yield from self.about
        entries = [entry for row in self.rows for entry in row.entries]
        if intervals and any(entry.interval for entry in entries):
            yield "In brackets: 95% intervals over images."
        if any(entry.few for entry in entries):
            yield f"{FEW_MARK} {FEW.capitalize()}."

    def texts(self, entry: ResultEntry, *, intervals: bool) -> tuple[str, str, str]:
        """A figure, its mark, and what stands behind it: its interval, what was printed, and n if it is its own."""
        figure = UNDEFINED if entry.value is None else f"{entry.value:.{self.digits}f}"
        behind = []
        if intervals and entry.interval is not None:
            behind.append("[{:.{d}f}, {:.{d}f}]".format(*entry.interval, d=self.digits))
        if entry.printed is not None:
            behind.append(f"/ {entry.printed:.{self.digits}f}")
        if self.counts is None:
            behind.append(f"(n = {entry.n})")
        return figure, FEW_MARK if entry.few else "", " ".join(behind)


def result_tables(cells: Sequence[Cell], comparisons: Compared | None = None, *, name: str) -> list[ResultTable]:
    """Sum up what was measured, a table for each source.

    Rates are pooled over the poses, without those of too few images. Attacks with the same bound, and the same seed
    where it was swept, stand together; one is best if it is significantly ahead of all others of these.

    Args:
        cells: what was measured.
        comparisons: as in ``whorl.report.Content``; without them nothing is called best.
        name: of the tables; the source's is added.
    """
    sources = dict.fromkeys(cell.source for cell in cells)
    return [_table(name, [cell for cell in cells if cell.source == source], comparisons or {}) for source in sources]


def _table(name: str, cells: Sequence[Cell], comparisons: Compared) -> ResultTable:
    source = cells[0].source
    columns = list(dict.fromkeys(map(transfer_of, cells)))
    versions: dict[tuple[str, float | None], dict[Transfer, list[Cell]]] = {}
    for cell in cells:
        versions.setdefault((cell.attack, cell.eps), {}).setdefault(transfer_of(cell), []).append(cell)
    first = {version: next(iter(own.values()))[0] for version, own in versions.items()}
    groups = {version: (cell.eps, cell.swept.get("seed")) for version, cell in first.items()}
    rates = {(version, at): headline_rate(own) for version, mine in versions.items() for at, own in mine.items()}
    several = len({eps for _, eps in versions}) > 1 or any("eps" in cell.swept for cell in cells)
    swept = swept_columns(cells)
    rows = []
    for group in dict.fromkeys(groups.values()):
        rivals = [version for version, own in groups.items() if own == group]
        for version in rivals:
            cell = first[version]
            shown = cell.attack.partition(SWEPT)[0] if cell.swept else cell.attack
            keys = (shown, *([cell.eps] if several else []), *map(cell.swept.get, swept.values()))
            entries = []
            for at in columns:
                others = [other for other, _ in rivals if other != cell.attack and ((other, cell.eps), at) in rates]
                keyed = [_ahead(comparisons, cell.attack, other, at) for other in others]
                best = bool(keyed) and all(keyed)
                entries.append(_entry(rates.get((version, at)), best=best, cells=versions[version].get(at, ())))
            rows.append(ResultRow(keys, tuple(entries), group))
    said = list(_about(cells, columns, list(rates.values())))
    if comparisons and len(versions) > 1:
        seeds = " and seed" if len({seed for _, seed in groups.values()}) > 1 else ""
        kind = f" with the same {EPS}{seeds}" if len(set(groups.values())) > 1 else ""
        said.append(bold_means(rows, f"every other attack{kind} in its column"))
    return ResultTable(
        name=f"{name}-{source}" if source else name,
        subject=("source", source),
        about=tuple(said),
        keys=("attack", *([EPS] if several else []), *swept),
        columns=tuple(at.target for at in columns),
        rows=tuple(rows),
    )


def bold_means(rows: Iterable[ResultRow], others: str) -> str:
    """Say what bold means, or why there is none."""
    if any(entry.best for row in rows for entry in row.entries):
        return f"Bold: significantly ahead of {others} {TEST}."
    return f"None is bold: none is significantly ahead of {others} {TEST}."


def _ahead(comparisons: Compared, attack: str, other: str, at: Transfer) -> bool:
    """Whether the paired test says so, whichever way round it was made."""
    found = comparisons.get((attack, other, at.source, at.target))
    reverse = comparisons.get((other, attack, at.source, at.target))
    return (found is not None and found.ahead > 0) or (reverse is not None and reverse.ahead < 0)


def _entry(one: Rate | None, *, best: bool, cells: Sequence[Cell]) -> ResultEntry:
    if one is None or math.isnan(one.value):
        return ResultEntry(value=None, n=0 if one is None else one.n)
    return ResultEntry(
        value=100 * one.value,
        n=one.n,
        interval=in_percent(one.interval),
        best=best and not one.few,
        few=one.few,
        any_pose=_any_pose(cells),
    )


def in_percent(interval: tuple[float, float]) -> tuple[float, float] | None:
    """An interval of shares in percent; None where it is undefined."""
    low, high = interval
    return None if math.isnan(low) else (100 * low, 100 * high)


def _any_pose(cells: Sequence[Cell]) -> float | None:
    images = joined_images(cells) if len({cell.pose for cell in cells}) > 1 else None
    found = math.nan if images is None else rate(images.any_pose()).value
    return None if math.isnan(found) else 100 * found


def _about(cells: Sequence[Cell], columns: Sequence[Transfer], rates: Sequence[Rate]) -> Iterator[str]:
    source, poses = cells[0].source, len({cell.pose for cell in cells})
    images = max(cell.counts.n for cell in cells)
    crafted = f" of attacks crafted on {source}" if source else ""
    pooled = f"pooled over {poses} poses" if poses > 1 else f"in the pose {cells[0].pose}"
    yield f"Success rate (%){crafted}, {pooled}, on {images} image{'s' * (images != 1)}."
    yield "n: transformed images that the target recognises clean."
    attacked = [at.target for at in columns if at.white_box]
    if attacked:
        yield f"White-box: {', '.join(attacked)}."
    left_out = max(one.left_out for one in rates)
    if left_out:
        yield f"Poses in which a target recognises fewer than {FEWEST} images are left out, {left_out} at most."


def _key_texts(table: ResultTable, row: ResultRow) -> Iterator[str]:
    """What a row is about, as people write it: 8/255."""
    for heading, key in zip(table.keys, row.keys, strict=True):
        if heading == EPS or isinstance(key, float):
            yield bound(None if key is None else float(key))
        else:
            yield "" if key is None else str(key)


def latex(tables: Iterable[ResultTable], *, intervals: bool = False) -> str:
    r"""Write tables for LaTeX, with the package booktabs: each may be included with ``\input`` or copied.

    Args:
        tables: which.
        intervals: whether to write them beside the figures.
    """
    head = "% Written by whorl. In the preamble: \\usepackage{booktabs}\n"
    return head + "".join(f"\n{_latex_table(table, intervals=intervals)}" for table in tables)


def _latex_table(table: ResultTable, *, intervals: bool) -> str:
    def row(texts: Iterable[str]) -> str:
        return f"    {' & '.join(texts)} \\\\"

    lines = [row(latex_text(text) for text in (*table.keys, *table.columns)), "    \\midrule"]
    for place, one in enumerate(table.rows):
        if place and one.group != table.rows[place - 1].group:
            lines.append("    \\midrule")
        shown = []
        for entry in one.entries:
            figure, mark, behind = map(latex_text, table.texts(entry, intervals=intervals))
            bold = f"\\textbf{{{figure}}}" if entry.best else figure
            shown.append(bold + mark + (f" {{\\scriptsize {behind}}}" if behind else ""))
        lines.append(row((*map(latex_text, _key_texts(table, one)), *shown)))
    if table.counts is not None and table.rows:
        blank = [""] * (len(table.keys) - 1)
        lines += ["    \\midrule", row(("$n$", *blank, *(f"{n}" for n in table.counts)))]
    caption = latex_text(" ".join(table.sentences(intervals=intervals)))
    return "\n".join(
        (
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{caption}}}",
            f"  \\label{{tab:{latex_label(table.name)}}}",
            f"  \\begin{{tabular}}{{{'l' * len(table.keys)}{'r' * len(table.columns)}}}",
            "    \\toprule",
            *lines,
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
            "",
        )
    )


def markdown(tables: Iterable[ResultTable], *, intervals: bool = False) -> str:
    """Write tables as Markdown; see :func:`latex`."""
    return "\n".join(_markdown_table(table, intervals=intervals) for table in tables)


def markdown_row(texts: Iterable[str]) -> str:
    """Write a row of a Markdown table."""
    return f"| {' | '.join(texts)} |"


def _markdown_table(table: ResultTable, *, intervals: bool) -> str:
    what, which = table.subject
    lines = [f"**{what} {_code(which)}**", ""] if which else []
    lines.append(markdown_row((*table.keys, *map(_code, table.columns))))
    lines.append(markdown_row((*["---"] * len(table.keys), *["---:"] * len(table.columns))))
    for one in table.rows:
        shown = []
        for entry in one.entries:
            figure, mark, behind = table.texts(entry, intervals=intervals)
            shown.append((f"**{figure}**" if entry.best else figure) + mark + (f" {behind}" if behind else ""))
        lines.append(markdown_row((*map(_code, _key_texts(table, one)), *shown)))
    if table.counts is not None and table.rows:
        lines.append(markdown_row(("n", *[""] * (len(table.keys) - 1), *map(str, table.counts))))
    return "\n".join((*lines, "", " ".join(table.sentences(intervals=intervals)), ""))


def _code(text: str) -> str:
    """A name as it is, in a cell of a table."""
    plain = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else ""


def wide_rows(tables: Sequence[ResultTable]) -> Iterator[Wide]:
    """The tables one below the other, headings first: a row an attack, and for each column its figure, n and interval.

    Over several poses also the share of the images that some pose fools.

    What is not there stays empty.
    """
    keys = list(dict.fromkeys(key for table in tables for key in table.keys))
    columns = list(dict.fromkeys(column for table in tables for column in table.columns))
    entries = [entry for table in tables for row in table.rows for entry in row.entries]
    further = {"printed": [one.printed for one in entries], "any pose": [one.any_pose for one in entries]}
    given = [part for part, values in further.items() if any(value is not None for value in values)]
    parts = ("n", "low", "high", "few", *given)
    subject = next((table.subject[0] for table in tables), "source")
    units = {column: f" ({table.unit})" for table in reversed(tables) for column in table.columns}
    yield (subject, *("eps" if key == EPS else key for key in keys), *_headings(units, columns, parts))
    for table in tables:
        for row in table.rows:
            known = {key: value for key, value in zip(table.keys, row.keys, strict=True) if value is not None}
            there = dict(zip(table.columns, row.entries, strict=True))
            figures = (_wide(there.get(column), parts) for column in columns)
            yield (table.subject[1], *(known.get(key, "") for key in keys), *(one for some in figures for one in some))


def _headings(units: Mapping[str, str], columns: Iterable[str], parts: Sequence[str]) -> Iterator[str]:
    for column in columns:
        yield f"{column}{units[column]}"
        yield from (f"{column} {part}{'' if part in _COUNTED else units[column]}" for part in parts)


def _wide(entry: ResultEntry | None, parts: Sequence[str]) -> Wide:
    if entry is None:
        return ("",) * (1 + len(parts))
    low, high = entry.interval or (None, None)
    figures = {"low": low, "high": high, "printed": entry.printed, "any pose": entry.any_pose}
    shown: dict[str, str | float | int] = {name: rounded(number) for name, number in figures.items()}
    shown |= {"n": entry.n, "few": "yes" if entry.few else ""}
    return (rounded(entry.value), *(shown[part] for part in parts))


def rounded(number: float | None) -> float | str:
    """A figure as a CSV file has it; what is not there stays empty."""
    return "" if number is None else round(number, 4)
