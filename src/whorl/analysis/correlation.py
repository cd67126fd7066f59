"""Whether affine invariance and transfer go together (the paper's §5.5), measured over attacks and kernels.

For each attack on each source, from the cells of a run:

    invariance   mean success rate on the source itself, over all poses but the identity
    transfer     mean success rate on the other networks, undefended, images as they are

Neither has a pose or a network in common with the other, so nothing makes them go together but the attack.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl.errors import WhorlError, quoted
from whorl.evaluation.image_counts import RESAMPLES, percentile_interval
from whorl.files import defined, regular
from whorl.geometry.pose import FURTHER_NUMBERS, PAPER_NUMBERS
from whorl.runs.networks import split_source
from whorl.runs.results import COLUMNS

_FEWEST = 4
_IDENTITY = ("0", "1", "0", "0")
_NEEDED = ("attack", "source", "target", "defense", "angle", "scale", "shift_x", "shift_y", "asr")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One attack on one source: both rates in percent."""

    attack: str
    source: str
    invariance: float
    transfer: float


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """How two rates go together over some attacks.

    Attributes:
        points: the attacks.
        pearson: of the rates, in [-1, 1].
        spearman: of their ranks.
        pearson_interval: 95%, over resampled attacks.
        spearman_interval: likewise.
    """

    points: tuple[Point, ...]
    pearson: float
    spearman: float
    pearson_interval: tuple[float, float]
    spearman_interval: tuple[float, float]


def read_points(paths: Iterable[str | Path]) -> list[Point]:
    """Read every attack that was evaluated on its own source and on others from results in long form.

    Args:
        paths: ``results.csv`` of run folders, or an item's ``…-results.csv``; a cell that several hold counts once.

    Raises:
        WhorlError: a file cannot be read or is no such table, or no attack has both rates.
    """
    cells: dict[tuple[str, ...], float] = {}
    for path in paths:
        for line, row in enumerate(_rows(Path(path)), start=2):
            try:
                key = (*(row[name] for name in ("attack", "source", "target", "defense")), *_pose(row))
                if row["asr"]:
                    cells[key] = 100 * _number(row, "asr", 0, 1)
            except ValueError as error:
                raise WhorlError(f"{path}, row {line}: {error}. Expected the results.csv of a run folder.") from error
    found = []
    for attack, source in dict.fromkeys(key[:2] for key in cells):
        own = {key[2:]: rate for key, rate in cells.items() if key[:2] == (attack, source)}
        kin = split_source(source)
        posed = [r for (target, defense, *pose), r in own.items() if target in kin and _plain(defense, pose, False)]
        others = [r for (target, defense, *pose), r in own.items() if target not in kin and _plain(defense, pose, True)]
        if posed and others:
            mean = (sum(posed) / len(posed), sum(others) / len(others))
            found.append(Point(attack=attack, source=source, invariance=mean[0], transfer=mean[1]))
    if not found:
        raise WhorlError(
            "expected attacks that were evaluated on their own source under transforms, and on another network as they "
            "are; got none. Declare the source among the targets, and the identity among the poses."
        )
    return found


def correlate(points: Sequence[Point], *, seed: int = 0) -> Correlation:
    """Correlate invariance and transfer over attacks. With several sources, each counts from its own mean.

    Args:
        points: four at least.
        seed: of the resamples of the attacks, for the intervals.

    >>> made = [Point(attack=str(i), source="net", invariance=90 - i, transfer=40 - 2 * i) for i in range(5)]
    >>> round(correlate(made).pearson, 6), round(correlate(made).spearman, 6)
    (1.0, 1.0)
    """
    if len(points) < _FEWEST:
        raise WhorlError(f"expected {_FEWEST} attacks at least, to correlate over; got {len(points)}.")
    pair = torch.tensor([[point.invariance, point.transfer] for point in points], dtype=torch.float64)
    groups = [[i for i, p in enumerate(points) if p.source == source] for source in {p.source for p in points}]
    for group in groups:
        pair[group] -= pair[group].mean(0)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(points), (RESAMPLES, len(points)), generator=generator)
    drawn = torch.tensor([(_pearson(pair[rows]), _pearson(_ranks(pair[rows]))) for rows in chosen], dtype=pair.dtype)
    return Correlation(
        points=tuple(points),
        pearson=_pearson(pair),
        spearman=_pearson(_ranks(pair)),
        pearson_interval=percentile_interval(drawn[:, 0]),
        spearman_interval=percentile_interval(drawn[:, 1]),
    )


def as_json(found: Correlation) -> dict[str, Any]:
    """Give everything as JSON values; what is undefined is null."""
    return defined(asdict(found))


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with regular(path).open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restval="")
            rows = list(reader)
            known = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WhorlError(f"{path} cannot be read ({error}). Expected the results.csv of a run folder.") from error
    if not set(_NEEDED) <= set(known):
        raise WhorlError(f"{path} must have the columns {', '.join(COLUMNS)}; got {', '.join(known)}.")
    return rows


def _pose(row: dict[str, str]) -> tuple[str, ...]:
    four = [f"{_number(row, number.name):g}" for number in PAPER_NUMBERS]
    given = [(n, _number(row, n.name) if row.get(n.name) else n.neutral) for n in FURTHER_NUMBERS]
    return (*four, *(f"{number.name} {value:g}" for number, value in given if value != number.neutral))


def _number(row: Mapping[str, str], name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """One number of a row.

    Raises:
        ValueError: it is none, or does not lie between the two.
    """
    with suppress(ValueError):
        if math.isfinite(value := float(row[name])) and low <= value <= high:
            return value
    within = f"a number in [{low:g}, {high:g}]" if math.isfinite(low) else "a finite number"
    raise ValueError(f"{name} must be {within}; got {quoted(row[name])}")


def _plain(defense: str, pose: list[str], identity: bool) -> bool:
    return defense == "none" and (tuple(pose) == _IDENTITY) == identity


def _pearson(pair: Tensor) -> float:
    centred = pair - pair.mean(0)
    below = float(centred.square().sum(0).prod().sqrt())
    return float(centred.prod(1).sum()) / below if below > 0 else math.nan


def _ranks(pair: Tensor) -> Tensor:
    """Ranks of each column, equals sharing the mean of theirs."""
    below = (pair[None] < pair[:, None]).sum(1)
    level = (pair[None] == pair[:, None]).sum(1)
    return below + (level - 1) / 2
