"""``whorl harden``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import whorl.cli.harden  # noqa: F401 - adds the command
from cli.invoking import invoke
from conftest import CLASSES
from whorl.data import save_image
from whorl.models.weights import read_state_dict

SMALL = "python:cli.toy_networks:small"
OTHER = "python:cli.toy_networks:other"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    for label in range(CLASSES):
        for number in range(3):
            save_image(tmp_path / "photos" / str(label) / f"{number}.png", torch.rand(3, 20, 20, generator=generator))
    return tmp_path / "photos"


def train(photos: Path, out: Path, *more: str) -> list[str]:
    words = ["harden", SMALL, "--data", str(photos), "--pool", OTHER, "--out", str(out), "--device", "cpu"]
    return [*words, "--steps", "4", "--batch", "8", "--held-out", "4", *more]


def test_training_and_what_it_bought(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(*train(photos, out, "--compare", str(photos), "--source", OTHER, "--limit", "6"))
    assert done.exit_code == 0, done.stderr
    assert "small.ens-at: 4 steps" in done.stdout
    assert "success rates (%), crafted on other" in done.stdout
    assert "clean accuracy:" in done.stdout
    assert "step 4 of 4" in done.stderr
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert names == {
        *("checkpoint.pt", "weights.safetensors", "manifest.json", "report.html", "comparison.html", "comparison.json")
    }
    assert json.loads((out / "comparison.json").read_text())["n"] == 6
    again = invoke(*train(photos, out, "--json"))
    assert again.exit_code == 0, again.stderr
    told = json.loads(again.stdout)
    assert told["name"] == "small.ens-at"
    assert [entry["step"] for entry in told["history"]] == [1, 2, 3, 4]  # taken over: nothing was trained again
    assert "step 4 of 4" not in again.stderr


def test_a_hardened_network_loads_by_address(photos: Path, tmp_path: Path) -> None:
    assert invoke(*train(photos, tmp_path / "out", "--recipe", "trades", "--teacher", "none")).exit_code == 0
    state = read_state_dict(tmp_path / "out" / "weights.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in state.values())


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--recipe", "alpp"), "unknown recipe 'alpp'. Did you mean 'alp'"),
        (("--batch", "30"), "at least a batch of 30 images to train on, got 17"),
        (("--lr", "-1"), "lr must be a number above 0"),
        (("--precision", "fp4"), "precision must be"),
    ],
)
def test_bad_options(photos: Path, tmp_path: Path, more: tuple[str, ...], says: str) -> None:
    done = invoke(*train(photos, tmp_path / "out", *more))
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_missing_class_folder(photos: Path, tmp_path: Path) -> None:
    for path in (photos / "2").iterdir():
        path.unlink()
    (photos / "2").rmdir()
    done = invoke(*train(photos, tmp_path / "out"))
    assert done.exit_code == 2
    assert "got none of class 2" in done.stderr
    assert invoke(*train(photos, tmp_path / "out", "--partial")).exit_code == 0


def test_something_must_be_asked_for(photos: Path, tmp_path: Path) -> None:
    done = invoke("harden", SMALL)
    assert done.exit_code == 2
    assert "expected --data to train on" in done.stderr
    done = invoke("harden", SMALL, "--compare", str(photos), "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "expected a hardened network of whorl" in done.stderr
