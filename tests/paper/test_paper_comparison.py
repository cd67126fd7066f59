"""Ours beside the paper's: figures, orderings and what is said of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from paper.synthetic import Fooled, Synthetic
from whorl import paper
from whorl.evaluation import Comparison, Pose
from whorl.paper import Compared
from whorl.paper.export import (
    CSV_COLUMNS,
    LEVELS,
    as_json,
    cost_lines,
    level_rows,
    markdown,
    report_tables,
    write_csv,
)
from whorl.paper.orderings import judge

DEFENDED = ("efficientnet_lite0.ens-at", "efficientnet_lite0.alp")


def compared(
    name: str, fooled: Fooled, *, recognised: int = 150, profile: str = "offline", **options: object
) -> Compared:
    item = paper.load(name)
    declared = item.declaration(profile, **({"present": DEFENDED} | options))
    done = Synthetic(declaration=declared, fooled=fooled, recognised=recognised)
    return paper.compare_with_printed(item, done, profile)


def invariant_wins(attack: str, source: str, target: str, pose: Pose) -> int:
    return 120 if attack.startswith("ai-") else 60


def all_level(attack: str, source: str, target: str, pose: Pose) -> int:
    return 100


@pytest.mark.parametrize(
    ("printed", "b", "c", "verdict"),
    [
        (5.0, 20, 2, "agrees"),
        (-5.0, 20, 2, "differs"),
        (-5.0, 2, 20, "agrees"),
        (5.0, 2, 20, "differs"),
        (5.0, 3, 2, "level"),
        (-5.0, 0, 0, "level"),
        (0.0, 3, 2, "agrees"),
        (0.0, 20, 2, "differs"),
        (None, 20, 2, "unprinted"),
    ],
)
def test_an_ordering_is_judged(printed: float | None, b: int, c: int, verdict: str) -> None:
    assert judge(printed, Comparison(n=100, b=b, c=c)) == verdict


def test_nothing_recognised_is_no_verdict() -> None:
    assert judge(5.0, None) == judge(5.0, Comparison(n=0, b=0, c=0)) == "undefined"


def test_table_1_counts_every_pair_in_every_column() -> None:
    done = compared("table1", invariant_wins)
    # 5 poses x 4 targets x 5 pairs
    assert len(done.orderings) == 100
    by_verdict = {one.verdict for one in done.orderings}
    assert by_verdict == {"agrees", "differs"}
    # Where the paper has the plain attack above (fgsm and dim at 0°, on two networks for Inc-v4) or level.
    other_way = [(one.first, one.where) for one in done.differing]
    assert other_way == [
        ("ai-dim", "resnet18, θ=-30°"),
        ("ai-fgsm", "resnet18, θ=0°"),
        ("ai-pgd", "resnet18, θ=0°"),
        ("ai-mim", "resnet18, θ=0°"),
        ("ai-dim", "resnet18, θ=0°"),
        ("ai-dim", "mobilenet_v2, θ=0°"),
        ("ai-dim", "efficientnet_lite0, θ=0°"),
    ]
    assert done.summary.startswith("93 of 100 orderings agree with the paper, 7 differ, 0 are not significant")


def test_level_attacks_agree_only_with_printed_ties() -> None:
    done = compared("table1", all_level)
    ties = [one for one in done.orderings if one.printed == 0]
    assert [(one.first, one.where) for one in ties] == [
        ("ai-dim", "resnet18, θ=-30°"),
        ("ai-pgd", "resnet18, θ=0°"),
        ("ai-mim", "resnet18, θ=0°"),
    ]
    assert all((one.verdict == "agrees") == (one.printed == 0) for one in done.orderings)
    assert "3 of 100 orderings agree with the paper, 0 differ, 97 are not significant" in done.summary


def test_figures_stand_beside_the_papers() -> None:
    done = compared("table1", invariant_wins)
    assert [block.title for block in done.blocks] == [
        "Inc-v3 → resnet18, white-box",
        "Inc-v4 → mobilenet_v2, crafted on Inc-v3 → resnet18",
        "Inc-v4 → efficientnet_lite0, crafted on Inc-v3 → resnet18",
        "Ens-AT → efficientnet_lite0.ens-at, crafted on Inc-v3 → resnet18",
    ]
    lines = {line.attack: line for line in done.blocks[1].lines}
    assert [value.ours for value in lines["ai-pgd"].values] == [80.0] * 6
    assert [value.printed for value in lines["ai-pgd"].values][:5] == [76.3, 66.3, 40.9, 66.8, 74.3]
    assert lines["ai-pgd"].values[5].printed == pytest.approx((76.3 + 66.3 + 40.9 + 66.8 + 74.3) / 5)
    # against dim, then against eot; the mean is no column of the paper's
    assert [value.marks for value in lines["ai-dim"].values] == ["✓✓", "✓✓", "✗✓", "✓✓", "✓✓", ""]
    for value in lines["pgd"].values:  # of a pose, and of the mean over all
        low, high = value.interval or (0, 0)
        assert low < 40 < high


def test_levels_are_compared_where_the_networks_are_the_papers_own_and_nowhere_else() -> None:
    done = compared("table1", invariant_wins, profile="inception", attacks=["pgd", "ai-pgd", "ri-pgd"])
    white, *others = done.blocks
    assert white.title == "Inc-v3 → inception_v3, white-box"
    lines = {line.attack: line for line in white.lines}
    assert [value.difference for value in lines["ai-pgd"].values] == [-5.2, -10.3, -20.0, -8.7, -4.6, -9.8]
    assert {value.difference for value in lines["ri-pgd"].values} == {None}
    assert {value.difference for block in others for line in block.lines for value in line.values} == {None}
    # 80.0 of 150 images, Wilson, less 85.2
    assert level_rows(white)[1][1] == "-5.2 (-12.3 to +0.4)"
    assert [row[0] for row in level_rows(white)] == ["pgd", "ai-pgd"]
    assert all(not level_rows(block) for block in others)
    assert "Of 12 levels on the paper's own networks 1 is within 5 points of the paper's" in done.summary
    assert "the farthest is pgd, θ=0°, by -60.0." in done.summary
    text = markdown(done)
    assert text.count(LEVELS) == 1
    assert "| `ri-pgd` (ours) |" in text
    assert "Ours, and not in the paper: ri-pgd." in text
    titles = [table.title for table in report_tables(done)]
    assert sum(title.endswith(": levels") for title in titles) == 1


@pytest.mark.parametrize(("name", "profile"), [("table1", "offline"), ("table6", "inception"), ("table6", "offline")])
def test_a_network_that_stands_for_another_has_no_level(name: str, profile: str) -> None:
    done = compared(name, invariant_wins, profile=profile)
    assert {value.difference for block in done.blocks for line in block.lines for value in line.values} == {None}
    assert "levels on the paper's own networks" not in done.summary


def test_table_8_has_levels_behind_the_defences_of_the_papers_network() -> None:
    done = compared("table8", invariant_wins, profile="inception")
    own = {block.targets[0] for block in done.blocks if level_rows(block)}
    defended = {f"inception_v3+{name}" for name in ("jpeg", "bitdepth", "resize-pad", "randmix")}
    assert own == {"inception_v3", *defended}


def test_table_4_is_about_means_and_costs() -> None:
    better = {Pose(angle=30), Pose(angle=15)}
    done = compared("table4", lambda attack, source, target, pose: 90 if attack == "eot" or pose in better else 60)
    [block] = done.blocks
    assert block.columns == (
        "Inc-v3 → resnet18",
        "Inc-v4 → mobilenet_v2",
        "Inc-v4 → efficientnet_lite0",
        "Ens-AT → efficientnet_lite0.ens-at",
    )
    eot, dim = block.lines
    assert [value.ours for value in eot.values] == pytest.approx([60.0] * 4)
    assert [value.ours for value in dim.values] == pytest.approx([(2 * 60 + 10 * 40) / 12] * 4)
    assert [value.printed for value in dim.values] == [94.0, 87.1, 87.1, 69.5]
    assert [value.marks for value in dim.values] == ["✗"] * 4
    said = list(cost_lines(done.costs))
    assert said[0] == "eot: 10 gradients an image, 500.0 s for 1,000 (the paper: 56,580 s)."
    assert said[2] == "eot takes 1 times the gradients, 1 times the seconds of ai-dim (the paper: 100 times)."


def test_table_6_has_a_block_a_source_and_a_column_a_defence() -> None:
    def fooled(attack: str, source: str, target: str, pose: Pose) -> int:
        return invariant_wins(attack, source, target, pose) + (10 if "+" in source else 0)

    done = compared("table6", fooled)
    single, ensemble = done.blocks
    assert ensemble.source == "resnet18+mobilenet_v2+efficientnet_lite1"
    assert single.columns[0] == "Ens-AT → efficientnet_lite0.ens-at"
    assert single.columns[2] == "JPEG → efficientnet_lite0+jpeg"
    assert [line.values[5].printed for line in single.lines][-3:] == [50.0, 43.2, 50.0]
    assert [line.values[5].printed for line in ensemble.lines][-3:] == [52.5, 51.3, 60.7]
    assert ensemble.lines[0].values[0].ours == pytest.approx(100 * 70 / 150)
    assert len(done.orderings) == 2 * 6 * 8
    assert {one.where for one in done.differing} == {
        "efficientnet_lite0.alp, crafted on resnet18",
        "efficientnet_lite0+randmix, crafted on resnet18",
        "efficientnet_lite0.alp, crafted on resnet18+mobilenet_v2+efficientnet_lite1",
        "efficientnet_lite0+jpeg, crafted on resnet18+mobilenet_v2+efficientnet_lite1",
        "efficientnet_lite0+resize-pad, crafted on resnet18+mobilenet_v2+efficientnet_lite1",
        "efficientnet_lite0+randmix, crafted on resnet18+mobilenet_v2+efficientnet_lite1",
    }


def test_a_surface_is_shown_by_its_cuts_and_counted_whole() -> None:
    def fooled(attack: str, source: str, target: str, pose: Pose) -> int:
        if pose == Pose():
            return 100
        return 90 if (attack == "ai-dim") == (pose.scale < 1.45) else 50

    done = compared("figure4", fooled)
    assert [block.title.partition(":")[0] for block in done.blocks] == [
        *("s=0.6", "s=0.8", "θ=-30°", "θ=-15°", "all 143 poses")
    ]
    assert done.blocks[0].columns[0] == "θ=-30°"
    assert len(done.blocks[0].columns) == 13
    assert done.blocks[2].columns == tuple(f"s={tenths / 10:g}" for tenths in range(5, 16))
    assert done.summary == (
        "ai-dim is above dim in 129 of 143 poses, below in 13, and not significantly apart in 1 (paired test, Holm, "
        "p ≥ 0.05). The paper printed no figures."
    )
    assert not done.differing
    [whole] = done.blocks[4].lines[1].values
    assert whole.ours == pytest.approx(100 * (129 * 90 + 13 * 50 + 100) / 143 / 150)


def test_a_missing_column_and_few_rows_are_told() -> None:
    done = compared("table1", all_level, present=(), attacks=["pgd", "ai-pgd"])
    assert len(done.blocks) == 3
    assert "Ens-AT is left out: no network called *.ens-at is there." in done.notes
    assert "Not run: fgsm, ai-fgsm, mim, ai-mim, dim, ai-dim, eot." in done.notes
    assert {one.first for one in done.orderings} == {"ai-pgd"}


def test_quick_eot_stands_in_the_row_of_eot_under_its_own_name() -> None:
    done = compared("table4", all_level, quick=True)
    assert done.blocks[0].lines[0].attack == "eot-quick"
    assert done.blocks[0].lines[0].values[0].printed == 77.9
    assert done.orderings[0].second == "eot-quick"
    assert any("eot-quick is EOT with 100 gradients" in note for note in done.notes)


def test_a_target_that_recognises_nothing_has_no_figures() -> None:
    done = compared("table3", lambda *_: 0, recognised=0)
    assert {one.verdict for one in done.orderings} == {"undefined"}
    assert all(value.ours is None for block in done.blocks for line in block.lines for value in line.values)
    assert "? " in markdown(done)


def test_everything_can_be_written_and_read_back(tmp_path: Path) -> None:
    done = compared("table3", invariant_wins)
    content = json.loads(json.dumps(as_json(done), allow_nan=False))
    assert content["blocks"][0]["lines"][1]["values"][0]["printed"] == 87.0
    assert {one["verdict"] for one in content["orderings"]} == {"agrees"}
    write_csv(tmp_path / "all.csv", [done, compared("table1", invariant_wins)])
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert len(rows) == 4 * 9 * 3 + 4 * 9 * 6
    assert (rows[0]["attack"], rows[0]["column"], rows[0]["ours"], rows[0]["printed"]) == (
        "fgsm",
        "m=n=5",
        "40.0",
        "76.1",
    )


def test_markdown_has_a_table_a_block_and_the_command() -> None:
    text = markdown(compared("table3", invariant_wins), command="whorl paper table3")
    assert text.startswith("### Table 3: Success rates under translation (kernel of the authors' code, σ = l/6)\n")
    assert "| `ai-dim` | 80.0 / 94.1 ✓✓ | 80.0 / 93.5 ✓✓ | 80.0 / 93.8 |" in text
    assert text.count("| n | 150 | 150 | 300 |") == 4
    assert text.count("| attack | m=n=5 | m=n=20 | mean |\n| --- | --- | --- | --- |") == 4
    assert "ai-dim against dim, then eot" in text
    assert text.endswith("```sh\nwhorl paper table3\n```\n")
