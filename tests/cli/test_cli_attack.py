"""``whorl attack``: what it writes, and going on after an interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from cli.invoking import invoke, plain_environment
from cli.toy_networks import classifier, other, small
from conftest import random_images, small_net
from whorl.data import load_image, save_image
from whorl.evaluation.attacked_images import to_8_bits
from whorl.models.weights import state_dict_sha256
from whorl.runs import store, worker
from whorl.runs.plan import Variant

COUNT = 6


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Six small images with the labels that the network gives them."""
    x = random_images(COUNT)
    return labelled(tmp_path / "data", x, classifier(small_net(), "small")(x).argmax(1).tolist())


def labelled(folder: Path, x: Tensor, labels: Sequence[int]) -> Path:
    for i, (image, label) in enumerate(zip(x, labels, strict=True)):
        save_image(folder / str(label) / f"{i}.png", image)
    return folder


def attack(data: Path, out: Path, *more: str, name: str = "pgd", model: str = "small", **environment: str) -> Any:
    models = ",".join(f"python:cli.toy_networks:{part}" for part in model.split(","))
    return invoke("attack", name, "--model", models, "--data", str(data), "--out", str(out), *more, **environment)


def manifest(out: Path) -> Any:
    return json.loads((out / "manifest.json").read_text())


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.png"))}


def test_saves_exactly_what_the_attack_makes(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", "--eps", "8/255", "--steps", "3", "--seed", "7", "--batch-size", str(COUNT))
    assert result.exit_code == 0, result.stderr
    x, y, ids = whorl.load_images(data)
    adv = whorl.attack("pgd", eps=8 / 255, steps=3)(classifier(small_net(), "small"), x, y, seed=7, ids=ids)
    saved = torch.stack([load_image(tmp_path / "run" / "adv" / "pgd" / "small" / f"{name}.png") for name in ids])
    assert torch.equal(saved, to_8_bits(adv))
    assert (saved - x).abs().max() <= 8 / 255 + 1e-6


def test_the_manifest_holds_every_setting(data: Path, tmp_path: Path) -> None:
    attack(data, tmp_path / "run", "--eps", "8/255", "--seed", "7", "--limit", "2", name="AI-DIM")
    entry = manifest(tmp_path / "run")["crafted"]["ai-dim/small"]
    assert entry["settings"]["eps"] == 8 / 255
    assert entry["settings"]["steps"] == 10
    assert entry["settings"]["estimator"]["type"] == "AffineInvariant"
    assert entry["repr"] == repr(whorl.attack("ai-dim", eps=8 / 255))
    assert entry["seed"] == 7
    [model] = entry["models"]
    assert len(model.pop("code_sha256")) == 64
    assert model == {
        "name": "small",
        "weights_sha256": state_dict_sha256(small_net()),
        "input": [[18, 18], [0.5] * 3, [0.5] * 3, classifier(small_net(), "small").resize],
    }
    assert entry["versions"].keys() >= {"whorl", "python", "torch"}
    assert entry["command"][:3] == ["whorl", "attack", "AI-DIM"]
    assert entry["data"] == {"folder": str(data), "size": None}
    assert [image["label"] for image in entry["images"].values()] == whorl.load_images(data, limit=2).y.tolist()
    assert all(image["grad_evals"] == 10 for image in entry["images"].values())


def test_ends_with_the_white_box_success(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", "--eps", "64/255")
    assert result.stdout.splitlines()[2].split() == ["small", "6", "6", "6", "100.0%", "61.0%", "to", "100.0%"]
    checks = ["checking the sources: 0/1", "checking the sources: 1/1"]
    assert result.stderr.splitlines() == [*checks, "pgd on small: 0/6", "pgd on small: 6/6"]


@pytest.mark.parametrize("name", ["pgd", "ai-dim"])
def test_an_interrupted_run_goes_on(name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack(data, tmp_path / "whole", "--batch-size", "4", name=name)
    saved = 0

    def save_five(path: Path, x: torch.Tensor) -> None:
        nonlocal saved
        saved += 1
        if saved == 6:
            raise KeyboardInterrupt
        save_image(path, x)

    with monkeypatch.context() as patch:
        patch.setattr(store, "save_image", save_five)
        result = attack(data, tmp_path / "run", "--batch-size", "4", name=name)
    assert result.exit_code == 130
    assert "interrupted. 4 images are in" in result.stderr
    assert "Run the same command again to go on." in result.stderr
    before = files(tmp_path / "run")
    assert (
        len(before) == len(manifest(tmp_path / "run")["crafted"][f"{name}/small"]["images"]) == 4
    )  # a batch is kept whole or not at all

    result = attack(data, tmp_path / "run", "--batch-size", "4", name=name)
    assert result.exit_code == 0
    assert "6 images, 4 of them from before" in result.stdout
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_what_is_done_is_not_done_again(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack(data, tmp_path / "run", "--limit", "4")
    monkeypatch.setattr(store, "save_image", None)
    assert "3 images, 3 of them from before" in attack(data, tmp_path / "run", "--limit", "3").stdout


def test_a_image_that_changed_or_vanished_is_made_again(data: Path, tmp_path: Path) -> None:
    attack(data, tmp_path / "run")
    clean = sorted(data.rglob("*.png"))
    save_image(clean[0], 1 - load_image(clean[0]))
    assert "6 images, 2 of them from before" in attack(data, tmp_path / "run").stdout  # the batch of four is made anew
    before = files(tmp_path / "run")
    made = sorted((tmp_path / "run" / "adv").rglob("*.png"))
    made[1].unlink()
    assert "6 images, 2 of them from before" in attack(data, tmp_path / "run").stdout
    assert files(tmp_path / "run") == before
    save_image(made[5], torch.zeros(3, 18, 18))  # not what was written
    assert "6 images, 4 of them from before" in attack(data, tmp_path / "run").stdout
    assert files(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("more", "what"), [(["--eps", "8/255"], "eps"), (["--seed", "1"], "seed"), (["--target-class", "2"], "target")]
)
def test_other_settings_are_refused_and_named(more: list[str], what: str, data: Path, tmp_path: Path) -> None:
    attack(data, tmp_path / "run")
    before = files(tmp_path / "run")
    result = attack(data, tmp_path / "run", *more)
    assert result.exit_code == 2
    assert f"already holds pgd/small, made with another {what}." in result.stderr
    assert files(tmp_path / "run") == before

    assert attack(data, tmp_path / "run", *more, "--overwrite", "--limit", "2").exit_code == 0
    assert len(files(tmp_path / "run")) == 2
    assert not files(tmp_path / "run").items() & before.items()


def test_other_weights_are_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack(data, tmp_path / "run")
    monkeypatch.setattr("cli.toy_networks.small", lambda: classifier(small_net(seed=3), "small"))
    assert "another models" in attack(data, tmp_path / "run").stderr


def test_another_version_is_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack(data, tmp_path / "run")
    monkeypatch.setattr(whorl, "__version__", "99.0")
    assert "another whorl_version" in attack(data, tmp_path / "run").stderr


def test_a_mistake_does_not_claim_the_folder(data: Path, tmp_path: Path) -> None:
    assert "must lie in [0, 6]" in attack(data, tmp_path / "run", "--target-class", "7").stderr
    assert attack(data, tmp_path / "run", "--target-class", "6").exit_code == 0


def test_attacks_and_sources_share_a_folder(tmp_path: Path) -> None:
    x = random_images(COUNT)
    said = [network()(x).argmax(1).tolist() for network in (small, other)]
    data = labelled(tmp_path / "data", x, [said[i % 2][i] for i in range(COUNT)])  # so that each recognises some
    attack(data, tmp_path / "run")
    attack(data, tmp_path / "run", name="fgsm")
    attack(data, tmp_path / "run", model="other")
    assert list(manifest(tmp_path / "run")["crafted"]) == ["pgd/small", "fgsm/small", "pgd/other"]
    assert len(files(tmp_path / "run")) == 3 * COUNT


def test_several_models_are_an_ensemble(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", model="small,other")
    rows = [line.split()[0] for line in result.stdout.splitlines()[2:5]]
    assert rows == ["small", "other", "small+other"]
    entry = manifest(tmp_path / "run")["crafted"]["pgd/small+other"]
    assert [model["name"] for model in entry["models"]] == ["small", "other"]
    assert len(files(tmp_path / "run" / "adv" / "pgd" / "small+other")) == COUNT


def test_a_target(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", "--target-class", "2", "--eps", "0.5", "--steps", "20")
    assert "Hit rate: 6 of " in result.stdout
    answers = classifier(small_net(), "small")(torch.stack([load_image(p) for p in (tmp_path / "run").rglob("*.png")]))
    assert answers.argmax(1).tolist() == [2] * COUNT


def test_a_target_is_counted_after_an_interruption_too(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--target-class", "2", "--eps", "0.5", "--steps", "20"]

    def cut(_: object, variant: Variant, *__: object) -> None:
        if variant.attack is not None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker.Worker, "_reach", cut)  # the images are there, who is fooled is not
        assert attack(data, tmp_path / "run", *more, "--batch-size", "6").exit_code == 130
    assert len(files(tmp_path / "run")) == COUNT
    result = attack(data, tmp_path / "run", *more, "--batch-size", "6")
    assert "Hit rate: 6 of " in result.stdout
    assert "6 images, 6 of them from before" in result.stdout


def test_the_l2_norm(data: Path, tmp_path: Path) -> None:
    assert attack(data, tmp_path / "run", "--norm", "l2", "--eps", "2.5").exit_code == 0
    settings = manifest(tmp_path / "run")["crafted"]["pgd/small"]["settings"]
    assert (settings["norm"], settings["eps"]) == ("l2", 2.5)


def test_bad_images_stop_it_or_are_left_out(data: Path, tmp_path: Path) -> None:
    bad = sorted(data.rglob("*.png"))[2]
    bad.write_bytes(b"not an image")
    result = attack(data, tmp_path / "run", "--batch-size", "1")
    assert result.exit_code == 2
    assert f"error: {bad}: cannot be read as an image" in result.stderr
    result = attack(data, tmp_path / "run", "--batch-size", "1", "--skip-bad")
    assert result.exit_code == 0
    assert f"left out: {bad}: cannot be read as an image" in result.stderr
    assert "5 images, " in result.stdout


def test_a_model_s_name_cannot_leave_the_folder(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run" / "deep", model="oddly_named")
    assert result.exit_code == 0
    assert len(files(tmp_path / "run" / "deep" / "adv" / "pgd")) == COUNT
    assert not (tmp_path / "run" / "up").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"format": 99}', "\x00"])
def test_a_foreign_manifest_is_left_alone(content: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(content)
    result = attack(data, tmp_path / "run")
    assert result.exit_code == 2
    assert "hoose another folder" in result.stderr
    assert (tmp_path / "run" / "manifest.json").read_text() == content


def test_a_folder_that_cannot_be_made(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        result = attack(data, out)
        assert result.exit_code == 2
        assert f"{tmp_path / 'file'} is a file" in result.stderr


def test_bars_on_a_terminal(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", FORCE_COLOR="1")
    assert result.exit_code == 0
    assert "━" in result.stderr
    assert "6/6" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there, Ctrl-C cannot be sent to one process")
def test_ctrl_c(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whorl", "attack", "pgd", "--model", "python:cli.toy_networks:slow"]
    command += ["--data", str(data), "--out", str(tmp_path / "run"), "--batch-size", "1"]
    environment = plain_environment(PYTHONPATH=str(Path(__file__).parents[1]))
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 50
        while not files(tmp_path / "run") and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "interrupted. " in said
    assert "Traceback" not in said
    assert files(tmp_path / "run").keys() == {
        f"adv/pgd/slow/{name}.png" for name in manifest(tmp_path / "run")["crafted"]["pgd/slow"]["images"]
    }
