"""Progress as people see it: bars with the time that is left and what is known so far; plain lines in a log."""

from __future__ import annotations

import pytest

from whorl.cli.console import messages, progress_bar


def test_a_terminal_shows_stage_time_left_and_what_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert messages().is_terminal
    with progress_bar() as progress:
        progress("crafting \x1b[31m", 1, 4)
        progress.note("Success so far: dim 50%\x07")
        progress("crafting \x1b[31m", 3, 4)
    shown = capsys.readouterr().err
    for words in ("crafting", "3/4", "left", "Success so far: dim 50%"):
        assert words in shown
    assert "\x1b[31m\x1b" not in shown  # a name gives a terminal no orders
    assert "\x07" not in shown


def test_a_log_has_plain_lines_and_not_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("whorl.cli.console.time.monotonic", lambda: now)
    with progress_bar() as progress:
        for done in range(5):
            progress("crafting", done, 4)
            progress.note(f"so far {done}")
            now += 4
    # The first and the last of a stage, and one every ten seconds; likewise of what is known.
    assert capsys.readouterr().err.splitlines() == [
        "crafting: 0/4",
        "so far 0",
        "crafting: 3/4",
        "so far 3",
        "crafting: 4/4",
    ]
