"""The JPEG defence of the query benchmark, on several cores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from conftest import random_images
from whorl import WhorlError


@pytest.fixture
def defense(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    from parallel_jpeg import ParallelJpeg

    made = ParallelJpeg(workers=2)
    yield made
    made.close()
    del sys.modules["parallel_jpeg"]


def test_jpeg_on_several_cores_is_jpeg(defense: Any) -> None:
    x, keys = random_images(9, height=30, width=22), torch.zeros(9, dtype=torch.int64)
    assert torch.equal(defense(x, keys), whorl.defenses.jpeg(x))
    assert torch.equal(defense(x[:1], keys[:1]), whorl.defenses.jpeg(x[:1]))
    assert torch.equal(defense(x.double(), keys), whorl.defenses.jpeg(x.double()))


def test_a_killed_jpeg_process_is_named(defense: Any) -> None:
    x, keys = random_images(9, height=30, width=22), torch.zeros(9, dtype=torch.int64)
    defense._coders.processes[0].kill()
    with pytest.raises(WhorlError, match="codes JPEG ended early, with exit code -9"):
        defense(x, keys)
