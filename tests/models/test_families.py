"""Which family a network is of follows from what it does, and each has its row of the table."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import whorl
from conftest import random_images
from network_cases import MEAN, STD
from whorl.models.architectures import build
from whorl.models.backward import Backward
from whorl.models.branches import structure
from whorl.models.families import FAMILIES, ByFamily, family_of
from whorl.models.spreads import probe


@pytest.mark.parametrize(
    ("architecture", "size", "family"),
    [
        ("torchvision:resnet18", 64, "rectified residuals"),
        ("torchvision:regnet_y_400mf", 64, "rectified residuals"),
        ("torchvision:mobilenet_v2", 64, "linear residuals"),
        ("timm:tf_efficientnet_lite0", 64, "linear residuals"),
        ("torchvision:convnext_tiny", 64, "linear residuals"),
        ("whorl:inception_v3", 79, "concatenations"),
        ("torchvision:googlenet", 64, "concatenations"),
        ("timm:vit_tiny_patch16_224", 224, "attention"),
        ("torchvision:swin_t", 64, "attention"),
        ("torchvision:vgg11", 64, "plain"),
        ("torchvision:densenet121", 64, "plain"),
    ],
)
def test_known_networks(architecture: str, size: int, family: str) -> None:
    net, _ = build(architecture, num_classes=10)
    assert family_of(structure(net.eval(), random_images(1, height=size, width=size))) == family


def test_each_member_of_an_ensemble_has_its_own_row() -> None:
    torch.manual_seed(0)
    members = [
        whorl.Classifier.from_module(build(name, num_classes=10)[0], size=64, mean=MEAN, std=STD)
        for name in ("torchvision:resnet18", "torchvision:mobilenet_v2")
    ]
    x = random_images(1, height=48, width=48)
    together = ByFamily().sites(whorl.Ensemble(members), x)
    apart = [ByFamily().sites(member, x) for member in members]
    assert together.of("models.0") == apart[0]
    assert together.of("models.1") == apart[1]
    assert {factor for _, factor in apart[0].branches} == {FAMILIES["rectified residuals"].skip}
    assert {factor for _, factor in apart[1].branches} == {FAMILIES["linear residuals"].skip}


def test_the_rule_of_a_family_is_that_of_its_row() -> None:
    torch.manual_seed(0)
    net, x = build("torchvision:resnet18", num_classes=10)[0].eval(), random_images(2, height=64, width=64)
    row = FAMILIES["rectified residuals"]
    assert isinstance(row, Backward)
    assert ByFamily().sites(net, x) == row.sites(net, x)
    assert ByFamily() == ByFamily()
    assert repr(whorl.attack("ai-best").backward) == "ByFamily()"  # type: ignore[attr-defined]


def test_the_probe_is_the_same_for_everyone_and_smooth_as_photographs_are() -> None:
    images = probe(3, (64, 48))
    assert images.shape == (4, 3, 64, 48)
    assert torch.equal(images, probe.__wrapped__(3, (64, 48)))
    assert float(images.std()) == pytest.approx(0.28, abs=0.03)
    noise = nn.functional.avg_pool2d(images, 8).std() / images.std()
    assert float(noise) > 0.5  # white noise would have 1/8
    agree = torch.corrcoef(images.permute(1, 0, 2, 3).flatten(1))
    assert float(agree[0, 1]) > 0.5
