"""What a report is made of: plain data, filled in by whoever measured it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whorl.errors import WhorlError
from whorl.evaluation import Comparison
from whorl.runs.results import Cell

CLEAN = "clean"
"""Name of the version that nobody attacked."""


@dataclass(frozen=True)
class Encoded:
    """An image as a file's bytes.

    >>> Encoded(b"abc", "image/png").uri
    'data:image/png;base64,YWJj'
    """

    data: bytes
    media: str
    """As in "image/webp"."""

    @property
    def uri(self) -> str:
        """The whole image as an address that needs no network."""
        return f"data:{self.media};base64,{base64.b64encode(self.data).decode('ascii')}"


@dataclass(frozen=True, kw_only=True)
class Shot:
    """One version of an image in one pose, and what a network says of it.

    Attributes:
        picture: as the network saw it.
        pose: in words.
        label: what the network says.
        fooled: whether that is wrong.
        probability: that it gives to it, in [0, 1]; None if it was not kept.
    """

    picture: Encoded
    pose: str
    label: str
    fooled: bool
    probability: float | None = None


@dataclass(frozen=True, kw_only=True)
class Version:
    """A row of a gallery: an image, clean or attacked, in every pose; or all its versions in one photograph.

    Attributes:
        name: "clean", or the attack's name; or how it was cut out.
        shots: one for each column; None where there is none.
        change: the perturbation, magnified around grey; None of the clean version.
        centre: the middle of it, enlarged; likewise.
    """

    name: str
    shots: tuple[Shot | None, ...]
    change: Encoded | None = None
    centre: Encoded | None = None


@dataclass(frozen=True, kw_only=True)
class Example:
    """One image in all its versions.

    Attributes:
        id: the image's name.
        truth: what it shows.
        versions: the clean one first.
    """

    id: str
    truth: str
    versions: tuple[Version, ...]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """A few images, clean and attacked, as one network sees them; see ``whorl.report.gallery``.

    Attributes:
        title: what it shows.
        about: a sentence or two.
        poses: headings of the columns of shots.
        magnified: by how much the perturbations are; None if none are shown.
        zoom: by how much their middle is enlarged.
        examples: the images.
    """

    title: str
    about: str = ""
    poses: tuple[str, ...]
    magnified: float | None = None
    zoom: int = 1
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A further table, such as ours beside the paper's.

    Attributes:
        title: what it shows.
        about: a sentence or two.
        columns: headings.
        rows: as many entries each as there are headings.
        notes: one for each row, "" where there is nothing to say; none at all leaves the column out.
    """

    title: str
    about: str = ""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise WhorlError(
                    f"every row of the table {self.title!r} must have {len(self.columns)} entries, one for each "
                    f"heading; got {len(row)}: {list(row)}."
                )
        if self.notes and len(self.notes) != len(self.rows):
            raise WhorlError(
                f"the table {self.title!r} must have a note for each of its {len(self.rows)} rows or none at all; "
                f"got {len(self.notes)}."
            )


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """What was counted, by one thing that was measured of each photographed image.

    Attributes:
        by: what, as in "rotation".
        unit: behind its number, as in "°".
        steps: a cell for each version and target, by the measured number.
    """

    by: str
    unit: str = ""
    steps: Mapping[float, tuple[Cell, ...]]


@dataclass(frozen=True, kw_only=True)
class CutOut:
    """What networks say of images that were cut out of photographs in one way.

    Attributes:
        way: as in "as seen".
        cells: a cell for each version and target, over all photographs. Clean images are an attack called "clean"
            from no source. The cells' poses say nothing.
        groups: the same by what was measured.
    """

    way: str
    cells: tuple[Cell, ...]
    groups: tuple[Grouped, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Photographs:
    """What came of photographs of prints; see ``whorl.physical.report.photographs``.

    Attributes:
        title: what they are.
        about: what to know, a sentence or two each.
        facts: figures to show large, by what they count.
        cut_out: by the way in which images were cut out; the headline is about the first.
        repeats: how often each print was photographed, or nearly so. Intervals are as wide as the prints alone make
            them.
        comparisons: as in ``Content``, of the first way.
        galleries: contact sheets.
        unread: photographs that gave nothing, and why.
    """

    title: str = "Photographs of prints"
    about: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    cut_out: tuple[CutOut, ...] = ()
    repeats: int = 1
    comparisons: Mapping[tuple[str, str, str, str], Comparison] = field(default_factory=dict)
    galleries: tuple[Gallery, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything that a report shows.

    Attributes:
        title: the heading.
        about: a paragraph below it.
        command: the words that make the report again.
        cells: what was measured. Words, tables and figures follow from it.
        comparisons: paired comparisons over all poses, by (attack, other, source, target); a target behind a defence
            is called as in ``resnet18+jpeg``.
        galleries: examples to look at.
        settings: what was asked for, nested as in JSON.
        provenance: weights, versions, seeds and whatever else tells where the figures come from, likewise.
        left_out: images that were not measured, and why.
        paper: further tables, such as ours beside the printed ones, shown as they are.
        photographs: what came of photographs of prints. Without cells the headline is about them.

    Raises:
        WhorlError: two cells are about the same attack, source, target, pose and bound.
    """

    title: str
    about: str = ""
    command: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    comparisons: Mapping[tuple[str, str, str, str], Comparison] = field(default_factory=dict)
    galleries: tuple[Gallery, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[tuple[str, str], ...] = ()
    paper: tuple[Table, ...] = ()
    photographs: Photographs | None = None

    def __post_init__(self) -> None:
        seen = set()
        for cell in self.cells:
            key = (cell.attack, cell.source, cell.target, cell.defense, cell.pose, cell.eps)
            if key in seen:
                raise WhorlError(
                    f"expected each attack, source, target and pose once; got {cell.attack!r} from {cell.source!r} on "
                    f"{cell.target!r} (defence {cell.defense}) at {cell.pose} twice. Give the attacks different labels."
                )
            seen.add(key)
