"""The benchmarks of poses: they go on where they stopped, and their tables follow from what is saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from conftest import random_images, small_net
from whorl.data import save_image
from whorl.models import Classifier


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Both scripts, with a small network in place of every one that they load."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import families
    import worst_pose

    def load(name: str, **_: object) -> Classifier:
        net = small_net(seed=len(name))
        return Classifier.from_module(net, size=(18, 18), mean=(0.0,) * 3, std=(1.0,) * 3, name=name)

    monkeypatch.setattr(whorl, "load_model", load)
    yield families, worst_pose
    for module in ("families", "worst_pose", "frontier_judge", "frontier_candidates", "judge", "measure"):
        sys.modules.pop(module, None)


@pytest.fixture
def photographs(tmp_path: Path) -> str:
    x = random_images(6)
    for i, (image, label) in enumerate(zip(x, small_net(seed=8)(x).argmax(1).tolist(), strict=True)):
        save_image(tmp_path / "photographs" / f"{label:03d}" / f"{i}.png", image)
    return str(tmp_path / "photographs")


def test_families_go_on_and_every_rate_follows_from_the_saved_outcomes(
    benchmarks: Any, photographs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    families, _ = benchmarks
    path = tmp_path / "families.json"
    common = ["--data", photographs, "--n", "6", "--size", "18", "--targets", "resnet18,other", "--json", str(path)]
    families.main([*common, "--attacks", "dim", "--device", "cpu"])
    first = json.loads(path.read_text())
    families.main([*common, "--attacks", "dim;ai-best", "--device", "cpu"])
    both = json.loads(path.read_text())
    assert both["attacks"]["dim"] == first["attacks"]["dim"], "measured twice"
    assert list(both["attacks"]) == ["dim", "ai-best"]
    capsys.readouterr()
    families.main(["--show", "--json", str(path)])
    shown = capsys.readouterr().out
    assert shown.count("| dim |") == 4, "two targets, with rates and differences"
    # One cell by hand, from the digits alone.
    places = [list(families.POSES).index(pose) for pose in families.FAMILIES["shear"]]
    clean, still = (
        "".join(rows["resnet18"][place] for place in places)
        for rows in (both["clean"], both["attacks"]["dim"]["recognised"])
    )
    known = clean.count("1")
    fooled = sum(a == "1" and b == "0" for a, b in zip(clean, still, strict=True))
    assert f"{100 * fooled / known:.1f}" in shown.splitlines()[2].split("|")[3]


def test_the_grid_is_laid_where_the_search_failed_first_and_is_2000_poses(
    benchmarks: Any, photographs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, worst_pose = benchmarks
    assert [torch.tensor(counts).prod().item() for counts in worst_pose.GRIDS.values()] == [2000, 2000]
    path = tmp_path / "worst.json"
    common = ["--data", photographs, "--size", "18", "--networks", "resnet18", "--boxes", "rotations"]
    worst_pose.main([*common, "--n", "3", "--json", str(path), "--device", "cpu"])
    first = json.loads(path.read_text())["rows"]["resnet18, rotations"]["images"]
    worst_pose.main([*common, "--n", "6", "--json", str(path), "--device", "cpu"])
    images = json.loads(path.read_text())["rows"]["resnet18, rotations"]["images"]
    assert len(images) == 6
    assert {name: images[name] for name in first} == first, "measured twice"
    for image in images.values():
        assert image["grid"]["queries"] == 2000 or image["grid"]["fooled"]
        assert image["search"]["queries"] <= 200
    made_up = {
        "a": {"recognised": True, "search": {"fooled": True, "queries": 5, "seconds": 0.25}, "grid": {"fooled": False}},
        "b": {
            "recognised": True,
            "search": {"fooled": False, "queries": 200, "seconds": 0.5},
            "grid": {"fooled": True},
        },
        "c": {"recognised": False, "search": {"fooled": True, "queries": 1, "seconds": 9}, "grid": {"fooled": True}},
        "d": {"recognised": True, "search": {"fooled": True, "queries": 9, "seconds": 0.75}},
    }
    cells = worst_pose.line("net", made_up)
    assert cells == "| net | 3 | 2 (66.7%) | 1 of 2 | 1 | 1 | 71.3 | 9 | 200 | 0.500 |"
