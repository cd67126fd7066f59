"""The words of the headline, case by case."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from report.made_up import cell, rate
from whorl.evaluation import Comparison, Pose, SuccessRate
from whorl.report import Content, headline
from whorl.runs.results import Cell

TURNED = Pose(angle=30)


def content(*cells: Cell, comparisons: dict[tuple[str, str, str, str], Comparison] | None = None) -> Content:
    return Content(title="t", cells=cells, comparisons=comparisons or {})


def two(first: int, second: int, *, n: int = 200) -> list[Cell]:
    """dim and ai-dim on one black-box target in two poses, with so many successes each."""
    return [
        cell(attack, "net-b", rate(count, n, n), pose=pose)
        for attack, count in (("dim", first), ("ai-dim", second))
        for pose in (Pose(), TURNED)
    ]


def test_nothing_was_measured() -> None:
    assert headline(content()).statement == "Nothing was measured."


def test_the_best_is_named_with_its_lead_and_the_interval_of_each() -> None:
    found = headline(content(*two(100, 150)))
    assert re.fullmatch(
        r"ai-dim fools networks that it was not crafted on most often: in 75\.0% \(95% interval \S+ to \S+%\) of "
        r"cases, pooled over 2 poses of net-b; dim in 50\.0% \(95% interval \S+ to \S+%\)\. "
        r"The difference is \+25\.0 points "
        r"\(95% interval \+\S+ to \+\S+; p < 0\.001\)\.",
        found.statement,
    )
    assert found.details == ("Measured on 200 images.",)


def test_a_loss_of_the_invariant_attack_is_said_as_plainly() -> None:
    assert headline(content(*two(150, 100))).statement.startswith("dim fools")


def test_nothing_is_called_ahead_unless_the_test_says_so() -> None:
    close = headline(content(*two(120, 123))).statement
    assert close.startswith(
        "ai-dim and dim do not differ significantly on networks that they were not crafted on: 61.5% ("
    )
    assert close.endswith("the difference is +1.5 points (95% interval +0.0 to +4.0; p = 0.25).")
    assert "ahead" not in close
    assert headline(content(*two(120, 120))).statement.startswith("dim and ai-dim do not differ significantly")


def test_one_of_many_needs_more_to_be_ahead() -> None:
    """Six images more of 200 are significant between two attacks, and are not where twelve were tried."""
    pair = two(120, 126)
    assert "most often" in headline(content(*pair)).statement
    many = [cell(f"other{i}", "net-b", rate(60 + 5 * i), pose=pose) for i in range(10) for pose in (Pose(), TURNED)]
    statement = headline(content(*pair, *many)).statement
    assert "ai-dim and dim do not differ significantly" in statement
    level = headline(content(*pair, *two_of("third", 124))).statement
    assert "is not significantly ahead of third and dim" in level
    # The interval is not corrected and may exclude 0: whoever reads the two must know which is.
    assert re.search(r"\(95% interval \S+ to \S+; p = \S+, corrected for 66 comparisons\)", statement)
    assert "corrected" not in headline(content(*pair)).statement


def two_of(name: str, count: int) -> list[Cell]:
    return [cell(name, "net-b", rate(count), pose=pose) for pose in (Pose(), TURNED)]


def test_without_counts_image_by_image_nothing_is_tested() -> None:
    found = headline(content(*(replace(one, images=None) for one in two(100, 150))))
    assert found.statement == (
        "ai-dim has the highest success rate on networks that it was not crafted on: 75.0%, pooled over 2 poses of "
        "net-b; dim has 50.0%, 25.0 points less. The difference was not tested for significance."
    )


def test_few_images_are_called_few_and_get_no_decimals() -> None:
    found = headline(content(*two(4, 19, n=20)))
    assert "in 95% (95% interval" in found.statement
    assert found.details[-1].startswith("Few images: measured on 20 images")


def test_fewer_than_ten_images_make_no_headline() -> None:
    found = headline(content(*two(1, 9, n=9)))
    assert found.statement == "Too few images for a summary: no target recognises 10 clean images in any pose."
    assert found.details[0].endswith("pooled over 2 poses of net-b: dim 2 of 18, ai-dim 18 of 18.")


def test_poses_of_few_images_have_no_part_in_the_headline() -> None:
    few = [
        cell(name, "net-b", SuccessRate(200, 9, k, 0), pose=Pose(scale=0.5)) for name, k in (("dim", 0), ("ai-dim", 9))
    ]
    found = headline(content(*two(100, 150), *few))
    assert "in 75.0% (" in found.statement
    assert "1 of 3 poses are left out of this rate, because fewer than 10 clean images" in found.details[0]


def test_nearly_all_is_not_called_all() -> None:
    assert "in more than 99.9% (" in headline(content(*two(0, 9999, n=10_000))).statement
    assert "in 100.0% (" in headline(content(*two(0, 10_000, n=10_000))).statement


def test_a_single_image_is_one_image() -> None:
    assert "measured on 1 image," in headline(content(*two(0, 1, n=1))).details[-1]


def test_targets_that_were_attacked_do_not_count_where_there_are_others() -> None:
    easy = [cell("dim", "net-a", rate(200)), cell("ai-dim", "net-a", rate(0))]
    hard = [cell("dim", "net-b", rate(20)), cell("ai-dim", "net-b", rate(40))]
    assert headline(content(*easy, *hard)).statement.startswith("ai-dim fools networks that it was not crafted on")
    assert headline(content(*easy)).statement.startswith("dim fools the network that it was crafted on")


def test_an_unrecorded_source_is_not_called_black_box() -> None:
    cells = [cell(name, "net-b", rate(20), source="") for name in ("mine", "yours")]
    assert "where it was crafted is not recorded" in headline(content(*cells)).statement


def test_one_attack_in_one_pose() -> None:
    found = headline(content(cell("dim", "net-b", rate(50), pose=TURNED)))
    assert found.statement == (
        "dim fools networks that it was not crafted on in 25.0% (95% interval 19.5 to 31.4%) of cases, at 30° on net-b."
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_the_paired_test_is_quoted_target_by_target(swapped: bool) -> None:
    cells = [
        cell(attack, target, rate(count))
        for attack, count in (("dim", 100), ("ai-dim", 150))
        for target in ("net-b", "net-c", "net-d")
    ]
    votes = {"net-b": (40, 2), "net-c": (10, 9), "net-d": (1, 30)}  # ai-dim ahead, dim ahead
    compared = {
        ("dim", "ai-dim", "net-a", t) if swapped else ("ai-dim", "dim", "net-a", t): Comparison(n=200, b=b, c=c)
        for t, (b, c) in ((t, (c, b) if swapped else (b, c)) for t, (b, c) in votes.items())
    }
    details = headline(content(*cells, comparisons=compared)).details
    assert details[0] == (
        "Target by target, compared image by image (exact paired test, Holm, 5%): ai-dim is significantly ahead on "
        "net-b (p < 0.001); the two do not differ significantly on net-c (p = 1.00); dim is significantly ahead on "
        "net-d (p < 0.001)."
    )


def test_many_targets_are_counted_instead_of_named() -> None:
    targets = [f"net-{i}" for i in range(6)]
    cells = [cell(a, t, rate(c)) for a, c in (("dim", 1), ("ai-dim", 9)) for t in targets]
    compared = {("ai-dim", "dim", "net-a", t): Comparison(n=200, b=8, c=0) for t in targets}
    assert "ai-dim is significantly ahead on 6 targets." in headline(content(*cells, comparisons=compared)).details[0]


def test_gains_of_the_other_pairs_include_losses() -> None:
    counts = {"pgd": 60, "ai-pgd": 40, "dim": 100, "ai-dim": 150, "mim": 80, "ai-mim": 80}
    cells = [cell(name, "net-b", rate(count)) for name, count in counts.items()]
    [gains] = [line for line in headline(content(*cells)).details if line.startswith("On the same")]
    assert re.fullmatch(
        r"On the same targets and poses, ai-pgd less pgd is -10\.0 points \(95% interval -\S+ to -\S+; p < 0\.001, "
        r"corrected for 15 comparisons\); ai-mim less mim is \+0\.0 points \(95% interval -\S+ to \+\S+; p = 1\.00, "
        r"corrected for 15 comparisons\)\.",
        gains,
    )
    untold = headline(content(*(replace(one, images=None) for one in cells))).details
    assert (
        "On the same targets and poses, ai-pgd less pgd is -10.0 points (not tested); ai-mim less mim is +0.0 points "
        "(not tested)." in untold
    )


def test_a_small_difference_is_not_written_as_none() -> None:
    """One image of 60 in one pose of four: points are whole with so few images, and this is no 0."""
    poses = [Pose(angle=angle) for angle in (0, 10, 20, 30)]
    cells = [
        cell(name, "net-b", rate(40 + (name == "ai-dim" and pose == poses[0]), 60, 60), pose=pose)
        for name in ("dim", "ai-dim")
        for pose in poses
    ]
    assert "the difference is +0.4 points (95% interval +0 to +" in headline(content(*cells)).statement


def test_gains_say_on_how_many_targets_they_are_real() -> None:
    counts = {"pgd": 60, "ai-pgd": 80, "mim": 100, "dim": 150}
    cells = [cell(name, target, rate(count)) for name, count in counts.items() for target in ("net-b", "net-c")]
    compared = {
        ("ai-pgd", "pgd", "net-a", "net-b"): Comparison(n=200, b=20, c=1),
        ("pgd", "ai-pgd", "net-a", "net-c"): Comparison(n=200, b=5, c=6),
    }
    [gains] = [line for line in headline(content(*cells, comparisons=compared)).details if line.startswith("On the")]
    assert gains.startswith("On the same targets and poses, ai-pgd less pgd is +10.0 points (95% interval +")
    assert gains.endswith("corrected for 6 comparisons; significantly above on 1 and below on 0 of 2 targets).")


def test_undefined_rates_are_left_out_and_counted() -> None:
    blind = [cell(name, "net-b", SuccessRate(200, 0, 0, 3), pose=Pose(scale=0.1)) for name in ("dim", "ai-dim")]
    found = headline(content(*two(100, 150), *blind))
    assert "in 75.0% (95% interval" in found.statement
    assert "In 2 of 6 cells the target recognised no clean image" in found.details[0]


def test_no_rate_at_all_is_said() -> None:
    cells = [cell(name, "net-b", SuccessRate(200, 0, 0, 3)) for name in ("dim", "ai-dim")]
    assert headline(content(*cells)).statement.startswith("No target recognised any clean image")


def test_only_what_all_attacks_share_is_ranked() -> None:
    """dim's extra pose, in which it never fails, must not lift it above ai-dim."""
    extra = [cell("dim", "net-b", rate(200), pose=Pose(scale=s)) for s in (0.5, 0.6, 0.7)]
    assert headline(content(*two(100, 150), *extra)).statement.startswith("ai-dim fools")


def test_attacks_measured_apart_are_not_ranked() -> None:
    cells = [cell("dim", "net-b", rate(100)), cell("ai-dim", "net-c", rate(150))]
    statement = headline(content(*cells)).statement
    assert statement.startswith("The attacks were measured on different targets or poses")
    assert "dim 50.0% (95% interval 43.1 to 56.9%), ai-dim 75.0% (" in statement
