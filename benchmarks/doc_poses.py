"""Tables of docs/poses.md: what the benchmarks of poses print of the outcomes that they saved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import families
import worst_pose
from doc_data import read
from doc_tables import Cell, table

NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@table("worst-pose")
def _() -> Cell:
    return _shown(worst_pose.table(read("worst-pose.json")["rows"]))


@table("families")
def _(place: str) -> Cell:
    """The tables of ``families.py`` by their number, from 0."""
    return _shown(_families()[int(place)])


@cache
def _families() -> list[str]:
    return families.tables(read("families-resnet18.json")).split("\n\n")


def _shown(markdown: str) -> Cell:
    titles, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines())
    rows = {line[0]: dict(zip(titles, line, strict=True)) for line in lines}

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == titles[0]:
            return None
        return [float(number.replace(",", "")) for number in NUMBER.findall(rows[row[titles[0]]][column])]

    return cell


def only_blur_on_mobilenet_is_significant() -> bool:
    """Whether of all differences from ``dim`` that one alone is significant, and all are 0 at least."""
    done = families.read(read("families-resnet18.json"))
    significant, losses = [], 0
    for target in done.targets:
        for family, found in families.compared(done, target, "dim").items():
            significant += [(target, family)] if found.differs() else []
            losses += found.difference < 0
    return significant == [("mobilenet_v2", "blur")] and not losses
