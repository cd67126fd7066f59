"""Both attacks, step by step: the same images as without a page; and poses and maps, as ``whorl.evaluation`` counts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import whorl
from ui.ui_toys import LABELS, SIDE, Sleep, crafted, followed, image, imagenet_toy, slow, toy
from whorl.errors import WhorlError
from whorl.evaluation import Pose, SuccessRate, poses, success_rates, to_8_bits
from whorl.ui.pair import (
    MAP_ANGLES,
    MAP_SCALES,
    PairSettings,
    StepTaken,
    SuccessMap,
    craft,
    pairs,
    predict,
    success_map,
    whorls,
)


@pytest.mark.parametrize("eps", [12 / 255, 8 / 255], ids=["12", "8"])  # kernels may differ
@pytest.mark.parametrize("name", pairs())
def test_watching_changes_nothing(name: str, eps: float, tmp_path: Path) -> None:
    clf, chosen = toy(), image(tmp_path)
    steps, made = followed(clf, chosen, PairSettings(attack=name, eps=eps, steps=4, seed=7))
    x = chosen.pixels((SIDE, SIDE))
    y = clf(x).argmax(1)
    taken = 1 if name == "fgsm" else 4
    for attack in pairs()[name]:
        plainly = whorl.attack(attack, eps=eps, steps=taken, fast=False)
        expected = plainly(clf, x, y, seed=7, ids=[chosen.id])
        assert torch.equal(made.versions[attack], to_8_bits(expected))
    assert torch.equal(made.versions["clean"], x)
    assert made.attacks == pairs()[name]
    assert [(step.attack, step.done, step.steps) for step in steps] == [
        (attack, done, taken) for attack in made.attacks for done in range(1, taken + 1)
    ]


def test_steps_tell_the_labels_probability(tmp_path: Path) -> None:
    clf, chosen = toy(), image(tmp_path)
    steps, made = followed(clf, chosen, PairSettings(attack="mim", eps=16 / 255, steps=5))
    before = clf(chosen.pixels((SIDE, SIDE))).softmax(1)[0, made.label]
    # MIM starts at the image, so its first step is asked about the image itself.
    assert steps[0].probability == pytest.approx(float(before))
    assert steps[4].probability < steps[0].probability


def test_an_unknown_label_is_what_the_network_says(tmp_path: Path) -> None:
    clf, chosen = toy(), image(tmp_path, label=3)
    _, made = followed(clf, chosen, PairSettings(attack="fgsm"))
    # 3 is a class of ImageNet, and this network has others.
    assert made.label == int(clf(chosen.pixels((SIDE, SIDE))).argmax())
    assert not made.known
    assert made.label_name == clf.labels[made.label]


def test_a_known_label_is_kept_even_if_the_network_disagrees(tmp_path: Path) -> None:
    clf, chosen = imagenet_toy(), image(tmp_path, label=243)
    assert int(clf(chosen.pixels((SIDE, SIDE))).argmax()) != 243
    _, made = followed(clf, chosen, PairSettings(attack="fgsm"))
    assert (made.label, made.known, made.label_name) == (243, True, "bull mastiff")


def test_an_attack_without_a_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="unknown attack 'ti-dim'"):
        craft(toy(), image(tmp_path), PairSettings(attack="ti-dim"))


def test_the_second_network_is_evaluated_and_not_attacked(tmp_path: Path) -> None:
    other, chosen = toy(seed=1), image(tmp_path)
    alone = craft(toy(), chosen, PairSettings(attack="mim", steps=3))
    made = craft(toy(), chosen, PairSettings(attack="mim", steps=3), other=other)
    assert all(torch.equal(made.versions[name], alone.versions[name]) for name in made.versions)
    pose = Pose(angle=15, scale=0.7)
    posed = predict(made, pose)
    *_, found = success_map(made)
    for name, version in made.versions.items():
        label = int(other(pose.apply(version)).argmax())
        assert (posed.other[name].label, posed.other[name].right) == (label, label == made.label)
        assert found.other[Pose(angle=15, scale=0.7)][name] == posed.other[name]
    assert predict(alone, pose).other == {}
    right = [place for place, said in found.other.items() if said["clean"].right]
    assert found.pooled("ai-mim", other=True).n_clean_correct == len(right)
    with pytest.raises(WhorlError, match="expected a second network with the classes of toy"):
        craft(toy(), chosen, PairSettings(), other=toy(labels=tuple("tuvwxyz")))


def test_a_path_counts_each_pose_once(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="mim", eps=16 / 255)
    places = [Pose(angle=angle) for angle in (0, 10, 20, 10)]
    path = SuccessMap.of([predict(made, place) for place in places])
    assert (list(path.answers), path.complete) == (places[:3], True)
    fooled = [predict(made, place) for place in places[:3]]
    clean = [posed.answers["clean"].right for posed in fooled]
    assert path.pooled("mim").n_clean_correct == sum(clean)
    assert path.pooled("mim").n_success == sum(
        right and not posed.answers["mim"].right for right, posed in zip(clean, fooled, strict=True)
    )


class EnoughError(Exception):
    """Nobody waits any longer."""


def test_it_stops_when_nobody_waits(tmp_path: Path) -> None:
    def on_step(step: StepTaken) -> None:
        raise EnoughError

    before = Sleep.calls
    with pytest.raises(EnoughError):
        craft(slow(), image(tmp_path), PairSettings(attack="mim", steps=50), on_step=on_step)
    assert Sleep.calls <= before + 2  # the label, and one step


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise WhorlError("it is broken.")
        return torch.ones(len(x), 7)


def test_what_goes_wrong_is_told(tmp_path: Path) -> None:
    broken = whorl.Classifier.from_module(Broken(), size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, num_classes=7)
    with pytest.raises(WhorlError, match="it is broken"):
        craft(broken, image(tmp_path), PairSettings())


POSE = Pose(angle=20, scale=0.8, shift=(12, -7))


@pytest.mark.parametrize("pose", [Pose(), POSE], ids=str)
def test_a_pose_shows_what_the_network_saw(pose: Pose, tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="mim", eps=16 / 255)
    posed = predict(made, pose)
    assert list(posed.answers) == list(posed.images) == ["clean", "mim", "ai-mim"]
    for version, images in made.versions.items():
        seen = pose.apply(images)
        shares = made.model(seen).softmax(1)[0]
        answer = posed.answers[version]
        assert torch.equal(posed.images[version], seen[0])
        assert answer.label == int(shares.argmax())
        assert answer.name == LABELS[answer.label]
        assert answer.probability == pytest.approx(float(shares.max()), abs=1e-5)
        assert answer.right == (answer.label == made.label)


def test_the_map_counts_as_the_evaluation_does(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="mim", eps=1 / 255)
    *partial, found = success_map(made)
    assert [len(part.answers) for part in partial] == [7, 14, 21, 28]
    assert not any(part.complete for part in partial)
    assert found.complete
    expected = success_rates(
        {"toy": made.model},
        made.versions["clean"],
        {name: made.versions[name] for name in made.attacks},
        torch.tensor([made.label]),
        poses=poses(angles=MAP_ANGLES, scales=MAP_SCALES),
    )
    got = {(name, "toy", pose): found.counts(name, pose) for pose in found.answers for name in made.attacks}
    assert got == expected
    for attack in made.attacks:
        mine = [counts for (name, _, _), counts in expected.items() if name == attack]
        assert found.pooled(attack) == sum(mine, SuccessRate())
    # The case is worth counting: all three kinds of cells are there.
    kinds = {(counts.n_clean_correct, counts.n_success) for counts in expected.values()}
    assert kinds == {(0, 0), (1, 0), (1, 1)}


def test_an_image_that_is_never_right_has_no_rate(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm")
    wrong = replace(made, label=(made.label + 1) % 7)
    seen = {answer.label for said in list(success_map(made))[-1].answers.values() for answer in said.values()}
    if wrong.label in seen:
        wrong = replace(made, label=next(label for label in range(7) if label not in seen))
    *_, found = success_map(wrong)
    assert math.isnan(found.pooled("fgsm").rate)


@pytest.mark.parametrize("levels", [1, 8])
def test_the_bound_fills_the_range(levels: int, tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm", eps=levels / 255)
    shown = whorls(made)
    assert list(shown) == ["fgsm", "ai-fgsm"]
    for attack, added in shown.items():
        change = (made.versions[attack] - made.versions["clean"])[0] * 255
        assert float(added.max()) == pytest.approx(1, abs=1e-4)
        assert torch.allclose(added, change / (2 * levels) + 0.5, atol=1e-4)


def test_no_change_is_gray(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm", eps=0.0)
    assert all(torch.equal(image, torch.full_like(image, 0.5)) for image in whorls(made).values())
