"""The application: its name, its version, and what happens when something goes wrong."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import MutableMapping
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from traceback import extract_tb, format_exception
from typing import Annotated, Any

import typer
import typer.main
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import whorl
from whorl.cli.commands import COMMANDS, module_of
from whorl.cli.console import messages, output
from whorl.errors import WhorlError, printable

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_SIGNALLED = 128
DEBUG = "WHORL_DEBUG"
"""Set, it shows the traceback of an unexpected error."""
_TYPED = "whorl.typed"
# UsageError is click's, or typer's own in its newer versions.
_USAGE: type[Any] = typer.BadParameter.__bases__[0]
_WORDS = {
    r"Input should be a valid integer[^:]*$": "expected a whole number.",
    r"Input should be a valid number[^:]*$": "expected a number.",
    r"Input should be": "expected",
    r"Value error, embedded null byte": "a path must not hold a null byte.",
}


# Of libgomp, which torch ships on Linux: turns of a loop, some microseconds, before a thread that waits sleeps.
_SPINNING = ("GOMP_SPINCOUNT", "1000")
_WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def yield_soon(environment: MutableMapping[str, str]) -> None:
    """Let threads that wait for each other give their core away soon, unless somebody has decided that already.

    OpenMP lets them spin for milliseconds. Beside another busy process each spins while the one that it waits for has
    no core, and seconds become minutes. It is read when torch is loaded, so this comes before.

    >>> mine = {"OMP_WAIT_POLICY": "ACTIVE"}
    >>> yield_soon(mine)
    >>> mine
    {'OMP_WAIT_POLICY': 'ACTIVE'}
    """
    if not any(name in environment for name in _WAITING):
        name, count = _SPINNING
        environment[name] = count


class Commands(TyperGroup):
    """All commands, with one way to fail: a line on stderr and an exit code, not a traceback.

    1 is the exit code of a gate that failed, and of nothing else: whatever is unexpected is an error too.

    A command's module is imported when the command is needed; a list of commands, or a press of Tab, needs none.
    """

    def __init__(self, *, commands: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.registered: dict[str, Any] = dict(commands or {})
        for command in self.registered.values():
            _join_lines(command)
        # In lists, a name and a line stand for a command that is not imported yet.
        named = {name: TyperCommand(name=name, help=line) for name, line in COMMANDS.items()}
        self.commands = {**named, **self.registered}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is about to run, or to be completed."""
        name = args[0] if args else ""
        if name in COMMANDS and name not in self.registered:
            yield_soon(os.environ)
            import_module(module_of(name))
            made = typer.main.get_command(app)
            assert isinstance(made, Commands)  # noqa: S101 - tells mypy what the application is made of
            self.commands = {**self.commands, **made.registered}
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what was typed, for manifests; click takes the list apart."""
        ctx.meta[_TYPED] = ["whorl", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            # The script `whorl` finds the module of python:mine:net where it is called, as `python -m whorl` does.
            if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
                sys.path.append(here)
            return super().invoke(ctx)
        except _USAGE as error:
            error.message = _reworded(error.message)
            raise
        except typer.Exit:
            raise
        except (KeyboardInterrupt, typer.Abort) as error:
            messages().print(Text(f"interrupted. {error}".rstrip(), style="yellow"))
            raise typer.Exit(INTERRUPTED) from error
        except SystemExit as error:
            # A network of one's own may call sys.exit: its 0 would be a passed gate, and its 1 a failed one.
            if isinstance(error.code, int) and (error.code == BAD_INPUT or error.code >= _SIGNALLED):
                raise
            said = f"something that the command called wants to end it, by sys.exit({error.code!r:.80})"
            messages().print(Text(f"error: {printable(said)}. Take that out of the network's code.", style="red"))
            raise typer.Exit(BAD_INPUT) from error
        except Exception as error:  # whatever it is, exit code 1 is a failed gate's alone
            if os.environ.get(DEBUG) and not isinstance(error, WhorlError):
                messages().print(Text("".join(format_exception(error))))
            messages().print(Text(f"error: {told(error)}", style="red"))
            raise typer.Exit(BAD_INPUT) from error


def _join_lines(command: Any) -> None:
    """Let the terminal break a command's help, and its subcommands', where it ends, not where the source does."""
    paragraphs = cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for subcommand in getattr(command, "commands", {}).values():
        _join_lines(subcommand)


def told(error: Exception) -> str:
    """What to say of an error: its message if that was meant for whoever reads it, else also where it comes from.

    >>> told(WhorlError("expected this, got that."))
    'expected this, got that.'
    """
    if isinstance(error, WhorlError):
        return str(error)
    said = printable(" ".join(str(error).split()))[:500]
    if isinstance(error, OSError):
        return f"{said}. Check the path, permissions, and free space."
    at = extract_tb(error.__traceback__)
    where = f" in {Path(at[-1].filename).name}, line {at[-1].lineno}" if at else ""
    return (
        f"{type(error).__name__}: {said} ({where.strip()}). That is a defect of whorl, or of a network of yours. "
        f"{DEBUG}=1 before the command shows the traceback; please report it with that."
    )


def _reworded(message: str) -> str:
    """What is wrong with an option, without the words of the library that reads it.

    >>> _reworded("Invalid value for '--steps': Input should be a valid integer, unable to parse string as an integer")
    "Invalid value for '--steps': expected a whole number."
    """
    for theirs, ours in _WORDS.items():
        message = re.sub(theirs, ours, message)
    return message


app = typer.Typer(
    name="whorl",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: whorl demo",
)


def typed(ctx: typer.Context) -> list[str]:
    """What the user typed, as a list of arguments."""
    return list(ctx.meta[_TYPED])


def _version(wanted: bool) -> None:
    if wanted:
        output().print(f"whorl {whorl.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Adversarial images that survive rotation, scaling and translation, and a way to measure how well they do."""
