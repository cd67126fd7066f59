"""What a report is made of: plain data, filled in by whoever measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from whorl.errors import WhorlError
from whorl.evaluation import Comparison, Rule
from whorl.report.gallery import Gallery
from whorl.runs.results import Cell

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Kind = Literal["overview", "surface", "map", "profile", "cost", "chart"]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure, and where it belongs.

    Attributes:
        kind: which part of the report shows it.
        name: for a file, without an ending.
        title: one line.
        alt: what it shows, for those who cannot see it.
        transfer: from which source to whose answers; "" for all.
        subject: which attacks it shows; "" for all.
        figure: for plotly.
    """

    kind: Kind = "chart"
    name: str
    title: str
    alt: str
    transfer: str = ""
    subject: str = ""
    figure: Figure


@dataclass(frozen=True, kw_only=True)
class Table:
    """A further table, such as ours beside the paper's.

    Attributes:
        title: what it shows.
        about: a sentence or two.
        columns: headings.
        rows: as many entries each as there are headings.
        notes: one for each row, "" where there is nothing to say; none at all leaves the column out.
        words: how many columns from the left hold words; the others hold figures.
    """

    title: str
    about: str = ""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 1

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
class DefenderView:
    """The first part of a report, for those who defend a network.

    Attributes:
        sentences: what an attack leaves of each network; of a gate one, with its decision.
        passed: what a gate decided; None if there was none, or no rule.
        rules: of the gate, each decided.
        notes: what must be known along with it.
        tables: where the network is weak.
        galleries: images to look at.
    """

    sentences: tuple[str, ...]
    passed: bool | None = None
    rules: tuple[Rule, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    galleries: tuple[Gallery, ...] = ()

    @property
    def gate(self) -> bool:
        """Whether it is a gate's: it leads the report, and the attack's view follows."""
        return bool(self.rules or self.tables or self.galleries)


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything that a report shows.

    Attributes:
        title: the heading.
        about: a paragraph below it.
        finding: a sentence that says what was found, where there are no ``cells`` to say it.
        command: the command line, word by word, that makes the report again.
        cells: what was measured, from which sentences, tables and figures are made.
        comparisons: paired comparisons over the poses, corrected for their number (``whorl.evaluation.holm``), by
            (attack, other, source, target); a target behind a defence is called as in ``resnet18+jpeg``.
        charts: further figures, shown one below the other.
        galleries: examples of images, see :func:`whorl.report.gallery`.
        settings: the settings of what was run, nested as in JSON.
        provenance: weights, versions, seeds and whatever else tells where the figures come from, likewise.
        left_out: images that were not measured, and why.
        paper: further tables, such as reproduced figures beside the printed ones, shown as they are.
        photographs: what came of photographs of prints. Without cells the headline is about them.
        defender: what the owner of a network reads first: the top of a gate's report.

    Raises:
        WhorlError: two cells are about the same attack, source, target, pose and bound.
    """

    title: str
    about: str = ""
    finding: str = ""
    command: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    comparisons: Mapping[tuple[str, str, str, str], Comparison] = field(default_factory=dict)
    charts: tuple[Drawing, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[tuple[str, str], ...] = ()
    paper: tuple[Table, ...] = ()
    photographs: Photographs | None = None
    defender: DefenderView | None = None

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
