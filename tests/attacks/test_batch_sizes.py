"""The same image with the same seed gives the same result on a CPU, to the last bit, whatever its batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import whorl
from whorl.attacks.norms import l2_size, mean_size, per_image
from whorl.evaluation import PAPER_POSES, predictions

SIDE = 112  # a sum over 3 × 112 × 112 numbers is long enough for torch to split it among threads
SIZES = (1, 2, 3, 5)
SETTINGS = {"fgsm": {}, "eot": {"samples": 2, "steps": 2}, "deepfool": {"steps": 2}}
QUERIES = {"budget": 12, "samples": 4}
SETTINGS |= dict.fromkeys(("nes", "nattack"), QUERIES)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def sensitive() -> whorl.Classifier:
    """Layers whose kernels depend on the batch: a pointwise convolution over few pixels, and a matrix product."""
    torch.manual_seed(0)
    wide = [nn.Conv2d(3, 24, 9, stride=8), nn.BatchNorm2d(24), nn.ReLU6(), nn.Conv2d(24, 320, 3, stride=2), nn.ReLU6()]
    net = nn.Sequential(
        *wide, nn.Conv2d(320, 640, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 1000)
    )
    return whorl.Classifier.from_module(net, size=SIDE, mean=(0.5,) * 3, std=(0.25,) * 3)


@pytest.fixture(scope="module")
def clf() -> whorl.Classifier:
    return sensitive()


@pytest.fixture(scope="module")
def images(clf: whorl.Classifier) -> tuple[Tensor, Tensor, list[str]]:
    x = torch.rand(5, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    return x, clf(x).argmax(1), list("abcde")


def parts(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]


@pytest.mark.parametrize("name", ["pgd", "ai-dim", "ai-best", "eot", "deepfool", "nes", "nattack"])
@pytest.mark.filterwarnings("ignore:.*no residual branch")
def test_an_attack_does_not_depend_on_the_batch(
    name: str, clf: whorl.Classifier, images: tuple[Tensor, Tensor, list[str]]
) -> None:
    x, y, ids = images
    attack = whorl.attack(name, **SETTINGS.get(name, {"steps": 3}))
    whole = attack(clf, x, y, seed=3, ids=ids)
    for size in SIZES[:-1]:
        cut = torch.cat([attack(clf, x[part], y[part], seed=3, ids=ids[part]) for part in parts(len(x), size)])
        assert torch.equal(cut, whole), f"batches of {size}: {255 * float((cut - whole).abs().max()):.3g} levels apart"


def test_an_answer_does_not_depend_on_the_batch(
    clf: whorl.Classifier, images: tuple[Tensor, Tensor, list[str]]
) -> None:
    x = images[0]
    whole = predictions({"net": clf}, x, PAPER_POSES)
    for size in SIZES:
        cut = [predictions({"net": clf}, x[part], PAPER_POSES) for part in parts(len(x), size)]
        assert torch.equal(torch.cat([one.probabilities for one in cut], dim=-1), whole.probabilities), size
        assert torch.equal(torch.cat([one.labels for one in cut], dim=-1), whole.labels), size


@pytest.mark.usefixtures("two_threads")
def test_sums_over_one_image_are_those_over_several() -> None:
    v = torch.randn(6, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for reduce in (l2_size, mean_size, lambda one: per_image(lambda w: w.sum(dim=(1, 2, 3)), one)):
        assert torch.equal(torch.cat([reduce(v[i : i + 1]) for i in range(6)]), reduce(v))


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_lite0"])
def test_real_networks_do_not_depend_on_the_batch(name: str) -> None:
    clf = whorl.load_model(name)
    x, y, ids = whorl.load_samples(16)
    for attack in (whorl.attack("ai-dim", steps=2), whorl.attack("mim", steps=3)):
        whole = attack(clf, x, y, ids=ids)
        for size in (1, 2, 3, 5, 8):
            cut = torch.cat([attack(clf, x[part], y[part], ids=ids[part]) for part in parts(len(x), size)])
            assert torch.equal(cut, whole), size
