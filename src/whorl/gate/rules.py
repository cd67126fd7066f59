"""The rules of a gate: what is held against which limit, and on which end of its interval it is decided."""

from __future__ import annotations

from collections.abc import Iterator

from whorl.evaluation import AttackedRates, ImageCounts, Pose, Rate, Rule, headline, rate
from whorl.evaluation.verdict import RATES, Kind, RuleName
from whorl.gate.record import GateRecord
from whorl.gate.settings import GateSettings


def accuracy(record: GateRecord) -> Rate:
    """Share of the clean images that are recognised as they are."""
    return rate(ImageCounts.of_all(record.clean[record.outcomes.poses.index(Pose())]))


def posed_accuracy(record: GateRecord) -> Rate:
    """The same over all poses, pooled."""
    return rate(ImageCounts.of_all(record.clean))


def attacked_rates(record: GateRecord, subject: str, *, attack: str, source: str, kind: Kind) -> AttackedRates:
    """What an attack comes to; see :class:`whorl.evaluation.AttackedRates`."""
    counts = ImageCounts.of(record.clean, record.recognised(subject))
    return AttackedRates(
        attack=attack,
        source=source,
        kind=kind,
        subject=subject,
        success=headline(counts),
        worst_case=rate(counts.any_pose()),
        robust=rate(ImageCounts.of_all(record.recognised(subject).all(0))),
    )


def decided(settings: GateSettings, clean: Rate, attacks: tuple[AttackedRates, ...]) -> Iterator[Rule]:
    """Hold what was measured against the limits: a rule for the accuracy, and one or two for each attack."""
    if settings.min_accuracy is not None:
        words = "{} of {n} are recognised as they are"
        yield _rule("min-accuracy", "clean images", settings.min_accuracy, clean, words, settings.strict)
    for one in attacks:
        if settings.fail_above is not None:
            words = f"{RATES[one.kind]} {{}}, pooled over {one.success.poses} poses, of {{n}} images recognised clean"
            yield _rule("fail-above", one.subject, settings.fail_above, one.success, words, settings.strict)
        if settings.worst_case is not None:
            some = "" if one.kind == "white-box" else " (transfer)"
            words = f"{{}} of {{n}} images recognised clean are fooled in some pose{some}"
            yield _rule("worst-case", one.subject, settings.worst_case, one.worst_case, words, settings.strict)


def _rule(name: RuleName, subject: str, percent: float, found: Rate, words: str, strict: bool) -> Rule:
    low, high = found.interval
    least = name == "min-accuracy"
    end = (low if least else high) if strict else found.value
    # 60% is not above 60%, however a float64 has it.
    passed = end >= percent / 100 - 1e-9 if least else end <= percent / 100 + 1e-9
    shown = f"{found.value:.1%} ({low:.1%} to {high:.1%})"
    decided_on = f", decided on the interval's {'lower' if least else 'upper'} end" if strict else ""
    limit = f"{'at least' if least else 'at most'} {percent:g}%{decided_on}"
    return Rule(
        name=name,
        subject=subject,
        limit=percent / 100,
        rate=found.value,
        interval=found.interval,
        n=found.images,
        passed=passed,
        sentence=f"{subject}: {words.format(shown, n=found.images)}; limit: {limit}",
    )
