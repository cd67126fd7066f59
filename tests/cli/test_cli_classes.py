"""Ten classes of one's own: folders by name, a network as state dict and as ONNX, and sources of other classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cli.invoking import invoke
from conftest import random_images
from whorl import WhorlError
from whorl.data import save_image
from whorl.hardening import harden
from whorl.models import Classifier
from whorl.models.architectures import build

ARCH, SIDE = "timm:mobilenetv3_small_050", 32
NAMES = ("bolt", "bracket", "flange", "gasket", "rivet", "shim", "Spring", "sprocket", "valve", "wing nut")
EACH = 2
INPUT = f"size={SIDE}&mean=0.5,0.5,0.5&std=0.5,0.5,0.5"


@dataclass(frozen=True)
class Shop:
    """A network that recognises every image of its shop, and whose classes are in the opposite order of the folders."""

    folder: Path

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def address(self, *settings: str, kind: str = "file") -> str:
        file = {"file": "net.pth", "onnx": "net.onnx"}[kind]
        more = [f"arch={ARCH}", "num_classes=10"] if kind == "file" else []
        return f"{kind}:{self.folder / file}?" + "&".join((*more, INPUT, *settings))

    @property
    def labels(self) -> str:
        return f"labels={self.folder / 'classes.txt'}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    x = random_images(len(NAMES) * EACH, height=SIDE, width=SIDE)
    classes = list(reversed(NAMES))
    y = torch.tensor([classes.index(name) for name in NAMES for _ in range(EACH)])
    for i, image in enumerate(x):
        # As people write them: spaces and capitals need not be those of the labels.
        save_image(folder / "data" / NAMES[i // EACH].replace(" ", "_").lower() / f"{i}.png", image)
    (folder / "classes.txt").write_text("\n".join(classes) + "\n", encoding="utf-8")
    net = fitted((x - 0.5) / 0.5, y)
    torch.save(net.state_dict(), folder / "net.pth")
    torch.onnx.export(
        net, (x[:1],), folder / "net.onnx", dynamo=False, dynamic_axes={"input": {0: "n"}}, input_names=["input"]
    )
    return Shop(folder)


def fitted(x: Tensor, y: Tensor) -> Any:
    """A network whose last layer tells some images apart: least squares on what the others make of them."""
    torch.manual_seed(0)
    net: Any = build(ARCH, num_classes=len(NAMES))[0].eval()
    with torch.no_grad():
        seen = net.forward_head(net.forward_features(x), pre_logits=True).double()
        middle, spread = seen.mean(0), seen.std()
        wanted = torch.eye(len(NAMES), dtype=torch.float64)[y]
        weight = torch.linalg.lstsq((seen - middle) / spread, wanted, driver="gelsd").solution.T / spread
        net.classifier.weight.copy_(100 * weight)
        net.classifier.bias.copy_(-100 * weight @ middle)
    return net


def attack(shop: Shop, out: Path, model: str, *more: str, name: str = "fgsm") -> Any:
    return invoke("attack", name, "--model", model, "--data", shop.data, "--out", str(out), "--device", "cpu", *more)


def test_folders_are_matched_with_the_labels_of_the_network(shop: Shop, tmp_path: Path) -> None:
    done = attack(shop, tmp_path / "run", shop.address("name=shop", shop.labels))
    assert done.exit_code == 0, done.stderr
    assert "shop" in done.stdout
    assert "file:" not in done.stdout
    entry = json.loads((tmp_path / "run" / "manifest.json").read_text())["crafted"]["fgsm/shop"]
    assert entry["images"]["bolt/0"]["label"] == len(NAMES) - 1
    scored = [
        invoke(
            "evaluate",
            shop.data,
            str(tmp_path / "run" / "adv" / "fgsm" / "shop"),
            "--model",
            model,
            "--angles",
            "0",
            "--json",
        )
        for model in (shop.address("name=shop", shop.labels), shop.address("name=shop", shop.labels, kind="onnx"))
    ]
    for result in scored:
        assert result.exit_code == 0, result.stderr
        [cell] = json.loads(result.stdout)["cells"]
        assert (cell["target"], cell["n"], cell["n_clean_correct"]) == ("shop", 20, 20)


def test_a_source_of_a_thousand_classes_is_refused(shop: Shop, tmp_path: Path) -> None:
    done = attack(shop, tmp_path / "run", "resnet18")
    assert done.exit_code == 2
    for said in (
        "10 of 10 class folders name no class",
        "'bolt'",
        "It has 1000: 'tench'",
        "Take a network",
        "labels=FILE",
    ):
        assert said in " ".join(done.stderr.split()), said
    assert not (tmp_path / "run" / "adv").exists()


@pytest.mark.parametrize("kind", ["file", "onnx"])
def test_a_run_on_a_source_with_other_classes_is_refused(shop: Shop, tmp_path: Path, kind: str) -> None:
    target = shop.address("name=shop", shop.labels, kind=kind)
    file = tmp_path / "run.toml"
    file.write_text(
        f'name = "mixed"\nsources = ["resnet18"]\nattacks = ["fgsm"]\ntargets = ["{target}"]\n'
        f"[data]\nfolder = {json.dumps(shop.data)}\n"
    )
    done = invoke("run", str(file), "--out", str(tmp_path / "run"), "--device", "cpu")
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    for part in ("resnet18 has 1000 ('tench'", "has 10 ('wing nut'", "by queries"):
        assert part in said


@pytest.mark.parametrize("kind", ["file", "onnx"])
def test_classes_in_another_order_are_not_passed_over(shop: Shop, tmp_path: Path, kind: str) -> None:
    """Without labels folders are counted in sorted order, which is not the network's: it recognises nothing."""
    model = shop.address("name=shop", kind=kind)
    queries = ("--budget", "6", "--samples", "2")
    by_query = kind == "onnx"  # which has no gradients
    done = attack(shop, tmp_path / "run", model, *(queries * by_query), name="nes" if by_query else "fgsm")
    assert done.exit_code == 2
    assert "shop recognises none of the clean images" in " ".join(done.stderr.split())
    scored = invoke("evaluate", shop.data, shop.data, "--model", model, "--angles", "0", "--fail-above", "60")
    assert scored.exit_code == 2
    assert "shop recognises none of the clean images" in " ".join(scored.stderr.split())


def test_an_onnx_network_is_queried_by_the_names_of_its_classes(shop: Shop, tmp_path: Path) -> None:
    model = shop.address("name=shop", shop.labels, kind="onnx")
    done = attack(shop, tmp_path / "run", model, "--budget", "6", "--samples", "2", "--limit", "4", name="nes")
    assert done.exit_code == 0, done.stderr
    entry = json.loads((tmp_path / "run" / "manifest.json").read_text())["crafted"]["nes/shop"]
    assert entry["images"]["bolt/0"]["queries"] > 1


def test_training_images_are_matched_too(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "odd" / "gizmo").mkdir(parents=True)
    save_image(tmp_path / "odd" / "gizmo" / "0.png", random_images(1)[0])
    named = Classifier.from_module(
        build(ARCH, 2)[0], size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, labels=["nut", "bolt"]
    )
    with pytest.raises(WhorlError, match="1 of 1 class folders name no class of the network: 'gizmo'"):
        harden(named, tmp_path / "odd", "ens-at", device="cpu")
