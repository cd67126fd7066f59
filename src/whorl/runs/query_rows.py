"""Rows of table 7: what the records of single images come to, attack by attack, start by start, target by target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from whorl.files import json_text, write_csv, write_file

Facts = dict[str, Any]
"""What is known of an image: whether it counts, and then success, queries, saved_success and seconds."""
Key = tuple[str, str, str]
"""Attack, start, target."""


@dataclass(frozen=True, kw_only=True)
class QueryRow:
    """One attack from one start on one target.

    Attributes:
        attack: its name.
        start: what it started from, or "none".
        target: name of the target, defence included.
        n_images: images that were looked at.
        n: those of them that count: the target classifies the clean image correctly.
        n_success: those of the counted that the attack brought to a wrong answer within the budget.
        asr: n_success / n; None where nothing counts.
        mean_queries: over the successes, as in the paper; None where there are none.
        mean_queries_all: over all that count, failures at what they spent.
        median_queries_all: likewise.
        n_start_success: successes that cost one query, because the start was enough.
        n_saved_success: images answered wrongly still after rounding to 8 bits (counted outside the budget).
        queries: all of them together.
        seconds: time spent.
    """

    attack: str
    start: str
    target: str
    n_images: int
    n: int
    n_success: int
    asr: float | None
    mean_queries: float | None
    mean_queries_all: float | None
    median_queries_all: float | None
    n_start_success: int
    n_saved_success: int
    queries: int
    seconds: float

    @property
    def label(self) -> str:
        """As the paper writes it: ``nes``, ``nes-ai-dim``."""
        return self.attack if self.start == "none" else f"{self.attack}-{self.start}"


@dataclass(frozen=True, kw_only=True)
class Table7:
    """The whole table.

    Attributes:
        rows: one for each attack, start and target that has any result yet.
        findings: for each attack and target with results for every start, on the images that all of them share: mean
            queries by start, which start needs fewest, and what it saves against no start.
        complete: whether every image was attacked everywhere; False if time ran out.
        discarded_queries: queries that went into work which was cut short and is not in the rows.
        images: by attack, start and target, and then by image, what is known of it.
        folder: where all this lies: ``table7.csv``, ``table7.json``, and ``images.jsonl`` with one line an image.
    """

    rows: list[QueryRow]
    findings: list[dict[str, Any]]
    complete: bool
    discarded_queries: int
    folder: Path
    images: Mapping[Key, Mapping[str, Facts]] = field(default_factory=dict, repr=False)

    def spent(self, row: QueryRow, *, failure: int) -> dict[str, int]:
        """By image that counts, the queries of a row; ``failure`` where they did not suffice."""
        found = self.images[row.attack, row.start, row.target]
        return {name: one["queries"] if one["success"] else failure for name, one in found.items() if one["counts"]}


def summarise(key: Key, records: Any) -> QueryRow:
    """Make a row of the records of its images."""
    looked = list(records)
    counted = [record for record in looked if record["counts"]]
    spent = torch.tensor([record["queries"] for record in counted], dtype=torch.float64)
    won = torch.tensor([record["success"] for record in counted], dtype=torch.bool)
    name, start, target = key
    return QueryRow(
        attack=name,
        start=start,
        target=target,
        n_images=len(looked),
        n=len(counted),
        n_success=int(won.sum()),
        asr=float(won.double().mean()) if len(counted) else None,
        mean_queries=float(spent[won].mean()) if bool(won.any()) else None,
        mean_queries_all=float(spent.mean()) if len(counted) else None,
        median_queries_all=float(spent.quantile(0.5)) if len(counted) else None,
        n_start_success=int((won & (spent == 1)).sum()),
        n_saved_success=sum(record["saved_success"] for record in counted),
        queries=int(spent.sum()),
        seconds=round(sum(record["seconds"] for record in counted), 3),
    )


def count(done: Mapping[Key, Mapping[str, Facts]], *, complete: bool, discarded: int, folder: Path) -> Table7:
    """Make the table.

    Args:
        done: by attack, start and target, in the order of the rows, and then by image, what is known of it.
        complete: see :class:`Table7`, as the rest.
        discarded: queries of work that was cut short.
        folder: where it will lie.
    """
    starts: dict[tuple[str, str], list[str]] = {}
    for name, start, target in done:
        starts.setdefault((name, target), []).append(start)
    findings = [_compare(done, name, own, target) for (name, target), own in starts.items()]
    return Table7(
        rows=[summarise(key, found.values()) for key, found in done.items() if found],
        findings=[finding for finding in findings if finding],
        complete=complete,
        discarded_queries=discarded,
        folder=folder,
        images=done,
    )


def _compare(
    done: Mapping[Key, Mapping[str, Facts]], name: str, starts: Sequence[str], target: str
) -> dict[str, Any] | None:
    """Hold the starts of an attack on a target against each other, on the images that all of them have."""
    by_start = {start: done.get((name, start, target), {}) for start in starts}
    shared = set.intersection(*(set(found) for found in by_start.values())) if by_start else set()
    if len(by_start) < 2 or not shared:
        return None
    rows = {
        start: summarise((name, start, target), [record for image, record in found.items() if image in shared])
        for start, found in by_start.items()
    }
    finding: dict[str, Any] = {"attack": name, "target": target, "n": next(iter(rows.values())).n}
    for measure in ("mean_queries", "mean_queries_all"):
        means = {start: getattr(row, measure) for start, row in rows.items()}
        known = {start: mean for start, mean in means.items() if mean is not None}
        finding[measure] = means
        finding[f"fewest_{measure}"] = min(known, key=lambda start: known[start]) if known else None
        if means.get("none"):
            savings = {start: 1 - mean / means["none"] for start, mean in known.items() if start != "none"}
            finding[f"saving_{measure}"] = {start: round(saving, 4) for start, saving in savings.items()}
    return finding


def write(table: Table7, settings: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write the table into its folder as CSV and JSON, whole or not at all."""
    rows = [asdict(row) for row in table.rows]
    write_csv(table.folder / "table7.csv", [list(QueryRow.__dataclass_fields__), *(row.values() for row in rows)])
    content = {
        "settings": dict(settings),
        **about,
        "complete": table.complete,
        "discarded_queries": table.discarded_queries,
        "rows": rows,
        "findings": table.findings,
    }
    write_file(table.folder / "table7.json", json_text(content))
