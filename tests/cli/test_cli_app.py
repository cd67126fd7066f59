"""Every command from outside: help, version, listings, and how errors look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whorl
from cli.invoking import invoke, whole_application
from whorl.artifacts import cache_home
from whorl.models.networks import NETWORKS
from whorl.models.weights import converted
from whorl.runs.catalog import attack_catalog, defense_catalog, model_catalog

COMMANDS = [
    *("analyze", "attack", "attacks", "bench", "defenses", "demo", "doctor", "evaluate"),
    *("harden", "merge", "models", "paper", "physical", "run", "ui"),
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
    converted("resnet18", digest, dict)
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
        ([*ATTACK, "--batch-size", "0"], "batch_size must be a whole number from 1"),
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
