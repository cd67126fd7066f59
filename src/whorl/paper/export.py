"""A comparison as Markdown, as CSV, as JSON, and as tables of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whorl import files
from whorl.evaluation import FEWEST
from whorl.paper.comparison import Compared, ComparedRow, ComparedTable, Cost, Value
from whorl.paper.declaration import full_title
from whorl.paper.orderings import LEVEL_ABOVE, MARKS
from whorl.report.content import Table
from whorl.report.result_table import ResultEntry, ResultRow, ResultTable, bold_means, markdown_row, rounded

LEGEND = (
    "Ours / the paper's, in percent; means over poses are unweighted, as the paper's; n: "
    "transformed clean images that the target recognises. "
    f"{MARKS['agrees']} the row stands to the one it is held against as in the paper, "
    f"{MARKS['differs']} the other way round, {MARKS['level']} ours do not differ significantly (paired by "
    f"image, Holm's correction, p ≥ {LEVEL_ABOVE:g}), {MARKS['undefined']} no rate."
)
CSV_COLUMNS = (
    *("item", "profile", "source", "target", "column", "attack", "ours", "printed"),
    *("low", "high", "n_clean_correct", "images", "marks", "difference", "ours_only", "kernel"),
)
LEVELS = (
    "Ours less the paper's, in points, with our 95% interval, for source and target are the paper's own networks; what "
    "another choice of images would have given the paper is not known."
)


def text_of(value: Value, digits: int = 1, *, interval: bool = False) -> str:
    """Write a figure: ours, the paper's, and how they stand to the row that they are held against.

    Args:
        value: the figure.
        digits: after the point.
        interval: whether to write ours with its interval, if it has one.

    >>> text_of(Value(ours=85.24, printed=94.9, marks="✓~")), text_of(Value(ours=None, printed=3.0))
    ('85.2 / 94.9 ✓~', '– / 3.0')
    """
    ours = "–" if value.ours is None else f"{value.ours:.{digits}f}"
    if interval and value.interval is not None:
        ours += " ({:.{d}f} to {:.{d}f})".format(*value.interval, d=digits)
    printed = "" if value.printed is None else f" / {value.printed:.{digits}f}"
    return f"{ours}{printed} {value.marks}".rstrip()


def rows_of(block: ComparedTable, *, intervals: bool = False) -> list[tuple[str, ...]]:
    """The rows of a table as text: the attacks, and below them how many images each column rests on.

    Where that differs from row to row, as of queries of the successes, it stands beside each figure.

    Args:
        block: the table.
        intervals: whether to write the interval of each of our figures too.
    """
    below = [{line.values[place].n for line in block.lines} for place in range(len(block.columns))]
    shared = all(len(counts) == 1 for counts in below)

    def text(value: Value) -> str:
        shown = text_of(value, block.digits, interval=intervals)
        return shown if shared else f"{shown}, n = {value.n}"

    rows = [(name_of(line), *(text(value) for value in line.values)) for line in block.lines]
    return [*rows, ("n", *(_counted(counts.pop()) for counts in below))] if rows and shared else rows


def name_of(line: ComparedRow) -> str:
    """What a row is called; one that the paper does not have is marked.

    >>> name_of(ComparedRow(attack="ri-dim", values=(), ours=True))
    'ri-dim (ours)'
    """
    return f"{line.attack} (ours)" if line.ours else line.attack


def level_rows(block: ComparedTable) -> list[tuple[str, ...]]:
    """How far our levels are from the printed ones, as text; no rows unless the networks are the paper's own."""

    def text(value: Value) -> str:
        if value.difference is None or value.printed is None:
            return "–"
        if value.interval is None:
            return f"{value.difference:+.1f}"
        low, high = (end - value.printed for end in value.interval)
        return f"{value.difference:+.1f} ({low:+.1f} to {high:+.1f})"

    lines = [line for line in block.lines if any(value.difference is not None for value in line.values)]
    return [(name_of(line), *map(text, line.values)) for line in lines]


def held_against(compared: Compared) -> str:
    """Say which rows are held against which, in the order of the marks."""
    pairs: dict[str, list[str]] = {}
    for one in compared.orderings:
        rivals = pairs.setdefault(one.first, [])
        rivals += [one.second] if one.second not in rivals else []
    said = "; ".join(f"{first} against {', then '.join(rivals)}" for first, rivals in pairs.items())
    return f"Held against each other: {said}." if said else ""


def cost_lines(costs: Iterable[Cost]) -> Iterator[str]:
    """Say what the attacks cost, and how they compare."""
    listed = list(costs)
    for cost in listed:
        paper = "" if cost.printed_seconds is None else f" (the paper: {cost.printed_seconds:,.0f} s)"
        yield f"{cost.attack}: {cost.gradients:,.0f} gradients an image, {cost.seconds:,.1f} s for 1,000{paper}."
    if len(listed) == 2:
        dear, cheap = sorted(listed, key=lambda cost: -cost.gradients)
        if cheap.gradients and cheap.seconds:
            ratios = (
                f"{dear.gradients / cheap.gradients:.0f} times the gradients, {dear.seconds / cheap.seconds:.0f} times"
            )
            printed = ""
            if dear.printed_seconds and cheap.printed_seconds:
                printed = f" (the paper: {dear.printed_seconds / cheap.printed_seconds:.0f} times)"
            yield f"{dear.attack} takes {ratios} the seconds of {cheap.attack}{printed}."


def markdown(compared: Compared, *, command: str = "") -> str:
    """Write a comparison as a section of Markdown.

    Args:
        compared: what to write.
        command: how it was made, if that is to be said.
    """
    item = compared.item
    parts = [f"### {heading(compared)}", item.about, f"Profile {compared.profile}: {'; '.join(compared.players)}."]
    for block in compared.blocks:
        parts += [f"**{block.title}**", _markdown_table(block, rows_of(block))]
        if far := level_rows(block):
            parts += [LEVELS, _markdown_table(block, far)]
    parts += [" ".join(cost_lines(compared.costs)), compared.summary]
    if any(value.marks for block in compared.blocks for line in block.lines for value in line.values):
        parts.append(f"{LEGEND} {held_against(compared)}")
    elif any(value.printed is not None for block in compared.blocks for line in block.lines for value in line.values):
        parts.append("Ours / the paper's, in percent.")
    if compared.differing:
        parts.append("The other way round:\n\n" + "\n".join(f"- {one}" for one in compared.differing))
    parts += [" ".join(compared.notes), f"```sh\n{command}\n```" if command else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_table(block: ComparedTable, rows: Iterable[tuple[str, ...]]) -> str:
    shown = [("attack", *block.columns), ("---",) * (1 + len(block.columns))]
    for name, *values in rows:
        attack, *mark = name.split(" ", 1)
        shown.append((" ".join((f"`{attack}`" if attack != "n" else attack, *mark)), *values))
    return "\n".join(map(markdown_row, shown))


def heading(compared: Compared) -> str:
    """As in ``Table 1: Success rates under rotation (kernel of the authors' code, σ = l/6)``."""
    return full_title(compared.item, compared.kernel)


def csv_rows(compared: Compared) -> Iterator[tuple[str | int | float, ...]]:
    """Give every figure in the order of ``CSV_COLUMNS``; what is not there stays empty."""
    for block in compared.blocks:
        for line in block.lines:
            for target, column, value in zip(block.targets, block.columns, line.values, strict=True):
                numbers = map(rounded, (value.ours, value.printed, *(value.interval or (None, None))))
                yield (
                    *(compared.item.name, compared.profile, block.source, target, column, line.attack),
                    *(*numbers, value.n, compared.images, value.marks),
                    *(rounded(value.difference), int(line.ours), compared.kernel),
                )


def write_csv(path: str | Path, several: Iterable[Compared]) -> None:
    """Write comparisons as CSV in long form; the file appears whole or not at all."""
    files.write_csv(Path(path), [CSV_COLUMNS, *(row for compared in several for row in csv_rows(compared))])


def result_tables(compared: Compared) -> list[ResultTable]:
    """The tables of a comparison as ``whorl.report`` writes them for people: LaTeX and wide CSV."""
    held = held_against(compared)
    tables = []
    for number, block in enumerate(compared.blocks, start=1):
        rows = [ResultRow((name_of(line),), tuple(map(_result, line.values))) for line in block.lines]
        about = [f"{heading(compared)}. {block.title}."]
        if compared.item.kind not in ("queries", "photographs"):
            about.append("n: transformed images that the target recognises clean.")
        if any(value.printed is not None for line in block.lines for value in line.values):
            about.append("Behind the stroke: the paper's figure.")
        about += [bold_means(rows, "every row that it is held against"), held] if held else []
        tables.append(
            ResultTable(
                name=f"{compared.item.name}-{number}",
                subject=("table", block.title),
                about=tuple(about),
                keys=("attack",),
                columns=block.columns,
                rows=tuple(rows),
                digits=block.digits,
                unit="queries" if block.digits == 0 else "%",
            )
        )
    return tables


def _result(value: Value) -> ResultEntry:
    few = value.n < FEWEST and value.ours is not None
    return ResultEntry(
        value=value.ours,
        n=value.n,
        interval=value.interval,
        printed=value.printed,
        best=value.ahead and not few,
        few=few,
    )


def as_json(compared: Compared) -> dict[str, Any]:
    """Give everything as JSON values."""
    return {
        "name": compared.item.name,
        "title": compared.item.title,
        "about": compared.item.about,
        "profile": compared.profile,
        "kernel": compared.kernel,
        "images": compared.images,
        "players": list(compared.players),
        "blocks": [asdict(block) for block in compared.blocks],
        "orderings": [
            {
                **{name: getattr(one, name) for name in ("first", "second", "where", "ours", "printed", "verdict")},
                "p_value": None if one.comparison is None else one.comparison.p_value,
            }
            for one in compared.orderings
        ],
        "costs": [asdict(cost) for cost in compared.costs],
        "summary": compared.summary,
        "notes": list(compared.notes),
    }


def report_tables(compared: Compared) -> tuple[Table, ...]:
    """Turn a comparison into tables that a report shows as they are.

    Where the paper printed figures, the last one lists the orderings that are the other way round.
    """
    said = (compared.summary, *cost_lines(compared.costs), *compared.notes)
    about = " ".join(filter(None, said))
    tables = []
    for block in compared.blocks:
        title, columns = f"{heading(compared)}: {block.title}", ("attack", *block.columns)
        rows, far = rows_of(block, intervals=True), level_rows(block)
        legend = f"{LEGEND} {held_against(compared)}" if compared.item.printed else about
        notes = (*(_note(line) for line in block.lines), *[""] * (len(rows) - len(block.lines)))
        tables.append(Table(title=title, about=legend, columns=columns, rows=tuple(rows), notes=notes))
        if far:
            tables.append(Table(title=f"{title}: levels", about=LEVELS, columns=columns, rows=tuple(far)))
    if compared.item.printed:
        summary = Table(
            title=f"{heading(compared)}: orderings that are the other way round",
            about=about,
            columns=("pair, column and difference in points",),
            rows=tuple((str(one),) for one in compared.differing) or (("none",),),
        )
        tables.append(summary)
    return tuple(tables)


def _note(line: ComparedRow) -> str:
    marks = "".join(value.marks for value in line.values)
    wrong, level = marks.count(MARKS["differs"]), marks.count(MARKS["level"])
    parts = [f"{wrong} of {len(marks)} the other way round"] if wrong else []
    parts += [f"{level} not significant"] if level else []
    return ", ".join(parts)


def _counted(n: int) -> str:
    """How many images a column rests on; marked if they are too few."""
    return f"{n} (few)" if n < FEWEST else str(n)
