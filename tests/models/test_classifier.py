from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conftest import CLASSES, random_images, small_net
from whorl.errors import WhorlError
from whorl.models import Classifier

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def classifier(net: nn.Module | None = None, size: int | tuple[int, int] = (18, 18)) -> Classifier:
    return Classifier.from_module(net or small_net(), size=size, mean=MEAN, std=STD, name="small")


def normalised(x: Tensor) -> Tensor:
    """The definition, channel by channel."""
    return torch.stack([(x[:, c] - MEAN[c]) / STD[c] for c in range(3)], dim=1)


def test_the_network_sees_images_that_fit_exactly(x: Tensor) -> None:
    torch.testing.assert_close(classifier()(x), small_net()(normalised(x)))


def test_other_sizes_are_resized_with_antialiasing() -> None:
    x = random_images(2, height=40, width=31)
    resized = F.interpolate(x, (18, 18), mode="bilinear", antialias=True)
    torch.testing.assert_close(classifier()(x), small_net()(normalised(resized)))


def test_size_is_height_then_width() -> None:
    seen: list[torch.Size] = []
    net = small_net()
    net.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape))
    Classifier(net, size=(12, 20), mean=MEAN, std=STD, num_classes=CLASSES)(random_images(1))
    assert seen == [(1, 3, 12, 20)]


@pytest.mark.parametrize("side", [18, 25])
def test_gradients_reach_the_image(side: int) -> None:
    x = random_images(1, height=side, width=side)[..., :side].double().requires_grad_()
    assert torch.autograd.gradcheck(classifier(small_net().double()), (x,), fast_mode=True)


def test_is_frozen_for_good() -> None:
    net = nn.Sequential(small_net(), nn.Dropout(0.5))
    clf = classifier(net).train()
    assert not any(module.training for module in clf.modules())
    assert not any(parameter.requires_grad for parameter in clf.parameters())
    x = random_images(2)
    assert torch.equal(clf(x), clf(x))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)],
)
def test_casts_images_to_the_network_and_logits_back(dtype: torch.dtype, expected: torch.dtype, x: Tensor) -> None:
    reference = classifier()(x)
    for clf in (classifier().to(dtype), classifier(small_net().to(dtype))):
        logits = clf(x)
        assert logits.dtype == expected
        torch.testing.assert_close(logits.float(), reference, atol=0.1, rtol=0)
    assert classifier()(x.to(dtype)).dtype == torch.float32


def test_half_precision_keeps_the_mean_in_full(x: Tensor) -> None:
    assert torch.equal(classifier().half()._mean, classifier()._mean)
    assert torch.equal(classifier().double()._mean.flatten(), torch.tensor(MEAN, dtype=torch.float64))


def test_statistics_are_settings_not_weights() -> None:
    assert set(classifier().state_dict()) == {f"net.{key}" for key in small_net().state_dict()}


def test_counts_classes_and_names_them() -> None:
    clf = classifier()
    assert clf.num_classes == CLASSES
    assert clf.labels == tuple("0123456")
    named = Classifier.from_module(small_net(), size=18, mean=MEAN, std=STD, labels=["a"] * CLASSES)
    assert named.labels == ("a",) * CLASSES
    assert named.name == "Sequential"


def test_repr_says_what_it_is() -> None:
    text = repr(classifier(size=(18, 20)))
    assert "'small', size=18x20, classes=7, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), resize=bilinear" in text


def test_can_be_copied(x: Tensor) -> None:
    clf = classifier()
    assert torch.equal(copy.deepcopy(clf)(x), clf(x))


def test_one_channel() -> None:
    clf = Classifier.from_module(small_net(1), size=18, mean=(0.5,), std=(0.5,))
    assert clf(random_images(2, 1)).shape == (2, CLASSES)


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (torch.rand(3, 18, 18), r"\(B, 3, H, W\); got \(3, 18, 18\).*batch"),
        (torch.rand(1, 1, 18, 18), r"\(B, 3, H, W\); got \(1, 1, 18, 18\)"),
        (torch.zeros(1, 3, 18, 18, dtype=torch.uint8), "Divide by 255"),
    ],
)
def test_refuses_what_is_not_a_batch_of_images(x: Tensor, says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        classifier()(x)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"size": 0}, "size must be"),
        ({"size": (1, 2, 3)}, "size must be"),
        ({"mean": (0.5,)}, "one number per channel"),
        ({"std": (0.1, 0.0, 0.1)}, "std must be several, each a number above 0"),
        ({"std": (0.1, float("nan"), 0.1)}, "std must be several, each a number above 0"),
        ({"labels": ["a"]}, "expected 7, got 1"),
        ({"num_classes": 0}, "num_classes must be a whole number"),
        ({"resize": "nearest"}, "bilinear, bicubic"),
    ],
)
def test_refuses_settings_that_make_no_sense(settings: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"size": 18, "mean": MEAN, "std": STD, "num_classes": CLASSES} | settings
    with pytest.raises(WhorlError, match=says):
        Classifier(small_net(), **given)


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def test_refuses_a_network_that_returns_something_else(x: Tensor) -> None:
    with pytest.raises(WhorlError, match="got tuple"):
        classifier(Pair())
    with pytest.raises(WhorlError, match=r"shape \(1, 9\); got \(1, 7\)"):
        Classifier(small_net(), size=18, mean=MEAN, std=STD, num_classes=9)(x)


def test_a_traced_classifier_takes_any_batch() -> None:
    clf = Classifier(small_net(), size=18, mean=(0.5,) * 3, std=(0.25,) * 3, num_classes=CLASSES)
    x = random_images(3)
    traced = torch.jit.trace(clf, x[:1], check_trace=False)
    torch.testing.assert_close(traced(x), clf(x))
