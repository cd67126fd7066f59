"""Which images go on paper, and that they are the ones that were attacked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.toy_networks import small
from conftest import random_images
from physical.printed_run import folders
from whorl import WhorlError, runs
from whorl.data import save_image
from whorl.physical import collect


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
