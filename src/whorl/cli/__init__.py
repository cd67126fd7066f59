"""The command line: each command parses, calls a function of :mod:`whorl.runs`, and shows what came back.

A command is a function in a module of this folder, decorated with ``app.command``; importing the module adds it.
"""

from whorl.cli import (  # noqa: F401 - imported for the commands that they add
    attack,
    demo,
    evaluate,
    listings,
    paper,
    run,
)
from whorl.cli.app import app

__all__ = ["app"]
