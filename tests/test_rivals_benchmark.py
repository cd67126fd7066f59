"""The rivals' benchmark counts as the library does, goes on where it stopped, and survives a candidate's failure."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import whorl
from conftest import small_net
from interop.small_zoo import ABSENT, write_clone
from whorl.evaluation import PAPER_POSES, AttackedImages, outcomes, to_8_bits
from whorl.interop import transferattack

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
REAL = os.environ.get(transferattack.VARIABLE, "")
SIDE = 24


@pytest.fixture(scope="module")
def rivals() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("rivals")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def listed(rivals: ModuleType) -> ModuleType:
    return sys.modules["rival_candidates"]


@pytest.fixture
def networks() -> dict[str, whorl.Classifier]:
    made = {}
    for seed, name in enumerate(("source", "plain", "plain.hardened")):
        made[name] = whorl.Classifier.from_module(
            small_net(seed=seed), size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, name=name
        )
    return made


@pytest.fixture
def arguments(
    listed: ModuleType,
    networks: dict[str, whorl.Classifier],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """Photographs, a small clone and networks in place of the real ones."""
    clone = write_clone(tmp_path / "clone")
    generator = np.random.default_rng(0)
    for label in range(6):
        (tmp_path / "images" / f"{label:03d}").mkdir(parents=True)
        pixels = generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{label:03d}" / "0.png")
    monkeypatch.setattr(transferattack, "_UNUSED", (ABSENT,))
    monkeypatch.setattr(whorl, "load_model", lambda name, device: networks[name])
    copies = listed.Rival(steps=2, copies=3, budgets={6: {"steps": 1}})
    monkeypatch.setattr(listed, "RIVALS", {"copies": copies, "filed": listed.Rival(steps=2)})
    monkeypatch.setattr(listed, "TARGETED", {"reach": listed.Rival(steps=3)})
    monkeypatch.setattr(listed, "OURS", (("mim", 2),))
    monkeypatch.setattr(listed, "OURS_TARGETED", (("mim", 2),))
    folders = [
        "--data",
        str(tmp_path / "images"),
        "--transferattack",
        str(clone),
        "--json",
        str(tmp_path / "made.json"),
    ]
    return [*folders, "--source", "source", "--targets", "plain,plain.hardened", "--size", str(SIDE), "--device", "cpu"]


def saved(arguments: list[str]) -> Any:
    return json.loads(Path(arguments[arguments.index("--json") + 1]).read_text())


NAMES = "mim/2,copies/6,copies/published,copies+ai/6"


def test_it_counts_what_the_library_counts(
    rivals: ModuleType, arguments: list[str], networks: dict[str, whorl.Classifier]
) -> None:
    rivals.main([*arguments, "--only", NAMES, "--n", "4", "--rows", "6", "--eps", "16"])
    made = saved(arguments)
    assert list(made["cost"]) == [f"{name}-16" for name in NAMES.split(",")]
    spent = {label: cost["gradients"] for label, cost in made["cost"].items()}
    assert spent == {"mim/2-16": [2], "copies/6-16": [3], "copies/published-16": [30], "copies+ai/6-16": [3]}
    assert [len(cost["seconds"]) for cost in made["cost"].values()] == [1, 2, 2, 2]  # batches: three copies of an image
    folder = arguments[arguments.index("--data") + 1]
    data = rivals.shuffled(folder, SIDE, 0, torch.device("cpu"))
    x, y, ids = data.x[:4], data.y[:4], data.ids[:4]
    adv = whorl.attack("mim", steps=2)(networks["source"], x, y, ids=ids)
    targets = {name: networks[name] for name in ("plain", "plain.hardened")}
    done = outcomes([AttackedImages(x, {"mim": to_8_bits(adv)}, y, ids)], targets, PAPER_POSES)
    found = rivals.HeldOut(made)
    for place, name in enumerate(targets):
        assert np.array_equal(found.recognised(name, "clean"), done.clean[place].numpy())
        assert np.array_equal(found.recognised(name, "mim/2-16"), done.adversarial[0, place].numpy())
    assert made["ids"] == ids


def test_it_goes_on_where_it_stopped(
    rivals: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    few = [*arguments, "--only", "mim/2,copies/6,filed/published"]
    rivals.main([*few, "--n", "3", "--seconds", "0"])
    assert "0 s are over; mim/2 at 16" in capsys.readouterr().out
    rivals.main([*few, "--n", "3", "--eps", "16"])
    shown = capsys.readouterr()
    assert "filed/published-16: WhorlError: transferattack:filed needs a file" in shown.err
    first = saved(arguments)
    rivals.main([*few, "--n", "3"])
    second = saved(arguments)
    assert list(second["cost"]) == ["mim/2-16", "copies/6-16", "mim/2-8", "copies/6-8"]
    assert second["cost"]["mim/2-16"] == first["cost"]["mim/2-16"]  # not measured again
    assert "mim/2-8 " in capsys.readouterr().out
    rivals.main([*few, "--n", "5", "--eps", "8"])
    third = saved(arguments)["recognised"]["plain"]
    assert {label: cell["n"] for label, cell in third.items()} == {
        "clean": 5,
        "mim/2-16": 3,
        "copies/6-16": 3,
        "mim/2-8": 5,
        "copies/6-8": 5,
    }
    capsys.readouterr()
    rivals.main([*arguments, "--table", "--against", "mim/2"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "n = 3" in lines[0]
    assert "plain +0.0 (" in lines[0]


def test_parts_measured_beside_each_other_become_one(rivals: ModuleType, arguments: list[str], tmp_path: Path) -> None:
    path, other = tmp_path / "made.json", tmp_path / "other.json"
    few = [*arguments, "--n", "4", "--only", "mim/2,copies/6"]
    rivals.main([*few, "--eps", "16"])
    one = saved(arguments)
    rivals.main([*few, "--eps", "8", "--json", str(other)])
    new = json.loads(other.read_text())
    rivals.main(["--merge", str(other), "--json", str(path)])
    both = saved(arguments)
    for part in (one, new):
        for label, cost in part["cost"].items():
            assert both["cost"][label] == cost
            assert both["settings"][label] == part["settings"][label]
            assert all(both["recognised"][t][label] == part["recognised"][t][label] for t in both["recognised"])
    assert both["metadata"]["merged"][0]["cells"] == ["copies/6-8", "mim/2-8"]
    for changed, said in (
        ({"metadata": new["metadata"] | {"half": True}}, "half is False in the one, True in the other"),
        ({"classes": [0]}, "the classes to be reached differ"),
        ({"ids": new["ids"][::-1]}, "names differ"),
    ):
        with pytest.raises(whorl.WhorlError, match=said):
            rivals.merged(one, {**new, **changed})


def test_step_sizes_keep_their_published_share_of_the_radius(listed: ModuleType, tmp_path: Path) -> None:
    clone = str(write_clone(tmp_path))
    transferattack._imported.cache_clear()
    made = listed._rival("sign", listed.Rival(steps=10), {"steps": 5}, "resnet18", clone).make
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transferattack, "_UNUSED", (ABSENT,))
        settings = dict(made(8 / 255).settings)
        assert settings["alpha"] == pytest.approx(8 / 255 / 5)
        assert settings["epoch"] == 5
        candidate = listed._changed(listed.Candidate(make=made), ["5", "ai"])
        changed = candidate.make(8 / 255)
    assert dict(changed.settings)["alpha"] == pytest.approx(8 / 255)
    assert changed.estimator == whorl.AffineInvariant()


def test_targeted_attacks_count_who_is_taken_for_the_class(
    rivals: ModuleType, arguments: list[str], networks: dict[str, whorl.Classifier]
) -> None:
    rivals.main([*arguments, "--targeted", "--only", "mim/2,reach/*", "--n", "4", "--eps", "16"])
    made = saved(arguments)
    folder = arguments[arguments.index("--data") + 1]
    data = rivals.shuffled(folder, SIDE, 0, torch.device("cpu"))
    x, y, ids = data.x[:4], data.y[:4], data.ids[:4]
    classes = torch.tensor(made["classes"])
    assert bool((classes != y).all())
    adv = to_8_bits(whorl.attack("mim", steps=2)(networks["source"], x, target=classes, ids=ids))
    found = rivals.HeldOut(made)
    expected = torch.stack([networks["plain"](pose.apply(adv)).argmax(1) == classes for pose in PAPER_POSES])
    assert np.array_equal(found.reached("plain", "mim/2-16", 4), expected.numpy())
    assert float(found.mean(["plain"], "mim/2-16", 4).value("mean")) == pytest.approx(float(expected.float().mean()))
    assert made["cost"]["reach/published-16"]["gradients"] == [300]


def test_every_name_of_a_word_is_known(listed: ModuleType) -> None:
    names = list(listed.candidates("resnet18", "", targeted=False))
    assert names[0] == "dim/10"
    assert names[-2:] == ["ops/published", "eot/2500"]
    assert list(listed.chosen("ops/*,bsr+ai/50", "resnet18", "", targeted=False)) == [
        "ops/10",
        "ops/50",
        "ops/200",
        "ops/published",
        "bsr+ai/50",
    ]
    with pytest.raises(SystemExit, match="no candidate 'osp/10'"):
        listed.chosen("osp/10", "resnet18", "", targeted=False)


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason=f"{transferattack.VARIABLE} names no clone")
@pytest.mark.parametrize("name", ["ops", "mef", "bsr", "sia", "decowa", "bfa", "p2fa", "anda"])
def test_the_real_ones_spend_what_their_names_say(name: str, listed: ModuleType) -> None:
    candidate = listed.candidates("resnet18", REAL, targeted=False)[f"{name}/10"]
    clf, (x, y, ids) = whorl.load_model("resnet18"), whorl.load_samples(1, size=224)
    _, info = candidate.make(16 / 255)(clf, x, y, ids=ids, return_info=True)
    assert 8 <= int(info.grad_evals[0]) <= 13
