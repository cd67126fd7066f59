"""The files that make a network what it is: the source of one's own code, the external data of a graph."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torch import nn

from whorl.errors import WhorlError
from whorl.files import sha256_of

_RECORDED = ("torch", "torchvision", "timm", "whorl", "builtins")
# How protocol buffers write the entry {key: "location", value: ...}, up to the length of the value in one or two bytes.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x00-\x7f])", re.DOTALL)


def code_of(net: nn.Module, factory: object) -> list[Path]:
    """The source files that a network of one's own is written in, and all that these import of one's own.

    Packages that are installed are left out, but for the files that the classes of the network's layers are in.

    >>> [file.name for file in code_of(nn.Flatten(), nn.Flatten)]
    []
    """
    home = inspect.getmodule(factory)
    waiting = {type(module).__module__ for module in net.modules()} | ({home.__name__} if home else set())
    waiting = {name for name in waiting if name.partition(".")[0] not in _RECORDED}
    seen: set[str] = set()
    written: set[Path] = set()
    while waiting:
        seen.add(name := waiting.pop())
        module = sys.modules.get(name)
        file = inspect.getsourcefile(module) if module and getattr(module, "__file__", None) else None
        if file is not None:
            written.add(Path(file))
            if not _installed(name):
                waiting |= {other for other in _imported(name, Path(file)) if not _installed(other)} - seen
    return sorted(written)


def _installed(name: str) -> bool:
    """Whether a module belongs to Python or to a package in its library, and not to somebody's own work."""
    top = name.partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return (
        top in _RECORDED
        or top in sys.stdlib_module_names
        or bool({"site-packages", "dist-packages"} & {*Path(file).parts})
    )


def _imported(name: str, file: Path) -> set[str]:
    """What a module may import, wherever in its file that is written, and the packages around that and itself."""
    found, package = {name}, getattr(sys.modules[name], "__package__", None) or ""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise WhorlError(
            f"{file} was changed after it was imported, and cannot be read ({error}). Run again."
        ) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # relative to a package that is not there: another line imports it then
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                # A module, or a name in the one before the dot.
                found |= {f"{base}.{alias.name}" for alias in node.names}
    return {".".join(one.split(".")[:end]) for one in found for end in range(1, one.count(".") + 2)}


def external_data(path: Path) -> list[Path]:
    """The files that an ONNX graph keeps weights in, beside it or in folders below."""
    graph, found = path.read_bytes(), set()
    for entry in _LOCATION.finditer(graph):
        length = sum((byte & 127) << 7 * place for place, byte in enumerate(entry[1]))
        found.add(path.parent / os.fsdecode(graph[entry.end() : entry.end() + length]))
    return sorted(file for file in found if file.is_file())


def sha256_of_all(files: Sequence[Path]) -> str:
    """One hash of several files; of a single file its own."""
    hashes = [sha256_of(file) for file in files]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()
