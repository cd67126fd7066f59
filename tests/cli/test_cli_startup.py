"""Commands are found without being imported: help, version and completion come before torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import whorl.cli
from cli.invoking import invoke, plain_environment, whole_application
from whorl.cli.commands import COMMANDS, module_of


def run(*arguments: str, **more: str) -> tuple[str, list[str]]:
    """Run ``whorl`` in a process of its own; give what it printed, and which heavy packages it imported."""
    code = (
        "import atexit, sys; heavy = {'torch', 'timm', 'numpy', 'PIL'};"
        "atexit.register(lambda: print(*sorted(heavy & set(sys.modules)), file=sys.stderr));"
        "from whorl.cli import app; app(prog_name='whorl')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=plain_environment(**more),
    )
    return done.stdout, done.stderr.splitlines()[-1].split()


def test_help_imports_nothing_heavy() -> None:
    printed, heavy = run("--help")
    assert heavy == []
    for name in COMMANDS:
        assert f" {name} " in printed


def test_the_version_imports_nothing_heavy() -> None:
    assert run("--version") == (f"whorl {whorl.__version__}\n", [])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_commands_imports_nothing_heavy(shell: str) -> None:
    words = {
        "bash": {"COMP_WORDS": "whorl att", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "whorl att"},
        "fish": {"_TYPER_COMPLETE_ARGS": "whorl att", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    printed, heavy = run(_WHORL_COMPLETE=f"complete_{shell}", **words)
    assert "attack" in printed
    assert "attacks" in printed
    assert "evaluate" not in printed
    assert heavy == []


def test_options_are_completed() -> None:
    printed, _ = run(_WHORL_COMPLETE="complete_bash", COMP_WORDS="whorl evaluate --fa", COMP_CWORD="2")
    assert printed.split() == ["--fail-above"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_commands_own(name: str) -> None:
    paragraph = whole_application().commands[name].help.strip().partition("\n\n")[0]
    assert COMMANDS[name] == " ".join(paragraph.split())


def test_every_command_is_in_the_table() -> None:
    """A command that no line of the table leads to could not be run."""
    folder = Path(whorl.cli.__file__).parent
    adding = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and ast.unparse(called) in ("app.command", "app.add_typer"):
                adding.add(f"whorl.cli.{path.stem}")
    assert {module_of(name) for name in COMMANDS} == adding
    assert sorted(whole_application().commands) == sorted(COMMANDS)


def test_a_mistyped_command_is_guessed() -> None:
    done = invoke("evalute")
    assert done.exit_code == 2
    assert "evaluate" in done.stderr


def test_a_group_of_commands_is_found() -> None:
    if "physical" not in COMMANDS:
        pytest.skip("no group here")
    assert "print" in whole_application().commands["physical"].commands
    assert "Print" in invoke("physical", "--help").stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torch has another OpenMP there")
@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
    ids=["nobody decided", "count", "policy"],
)
def test_threads_that_wait_yield_soon_unless_somebody_has_decided(given: dict[str, str], spins: str) -> None:
    """What OpenMP itself says it was told as torch was loaded."""
    environment = plain_environment(OMP_DISPLAY_ENV="VERBOSE", **given)
    for name in {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} - set(given):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "whorl", "models"], capture_output=True, text=True, check=False, env=environment
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
