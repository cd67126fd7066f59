"""Classifiers of Hugging Face's transformers, small and at random, saved to a folder as its library saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from conftest import random_images
from whorl.errors import WhorlError
from whorl.models import Classifier, _torchvision, load_model
from whorl.models.architectures import imagenet_labels

_torchvision.torchvision()  # before transformers, which imports it too
transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")

LABELS = ("umbrella", "mug", "lamp")
SIDE = 32
X = (random_images(4, height=SIDE, width=SIDE) * 255).round() / 255


def vit(labels: tuple[str, ...] = LABELS) -> Any:
    names: dict[str, Any] = {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: i for i, name in enumerate(labels)},
    }
    return transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=SIDE,
        patch_size=8,
        **names,
    )


def processor(**changes: Any) -> Any:
    usual = {"size": {"height": SIDE, "width": SIDE}, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}
    return transformers.ViTImageProcessor(**(usual | {"resample": 3} | changes))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("hub") / "shop-vit"
    transformers.ViTForImageClassification(vit()).save_pretrained(folder)
    processor().save_pretrained(folder)
    return folder


def literal(folder: Path, x: torch.Tensor) -> torch.Tensor:
    """What transformers itself answers, from 8-bit images."""
    model = transformers.AutoModelForImageClassification.from_pretrained(folder)
    prepare = transformers.AutoImageProcessor.from_pretrained(folder)
    images = [(image * 255).round().to(torch.uint8) for image in x]
    with torch.no_grad():
        logits: torch.Tensor = model(
            **prepare(images=images, return_tensors="pt", input_data_format="channels_first")
        ).logits
    return logits


def test_a_folder(saved: Path) -> None:
    clf = load_model(f"hf:{saved}")
    assert (clf.name, clf.labels, clf.size, clf.resize) == ("shop-vit", LABELS, (SIDE, SIDE), "bicubic")
    assert clf.mean == (0.4, 0.5, 0.6)
    assert clf.std == (0.2, 0.25, 0.3)
    torch.testing.assert_close(clf(X), literal(saved, X), atol=1e-6, rtol=0)
    named = load_model(f"hf:{saved}?name=shop-v3&size=40")
    assert (named.name, named.size) == ("shop-v3", (40, 40))


# By processor: what each does to channels and values, beside resizing, is in code that only it has.
PROCESSORS: dict[str, dict[str, Any]] = {
    "BitImageProcessor": {"size": {"shortest_edge": 40}, "crop_size": {"height": SIDE, "width": SIDE}},
    "ConvNextImageProcessor": {"size": {"shortest_edge": SIDE}, "crop_pct": 0.875},
    "EfficientNetImageProcessor": {"size": {"height": SIDE, "width": SIDE}},  # normalises twice
    "MobileViTImageProcessor": {"size": {"shortest_edge": 36}, "crop_size": {"height": SIDE, "width": SIDE}},  # BGR
    "ViTImageProcessor": {"size": {"height": SIDE, "width": SIDE}, "do_normalize": False, "rescale_factor": 1 / 127.5},
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_every_processor_is_reproduced_on_images_of_its_size(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=4, layer_type="basic"
    )
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path)
    getattr(transformers, name)(**PROCESSORS[name]).save_pretrained(tmp_path)
    clf = load_model(f"hf:{tmp_path}")
    assert clf.size == (SIDE, SIDE)
    assert clf.labels == ("0", "1", "2", "3")  # LABEL_0 is no name
    flat = torch.tensor([0.2, 0.4, 0.8]).view(1, 3, 1, 1).expand(1, 3, SIDE, SIDE)  # what cropping leaves as it is
    torch.testing.assert_close(clf(flat), literal(tmp_path, flat), atol=1e-5, rtol=0)


def test_it_is_attacked_by_its_gradient(saved: Path) -> None:
    clf = load_model(f"hf:{saved}")
    y = clf(X).argmax(1)
    for name in ("ai-dim", "ai-best"):
        adv = whorl.attack(name, steps=3)(clf, X, y)
        assert (adv - X).abs().max() <= 16 / 255 + 1e-6
        assert (
            torch.log_softmax(clf(adv), 1).gather(1, y[:, None]) < torch.log_softmax(clf(X), 1).max(1)[0][:, None]
        ).all()


def test_imagenets_synonyms_are_the_names_that_other_networks_have(tmp_path: Path) -> None:
    usual = imagenet_labels()
    transformers.ViTForImageClassification(
        vit(tuple(f"{name}, some synonym {i}" for i, name in enumerate(usual)))
    ).save_pretrained(tmp_path)
    processor().save_pretrained(tmp_path)
    assert load_model(f"hf:{tmp_path}").labels == usual


def test_a_backbone_without_a_classifier_is_refused(tmp_path: Path) -> None:
    transformers.ViTModel(vit()).save_pretrained(tmp_path)
    processor().save_pretrained(tmp_path)
    with pytest.raises(WhorlError, match=r"no weights for 'classifier\.bias', 'classifier\.weight'"):
        load_model(f"hf:{tmp_path}")


def test_without_an_image_processor_the_input_must_be_told(tmp_path: Path) -> None:
    transformers.ViTForImageClassification(vit()).save_pretrained(tmp_path)
    with pytest.raises(WhorlError, match=r"does not say how images are prepared.*append \?size="):
        load_model(f"hf:{tmp_path}?size=32")
    clf = load_model(f"hf:{tmp_path}?size=32&mean=0.5,0.5,0.5&std=0.5,0.5,0.5")
    assert (clf.mean, clf.labels) == ((0.5, 0.5, 0.5), LABELS)


def test_neither_pickles_nor_code_of_a_model_are_run(saved: Path, tmp_path: Path) -> None:
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(transformers.ViTForImageClassification(vit()).state_dict(), pickled / "pytorch_model.bin")
    processor().save_pretrained(pickled)
    with pytest.raises(WhorlError, match="weights in safetensors"):
        load_model(f"hf:{pickled}")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    ran = tmp_path / "ran"
    (foreign / "theirs.py").write_text(f"open({str(ran)!r}, 'w')\nclass C: pass\nclass M: pass\n", encoding="utf-8")
    theirs = {
        "model_type": "theirs",
        "auto_map": {"AutoConfig": "theirs.C", "AutoModelForImageClassification": "theirs.M"},
    }
    (foreign / "config.json").write_text(json.dumps(config | theirs), encoding="utf-8")
    with pytest.raises(WhorlError, match="could not be loaded"):
        load_model(f"hf:{foreign}")
    assert not ran.exists()


def test_its_own_bars_and_reports_are_not_shown(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(load_model(f"hf:{saved}"), Classifier)
    shown = capfd.readouterr()
    assert shown.out + shown.err == ""
