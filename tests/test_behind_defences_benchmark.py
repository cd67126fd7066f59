"""The benchmark behind defences: outcomes are the library's, the pose before the defence, and it goes on."""

from __future__ import annotations

import importlib
import json
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
from whorl.evaluation import PAPER_POSES, AttackedImages, Pose, outcomes, to_8_bits

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SIDE = 44
NETWORKS = ("resnet18", "other", "target", "hardened")


@pytest.fixture
def networks() -> dict[str, whorl.Classifier]:
    made = {}
    for seed, name in enumerate(NETWORKS):
        net = small_net(seed=seed)
        made[name] = whorl.Classifier.from_module(net, size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, name=name)
    return made


@pytest.fixture
def benchmark(networks: dict[str, whorl.Classifier], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """With small networks in place of the real ones, two attacks, and chunks of two."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    made = importlib.import_module("behind_defences")
    monkeypatch.setattr(whorl, "load_model", lambda name, device: networks[name])
    monkeypatch.setattr(made, "SOURCES", {"resnet18": ("resnet18",), "ensemble": ("resnet18", "other")})
    alone = (f"target+bitdepth{made.ALONE}", f"target+randmix{made.ALONE}")
    monkeypatch.setattr(made, "DEFENDED", "target")
    monkeypatch.setattr(made, "HARDENED", ("hardened",))
    monkeypatch.setattr(made, "TARGETS", ("target", "hardened", *alone))
    monkeypatch.setattr(made, "LATER", ("target+bitdepth", "target+resize-pad"))
    cells = tuple(made.Cell(attack, 16, source) for source in ("resnet18", "ensemble") for attack in ("dim", "ai-best"))
    monkeypatch.setattr(made, "CELLS", cells)
    monkeypatch.setattr(made, "CHUNK", 2)
    monkeypatch.setattr(made, "BLOCK", 1)
    yield made
    for name in ("behind_defences", "doc_data"):
        sys.modules.pop(name, None)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    generator = np.random.default_rng(0)
    for label in range(4):
        (tmp_path / "images" / f"{label:03d}").mkdir(parents=True)
        pixels = generator.integers(128 - 20 * label, 129 + 20 * label, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{label:03d}" / "0.png")
    folders = ["--data", str(tmp_path / "images"), "--work", str(tmp_path / "work")]
    return [*folders, "--size", str(SIDE), "--device", "cpu", "--json", str(tmp_path / "made.json")]


def saved(arguments: list[str]) -> Any:
    return json.loads(Path(arguments[-1]).read_text(encoding="utf-8"))


def test_outcomes_are_those_of_the_library(
    benchmark: ModuleType, networks: dict[str, whorl.Classifier], arguments: list[str]
) -> None:
    benchmark.main(["--limit", "4", *arguments])
    made = saved(arguments)
    data = benchmark.shuffled(arguments[1], SIDE, 0, torch.device("cpu"))
    sources = {
        "resnet18": networks["resnet18"],
        "ensemble": whorl.Ensemble([networks["resnet18"], networks["other"]]),
    }
    shown = {
        f"{source}-{attack}-16": to_8_bits(whorl.attack(attack, eps=16 / 255)(net, data.x, data.y, ids=data.ids))
        for source, net in sources.items()
        for attack in ("dim", "ai-best")
    }
    targets = {
        "target": networks["target"],
        "hardened": networks["hardened"],
        **{
            f"target+{one}": whorl.load_defense(one, networks["target"])
            for one in ("bitdepth", "resize-pad", "randmix")
        },
    }
    held_out, unpacked = importlib.import_module("doc_data").HeldOut, importlib.import_module("judge").unpacked
    alone = {**made, "poses": [{}], "recognised": made["recognised_as_they_are"]}
    assert made["ids"] == data.ids
    assert [*made["recognised_as_they_are"]] == ["target+bitdepth", "target+randmix"]
    every = [bit for kept in made["recognised"].values() for bit in unpacked(kept["clean"], len(PAPER_POSES)).flat]
    assert 0 < sum(every) < len(every)
    for found, poses in ((held_out(made), PAPER_POSES), (held_out(alone), (Pose(),))):
        for target in found.data["recognised"]:
            images = AttackedImages(data.x, shown, data.y, data.ids)
            done = outcomes([images], {target: targets[target]}, poses)
            assert np.array_equal(found.recognised(target, "clean"), done.clean[0].numpy()), target
            for place, label in enumerate(shown):
                assert np.array_equal(found.recognised(target, label), done.adversarial[place, 0].numpy()), label
    assert made["settings"]["ensemble-dim-16"]["eps"] == 16 / 255
    assert made["defences"]["target+randmix"]["samples"] == 10


def test_the_pose_is_before_the_defence(
    benchmark: ModuleType, networks: dict[str, whorl.Classifier], tmp_path: Path, arguments: list[str]
) -> None:
    data = benchmark.shuffled(arguments[1], SIDE, 0, torch.device("cpu"))
    work = benchmark.BehindDefences(tmp_path / "other", data, {"resnet18": networks["resnet18"]}, 0)
    found = work.evaluated(None, 0, "target+bitdepth")
    defended = whorl.load_defense("bitdepth", networks["target"])
    for row, pose in zip(found, PAPER_POSES, strict=True):
        right = defended(pose.apply(data.x[:2])).argmax(1) == data.y[:2]
        assert np.array_equal(row, right.numpy())


def test_it_goes_on_where_it_stopped(
    benchmark: ModuleType, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark.main(["--limit", "2", *arguments])
    first = saved(arguments)
    assert len(first["ids"]) == 2
    crafted, usual = list[str](), benchmark.BehindDefences.attacked

    def attacked(work: Any, cell: Any) -> Any:
        crafted.append(cell.label)
        return usual(work, cell)

    monkeypatch.setattr(benchmark.BehindDefences, "attacked", attacked)
    benchmark.main(["--limit", "2", *arguments])
    assert (saved(arguments)["recognised"], crafted) == (first["recognised"], [])
    benchmark.main(["--limit", "4", *arguments])
    assert len(saved(arguments)["ids"]) == 4
    assert crafted == [cell.label for cell in benchmark.CELLS]


def test_poses_behind_defences_come_last_and_may_be_fewer(
    benchmark: ModuleType, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "BLOCK", 2)
    first = [(chunk, targets is benchmark.LATER) for chunk, targets in benchmark.tasks(3)]
    assert first == [(0, False), (1, False), (0, True), (1, True), (2, False), (2, True)]
    monkeypatch.setattr(
        benchmark, "tasks", lambda chunks: [(0, benchmark.TARGETS), (1, benchmark.TARGETS), (0, benchmark.LATER)]
    )
    benchmark.main(["--limit", "4", *arguments])
    kept = saved(arguments)["recognised"]
    assert {name: cells["clean"]["n"] for name, cells in kept.items()} == {
        "target": 4,
        "hardened": 4,
        "target+bitdepth": 2,
        "target+resize-pad": 2,
    }
