"""Table 7: queries beside the paper's, and who needs fewer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whorl
from cli.invoking import invoke
from paper.toys import SMALL, toy_images
from whorl import paper
from whorl.paper.cast import Profile, cast
from whorl.paper.declaration import PaperOptions
from whorl.paper.queries import compare_queries, reproduce_queries
from whorl.runs.query_rows import QueryRow

TARGET = "efficientnet_lite0+jpeg"


def row(start: str, queries: float | None, *, asr: float | None = 0.5) -> QueryRow:
    return QueryRow(
        attack="nes",
        start=start,
        target=TARGET,
        n_images=20,
        n=16,
        n_success=8,
        asr=asr,
        mean_queries=queries,
        mean_queries_all=None,
        median_queries_all=None,
        n_start_success=0,
        n_saved_success=0,
        queries=0,
        seconds=0.0,
    )


def spent(first: int, second: int) -> dict[str, dict[str, int]]:
    """So many queries on each of 12 images, from AI-DIM and from nothing."""
    names = [str(i) for i in range(12)]
    return {f"nes-ai-dim {TARGET}": dict.fromkeys(names, first), f"nes {TARGET}": dict.fromkeys(names, second)}


@pytest.mark.parametrize(("first", "second", "verdict"), [(9, 90, "agrees"), (90, 9, "differs"), (9, 9, "level")])
def test_fewer_queries_are_better(first: int, second: int, verdict: str) -> None:
    item = paper.load("table7")
    who = cast(item, paper.load_profile("offline"), present=())
    rows = [row("none", second), row("ai-dim", first)]
    done = compare_queries(item, rows, spent(first, second), who, "offline")
    [one] = done.orderings
    assert (one.first, one.second, one.where) == ("nes-ai-dim", "nes", TARGET)
    assert one.printed == 6126 - 423
    assert one.ours == second - first
    assert one.verdict == verdict
    rates, queries = done.blocks
    assert [line.attack for line in rates.lines] == ["nes", "nes-ai-dim"]
    assert (rates.lines[1].values[0].ours, rates.lines[1].values[0].printed) == (50.0, 97.1)
    assert (queries.lines[0].values[0].ours, queries.lines[0].values[0].printed) == (second, 6126)
    assert queries.lines[1].values[0].marks == {"agrees": "✓", "differs": "✗", "level": "~"}[verdict]
    assert queries.lines[1].values[1].ours is None  # the other targets were not tried
    assert "Not run: nes-pgd" in " ".join(done.notes)


def test_no_success_has_no_queries() -> None:
    item = paper.load("table7")
    who = cast(item, paper.load_profile("offline"), present=())
    done = compare_queries(item, [row("none", None, asr=0.0), row("ai-dim", None, asr=None)], {}, who, "offline")
    assert done.blocks[1].lines[0].values[0].ours is None
    assert done.blocks[0].lines[0].values[0].ours == 0
    assert done.blocks[0].lines[1].values[0].ours is None
    assert done.orderings[0].verdict == "undefined"


def test_small_networks_from_end_to_end(tmp_path: Path) -> None:
    profile = Profile(name="toys", size=18, networks={"ensemble": (SMALL,), "jpeg": (f"{SMALL}+jpeg",)})
    data = toy_images(tmp_path, 6)
    rows = ["nes", "nes-ai-dim", "nattack-pgd"]
    options = PaperOptions(profile=profile, data=data, attacks=rows, device="cpu")
    done = reproduce_queries(paper.load("table7"), tmp_path / "run", options, budget=120)
    assert [line.attack for line in done.blocks[0].lines] == rows
    lines = (tmp_path / "run" / "images.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record.get("counts")]
    for line, queries in zip(*(block.lines for block in done.blocks), strict=True):
        attack, _, start = line.attack.partition("-")
        own = [r for r in records if (r["attack"], r["start"]) == (attack, start or "none")]
        won = [record["queries"] for record in own if record["success"]]
        assert line.values[0].ours == pytest.approx(100 * len(won) / len(own))
        assert queries.values[0].ours == (pytest.approx(sum(won) / len(won)) if won else None)
    assert [(one.first, one.second) for one in done.orderings] == [("nes-ai-dim", "nes")]
    assert "At most 120 queries an image, not 10,000." in done.notes
    made = json.loads((tmp_path / "run" / "starts" / "manifest.json").read_text())["crafted"]
    [start] = [entry for entry in made.values() if entry["attack"] == "ai-dim"]
    assert start["settings"]["estimator"]["sigma"] == "reference"
    assert start["repr"] == repr(whorl.attack("ai-dim", estimator=whorl.AffineInvariant(sigma="reference")))


@pytest.mark.parametrize(
    ("words", "problem"),
    [(("--engine", "ray"), "table7 runs on the engine local only"), (("--report",), "there is no HTML report")],
)
def test_what_it_cannot_do_is_said(words: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    result = invoke("paper", "table7", "--limit", "1", "--out", str(tmp_path / "run"), *words)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert not (tmp_path / "run").exists()
