"""What makes a network what it is besides weights: the source of one's own code, its settings, a graph's data."""

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
from dataclasses import is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.models.weights import tensors_sha256

_RECORDED = ("torch", "torchvision", "timm", "whorl", "builtins")
# What imports by a name that its file need not spell out.
_DYNAMIC = {"import_module", "__import__", "spec_from_file_location", "run_path", "run_module", "exec", "execfile"}
_EVERY_MODULE_S = set(vars(nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)
# How protocol buffers write the entry {key: "location", value: ...}, up to the length of the value in one or two bytes.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x00-\x7f])", re.DOTALL)


def code_of(net: nn.Module, factory: object) -> list[Path]:
    """The source files that a network of one's own is written in, and all that these import of one's own.

    Packages that are installed are left out, but for the files that the classes of the network's layers are in. A file
    that imports by names which it need not spell out has all that is imported from its folder and below.

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
        elif isinstance(node, ast.Call) and _called(node.func) in _DYNAMIC:
            found |= _below(file.parent)
    return {".".join(one.split(".")[:end]) for one in found for end in range(1, one.count(".") + 2)}


def _called(function: ast.expr) -> str:
    """The last name of what is called, as in ``importlib.import_module``."""
    return getattr(function, "attr", getattr(function, "id", ""))


def _below(folder: Path) -> set[str]:
    """The modules that were imported from a folder and below."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    home = folder.resolve()
    return {name for name, file in files.items() if file and Path(file).resolve().is_relative_to(home)} - {"__main__"}


def settings_sha256(net: nn.Module) -> str:
    """Hash what a network's modules are and hold besides what is in its state dict.

    That is their classes, attributes such as a slope that a file of settings said, tensors that are no parameters, and
    buffers that are not saved. Of objects only what a dataclass or a namespace holds is known, of a function its name.

    >>> settings_sha256(nn.LeakyReLU(0.1)) == settings_sha256(nn.LeakyReLU(0.2))
    False
    """
    held = []
    for name, module in net.named_modules():
        own = {key: value for key, value in vars(module).items() if key not in _EVERY_MODULE_S}
        held.append((name, type(module).__qualname__, _shown(own, ()), _shown(module._buffers, ())))
    return hashlib.sha256(repr(held).encode()).hexdigest()


def _shown(value: Any, around: tuple[int, ...]) -> Any:
    """What can be said of a value whoever makes it, in whichever process."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"):
        return tensors_sha256({"": torch.as_tensor(value)})
    kind = type(value).__qualname__
    if id(value) in around:
        return kind
    inside = (*around, id(value))
    if isinstance(value, dict):
        return kind, sorted((repr(_shown(key, inside)), _shown(held, inside)) for key, held in value.items())
    if isinstance(value, list | tuple):
        return kind, [_shown(held, inside) for held in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(_shown(held, inside)) for held in value)
    if is_dataclass(value) or isinstance(value, SimpleNamespace):
        return kind, _shown(vars(value), inside) if hasattr(value, "__dict__") else repr(value)
    return getattr(value, "__qualname__", kind)


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
