"""The frontier's benchmark counts as the library does, goes on where it stopped, and survives a candidate's failure."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import random_images, small_net
from whorl.attacks.transfer import TransferAttack
from whorl.estimators.polar_grids import PolarGridInvariant
from whorl.evaluation import PAPER_POSES, success_rates

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[ModuleType, ModuleType]]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("frontier"), importlib.import_module("frontier_search")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def frontier(scripts: tuple[ModuleType, ModuleType]) -> ModuleType:
    return scripts[0]


@pytest.fixture
def listed(scripts: tuple[ModuleType, ModuleType]) -> ModuleType:
    return sys.modules["frontier_candidates"]


class Toy(nn.Module):
    """A network with what the benchmark writes down about one."""

    weights_sha256 = "0" * 64

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.net = small_net(seed=seed)

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


@pytest.fixture
def data(frontier: ModuleType) -> Any:
    x = random_images(9, 3, 24, 24)
    return frontier.Data(x=x, y=small_net()(x).argmax(1), ids=[str(i) for i in range(9)])


def test_the_judge_counts_what_the_library_counts(frontier: ModuleType, data: Any) -> None:
    targets = {"a": small_net(), "b": small_net(seed=1)}
    adv = (data.x + 0.1 * torch.randn_like(data.x)).clamp(0, 1)
    asked = frontier.Judge(targets, data, PAPER_POSES, 4).evaluate(adv)
    counts = success_rates(targets, data.x, {"adv": adv}, data.y)
    for name in targets:
        rates = [counts["adv", name, pose].rate for pose in PAPER_POSES if counts["adv", name, pose].n_clean_correct]
        assert asked["targets"][name] == pytest.approx(100 * sum(rates) / len(rates), abs=1e-3)
    assert asked["mean"] == pytest.approx(sum(asked["targets"].values()) / 2)
    fresh = frontier.Judge(targets, data, PAPER_POSES, 4).evaluate(adv, fresh=5)
    part = success_rates(targets, data.x[5:], {"adv": adv[5:]}, data.y[5:])
    rates = [part["adv", "a", pose].rate for pose in PAPER_POSES if part["adv", "a", pose].n_clean_correct]
    assert fresh["targets"]["a"] == pytest.approx(100 * sum(rates) / len(rates), abs=1e-3)


def test_every_candidate_of_ours_can_be_made_and_keeps_its_promise(listed: ModuleType) -> None:
    for name, make in listed.candidates().items():
        base, _, gradients = name.rpartition("/")
        if base.partition("+")[0] in listed.PEERS:
            continue
        attack = make(8 / 255)
        assert attack.eps == 8 / 255
        assert attack.steps * attack.samples == int(gradients)


def test_every_move_of_the_search_can_be_made(scripts: tuple[ModuleType, ModuleType]) -> None:
    _, search = scripts
    seen = set()
    for move in search.MOVES:
        attack = search.build({**search.START, **move}, 8 / 255)
        assert isinstance(attack, TransferAttack)
        assert attack.steps * attack.samples == 10
        assert repr(attack) not in seen  # no move is another one, or none
        seen.add(repr(attack))
    ram = search.build({}, 8 / 255)
    x, y = random_images(4), torch.zeros(4, dtype=torch.int64)
    assert torch.equal(ram(small_net(), x, y), whorl.attack("ram", eps=8 / 255)(small_net(), x, y))


@pytest.fixture
def toys(frontier: ModuleType, listed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Toy networks by the zoo's names, and how often each candidate was measured."""
    nets = {"resnet18": 0, "mobilenet_v2": 1, "efficientnet_lite0": 2}
    monkeypatch.setattr(frontier.whorl, "load_model", lambda name, device: Toy(nets[name]))
    x = random_images(4, 3, 24, 24)
    samples = x, small_net()(x).argmax(1), ["a", "b", "c", "d"]
    monkeypatch.setattr(frontier.whorl, "load_samples", lambda n, size: samples)
    calls: dict[str, int] = {}

    def broken(eps: float) -> whorl.Attack:
        raise RuntimeError(f"no attack at {eps:.3f}")

    def counted(name: str) -> Any:
        def make(eps: float) -> whorl.Attack:
            calls[name] = calls.get(name, 0) + 1
            return whorl.attack("mim", eps=eps, steps=2)

        return make

    made = {"first/2": counted("first"), "broken/1": broken, "last/2": counted("last")}
    monkeypatch.setattr(listed, "candidates", lambda: made)
    return calls


def test_it_saves_goes_on_and_survives_a_failure(
    frontier: ModuleType, toys: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--n", "4", "--size", "24", "--targets", "mobilenet_v2,efficientnet_lite0", "--device", "cpu"]
    options += ["--out", str(tmp_path), "--eps", "16,8"]
    frontier.main([*options, "--only", "first,broken"])
    [path] = tmp_path.iterdir()
    saved = json.loads(path.read_text())
    assert list(saved["rows"]) == ["first/2"]
    assert saved["rows"]["first/2"]["gradients"] == 2
    assert set(saved["rows"]["first/2"]["eps"]) == {"16", "8"}
    assert saved["asked"]["n"] == 4
    printed = capsys.readouterr()
    assert "broken/1: RuntimeError: no attack" in printed.err
    before = toys["first"]
    frontier.main([*options, "--figure", str(tmp_path / "drawn.html")])
    assert toys["first"] == before + 2  # looked at once an eps, to see that its settings are the saved ones
    assert list(json.loads(path.read_text())["rows"]) == ["first/2", "last/2"]
    assert "(saved)" in capsys.readouterr().out
    assert "gradients per image" in (tmp_path / "drawn.html").read_text()


def test_sources_and_eps_are_added_one_by_one(frontier: ModuleType, toys: dict[str, int], tmp_path: Path) -> None:
    options = ["--n", "4", "--size", "24", "--device", "cpu", "--out", str(tmp_path), "--only", "first"]
    options += ["--source", "resnet18,efficientnet_lite0", "--targets", "mobilenet_v2"]
    frontier.main([*options, "--eps", "16"])
    before = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert set(before) == {"frontier-resnet18-4.json", "frontier-efficientnet_lite0-4.json"}
    frontier.main([*options, "--eps", "4,16", "--figure", str(tmp_path / "{source}.html")])
    for name, old in before.items():
        [row] = json.loads((tmp_path / name).read_text())["rows"].values()
        assert set(row["eps"]) == {"16", "4"}
        assert row["eps"]["16"] == old["rows"]["first/2"]["eps"]["16"]  # kept, not measured again
        rates = row["eps"]["4"]
        assert len(rates["known"]["mobilenet_v2"]) == 4
        pairs = zip(rates["fooled"]["mobilenet_v2"], rates["known"]["mobilenet_v2"], strict=True)
        assert all(0 <= fooled <= known <= 12 for fooled, known in pairs)
        assert (tmp_path / f"{old['asked']['source']}.html").exists()


def test_a_target_that_knows_no_image_does_not_stop_it(
    frontier: ModuleType, toys: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = random_images(2, 3, 24, 24)
    logits = small_net(seed=1)(torch.cat([pose.apply(x) for pose in PAPER_POSES]))  # mobilenet_v2 of the toys
    never = min(set(range(logits.shape[1])) - set(logits.argmax(1).tolist()))
    samples = x, torch.full((2,), never), ["a", "b"]
    monkeypatch.setattr(frontier.whorl, "load_samples", lambda n, size: samples)
    options = ["--n", "2", "--size", "24", "--device", "cpu", "--out", str(tmp_path), "--targets", "mobilenet_v2"]
    frontier.main([*options, "--only", "first", "--eps", "16"])
    path = tmp_path / "frontier-resnet18-2.json"
    assert json.loads(path.read_text())["rows"]["first/2"]["eps"]["16"]["mean"] is None
    frontier.main([*options, "--only", "first", "--eps", "16,8"])
    [row] = json.loads(path.read_text())["rows"].values()
    assert set(row["eps"]) == {"16", "8"}


def test_families_and_names(frontier: ModuleType) -> None:
    assert frontier.others("resnet18") == ["mobilenet_v2", *(f"efficientnet_lite{i}" for i in range(3))]
    assert frontier.others("efficientnet_lite1") == ["resnet18", "mobilenet_v2"]
    assert list(frontier.chosen("ram")) == ["ram/10", "ram/50"]
    peers = ["BSR/10", "BSR+ai0.5/10", "BSR/50", "BSR+ai0.5/50"]
    assert list(frontier.chosen("eot/2500,BSR*")) == ["eot/2500", *peers]
    assert list(frontier.chosen("BSR*,eot/2500")) == [*peers, "eot/2500"]


def test_kernels_by_name(frontier: ModuleType) -> None:
    made = {name: make(8 / 255) for name, make in frontier.chosen("dim+t0.8p0/10,dim+t0p0.5/10,dim+t0p0/7").items()}
    assert list(made) == ["dim+t0.8p0/10", "dim+t0p0.5/10", "dim+t0p0/7"]
    assert made["dim+t0.8p0/10"] == whorl.attack(
        "dim", eps=8 / 255, estimator=whorl.AffineInvariant(sigma=0.8, rotation=False, scaling=False)
    )
    g = random_images(2, 3, 24, 24)
    only_polar = whorl.AffineInvariant(sigma=0.5, translation=False)
    assert torch.equal(made["dim+t0p0.5/10"].estimator(g), only_polar(g))
    assert made["dim+t0p0/7"] == whorl.attack("dim", eps=8 / 255, steps=7)
    apart = frontier.chosen("dim+t0s0r1.7/10,dim+t0.5s0.3r0.8/10")
    turned = whorl.AffineInvariant(sigma=1.7, translation=False, scaling=False)
    assert torch.equal(apart["dim+t0s0r1.7/10"](8 / 255).estimator(g), turned(g))
    all_three = whorl.AffineInvariant(sigma=0.5, polar_sigma=(0.3, 0.8))
    assert torch.equal(apart["dim+t0.5s0.3r0.8/10"](8 / 255).estimator(g), all_three(g))


def test_kernels_have_sizes_grids_and_means_and_go_with_any_attack(frontier: ModuleType) -> None:
    words = ["fgsm+t0s0r3@21/1", "ram+t0s0r1@7u/10", "dim+t0s0r3@21x2:2/10", "dim+t0s0r3@21|t0s0r0.8/10"]
    fgsm, ram, fine, both = (make(8 / 255) for make in frontier.chosen(",".join(words)).values())
    turned = whorl.AffineInvariant(kernel_size=21, sigma=3.0, translation=False, scaling=False)
    narrow = whorl.AffineInvariant(sigma=0.8, translation=False, scaling=False)
    g = random_images(2, 3, 24, 24)
    assert (fgsm.steps, fgsm.momentum, fgsm.eps) == (1, 0.0, 8 / 255)
    assert torch.equal(fgsm.estimator(g), turned(g))
    assert ram.input == whorl.RandomAffine()
    flat = whorl.AffineInvariant(kernel_size=7, kind="uniform", translation=False, scaling=False)
    assert torch.equal(ram.estimator(g), flat(g))
    finer = PolarGridInvariant(kernel_size=21, sigma=3.0, translation=False, scaling=False, finer=2)
    assert torch.equal(fine.estimator(g), finer(g))
    assert not torch.allclose(fine.estimator(g), turned(g), atol=1e-3)
    assert torch.allclose(both.estimator(g), (turned(g) + narrow(g)) / 2, atol=1e-7)
    assert not frontier.chosen("dim+t0s0r3@21|ai0.5/10,cw+t0s0r1/10")
