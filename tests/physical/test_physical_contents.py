"""Which images go on paper, and that they are the ones that were attacked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.toy_networks import small
from conftest import random_images, small_net
from physical.printed_run import folders
from whorl import Classifier, WhorlError, runs
from whorl.data import save_image
from whorl.physical import Capture, PageLayout, arrange, collect
from whorl.physical.captures import Photographed
from whorl.physical.scorer import Scorer
from whorl.runs.networks import Target


def craft(folder: Path, *attacks: str) -> None:
    for i, image in enumerate(random_images(3)):
        save_image(folder / "data" / str(i) / f"{i}.png", image)
    for name in attacks:
        runs.craft(name, small(), runs.Data(folder=folder / "data"), folder / "run")


def test_labelled_images_are_printed_as_they_are() -> None:
    clean, _ = folders()
    groups = collect(clean, limit=4, size=32)
    assert [len(group) for group in groups] == [1] * 4
    assert {item.size for (item,) in groups} == {(32, 32)}
    assert all(item.attack == "clean" and str(item.label) == item.id.split("/")[0] for (item,) in groups)


def test_a_run_folder_knows_its_clean_images(tmp_path: Path) -> None:
    craft(tmp_path, "fgsm", "pgd")
    groups = collect(tmp_path / "run")
    assert [[item.attack for item in group] for group in groups] == [["clean", "fgsm", "pgd"]] * 3
    clean, fgsm, _ = groups[0]
    assert (fgsm.id, fgsm.label, fgsm.source, fgsm.size) == (clean.id, clean.label, "small", (18, 18))
    assert fgsm.eps == pytest.approx(16 / 255)
    assert fgsm.grad_evals == 1


def test_attacks_can_be_chosen(tmp_path: Path) -> None:
    craft(tmp_path, "fgsm", "pgd")
    assert [item.attack for item in collect(tmp_path / "run", attacks=["pgd"])[0]] == ["clean", "pgd"]
    with pytest.raises(WhorlError, match="fgsm"):
        collect(tmp_path / "run", attacks=["fgsn"])


def test_clean_images_that_are_not_the_attacked_ones(tmp_path: Path) -> None:
    craft(tmp_path, "fgsm")
    for i, other in enumerate(random_images(3, seed=99)):
        save_image(tmp_path / "other" / str(i) / f"{i}.png", other)
    with pytest.raises(WhorlError, match="not the image"):
        collect(tmp_path / "run", clean=tmp_path / "other")


def test_clean_images_that_are_gone(tmp_path: Path) -> None:
    craft(tmp_path, "fgsm")
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(WhorlError, match="Say where"):
        collect(tmp_path / "run")
    assert len(collect(tmp_path / "run", clean=tmp_path / "elsewhere")) == 3


def test_adversarial_images_of_others() -> None:
    clean, noise = folders()
    assert [[item.attack for item in group] for group in collect(noise, clean=clean, limit=1)] == [["clean", "noise"]]


def test_class_folders_by_name_are_matched_with_the_networks_that_are_scored(tmp_path: Path) -> None:
    x = random_images(2)
    for image, name in zip(x, ("bee", "wasp"), strict=True):
        save_image(tmp_path / "data" / name / "one.png", image)
    [(bee,), (wasp,)] = collect(tmp_path / "data")
    assert [(bee.label, bee.class_name), (wasp.label, wasp.class_name)] == [(0, "bee"), (1, "wasp")]
    sheet = arrange([[bee], [wasp]], PageLayout())
    # What is on paper already has no such field, and its markers must be known again.
    plain = arrange([[replace(bee, class_name="")], [replace(wasp, class_name="")]], PageLayout())
    assert sheet.fingerprint == plain.fingerprint
    labels = ("wasp", "ant", "bee", *"defg")
    net = Classifier.from_module(small_net(), size=18, mean=(0.5,) * 3, std=(0.5,) * 3, labels=labels)
    nobody: Any = None  # how it lies in the photograph does not matter here
    seen = Capture(photo="p", sheet=sheet.name, item=bee, appearance=nobody, misfit=0.0)
    scorer = Scorer([sheet], [Target(model="net", net=net)])
    [found] = scorer._matched(Photographed(photo="p", captures=[seen])).captures
    assert found.item.label == 2
    with pytest.raises(WhorlError, match="'hornet'"):
        scorer._matched(Photographed(photo="p", captures=[replace(seen, item=replace(bee, class_name="hornet"))]))


def test_a_run_has_matched_them_already(tmp_path: Path) -> None:
    net = Classifier.from_module(
        small_net(), size=18, mean=(0.5,) * 3, std=(0.5,) * 3, name="small", labels=tuple("gfedcba")
    )
    x = random_images(3)
    for i, (image, label) in enumerate(zip(x, net(x).argmax(1).tolist(), strict=True)):
        save_image(tmp_path / "data" / net.labels[label] / f"{i}.png", image)
    runs.craft("fgsm", net, runs.Data(folder=tmp_path / "data"), tmp_path / "run")
    for clean, attacked in collect(tmp_path / "run"):
        assert clean.class_name == ""
        assert clean.label == attacked.label == net.labels.index(clean.id.split("/")[0])
