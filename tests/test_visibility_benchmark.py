"""The benchmark of visibility: scaled images keep their bound, outcomes are the library's, and it goes on."""

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
from whorl.evaluation import PAPER_POSES, AttackedImages, Distance, bounded_by_ssim, outcomes, ssim, to_8_bits

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SIDE = 44


@pytest.fixture(scope="module")
def visibility() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("visibility")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def networks() -> dict[str, whorl.Classifier]:
    made = {}
    for seed, name in enumerate(("source", "one", "two")):
        net = small_net(seed=seed)
        made[name] = whorl.Classifier.from_module(net, size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, name=name)
    return made


@pytest.fixture
def arguments(
    visibility: ModuleType, networks: dict[str, whorl.Classifier], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Photographs and networks in place of the real ones; two chunks."""
    generator = np.random.default_rng(0)
    for label in range(6):
        (tmp_path / "images" / f"{label:03d}").mkdir(parents=True)
        pixels = generator.integers(128 - 20 * label, 129 + 20 * label, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{label:03d}" / "0.png")
    monkeypatch.setattr(whorl, "load_model", lambda name, device: networks[name])
    monkeypatch.setattr(visibility, "TARGETS", ("one", "two"))
    cell = visibility.Cell
    cells = cell("ram", 16), cell("dim", 16), cell("ram", 16, "equal"), cell("ram", 16, "quarter")
    monkeypatch.setattr(visibility, "CELLS", cells)
    monkeypatch.setitem(sys.modules["held_out"].SIZES, "cpu", (3, 2))
    folders = ["--data", str(tmp_path / "images"), "--work", str(tmp_path / "work")]
    sizes = ["--size", str(SIDE), "--source", "source", "--device", "cpu"]
    return [*folders, *sizes, "--json", str(tmp_path / "made.json")]


def saved(arguments: list[str]) -> Any:
    return json.loads(Path(arguments[-1]).read_text())


def test_is_what_the_library_measures(
    visibility: ModuleType, arguments: list[str], networks: dict[str, whorl.Classifier]
) -> None:
    visibility.main(["--limit", "6", *arguments])
    made = saved(arguments)
    data = visibility.shuffled(arguments[arguments.index("--data") + 1], SIDE, 0, torch.device("cpu"))
    adv = {
        name: to_8_bits(whorl.attack(name)(networks["source"], data.x, data.y, ids=data.ids)) for name in ("ram", "dim")
    }
    shown = {"ram-16": adv["ram"], "dim-16": adv["dim"]}
    for scaled, shrink in (("equal", 1), ("quarter", 4)):
        least = ssim(data.x, adv["dim"], shrink=shrink)
        shown[f"ram-{scaled}-16"] = bounded_by_ssim(data.x, adv["ram"], least, shrink=shrink)
    targets = {name: networks[name] for name in ("one", "two")}
    done = outcomes([AttackedImages(data.x, shown, data.y, data.ids)], targets, PAPER_POSES)
    found = importlib.import_module("doc_data").HeldOut(made)
    assert made["ids"] == data.ids
    for t, target in enumerate(targets):
        assert np.array_equal(found.recognised(target, "clean"), done.clean[t].numpy())
        for a, label in enumerate(shown):
            assert np.array_equal(found.recognised(target, label), done.adversarial[a, t].numpy()), label
    for label, images in shown.items():
        assert made["ssim"][label] == pytest.approx(ssim(data.x, images).tolist(), abs=1e-6)
        assert made["ssim_quarter"][label] == pytest.approx(ssim(data.x, images, shrink=4).tolist(), abs=1e-6)
        each = [Distance.of(data.x[i : i + 1], images[i : i + 1]).l2_mean for i in range(len(images))]
        assert made["l2"][label] == pytest.approx(each, abs=1e-6)
    for scaled, what in (("equal", "ssim"), ("quarter", "ssim_quarter")):
        pairs = zip(made[what][f"ram-{scaled}-16"], made[what]["dim-16"], strict=True)
        assert all(one >= reference for one, reference in pairs)
    assert made["settings"]["ram-16"]["eps"] == 16 / 255


def test_it_goes_on_where_it_stopped(
    visibility: ModuleType, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    visibility.main(["--limit", "3", *arguments])
    first = saved(arguments)
    monkeypatch.setattr(visibility.Cell, "made", property(lambda cell: whorl.attack("mim")))  # what is there stays
    visibility.main(["--limit", "3", *arguments])
    assert saved(arguments)["recognised"] == first["recognised"]


def test_an_image_that_was_not_scaled_is_not_evaluated_again(
    visibility: ModuleType, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, usual = list[int](), visibility.Visibility.answers

    def answers(work: Any, images: torch.Tensor, *rest: Any) -> Any:
        counted.append(len(images))
        return usual(work, images, *rest)

    monkeypatch.setattr(visibility.Visibility, "answers", answers)
    visibility.main(["--limit", "6", *arguments])
    made = saved(arguments)
    more_visible = [
        sum(a < b for a, b in zip(made[what]["ram-16"], made[what]["dim-16"], strict=True))
        for what in ("ssim", "ssim_quarter")
    ]
    assert 0 < sum(more_visible) < 12
    assert sum(counted) == 2 * (3 * 6 + sum(more_visible))  # two targets; clean, ram and dim
