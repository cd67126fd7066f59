"""The offline networks with their real weights, against plain forwards built from the raw files."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conftest import random_images
from whorl.artifacts import cache_home, fetch
from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.models import Classifier, _torchvision, load_model, model_names, sources
from whorl.models.address import Address
from whorl.models.architectures import imagenet_labels
from whorl.models.networks import NETWORKS
from whorl.models.zoo import PAPER

# Inception-v3 has no plain forward to compare with: see test_inception.py.
OFFLINE = tuple(name for name in model_names("offline") if name != "inception_v3")
IMAGENET = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)


def raw_file(name: str) -> Path:
    [path] = fetch(NETWORKS[name].artifact).values()
    return path


def plain_resnet18(x: Tensor) -> Tensor:
    state = pickle.loads(raw_file("resnet18").read_bytes())  # noqa: S301 - its hash is pinned, and was just checked
    return plain(_torchvision.torchvision().models.resnet18(), state, (x - IMAGENET[0]) / IMAGENET[1])


def plain_mobilenet_v2(x: Tensor) -> Tensor:
    state = torch.load(raw_file("mobilenet_v2"), weights_only=True)
    return plain(_torchvision.torchvision().models.mobilenet_v2(), state, (x - IMAGENET[0]) / IMAGENET[1])


def plain_lite(name: str, x: Tensor) -> Tensor:
    """The published names and timm's list the same tensors in the same order."""
    state = torch.load(raw_file(name), weights_only=True)
    net = _torchvision.timm().create_model(f"tf_{name}")
    by_position = dict(zip(net.state_dict(), state.values(), strict=True))
    return plain(net, by_position, (x * 255 - 127) / 128)


def plain(net: nn.Module, state: dict[str, Tensor], x: Tensor) -> Tensor:
    net.load_state_dict(state)
    with torch.no_grad():
        logits: Tensor = net.eval()(x)
    return logits


@pytest.mark.parametrize("name", OFFLINE)
def test_logits_agree_with_a_plain_forward(name: str) -> None:
    clf = load_model(name)
    x = random_images(2, height=clf.size[0], width=clf.size[1])
    forwards = {"resnet18": plain_resnet18, "mobilenet_v2": plain_mobilenet_v2}
    expected = forwards[name](x) if name in forwards else plain_lite(name, x)
    assert (clf(x) - expected).abs().max() <= 1e-4
    assert clf.name == name
    assert clf.labels == imagenet_labels()
    assert re.fullmatch("[0-9a-f]{64}", clf.weights_sha256 or "")


def test_the_hash_is_that_of_the_file_in_the_cache() -> None:
    [source] = NETWORKS["mobilenet_v2"].artifact.files.values()
    clf = load_model("mobilenet_v2")
    [path] = (cache_home() / "weights").glob(f"mobilenet_v2-{source[:16]}-*/mobilenet_v2.safetensors")
    assert clf.weights_sha256 == sha256_of(path)


def test_names_are_forgiving_and_dtype_is_honoured() -> None:
    clf = load_model("MobileNet-V2", dtype=torch.float64)
    assert clf(random_images(1)).dtype == torch.float64
    with pytest.raises(WhorlError, match="floating dtype"):
        load_model("mobilenet_v2", dtype=torch.int8)


def test_class_names() -> None:
    labels = imagenet_labels()
    assert len(labels) == 1000
    assert (labels[0], labels[1], labels[999]) == ("tench", "goldfish", "toilet tissue")


def test_names_by_kind() -> None:
    assert model_names() == (*model_names("offline"), *model_names("defended"), *model_names("paper"))
    assert {"inc_v3", "inc_v4", "incres_v2", "ens_at", "adv_inc_v3"} <= set(model_names("paper"))
    with pytest.raises(WhorlError, match="'offline', 'paper' or None"):
        model_names("online")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", model_names("paper"))
def test_the_papers_networks_have_weights_in_timm(name: str) -> None:
    assert _torchvision.timm().is_model_pretrained(PAPER[name].removeprefix("timm:"))


def test_where_timm_fails_the_error_names_the_other_inception(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: Address) -> Classifier:
        raise WhorlError(f"the weights of {address.text} could not be loaded.")

    monkeypatch.setitem(sources.SOURCES, "timm", replace(sources.SOURCES["timm"], load=fail))
    with pytest.raises(WhorlError, match=r"timm:inception_v3\.tf_in1k could not be loaded\.\n.*load 'inception_v3'"):
        load_model("inc_v3")
    with pytest.raises(WhorlError, match=r"could not be loaded\.$"):
        load_model("inc_v4")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet81", "Did you mean 'resnet18'.*`whorl models` lists all"),
        ("Res-v2-152", "TensorFlow-Slim.*'res_152'"),
        ("ens4-adv-inception-v3", "Ens-AT of the paper's evaluation platform.*ylhz/tf_to_pytorch_model.*'ens_at'"),
        ("ALP", "logit pairing.*'ens_at'"),
    ],
)
def test_what_cannot_be_had_is_explained(name: str, says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        load_model(name)
