"""A figure of what was measured, by the name of its kind: what ``.plot()`` of results draws."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from whorl.errors import WhorlError, unknown_name
from whorl.evaluation import Outcomes, Pose
from whorl.report.charts import bars, query_curve
from whorl.report.figures import drawings
from whorl.report.series import headline_rate, target_name
from whorl.runs.results import Cell, CellTable
from whorl.runs.single_attack import AttackResult

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def plot(cells: Iterable[Cell], kind: str = "overview", *, source: str = "", target: str = "") -> Figure:
    """Draw one figure of some cells.

    Args:
        cells: those of an experiment (``Done.cells``): a rate for each attack, source, target and pose.
        kind: "overview", or "profile", "surface" and "cost" where poses and costs allow them: the report's figures.
            Of several of a kind it is the first.
        source: only what was crafted on this network.
        target: only what this network answers, as in ``resnet18+jpeg``.

    Raises:
        WhorlError: no such source or target, or no figure of that kind.
    """
    listed = tuple(cells)
    for what, wanted, names in (
        ("source", source, {cell.source for cell in listed}),
        ("target", target, {target_name(cell) for cell in listed}),
    ):
        if wanted and wanted not in names:
            raise unknown_name(what, wanted, names, hint=f"There are: {', '.join(sorted(names))}.")
    chosen = [one for one in listed if source in ("", one.source) and target in ("", target_name(one))]
    drawn = drawings(chosen)
    for one in drawn:
        if one.kind == kind:
            return one.figure
    there = ", ".join(dict.fromkeys(one.kind for one in drawn)) or "none"
    raise WhorlError(
        f"there is no figure of the kind {kind!r} of these cells; there are: {there}. A profile needs three values of "
        "one number of a pose, a surface three angles with three scales each in which some image is recognised clean, "
        "a cost two attacks of different cost."
    )


def figure_of(result: Outcomes | CellTable | AttackResult, kind: str = "overview", **which: str) -> Figure:
    """Draw what came of a measurement: what its ``.plot()`` gives.

    Args:
        result: rates of outcomes, of a run or an evaluation, or one attack, of which there is one figure: success
            against queries, or its rate on each network.
        kind: as of :func:`plot`.
        which: ``source`` and ``target``, likewise.

    Raises:
        WhorlError: as of :func:`plot`, or a kind or a choice that a single attack does not have.
    """
    if not isinstance(result, AttackResult):
        return plot(without_source(result) if isinstance(result, Outcomes) else result.cells, kind, **which)
    if kind != "overview" or which:
        request = ", ".join([repr(kind), *(f"{name}={value!r}" for name, value in which.items())])
        raise WhorlError(f"a single attack has one figure, 'overview', of all its networks; got {request}.")
    return plot_attack(result)


def without_source(outcomes: Outcomes) -> Iterable[Cell]:
    """The cells of outcomes, which say nothing of where an attack was crafted, within which bound, at which cost."""
    for (attack, name, pose), counts in outcomes.counts.items():
        yield Cell(
            attack=attack,
            source="",
            target=name,
            pose=pose,
            eps=None,
            counts=counts,
            recorded=False,
            images=outcomes.counted(attack, name, [pose]),
        )


def plot_attack(result: AttackResult) -> Figure:
    """Draw what came of one attack: success against queries, or the success rate on each network that was attacked."""
    if result.queries:
        outcomes = [(result.queries[name], result.success[name]) for name in result.ids]
        name = f"{result.attack} on {result.source}"
        return query_curve({name: outcomes}, budget=max(result.queries.values()))
    known: dict[str, Any] = {"attack": result.attack, "source": result.source, "pose": Pose(), "eps": None}
    rates = {name: headline_rate([Cell(target=name, counts=one, **known)]) for name, one in result.counts.items()}
    return bars({"success rate on the images as saved": {name: {result.attack: one} for name, one in rates.items()}})
