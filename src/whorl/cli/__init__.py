"""The command line: each command parses, calls a function of :mod:`whorl.runs`, and shows what came back.

A command is a function in a module of this folder, decorated with ``app.command``, and a line in
:mod:`whorl.cli.commands`, by which it is found without importing it.
"""

from whorl.cli.app import app

__all__ = ["app"]
