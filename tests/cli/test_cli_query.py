"""``whorl attack`` with black-box attacks: the target, the start, the counts, the trace."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from attacks.test_query_targets import write_linear
from cli.invoking import invoke, plain_environment
from cli.toy_networks import classifier
from conftest import random_images, small_net
from whorl.data import load_image, save_image

COUNT = 5
SMALL, OTHER = "python:cli.toy_networks:small", "python:cli.toy_networks:other"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Five small images with the labels that the network gives them."""
    x = random_images(COUNT)
    for i, label in enumerate(classifier(small_net(), "small")(x).argmax(1).tolist()):
        save_image(tmp_path / "data" / str(label) / f"{i}.png", x[i])
    return tmp_path / "data"


def attack(data: Path, out: Path, *more: str, name: str = "nes", target: str = SMALL) -> Any:
    short = ["--samples", "20"] if name in whorl.attack_names(kind="score") else []
    where = ["--data", str(data), "--out", str(out), "--budget", "200", *short]
    return invoke("attack", name, "--target", target, *where, *more)


def entry(out: Path, key: str) -> Any:
    return json.loads((out / "manifest.json").read_text())["crafted"][key]


def test_a_start_a_defence_and_counts(data: Path, tmp_path: Path) -> None:
    more = ["--init", "ai-dim", "--surrogate", f"{OTHER},{SMALL}", "--defense", "jpeg", "--eps", "8/255"]
    result = attack(data, tmp_path / "run", *more)
    assert result.exit_code == 0, result.stderr
    found = entry(tmp_path / "run", "nes-ai-dim/small+jpeg")
    assert [part["name"] for part in found["surrogate"]] == ["other", "small"]
    assert found["settings"]["init"]["eps"] == 8 / 255
    assert found["models"][1]["defense"] == {"type": "Jpeg", "quality": 75}
    x, y, ids = whorl.load_images(data)
    target = whorl.load_defense("jpeg", classifier(small_net(), "small"))
    saved = torch.stack([load_image(tmp_path / "run" / "adv" / "nes-ai-dim" / "small+jpeg" / f"{i}.png") for i in ids])
    assert float((saved - x).abs().max()) <= 8 / 255 + 1e-6
    won = target(saved).argmax(1) != y
    assert [found["images"][i]["success"] for i in ids] == won.tolist()
    counts = [found["images"][i]["queries"] for i in ids]
    row = result.stdout.splitlines()[2].split()
    assert row[:3] == ["small+jpeg", str(COUNT), str(int(won.sum()))]
    assert row[-1] == str(sum(counts))
    assert f"{sum(counts) / COUNT:.1f}" in row
    assert found["summary"]["mean_queries_all"] == sum(counts) / COUNT
    assert "5 of them from before" in attack(data, tmp_path / "run", *more).stdout


@pytest.mark.parametrize("name", ["spsa", "nattack", "boundary", "evolutionary"])
def test_every_kind_of_attack(name: str, data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", name=name)
    assert result.exit_code == 0, result.stderr
    assert len(entry(tmp_path / "run", f"{name}/small")["images"]) == COUNT


@pytest.mark.parametrize("init", ["none", "random", "pgd", "ti-dim", "ai-dim"])
def test_every_start_of_the_table(init: str, data: Path, tmp_path: Path) -> None:
    guide = [] if init in ("none", "random") else ["--surrogate", OTHER]
    result = attack(data, tmp_path / "run", "--init", init, *guide)
    assert result.exit_code == 0, result.stderr
    label = "nes" if init == "none" else f"nes-{init}"
    assert entry(tmp_path / "run", f"{label}/small")["settings"]["budget"] == 200


def test_images_of_another_run_as_start(data: Path, tmp_path: Path) -> None:
    made = invoke("attack", "ai-dim", "--model", SMALL, "--data", str(data), "--out", str(tmp_path / "run"))
    assert made.exit_code == 0
    starts = tmp_path / "run" / "adv" / "ai-dim" / "small"
    result = attack(data, tmp_path / "run", "--init", str(starts))
    assert result.exit_code == 0, result.stderr
    assert all("start_sha256" in image for image in entry(tmp_path / "run", "nes-given/small")["images"].values())
    result = attack(data, tmp_path / "near", "--init", str(starts), "--eps", "4/255")
    assert result.exit_code == 2
    assert "a start must lie in the ball of linf radius 0.01569" in result.stderr


def test_an_onnx_file(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", target=f"onnx:{write_linear(tmp_path / 'net.onnx')}")
    assert result.exit_code == 0, result.stderr
    [found] = json.loads((tmp_path / "run" / "manifest.json").read_text())["crafted"].values()
    assert len(found["models"][0]["weights_sha256"]) == 64


def test_a_trace_and_a_plot(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", "--trace")
    assert result.exit_code == 0, result.stderr
    steps = sorted((tmp_path / "run" / "trace" / "nes" / "small").rglob("*.csv"))
    assert len(steps) == COUNT
    assert steps[0].read_text().splitlines()[0] == "queries,loss,distance"
    plot = tmp_path / "run" / "trace" / "nes" / "small.html"
    assert f"plot: {plot}" in result.stdout
    assert "nes on small: " in plot.read_text()
    assert f"of {COUNT} images are fooled, " in plot.read_text()


def test_a_targeted_attack(data: Path, tmp_path: Path) -> None:
    result = attack(data, tmp_path / "run", "--target-class", "2", "--eps", "32/255", "--budget", "2000")
    assert result.exit_code == 0, result.stderr
    found = entry(tmp_path / "run", "nes/small")
    assert found["target"] == 2
    folder = tmp_path / "run" / "adv" / "nes" / "small"
    answers = classifier(small_net(), "small")(torch.stack([load_image(folder / f"{i}.png") for i in found["images"]]))
    assert (answers.argmax(1) == 2).tolist() == [image["success"] for image in found["images"].values()]
    assert bool((answers.argmax(1) == 2).any())


BAD = [
    (["nes"], "needs --target, the network to query (or --model, but not both); got neither"),
    (["nes", "--target", SMALL, "--model", SMALL], "got both"),
    (["nes", "--target", "3"], "the network that a black-box attack queries; got 3. The class"),
    (["nes", "--target", SMALL, "--init", "ai-dim"], "--init ai-dim needs --surrogate"),
    (["prgf", "--target", SMALL], "prgf needs --surrogate"),
    (["nes", "--target", SMALL, "--surrogate", OTHER], "--surrogate is of no use with --init none"),
    (["nes", "--target", SMALL, "--init", "nowhere"], "init must be none, random, a gradient attack"),
    (["nes", "--target", SMALL, "--budget", "50"], "budget must pay for one step"),
    (["nes", "--target", SMALL, "--steps", "5"], "unknown setting 'steps'"),
    (["nes", "--target", f"{SMALL}+jpeg", "--defense", "jpeg"], "already names a defence"),
    (["nes", "--target", SMALL, "--defense", "jpg"], "unknown defense 'jpg'"),
    (["boundary", "--target", SMALL, "--target-class", "2"], "targeted decision-based attack needs init="),
    (["pgd", "--model", SMALL, "--init", "fgsm"], "--init: for black-box attacks only"),
    (["pgd", "--model", SMALL, "--trace", "--defense", "jpeg"], "--defense, --trace: for black-box attacks only"),
    (["pgd", "--model", SMALL, "--budget", "5"], "unknown setting 'budget'"),
    (["pgd", "--model", SMALL, "--target", "cow"], "--target: for black-box attacks only"),
    (["pgd", "--model", SMALL, "--target", "1"], "shall be taken for is --target-class 1"),
    (["pgd"], "pgd follows gradients, so it needs --model"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments)[:50] for arguments, _ in BAD])
def test_bad_commands(arguments: list[str], message: str, data: Path, tmp_path: Path) -> None:
    result = invoke("attack", *arguments, "--data", str(data), "--out", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "run" / "adv").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there, Ctrl-C cannot be sent to one process")
def test_ctrl_c_and_going_on(data: Path, tmp_path: Path) -> None:
    def command(out: Path, target: str) -> list[str]:
        head = ["attack", "nes", "--target", f"python:cli.toy_networks:{target}", "--budget", "90", "--samples", "20"]
        return [*head, "--eps", "1/255", "--batch-size", "1", "--data", str(data), "--out", str(out)]

    environment = plain_environment(PYTHONPATH=str(Path(__file__).parents[1]), OMP_NUM_THREADS="1")
    run = [sys.executable, "-m", "whorl", *command(tmp_path / "run", "slow")]
    with subprocess.Popen(run, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 50
        while not list((tmp_path / "run").rglob("*.png")) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "Run the same command again to go on" in said
    result = invoke(*command(tmp_path / "run", "slow"))
    assert result.exit_code == 0, result.stderr
    invoke(*command(tmp_path / "whole", "slow"))
    there, whole = (entry(tmp_path / name, "nes/slow") for name in ("run", "whole"))
    for images in (there["images"], whole["images"]):
        for image in images.values():
            image.pop("seconds")
    assert there["images"] == whole["images"]
    assert f"{there['discarded_queries']} more queries were spent on interrupted work" in result.stdout
