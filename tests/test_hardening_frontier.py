"""Shares of the way to hardened weights: measured and chosen on some images, measured on others, and put in place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import whorl
from whorl.data import save_image
from whorl.files import sha256_of
from whorl.hardening.student import blended
from whorl.models.defended import pack, unpack
from whorl.models.weights import state_dict_sha256

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import hardening_frontier

LAYER = "features.0.0.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a mobilenet_v2 whose first layer has another sign, and four photographs."""
    made = tmp_path_factory.mktemp("frontier")
    original = whorl.load_model("mobilenet_v2").net.state_dict()
    pack(made / "mobilenet_v2.best-at.safetensors", {LAYER: -original[LAYER]})
    (made / "mobilenet_v2.best-at.json").write_text(json.dumps({"steps": 7}))
    for image, label, name in zip(*whorl.load_samples(4, size=96), strict=True):
        save_image(made / "photos" / str(int(label)) / f"{name}.png", image)
    return made


def test_shares_are_chosen_by_what_they_lose_and_judged_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, chosen = folder / "mobilenet_v2.best-at.safetensors", folder / "choice.json"
    common = ["--weights", str(weights), "--data", str(folder / "photos"), "--device", "cpu", "--size", "96"]
    common += ["--n", "4", "--source", "mobilenet_v2"]
    first = [*common, "--attacks", "ai-best", "--eps", "8", "--shares", "0,0.01,1", "--json", str(chosen)]
    hardening_frontier.main([*first, "--most-lost", "3"])
    saved = json.loads(chosen.read_text())
    figures, choice = saved["choice"]["figures"], saved["choice"]
    names = ["mobilenet_v2", *(f"mobilenet_v2.best-at@{share}" for share in ("0", "0.01", "1"))]
    assert list(figures) == names
    assert figures["mobilenet_v2.best-at@0"][0] >= figures["mobilenet_v2.best-at@1"][0]
    lost = {name: figures["mobilenet_v2"][0] - figures[name][0] for name in names}
    assert lost[choice["chosen"]] <= 3
    least = min(figures[name][1] for name in names[1:] if lost[name] <= 3)
    assert figures[choice["chosen"]][1] == least
    assert saved["recognised"]["mobilenet_v2"]["ai-best-8"]["n"] == 4
    original = whorl.load_model("mobilenet_v2")
    original.net.load_state_dict({**original.net.state_dict(), **blended(original, unpack(weights), 1.0)})
    assert saved["metadata"]["weights_sha256"]["mobilenet_v2.best-at@1"] == state_dict_sha256(original.net)

    capsys.readouterr()
    hardening_frontier.main([*first, "--most-lost", "100"])  # nothing is measured again
    assert "ai-best-8  " not in capsys.readouterr().out

    judged = folder / "judged.json"
    second = [*common, "--attacks", "mim", "--eps", "8", "--choice", str(chosen), "--shares", "1"]
    with pytest.raises(KeyError):
        hardening_frontier.main([*second, "--json", str(judged)])  # not an attack of the comparison
    hardening_frontier.main([*second, "--attacks", "dim", "--seconds", "0", "--json", str(judged)])
    assert "dim-8 and what follows are not measured" in capsys.readouterr().out
    hardening_frontier.main([*second, "--attacks", "dim", "--json", str(judged)])
    found = json.loads(judged.read_text())
    share = json.loads(chosen.read_text())["choice"]["share"]
    assert list(found["recognised"])[:2] == ["mobilenet_v2", f"mobilenet_v2.best-at@{share:g}"]
    assert "choice" not in found
    with pytest.raises(SystemExit, match="holds other photographs or networks"):
        hardening_frontier.main([*second, "--n", "3", "--json", str(judged)])


def test_what_was_chosen_is_put_in_place(folder: Path, tmp_path: Path) -> None:
    weights = tmp_path / "mobilenet_v2.best-at.safetensors"
    for file in (weights, weights.with_suffix(".json")):
        file.write_bytes((folder / file.name).read_bytes())
    before = sha256_of(weights)
    chosen = tmp_path / "choice.json"
    chosen.write_text(json.dumps({"choice": {"share": 0.25}, "metadata": {"data": "photos"}}))
    hardening_frontier.main(["--keep", str(chosen), "--weights", str(weights)])
    assert sha256_of(tmp_path / "trained" / weights.name) == before
    layer = whorl.load_model("mobilenet_v2").net.state_dict()[LAYER]
    torch.testing.assert_close(unpack(weights)[LAYER], 0.5 * layer, rtol=2e-3, atol=1e-4)
    record = json.loads(weights.with_suffix(".json").read_text())
    assert record == {"steps": 7, "blend": 0.25, "blend_chosen_on": "photos"}
    with pytest.raises(SystemExit, match="has been put in place already"):
        hardening_frontier.main(["--keep", str(chosen), "--weights", str(weights)])
