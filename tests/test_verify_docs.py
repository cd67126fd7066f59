"""Figures of the pages come from committed data, and a figure that does not is found."""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from paper.toys import OTHER, SMALL, toy_images
from whorl import paper

ROOT = Path(__file__).parents[1]
LEAST_FIGURES = 10_000


@pytest.fixture
def verify_docs(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """benchmarks/verify_docs.py, which only the scripts beside it can import by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import verify_docs

    yield verify_docs
    for name in [name for name in sys.modules if name == "verify_docs" or name.startswith("doc_")]:
        if name != "doc_pages":
            sys.modules.pop(name, None)


def test_all_pages_agree_with_the_data(verify_docs: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_docs.main([]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert int(said.split()[0]) >= LEAST_FIGURES
    assert said.rstrip().endswith("0 differences")


PAGE = """# A page

Crafted on resnet18, ε = 16/255, torch 2.11.

<!-- measured: accuracy -->
| network | none | `jpeg` |
|---|---|---|
| resnet18 | 83.0 | 80.0 |

<!-- settings -->
A step of 0.25 is a setting.
"""


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ((), None),
        (("| 83.0 |", "| 83.1 |"), "83.1, and the data says 83.0"),
        (("| 83.0 |", "| 83.1 90.0 |"), "and the data says [83.0]"),
        (("| 83.0 |", "| – |"), "empty, and there is data"),
        (("torch 2.11.", "torch 2.11. It gains 3 points."), "neither recomputed nor declared"),
        (("torch 2.11.", "torch 2.11, with 99.4 in the mean."), "neither recomputed nor declared"),
        (("torch 2.11.", "torch 2.11, in 12 ms."), "neither recomputed nor declared"),
        (("measured: accuracy", "measured: nothing"), "no table 'nothing'"),
        (("| resnet18 |", "| resnet19 |"), "no data"),
    ],
)
def test_what_differs_or_is_not_covered_is_found(
    verify_docs: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str] | tuple[()],
    found: str | None,
) -> None:
    monkeypatch.setattr(verify_docs, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE.replace(*change) if change else PAGE)
    page = verify_docs.verify("page.md")
    if found is None:
        assert (page.differences, page.figures) == ([], 2)
    else:
        assert any(found in line for line in page.differences), page.differences


# Wrong figures where a reader finds them: page, what stands there, what is put in its place.
PLANTED = {
    "a sentence in bold": (
        "README.md",
        "On inception_v3 `ai-best` with 10",
        "**`ai-best` gains 3.4 points.** On it with 10",
    ),
    "a claim without a figure": (
        "README.md",
        "## Quick start",
        "`ai-best` is significantly ahead of EOT.\n\n## Quick start",
    ),
    "a count in words, in place of an image": (
        "README.md",
        "ai-best in six poses of eight",
        "ai-best in seven poses of eight",
    ),
    "a count in digits": ("docs/index.md", "## Start", "It fools 9 of the 10 networks.\n\n## Start"),
    "how many images": ("docs/frontier.md", "192 NIPS17 images", "500 NIPS17 images"),
    "how many gradients": ("docs/frontier.md", "with 10 gradients it is", "with 20 gradients it is"),
    "the bound": ("docs/results/photographed.md", "ε = 16/255", "ε = 46/255"),
    "an integer of a table's label": ("docs/results/held-out.md", "of 6,000", "of 5,000"),
    "what the paper printed": ("docs/results/eot.md", "94.7 / 94.0 ✗", "94.7 / 84.0 ✗"),
    "a level": ("docs/results/kernels.md", "+10.7 (+8.5 to +13.4)", "+10.7 (+8.5 to +12.4)"),
    "a mark": ("docs/results/eot.md", "94.7 / 94.0 ✗", "94.7 / 94.0 ✓"),
    "a table without a comment": ("docs/frontier.md", "<!-- measured: frontier-eot -->\n", ""),
    "below a table of settings": (
        "docs/frontier/ai-best.md",
        "so a change of a fifth does not matter",
        "which gains 1.3 points",
    ),
    "another library's gain": ("docs/interop/art.md", "15.8 points", "18.8 points"),
    "that a network has met an attack": ("docs/hardening/frontier.md", ", met", ""),
    "a claim beside another network": ("docs/hardening/frontier.md", "in 12 of 20 cells", "in 13 of 20 cells"),
    "a training": ("docs/hardening/weights.md", "| 0.05 | 203 | 506 |", "| 0.05 | 203 | 560 |"),
    "an interval's end": ("docs/results/gains.md", "(+", "(+9"),
    "n below a table": ("docs/models.md", "n = 500; [behind", "n = 600; [behind"),
    "a goal that is missed": ("docs/results/other-sources.md", "2 of 20 ✗", "2 of 20 ✓"),
    "another source's difference": ("docs/results/other-sources.md", "+11.1 (+9.5", "+11.9 (+9.5"),
    "what a rival spends": ("docs/frontier/rivals.md", "| `OPS` | 9,010 |", "| `OPS` | 2,010 |"),
    "a rival's lead": ("docs/frontier/rivals-leads.md", "| `OPS` | +15.5", "| `OPS` | +51.5"),
    "a hit rate": ("docs/results/targeted.md", "| `CFM` | 299 | 33.8", "| `CFM` | 299 | 38.8"),
    "clean images behind a defence": (
        "docs/results/behind-defences.md",
        "| recognised clean | – | ",
        "| recognised clean | – | 1",
    ),
    "what the ensemble gains": (
        "docs/results/behind-defences.md",
        "the ensemble is significantly ahead in ",
        "the ensemble is significantly ahead in 9",
    ),
    "behind a defence, in no more poses": ("docs/results/behind-defences.md", " behind in ", " behind in 2"),
    "how often an interval holds": ("docs/evaluation.md", "94 to 95% of cases", "95 to 96% of cases"),
    "a loop's time": ("docs/speed.md", "takes 0.63 times", "takes 0.50 times"),
    "a file's size": ("docs/data.md", "(1.7 MB)", "(1.5 MB)"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_wrong_figure_is_found_wherever_it_is_planted(
    verify_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path, there, wrong = PLANTED[what]
    text = (ROOT / path).read_text(encoding="utf-8")
    assert there in text
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text.replace(there, wrong, 1), encoding="utf-8")
    monkeypatch.setattr(verify_docs, "ROOT", tmp_path)
    assert verify_docs.verify(path).differences, what


def test_no_page_is_left_out(verify_docs: ModuleType) -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} | {"README.md"}
    assert set(verify_docs.doc_figures.PAGES) == pages


def test_sentences_and_claims_must_be_there_and_true(
    verify_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_docs, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("It gains 1,234.5\npoints. It is ahead.\n")
    figures = verify_docs.doc_figures
    monkeypatch.setattr(figures, "SENTENCES", {"page.md": [("gains {} points", lambda: [1234.46])]})
    monkeypatch.setattr(figures, "CLAIMS", {"page.md": [("It is ahead.", lambda: True)]})
    assert verify_docs.verify("page.md").differences == []
    monkeypatch.setattr(figures, "SENTENCES", {"page.md": [("gains {} points", lambda: [1234.4]), ("lost", list)]})
    monkeypatch.setattr(figures, "CLAIMS", {"page.md": [("It is ahead.", lambda: False)]})
    said = verify_docs.verify("page.md", write=True).differences
    assert len(said) == 3
    assert "gains 1,234.4\npoints" in (tmp_path / "page.md").read_text()


def test_held_out_rates_follow_from_the_packed_outcomes(verify_docs: ModuleType) -> None:
    """The definition, literally, without whorl: of what is recognised clean in a pose, the share that no longer is."""
    data = json.loads((ROOT / "benchmarks/results/held-out-resnet18-cuda.json").read_text())
    poses, target, attack = len(data["poses"]), "efficientnet_lite1", "ai-best"
    stored = data["recognised"][target]
    n = min(cells[name]["n"] for cells in data["recognised"].values() for name in cells if name.endswith("-16"))

    def outcomes(name: str) -> list[list[int]]:
        bits = "".join(f"{byte:08b}" for byte in base64.b64decode(stored[name]["bits"]))
        width = stored[name]["n"]
        return [[int(bit) for bit in bits[p * width : (p + 1) * width]][:n] for p in range(poses)]

    clean, after = outcomes("clean"), outcomes(f"{attack}-16")
    eligible = [(p, i) for p in range(poses) for i in range(n) if clean[p][i]]
    rate = 100 * sum(not after[p][i] for p, i in eligible) / len(eligible)
    assert verify_docs.doc_figures.success(target, attack)[0] == pytest.approx(rate)
    assert len(set(data["ids"])) == len(data["ids"]) >= n


def test_held_out_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks and images stand for the real ones; the outcomes are those of the product's evaluation."""
    import torch
    from PIL import Image

    import whorl
    from whorl.evaluation import PAPER_POSES, AttackedImages, outcomes

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import held_out
    from judge import packed

    generator = np.random.default_rng(0)
    for label in range(4):
        (tmp_path / "images" / f"{label:03d}").mkdir(parents=True)
        pixels = generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{label:03d}" / "0.png")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 24 * 24, 4))
    small = whorl.Classifier.from_module(net, size=24, mean=(0.5,) * 3, std=(0.5,) * 3, name="small")
    monkeypatch.setattr(whorl, "load_model", lambda name, device: small)
    monkeypatch.setattr(held_out, "TARGETS", ("small",))
    monkeypatch.setattr(held_out, "ATTACKS", {"fgsm": ("fgsm", {})})
    monkeypatch.setattr(held_out, "SIZES", {"cpu": (2, 2)})

    def run(limit: int) -> dict[str, object]:
        folders = ["--data", str(tmp_path / "images"), "--work", str(tmp_path / "work")]
        more = ["--size", "24", "--limit", str(limit), "--attacks", "fgsm", "--device", "cpu"]
        held_out.main([*folders, "--json", str(tmp_path / "made.json"), *more])
        made: dict[str, object] = json.loads((tmp_path / "made.json").read_text())
        return made

    assert run(2)["recognised"]["small"]["fgsm-16"]["n"] == 2  # type: ignore[index]  # JSON
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npy")}
    made = run(4)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    data = held_out.shuffled(str(tmp_path / "images"), 24, 0, torch.device("cpu"))
    adv = whorl.attack("fgsm")(small, data.x, data.y, seed=0, ids=data.ids)
    done = outcomes([AttackedImages(data.x, {"fgsm": adv}, data.y, data.ids)], {"small": small}, PAPER_POSES)
    for name, expected in (("clean", done.clean[0]), ("fgsm-16", done.adversarial[0, 0])):
        bits = {"n": 4, "bits": packed(expected.numpy())}
        assert made["recognised"]["small"][name] == bits  # type: ignore[index]  # JSON
    assert made["ids"] == data.ids
    assert made["settings"]["fgsm-16"]["eps"] == 16 / 255  # type: ignore[index]  # JSON


@pytest.mark.usefixtures("verify_docs")
def test_attacks_measured_again_take_the_place_of_their_own_cells_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import held_out
    from judge import packed, unpacked
    from whorl.errors import WhorlError

    path, fresh = tmp_path / "held-out.json", tmp_path / "new.json"
    before = json.loads((ROOT / "benchmarks/results/held-out-resnet18-cuda.json").read_text())
    path.write_text(json.dumps(before))
    new = json.loads(json.dumps(before))
    already = before["metadata"].pop("merged", [])
    new["metadata"] |= {"commit": "later"}
    new["settings"]["ai-best-16"]["steps"] = 11
    poses, n = len(before["poses"]), len(before["ids"])
    for target, cells in new["recognised"].items():
        again = {"n": n, "bits": packed(~unpacked(before["recognised"][target]["ai-best-16"], poses))}
        new["recognised"][target] = {"clean": cells["clean"], "ai-best-16": again}
    fresh.write_text(json.dumps(new))
    held_out.main(["--merge", str(fresh), "--json", str(path)])
    after = json.loads(path.read_text())
    for target, cells in after["recognised"].items():
        assert cells["ai-best-16"] == new["recognised"][target]["ai-best-16"]
        assert cells | {"ai-best-16": None} == before["recognised"][target] | {"ai-best-16": None}
    assert after["settings"] == before["settings"] | {"ai-best-16": new["settings"]["ai-best-16"]}
    earlier = [(one["commit"], [cell for cell in one["cells"] if cell != "ai-best-16"]) for one in already]
    merged = [(one["commit"], one["cells"]) for one in after["metadata"].pop("merged")]
    assert merged == [*earlier, ("later", ["ai-best-16"])]
    assert after["metadata"] == before["metadata"]

    clean = unpacked(new["recognised"]["mobilenet_v2"]["clean"], poses)
    clean[0, :7] ^= True
    for changed, said in (
        ({"ids": new["ids"][::-1]}, "names differ"),
        ({"metadata": new["metadata"] | {"seed": 1}}, "seed is 0 in the one, 1 in the other"),
        ({"recognised": {}}, "no attack"),
        ({"recognised": {k: v for k, v in new["recognised"].items() if k != "resnet18"}}, "resnet18 has not been"),
        (
            {
                "recognised": new["recognised"]
                | {"mobilenet_v2": new["recognised"]["mobilenet_v2"] | {"clean": {"n": n, "bits": packed(clean)}}}
            },
            "7 clean outcomes of mobilenet_v2 differ",
        ),
    ):
        with pytest.raises(WhorlError, match=said):
            held_out.merged(before, {**new, **changed})


@pytest.mark.usefixtures("verify_docs")
def test_the_statistics_agree_with_plain_numpy() -> None:
    """A second reading of the definitions, which imports nothing of whorl: rates, BCa intervals, exact tests."""
    import doc_outcomes
    import recompute_held_out as plain

    data = json.loads((ROOT / "benchmarks/results/held-out-resnet18-cuda.json").read_text())
    n = doc_outcomes.photographs(16)
    for target in ("efficientnet_lite1", "efficientnet_lite0.ai-at"):
        ours = doc_outcomes.gain(target, "ri-dim", "dim")
        expected = plain.compared(data, target, "ri-dim-16", "dim-16", n)
        assert (ours.difference, *ours.interval) == pytest.approx(expected[:3], abs=1e-5)
        assert ours.p_value == pytest.approx(expected[3], rel=1e-6)
        counts = plain.counts(data, target, "dim-16", n)

        def pooled(weights: np.ndarray, counts: tuple[np.ndarray, np.ndarray] = counts) -> np.ndarray:
            share: np.ndarray = weights @ counts[1] / (weights @ counts[0])
            return share

        value = float(pooled(np.ones(n)))
        ends = 100 * plain.interval(value, pooled, n)
        assert doc_outcomes.success(target, "dim") == pytest.approx([100 * value, *ends], abs=1e-3)


DEFENDED = f"""
name = "defended"
size = 18
[networks]
white = ["{SMALL}"]
black = ["{OTHER}"]
white_jpeg = ["{SMALL}+jpeg"]
single = ["{SMALL}"]
ensemble = ["{OTHER}"]
ens_at = ["{OTHER}"]
jpeg = ["{OTHER}+jpeg"]
"""


def test_outcomes_of_several_sources_and_of_figures_are_read(
    verify_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import doc_data
    import doc_paper

    (tmp_path / "defended.toml").write_text(DEFENDED)
    options = paper.PaperOptions(profile=tmp_path / "defended.toml", data=toy_images(tmp_path, 30), device="cpu")
    (tmp_path / "paper").mkdir()
    figures, counts = {}, {}
    for name in ("table6", "figure4", "figure7"):
        made = paper.reproduce(name, tmp_path / "run", options).files
        (tmp_path / "paper" / f"{name}-toys-outcomes.json").write_bytes(made["outcomes"].read_bytes())
        figures[name], counts[name] = (
            list(csv.DictReader(made[kind].read_text().splitlines())) for kind in ("figures", "cells")
        )
    for module in (doc_data, doc_paper):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    tables = verify_docs.doc_figures.TABLES

    assert {row["source"] for row in figures["table6"]} == {SMALL, OTHER}
    for row in figures["table6"]:
        found = tables["paper-outcomes-targets"]("table6-toys", f"source={row['source']}")(row, row["column"])
        assert [*found, *found.printed] == pytest.approx([float(row["ours"]), float(row["printed"])], abs=1e-3)
        assert found.marks == row["marks"]
    with pytest.raises(ValueError, match="too many"):  # which source is meant must be said
        tables["paper-outcomes-targets"]("table6-toys")

    means = [row for row in figures["figure7"] if row["column"] == "mean" and row["target"] == f"{SMALL}+jpeg"]
    assert len(means) == 9
    for row in means:
        found = tables["figure7"]("figure7-toys")({"size": row["attack"].rpartition("-")[2]}, row["target"])
        assert found == pytest.approx([float(row["ours"])], abs=1e-3)

    cut = [row for row in counts["figure4"] if row["scale"] == "0.6"]
    assert len(cut) == 2 * 13
    for row in cut:
        found = tables["paper"]("figure4-toys", "scale=0.6")(row, f"θ={float(row['angle']):.0f}°")
        assert list(found) == pytest.approx([100 * float(row["asr"])], abs=1e-3)
