"""Whatever would make a verdict untrustworthy is an error, exit code 2, and says what is wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cli.invoking import invoke
from conftest import random_images
from gate.shop import CLASSES, NAMES, SIDE, Shop, images, make_shop, trained
from whorl import WhorlError
from whorl.data import save_image
from whorl.data.images import Images
from whorl.data.layouts import ListedImage
from whorl.evaluation import wilson
from whorl.gate.checks import check_network, sample
from whorl.gate.settings import GateSettings, least_images
from whorl.models import Classifier
from whorl.runs.images import HashedImage


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return make_shop(tmp_path_factory.mktemp("shop"))


def refused(shop: Shop, tmp_path: Path, model: str, *more: str, data: str | None = None) -> str:
    """What the gate says of something that it cannot judge; nothing is written."""
    out = tmp_path / "out"
    words = [
        "gate",
        model,
        "--data",
        data or shop.data,
        "--out",
        str(out),
        "--device",
        "cpu",
        "--attack",
        "fgsm",
        *more,
    ]
    done = invoke(*words)
    assert done.exit_code == 2, done.stdout + done.stderr
    assert "passed" not in done.stdout
    assert not out.exists()
    said = " ".join(done.stderr.split())
    assert "defect" not in said
    return said


def test_another_order_of_the_classes(shop: Shop, tmp_path: Path) -> None:
    said = refused(shop, tmp_path, shop.address())
    assert "net.pth recognises 0% of 30 images" in said
    assert "100% of 30 images if its classes are in another order" in said
    assert "--labels FILE" in said
    some = tmp_path / "some.txt"  # two of the ten exchanged: most is recognised all the same
    some.write_text("\n".join([CLASSES[1], CLASSES[0], *CLASSES[2:]]), encoding="utf-8")
    said = refused(shop, tmp_path, shop.address(), "--labels", str(some))
    assert "recognises 80% of 30 images" in said
    assert f"{CLASSES[1]!r} for {CLASSES[0]!r}" in said
    assert "Check the order of labels=" in said


@pytest.mark.parametrize(("mean", "std"), [("0,0,0", "1,1,1"), ("0.5,0.5,0.5", "0.5,0.5,0.5")])
def test_the_wrong_mean_and_std(shop: Shop, tmp_path: Path, mean: str, std: str) -> None:
    said = refused(shop, tmp_path, shop.address(mean=mean, std=std), "--labels", shop.labels)
    assert "(ImageNet's): it seems to be given the wrong ones" in said
    assert "Append mean=0.485,0.456,0.406&std=0.229,0.224,0.225" in said


def test_an_onnx_file_with_the_wrong_mean_and_std(shop: Shop, tmp_path: Path) -> None:
    said = refused(shop, tmp_path, shop.address("net.onnx", mean="", std=""), "--labels", shop.labels)
    assert "Append mean=0.485,0.456,0.406&std=0.229,0.224,0.225" in said


def test_a_network_at_chance(shop: Shop, tmp_path: Path) -> None:
    net = trained(1)
    with torch.no_grad():
        net.fc.weight.zero_()
    torch.save(net.state_dict(), shop.folder / "constant.pth")
    said = refused(shop, tmp_path, shop.address("constant.pth"), "--labels", shop.labels)
    assert "no more than random answers with the same class frequencies" in said
    assert "to 100% of them" in said


def test_a_network_that_answers_nan(shop: Shop, tmp_path: Path) -> None:
    net = trained(1)
    with torch.no_grad():
        net.fc.bias[3] = torch.nan
    torch.save(net.state_dict(), shop.folder / "nan.pth")
    said = refused(shop, tmp_path, shop.address("nan.pth"), "--labels", shop.labels)
    assert "fc.bias holds NaN or infinity" in said
    with torch.no_grad():
        net.fc.bias[3] = 0.0
        net.bn1.running_var.fill_(-1.0)  # whose root is none
    torch.save(net.state_dict(), shop.folder / "root.pth")
    said = refused(shop, tmp_path, shop.address("root.pth"), "--labels", shop.labels)
    assert "'root.pth' must return finite logits; got NaN" in said


def test_an_empty_class(shop: Shop, tmp_path: Path) -> None:
    data = shutil.copytree(shop.data, tmp_path / "data")
    for path in (data / "flange").iterdir():
        path.rename(path.with_suffix(".txt"))  # a folder of anything else is empty too
    said = refused(shop, tmp_path, shop.address(), "--labels", shop.labels, data=str(data))
    assert "1 of 10 class folders hold no image: 'flange'" in said


def test_five_images(shop: Shop, tmp_path: Path) -> None:
    said = refused(shop, tmp_path, shop.address(), "--labels", shop.labels, "--limit", "5", "--fail-above", "60")
    assert "has 5 images, and it takes 10 to decide these rules" in said
    assert "more than 50 points wide" in said


def test_too_few_images_for_a_limit(shop: Shop, tmp_path: Path) -> None:
    said = refused(shop, tmp_path, shop.address(), "--labels", shop.labels, "--fail-above", "5")
    assert "has 30 images, and it takes 73 to decide these rules" in said
    assert "if not one of 30 were fooled, the 95% interval would still reach to 11%" in said


def test_too_few_are_recognised(shop: Shop, tmp_path: Path) -> None:
    data = shutil.copytree(shop.data, tmp_path / "data")
    for path in sorted(data.rglob("*.png"))[:24]:  # of no class, and taken for one or another
        save_image(path, torch.full((3, SIDE, SIDE), 0.5))
    said = refused(shop, tmp_path, shop.address(), "--labels", shop.labels, data=str(data))
    assert re.search(r"net.pth recognises \d images, and it takes 10 to decide", said)


def test_folders_that_are_none_of_its_classes(shop: Shop, tmp_path: Path) -> None:
    said = refused(shop, tmp_path, "resnet18")
    assert "class folders name no class of the network" in said
    data = shutil.copytree(shop.data, tmp_path / "data")
    (data / "bolt").rename(data / "bolts")
    said = refused(shop, tmp_path, shop.address(), "--labels", shop.labels, data=str(data))
    assert "Did you mean 'bolt' by 'bolts'?" in said


def test_an_onnx_file_without_surrogates(shop: Shop, tmp_path: Path) -> None:
    said = refused(shop, tmp_path, shop.address("net.onnx"), "--labels", shop.labels, "--fail-above", "60")
    assert "net.onnx has no gradients" in said
    assert "no white-box attack is possible" in said
    assert "--surrogates A,B" in said


def test_surrogates_are_checked_too(shop: Shop, tmp_path: Path) -> None:
    labels = ("--labels", shop.labels)
    said = refused(
        shop, tmp_path, shop.address("net.onnx"), *labels, "--surrogates", shop.address("sibling.pth", std="1,1,1")
    )
    assert "sibling.pth recognises" in said
    assert "wrong ones" in said
    said = refused(shop, tmp_path, shop.address(), *labels, "--surrogates", shop.address("net.onnx"))
    assert "it is no surrogate" in said
    said = refused(shop, tmp_path, shop.address("net.onnx"), *labels, "--surrogates", "resnet18")
    assert "networks that share images must have the same classes" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--fail-above", "0"], "cannot be shown to hold by any number of images"),
        (["--min-accuracy", "100"], "cannot be shown to hold by any number of images"),
        (["--worst-case", "101"], r"--worst-case must lie in [0, 100], a percentage; got 101"),
        (["--attack", "nes"], "a gate crafts by gradients"),
        (["--attack", "ai-bset"], "Did you mean 'ai-best'"),
        (["--baseline", "nowhere"], "there is no nowhere"),
        (["--fail-drop", "2"], "--fail-drop 2 is held against an earlier gate, and none was given"),
        (["--eps", "2"], "eps"),
        (["--limit", "0"], "limit"),
        (["--seed", "x"], "--seed"),
    ],
)
def test_settings(shop: Shop, tmp_path: Path, words: list[str], reason: str) -> None:
    assert reason in refused(shop, tmp_path, shop.address(), "--labels", shop.labels, *words)


def test_labels_of_a_network_that_has_them(shop: Shop, tmp_path: Path) -> None:
    given = shop.address(labels=shop.labels)
    assert "leave out --labels" in refused(shop, tmp_path, given, "--labels", shop.labels)
    assert "leave out --labels" in refused(shop, tmp_path, "resnet18", "--labels", shop.labels)


class Rounded(nn.Module):
    """A network that rounds its input, so that no gradient gets through."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net((255 * x).round() / 255)
        return logits


def batch() -> Images:
    x, names = images()
    return Images(x, torch.tensor([CLASSES.index(name) for name in names]), [str(i) for i in range(len(x))])


def classifier(net: Any) -> Classifier:
    return Classifier(net, size=SIDE, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), num_classes=10)


def test_gradients() -> None:
    assert check_network(classifier(trained(1)), "net", batch()).gradients == "ce"
    # So sure that a float32 cannot tell: the cross entropy is 0, and so is its gradient.
    assert check_network(classifier(trained(1, sure=2000.0)), "net", batch()).gradients == "margin"
    with pytest.raises(WhorlError, match="the gradient of net is zero on 16 of 16 images"):
        check_network(classifier(Rounded(trained(1))), "net", batch())


def test_a_network_that_does_not_care_for_statistics_is_left_alone() -> None:
    """Far better means far, and significantly: of two alike none is called wrong."""
    net = nn.Sequential(nn.InstanceNorm2d(3), nn.Flatten(), nn.Linear(3 * 18 * 18, 10)).eval()
    x = random_images(40)
    clf = Classifier(net, size=18, mean=(0.0,) * 3, std=(1.0,) * 3, num_classes=10)
    y = clf(x).argmax(1)
    assert check_network(clf, "net", Images(x, y, [str(i) for i in range(40)])).recognised == 40


def test_what_networks_are_checked_on_is_of_classes_all_over() -> None:
    def listed(classes: int, each: int) -> list[HashedImage]:
        entries = [
            ListedImage(path=Path(f"{c}/{i}"), label=c, id=f"{c}/{i}") for c in range(classes) for i in range(each)
        ]
        return [HashedImage(entry=entry, sha256="") for entry in entries]

    few, many, single = sample(listed(10, 50)), sample(listed(1000, 5)), sample(listed(500, 1))
    assert [len(few), len(many), len(single)] == [120, 128, 128]
    assert {image.entry.label for image in few} == set(range(10))
    assert {image.entry.label for image in many} >= {0, 999}
    assert len({image.entry.label for image in many}) == 32
    assert len({image.entry.id for image in single}) == 128
    assert sample(listed(2, 3)) == listed(2, 3)


@pytest.mark.parametrize("limit", [0.5, 0.2, 0.1, 0.05, 0.031, 0.01])
def test_the_least_number_of_images_is_the_least(limit: float) -> None:
    n = least_images(limit)
    assert wilson(0, n)[1] <= limit
    assert n == 10 or wilson(0, n - 1)[1] > limit
    strictest = GateSettings(model="resnet18", min_accuracy=100 - 100 * limit, fail_above=60)
    assert abs(strictest.least_images - n) <= 1  # 100 - 100 · limit is rounded
    assert len(NAMES) == 10
