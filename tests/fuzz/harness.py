"""What the families share: how many cases, from which seed, and the property that all of them must have."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from cli.invoking import invoke
from whorl.errors import WhorlError

CASES = int(os.environ.get("FUZZ_CASES", "250"))
"""Generated cases of all families together; the listed ones come on top."""
SEED = int(os.environ.get("FUZZ_SEED", "1"))

Verdict = Literal["error", "works", "either"]
"""What the reference says must come of a case; "either" where it cannot know, as of bytes that were shuffled."""

COUNTED: Counter[str] = Counter()
_Result = TypeVar("_Result")
# Words of others: of an interpreter, or of a library that ours is built with.
_LEAKS = re.compile(r"Traceback|validation error|Input should|Tuple should|List should|Value error,|pydantic")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_MOST_LINES = 22


def fuzz(share: float, **strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of generated cases: ``share`` of all of them, the same for the same seed and number."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def counting(*args: Any, **case: Any) -> None:
            COUNTED["cases"] += 1
            test(*args, **case)

        limits = settings(
            max_examples=max(5, round(share * CASES)),
            deadline=None,
            database=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
        )
        made: Callable[..., None] = seed(SEED)(limits(given(**strategies)(counting)))
        return made

    return decorate


def judge(action: Callable[[], _Result], verdict: Verdict) -> _Result | None:
    """Do something, and hold what comes of it against what the reference says.

    Returns:
        What was done; None where it was refused. Anything but a WhorlError goes through, and fails the test.
    """
    done, refusal = tried(action)
    if refusal is None:
        assert verdict != "error", f"a result where an error was due: {done!r:.300}"
        return done
    assert verdict != "works", f"refused, though nothing is wrong with it: {refusal}"
    return None


def hold(arguments: list[str], verdict: Verdict, *, gate: bool = False) -> Any:
    """Run a command, and hold its exit code and what it says against the property.

    Returns:
        The command's result.
    """
    result = invoke(*arguments)
    ended = result.exception
    assert ended is None or isinstance(ended, SystemExit), (arguments, repr(ended))
    assert result.exit_code in ((0, 1, 2) if gate else (0, 2)), (arguments, result.exit_code, result.stderr)
    refused = result.exit_code == 2
    if refused:
        assert "Traceback" not in result.stderr
        assert "defect of whorl" not in result.stderr, (arguments, result.stderr)
        told = result.stderr.partition("error: ")[2] or result.stderr
        readable(told.strip() if "error: " in result.stderr else "usage: " + " ".join(told.split())[:1000])
    assert verdict != "error" or refused, (arguments, result.stdout)
    assert verdict != "works" or not refused, (arguments, result.stderr)
    return result


def tried(action: Callable[[], _Result]) -> tuple[_Result | None, str | None]:
    """What came of it, and None; or None, and the refusal, which must be readable."""
    try:
        return action(), None
    except WhorlError as error:
        readable(str(error))
        return None, str(error)


def readable(message: str) -> None:
    """Hold a message against what a reader can expect of one."""
    assert message.strip(), "an error without a word"
    assert not _LEAKS.search(message), f"somebody else's words: {message}"
    assert not _CONTROL.search(message), f"control characters: {message!r}"
    lines = message.splitlines()
    assert len(lines) <= _MOST_LINES, f"{len(lines)} lines: {message}"
    assert max(map(len, lines)) <= 1500, f"a line of {max(map(len, lines))} characters: {message[:300]}"
