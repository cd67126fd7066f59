"""Two processes at work in one folder: the second waits and says for whom, or is refused; what comes out is the same.

Nothing here waits for a clock: the first command pauses where it holds the folder, and goes on when the second has said
that it waits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cli.commands_at_work import OTHER_WORK, WITHOUT_A_STORE, WORK, leftovers, photograph, prepare, shards
from processes import Command, moments
from whorl.physical import read_sheets
from whorl.runs.store import Store

ALL = WORK | OTHER_WORK | WITHOUT_A_STORE
HELD = 6  # the first four moments are those of the note that says who holds the folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no forks")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = prepare(tmp_path_factory.mktemp("given"))
    photograph(folder)
    shards(folder)
    return folder


@pytest.fixture(scope="module")
def alone(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What comes of a command by itself; each is run once."""
    known: dict[str, Any] = {}

    def result(name: str) -> Any:
        if name not in known:
            root = tmp_path_factory.mktemp(name)
            moments(*ALL[name].typed(given, root / "out"), scratch=root / "said")
            known[name] = ALL[name].result(root / "out")
        return known[name]

    return result


def both(first: list[str], second: list[str], root: Path, *, pause_at: int = HELD) -> tuple[Command, Command]:
    """Run two commands, the second begun while the first holds the folder."""
    one = Command(*first, scratch=root / "one", pause_at=pause_at)
    one.until_paused()
    other = Command(*second, scratch=root / "other")
    other.until(lambda: "waiting for" in other.text)
    assert one.process.is_alive()
    one.go_on()
    for command in (one, other):
        command.wait()
    return one, other


@pytest.mark.parametrize("name", WITHOUT_A_STORE)
def test_commands_without_a_store_do_not_wait(name: str, given: Path, alone: Any, tmp_path: Path) -> None:
    out, work = tmp_path / "out", ALL[name]
    commands = [Command(*work.typed(given, out), scratch=tmp_path / said) for said in ("one", "other")]
    assert [command.wait() for command in commands] == [0, 0], "".join(command.text for command in commands)
    assert work.result(out) == alone(name)
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("name", WORK | OTHER_WORK)
def test_the_same_command_twice(name: str, given: Path, alone: Any, tmp_path: Path) -> None:
    out, work = tmp_path / "out", ALL[name]
    one, other = both(work.typed(given, out), work.typed(given, out), tmp_path)
    assert (one.wait(), other.wait()) == (0, 0), one.text + other.text
    shown = {"query": "attack nes", "score": "physical score"}.get(name, name)
    assert f"waiting for process {one.process.pid} on " in other.text
    assert f": whorl {shown}" in other.text
    assert work.result(out) == alone(name)
    assert not leftovers(tmp_path)


@pytest.mark.parametrize(("first", "second"), [("attack", "run"), ("run", "query"), ("query", "attack")])
def test_two_kinds_of_work(first: str, second: str, given: Path, alone: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    one, other = both(ALL[first].typed(given, out), ALL[second].typed(given, out), tmp_path)
    assert (one.wait(), other.wait()) == (0, 0), one.text + other.text
    images: dict[str, bytes] = {}
    for name in (first, second):
        images |= alone(name)[0]
    assert ALL["attack"].result(out)[0] == images
    assert not leftovers(tmp_path)


def test_other_settings_are_refused(given: Path, alone: Any, tmp_path: Path) -> None:
    out, typed = tmp_path / "out", ALL["attack"].typed(given, tmp_path / "out")
    one, other = both(typed, [*typed, "--eps", "4/255"], tmp_path)
    assert (one.wait(), other.wait()) == (0, 2), one.text + other.text
    assert "already holds pgd/small, made with another eps" in other.text
    assert ALL["attack"].result(out) == alone("attack")
    store = Store(out)
    assert all(store.sound(chunk) for chunk in store.chunks(Path("pgd", "small")))


def test_a_training_of_other_settings_is_refused(given: Path, alone: Any, tmp_path: Path) -> None:
    out, typed = tmp_path / "out", ALL["harden"].typed(given, tmp_path / "out")
    one, other = both(typed, [*typed, "--seed", "1"], tmp_path)
    assert (one.wait(), other.wait()) == (0, 2), one.text + other.text
    assert "belongs to another run: its settings" in other.text
    assert ALL["harden"].result(out) == alone("harden")


def test_of_two_prints_none_is_lost(given: Path, tmp_path: Path) -> None:
    typed = ["physical", "print", str(given / "data"), "--out"]
    first, second = [*typed, str(tmp_path / "a" / "a.pdf")], [*typed, str(tmp_path / "b" / "b.pdf"), "--page", "A5"]
    one, other = both(first, second, tmp_path, pause_at=5)  # the PDF is there, and what was printed is being noted
    assert (one.wait(), other.wait()) == (0, 0), one.text + other.text
    widths = {sheet.layout.width for sheet in read_sheets(given / "data")}
    assert len(widths) == 2


def test_no_lock_outlives_its_process(given: Path, alone: Any, tmp_path: Path) -> None:
    out, typed = tmp_path / "out", ALL["attack"].typed(given, tmp_path / "out")
    assert Command(*typed, scratch=tmp_path / "one", kill_at=HELD).wait() == -9
    assert (out / ".run.holder").exists()
    other = Command(*typed, scratch=tmp_path / "other")
    assert other.wait() == 0
    assert "waiting" not in other.text
    assert ALL["attack"].result(out) == alone("attack")
