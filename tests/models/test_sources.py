"""Models by address. What needs a network is checked up to the point where it would be used."""

from __future__ import annotations

import sys
import types
import warnings
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from conftest import CLASSES, random_images, small_net
from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.models import Classifier, _torchvision, load_model
from whorl.models.architectures import build
from whorl.models.weights import state_dict_sha256

ARCH = "timm:mobilenetv3_small_050"  # 1.6 million parameters: quick to build
HALF = (0.5, 0.5, 0.5)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    net, _ = build(ARCH, num_classes=CLASSES)
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    torch.save(net.state_dict(), tmp_path / "net.pth")
    return tmp_path


@pytest.mark.parametrize("name", ["net.safetensors", "net.pth"])
def test_a_weight_file(weights: Path, name: str) -> None:
    address = f"file:{weights / name}?arch={ARCH}&num_classes={CLASSES}&size=40x48&mean=0.5,0.5,0.5&resize=bilinear"
    clf = load_model(address)
    assert (clf.name, clf.size, clf.mean, clf.resize) == (name, (40, 48), HALF, "bilinear")
    assert clf.std == (0.229, 0.224, 0.225)  # the architecture's own, since not given
    assert clf.weights_sha256 == sha256_of(weights / name)
    reference = _torchvision.timm().create_model(ARCH.removeprefix("timm:"), num_classes=CLASSES).eval()
    reference.load_state_dict(torch.load(weights / "net.pth", weights_only=True))
    x = random_images(2, height=40, width=48)
    normal = (x - 0.5) / torch.tensor(clf.std).view(3, 1, 1)
    torch.testing.assert_close(clf(x), reference(normal))


def test_a_weight_file_for_a_network_of_the_zoo(tmp_path: Path) -> None:
    net, _ = build("torchvision:mobilenet_v2")
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    clf = load_model(f"file:{tmp_path / 'net.safetensors'}?arch=mobilenet_v2")
    assert clf.labels[0] == "tench"
    assert clf.size == (224, 224)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("", "does not name the architecture"),
        (f"?arch={ARCH}", "does not fit MobileNetV3"),
        (f"?arch={ARCH}&num_classes=many", "num_classes.*whole number"),
        (f"?arch={ARCH}&num_classes={CLASSES}&size=big", "size.*size=224"),
        (f"?arch={ARCH}&num_classes={CLASSES}&std=a", "std.*per channel"),
        (f"?arch={ARCH}&num_classes={CLASSES}&resize=nearest", "bilinear, bicubic"),
        ("?arch=timm:mobilenetv3_smal_050", "mobilenetv3_small_050"),
        ("?arch=torchvision:resnet81", "resnet18"),
        ("?arch=keras:resnet18", "timm:NAME or torchvision:NAME"),
        ("?architecture=resnet18", "Did you mean 'arch'"),
    ],
)
def test_a_weight_file_with_wrong_settings(weights: Path, settings: str, says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        load_model(f"file:{weights / 'net.safetensors'}{settings}")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("tmim:resnet18", "Did you mean 'timm'"),
        ("timm:", "does not say which model"),
        ("timm:inception_v3.tf_in2k", "Did you mean 'inception_v3.tf_in1k'"),
        ("torchvision:resnet50.IMAGENET1K_V3", "IMAGENET1K_V2"),
        ("torchvision:fasterrcnn_resnet50_fpn", "unknown torchvision model"),
        ("file:nowhere.pth?arch=resnet18", "no weight file nowhere.pth"),
        ("python:whorl.errors", "python:PACKAGE.MODULE:FACTORY"),
        ("python:no_such_package:make", "PYTHONPATH"),
        ("python:whorl.errors:make", "PYTHONPATH"),
    ],
)
def test_addresses_that_lead_nowhere(address: str, says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        load_model(address)


def test_building_leaves_the_random_state_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    build(ARCH)
    assert torch.equal(torch.rand(1), expected)


def test_timm_networks_bring_their_own_preprocessing(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = _torchvision.timm()
    create, asked = timm.create_model, []

    def without_download(name: str, *, pretrained: bool) -> nn.Module:
        asked.append((name, pretrained))
        net: nn.Module = create(name, pretrained=False)
        return net

    monkeypatch.setattr(timm, "create_model", without_download)
    clf = load_model("adv-inc-v3")
    assert asked == [("inception_v3.tf_adv_in1k", True)]
    assert (clf.name, clf.size, clf.mean, clf.std) == ("adv_inc_v3", (299, 299), HALF, HALF)
    assert clf.labels[0] == "tench"
    assert clf.weights_sha256 is not None


def test_torchvision_networks_bring_their_own_preprocessing(monkeypatch: pytest.MonkeyPatch) -> None:
    models = _torchvision.torchvision().models
    build_model, asked = models.get_model, []

    def without_download(name: str, *, weights: Any, progress: bool) -> nn.Module:
        asked.append(str(weights))
        net: nn.Module = build_model(name, weights=None)
        return net

    monkeypatch.setattr(models, "get_model", without_download)
    clf = load_model("torchvision:mobilenet_v3_small.IMAGENET1K_V1?size=64")
    assert asked == ["MobileNet_V3_Small_Weights.IMAGENET1K_V1"]
    assert (clf.size, clf.mean, clf.labels[1]) == ((64, 64), (0.485, 0.456, 0.406), "goldfish")


@pytest.mark.parametrize(
    ("address", "library", "function", "says"),
    [
        ("timm:resnet18.a1_in1k", "timm", "create_model", "HF_HOME.*file:PATH[?]arch=timm:resnet18"),
        ("torchvision:resnet18", "torchvision", "get_model", "TORCH_HOME.*file:PATH[?]arch=torchvision:resnet18"),
    ],
)
def test_without_a_network_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, address: str, library: str, function: str, says: str
) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise URLError("Name or service not known")

    module = _torchvision.timm() if library == "timm" else _torchvision.torchvision().models
    monkeypatch.setattr(module, function, unreachable)
    with pytest.raises(WhorlError, match=f"Name or service not known.*{says}"):
        load_model(address)


def ready_made() -> Classifier:
    return Classifier.from_module(small_net(), size=18, mean=HALF, std=HALF, name="mine")


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("mine")
    vars(module).update(ready=ready_made, bare=small_net, wrong=dict)
    monkeypatch.setitem(sys.modules, "mine", module)


@pytest.mark.usefixtures("mine")
def test_python_factories() -> None:
    assert load_model("python:mine:ready").name == "mine"
    clf = load_model("python:mine:bare?size=18&mean=0.5,0.5,0.5&std=0.5,0.5,0.5")
    x = random_images(2)
    assert torch.equal(clf(x), ready_made()(x))
    with pytest.raises(WhorlError, match=r"Append \?size=224"):
        load_model("python:mine:bare")
    with pytest.raises(WhorlError, match="remove the settings"):
        load_model("python:mine:ready?size=3")
    with pytest.raises(WhorlError, match="got dict"):
        load_model("python:mine:wrong")


CODE = """
import torch
from torch import nn
import whorl

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(x.flatten(1)) * FACTOR

def bare():
    return Net()

def ready():
    return whorl.Classifier.from_module(Net(), size=2, mean=(0.5,) * 3, std=(0.5,) * 3)
"""


@pytest.mark.parametrize("factory", ["bare?size=2", "ready"])
def test_other_code_with_equal_weights_is_another_network(
    factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    hashes = []
    for turn, factor in enumerate(("1", "1", "-1")):
        name = f"someones_own_{factory[:4]}_{turn}"  # a module is imported once, so each has a name of its own
        (tmp_path / f"{name}.py").write_text(CODE.replace("FACTOR", factor))
        clf = load_model(f"python:{name}:{factory}")
        assert clf.weights_sha256 in (None, state_dict_sha256(clf.net))
        hashes.append(clf.code_sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_other_settings_with_equal_weights_are_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    own = f"super().__init__()\n        self.factor = float(open({str(tmp_path / 'factor')!r}).read())"
    code = CODE.replace("FACTOR", "self.factor").replace("super().__init__()", own)
    hashes = []
    for turn, factor in enumerate(("1", "1", "-1")):
        (tmp_path / "factor").write_text(factor)
        (tmp_path / f"someones_settings_{turn}.py").write_text(code)
        hashes.append(load_model(f"python:someones_settings_{turn}:ready").code_sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_external_data_of_a_graph_is_part_of_the_network(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    hashes = []
    for value in (1.0, 1.0, 2.0):
        weight = onnx.numpy_helper.from_array(np.full((12, 3), value, dtype=np.float32), "weight")
        graph = onnx.helper.make_graph(
            [
                onnx.helper.make_node("Flatten", ["x"], ["flat"]),
                onnx.helper.make_node("MatMul", ["flat", "weight"], ["y"]),
            ],
            "net",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 2, 2])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])],
            [weight],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        (tmp_path / "net.onnx.data").unlink(missing_ok=True)
        onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=0)
        (tmp_path / "unrelated.txt").write_text(str(value))
        hashes.append(load_model(f"onnx:{tmp_path / 'net.onnx'}").weights_sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_name_and_labels(weights: Path) -> None:
    file = weights / "classes.txt"
    file.write_text("\ufeff" + "\n".join(f"class {i}" for i in range(CLASSES)) + "\n\n", encoding="utf-8")
    address = f"file:{weights / 'net.pth'}?arch={ARCH}&num_classes={CLASSES}&name=my shop"
    clf = load_model(f"{address}&labels={file}")
    assert clf.name == "my shop"
    assert clf.labels == tuple(f"class {i}" for i in range(CLASSES))
    assert load_model(address).labels == tuple(map(str, range(CLASSES)))


SHOP = f"""
import torch
from torch import nn
import whorl

def ready():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 18 * 18, {CLASSES}))
    return whorl.Classifier.from_module(net, size=18, mean=(0.5,) * 3, std=(0.5,) * 3, name="own")
"""


def flat_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 18 * 18, CLASSES))


def saved_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    """A network at an address of every kind that needs no download, with the name that it gives."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    net, side = flat_net(), "size=18&mean=0.5,0.5,0.5&std=0.5,0.5,0.5"
    axes: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": [0]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(net), folder / "net.pt")
        torch.onnx.export(net, (random_images(1),), folder / "net.onnx", dynamo=False, **axes)
    (folder / "someones_shop.py").write_text(SHOP)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)  # as the command line does with the working directory
    timm, models = _torchvision.timm(), _torchvision.torchvision().models
    create, build_model = timm.create_model, models.get_model
    monkeypatch.setattr(timm, "create_model", lambda name, **given: create(name, **(given | {"pretrained": False})))
    monkeypatch.setattr(models, "get_model", lambda name, **_: build_model(name, weights=None))
    return {
        "file": (f"file:{folder / 'net.safetensors'}?arch={ARCH}&num_classes={CLASSES}", "net.safetensors"),
        "onnx": (f"onnx:net.onnx?{side}", "net.onnx"),
        "torchscript": (f"torchscript:{folder / 'net.pt'}?{side}", "net.pt"),
        "python": ("python:someones_shop:ready", "own"),
        "timm": ("timm:mobilenetv3_small_050.lamb_in1k?size=32", "timm:mobilenetv3_small_050.lamb_in1k"),
        "torchvision": ("torchvision:mobilenet_v3_small?size=32", "torchvision:mobilenet_v3_small"),
        "zoo": ("mobilenet_v2", "mobilenet_v2"),
    }


@pytest.mark.parametrize("kind", ["file", "onnx", "torchscript", "python", "timm", "torchvision", "zoo"])
def test_every_kind_of_address_takes_a_name_and_labels(
    kind: str, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, usual = saved_everywhere(weights, monkeypatch)[kind]
    clf = load_model(address)
    assert clf.name == usual
    (weights / "classes.txt").write_text("\n".join(f"class {i}" for i in range(clf.num_classes)), encoding="utf-8")
    named = load_model(f"{address}{'&' if '?' in address else '?'}name=shop-v3&labels=classes.txt")
    assert (named.name, named.labels[1]) == ("shop-v3", "class 1")
    x = random_images(2)
    if kind not in ("timm", "torchvision"):  # these are at random here
        assert torch.equal(named(x), clf(x))
    if kind in ("onnx", "torchscript", "python"):
        torch.testing.assert_close(clf(x), flat_net()((x - 0.5) / 0.5), atol=1e-5, rtol=1e-5)


def test_torchscript_files_that_are_none(weights: Path) -> None:
    with pytest.raises(WhorlError, match="no TorchScript file"):
        load_model("torchscript:nowhere.pt?size=18")
    with pytest.raises(WhorlError, match=r"is not a TorchScript file .* A state dict is a file:"):
        load_model(f"torchscript:{weights / 'net.pth'}?size=18")


def test_what_needs_transformers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(WhorlError, match=r"needs the package transformers.*torchwhorl\[hf\]"):
        load_model("hf:google/vit-base-patch16-224")


@pytest.mark.parametrize(
    ("settings", "content", "says"),
    [
        ("labels=FILE", "a\nb", f"expected a line for each of the {CLASSES} classes"),
        ("labels=FILE", "a\n\nb", "expected a class name in every line"),
        ("labels=FILE", "", "expected a class name in every line"),
        ("labels=nowhere.txt", "a", "must be a text file, a class a line"),
        ("name=", "a", "name in .* must be 1 to 80 characters"),
        ("name=a:b", "a", "name in .* must be 1 to 80 characters"),
        ("label=FILE", "a", "Did you mean 'labels'"),
    ],
)
def test_names_and_labels_that_are_none(weights: Path, settings: str, content: str, says: str) -> None:
    (weights / "classes.txt").write_text(content, encoding="utf-8")
    chosen = settings.replace("FILE", str(weights / "classes.txt"))
    with pytest.raises(WhorlError, match=says):
        load_model(f"file:{weights / 'net.pth'}?arch={ARCH}&num_classes={CLASSES}&{chosen}")
