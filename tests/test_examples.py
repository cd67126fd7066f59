"""Every script in examples/ runs, with small settings."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch
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


@pytest.mark.parametrize(("at_most", "code", "verdict"), [("100", 0, "passes"), ("0", 1, "FAILS")])
def test_gate_a_pull_request(
    at_most: str,
    code: int,
    verdict: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command of the workflow file, with its variables filled in."""
    yaml = pytest.importorskip("yaml")
    page = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    workflow = yaml.safe_load((EXAMPLES / "gate_a_pull_request.yml").read_text(encoding="utf-8"))
    asked = workflow["env"] | {"MODEL": TOY, "PICTURES": str(data), "AT_MOST": at_most}
    [line] = [s["run"] for s in workflow["jobs"]["gate"]["steps"] if "gate_a_pull_request.py" in s.get("run", "")]
    for name, value in asked.items():
        line = line.replace(f"${name}", value)
    python, script, *arguments = shlex.split(line)
    assert (python, script) == ("python", "examples/gate_a_pull_request.py")
    few = ("--source", TOY, "--limit", "6", "--size", "18")
    with pytest.raises(SystemExit) as end:
        run(Path(script).name, *arguments, *few, monkeypatch=monkeypatch, capsys=capsys)
    assert end.value.code == code
    assert f"small {verdict}: fooled by ai-dim from small in" in page.read_text()


def test_the_gates_workflow_takes_whorl_from_where_it_is_told() -> None:
    """By its bare name an index could serve somebody else's package."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((EXAMPLES / "gate_a_pull_request.yml").read_text(encoding="utf-8"))
    [line] = [s["run"] for s in workflow["jobs"]["gate"]["steps"] if "pip install" in s.get("run", "")]
    assert shlex.split(line) == ["pip", "install", ".", "$WHORL"]
    assert workflow["env"]["WHORL"].startswith("git+https://")


def test_the_gate_says_when_nothing_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    black = torch.zeros(3, 18, 18)  # looks the same in every pose, and the network has one answer for it
    from cli.toy_networks import classifier

    wrong = (int(classifier(small_net(), "small")(black[None]).argmax()) + 1) % 7
    save_image(tmp_path / "data" / str(wrong) / "black.png", black)
    arguments = ("--model", TOY, "--source", TOY, "--data", str(tmp_path / "data"), "--at-most", "5", "--size", "18")
    with pytest.raises(SystemExit) as end:
        run("gate_a_pull_request.py", *arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert "recognises none of the 1 images" in str(end.value.code)


def test_every_script_is_tested_and_documented() -> None:
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for script in EXAMPLES.iterdir():
        if script.suffix in (".py", ".yml"):
            assert script.name in tests
            assert script.name in page
