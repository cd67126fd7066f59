"""Ten classes of one's own through the gate: as state dict, as ONNX, against an earlier network; what it writes."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whorl
from cli.invoking import invoke
from gate.shop import CLASSES, INPUT, Shop, make_shop, trained
from gate.test_gate_baseline import most, resampled_failures
from whorl.demo import demo_declaration
from whorl.evaluation import Pose, poses, to_8_bits
from whorl.gate import GateSettings, gate, read_baseline
from whorl.gate.settings import ANGLES, SCALES
from whorl.models.backward import Backward
from whorl.runs import Data
from whorl.runs.folder import as_json

FGSM = ("--attack", "ai-fgsm", "--device", "cpu")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return make_shop(tmp_path_factory.mktemp("shop"))


def run(shop: Shop, out: Path, model: str, *more: str) -> Any:
    return invoke("gate", model, "--data", shop.data, "--labels", shop.labels, "--out", str(out), *FGSM, *more)


@pytest.fixture(scope="module")
def first(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a gate that failed."""
    out = tmp_path_factory.mktemp("first") / "out"
    done = run(shop, out, shop.address(), "--fail-above", "20", "--min-accuracy", "85")
    assert done.exit_code == 1, done.stderr
    assert "failed  fail-above  ai-fgsm, white-box: success rate" in done.stdout
    assert "passed  min-accuracy  clean images: 100.0% (88.6% to 100.0%) of 30 are recognised" in done.stdout
    assert "net.pth: failed, 1 of 2 rules" in done.stdout
    return out


def literal_rate(shop: Shop, source: str, target: str) -> float:
    """The success rate, pooled over poses of ten images at least, counted one by one."""
    crafted, asked = (whorl.load_model(f"{address}&labels={shop.labels}") for address in (source, target))
    x, y, ids = whorl.load_images(shop.data, labels=asked.labels)
    adversarial = to_8_bits(whorl.attack("ai-fgsm")(crafted, x, y, ids=ids))
    won = counted = 0
    for angle in ANGLES:
        for scale in SCALES:
            seen = [whorl.affine(one, angle=angle, scale=scale) for one in (x, adversarial)]
            clean, attacked = ((asked(one).argmax(1) == y).numpy() for one in seen)
            if clean.sum() >= 10:
                won, counted = won + int((clean & ~attacked).sum()), counted + int(clean.sum())
    return won / counted


def test_a_state_dict_fails_with_the_true_rate(shop: Shop, first: Path) -> None:
    content = json.loads((first / "gate.json").read_text())
    assert content["passed"] is False
    rule, accuracy = (next(r for r in content["rules"] if r["name"] == name) for name in ("fail-above", "min-accuracy"))
    assert rule["rate"] == pytest.approx(literal_rate(shop, shop.address(), shop.address()), abs=1e-9)
    assert rule["rate"] > 0.2
    assert rule["interval"][0] < rule["rate"] < rule["interval"][1]
    assert (accuracy["rate"], accuracy["n"], accuracy["passed"]) == (1.0, 30, True)


def test_the_record_holds_everything(shop: Shop, first: Path) -> None:
    content = json.loads((first / "gate.json").read_text())
    assert content["model"]["name"] == "net.pth"
    assert len(content["model"]["identity"][0]["weights_sha256"]) == 64
    assert content["versions"]["whorl"] == whorl.__version__
    assert content["settings"]["fail_above"] == 20
    record = read_baseline(first).record
    assert record.outcomes.poses == poses(angles=ANGLES, scales=SCALES)
    assert record.outcomes.ids[0] == "bolt/0"
    assert record.labels[0] == "bolt"
    assert set(record.labels) == set(CLASSES) - {"wing nut"} | {"wing nut"}
    assert len(set(record.sha256)) == 30
    assert record.clean[record.outcomes.poses.index(Pose())].all()
    assert np.isclose(
        content["rates"][0]["robust"]["value"], record.recognised("ai-fgsm, white-box").all(0).float().mean()
    )


def test_an_onnx_file_fails_with_the_transfer_rate(shop: Shop, tmp_path: Path) -> None:
    surrogate = shop.address("sibling.pth")
    done = run(shop, tmp_path, shop.address("net.onnx"), "--surrogates", surrogate, "--fail-above", "20")
    assert done.exit_code == 1, done.stderr
    assert "ai-fgsm, transfer from sibling.pth: transfer rate" in done.stdout
    assert "white-box:" not in done.stdout
    assert "net.onnx has no gradients: these are transfer rates" in done.stderr
    [rule] = json.loads((tmp_path / "gate.json").read_text())["rules"]
    assert rule["rate"] == pytest.approx(literal_rate(shop, surrogate, shop.address("net.onnx")), abs=1e-9)
    assert "transfer rate" in (tmp_path / "gate.junit.xml").read_text()


def test_the_two_step_path_refuses_the_mismatch(shop: Shop, tmp_path: Path) -> None:
    """Craft on a network of other classes, or evaluate one: neither gives a rate that a limit could be held against."""
    words = ("attack", "fgsm", "--model", "resnet18", "--data", shop.data, "--out", str(tmp_path / "run"))
    assert invoke(*words).exit_code == 2
    scored = invoke("evaluate", shop.data, shop.data, "--model", "resnet18", "--angles", "0", "--fail-above", "60")
    assert scored.exit_code == 2
    assert "name no class of the network" in " ".join(scored.stderr.split())


def test_strict_decides_on_the_pessimistic_end(shop: Shop, first: Path) -> None:
    """The same folder, so that nothing is crafted again."""
    content = json.loads((first / "gate.json").read_text())
    found = next(rule for rule in content["rules"] if rule["name"] == "fail-above")
    between = 50 * (found["rate"] + found["interval"][1])
    settings = GateSettings(
        model=shop.address(),
        data=shop.data,
        labels=Path(shop.labels),
        attack="ai-fgsm",
        fail_above=between,
        worst_case=99.9,
    )
    assert settings.least_images <= 30
    point = gate(settings, first, device="cpu")
    assert point.done.computed == 0
    assert (point.verdict.rules[0].name, point.verdict.rules[0].passed) == ("fail-above", True)
    strict = gate(GateSettings(**{**vars(settings), "strict": True}), first, device="cpu")
    assert not strict.verdict.rules[0].passed
    assert "decided on the interval's upper end" in strict.verdict.rules[0].sentence
    [worst] = [rule for rule in strict.verdict.rules if rule.name == "worst-case"]
    record = read_baseline(first).record
    counted = (record.clean & ~record.recognised("ai-fgsm, white-box")).any(0).sum() / record.clean.any(0).sum()
    assert worst.rate == pytest.approx(float(counted))


def test_without_a_rule_nothing_is_decided(shop: Shop, first: Path, tmp_path: Path) -> None:
    copies = ("--junit", str(tmp_path / "a" / "j.xml"), "--sarif", str(tmp_path / "s.sarif"))
    done = run(shop, first, shop.address(), *copies, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["passed"] is None
    assert (tmp_path / "a" / "j.xml").read_bytes() == (first / "gate.junit.xml").read_bytes()
    assert (tmp_path / "s.sarif").read_bytes() == (first / "gate.sarif").read_bytes()
    assert "<skipped" in (first / "gate.junit.xml").read_text()


def test_the_same_network_is_no_regression_and_another_is(shop: Shop, first: Path, tmp_path: Path) -> None:
    same = run(shop, tmp_path / "same", shop.address(), "--baseline", str(first), "--seed", "1")
    assert same.exit_code == 0, same.stderr
    assert "passed  fail-drop  ai-fgsm, white-box" in same.stdout
    assert "+0.0 points" in same.stdout
    over = run(shop, first, shop.address(), "--baseline", str(first))
    assert over.exit_code == 2
    assert "is the baseline's own folder" in over.stderr
    stronger = run(shop, tmp_path / "other", shop.address(), "--baseline", str(first / "gate.json"), "--eps", "8/255")
    assert stronger.exit_code == 2
    assert "another 'eps' of ai-fgsm, white-box" in " ".join(stronger.stderr.split())
    # A network that loses what the first one kept: taken from the record, with every image fooled.
    content = json.loads((first / "gate.json").read_text())
    easier = read_baseline(first).record
    bits = np.packbits(np.ones(easier.outcomes.clean.numel() * 2, np.uint8)).tobytes()
    content["outcomes"]["bits"] = base64.b64encode(bits).decode()
    (tmp_path / "robust.json").write_text(json.dumps(content))
    worse = run(shop, tmp_path / "same", shop.address(), "--baseline", str(tmp_path / "robust.json"), "--seed", "1")
    assert worse.exit_code == 1
    assert "failed  fail-drop  ai-fgsm, white-box" in worse.stdout
    assert "poses lost since the baseline: bolt/0 (" in worse.stdout


def test_two_seeds_of_one_network_are_no_regression(shop: Shop, tmp_path: Path) -> None:
    """Real outcomes of an attack that begins anywhere in the ball; 200 resamples of the images."""
    for seed in ("0", "1"):
        done = run(shop, tmp_path / seed, shop.address(), "--attack", "pgd", "--eps", "6/255", "--seed", seed)
        assert done.exit_code == 0, done.stderr
    one, other = (read_baseline(tmp_path / seed).record for seed in ("0", "1"))
    assert not one.recognised("pgd, white-box").equal(other.recognised("pgd, white-box")), "the seeds differ in nothing"
    assert resampled_failures(one, other) <= most(0.05, 200)


def test_an_attack_that_changes_nothing_is_no_test(shop: Shop, tmp_path: Path) -> None:
    """Half a step of 8 bits is lost when the images are saved: any network would pass."""
    done = run(shop, tmp_path, shop.address(), "--eps", "0.4/255", "--fail-above", "60")
    assert done.exit_code == 2, done.stdout
    assert "ai-fgsm on net.pth changed no pixel of any image" in " ".join(done.stderr.split())
    assert not (tmp_path / "gate.json").exists()


def test_where_nothing_is_fooled_there_are_no_images_to_look_at(shop: Shop, first: Path, tmp_path: Path) -> None:
    done = run(shop, tmp_path, shop.address(), "--eps", "1/255", "--fail-above", "60")
    assert done.exit_code == 0, done.stderr
    record = read_baseline(tmp_path).record
    assert torch.equal(record.clean, record.recognised("ai-fgsm, white-box")), "an image is fooled after all"
    shown, otherwise = ((folder / "report.html").read_text(encoding="utf-8") for folder in (tmp_path, first))
    assert "The most fragile images" in otherwise
    assert "The most fragile images" not in shown
    assert "Gate passed" in shown


def test_a_network_behind_a_defence_is_attacked_through_it(shop: Shop, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(shop, out, f"{shop.address()}+bitdepth", "--fail-above", "99")
    assert done.exit_code in (0, 1), done.stderr
    assert "net.pth+bitdepth is attacked through its defence" in " ".join(done.stderr.split())
    kept = json.loads((out / "gate.json").read_text(encoding="utf-8"))
    assert kept["model"]["name"] == "net.pth+bitdepth"
    assert kept["model"]["address"].endswith("+bitdepth")
    assert kept["model"]["identity"][1]["defense"] is not None
    [attack] = kept["attacks"]
    assert attack == "ai-fgsm, white-box"
    net = whorl.load_model(f"{shop.address()}&labels={shop.labels}")
    defended = whorl.load_defense("bitdepth", net)
    x, y, ids = whorl.load_images(shop.data, labels=net.labels)
    adversarial = to_8_bits(whorl.attack("ai-fgsm")(defended, x, y, ids=ids))
    record = read_baseline(out).record
    at = record.outcomes.poses.index(Pose())
    assert list(record.outcomes.ids) == ids
    assert record.clean[at].tolist() == (defended(x).argmax(1) == y).tolist()
    assert record.recognised(attack)[at].tolist() == (defended(adversarial).argmax(1) == y).tolist()
    bare = to_8_bits(whorl.attack("ai-fgsm")(net, x, y, ids=ids))
    assert not torch.equal(bare, adversarial), "the attack saw no defence"


def test_a_scripted_network_is_attacked_with_its_backward_pass_as_it_is(shop: Shop, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(trained(1)).save(str(shop.folder / "net.pt"))
    given = "&".join(f"{name}={value}" for name, value in INPUT.items())
    address = f"torchscript:{shop.folder / 'net.pt'}?{given}"
    out, eps = tmp_path / "out", ("--eps", "2/255")
    more = ("--attack", "ai-best", "--surrogates", shop.address("sibling.pth"), *eps)
    done = run(shop, out, address, *more)
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "net.pt is a ScriptModule, whose backward pass cannot be changed: there ai-best follows it as it is" in said
    assert "sibling.pth is a ScriptModule" not in said
    attacks = json.loads((out / "gate.json").read_text(encoding="utf-8"))["attacks"]
    of_scripted, of_sibling = attacks["ai-best, white-box"], attacks["ai-best, transfer from sibling.pth"]
    assert of_scripted["backward"] != of_sibling["backward"] == as_json(whorl.attack("ai-best"))["backward"]
    assert of_scripted == as_json(whorl.attack("ai-best", eps=2 / 255, backward=Backward()))


def test_the_poses_are_those_of_the_demo() -> None:
    declared = GateSettings(model="resnet18").declaration(crafting={"resnet18": {"loss": "margin"}})
    assert set(declared.all_poses()) == set(demo_declaration().all_poses())
    assert len(declared.all_poses()) == 25
    assert Pose() in declared.all_poses()
    assert declared.attacks[0].settings == {"loss": "margin"}


def test_a_limit_is_spread_over_the_classes(shop: Shop) -> None:
    def classes(limit: int) -> list[str]:
        return [image.entry.path.parent.name for image in Data(folder=shop.data, limit=limit, evenly=True).listed()]

    assert len(set(classes(10))) == 10
    assert classes(12) == sorted(classes(12))
    assert len(set(classes(3))) == 3
    assert classes(30) == [image.entry.path.parent.name for image in Data(folder=shop.data).listed()]
