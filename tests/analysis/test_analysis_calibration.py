"""Calibration from end to end on small networks, and its grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.toy_fields import FIRST, SECOND, THIRD, saved
from whorl import WhorlError
from whorl.analysis.calibration import (
    Calibrated,
    CalibrationOptions,
    as_json,
    as_toml,
    calibrate,
    other_networks,
    write,
)
from whorl.analysis.kernel_grid import BASELINES, candidates
from whorl.estimators import AffineInvariant, RotationInvariant
from whorl.runs.declaration import read_declaration

GRID = "translation=0,0.6;polar=0,0.6;size=5"


@pytest.fixture
def call(tmp_path: Path) -> Any:
    data = saved(tmp_path)

    def run(**settings: Any) -> Calibrated:
        given: dict[str, Any] = {
            "targets": [SECOND, THIRD],
            "grid": GRID,
            "settings": {"steps": 2},
            "folds": 2,
            "resamples": 50,
        }
        return calibrate(FIRST, tmp_path / "out", CalibrationOptions(data=data, size=18, **(given | settings)))

    return run


def test_from_end_to_end(call: Any, tmp_path: Path) -> None:
    done = call(seeds=(0, 1))
    assert [one.label for one in done.candidates] == [*BASELINES, "t0-p0.6-k5", "t0.6-p0-k5", "t0.6-p0.6-k5"]
    assert done.gradients == 2
    assert done.answers.success.shape == (7, 2, 2 * 12, 10)
    assert not done.winner.baseline
    assert {one.target for one in done.chosen.judged} == {SECOND, THIRD}
    files = write(done)
    content = json.loads(files["outcome"].read_text())
    assert content == json.loads(json.dumps(as_json(done)))
    assert content["winner"]["label"] == done.chosen.winner
    means = {row["name"]: row["mean"] for row in content["ranking"]}
    eligible = {name: mean for name, mean in means.items() if name not in BASELINES}
    assert means[done.chosen.winner] == max(eligible.values())


def test_rates_are_those_of_the_run(call: Any, tmp_path: Path) -> None:
    done = call()
    with (tmp_path / "out" / "seed-0" / "results.csv").open() as file:
        header, *rows = (line.rstrip("\n").split(",") for line in file)
    table = [dict(zip(header, row, strict=True)) for row in rows]
    for one in done.chosen.ranking:
        for target, rate in zip(("second", "third"), one.rates, strict=True):
            own = [r for r in table if r["attack"] == one.name and r["target"].endswith(target) and r["asr"]]
            assert rate == pytest.approx(100 * sum(float(r["asr"]) for r in own) / len(own), abs=0.01)


def test_goes_on_where_it_stopped(call: Any, tmp_path: Path) -> None:
    before = call()
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.png")}
    assert len(made) == 7 * 10
    after = call()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.png")} == made
    assert torch.equal(before.answers.success, after.answers.success)
    assert before.chosen == after.chosen


def test_the_winner_goes_into_a_declaration(call: Any, tmp_path: Path) -> None:
    done = call(settings={"steps": 3, "eps": 8 / 255})
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\nsources = ["{FIRST}"]\ntargets = ["{SECOND}"]\n{as_toml(done)}')
    [spec] = read_declaration(path).attacks
    attack: Any = spec.build()
    assert (attack.steps, attack.eps) == (3, 8 / 255)
    assert isinstance(attack.estimator, AffineInvariant)
    assert attack.estimator == done.winner.spec("dim", {}).build().estimator


def test_the_plain_baseline_has_no_estimator() -> None:
    plain, ti, reference, printed = (one.spec("dim", {}).build() for one in candidates(GRID)[:4])
    gradient = torch.randn(1, 3, 18, 18)
    assert torch.equal(plain.estimator(gradient), gradient)  # type: ignore[attr-defined]
    assert reference.estimator == AffineInvariant(sigma="reference")  # type: ignore[attr-defined]
    assert printed.estimator == AffineInvariant(sigma="printed")  # type: ignore[attr-defined]
    assert type(ti.estimator).__name__ == "TranslationInvariant"  # type: ignore[attr-defined]


def test_rotations_that_narrow_beside_other_kernels_and_alone(call: Any, tmp_path: Path) -> None:
    both = candidates("translation=0;polar=0.5;degrees=5,32-1.6")
    assert [one.label for one in both if not one.baseline] == ["t0-p0.5-k15", "d5", "d32-1.6"]
    done = call(grid="degrees=20-2")
    assert done.winner.label == "d20-2"
    narrowing = RotationInvariant(degrees=(20.0, 2.0))
    assert done.winner.spec("dim", {}).build().estimator == narrowing
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\nsources = ["{FIRST}"]\ntargets = ["{SECOND}"]\n{as_toml(done)}')
    [spec] = read_declaration(path).attacks
    attack: Any = spec.build()
    assert attack.estimator == narrowing


def test_scaling_and_rotation_apart() -> None:
    listed = [one for one in candidates("translation=0,0.5;scaling=0,0.8;rotation=0,0.3,0.8") if not one.baseline]
    built: Any = {one.label: one.spec("dim", {}).build() for one in listed}
    assert len(built) == 11  # without the one that averages over nothing
    kernels = {name: (attack.estimator.kernel, attack.estimator.polar_kernel) for name, attack in built.items()}
    still, turning = AffineInvariant(sigma=0.5), AffineInvariant(translation=False, sigma=0.3, scaling=False)
    assert kernels["t0.5-s0-r0-k15"] == (still.kernel, None)
    assert kernels["t0-s0-r0.3-k15"] == (None, turning.polar_kernel)
    assert kernels["t0.5-s0.8-r0.8-k15"] == (still.kernel, AffineInvariant(sigma=0.8).polar_kernel)
    _, apart = kernels["t0-s0.8-r0.3-k15"]
    wide, narrow = AffineInvariant(sigma=0.8).polar_kernel, AffineInvariant(sigma=0.3).polar_kernel
    assert wide is not None
    assert narrow is not None
    assert apart.rows == pytest.approx(wide.rows, rel=1e-12)
    assert apart.columns == pytest.approx(narrow.columns, rel=1e-12)


@pytest.mark.parametrize(
    ("grid", "problem"),
    [
        ("translation=0;polar=0", "averages over something"),
        ("translation=1", "must say translation, and polar"),
        ("translation=1;degrees=5", "must say translation, and polar"),
        ("degrees=5-", "lists of numbers"),
        ("degrees=5,3-2-1", "degrees must be a number in"),
        ("degrees=0", "degrees must be a number in"),
        ("translation=1;rotation=1", "both scaling and rotation"),
        ("translation=1;polar=1;scaling=1;rotation=1", "both scaling and rotation"),
        ("sigma=1;polar=1", "unknown part of a grid 'sigma'"),
        ("translation=1;polar=x", "lists of numbers"),
        ("translation=-1;polar=0", "numbers from 0"),
        ("translation=1;polar=1;size=4", "odd whole numbers"),
    ],
)
def test_a_bad_grid_is_refused(grid: str, problem: str) -> None:
    with pytest.raises(WhorlError, match=problem):
        candidates(grid)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"targets": [FIRST, SECOND]}, "of the source's family"),
        ({"targets": [SECOND]}, "two families"),
        ({"seeds": ()}, "expected seeds"),
        ({"seeds": (1, 1)}, "each once"),
    ],
)
def test_targets_that_cannot_judge_are_refused(call: Any, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(WhorlError, match=problem):
        call(**settings)


def test_the_zoo_s_other_families() -> None:
    assert other_networks("resnet18") == (
        "mobilenet_v2",
        "efficientnet_lite0",
        "efficientnet_lite1",
        "efficientnet_lite2",
    )
    assert other_networks("resnet18+mobilenet_v2") == other_networks("resnet18")[1:]
