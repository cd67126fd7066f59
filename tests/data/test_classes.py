"""Class folders and the classes of a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl import WhorlError, load_images
from whorl.data import iter_images, save_image
from whorl.data.classes import labelled, match
from whorl.data.layouts import list_images
from whorl.models.architectures import imagenet_labels


def folders(root: Path, *names: str) -> Path:
    for name in names:
        save_image(root / name / "one.png", torch.zeros(3, 4, 4))
    return root


def test_names_are_found_whatever_their_spelling() -> None:
    assert match(["Bee", "sea-urchin"], ["ant", "bee", "sea  urchin"], "x") == [1, 2]
    assert match(["coffee_mug", "umbrella"], imagenet_labels(), "x") == [504, 879]
    assert match(["Cardigan", "cardigan"], imagenet_labels(), "x") == [264, 474]  # a dog, and a jacket


@pytest.mark.parametrize(
    ("names", "labels", "says"),
    [
        (["ant", "wasp"], ["ant", "bee"], r"x: 1 of 2 class folders name no class of the network: 'wasp'\. It has 2"),
        (["umbrela"], imagenet_labels(), r"Did you mean 'umbrella' by 'umbrela'\?"),
        (["CARDIGAN"], imagenet_labels(), "'CARDIGAN' is the name of classes 264 and 474"),
        (["ant", "bee"], ["0", "1", "2"], r"for each of the network's 3 classes, got 2: 'ant', 'bee'\. Take a network"),
        ([str(i) + "x" for i in range(10)], [str(i) for i in range(1000)], "1000 classes, got 10"),
    ],
)
def test_what_does_not_fit_is_refused(names: list[str], labels: list[str], says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        match(names, labels, "x")


@given(st.lists(st.text("abcxyz", min_size=1, max_size=5), min_size=1, max_size=12, unique=True), st.randoms())
def test_any_order_of_the_labels_gives_back_the_names(names: list[str], random: object) -> None:
    labels = sorted(names, key=lambda _: random.random())  # type: ignore[attr-defined]  # hypothesis' own Random
    assert [labels[place] for place in match(sorted(names), labels, "x")] == sorted(names)


def test_images_get_the_labels_of_the_network(tmp_path: Path) -> None:
    root = folders(tmp_path, "ant", "bee")
    assert load_images(root).y.tolist() == [0, 1]  # without a network, in sorted order
    assert load_images(root, labels=["crab", "bee", "ant"]).y.tolist() == [2, 1]
    assert [part.y.tolist() for part in iter_images(root, batch_size=1, labels=["crab", "bee", "ant"])] == [[2], [1]]
    assert load_images(root, limit=1, labels=["0", "1"]).y.tolist() == [0]
    with pytest.raises(WhorlError, match="name no class"):
        load_images(root, labels=["crab", "duck", "eel"])


@pytest.mark.parametrize("names", [("3", "5"), ("n01440764", "n01443537")])
def test_numbers_and_synsets_stay_indices(tmp_path: Path, names: tuple[str, ...]) -> None:
    listed = list_images(folders(tmp_path, *names))
    assert list(labelled(listed, ["ant", "bee"], tmp_path)) == listed
    assert [entry.label for entry in listed] == ([3, 5] if names[0] == "3" else [0, 1])


def test_an_empty_class_folder_counts(tmp_path: Path) -> None:
    root = folders(tmp_path, "ant", "crab")
    (root / "bee").mkdir()
    assert load_images(root, labels=["0", "1", "2"]).y.tolist() == [0, 2]
