"""Table 7: score-based attacks, by what they start from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whorl.data import Images, load_images, load_samples
from whorl.evaluation import Comparison, mean_interval, wilson
from whorl.models.zoo import find_device
from whorl.paper.cast import Cast, cast, load_profile
from whorl.paper.comparison import Compared, ComparedTable, Value
from whorl.paper.declaration import PaperOptions, not_run
from whorl.paper.item import Item, Kernel, PaperNetwork, with_kernel
from whorl.paper.orderings import Ordering, corrected, marks_of
from whorl.progress import Progress, silent
from whorl.report.result_table import in_percent
from whorl.runs.declaration import AttackSpec
from whorl.runs.networks import split_source
from whorl.runs.settings import read_settings

if TYPE_CHECKING:
    from whorl.runs.query_rows import QueryRow

NO_START = "none"
BUDGET = 10_000

_Spent = Mapping[str, Mapping[str, int]]
"""By "row target" and image, queries; a failure counts one more than the budget."""


def reproduce_queries(
    item: Item, out: Path, options: PaperOptions, *, budget: int = BUDGET, progress: Progress = silent
) -> Compared:
    """Run table 7, going on where an earlier run stopped, and put it beside what the paper printed.

    Args:
        item: table 7.
        out: folder of its results.
        options: what to run.
        budget: most queries for each image.
        progress: called with each attack that is done.
    """
    from whorl.runs.query_table import table7

    profile = load_profile(options.profile)
    who, images = cast(item, profile), _images(options.data, options.limit, options.size or profile.size)
    [(_, surrogates)] = who.sources
    starts: dict[str, list[str]] = {}
    for spec in options.rows(item):
        starts.setdefault(spec.name, []).append(_start(spec.title))
    rows: list[QueryRow] = []
    spent: dict[str, dict[str, int]] = {}
    for attack, own in starts.items():
        made = table7(
            images,
            out,
            attacks=(attack,),
            starts=own,
            start_settings={start: _start_settings(start, options.kernel) for start in own if start != NO_START},
            targets=who.target_names,
            surrogates=split_source(surrogates),
            budget=budget,
            seed=options.seed,
            device=find_device(options.device),
            progress=progress,
        )
        rows += made.rows
        spent |= {f"{row.label} {row.target}": made.spent(row, failure=budget + 1) for row in made.rows}
    return replace(compare_queries(item, rows, spent, who, profile.name, budget=budget), kernel=options.kernel)


def compare_queries(
    item: Item, rows: Sequence[QueryRow], spent: _Spent, who: Cast, profile: str, *, budget: int = BUDGET
) -> Compared:
    """Put success rates and queries beside the paper's.

    Rows are ordered by queries: on each image that both were tried on, the one that took fewer has its vote.

    Args:
        item: table 7.
        rows: ours.
        spent: by row and target (``"nes-ai-dim efficientnet_lite0+jpeg"``) and image, queries; one more than the
            budget for a failure.
        who: the players.
        profile: its name.
        budget: most queries for each image.
    """
    ours = {(row.label, row.target): row for row in rows}
    labels = [row for row in item.rows if any(label == row for label, _ in ours)]
    orderings = corrected(_orderings(item, ours, spent, who))
    marks, [(network, surrogates)] = marks_of(orderings), who.sources

    def rate(label: str, place: int) -> Value:
        part, name = who.targets[place]
        row, printed = ours.get((label, name)), item.printed[network.role][label][0][_column(item, part)]
        share = None if row is None or row.asr is None else 100 * row.asr
        interval = None if row is None else in_percent(wilson(row.n_success, row.n))
        return Value(ours=share, printed=printed, interval=interval, n=row.n if row else 0)

    def queries(label: str, place: int) -> Value:
        part, name = who.targets[place]
        row, printed = ours.get((label, name)), item.printed_queries[label][0][_column(item, part)]
        spent_on = (None, 0) if row is None else (row.mean_queries, row.n_success)
        won = np.array([one for one in spent.get(f"{label} {name}", {}).values() if one <= budget], np.float64)
        low, high = mean_interval(won)
        interval = None if math.isnan(low) else (low, high)
        mark = marks.get((label, name), "")
        return Value(ours=spent_on[0], printed=printed, interval=interval, n=spent_on[1], marks=mark)

    crafted = f"starts crafted on {network.heading} → {surrogates}"
    columns = [(f"{part.heading} → {name}", name) for part, name in who.targets]
    table = partial(ComparedTable.of, source=surrogates, columns=columns, rows={label: label for label in labels})
    notes = [*who.notes, "Rows are held against each other by queries, fewer being better: +100 is 100 queries fewer."]
    notes += not_run(item, labels)
    notes += [f"At most {budget:,} queries an image, not {BUDGET:,}."] if budget != BUDGET else []
    return Compared(
        item=item,
        profile=profile,
        images=max((row.n_images for row in rows), default=0),
        players=tuple(who.lines()),
        blocks=(
            table(f"success rate, %, {crafted}", value=rate),
            table(f"mean queries of the successes, {crafted}", value=queries, digits=0),
        ),
        orderings=orderings,
        costs=(),
        notes=tuple(notes),
    )


def _column(item: Item, part: PaperNetwork) -> int:
    return [one.role for one in item.targets].index(part.role)


def _orderings(item: Item, ours: Mapping[tuple[str, str], QueryRow], spent: _Spent, who: Cast) -> Iterator[Ordering]:
    for part, name in who.targets:
        for first, second in item.orderings:
            one, other = ours.get((first, name)), ours.get((second, name))
            if one is not None and other is not None:
                printed = {row: item.printed_queries[row][0][_column(item, part)] for row in (first, second)}
                yield Ordering.of(
                    (first, second),
                    name,
                    # The fewer queries, the better the attack.
                    ours=(other.mean_queries, one.mean_queries),
                    printed=(printed[second], printed[first]),
                    comparison=_fewer(spent.get(f"{first} {name}", {}), spent.get(f"{second} {name}", {})),
                )


def _fewer(first: Mapping[str, int], second: Mapping[str, int]) -> Comparison:
    """Let each image vote for the attack that took fewer queries.

    >>> _fewer({"a": 1, "b": 5, "c": 9}, {"a": 3, "b": 5, "d": 1})
    Comparison(n=2, b=1, c=0, difference=nan, interval=(nan, nan), p=None, adjusted=None)
    """
    shared = first.keys() & second.keys()
    leads = [first[name] - second[name] for name in shared]
    return Comparison(n=len(shared), b=sum(lead < 0 for lead in leads), c=sum(lead > 0 for lead in leads))


def _start(label: str) -> str:
    """What a row starts from.

    >>> _start("nes-ai-dim"), _start("nes")
    ('ai-dim', 'none')
    """
    return label.partition("-")[2] or NO_START


def _start_settings(start: str, kernel: Kernel) -> dict[str, Any]:
    """What the attack that a row starts from is set to: as in the other tables.

    >>> _start_settings("ai-dim", "reference"), _start_settings("pgd", "reference")
    ({'estimator': AffineInvariant(sigma='reference')}, {})
    """
    return read_settings(with_kernel(AttackSpec(name=start), kernel).settings)


def _images(data: str | Path | None, limit: int | None, size: int | None) -> Images:
    return load_samples(limit, size=size or 224) if data is None else load_images(data, limit=limit, size=size)
