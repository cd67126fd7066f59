"""Which files make a network what it is."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from whorl import WhorlError
from whorl.models.code import code_of, external_data, settings_sha256, sha256_of_all

FILES = {
    "own_net/__init__.py": "",
    "own_net/net.py": """
import json, torch
import own_plain
from torch import nn
from . import sizes
from .blocks import *

class Net(nn.Module):
    def forward(self, x):
        from own_late import late
        return late(x)

def make():
    import own_late
    return Net()
""",
    "own_net/sizes.py": "WIDTH = 3\n",
    "own_net/blocks.py": """
from own_constants import DEPTH
try:
    from ... import above
except ImportError:
    pass
""",
    "own_net/unused.py": "",
    "own_plain.py": "import own_net.net\n",
    "own_constants.py": "DEPTH = 2\n",
    "own_late.py": "def late(x):\n    return x\n",
    "own_unused.py": "",
}


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_net.net").make
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def test_all_that_is_imported_of_ones_own(factory: Any, tmp_path: Path) -> None:
    found = code_of(factory(), factory)
    assert [file.relative_to(tmp_path).as_posix() for file in found] == sorted(
        name for name in FILES if "unused" not in name
    )
    before = sha256_of_all(found)
    (tmp_path / "own_constants.py").write_text("DEPTH = 3\n")
    assert sha256_of_all(code_of(factory(), factory)) != before
    (tmp_path / "own_constants.py").write_text("DEPTH =\n")
    with pytest.raises(WhorlError, match=r"own_constants\.py was changed after it was imported"):
        code_of(factory(), factory)


@pytest.mark.parametrize("written", ['importlib.import_module("own_" + "unused")', '__import__("own_unused")'])
def test_what_is_imported_by_name_is_found_too(written: str, factory: Any, tmp_path: Path) -> None:
    importlib.import_module("own_unused")
    (tmp_path / "own_late.py").write_text(f"import importlib\nuse = {written}\n")
    assert tmp_path / "own_unused.py" in code_of(factory(), factory)


@dataclass
class Settings:
    slope: float = 0.1
    parts: tuple[Any, ...] = ()


class Held(nn.Module):
    def __init__(self, attribute: Any = None, buffer: float = 0.0) -> None:
        super().__init__()
        self.attribute, self.act = attribute, nn.ReLU()
        self.register_buffer("buffer", torch.tensor(buffer), persistent=False)


def test_settings_are_part_of_a_network() -> None:
    looped: list[Any] = [1]
    looped.append(looped)
    attributes: list[Any] = [
        *(None, 1, 1.5, "relu", b"x", (1, 2), [1, 2], {"a": 1}, {"a": 2}, {1, 2}, torch.relu, torch.tanh, looped),
        *(torch.zeros(2), torch.ones(2), np.zeros(2), SimpleNamespace(a=1), SimpleNamespace(a=torch.ones(1))),
        *(Settings(), Settings(slope=0.2), Settings(parts=(Settings(),)), threading.Lock(), np.array([None])),
    ]
    found = [settings_sha256(Held(one)) for one in attributes]
    assert [settings_sha256(Held(one)) for one in attributes] == found
    assert len({*found, settings_sha256(Held(buffer=1.0)), settings_sha256(nn.ReLU())}) == len(found) + 2
    other = Held()
    other.act = nn.Tanh()  # type: ignore[assignment]
    assert settings_sha256(other) != found[0] == settings_sha256(Held().train())


def test_where_a_graph_says_its_data_are(tmp_path: Path) -> None:
    def entry(place: str) -> bytes:
        size = len(place)
        length = bytes([size]) if size < 128 else bytes([size % 128 + 128, size // 128])
        return b"\x0a\x08location\x12" + length + place.encode()

    deep = "/".join(["a" * 50] * 3) + "/weights"
    for name in ("beside.data", "other.data", deep):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    graph = tmp_path / "net.onnx"
    graph.write_bytes(b"other.data" + entry("beside.data") + entry(deep) + entry("gone") + entry("beside.data"))
    assert external_data(graph) == [tmp_path / deep, tmp_path / "beside.data"]
