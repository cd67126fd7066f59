"""``whorl doctor`` where all is well, and where something is not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import whorl
from cli.invoking import invoke, plain_environment
from whorl import installation
from whorl.installation import Finding, Requirement, healthy


def named(findings: Any, name: str) -> Finding:
    [found] = [finding for finding in findings if finding.name == name]
    assert isinstance(found, Finding)
    return found


def test_all_is_well_here() -> None:
    done = invoke("doctor")
    assert done.exit_code == 0, done.stdout
    for heading in ("programs", "packages", "extras", "devices", "cache", "figures"):
        assert heading in done.stdout.splitlines()
    assert whorl.__version__ in done.stdout


def test_as_json() -> None:
    done = invoke("doctor", "--json")
    assert done.exit_code == 0
    content = json.loads(done.stdout)
    assert content["healthy"] is True
    assert {"section", "name", "state", "detail", "fix"} == content["findings"][0].keys()
    assert not [finding for finding in content["findings"] if finding["state"] == "broken"]


def test_it_works_without_torch() -> None:
    """What is missing is a finding and an exit code, not a traceback."""
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['whorl', 'doctor']; from whorl.cli import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=plain_environment()
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "does not import" in done.stdout
    assert "-> pip install --force-reinstall torch" in done.stdout
    assert "cannot do without is broken" in done.stderr


def test_missing_and_old_packages_are_broken() -> None:
    lines = ["no-such-package>=1.2", "numpy>=999.1", "torch>=1"]
    found = list(installation.packages(lines))
    assert named(found, "no-such-package").state == "broken"
    assert named(found, "no-such-package").fix == "pip install 'no-such-package>=1.2'"
    old = named(found, "numpy")
    assert (old.state, old.fix) == ("broken", "pip install 'numpy>=999.1' --upgrade")
    assert named(found, "torch").state == "ok"
    assert not healthy(found)


def test_missing_extras_are_no_fault() -> None:
    lines = [
        "torch>=2.6",
        'no-such-package>=1.2; extra == "mine"',
        'numpy>=1; extra == "mine"',
        'pillow; extra == "other"',
        'torchwhorl[mine,other]; extra == "both"',
        'torchwhorl[mine]; extra == "all"',
    ]
    found = list(installation.extras(lines))
    assert [finding.name for finding in found] == ["both", "mine", "other"]
    mine = named(found, "mine")
    assert (mine.state, mine.fix) == ("missing", "pip install 'torchwhorl[mine]'")
    assert mine.detail.startswith("without no-such-package>=1.2; with numpy ")
    assert named(found, "other").state == "ok"
    assert "no-such-package" in named(found, "both").detail
    assert healthy(found)


def test_it_says_when_torchvision_is_of_another_build() -> None:
    """Whether it is depends on where the tests run; whether the doctor sees it must not."""
    import_alone = [sys.executable, "-c", "import torchvision"]
    alone = subprocess.run(import_alone, capture_output=True, text=True, check=False, env=plain_environment())
    code = "from whorl import installation as i; print(*(f.detail for f in i.packages([]) if ' and ' in f.name))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=plain_environment()
    )
    assert ("do not match" in done.stdout) == (alone.returncode != 0)


def test_it_says_which_torch_torchvision_was_built_for(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.13.0+cpu", "torchvision": "0.21.0"}
    monkeypatch.setattr(installation, "version", versions.__getitem__)
    monkeypatch.setattr(installation, "requires", lambda _: ["numpy", "torch (==2.6.0)", "pillow (>=5.3.0)"])
    found = named(installation._pair(), "torch and torchvision")
    assert found.detail.startswith("do not match: torchvision 0.21.0 was built for torch 2.6.0, torch is 2.1")
    assert found.fix.startswith("pip install --force-reinstall torch torchvision")
    assert healthy([found])  # whorl itself works


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("torch>=2.6", Requirement(package="torch", wanted=">=2.6")),
        ("ray (>=2.40) ; extra == 'ray'", Requirement(package="ray", wanted=">=2.40", extra="ray")),
        (
            'torchwhorl[onnx,ray]; extra == "dev"',
            Requirement(package="torchwhorl", extra="dev", brings=("onnx", "ray")),
        ),
        ('x; python_version < "3.12" and extra == "a-b"', Requirement(package="x", extra="a-b")),
    ],
)
def test_requirements_are_read(line: str, parsed: Requirement) -> None:
    assert Requirement.parse(line) == parsed


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHORL_HOME", str(tmp_path / "cache"))
    empty = list(installation.cache())
    assert named(empty, "weights").state == "note"
    assert "unfinished" not in {finding.name for finding in empty}
    assert not (tmp_path / "cache").exists()  # it only looks
    weights = tmp_path / "cache" / "weights" / "resnet18-0123-1" / "resnet18.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"0" * 2_000_000)
    (tmp_path / "cache" / "artifacts" / "some-1.0" / "incoming-abc").mkdir(parents=True)
    found = list(installation.cache())
    assert named(found, "weights").detail == "resnet18 2 MB"
    assert named(found, "folder").detail.endswith("cache, 2 MB")
    assert named(found, "unfinished").detail.startswith("1 left by downloads")
    assert healthy(found)


def test_a_full_disk_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1))
    disk = named(installation.cache(), "disk")
    assert disk.state == "note"
    assert "WHORL_HOME" in disk.fix


def test_a_missing_browser_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    browser = named(installation.figures(), "browser")
    assert (browser.state, healthy([browser])) == ("missing", True)
    program = tmp_path / "chromium"
    program.touch(mode=0o755)
    assert named(installation.figures(), "browser").detail == str(program)


def test_what_cannot_be_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(installation, "cache_home", fails)
    broken = named(installation.examine(), "cache")
    assert broken.detail == "could not be examined: RuntimeError: no home"
