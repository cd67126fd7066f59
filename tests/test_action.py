"""The action for GitHub: read, and its script run in bash with a stand-in for ``whorl``; there is no runner here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from cli.invoking import whole_application

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "action.yml"
TEXT = ACTION.read_text(encoding="utf-8")
READ: dict[str, Any] = yaml.safe_load(TEXT)
GATE = next(step for step in READ["runs"]["steps"] if step.get("id") == "gate")
# Of every input that becomes an option, a value.
GIVEN = {
    "model": "file:my models/shop.pth?arch=timm:resnet18&num_classes=10&name=shop-v3",
    "data": "tests/my images",
    "labels": "classes.txt",
    "fail-above": "60",
    "worst-case": "80",
    "min-accuracy": "70",
    "strict": "true",
    "baseline": "tests/gate.json",
    "fail-drop": "3",
    "surrogates": "resnet18,mobilenet_v2",
    "attack": "ai-dim",
    "eps": "8/255",
    "limit": "200",
    "size": "224",
    "seed": "7",
    "device": "cpu",
    "out": "gate; echo $HOME",
}


def test_what_is_used_is_declared_and_what_is_declared_is_used() -> None:
    used = set(re.findall(r"inputs\.([\w-]+)", TEXT))
    assert used == set(READ["inputs"])
    assert READ["runs"]["using"] == "composite"
    for step in READ["runs"]["steps"]:
        assert "uses" in step or step["shell"] == "bash"
    steps = {step["id"] for step in READ["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.(\w+)\.", TEXT)) == steps


def test_other_actions_are_named_by_commit() -> None:
    used = [line.strip() for line in TEXT.splitlines() if "uses:" in line]
    assert len(used) == 4
    for line in used:
        assert re.fullmatch(r"- uses: [\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+(: .*)?", line), line


def test_no_input_is_read_as_a_part_of_a_script() -> None:
    for step in READ["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_whorl_comes_from_where_the_action_is() -> None:
    """By its bare name an index could serve somebody else's package."""
    [install] = [step["run"] for step in READ["runs"]["steps"] if "pip install" in step.get("run", "")]
    assert '"$GITHUB_ACTION_PATH${EXTRAS:+[$EXTRAS]}"' in install


def ran(folder: Path, inputs: dict[str, str], code: int = 0) -> tuple[list[str], str, str]:
    """Run the step with inputs; gives the words that whorl got, what the step put out, and the summary."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    stand_in = folder / "bin" / "whorl"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/words"\necho "shop-v3: failed"\nexit {code}\n')
    stand_in.chmod(0o755)
    values = {name: str(about.get("default", "")) for name, about in READ["inputs"].items()} | inputs
    given = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
        for name, text in GATE["env"].items()
    }
    files = {"GITHUB_OUTPUT": folder / "output", "GITHUB_STEP_SUMMARY": folder / "summary", "RUNNER_TEMP": folder}
    environment = os.environ | given | {name: str(path) for name, path in files.items()}
    environment["PATH"] = f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}"
    script = folder / "script.sh"
    script.write_text(GATE["run"], encoding="utf-8")
    # As a runner calls it.
    subprocess.run([bash, "--noprofile", "--norc", "-eo", "pipefail", script], check=True, env=environment, cwd=folder)
    words = (folder / "words").read_text(encoding="utf-8").splitlines()
    return words, (folder / "output").read_text(), (folder / "summary").read_text()


def parsed(words: list[str]) -> dict[str, Any]:
    """What the command line makes of the words."""
    command = whole_application().commands[words[0]]
    with command.make_context("whorl gate", words[1:]) as context:
        found: dict[str, Any] = context.params
    return found


@pytest.mark.parametrize("code", [0, 1, 2])
def test_every_input_reaches_its_option(tmp_path: Path, code: int) -> None:
    words, output, summary = ran(tmp_path, GIVEN, code)
    found = parsed(words)
    numbers = {"fail-above", "worst-case", "min-accuracy", "fail-drop", "limit", "size", "seed"}
    for name, value in GIVEN.items():
        expected: object = True if name == "strict" else float(value) if name in numbers else value
        got = found[name.replace("-", "_")]
        assert (str(got) if isinstance(got, Path) else got) == expected, name
    assert output == f"exit-code={code}\n"
    assert "shop-v3: failed" in summary


def test_what_is_not_given_is_left_to_the_command(tmp_path: Path) -> None:
    words, _, _ = ran(tmp_path, {"model": "resnet18", "data": "photos", "fail-above": "60"})
    assert words == [
        *("gate", "resnet18", "--data", "photos", "--out", "whorl-gate", "--seed", "0", "--device", "auto"),
        *("--fail-above", "60"),
    ]
    assert parsed(words)["strict"] is False


def test_the_page_tells_every_input_and_uses_none_that_is_not_there() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert [name for name in READ["inputs"] if f"`{name}`" not in page] == []
    [block] = re.findall(r"```yaml\n( +- run:.*?)```", page, re.DOTALL)
    [_, step] = yaml.safe_load(dedent(block))
    assert {"model", "data"} <= set(step["with"]) <= set(READ["inputs"])


def test_the_page_of_gitlab_runs_a_gate_that_can_be_typed() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(robustness:.*?)```", page, re.DOTALL)
    job = yaml.safe_load(block)["robustness"]
    [line] = [line for line in job["script"] if line.startswith("whorl ")]
    found = parsed(line.split()[1:])
    assert job["artifacts"]["reports"]["junit"] == f"{found['out']}/gate.junit.xml"
