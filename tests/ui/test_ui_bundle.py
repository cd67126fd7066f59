"""What a visitor takes home repeats what they saw: the commands make the same images, pixel for pixel."""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from pathlib import Path

import pytest
import torch

from cli.invoking import invoke
from ui.ui_toys import image
from whorl.data import load_image
from whorl.models import load_model
from whorl.ui.bundle import FOLDER, archive, commands, downloads
from whorl.ui.pair import PairSettings, craft, pairs

NET = "python:cli.toy_networks:wide"


@pytest.mark.parametrize("name", ["pgd", "eot"])
def test_the_commands_repeat_the_images(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = load_model(NET)
    made = craft(net, image(tmp_path, side=32), PairSettings(attack=name, eps=6 / 255, steps=3, seed=5))
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(io.BytesIO(archive(made, NET))) as packed:
        packed.extractall()
        kept = packed.read(f"{FOLDER}/repeat.sh").decode()
    for command in commands(made, NET):
        assert command in kept
        program, *words = shlex.split(command)
        assert program == "whorl"
        done = invoke(*words)
        assert done.exit_code == 0, done.stderr
    for attack in pairs()[name]:
        [again] = (tmp_path / FOLDER / "again" / "adv" / attack).rglob("*.png")
        assert torch.equal(load_image(again), made.versions[attack][0])
        assert torch.equal(load_image(tmp_path / FOLDER / f"{attack}.png"), made.versions[attack][0])
    settings = json.loads((tmp_path / FOLDER / "settings.json").read_text())
    assert (settings["network"], settings["seed"], settings["steps"]) == (NET, 5, 3)


def test_the_same_example_gives_the_same_bytes(tmp_path: Path) -> None:
    made = craft(load_model(NET), image(tmp_path, side=32), PairSettings(steps=1))
    assert archive(made, NET) == archive(made, NET)
    names = [file.name for file in downloads(made, NET)]
    assert names == ["pgd.png", "ai-pgd.png", f"{FOLDER}.zip"]
