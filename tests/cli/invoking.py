"""Run a command in this process, as in a log: whatever terminal the tests run on does not show."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import typer.main
from typer.testing import CliRunner

from whorl.cli import app
from whorl.cli.commands import COMMANDS, module_of

_TERMINAL = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def invoke(*arguments: str, **environment: str) -> Any:
    """Give the result, with ``exit_code``, ``stdout`` and ``stderr``."""
    return CliRunner().invoke(app, arguments, env=dict.fromkeys(_TERMINAL) | environment)


def whole_application() -> Any:
    """The application with every command imported."""
    for name in COMMANDS:
        import_module(module_of(name))
    return typer.main.get_command(app)


def plain_environment(**more: str) -> dict[str, str]:
    """The same for another process; it also finds what this one finds by PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if name not in _TERMINAL}
    if "PYTHONPATH" in more and "PYTHONPATH" in kept:
        more["PYTHONPATH"] += os.pathsep + kept["PYTHONPATH"]
    return kept | more
