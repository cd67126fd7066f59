"""Rules that a network's rates are held against, and what came of them: what a gate decides and a report leads with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from whorl.evaluation.image_counts import Interval
from whorl.evaluation.statistics import Rate

Kind = Literal["white-box", "transfer"]
"""How an attack knows the network: by its gradients, or by those of a surrogate alone."""
RATES: Mapping[Kind, str] = {"white-box": "success rate", "transfer": "transfer rate"}
"""What the share of images that an attack fools is called: what a surrogate gives away is not all that can be had."""
RuleName = Literal["fail-above", "worst-case", "min-accuracy", "fail-drop"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, decided.

    Attributes:
        name: ``"fail-above"``: success rate, pooled over the poses; ``"worst-case"``: share of images that are fooled
            in some pose; ``"min-accuracy"``: share of clean images that are recognised as they are; ``"fail-drop"``:
            what the share recognised under attack lost against a baseline.
        subject: what it is about, as in "ai-best, white-box"; "clean images" of the accuracy.
        limit: in [0, 1].
        rate: the share that is held against it; of ``"fail-drop"`` a difference in [-1, 1].
        interval: of the rate, 95%, over images.
        n: images that the rate rests on.
        passed: whether the rule holds.
        sentence: all of that in words.

    >>> Rule(name="fail-above", subject="dim", limit=0.6, rate=0.5, interval=(0.4, 0.6), n=90, passed=True).title
    'fail-above: dim'
    """

    name: RuleName
    subject: str
    limit: float
    rate: float
    interval: Interval
    n: int
    passed: bool
    sentence: str = ""

    @property
    def title(self) -> str:
        """What to call it in a list."""
        return f"{self.name}: {self.subject}"


@dataclass(frozen=True, kw_only=True)
class AttackedRates:
    """What an attack on a network, or on a surrogate of it, comes to.

    Attributes:
        attack: its label.
        source: network that it was crafted on, as the experiment names it.
        kind: whether that is the network itself.
        subject: all of that in words, as in "ai-best, transfer from resnet18".
        success: success rate, pooled over the poses; see ``whorl.evaluation.headline``.
        worst_case: of the images recognised clean in some pose, the share that some pose fools.
        robust: of all images, the share that stays recognised under attack in every pose.
    """

    attack: str
    source: str
    kind: Kind
    subject: str
    success: Rate
    worst_case: Rate
    robust: Rate


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a gate decided on a network.

    Attributes:
        model: what to call the network.
        images: that it was judged on.
        poses: in which each was shown.
        accuracy: share of the clean images that it recognises as they are.
        posed_accuracy: the same over all poses.
        attacks: what each comes to.
        rules: each decided; none were set where there are none.
        strict: whether a rule was decided on the pessimistic end of its interval, and not on the rate itself.
        changed: against a baseline, image's id to the poses in which it was recognised under attack then and is not
            now, less those the other way round; by subject.
        notes: what must be known along with it.
    """

    model: str
    images: int
    poses: int
    accuracy: Rate
    posed_accuracy: Rate
    attacks: tuple[AttackedRates, ...] = ()
    rules: tuple[Rule, ...] = ()
    strict: bool = False
    changed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no rule failed."""
        return all(rule.passed for rule in self.rules)

    @property
    def failed(self) -> tuple[Rule, ...]:
        """The rules that did."""
        return tuple(rule for rule in self.rules if not rule.passed)

    def lost(self, subject: str) -> dict[str, int]:
        """Images that an attack fools in more poses than in the baseline, with how many; those with the most first."""
        changed = self.changed.get(subject, {})
        return {name: changed[name] for name in sorted(changed, key=lambda name: -changed[name]) if changed[name] > 0}

    @property
    def sentence(self) -> str:
        """The decision in a line."""
        if not self.rules:
            return f"{self.model}: no rule was given, so nothing is decided"
        if self.passed:
            return f"{self.model}: passed, {len(self.rules)} rule{'s' * (len(self.rules) != 1)}"
        return f"{self.model}: failed, {len(self.failed)} of {len(self.rules)} rule{'s' * (len(self.rules) != 1)}"
