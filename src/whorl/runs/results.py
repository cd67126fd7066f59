"""Success rates as a table in long form, one row a cell: what ``results.csv`` of a run folder holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from whorl import evaluation
from whorl.evaluation import ImageCounts, Pose, SuccessRate
from whorl.evaluation.data_frame import data_frame
from whorl.files import write_csv
from whorl.geometry.pose import NUMBERS, PAPER_NUMBERS, PoseNumber, numbers_of
from whorl.records import Plotted

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = (
    *("attack", "source", "target", "defense", "angle", "scale", "shift_x", "shift_y", "eps"),
    *("n", "n_clean_correct", "n_success", "asr", "accuracy", "grad_evals", "seconds"),
)
"""Of every table; what poses have beside the paper's four numbers follows where some cell has it."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One attack, crafted on one source, seen by one target in one pose.

    Args:
        attack: its name.
        source: network that it was crafted on.
        target: network that was evaluated.
        defense: what stands before the target.
        pose: how the image was rotated, scaled and translated; shifts are in pixels of a 299-pixel image.
        eps: radius of the ball, in units of the [0, 1] range; None if nothing bounds the attack.
        counts: of images.
        grad_evals: input gradients spent on all images, whatever the target and pose.
        seconds: spent on crafting them, likewise.
        recorded: whether these two are known; they stay empty if not.
        swept: values that a sweep gave the attack, by setting; columns of the table.
        images: the counts image by image, the same images in the same order in every cell; None if they are not known,
            and then there are no intervals over poses.
    """

    attack: str
    source: str
    target: str
    defense: str = "none"
    pose: Pose
    eps: float | None
    counts: SuccessRate
    grad_evals: int = 0
    seconds: float = 0.0
    recorded: bool = True
    swept: Mapping[str, bool | int | float | str] = field(default_factory=dict, hash=False)
    images: ImageCounts | None = field(default=None, compare=False, repr=False)

    def row(self) -> tuple[str | int | float, ...]:
        """The cell in the order of ``COLUMNS``; what is undefined stays empty. See :func:`rows` for a whole table."""
        pose, counts = self.pose, self.counts
        return (
            *(self.attack, self.source, self.target, self.defense),
            *(pose.angle, pose.scale, *pose.shift, "" if self.eps is None else self.eps),
            *(counts.n, counts.n_clean_correct, counts.n_success),
            "" if math.isnan(counts.rate) else round(counts.rate, 6),
            "" if math.isnan(counts.accuracy) else round(counts.accuracy, 6),
            *((self.grad_evals, round(self.seconds, 3)) if self.recorded else ("", "")),
        )


class CellTable(Plotted):
    """Mixin for what came of a measurement: its ``cells`` as a data frame, and as figures."""

    cells: tuple[Cell, ...]

    def to_pandas(self) -> DataFrame:
        """Give the rows of ``results.csv`` as a data frame.

        Raises:
            WhorlError: pandas is not installed (extra ``pandas``).
        """
        listed = records(self.cells)
        return data_frame(columns(self.cells), [tuple(row.values()) for row in listed])


def write_results(path: Path, cells: Iterable[Cell]) -> None:
    """Write cells as CSV; the file appears whole or not at all."""
    listed = list(cells)
    write_csv(path, [columns(listed), *rows(listed)])


def columns(cells: Iterable[Cell]) -> tuple[str, ...]:
    """``COLUMNS``, then the further numbers that some cell's pose has, then settings that were swept.

    >>> tilted = Cell(
    ...     attack="dim", source="a", target="b", pose=Pose(tilt=(20, 0)), eps=None, counts=SuccessRate()
    ... )
    >>> columns([tilted])[-2:]
    ('seconds', 'tilt_x')
    """
    listed = list(cells)
    return (*COLUMNS, *(number.name for number in _further(listed)), *swept_columns(listed))


def swept_columns(cells: Iterable[Cell]) -> dict[str, str]:
    """The columns of settings that were swept, each with the setting that it holds; ``eps`` is one of ``COLUMNS``."""
    names = dict.fromkeys(name for cell in cells for name in cell.swept if name != "eps")
    taken = {*COLUMNS, *(number.name for number in NUMBERS)}
    return {f"settings.{name}" if name in taken else name: name for name in names}


def rows(cells: Iterable[Cell]) -> list[tuple[str | int | float, ...]]:
    """The cells in the order of their :func:`columns`."""
    listed = list(cells)
    further, swept = _further(listed), swept_columns(listed).values()
    return [(*cell.row(), *cell.pose.values(further), *(cell.swept.get(name, "") for name in swept)) for cell in listed]


def _further(cells: Iterable[Cell]) -> tuple[PoseNumber, ...]:
    return numbers_of(cell.pose for cell in cells)[len(PAPER_NUMBERS) :]


def records(cells: Iterable[Cell]) -> list[dict[str, str | int | float | None]]:
    """The cells by column, as JSON has them: what is undefined is None."""
    listed = list(cells)
    names = columns(listed)
    return [
        {name: None if value == "" else value for name, value in zip(names, row, strict=True)} for row in rows(listed)
    ]


def mean_rate(cells: Iterable[Cell]) -> float:
    """Mean success rate of several poses, as the paper averages them: each pose counts the same.

    See ``whorl.evaluation.mean_rate``, which does it.
    """
    return evaluation.mean_rate(cell.counts for cell in cells)


def joined_images(cells: Iterable[Cell]) -> ImageCounts | None:
    """Put the counts image by image of several cells together; None if some are not known, or are of other images."""
    parts = [cell.images for cell in cells]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts) or len({part.eligible.shape[1] for part in known}) > 1:
        return None
    return ImageCounts.joined(known)
