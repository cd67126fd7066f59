"""Training images: decoding, checks, order, and crops."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from hardening_cases import CLASSES, toy, toy_images
from whorl.data import save_image
from whorl.errors import WhorlError
from whorl.hardening import TrainingImages, harden, load_training_images
from whorl.hardening.images import Order, random_crops


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two images in each of seven class folders."""
    generator = torch.Generator().manual_seed(0)
    for label in range(CLASSES):
        for number in range(2):
            save_image(tmp_path / "data" / f"{label:03}" / f"{number}.png", torch.rand(3, 24, 20, generator=generator))
    return tmp_path / "data"


def test_images_are_decoded_once_at_one_size(folder: Path) -> None:
    images = load_training_images(folder, side=12)
    assert images.pixels.shape == (14, 3, 12, 12)
    assert images.pixels.dtype == torch.uint8
    assert images.labels.tolist() == [label for label in range(CLASSES) for _ in range(2)]
    assert images.ids[:3] == ("000/0", "000/1", "001/0")
    images.check_classes(CLASSES)
    few = load_training_images(folder, side=12, limit=7)
    assert few.labels.tolist() == list(range(CLASSES))
    assert few.sha256 != images.sha256
    assert load_training_images(folder, side=12).sha256 == images.sha256


def test_a_missing_class_folder_is_noticed(folder: Path) -> None:
    for path in (folder / "003").iterdir():
        path.unlink()
    (folder / "003").rmdir()
    with pytest.raises(WhorlError, match=r"expected images of all 7 classes, got none of class 3.*--partial"):
        harden(toy(), folder, "pgd-at", steps=1, batch=4, held_out=0, device="cpu")
    done = harden(toy(), folder, "pgd-at", steps=1, batch=4, held_out=0, device="cpu", partial=True)
    assert done.training.steps == 1


def test_more_classes_than_the_network_knows(folder: Path) -> None:
    save_image(folder / "007" / "0.png", torch.zeros(3, 8, 8))
    with pytest.raises(WhorlError, match=r"labels must lie in \[0, 6\], the network's classes; got 7"):
        harden(toy(), folder, "pgd-at", steps=1, batch=4, device="cpu")


def test_fewer_images_than_a_batch(folder: Path) -> None:
    with pytest.raises(WhorlError, match="at least a batch of 13 images to train on, got 12"):
        harden(toy(), folder, "pgd-at", steps=1, batch=13, held_out=2, device="cpu")


def test_bad_images(folder: Path, tmp_path: Path) -> None:
    (folder / "002" / "broken.png").write_bytes(b"no image")
    with pytest.raises(WhorlError, match=r"broken\.png"):
        load_training_images(folder, side=8)
    with pytest.raises(WhorlError, match="no such folder"):
        load_training_images(tmp_path / "nowhere", side=8)
    with pytest.raises(WhorlError, match="side must be"):
        load_training_images(folder, side=0)
    with pytest.raises(WhorlError, match="limit must be"):
        load_training_images(folder, side=8, limit=0)


def test_images_in_memory_are_checked() -> None:
    pixels, labels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
    with pytest.raises(WhorlError, match="uint8"):
        TrainingImages.of(pixels.float(), labels, ["a", "b"])
    with pytest.raises(WhorlError, match="a label and a name for each of 2"):
        TrainingImages.of(pixels, labels, ["a"])
    with pytest.raises(WhorlError, match="one name twice"):
        TrainingImages.of(pixels, labels, ["a", "a"])


def images_of(order: Order, step: int) -> list[int]:
    epoch, part = order.at(step)
    return order.of(epoch)[part].tolist()


def test_held_out_images_are_never_trained_on() -> None:
    images = toy_images()
    training, held = images.split(10, seed=0)
    assert sorted([*training.tolist(), *held.tolist()]) == list(range(70))
    assert len(held) == 10
    assert images.split(10, seed=1)[1].tolist() != held.tolist()
    order = Order(training, images.keys(0)[training], 12)
    seen = {i for step in range(20) for i in images_of(order, step)}
    assert seen == set(training.tolist())


def test_every_epoch_has_another_order() -> None:
    order = Order(torch.arange(50), toy_images(50).keys(0), 10)
    epochs = [[i for step in range(5 * e, 5 * e + 5) for i in images_of(order, step)] for e in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(50))] * 2
    assert epochs[0] != epochs[1]
    assert [order.at(step)[0] for step in (0, 4, 5)] == [0, 0, 1]


def test_a_crop_of_everything_is_a_resize_or_its_mirror_image() -> None:
    x = torch.rand(16, 3, 10, 10, generator=torch.Generator().manual_seed(0))
    crops = random_crops(x, torch.arange(16), (15, 15), area=(1.0, 1.0), ratio=(1.0, 1.0))
    plain = F.interpolate(x, (15, 15), mode="bilinear", align_corners=False)
    mirrored = 0
    for crop, image in zip(crops, plain, strict=True):
        as_is, flipped = (crop - image).abs().max(), (crop - image.flip(-1)).abs().max()
        assert min(as_is, flipped) < 1e-5
        mirrored += bool(flipped < as_is)
    assert 2 <= mirrored <= 14


def test_crops_lie_inside_and_keep_their_area() -> None:
    across = torch.linspace(0, 1, 40).expand(200, 1, 40, 40)
    x = torch.cat((across, across.mT), dim=1)  # two channels that tell where a pixel comes from
    crops = random_crops(x, torch.arange(200), (20, 20), area=(0.35, 0.6), ratio=(0.75, 4 / 3))
    extent = (crops.flatten(2).amax(2) - crops.flatten(2).amin(2)) * (40 / 39) * (20 / 19) * 39 / 40
    area = extent.prod(1)
    assert 0.3 < area.min() < 0.4 < 0.55 < area.max() < 0.65
    ratio = extent[:, 0] / extent[:, 1]
    assert 0.7 < ratio.min() < 0.85 < 1.2 < ratio.max() < 1.4
    again = random_crops(x[7:8], torch.tensor([7]), (20, 20), area=(0.35, 0.6), ratio=(0.75, 4 / 3))
    torch.testing.assert_close(again, crops[7:8])
