"""Counts the cases of each family, and says at the end how many there were and from which seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from fuzz.harness import COUNTED, SEED


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the number of cases on the test's report, which reaches the summary from another process too."""
    COUNTED.clear()
    yield
    # A test without generated cases is a case itself.
    request.node.user_properties.append(("fuzz", [request.module.FAMILY, COUNTED.total() or 1]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each family, and one for all."""
    cases: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    families: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "fuzz" and report.when == "teardown":
                    cases[value[0]] += value[1]
                    families[report.nodeid] = value[0]
    for report in terminalreporter.stats.get("failed", ()):
        if report.nodeid in families:
            failed[families[report.nodeid]] += 1
    if not cases:
        return
    terminalreporter.section("fuzz")
    for family in sorted(cases):
        terminalreporter.write_line(f"{family:<24}{cases[family]:>7} cases {failed[family]:>3} tests failed")
    terminalreporter.write_line(
        f"{'in all':<24}{cases.total():>7} cases {failed.total():>3} tests failed; seed {SEED} "
        f"(again: make fuzz FUZZ_SEED={SEED}, with the same FUZZ_CASES)"
    )
