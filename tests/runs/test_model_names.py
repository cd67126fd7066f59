"""Networks of a declaration: addresses and tables become names, and everything shows the names."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import whorl
from cli.invoking import invoke
from conftest import random_images
from whorl import WhorlError, runs
from whorl.data import save_image
from whorl.models.architectures import build
from whorl.runs.model_names import ModelSpec

ARCH, SIDE = "timm:mobilenetv3_small_050", 32
SETTINGS = f"arch={ARCH}&num_classes=3&size={SIDE}&mean=0.5,0.5,0.5&std=0.5,0.5,0.5"
LABELS = ("umbrella", "mug", "lamp")
GOOD: dict[str, Any] = {"name": "mine", "attacks": ["dim"]}


def test_tables_and_addresses_become_names() -> None:
    shop = {"address": "file:a/b.pt?arch=resnet18", "name": "shop-v3", "labels": "classes.txt"}
    attacks = [
        "dim",
        {"name": "mim", "sources": [{"address": "onnx:x.onnx"}]},
        runs.AttackSpec(name="pgd", sources=("onnx:y.onnx",)),
    ]
    declared = runs.declare(
        name="mine",
        sources=[shop, "shop-v3+resnet18"],
        attacks=attacks,
        targets=["shop-v3", "shop-v3+jpeg", "file:c/d.pt?arch=resnet18+jpeg", "timm:resnet50", "resnet18?name=base"],
    )
    assert declared.sources == ("shop-v3", "shop-v3+resnet18")
    assert declared.targets == ("shop-v3", "shop-v3+jpeg", "d.pt+jpeg", "timm:resnet50", "base")
    assert [spec.sources for spec in declared.attacks] == [None, ("x.onnx",), ("y.onnx",)]
    assert declared.models == {
        "shop-v3": "file:a/b.pt?arch=resnet18&name=shop-v3&labels=classes.txt",
        "d.pt": "file:c/d.pt?arch=resnet18",
        "base": "resnet18?name=base",
        "x.onnx": "onnx:x.onnx",
        "y.onnx": "onnx:y.onnx",
    }
    assert runs.declare(**declared.model_dump(mode="json")) == declared
    by_hand = runs.declare(**GOOD, models={"shop": "file:a/b.pt?arch=resnet18"}, sources=["shop"], targets=["shop"])
    assert by_hand.models == {"shop": "file:a/b.pt?arch=resnet18&name=shop"}


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ([{"adress": "x"}], "targets[0].adress: unknown setting 'adress'"),
        ([{"name": "x"}], "targets[0].address: missing"),
        ([{"address": "timm:x", "labels": 5}], "targets[0].labels: expected text, got 5"),
        (["resnet18", {"address": "timm:x", "name": "a:b"}], "targets[1]: name in"),
        ([{"address": "nope:x"}], "targets[0]: unknown model source 'nope'"),
        (
            ["file:a/b.pt?arch=x", "file:c/b.pt?arch=x"],
            "targets[1]: expected a name of its own, for file:a/b.pt?arch=x",
        ),
        ([{"address": "onnx:a.onnx", "name": "resnet18"}], "targets[0]: expected another name, as name=mine gives it"),
        ([3], "targets[0]: expected text, got 3"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_at_its_place(targets: list[Any], said: str) -> None:
    with pytest.raises(WhorlError) as caught:
        runs.declare(**GOOD, sources=["resnet18"], targets=targets)
    assert said in str(caught.value)


def test_settings_of_a_table_may_hold_any_sign() -> None:
    spec = ModelSpec(address="onnx:a.onnx?size=3", name="50% & more #1", labels="my labels/a&b=c.txt")
    declared = runs.declare(**GOOD, sources=["resnet18"], targets=[spec.model_dump()])
    assert declared.targets == ("50% & more #1",)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A network that takes every image for what its folder says, and images in folders of its classes."""
    x = random_images(12, height=SIDE, width=SIDE)
    net: Any = build(ARCH, 3)[0].eval()
    y = torch.arange(12) % 3
    # The last layer is fitted, so that there is something to fool.
    with torch.no_grad():
        features = net.forward_head(net.forward_features((x - 0.5) / 0.5), pre_logits=True)
        wanted = torch.nn.functional.one_hot(y, 3).float() * 8
        solved = torch.linalg.lstsq(
            torch.cat([features, torch.ones(12, 1)], 1).double(), wanted.double()
        ).solution.float()
        net.classifier.weight.copy_(solved[:-1].T)
        net.classifier.bias.copy_(solved[-1])
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    (tmp_path / "classes.txt").write_text("\n".join(LABELS), encoding="utf-8")
    for i, label in enumerate(y.tolist()):
        save_image(tmp_path / "data" / LABELS[label] / f"{i}.png", x[i])
        save_image(tmp_path / "sorted" / f"class {label}" / f"{i}.png", x[i])
    return tmp_path


DECLARED = """
name = "mine"
sources = [{address = "file:net.safetensors?SETTINGS", name = "shop-v3"LABELS}]
attacks = ["fgsm"]
targets = ["shop-v3", "shop-v3+jpeg"]
poses = [{angles = [0, 30]}]
[data]
folder = "FOLDER"
"""


@pytest.mark.parametrize(
    ("folder", "labels", "shown"),
    [("data", ', labels = "classes.txt"', LABELS), ("sorted", "", ("class 0", "class 1", "class 2"))],
    ids=["labels of the table", "class folders"],
)
def test_a_run_shows_names_and_labels(
    shop: Path, folder: str, labels: str, shown: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = DECLARED.replace("SETTINGS", SETTINGS).replace("LABELS", labels).replace("FOLDER", folder)
    (shop / "mine.toml").write_text(text, encoding="utf-8")
    elsewhere = shop / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # files are found from where the declaration lies
    result = invoke("run", str(shop / "mine.toml"), "--out", "out", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert "Crafted on shop-v3" in result.stdout
    assert "shop-v3 (white-box)" in result.stdout
    assert "file:" not in result.stdout + result.stderr
    with (elsewhere / "out" / "results.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["source"] for row in rows} == {row["target"] for row in rows} == {"shop-v3"}
    assert (elsewhere / "out" / "adv" / "fgsm" / "shop-v3").is_dir()
    page = (elsewhere / "out" / "report.html").read_text(encoding="utf-8")
    before, _, settings = page.partition('id="provenance"')
    assert "file:" not in before
    assert "file:" in settings
    gallery = before.partition('id="examples"')[2]
    assert any(name in gallery for name in shown)
    again = invoke("run", str(shop / "mine.toml"), "--out", "out", "--device", "cpu", "--no-report")
    assert "0 of 4 tasks computed" in again.stdout


def test_targets_that_are_evaluated_are_called_by_name(shop: Path) -> None:
    address = f"file:{shop / 'net.safetensors'}?{SETTINGS}"
    result = invoke(
        "evaluate",
        str(shop / "sorted"),
        str(shop / "sorted"),
        "--model",
        f"{address}&name=shop-v3,{address}",
        "--device",
        "cpu",
        "--angles",
        "0",
    )
    assert result.exit_code == 0, result.stderr
    assert "shop-v3" in result.stdout
    assert "net.safetensors" in result.stdout
    assert "file:" not in result.stdout


FACTORIES = """
from whorl import Classifier
from conftest import small_net

def named(name, seed=0):
    return Classifier.from_module(small_net(seed=seed), size=18, mean=(0.5,) * 3, std=(0.5,) * 3, name=name)

def shop(): return named("shop-v3")
def twin(): return named("twin")
def other_twin(): return named("twin", 5)
def zoo(): return named("resnet18")
def odd(): return named("a+b")
def fails(): raise ValueError("not today")
"""


def test_a_file_s_factories_name_their_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "naming_shop.py").write_text(FACTORIES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    at = "python:naming_shop:"
    kept = [at + part for part in ("twin", "other_twin", "zoo", "odd", "fails", "nobody")]
    text = (
        f'name = "a"\nsources = ["{at}shop", {json.dumps(kept)[1:-1]}]\n'
        f'targets = ["{at}shop", "{at}shop+jpeg", "{at}shop?name=mine"]\n'
        f'attacks = ["fgsm", {{ name = "pgd", sources = ["{at}shop"] }}]\n'
    )
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    declared = runs.read_declaration(tmp_path / "run.toml")
    # Two of one name, one of the zoo's, one that means something else, and what cannot be had keep their addresses.
    assert declared.sources == ("shop-v3", *kept)
    assert declared.targets == ("shop-v3", "shop-v3+jpeg", "mine")
    assert [spec.sources for spec in declared.attacks] == [None, ("shop-v3",)]
    assert declared.models == {"shop-v3": f"{at}shop?name=shop-v3", "mine": f"{at}shop?name=mine"}
    # What a folder holds is read without calling anything that it names.
    assert runs.declare(**GOOD, sources=[f"{at}shop"], targets=[f"{at}shop"]).sources == (f"{at}shop",)
    assert runs.declare(**declared.model_dump(mode="json")) == declared


def test_a_run_s_table_has_the_name_that_the_factory_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "naming_shop.py").write_text(FACTORIES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    x = random_images(4)
    for i, label in enumerate(whorl.load_model("python:naming_shop:shop")(x).argmax(1).tolist()):
        save_image(tmp_path / "data" / str(label) / f"{i}.png", x[i])
    text = """
name = "a"
sources = ["python:naming_shop:shop"]
targets = ["python:naming_shop:shop"]
attacks = ["fgsm"]
poses = [{angles = [0]}]
data.folder = "data"
"""
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    result = invoke("run", str(tmp_path / "run.toml"), "--out", str(out), "--device", "cpu", "--no-report")
    assert result.exit_code == 0, result.stderr
    with (out / "results.csv").open(newline="", encoding="utf-8") as file:
        assert {(row["source"], row["target"]) for row in csv.DictReader(file)} == {("shop-v3", "shop-v3")}
    made = invoke("attack", "fgsm", "--model", "python:naming_shop:shop", "--data", str(tmp_path / "data"),
                  "--out", str(tmp_path / "one"), "--device", "cpu")  # fmt: skip
    assert made.exit_code == 0, made.stderr
    assert (out / "adv" / "fgsm" / "shop-v3").is_dir()
    assert (tmp_path / "one" / "adv" / "fgsm" / "shop-v3").is_dir()
