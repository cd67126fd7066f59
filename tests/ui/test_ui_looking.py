"""Poses and maps, against the definitions in ``whorl.evaluation``."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ui.ui_toys import LABELS, crafted
from whorl.evaluation import Pose, SuccessRate, poses, success_rates
from whorl.ui.looking import MAP_ANGLES, MAP_SCALES, look, success_map, whorls

POSE = Pose(angle=20, scale=0.8, shift=(12, -7))


@pytest.mark.parametrize("pose", [Pose(), POSE], ids=str)
def test_a_look_shows_what_the_network_saw(pose: Pose, tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="mim", eps=16 / 255)
    view = look(made, pose)
    assert list(view.answers) == list(view.pictures) == ["clean", "mim", "ai-mim"]
    for version, images in made.versions.items():
        seen = pose.apply(images)
        shares = made.model(seen).softmax(1)[0]
        answer = view.answers[version]
        assert torch.equal(view.pictures[version], seen[0])
        assert answer.label == int(shares.argmax())
        assert answer.name == LABELS[answer.label]
        assert answer.probability == pytest.approx(float(shares.max()), abs=1e-5)
        assert answer.right == (answer.label == made.label)


def test_the_map_counts_as_the_evaluation_does(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="mim", eps=1 / 255)
    *partial, found = success_map(made)
    assert [len(part.cells) for part in partial] == [7, 14, 21, 28]
    assert not any(part.complete for part in partial)
    assert found.complete
    expected = success_rates(
        {"toy": made.model},
        made.versions["clean"],
        {name: made.versions[name] for name in made.attacks},
        torch.tensor([made.label]),
        poses=poses(angles=MAP_ANGLES, scales=MAP_SCALES),
    )
    got = {(name, "toy", pose): counts for pose, cell in found.cells.items() for name, counts in cell.counts.items()}
    assert got == expected
    for attack in made.attacks:
        mine = [counts for (name, _, _), counts in expected.items() if name == attack]
        assert found.pooled(attack) == sum(mine, SuccessRate())
    # The case is worth counting: all three kinds of cells are there.
    kinds = {(counts.n_clean_correct, counts.n_success) for counts in expected.values()}
    assert kinds == {(0, 0), (1, 0), (1, 1)}


def test_a_picture_that_is_never_right_has_no_rate(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm")
    wrong = replace(made, label=(made.label + 1) % 7)
    seen = {answer.label for cell in list(success_map(made))[-1].cells.values() for answer in cell.answers.values()}
    if wrong.label in seen:
        wrong = replace(made, label=next(label for label in range(7) if label not in seen))
    *_, found = success_map(wrong)
    assert math.isnan(found.pooled("fgsm").rate)


@pytest.mark.parametrize("levels", [1, 8])
def test_the_bound_fills_the_range(levels: int, tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm", eps=levels / 255)
    shown = whorls(made)
    assert list(shown) == ["fgsm", "ai-fgsm"]
    for attack, picture in shown.items():
        change = (made.versions[attack] - made.versions["clean"])[0] * 255
        assert float(picture.max()) == pytest.approx(1, abs=1e-4)
        assert torch.allclose(picture, change / (2 * levels) + 0.5, atol=1e-4)


def test_no_change_is_gray(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm", eps=0.0)
    assert all(torch.equal(picture, torch.full_like(picture, 0.5)) for picture in whorls(made).values())
