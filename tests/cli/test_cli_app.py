"""Every command from outside: help, version, listings, and how errors look."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whorl
from cli.invoking import invoke, plain_environment, whole_application
from conftest import random_images
from models.test_onnx_net import write_graph
from runs.declaring import SMALL, save_toy_images
from whorl.artifacts import cache_home
from whorl.data import save_image
from whorl.models.networks import NETWORKS
from whorl.models.weights import converted, tensors_sha256
from whorl.runs.catalog import attack_catalog, defense_catalog, model_catalog

COMMANDS = [
    *("analyze", "attack", "attacks", "bench", "defenses", "demo", "doctor", "evaluate"),
    *("gate", "harden", "merge", "models", "paper", "physical", "run", "ui"),
]


def test_the_commands_are_pinned() -> None:
    assert sorted(whole_application().commands) == COMMANDS


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_shows_an_example(command: str | None) -> None:
    result = invoke(*([command] if command else []), "--help")
    assert result.exit_code == 0
    assert f"Example: whorl {command or ''}" in result.stdout


def test_version() -> None:
    assert invoke("--version").stdout == f"whorl {whorl.__version__}\n"


@pytest.mark.parametrize(
    ("command", "names"),
    [("attacks", whorl.attack_names()), ("models", whorl.model_names()), ("defenses", whorl.defense_names())],
)
def test_listings_name_everything(command: str, names: list[str]) -> None:
    result = invoke(command)
    assert result.exit_code == 0
    # a long entry goes on below, indented
    starts = [line.split()[0] for line in result.stdout.splitlines()[1:] if line[:1].strip()]
    assert starts[: len(names)] == list(names)
    entries = json.loads(invoke(command, "--json").stdout)
    assert [entry["name"] for entry in entries] == list(names)


def test_listings_fit_a_narrow_terminal() -> None:
    result = invoke("attacks", COLUMNS="60")
    assert max(map(len, result.stdout.splitlines())) <= 60
    for name in whorl.attack_names():
        assert name in result.stdout


def test_every_entry_is_described() -> None:
    assert all(entry.description for entry in attack_catalog())
    assert all(entry.description for entry in defense_catalog())
    settings = {entry.name: entry.settings for entry in attack_catalog()}
    assert settings["ai-dim"] == "input=DiverseInput(), estimator=AffineInvariant(sigma='reference'), momentum=1.0"
    samples = {entry.name: entry.settings.get("samples") for entry in defense_catalog()}
    assert samples == {"jpeg": None, "bitdepth": None, "resize-pad": 1, "randmix": 10}


def test_models_say_whether_their_weights_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHORL_HOME", str(tmp_path))
    assert cache_home() == tmp_path
    assert not any(entry.cached for entry in model_catalog() if entry.kind == "offline")
    [digest] = NETWORKS["resnet18"].artifact.files.values()
    converted("resnet18", digest, dict, tensors_sha256({}))
    assert [entry.name for entry in model_catalog() if entry.cached and entry.kind == "offline"] == ["resnet18"]


ATTACK = ["attack", "pgd", "--model", "python:cli.toy_networks:small", "--out", "nowhere"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attack", "ai-dmi", *ATTACK[2:]], "unknown attack 'ai-dmi'. Did you mean 'ai-dim'"),
        ([*ATTACK, "--model", "resnet81"], "unknown model 'resnet81'. Did you mean 'resnet18'"),
        ([*ATTACK, "--model", ","], "expected the name of a model"),
        ([*ATTACK, "--eps", "16"], "did you mean 16/255?"),
        ([*ATTACK, "--norm", "l3"], "norm must be 'linf' or 'l2'; got 'l3'"),
        ([*ATTACK, "--steps", "0"], "steps must be a whole number >= 1; got 0"),
        ([*ATTACK, "--data", "no/such/folder"], "no/such/folder: no such folder"),
        ([*ATTACK, "--limit", "21"], "there are 20 samples"),
        ([*ATTACK, "--limit", "0"], "limit must be a number >= 1; got 0"),
        ([*ATTACK, "--size", "0"], "size must be a number >= 1; got 0"),
        ([*ATTACK, "--batch-size", "0"], "batch_size must be a whole number >= 1"),
        ([*ATTACK, "--device", "abacus"], "device must be auto, cpu, cuda or cuda:N; got 'abacus'"),
        ([*ATTACK, "--device", "cuda:99"], "there is no device 'cuda:99'"),
        (["attack", "deepfool", *ATTACK[2:], "--eps", "8/255"], "unknown setting 'eps'"),
        (["demo", "--images", "0", "--out", "nowhere"], "expected a number from 1 to 20, got 0"),
        (["demo", "--device", "abacus", "--out", "nowhere"], "device must be"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("arguments", [["attack", "pgd", "--out", "x"], ["attack", "pgd", "--seed", "x"], ["atack"]])
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


def test_errors_are_red_on_a_terminal() -> None:
    result = invoke("attack", "ai-dmi", "--model", "m", "--out", "o", FORCE_COLOR="1")
    assert "\x1b[31merror: " in result.stderr


def test_what_nobody_expected_is_an_error_and_no_failed_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("no\x1b[31m such \n thing")

    monkeypatch.setattr(whorl.runs, "craft", broken)
    words = ("attack", "pgd", "--model", SMALL, "--data", str(data_of_three(tmp_path)), "--out", str(tmp_path / "run"))
    result = invoke(*words)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("error: KeyError: 'no")
    assert "(in test_cli_app.py, line " in line
    assert "WHORL_DEBUG=1" in line
    assert "\x1b" not in result.stderr
    result = invoke(*words, WHORL_DEBUG="1")
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert "\x1b" not in result.stderr


def test_models_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return x.mean((2, 3))\n"
    )
    words = ["attack", "fgsm", "--model", "python:mine:Net?size=18", "--data", str(data_of_three(tmp_path / "data"))]
    # As the script `whorl` does it: not with `-m`, which looks into the working directory by itself.
    command = [sys.executable, "-P", "-c", "from whorl.cli import app; app()", *words, "--out", "run"]
    done = subprocess.run(command, env=plain_environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 images" in done.stdout


def data_of_three(folder: Path) -> Path:
    """Images of three classes."""
    for label, image in enumerate(random_images(3)):
        save_image(folder / str(label) / "a.png", image)
    return folder


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def net(): raise RuntimeError('no weights here')", "raised RuntimeError: no weights here"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("def net(:", "cannot be imported: SyntaxError"),
        ("import nowhere_to_be_found", "cannot be imported (No module named 'nowhere_to_be_found')"),
        ("def net(): return 3", "must return a whorl.Classifier or an nn.Module; got int"),
    ],
)
def test_a_model_of_one_s_own_that_fails(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whose_own.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "whose_own", raising=False)
    result = invoke("attack", "pgd", "--model", "python:whose_own:net?size=8", "--out", "nowhere")
    assert result.exit_code == 2
    assert message in result.stderr


def test_gradients_of_an_onnx_model_are_refused(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "net.onnx", ["n", 3, 18, 18])
    words = ("--model", f"onnx:{path}", "--data", str(data_of_three(tmp_path / "data")), "--out", str(tmp_path / "run"))
    for name in ("fgsm", "pgd", "ai-dim", "deepfool", "ai-best"):
        result = invoke("attack", name, *words)
        assert result.exit_code == 2, name
        assert "error: an ONNX model answers queries but has no gradients" in result.stderr, name


def test_whoever_stops_reading_has_failed_no_gate() -> None:
    command = [sys.executable, "-m", "whorl", "attacks"]
    with subprocess.Popen(command, env=plain_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() not in (0, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, names are text")
def test_names_of_every_kind(tmp_path: Path) -> None:
    """Names that are no UTF-8, as long as can be, or hold what a terminal would obey: nothing is lost or obeyed."""
    data = save_toy_images(tmp_path / "data")
    names = [os.fsdecode(b"no\xfftext"), "a\x1b[31mred\x07", "x" * 240, "é" * 120, "one two", "plain", "new\nline"]
    for path, name in zip(sorted(data.rglob("*.png")), names, strict=True):
        path.rename(path.with_name(f"{name}.png"))
    folder = tmp_path / os.fsdecode(b"adv \xfe\x1b[2J")
    attack = ["attack", "fgsm", "--model", SMALL, "--data", str(data), "--out", str(folder)]
    for _ in range(2):  # made, and then found
        made = invoke(*attack)
        assert made.exit_code == 0, made.stderr
        assert f"{len(names)} images" in made.stdout
        assert "\x1b" not in made.stdout + made.stderr
    images = folder / "adv" / "fgsm" / "small"
    found = {path.stem for path in images.rglob("*.png")}
    assert {"no%FFtext", "a%1B[31mred%07", "new%0Aline", "x" * 240, "é" * 120, "plain"} <= found
    other = tmp_path / "copies\x1b[31m"
    shutil.copytree(data, other)  # somebody else's, under the names that the images have
    out = tmp_path / "results\x1b.csv"
    evaluate = ["evaluate", str(data), str(images), str(other), "--model", SMALL, "--angles", "0"]
    result = invoke(*evaluate, "--out", str(out))
    assert result.exit_code == 0, result.stderr
    assert f"Success rates of {len(names)} images" in result.stdout
    assert "copies%1B[31m" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr + out.read_text()
    assert json.loads(invoke(*evaluate, "--json").stdout)["n"] == len(names)
    (data / "0").mkdir(exist_ok=True)
    (data / "0" / "bad\x1b[31m.png").write_bytes(b"no image")
    failed = invoke(*attack, "--overwrite")
    assert failed.exit_code == 2
    assert "bad%1B[31m.png: cannot be read as an image" in failed.stderr
    assert "\x1b" not in failed.stderr


@pytest.mark.parametrize("code", ["0", "1", "3"])
@pytest.mark.parametrize("network", ["ends", "ends_later"])
def test_a_network_that_ends_the_process_passes_no_gate(
    network: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exit code of its own would be read as the gate's: 0 a pass, 1 a failure."""
    monkeypatch.setenv("WHORL_TEST_END", code)
    save_toy_images(tmp_path / "data", 2)
    address, data = f"python:cli.toy_networks:{network}", str(tmp_path / "data")
    for command in (["gate", address], ["attack", "pgd", "--model", address]):
        result = invoke(*command, "--data", data, "--out", str(tmp_path / "out"))
        assert result.exit_code == 2
        assert "SystemExit" in result.stderr or f"sys.exit({code})" in " ".join(result.stderr.split())


@pytest.mark.skipif(sys.platform == "win32", reason="it has no FIFOs")
@pytest.mark.parametrize("where", ["an image", "a list", "a folder", "weights", "a declaration", "a sheet"])
def test_a_fifo_is_refused_and_keeps_nobody_waiting(where: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.csv"
    os.mkfifo(fifo)
    listed = tmp_path / "listed.csv"
    listed.write_text("path,label\nfifo.csv,0\n")
    attack = ["attack", "fgsm", "--out", str(tmp_path / "run"), "--model"]
    commands = {
        "an image": [*attack, SMALL, "--data", str(listed)],
        "a list": [*attack, SMALL, "--data", str(fifo)],
        "a folder": ["evaluate", "samples", str(fifo), "--model", SMALL],
        "weights": [*attack, f"file:{fifo}?arch=torchvision:resnet18"],
        "a declaration": ["run", str(fifo), "--out", str(tmp_path / "run")],
        "a sheet": ["physical", "score", "x.jpg", "--run", str(fifo), "--model", SMALL],
    }
    result = invoke(*commands[where])
    assert result.exit_code == 2
    assert str(fifo) in result.stderr
    assert len(result.stderr.splitlines()) <= 2
