"""What a gate decided: in a line, rule by rule, and which images a change cost."""

from __future__ import annotations

from dataclasses import replace

from whorl.evaluation import Rate, Rule, Verdict

RATE = Rate(value=0.5, interval=(0.4, 0.6), images=90, n=900, successes=450, poses=25)
RULE = Rule(name="fail-above", subject="dim", limit=0.6, rate=0.5, interval=(0.4, 0.6), n=90, passed=True)
VERDICT = Verdict(model="shop", images=100, poses=25, accuracy=RATE, posed_accuracy=RATE, rules=(RULE,))


def test_a_verdict_in_a_line() -> None:
    failed = replace(VERDICT, rules=(RULE, replace(RULE, passed=False)))
    assert (VERDICT.passed, VERDICT.failed, VERDICT.sentence) == (True, (), "shop: passed, 1 rule")
    assert (failed.passed, failed.failed) == (False, (failed.rules[1],))
    assert failed.sentence == "shop: failed, 1 of 2 rules"
    none = replace(VERDICT, rules=())
    assert (none.passed, none.sentence) == (True, "shop: no rule was given, so nothing is decided")


def test_lost_are_those_that_are_fooled_more_often_the_most_first() -> None:
    changed = replace(VERDICT, changed={"dim": {"a": 1, "b": -3, "c": 4, "d": 1}})
    assert list(changed.lost("dim").items()) == [("c", 4), ("a", 1), ("d", 1)]
    assert changed.lost("another") == {}
