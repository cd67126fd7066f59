"""Every script in examples/ runs, with small settings."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

import whorl
from conftest import random_images, small_net
from whorl.data import save_image

EXAMPLES = Path(__file__).parents[1] / "examples"
TOY = "python:cli.toy_networks:small"


def run(script: str, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a script as a program, in this process; give what it printed."""
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    capsys.readouterr()
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return capsys.readouterr().out


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Images of every class of the toy network, with the labels that it gives them."""
    from cli.toy_networks import classifier

    x = random_images(64)
    labels = classifier(small_net(), "small")(x).argmax(1).tolist()
    for i, (picture, label) in enumerate(zip(x, labels, strict=True)):
        save_image(tmp_path / "data" / str(label) / f"{i}.png", picture)
    return tmp_path / "data"


def test_attack_your_timm_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights of your own, here those of the zoo's resnet18, in timm's network of that name."""
    weights = tmp_path / "mine.safetensors"
    net = whorl.load_model("resnet18").net
    save_file({name: tensor.contiguous() for name, tensor in net.state_dict().items()}, weights)
    address = f"file:{weights}?arch=timm:resnet18&mean=0.485,0.456,0.406&std=0.229,0.224,0.225&size=224"
    printed = run("attack_your_timm_model.py", address, "1", monkeypatch=monkeypatch, capsys=capsys)
    lines = printed.splitlines()
    assert len(lines) == 6
    assert lines[0] == "dim     turned by  0°: 1 of 1 fooled"
    assert all(re.search(r"turned by +\d+°: \d of \d fooled", line) for line in lines)


def test_your_data(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("your_data.py", TOY, str(data), monkeypatch=monkeypatch, capsys=capsys)
    assert re.fullmatch(r"16 images: success rate \d+% over 2 poses\n", printed)


def test_sweep_to_tables(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    file, out = tmp_path / "a.toml", tmp_path / "run"
    file.write_text(
        f'name = "a"\nsources = ["{TOY}"]\nattacks = ["fgsm", "ai-fgsm"]\ntargets = ["{TOY}", "{TOY}+jpeg"]\n'
        f'poses = [{{angles = [0, 30]}}]\n[data]\nfolder = "{data}"\nlimit = 12\n'
    )
    printed = run("sweep_to_tables.py", str(file), str(out), "4/255,16/255", monkeypatch=monkeypatch, capsys=capsys)
    assert printed.count("fgsm@eps-") == 4
    assert printed.endswith(f"for a paper: {out / 'results.tex'}\n")
    assert "& 4/255 &" in (out / "results.tex").read_text()
    assert (out / "overview.html").is_file()


@pytest.mark.parametrize(("script", "library"), [("track_with_mlflow.py", "mlflow"), ("track_with_wandb.py", "wandb")])
def test_tracking(
    script: str,
    library: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the library where it is installed; read by Python in any case."""
    ast.parse((EXAMPLES / script).read_text(encoding="utf-8"))
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    Path("a.toml").write_text(
        f'name = "a"\nsources = ["{TOY}"]\nattacks = ["fgsm"]\ntargets = ["{TOY}", "{TOY}+jpeg"]\n'
        f'poses = [{{angles = [0]}}]\n[data]\nfolder = "{data}"\nlimit = 12\n'
    )
    run(script, "a.toml", "out", monkeypatch=monkeypatch, capsys=capsys)
    if library == "wandb":
        assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
        return
    import mlflow

    [one] = mlflow.search_runs(search_all_experiments=True, output_format="list")
    tracked = mlflow.MlflowClient().get_metric_history(one.info.run_id, f"success_rate/fgsm/{TOY}/{TOY}-jpeg")
    assert [point.step for point in tracked] == [8, 12]


def test_affine_invariant_in_three_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("foolbox")
    printed = run("affine_invariant_in_three_lines.py", "1", monkeypatch=monkeypatch, capsys=capsys)
    assert re.search(r"their PGD +fools efficientnet_lite0 in \d+% of the cases, over \d+ poses", printed)
    assert re.search(r"with AI +fools", printed)


def test_harden_and_retest(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("whorl.hardening.job")
    out = tmp_path / "hardened"
    few = ("--steps", "2", "--batch", "4", "--held-out", "4", "--limit", "3", "--device", "cpu")
    which = ("--model", TOY, "--source", TOY, "--recipe", "pgd-at", "--attack", "fgsm")
    folders = ("--data", str(data), "--test", str(data), "--out", str(out))
    printed = run("harden_and_retest.py", *which, *folders, *few, monkeypatch=monkeypatch, capsys=capsys)
    assert re.search(r"^before clean accuracy 100%, fooled by fgsm", printed, re.MULTILINE)
    assert re.search(r"^after +clean accuracy \d+%", printed, re.MULTILINE)
    assert (out / "weights.safetensors").is_file()


def test_gate_a_pull_request() -> None:
    """The workflow gives the action what it takes, and whorl comes from where it is told."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((EXAMPLES / "gate_a_pull_request.yml").read_text(encoding="utf-8"))
    action = yaml.safe_load((EXAMPLES.parent / "action.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["gate"]["steps"]
    [step] = [step for step in steps if step.get("uses") == "./.whorl"]
    assert set(step["with"]) <= set(action["inputs"])
    assert {name for name, about in action["inputs"].items() if about.get("required")} <= set(step["with"])
    assert all(isinstance(value, str) for value in step["with"].values())
    [clone] = [step["run"] for step in steps if "run" in step]
    assert clone.startswith('git clone --quiet "$WHORL" .whorl')
    assert workflow["env"]["WHORL"].startswith("https://")
    assert workflow["jobs"]["gate"]["permissions"] == {"contents": "read", "security-events": "write"}


def test_every_script_is_tested_and_documented() -> None:
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for script in EXAMPLES.iterdir():
        if script.suffix in (".py", ".yml"):
            assert script.name in tests
            assert script.name in page
