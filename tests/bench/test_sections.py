"""``whorl bench`` runs, compares what it says it compares, and does without what is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
import whorl.cli.bench
from cli.invoking import invoke
from whorl.bench import compiled, peers
from whorl.bench import sections as measured

CPU = torch.device("cpu")


def test_the_command_prints_a_table_and_keeps_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = peers.rivals
    monkeypatch.setattr(peers, "rivals", lambda work: {**known(work), "nothing_such": []})
    out = tmp_path / "new" / "bench.json"
    done = invoke("bench", "--quick", "--device", "cpu", "--repeats", "1", "--out", str(out))
    assert done.exit_code == 0, done.output
    made = json.loads(out.read_text())
    assert "not measured: nothing_such" in done.stderr
    about = made["metadata"]
    assert about.keys() >= {"date", "whorl", "python", "torch", "device", "hardware", "threads", "peers", "repeats"}
    assert set(about["peers"]) | {name.split()[0] for name in made["missing"]} >= {"torchattacks", "foolbox", "art"}
    assert [section["name"] for section in made["sections"]] == ["attacks", "eot", "estimator"]
    for section in made["sections"]:
        assert section["title"] in done.stdout
        medians = {row["name"]: row["median_ms"] for row in section["rows"] if row["library"] == "whorl"}
        assert medians
        for row in section["rows"]:
            assert row["name"] in done.stdout
            assert row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]
            assert row["ratio"] == pytest.approx(row["median_ms"] / medians[row["beside"]], rel=1e-2)
        if section["name"] == "estimator":
            *_, gradient = section["rows"]
            assert gradient["name"].endswith("input gradient")
            for row in section["rows"]:
                assert row["share"] == pytest.approx(row["median_ms"] / gradient["median_ms"], rel=1e-2)
    assert whorl.cli.bench.bench_command.__doc__


def test_peers_stay_in_the_ball_and_do_as_many_gradients() -> None:
    """Equal work: what the network sees, counted."""
    work = measured.prepare(measured.SIZES["quick"], CPU)
    seen = 0

    def count(_: Any, given: tuple[torch.Tensor]) -> None:
        nonlocal seen
        seen += given[0].shape[0]

    work.model.register_forward_pre_hook(count)
    entries, _, missing = peers.peer_calls(work)
    if not entries:
        pytest.skip(f"no peer is installed: {missing}")
    for entry in entries:
        seen = 0
        adv = torch.as_tensor(entry.run()).detach()
        gradients = (1 if entry.attack == "fgsm" else work.steps) * len(work.x)
        # The toolbox asks for a prediction before and after.
        assert seen >= gradients
        assert seen <= gradients + (2 * len(work.x) if entry.library == "art" else 0), entry.name
        assert 0 < float((adv - work.x).abs().max()) <= peers.EPS + 1e-6


def test_a_peer_that_leaves_the_ball_fails_or_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(work: peers.Workload) -> list[peers.TimedCall]:
        def fail() -> None:
            raise RuntimeError("out of order")

        runs = {"good": lambda: (work.x - 0.01).clamp(0, 1), "far": lambda: 1 - work.x, "still": lambda: work.x}
        named = [*runs.items(), ("bad", fail)]
        return [peers.TimedCall(attack="fgsm", library="one", name=name, run=run) for name, run in named]

    monkeypatch.setattr(measured, "peer_calls", lambda work: (made(work), {"one": "1"}, {"other": "not there"}))
    found = measured.bench(CPU, measured.size_for(CPU, quick=True, repeats=1), sections=["attacks"])
    [section] = found["sections"]
    assert [row["name"] for row in section["rows"] if row["library"] == "one"] == ["good"]
    missing = found["missing"]
    assert missing.keys() == {"other", "one far", "one still", "one bad"}
    assert "moved pixels by up to" in missing["one far"]
    assert "moved pixels by up to 0.0/255" in missing["one still"]
    assert "out of order" in missing["one bad"]


def test_our_own_failure_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("ours")

    entry = peers.TimedCall(attack="mim", library="whorl", name="mim", run=fail)
    with pytest.raises(RuntimeError, match="ours"):
        measured._timed("", [entry], CPU, 1, lambda *_: None)


def test_another_network_another_batch_and_a_part_of_it() -> None:
    size = measured.size_for(CPU, quick=True, network="timm:efficientnet_lite0", batch=1, repeats=1)
    made = measured.bench(CPU, size, sections=["estimator"])
    assert (made["metadata"]["network"], made["metadata"]["batch"]) == ("timm:efficientnet_lite0", 1)
    [section] = made["sections"]
    assert section["title"] == "the estimator on 1×3×32×32"
    assert section["rows"][-1]["name"] == "efficientnet_lite0 input gradient"


def test_one_attack_and_what_stands_beside_it() -> None:
    made = measured.bench(CPU, measured.size_for(CPU, quick=True, repeats=1), sections=["attacks"], attacks=["ai-dim"])
    [section] = made["sections"]
    assert {row["beside"] for row in section["rows"]} == {"ai-dim"}
    assert [row["name"] for row in section["rows"] if row["library"] == "whorl"] == ["ai-dim"]


def test_every_gradient_attack_is_timed_by_name() -> None:
    size = measured.size_for(CPU, quick=True, repeats=1)
    names = whorl.attack_names(kind="gradient")
    made = measured.bench(CPU, size, sections=["attacks"], attacks=names)
    [section] = made["sections"]
    ours = {row["name"]: row for row in section["rows"] if row["library"] == "whorl"}
    assert list(ours) == names
    assert ours["eot"]["note"] == f"one step of {size.steps} draws"
    assert set(measured.DEFAULT_ATTACKS) <= set(names)


def test_a_gradient_by_careful_hands_is_the_gradient() -> None:
    work = measured.prepare(measured.SIZES["quick"], CPU)
    exact = compiled._gradient_of(work.model, work.x, work.y)()
    by_hand = compiled._gradient_of(compiled.by_careful_hands(work.model), work.x, work.y)()
    assert {weight.dtype for weight in work.model.parameters()} == {torch.float32}  # it is a copy that was cast
    assert by_hand.dtype == exact.dtype
    assert float((by_hand - exact).norm() / exact.norm()) < 0.5  # of random weights, in bfloat16


def test_what_is_compiled_is_compared_on_a_gpu_alone() -> None:
    made = measured.bench(CPU, measured.size_for(CPU, quick=True, repeats=1), sections=["compiled"])
    assert made["sections"][0]["rows"] == []
    assert "recorded on a GPU alone" in made["missing"]["compiled"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_compiled_gradients_are_timed_beside_ours() -> None:
    device = torch.device("cuda")
    size = measured.size_for(device, network="torchvision:resnet18", side=64, batch=4, repeats=2)
    made = measured.bench(device, size, sections=["compiled"])
    [section] = made["sections"]
    assert {row["name"] for row in section["rows"]} >= {"replayed", *compiled.MODES}
    assert all(row["first_ms"] >= row["median_ms"] for row in section["rows"] if row["library"] != "torch")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attacks", "ai-dim,bim"], "unknown attack to time 'bim'"),
        (["--sections", "attack"], "unknown section 'attack'"),
        (["--batch", "0"], "batch must be a whole number from 1"),
        (["--network", "lenet"], "unknown architecture 'lenet'"),
    ],
)
def test_what_cannot_be_measured(options: list[str], said: str) -> None:
    done = invoke("bench", "--quick", "--device", "cpu", *options)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
