"""What a training leaves: weights that load anywhere, a manifest, a report, and the comparison with the original."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import whorl
from hardening_cases import CLASSES, SIZE, toy, toy_images, toy_net
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, Pose, success_rates
from whorl.files import sha256_of
from whorl.hardening import harden
from whorl.hardening.gain import draw, measure_gain
from whorl.hardening.report import write_training_report
from whorl.hardening.student import blended


def test_training_needs_little_of_a_bare_gpu_machine() -> None:
    absent = ["plotly", "typer", "pydantic", "yaml"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}));"
        "import torch; from hardening_cases import toy, toy_images; from whorl.hardening import harden;"
        "harden(toy(), toy_images(), 'pgd-at', steps=1, batch=8, device='cpu')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_folder_holds_everything(tmp_path: Path) -> None:
    done = harden(toy(), toy_images(), "pgd-at", out=tmp_path, steps=4, batch=12, held_out=10, reports=2, device="cpu")
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["name"] == "toy0.pgd-at"
    assert manifest["weights"]["sha256"] == sha256_of(tmp_path / "weights.safetensors")
    assert [entry["step"] for entry in manifest["history"]] == [2, 4]
    assert {"clean", "white_box", "loss", "lr", "seconds"} <= manifest["history"][-1].keys()
    # Anyone can load them: a whole state dict, without whorl's help.
    from safetensors.torch import load_file

    net = toy_net(seed=5)
    net.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    x = torch.rand(3, 3, SIZE, SIZE)
    torch.testing.assert_close(net.eval()((x - 0.5) / 0.25), done.classifier(x))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "toy0.pgd-at" in page
    assert "PGD on the student" in page


def test_the_report_needs_no_network_and_escapes_names(tmp_path: Path) -> None:
    history = [
        {"step": 1.0, "loss": 2.0, "clean": 0.5, "transfer": 0.25},
        {"step": 2.0, "loss": 1.0, "clean": 0.75, "transfer": 0.5},
    ]
    path = tmp_path / "report.html"
    write_training_report(path, name="<b>mine</b>", history=history, about={"recipe": "a < b"}, seconds=3.0)
    page = path.read_text(encoding="utf-8")
    assert "<b>mine</b>" not in page
    assert "a &lt; b" in page
    assert "clean: 75.0%" in page
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(?:https?:)?//", page)
    curves = re.findall(r'"name":"([^"]+)"', page)
    assert "clean" in curves
    assert any("MIM" in name for name in curves)
    write_training_report(path, name="none", history=[], about={}, seconds=0.0)
    assert "No measurements yet" in path.read_text(encoding="utf-8")


def test_blending_is_a_straight_line() -> None:
    original = toy()
    done = harden(original, toy_images(), "pgd-at", steps=4, batch=12, held_out=0, device="cpu", lr=0.05)
    start, end = original.net.state_dict(), done.learned
    half = blended(original, end, 0.5)
    assert half.keys() == end.keys()
    for name, tensor in half.items():
        torch.testing.assert_close(tensor, (start[name] + end[name]) / 2)
    assert all(torch.equal(tensor, end[name]) for name, tensor in blended(original, end, 1).items())
    assert all(torch.equal(tensor, start[name]) for name, tensor in blended(original, end, 0).items())


def test_the_comparison_counts_as_the_evaluation_does() -> None:
    images = toy_images(28, seed=3)
    x = torch.nn.functional.interpolate(images.pixels / 255, (SIZE, SIZE), mode="bilinear")
    y, ids = images.labels, list(images.ids)
    batches = [(x[i : i + 14], y[i : i + 14], ids[i : i + 14]) for i in (0, 14)]
    seen: list[int] = []
    gain = measure_gain(
        (toy(0), toy(2)),
        toy(1),
        batches,
        attacks=("fgsm", "ai-mim"),
        eps=0.1,
        progress=lambda stage, done, total: seen.append(done),
    )
    adv = {name: whorl.attack(name, eps=0.1)(toy(1), x, y, ids=ids) for name in ("fgsm", "ai-mim")}
    counts = success_rates({"a": toy(0), "b": toy(2)}, x, adv, y, poses=PAPER_POSES)
    assert seen == [14, 28]
    assert (gain.n, gain.poses) == (28, 12)
    for row in gain.rows:
        for place, target in enumerate("ab"):
            assert row.identity[place] == counts[row.attack, target, Pose()].rate
            rates = [counts[row.attack, target, pose] for pose in PAPER_POSES]
            defined = [count.rate for count in rates if count.n_clean_correct]
            assert row.posed[place] == pytest.approx(sum(defined) / len(defined))
            assert gain.clean[place] == counts[row.attack, target, Pose()].clean_accuracy
    record = json.loads(json.dumps(gain.record(), allow_nan=False))
    assert record["attacks"]["fgsm"]["identity"]["hardened"] == gain.rows[0].identity[1]
    with pytest.raises(WhorlError, match="at least one attack"):
        measure_gain((toy(0), toy(2)), toy(1), batches, attacks=())


def test_the_comparison_can_be_drawn(tmp_path: Path) -> None:
    images = toy_images(CLASSES)
    x = torch.nn.functional.interpolate(images.pixels / 255, (SIZE, SIZE), mode="bilinear")
    gain = measure_gain(
        (toy(0), toy(2)), toy(1), [(x, images.labels, images.ids)], attacks=("fgsm",), poses=[Pose(angle=20)]
    )
    draw(gain, tmp_path / "comparison.html")
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert f"The gain of hardening: {gain.hardened}" in page
    assert "fooled, mean over 1 poses" in page
    with pytest.raises(WhorlError, match="cannot write"):
        draw(gain, tmp_path / "comparison.html" / "below" / "a.html")
