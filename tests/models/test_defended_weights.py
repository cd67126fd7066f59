"""Hardened networks that come with whorl: files as the manifest says, and loaded as they were measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import whorl
from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.models import defended
from whorl.models.defended import entries, overlay, pack, shipped, unpack
from whorl.models.weights import state_dict_sha256
from whorl.runs.catalog import model_catalog

NAMES = tuple(shipped())
MEGABYTE = 10**6
NIPS17 = Path(__file__).parents[3] / "shared" / "nips17"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "hardening-cuda.json"
UPRIGHT, POSED = "identity from resnet18", "twelve poses from resnet18"


def rates(target: str, part: str) -> dict[str, float]:
    """The measured success rate of each attack, in percent, as a mean over the poses."""
    cells = [cell for cell in json.loads(RESULTS.read_text(encoding="utf-8"))[part] if cell["target"] == target]
    found: dict[str, list[float]] = {}
    for cell in cells:
        found.setdefault(cell["attack"], []).append(100 * cell["n_success"] / cell["n_clean_correct"])
    return {attack: sum(each) / len(each) for attack, each in found.items()}


def test_the_columns_of_the_offline_profile_are_filled() -> None:
    bases, recipes = ("efficientnet_lite0", "mobilenet_v2"), ("ens-at", "alp")
    assert set(NAMES) >= {f"{base}.{recipe}" for base in bases for recipe in recipes}
    assert any(name.endswith(".ai-at") for name in NAMES)
    assert whorl.model_names("defended") == NAMES


def test_the_files_are_small_enough_to_ship() -> None:
    sizes = [(entries.HERE / entry.file).stat().st_size for entry in shipped().values()]
    assert all(size <= 10 * MEGABYTE for size in sizes)
    assert sum(sizes) <= 30 * MEGABYTE
    assert {path.name for path in entries.HERE.glob("*.safetensors")} == {entry.file for entry in shipped().values()}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_loaded_is_what_was_measured(name: str) -> None:
    entry = shipped()[name]
    clf, original = whorl.load_model(name), whorl.load_model(entry.base)
    assert clf.name == name
    assert clf.weights_sha256 == entry.weights_sha256 == state_dict_sha256(clf.net)
    assert (clf.size, clf.mean, clf.labels) == (original.size, original.mean, original.labels)
    changed = unpack(entries.HERE / entry.file)
    for key, tensor in clf.net.state_dict().items():
        assert torch.equal(tensor, changed.get(key, original.net.state_dict()[key]))
    x, y, _ = whorl.load_samples(20)
    assert int((clf(x).argmax(1) == y).sum()) >= 12


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_says_how_it_was_made(name: str) -> None:
    about = shipped()[name].about
    assert {"recipe", "about", "seed", "command", "hardware", "measured"} <= about.keys()
    assert name == f"{shipped()[name].base}.{about['recipe']}"
    assert re.fullmatch("[0-9a-f]{40}", about["commit"])
    assert not re.search(r"(^|[ ='\"])[/~]", about["command"])  # no folder of the machine it ran on
    assert "efficientnet_lite1" not in about["about"]["pool"]  # so that it can be tested with


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_agrees_with_the_benchmark(name: str) -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert results["weights_sha256"][name] == shipped()[name].weights_sha256
    for part in (UPRIGHT, POSED):
        listed = shipped()[name].about["measured"][part]
        assert listed == {attack: pytest.approx(rate, abs=0.051) for attack, rate in rates(name, part).items()}


@pytest.mark.parametrize("name", NAMES)
def test_hardening_buys_what_it_should(name: str) -> None:
    base, _, recipe = name.partition(".")
    clean = {each: shipped()[each].about["measured"]["clean"] for each in NAMES}
    if recipe == "ai-at":
        beside, own = (rates(each, POSED) for each in (f"{base}.ens-at", name))
        missed = {attack for attack in ("ai-dim", "ai-ram") if own[attack] > beside[attack] - 10}
        floor = clean[f"{base}.ens-at"] - 3
    else:
        before, own = (rates(each, UPRIGHT) for each in (base, name))
        shares = {"fgsm": 0.6, "pgd": 0.5, "mim": 0.5, "dim": 0.5}
        missed = {attack for attack, share in shares.items() if own[attack] > share * before[attack]}
        floor = {"ens-at": 80, "alp": 65}[recipe]
    assert missed == set()
    assert clean[name] >= floor


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_weight_file_is_not_loaded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shipped()[name].file
    content = bytearray((entries.HERE / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / file).write_bytes(content)
    monkeypatch.setattr(entries, "HERE", tmp_path)
    with pytest.raises(WhorlError, match=r"missing or damaged.*Install whorl again"):
        whorl.load_model(name)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not NIPS17.is_dir(), reason="needs the NIPS17 images")
@pytest.mark.parametrize("name", NAMES)
def test_clean_accuracy_on_nips17(name: str) -> None:
    x, y, _ = whorl.load_images(NIPS17, size=224)
    clf = whorl.load_model(name)
    with torch.no_grad():
        right = sum(int((clf(x[i : i + 50]).argmax(1) == y[i : i + 50]).sum()) for i in range(0, len(x), 50))
    # A GPU rounds otherwise: an image or two may fall on the other side.
    assert 100 * right / len(x) == pytest.approx(shipped()[name].about["measured"]["clean"], abs=0.6)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that ships one network: mobilenet_v2 with a first layer that is a little larger."""
    original = whorl.load_model("mobilenet_v2")
    first = {"features.0.0.weight": original.net.state_dict()["features.0.0.weight"] * 1.01}
    path = tmp_path / "mobilenet_v2.made-up.safetensors"
    pack(path, first, about={"name": "mobilenet_v2.made-up"})
    overlay(original.net, unpack(path), path.name)
    entry = {
        "base": "mobilenet_v2",
        "file": path.name,
        "sha256": sha256_of(path),
        "weights_sha256": state_dict_sha256(original.net),
        "recipe": "made-up",
    }
    (tmp_path / "manifest.json").write_text(json.dumps({"models": {"mobilenet_v2.made-up": entry}}), encoding="utf-8")
    monkeypatch.setattr(entries, "HERE", tmp_path)
    monkeypatch.setattr(entries, "MANIFEST", tmp_path / "manifest.json")
    shipped.cache_clear()
    yield tmp_path
    shipped.cache_clear()


def test_a_shipped_network_has_a_name(made_up: Path) -> None:
    assert whorl.model_names("defended") == ("mobilenet_v2.made-up",)
    assert "mobilenet_v2.made-up" in whorl.model_names()
    [entry] = [entry for entry in model_catalog() if entry.kind == "defended"]
    assert (entry.name, entry.size, entry.source) == (
        "mobilenet_v2.made-up",
        (224, 224),
        "included, from mobilenet_v2",
    )
    clf = whorl.load_model("MobileNet-v2.Made_Up", dtype=torch.float64)
    assert clf.name == "mobilenet_v2.made-up"
    own, base = clf.net.state_dict(), whorl.load_model("mobilenet_v2", dtype=torch.float64).net.state_dict()
    differing = [name for name in own if not torch.equal(own[name], base[name])]
    assert differing == ["features.0.0.weight"]
    torch.testing.assert_close(own[differing[0]], base[differing[0]] * 1.01, rtol=1e-3, atol=1e-6)
    with pytest.raises(WhorlError, match=r"unknown model .*Did you mean 'mobilenet_v2.made-up'"):
        whorl.load_model("mobilenet_v2.made-pu")


def test_a_damaged_file_is_not_loaded(made_up: Path) -> None:
    path = made_up / "mobilenet_v2.made-up.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(WhorlError, match="missing or damaged"):
        defended.load("mobilenet_v2.made-up")
    path.unlink()
    with pytest.raises(WhorlError, match="missing or damaged"):
        defended.load("mobilenet_v2.made-up")


def test_another_original_is_noticed(made_up: Path) -> None:
    listed = json.loads((made_up / "manifest.json").read_text(encoding="utf-8"))
    listed["models"]["mobilenet_v2.made-up"]["weights_sha256"] = "0" * 64
    (made_up / "manifest.json").write_text(json.dumps(listed), encoding="utf-8")
    shipped.cache_clear()
    with pytest.raises(WhorlError, match="does not come out as it was measured"):
        defended.load("mobilenet_v2.made-up")


def test_tensors_must_fit() -> None:
    net = torch.nn.Linear(2, 3)
    with pytest.raises(WhorlError, match="it has the unknown other"):
        overlay(net, {"other": torch.zeros(1)}, "mine")
    with pytest.raises(WhorlError, match=r"weight is \(2, 2\), expected \(3, 2\)"):
        overlay(net, {"weight": torch.zeros(2, 2)}, "mine")


def test_what_half_precision_cannot_hold_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="cannot be written in fp16"):
        pack(tmp_path / "a.safetensors", {"weight": torch.tensor([1e6])})
    assert not (tmp_path / "a.safetensors").exists()
    pack(tmp_path / "a.safetensors", {"weight": torch.tensor([0.1]), "count": torch.tensor([3])})
    read = unpack(tmp_path / "a.safetensors")
    assert (read["weight"].dtype, read["count"].dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(read["weight"], torch.tensor([0.1]), rtol=1e-3, atol=0)
