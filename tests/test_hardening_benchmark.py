"""The training script's last part: from a folder of trained and measured weights into the package."""

from __future__ import annotations

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import whorl
from whorl.data import save_image
from whorl.files import sha256_of
from whorl.models.defended import entries, overlay, pack, shipped, unpack
from whorl.models.weights import state_dict_sha256

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LAYER = "features.0.0.weight"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    # By path: the folder of these tests has the same name.
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("hardening_script", BENCHMARKS / "hardening.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where its dataclasses look for themselves
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """What training and evaluation leave of a mobilenet_v2 whose first layer has grown."""
    net = whorl.load_model("mobilenet_v2")
    path = tmp_path / "out" / "mobilenet_v2.ens-at.safetensors"
    pack(path, {LAYER: net.net.state_dict()[LAYER] * 1.1})
    overlay(net.net, unpack(path), path.name)
    about = {"command": "python benchmarks/hardening.py", "commit": "0" * 40, "hardware": "none"}
    record = {"job": {"start": ""}, "about": {"recipe": "ens-at"}, "steps": 7, "seconds": 1.5, "metadata": about}
    (tmp_path / "out" / "mobilenet_v2.ens-at.json").write_text(json.dumps(record))
    cells = [
        {"attack": "dim", "target": "mobilenet_v2.ens-at", "n": 10, "n_clean_correct": right, "n_success": hit}
        for right, hit in ((8, 4), (10, 1))
    ]
    evaluation = {
        "metadata": {"data": "nips17", "n": 10},
        "weights_sha256": {"mobilenet_v2.ens-at": state_dict_sha256(net.net)},
        "identity from resnet18": cells[:1],
        "twelve poses from resnet18": cells,
        "white-box PGD-20, eps 4/255": {"mobilenet_v2.ens-at": {"rate": 0.987}},
    }
    (tmp_path / "out" / "evaluation.json").write_text(json.dumps(evaluation))
    return tmp_path / "out"


def test_shipping_makes_a_network_that_loads_by_name(
    script: ModuleType, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    script.main(["--out", str(trained), "--ship", "mobilenet_v2.ens-at", "--ship-to", str(package)])
    entry = json.loads((package / "manifest.json").read_text())["models"]["mobilenet_v2.ens-at"]
    assert entry["sha256"] == sha256_of(package / "mobilenet_v2.ens-at.safetensors")
    assert (entry["steps"], entry["seed"], entry["blend"], entry["started_from"]) == (7, 0, 1.0, None)
    assert entry["measured"] == {
        "data": "nips17",
        "n": 10,
        "clean": 80.0,
        "identity from resnet18": {"dim": 50.0},
        "twelve poses from resnet18": {"dim": 30.0},
        "white-box PGD-20, eps 4/255": 98.7,
    }
    monkeypatch.setattr(entries, "HERE", package)
    monkeypatch.setattr(entries, "MANIFEST", package / "manifest.json")
    shipped.cache_clear()
    try:
        clf = whorl.load_model("mobilenet_v2.ens-at")
        assert clf.weights_sha256 == entry["weights_sha256"]
    finally:
        shipped.cache_clear()


def test_what_was_not_measured_is_not_shipped(script: ModuleType, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="was not measured with these weights"):
        script.main(["--out", str(trained), "--ship", "mobilenet_v2.ens-at@0.85", "--ship-to", str(tmp_path / "p")])


def test_a_check_keeps_the_best_weights_between_two_trainings(
    script: ModuleType, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = whorl.load_model("mobilenet_v2").net.state_dict()[LAYER]
    pack(trained / "mobilenet_v2.ens-at.safetensors", {LAYER: original * -3})  # recognises nothing
    first = tmp_path / "first" / "mobilenet_v2.ens-at.safetensors"
    pack(first, {LAYER: original * 1.1})
    record = json.loads((trained / "mobilenet_v2.ens-at.json").read_text())
    first.with_suffix(".json").write_text(json.dumps(record | {"steps": 5}))
    x, y, ids = whorl.load_samples(2, size=160)
    for image, label, name in zip(x, y, ids, strict=True):
        save_image(tmp_path / "photos" / str(int(label)) / f"{name}.png", image)
    checking = ["--out", str(trained), "--nips", str(tmp_path / "photos"), "--device", "cpu", "--size", "160"]
    script.main([*checking, "--check", "--blends", "0.05,0.9", "--keep", "--line-from", str(first)])
    assert "kept 0.05 of the way of mobilenet_v2.ens-at" in capsys.readouterr().out
    kept = unpack(trained / "mobilenet_v2.ens-at.safetensors")[LAYER]
    torch.testing.assert_close(kept, original * (0.95 * 1.1 - 0.05 * 3), rtol=2e-3, atol=1e-4)
    record = json.loads((trained / "mobilenet_v2.ens-at.json").read_text())
    assert (record["blend"], record["blend_chosen_on"]) == (0.05, "photos")
    assert record["blend_from"]["sha256"] == sha256_of(first)
    assert (record["blend_from"]["steps"], record["blend_from"]["commit"]) == (5, "0" * 40)
    assert record["blend_from"]["share"] == 0.95
    with pytest.raises(SystemExit, match="is a mean of two trainings already"):
        script.main([*checking, "--check", "--line-from", str(first)])


def test_a_check_goes_from_the_original_to_a_point_between_two_trainings_and_beyond(
    script: ModuleType, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = whorl.load_model("mobilenet_v2").net.state_dict()[LAYER]
    pack(trained / "mobilenet_v2.ens-at.safetensors", {LAYER: original * 1.2})
    first = tmp_path / "first" / "mobilenet_v2.ens-at.safetensors"
    pack(first, {LAYER: original * -8})  # half of each recognises nothing, nor does what lies beyond
    x, y, ids = whorl.load_samples(2, size=160)
    for image, label, name in zip(x, y, ids, strict=True):
        save_image(tmp_path / "photos" / str(int(label)) / f"{name}.png", image)
    checking = ["--out", str(trained), "--nips", str(tmp_path / "photos"), "--device", "cpu", "--size", "160"]
    line = ["--line-from", str(first), "--line-share", "0.5"]
    script.main([*checking, "--check", "--blends", "0.1,1.1", "--keep", *line])
    assert "kept 0.1 of the way of mobilenet_v2.ens-at" in capsys.readouterr().out
    kept = unpack(trained / "mobilenet_v2.ens-at.safetensors")[LAYER]
    torch.testing.assert_close(kept, original * (0.9 - 0.05 * 8 + 0.05 * 1.2), rtol=2e-3, atol=1e-4)
    record = json.loads((trained / "mobilenet_v2.ens-at.json").read_text())
    assert (record["blend"], record["blend_from"]["share"]) == (0.05, 0.05)
    script.main([*checking, "--check", "--blends", "0.5", "--keep"])
    again = json.loads((trained / "mobilenet_v2.ens-at.json").read_text())
    assert (again["blend"], again["blend_from"]["share"]) == (0.05, 0.05)
    with pytest.raises(SystemExit):
        script.main([*checking, "--check", "--line-share", "0.5"])
    assert "--line-share needs --line-from" in capsys.readouterr().err


def test_a_job_is_one_word(script: ModuleType) -> None:
    job = script.Job.parse("mobilenet_v2:alp:90:ens-at")
    assert (job.name, job.seconds, job.start) == ("mobilenet_v2.alp", 90.0, "ens-at")
    assert script.settings_of(["lr=0.03", "optimizer=sgd"]) == {"lr": 0.03, "optimizer": "sgd"}


def test_a_verdict_is_as_good_as_its_worst_figure(script: ModuleType) -> None:
    limits = {"fgsm": 35.8, "dim": 46.9}
    good = script.Verdict.of("a", 80.0, 84.0, {"fgsm": 33.0, "dim": 40.0}, limits)
    assert good.margin == pytest.approx(2.8)
    assert str(good) == "PASS  +2.8  a: clean 84.0 (>= 80.0)  fgsm 33.0 (<= 35.8)  dim 40.0 (<= 46.9)"
    assert str(script.Verdict.of("a", 80.0, 79.0, {"fgsm": 33.0, "dim": 40.0}, limits)).startswith("FAIL  -1.0")
    assert script.Verdict.of("a", 80.0, 90.0, {"fgsm": 33.0, "dim": 53.5}, limits).margin == pytest.approx(-6.6)


def test_a_rate_is_the_mean_over_the_poses_in_which_the_network_is_ever_right(script: ModuleType) -> None:
    cells = [
        {"attack": attack, "n": 10, "n_clean_correct": right, "n_success": hit}
        for attack, right, hit in (("dim", 8, 4), ("dim", 10, 1), ("dim", 0, 0), ("pgd", 0, 0))
    ]
    assert script.success(cells, "dim") == pytest.approx(30)
    assert script.success(cells, "pgd") is None
    assert script.accuracy(cells) == pytest.approx(45)


def test_decoded_images_are_kept_for_their_folder_alone(script: ModuleType, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, shade in ((first, 0.25), (second, 0.75)):
        for label in ("0", "1"):
            save_image(folder / label / "one.png", torch.full((3, 8, 8), shade))

    def decode(folder: Path) -> Tensor:
        options = Namespace(out=tmp_path, side=8, limit=None, data=str(folder))
        pixels: Tensor = script.decoded(options).pixels
        return pixels

    made = decode(first)
    (kept,) = tmp_path.glob("images-*.pt")
    before = kept.stat().st_mtime_ns
    assert torch.equal(decode(first), made)
    assert kept.stat().st_mtime_ns == before
    assert not torch.equal(decode(second), made)


def test_crafted_images_are_kept_for_their_images_alone(script: ModuleType, tmp_path: Path) -> None:
    options = Namespace(out=tmp_path, size=64, seed=0, batch_size=2, device="cpu")
    x, y, ids = whorl.load_samples(2, size=64)
    first, second = (script.Data(x=x[part], y=y[part], ids=ids[part]) for part in (slice(1), slice(1, 2)))
    made = script.craft("fgsm", "mobilenet_v2", first, options)
    (kept,) = tmp_path.glob("crafted/*.pt")
    before = kept.stat().st_mtime_ns
    again = script.craft("fgsm", "mobilenet_v2", first, options)
    assert kept.stat().st_mtime_ns == before
    assert torch.allclose(again, made, rtol=0, atol=1e-6)
    other = script.craft("fgsm", "mobilenet_v2", second, options)
    assert float((other - x[1:]).abs().max()) <= 16.5 / 255
