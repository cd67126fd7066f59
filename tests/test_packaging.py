"""What is built installs into an empty environment and works there, with everything that is not Python in it too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import whorl

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
EXTRAS = {"ray", "ui", "physical", "interop", "onnx", "hf", "figures", "docs", "dev", "all"}


def call(*command: str | Path, folder: Path, **environment: str) -> str:
    """Run a program outside the checkout, without the variables that would lead back into it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**clean, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source archive."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "hatchling", "build", "-d", out, folder=ROOT)
    [wheel], [archive] = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"wheel": wheel, "archive": archive}


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that holds the wheel, and sees the other packages of this one."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    install = ("-m", "pip", "--python", programs / "python", "install", "--no-deps", "--no-index", "--quiet")
    call(sys.executable, *install, built["wheel"], folder=home)
    # Packages that need no building again, torch above all. Links inside that folder are not followed, so the
    # checkout, which is installed there by a link, stays out of sight.
    [site] = home.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return programs


def data_files() -> set[str]:
    """Everything in the package that is not Python."""
    found = (path for path in (SOURCE / "whorl").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE).as_posix() for path in found if path.suffix not in (".py", ".pyc")}


def test_the_wheel_holds_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
    modules = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "whorl").rglob("*.py")}
    assert modules <= names
    assert data_files() <= names
    assert {"whorl/py.typed", "whorl/data/imagenet_synsets.txt"} <= names
    assert {name.partition("/")[0] for name in names} == {"whorl", f"torchwhorl-{whorl.__version__}.dist-info"}


def test_the_archive_builds_the_same_wheel(built: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(built["archive"]) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    files = ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt", "mkdocs.yml")
    for name in (*files, "tests", "docs", "examples"):
        assert (folder / name).exists(), name
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", folder=folder)
    [again] = (tmp_path / "again").iterdir()
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(built["wheel"]) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_the_metadata(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        text = wheel.read(f"torchwhorl-{whorl.__version__}.dist-info/METADATA").decode()
    extras = {line.partition(": ")[2] for line in text.splitlines() if line.startswith("Provides-Extra")}
    assert extras >= EXTRAS
    assert "License-Expression: Apache-2.0" in text


def test_it_is_the_installed_one_that_runs(installed: Path, tmp_path: Path) -> None:
    place = call(installed / "python", "-c", "import whorl; print(whorl.__file__)", folder=tmp_path).strip()
    assert Path(place).is_relative_to(installed.parent)
    assert call(installed / "whorl", "--version", folder=tmp_path) == f"whorl {whorl.__version__}\n"
    assert call(installed / "python", "-m", "whorl", "--version", folder=tmp_path) == f"whorl {whorl.__version__}\n"
    assert "Usage: whorl" in call(installed / "whorl", "--help", folder=tmp_path)


def test_an_attack_runs_there(installed: Path, tmp_path: Path) -> None:
    code = """
import torch, whorl
from whorl import paper, runs
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
x, y = torch.rand(2, 3, 8, 8), torch.tensor([0, 3])
adv = whorl.attack("ai-dim", steps=2)(net, x, y)
assert (adv - x).abs().max() <= 16 / 255 + 1e-6
assert "table1" in paper.names()
assert runs.declare(name="a", sources=["resnet18"], attacks=["pgd"], targets=["resnet18"]).all_poses()
print(whorl.__version__)
"""
    assert call(installed / "python", "-c", code, folder=tmp_path).strip() == whorl.__version__
    listed = json.loads(call(installed / "whorl", "models", "--json", folder=tmp_path))
    assert [entry["name"] for entry in listed] == list(whorl.model_names())


def test_samples_are_attacked_there(installed: Path, tmp_path: Path) -> None:
    asked = ("--model", "resnet18", "--limit", "1", "--steps", "1", "--size", "96", "--out", tmp_path / "run")
    assert "1 images" in call(installed / "whorl", "attack", "ai-pgd", *asked, folder=tmp_path)


def test_the_doctor_is_content_there(installed: Path, tmp_path: Path) -> None:
    content = json.loads(call(installed / "whorl", "doctor", "--json", folder=tmp_path))
    assert content["healthy"] is True
    extras = {finding["name"] for finding in content["findings"] if finding["section"] == "extras"}
    assert extras >= EXTRAS - {"all"}


def test_importing_is_light(tmp_path: Path) -> None:
    """Only what is asked for is imported; how long that takes is measured by benchmarks/startup.py."""
    code = "import sys, whorl; assert 'torch' not in sys.modules; whorl.attack; print(*sorted(sys.modules))"
    loaded = set(call(sys.executable, "-c", code, folder=tmp_path, PYTHONPATH=str(SOURCE)).split())
    assert "torch" in loaded
    assert not loaded & {"timm", "torchvision", "PIL", "rich", "typer", "pydantic", "ray", "plotly", "foolbox"}


@pytest.mark.slow
def test_starting_up_is_measured(tmp_path: Path) -> None:
    saved = tmp_path / "startup.json"
    asked = ("--quick", "--repeats", "1", "--device", "cpu", "--json", saved)
    printed = call(sys.executable, ROOT / "benchmarks" / "startup.py", *asked, folder=tmp_path, PYTHONPATH=str(SOURCE))
    assert "whorl --help: " in printed
    torch_in = {row["command"]: row["imports_torch"] for row in json.loads(saved.read_text())["results"]}
    assert torch_in["import torch"]
    assert not any(torch_in[name] for name in ("import whorl", "whorl --help", "whorl --version", "whorl att<Tab>"))


@pytest.mark.slow
def test_a_really_empty_environment(built: dict[str, Path], tmp_path: Path) -> None:
    """Everything from the index, as a user gets it. Takes minutes and gigabytes."""
    venv.create(tmp_path / "environment", with_pip=True, symlinks=True)
    programs = tmp_path / "environment" / ("Scripts" if os.name == "nt" else "bin")
    install = (programs / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    call(*install, built["wheel"], folder=tmp_path)
    assert json.loads(call(programs / "whorl", "doctor", "--json", folder=tmp_path))["healthy"] is True
    out = tmp_path / "run"
    asked = ("--model", "resnet18", "--limit", "1", "--steps", "1", "--size", "96", "--out", out)
    assert "1 images" in call(programs / "whorl", "attack", "ai-pgd", *asked, folder=tmp_path)
