"""What came of an experiment: its cells, what became of each image, and comparisons of its attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

from whorl.errors import WhorlError
from whorl.evaluation import Comparison, Distance, Outcomes, Over, Pose, holm
from whorl.runs.declaration import Declaration
from whorl.runs.plan import Plan
from whorl.runs.results import Cell, CellTable


@dataclass(frozen=True, kw_only=True)
class Done(CellTable):
    """What came of an experiment; ``to_pandas`` and ``plot`` give its cells as a data frame and as figures.

    Attributes:
        declaration: what was declared.
        plan: all that it consisted of.
        ids: the images that were used, in order.
        cells: one for each attack, source, target and pose: the rows of ``results.csv``.
        distances: of the adversarial images to the clean ones, by (attack, source).
        whole: what became of each image; attacks are called ``label/source``. See ``outcomes``.
        labels: names of the classes; None if unknown.
        left_out: images that could not be used: id and reason.
        computed: how many tasks this run did; the others were done before.
        seconds: how long this run took.
    """

    declaration: Declaration
    plan: Plan
    ids: list[str]
    cells: tuple[Cell, ...]
    distances: Mapping[tuple[str, str], Distance]
    whole: Outcomes = field(repr=False)
    labels: tuple[str, ...] | None = field(default=None, repr=False)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    computed: int
    seconds: float

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.plan.store.path

    @property
    def results(self) -> Path:
        """The cells as CSV."""
        return self.folder / "results.csv"

    def _repr_html_(self) -> str:
        return self.whole._repr_html_()

    def outcomes(self, source: str) -> Outcomes:
        """What became of each image under every attack on one source, by their labels.

        Raises:
            WhorlError: there is no such source.
        """
        known: dict[str, Outcomes] = self.__dict__.setdefault("_outcomes", {})  # kept, for its resamples are too
        if source not in known:
            known[source] = self._crafted_on(source)
        return known[source]

    def _crafted_on(self, source: str) -> Outcomes:
        rows = [row for row, variant in enumerate(self.plan.attacked) if variant.source == source]
        if not rows:
            raise WhorlError(f"there is no attack on {source!r} in this experiment; see its declaration.")
        labels = tuple(self.plan.attacked[row].label for row in rows)
        return replace(
            self.whole,
            attacks=labels,
            adversarial=self.whole.adversarial[rows],
            distances={label: self.distances[label, source] for label in labels},
        )

    def compare(
        self, first: str, second: str, source: str, target: str, pose: Pose | None = None, *, poses: Over | None = None
    ) -> Comparison:
        """Compare two attacks on one target, in one pose or over all of them; see ``whorl.evaluation.Outcomes``.

        Args:
            first: an attack's label.
            second: another's.
            source: network that both were crafted on.
            target: as the declaration names it.
            pose: None for all.
            poses: how they are put together; None compares headline rates.

        Raises:
            WhorlError: there is no such attack, source, target or pose.
        """
        return self.outcomes(source).compare(first, second, target, pose, poses=poses)

    @cached_property
    def comparisons(self) -> dict[tuple[str, str, str, str], Comparison]:
        """Every two attacks on one source, on every target, corrected for their number (Holm).

        By (attack, other, source, target), the later in the declaration first. Attacks that a sweep gave another bound
        or another seed are not compared.
        """
        pairs = [
            (one.label, other.label, one.source)
            for other, one in combinations(self.plan.attacked, 2)
            if one.source == other.source and all(one.swept.get(k) == other.swept.get(k) for k in ("eps", "seed"))
        ]
        found = {(*pair, target): self.compare(*pair, target) for pair in pairs for target in self.declaration.targets}
        return holm(found)
