"""kill -9 at any moment of every command that takes long: the same command again ends as if nothing had happened."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from cli.commands_at_work import WORK, leftovers, prepare
from processes import Command, moments

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there, a process cannot be killed so")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("given"))


def killed_and_resumed(name: str, given: Path, root: Path, shares: list[tuple[float, float]]) -> int:
    """Kill a command twice in each of some scratch folders, at shares of all its moments; gives the number of kills."""
    work, kills = WORK[name], 0
    count = moments(*work.typed(given, root / "whole"), scratch=root / "said")
    expected = work.result(root / "whole")
    assert count > 20, "too few moments to choose from"
    for first, second in shares:
        out = root / "out"
        shutil.rmtree(out, ignore_errors=True)
        for share in (first, second):
            at = max(1, int(share * count))
            command = Command(*work.typed(given, out), scratch=root / "said", kill_at=at)
            assert command.wait() == -signal.SIGKILL, f"not killed at {at} of {count}:\n{command.text}"
            kills += 1
        command = Command(*work.typed(given, out), scratch=root / "said")
        assert command.wait() == 0, command.text
        assert work.result(out) == expected, f"after kills at {first:.0%} and {second:.0%}"
        assert not leftovers(out)
    return kills


@pytest.mark.parametrize("name", WORK)
def test_killed_twice_and_resumed(name: str, given: Path, tmp_path: Path) -> None:
    assert killed_and_resumed(name, given, tmp_path, [(0.5, 0.3)]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_killed_at_moments_all_over(name: str, given: Path, tmp_path: Path) -> None:
    # Once at each twelfth, and then early in the second attempt: before it has got any further, or a little later.
    shares = [(n / 12, (0.02, 0.05, 0.08)[n % 3]) for n in range(1, 12)]
    kills = killed_and_resumed(name, given, tmp_path, shares)
    print(f"\n{name}: {kills} kills, all resumed to the same bytes")  # noqa: T201 - whoever runs it by hand wants to know
    assert kills >= 20
