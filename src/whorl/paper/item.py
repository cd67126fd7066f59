"""One table or figure of the paper: who plays in it, what it measures, and what the paper printed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from whorl.errors import unknown_name
from whorl.estimators import AffineInvariant
from whorl.estimators.polar_grids import PolarGridInvariant
from whorl.evaluation import Pose, poses
from whorl.runs.declaration import AttackSpec, Grid

if TYPE_CHECKING:
    from whorl.paper.cast import Profile
    from whorl.runs.declaration import Declaration

Kind = Literal["table", "mean", "surface", "gallery", "queries", "photographs"]
"""What an item shows: a figure for each pose (table), or the mean over all; success over a grid (surface); images
(gallery); success and queries of score-based attacks (queries); or recognition of images that were
photographed (photographs)."""
Groups = tuple[tuple[float, ...], ...]
"""What the paper printed in one row: for each pose, a figure for each target."""


Kernel = Literal["reference", "printed"]
"""Of every affine-invariant attack here that does not say its own: that of the authors' code, which the paper's figures
are those of, or that of its text. Whatever whorl takes by default, a declaration says it."""
KERNELS: dict[Kernel, str] = {
    "reference": "kernel of the authors' code, σ = l/6",
    "printed": "kernel as printed, σ = l/√3",
}


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PaperNetwork(_Table):
    """A network of the paper, by the part that it plays.

    Attributes:
        role: the key under which a profile says what stands for it.
        heading: its name in the paper.
    """

    role: str
    heading: str


class LabelledPose(_Table):
    """A pose with what the paper calls it.

    Attributes:
        label: the heading.
        angle: degrees, clockwise on screen.
        scale: factor.
        shift: right and down alike, in pixels of a 299-pixel image.
    """

    label: str
    angle: float = 0.0
    scale: Annotated[float, Field(gt=0)] = 1.0
    shift: float = 0.0

    @property
    def pose(self) -> Pose:
        """The pose itself."""
        return Pose(angle=self.angle, scale=self.scale, shift=(self.shift, self.shift))

    @property
    def grid(self) -> Grid:
        """The pose as a declaration takes it."""
        return Grid(angles=(self.angle,), scales=(self.scale,), shifts=(self.shift,))


class SurfaceCut(_Table):
    """A line through a surface: all angles at one scale, or all scales at one angle (degrees)."""

    scale: float | None = None
    angle: float | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.scale is None) == (self.angle is None):
            raise ValueError("a cut is at one scale or at one angle")
        return self

    @property
    def label(self) -> str:
        """As in ``s=0.6``."""
        return f"θ={self.angle:g}°" if self.scale is None else f"s={self.scale:g}"


class Axis(_Table):
    """What changes from row to row, where that is a number: the item is then also drawn as curves, a panel a pose.

    Attributes:
        label: what it is, with its unit.
        values: by row; a row that is not here is not on the curves.
        log: whether equal factors are to be equally far apart.
    """

    label: str
    values: Annotated[Mapping[str, float], Field(min_length=2)]
    log: bool = False


class Item(_Table):
    """A table or a figure of the paper, or an ablation of ours in its manner.

    Attributes:
        name: as in ``table1``.
        kind: what it shows, see ``Kind``.
        title: a line.
        about: what it measures, and where the paper is unclear.
        sources: networks that images are crafted on.
        targets: networks that are evaluated.
        attacks: its rows; see :func:`with_kernel` for the kernel of affine-invariant ones.
        beside: rows that the paper does not have, to run beside its own on request.
        orderings: pairs of rows of which the paper says that the first is above the second.
        poses: its poses; a surface has a grid instead.
        grid: the angles and scales of a surface.
        cuts: lines through it.
        axis: what changes from row to row, where that is a number.
        printed: by source's role and row, what the paper printed, in percent. Empty where it printed an image.
        printed_seconds: by row, what 1,000 images cost the authors.
        printed_queries: by row, likewise shaped, mean queries.
    """

    name: str
    kind: Kind
    title: str
    about: str
    sources: Annotated[tuple[PaperNetwork, ...], Field(min_length=1)]
    targets: Annotated[tuple[PaperNetwork, ...], Field(min_length=1)]
    attacks: Annotated[tuple[AttackSpec, ...], Field(min_length=1)]
    beside: tuple[AttackSpec, ...] = ()
    orderings: tuple[tuple[str, str], ...] = ()
    poses: tuple[LabelledPose, ...] = ()
    grid: Grid | None = None
    cuts: tuple[SurfaceCut, ...] = ()
    axis: Axis | None = None
    printed: Mapping[str, Mapping[str, Groups]] = Field(default_factory=dict)
    printed_seconds: Mapping[str, float] = Field(default_factory=dict)
    printed_queries: Mapping[str, Groups] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.grid is None) == (not self.poses):
            raise ValueError("expected either poses or a grid")
        rows, roles = set(self.rows), {part.role for part in self.sources}
        if rows.intersection(self.rows_beside):
            raise ValueError(f"rows beside the paper's must have other names; got {self.rows_beside}")
        for pair in self.orderings:
            if not rows.issuperset(pair):
                raise ValueError(f"the ordering {pair} names a row that is not there")
        if self.axis is not None and not rows.issuperset(self.axis.values):
            raise ValueError(f"the axis has values for {sorted(set(self.axis.values) - rows)}, which are not rows")
        if not roles.issuperset(self.printed):
            raise ValueError(f"printed figures are of {sorted(self.printed)}, sources are {sorted(roles)}")
        groups = 1 if self.kind == "mean" else len(self.poses)
        for table in (*self.printed.values(), self.printed_queries):
            if table and set(table) != rows:
                raise ValueError(f"printed rows are {sorted(table)}, attacks are {sorted(rows)}")
            for row, printed in table.items():
                if len(printed) != groups or any(len(group) != len(self.targets) for group in printed):
                    raise ValueError(f"{row} must have {groups} groups of {len(self.targets)} printed figures")
        return self

    @property
    def rows(self) -> tuple[str, ...]:
        """What the rows are called: the attacks' labels."""
        return tuple(spec.title for spec in self.attacks)

    @property
    def rows_beside(self) -> tuple[str, ...]:
        """What the rows are called that the paper does not have."""
        return tuple(spec.title for spec in self.beside)

    @property
    def takes_kernel(self) -> bool:
        """Whether some row has no kernel of its own, so that :data:`Kernel` says which; of queries, a start."""
        return self.kind == "queries" or any(with_kernel(spec) is not spec for spec in self.attacks)

    def all_poses(self) -> tuple[Pose, ...]:
        """Every pose, in order."""
        if self.grid is not None:
            return poses(angles=self.grid.angles, scales=self.grid.scales, shifts=self.grid.shifts)
        return tuple(shown.pose for shown in self.poses)

    def declaration(self, profile: str | Path | Profile = "offline", **options: Any) -> Declaration:
        """Declare it as a run; see :class:`whorl.paper.PaperOptions`. ``present`` names the networks that are there."""
        from whorl.paper.declaration import PaperOptions, declaration  # it needs this module

        present = options.pop("present", None)
        return declaration(self, PaperOptions(profile=profile, **options), present=present)

    def printed_value(self, source: str, row: str, target: str, pose: int | None) -> float | None:
        """Look up a printed figure.

        Args:
            source: the source's role.
            row: the attack's label.
            target: the target's role.
            pose: its place in ``poses``; None for the mean over them.

        Returns:
            Percent; None where the paper printed none.
        """
        groups = self.printed.get(source, {}).get(row)
        if groups is None:
            return None
        column = [part.role for part in self.targets].index(target)
        if pose is not None and self.kind != "mean":
            return groups[pose][column]
        return sum(group[column] for group in groups) / len(groups)


def with_kernel(spec: AttackSpec, kernel: Kernel = "reference") -> AttackSpec:
    """Give an affine-invariant attack a kernel of the paper's, unless it has a width of its own; others stay.

    >>> with_kernel(AttackSpec(name="ai-dim"), "printed").build().estimator
    AffineInvariant(sigma='printed')
    """
    estimator, said = getattr(spec.build(), "estimator", None), spec.settings.get("estimator")
    if not isinstance(estimator, AffineInvariant | PolarGridInvariant) or (said is not None and "sigma" in said):
        return spec
    table = {"type": type(estimator).__name__, **(said or {}), "sigma": kernel}
    return spec.model_copy(update={"settings": {**spec.settings, "estimator": table}})


def load(name: str) -> Item:
    """Get a table or a figure by name.

    Args:
        name: as in ``table1``, ``Table 1`` or ``figure4``; :func:`names` lists all.

    Raises:
        WhorlError: there is none of that name; the message has the nearest ones.

    >>> load("Table 1").printed_value("white", "ai-dim", "black", 0)
    88.8
    """
    plain = _plain(name).replace("fig.", "figure") if _plain(name).startswith("fig.") else _plain(name)
    known = {_plain(one): one for one in names()}
    if plain not in known:
        raise unknown_name("table or figure", name, names(), hint="`whorl paper list` lists all.")
    return _items()[known[plain]]


def names() -> tuple[str, ...]:
    """Name every table and figure, tables first, and then the ablations.

    >>> names()[:3]
    ('table1', 'table2', 'table3')
    """
    return tuple(_items())


@cache
def _items() -> dict[str, Item]:
    listed = [file for file in (files(__package__) / "items").iterdir() if file.name.endswith(".toml")]
    items = [Item.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))) for file in listed]
    return {item.name: item for item in sorted(items, key=_place)}


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "").replace("_", "").replace("-", "")


def _place(item: Item) -> tuple[int, int, str]:
    """Tables before figures, each by number, and what the paper does not have last."""
    for place, kind in enumerate(("table", "figure")):
        number = item.name.removeprefix(kind)
        if number.isdecimal():
            return (place, int(number), "")
    return (2, 0, item.name)


def spaced(name: str) -> str:
    """Write a name as the paper does.

    >>> spaced("table1"), spaced("ablation-sigma")
    ('Table 1', 'Ablation sigma')
    """
    letters = name.rstrip("0123456789")
    return f"{letters} {name.removeprefix(letters)}".replace("-", " ").strip().capitalize()
