"""Table 7 on small networks: what is counted, and going on."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import whorl
from blackbox import Watched, labels_of, related_net
from cli.invoking import plain_environment
from cli.toy_networks import classifier
from conftest import random_images, small_net
from whorl import WhorlError
from whorl.data import Images
from whorl.runs import query_table, worker
from whorl.runs.folder import RunFolder
from whorl.runs.networks import Networks
from whorl.runs.query_rows import Table7
from whorl.runs.query_table import NOISE, default_targets, table7

COUNT = 7
STARTS = ("none", "fgsm", "ai-dim")


def images() -> Images:
    """Seven images, of which the small network knows six."""
    x = random_images(COUNT)
    y = labels_of(small_net(), x)
    y[2] = (y[2] + 1) % 7
    return Images(x, y, [f"p{i}" for i in range(COUNT)])


def nets() -> dict[str, nn.Module]:
    small = classifier(small_net(), "small")
    return {"small": Watched(small), "small+bitdepth": whorl.load_defense("bitdepth", small, levels=16)}


def run(out: Path, targets: dict[str, nn.Module] | None = None, **settings: Any) -> Table7:
    chosen: dict[str, Any] = {
        "attacks": ["nes", "nattack"],
        "starts": STARTS,
        "surrogates": classifier(related_net(small_net(), by=0.5), "surrogate"),
        "eps": 6 / 255,
        "budget": 420,
        "block": 3,
    }
    return table7(images(), out, targets=targets or nets(), **(chosen | settings))


def records(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "images.jsonl").read_text().splitlines()]
    found = [line for line in lines if "id" in line]
    for line in found:
        line.pop("seconds", None)
    return sorted(found, key=lambda line: [line[key] for key in ("target", "attack", "start", "id")])


def test_starts_are_crafted_with_their_settings(tmp_path: Path) -> None:
    wide = whorl.AffineInvariant(sigma="printed")
    run(tmp_path, attacks=["nes"], budget=102, start_settings={"ai-dim": {"estimator": wide, "steps": 2}})
    made = json.loads((tmp_path / "starts" / "manifest.json").read_text())["crafted"]
    shown = {entry["attack"]: entry["repr"] for entry in made.values()}
    assert shown["ai-dim"] == repr(whorl.attack("ai-dim", eps=6 / 255, estimator=wide, steps=2))
    assert shown["fgsm"] == repr(whorl.attack("fgsm", eps=6 / 255))
    # Images that were made with other settings are never taken for these.
    with pytest.raises(WhorlError, match=r"another steps and another estimator|another estimator and another steps"):
        run(tmp_path, attacks=["nes"], budget=102)


def test_the_whole_table(tmp_path: Path) -> None:
    targets = nets()
    found = run(tmp_path, targets)
    assert found.complete
    labels = ["nes", "nes-fgsm", "nes-ai-dim", "nattack", "nattack-fgsm", "nattack-ai-dim"]
    assert [(row.target, row.label) for row in found.rows] == [(t, label) for t in targets for label in labels]
    small = targets["small"]
    assert isinstance(small, Watched)
    # besides its queries, a target sees each clean image once, and each result once more as saved
    rows = [row for row in found.rows if row.target == "small"]
    assert small.seen == sum(row.queries for row in rows) + COUNT + sum(row.n for row in rows)
    for row in rows:
        assert (row.n_images, row.n) == (COUNT, COUNT - 1)
    by_id = [line for line in records(tmp_path) if line["target"] == "small" and line["attack"] == "nes"]
    mine = [line for line in by_id if line["start"] == "none" and line["counts"]]
    won = [line["queries"] for line in mine if line["success"]]
    [row] = [row for row in rows if row.label == "nes"]
    assert row.asr == len(won) / 6
    assert row.mean_queries == pytest.approx(sum(won) / len(won))
    assert row.mean_queries_all == pytest.approx(sum(line["queries"] for line in mine) / 6)
    assert {line["id"] for line in by_id if not line["counts"]} == {"p2"}


def test_each_cell_is_the_attack_from_the_start_on_disk(tmp_path: Path) -> None:
    run(tmp_path)
    x, y, ids = images()
    some = [0, 1]  # the first block without the image that does not count
    starts = RunFolder(tmp_path / "starts").load("ai-dim", "surrogate", ids)
    made = whorl.attack("nattack", eps=6 / 255, budget=420, init=starts[some])
    _, info = made(classifier(small_net(), "small"), x[some], y[some], ids=["p0", "p1"], return_info=True)
    assert info.queries is not None
    cell = {"target": "small", "attack": "nattack", "start": "ai-dim"}
    found = [line for line in records(tmp_path) if cell.items() <= line.items() and line["id"] in ("p0", "p1")]
    assert [line["queries"] for line in found] == info.queries.tolist()
    assert [line["success"] for line in found] == info.success.tolist()


def test_files_hold_the_rows(tmp_path: Path) -> None:
    found = run(tmp_path, attacks=["nes"])
    rows = list(csv.DictReader((tmp_path / "table7.csv").open()))
    content = json.loads((tmp_path / "table7.json").read_text())
    assert [row["attack"] for row in rows] == [row.attack for row in found.rows]
    assert content["rows"] == [{**vars(row)} for row in found.rows]
    assert content["settings"]["budget"] == 420
    for finding in found.findings:
        assert finding["fewest_mean_queries_all"] in STARTS
        means = finding["mean_queries_all"]
        assert finding["saving_mean_queries_all"]["ai-dim"] == pytest.approx(
            1 - means["ai-dim"] / means["none"], abs=1e-4
        )


def test_a_limit_on_time_leaves_a_smaller_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", attacks=["nes"])
    watched = Watched(classifier(small_net(), "small"))
    # a clock that goes by what the target has seen: a second for a hundred images
    clock = SimpleNamespace(monotonic=lambda: watched.seen / 100, perf_counter=lambda: watched.seen / 100)
    with monkeypatch.context() as patch:
        for module in (query_table, worker):
            patch.setattr(module, "time", clock)
        part = run(tmp_path / "run", {"small": watched}, attacks=["nes"], time_limit=25)
    assert 2500 < watched.seen < 3200
    assert not part.complete
    assert part.discarded_queries > 0
    assert 0 < sum(row.n_images for row in part.rows) < 3 * COUNT
    rest = run(tmp_path / "run", attacks=["nes"])
    assert rest.complete
    assert records(tmp_path / "run") == records(tmp_path / "whole")
    assert [row.queries for row in rest.rows] == [row.queries for row in whole.rows]
    assert rest.discarded_queries == part.discarded_queries


KILLED = """
import os, signal, sys
from pathlib import Path
import runs.test_query_table as t
from whorl import Classifier

class Kills(Classifier):
    seen = 0
    def forward(self, x):
        Kills.seen += len(x)
        if Kills.seen > 2500:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

small = t.classifier(t.small_net(), "small")
small.__class__ = Kills
t.run(Path(sys.argv[1]), {"small": small}, attacks=["nes"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there, a process cannot be killed so")
def test_a_killed_table_goes_on(tmp_path: Path) -> None:
    targets: dict[str, nn.Module] = {"small": classifier(small_net(), "small")}
    run(tmp_path / "whole", targets, attacks=["nes"])
    environment = plain_environment(PYTHONPATH=str(Path(__file__).parents[1]), OMP_NUM_THREADS="1")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    cells = [path for path in (tmp_path / "run" / "cells").rglob("*.json") if "_clean" not in path.parts]
    assert 0 < len(cells) < 3 * 3  # of three starts and three blocks
    (tmp_path / "run" / ".images.jsonl.0000.part").write_text('{"attack": "nes", "st')  # as a killed write leaves it
    done = run(tmp_path / "run", targets, attacks=["nes"])
    assert records(tmp_path / "run") == records(tmp_path / "whole")
    assert done.discarded_queries > 0
    assert not list((tmp_path / "run").rglob("*.part"))


def test_more_may_be_asked_for_and_nothing_else_changed(tmp_path: Path) -> None:
    run(tmp_path, attacks=["nes"], starts=["none"], limits={"small": 2, "small+bitdepth": 2})
    found = run(tmp_path, attacks=[NOISE, "nes"], starts=["none", "fgsm"])
    assert [row.label for row in found.rows if row.target == "small"] == ["noise", "nes", "nes-fgsm"]
    assert {row.n_images for row in found.rows} == {COUNT}
    for settings, what in (({"eps": 5 / 255}, "eps"), ({"budget": 300}, "budget"), ({"seed": 1}, "seed")):
        with pytest.raises(WhorlError, match=f"made with other settings: {what}"):
            run(tmp_path, attacks=["nes"], starts=["none"], **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attacks": ["pgd"]}, "table 7 has score-based attacks: nes, .* got 'pgd'"),
        ({"starts": ["random"]}, "a start is 'none' or a gradient attack .* got 'random'"),
        ({"attacks": []}, "expected an attack and a start"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match=message):
        run(tmp_path, **settings)


def test_targets_by_name() -> None:
    assert set(default_targets()) >= {f"efficientnet_lite0+{name}" for name in whorl.defense_names()}
    net = Networks(torch.device("cpu"), seed=3).target("python:cli.toy_networks:small+jpeg")
    assert (net.name, net.seed) == ("small+jpeg", 3)
    with pytest.raises(WhorlError, match="unknown defense 'jpg'"):
        Networks(torch.device("cpu")).target("resnet18+jpg")
