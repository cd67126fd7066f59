"""Captures are counted as defined: against the clean version of the same photograph, one vote for each image."""

from __future__ import annotations

import pytest

from physical.printed_run import PREDICTIONS, faked, named_target, scored
from whorl.evaluation import holm
from whorl.physical.captures import VIEWS
from whorl.physical.report import photographs
from whorl.physical.summary import cells, compared, summarise


def test_success_counts_only_where_the_clean_version_of_the_same_photograph_is_right() -> None:
    done = faked(
        {
            ("one", "p", "clean"): 1, ("one", "p", "dim"): 5,      # success
            ("one", "q", "clean"): 1, ("one", "q", "dim"): 1,      # failure
            ("one", "r", "clean"): 7, ("one", "r", "dim"): 5,      # no credit: wrong anyway
            ("rotated", "p", "clean"): 9, ("rotated", "p", "dim"): 5,  # likewise, in this photograph
            ("rotated", "q", "dim"): 5,                             # the clean version of the other photograph is right
            ("rotated", "s", "dim"): 1,                             # nobody photographed the clean version
        }
    )  # fmt: skip
    clean, dim = summarise(done)
    assert (clean.counts.n, clean.counts.n_clean_correct, clean.counts.n_success) == (4, 2, 0)
    assert (dim.counts.n, dim.counts.n_clean_correct, dim.counts.n_success) == (6, 3, 2)
    assert dim.counts.accuracy == pytest.approx(2 / 6)
    assert dim.across == 1
    assert dim.images.eligible.tolist() == [[1, 2, 0, 0]]  # p once, q twice, r and s not at all
    assert dim.images.success.tolist() == [[1, 1, 0, 0]]
    rotated, by_print = dim.by["rotation"][15.0]
    assert by_print.eligible.sum() == 1
    assert (rotated.n, rotated.n_clean_correct, rotated.n_success) == (3, 1, 1)
    assert list(dim.by["scale"]) == [0.8]
    assert list(dim.by["tilt"]) == [0.0]


def test_rows_add_up_to_the_summary() -> None:
    for view in VIEWS:
        rows = cells(scored(), view)
        for line in (line for line in summarise(scored()) if line.view == view):
            own = [row for row in rows if (row.attack, row.target) == (line.version, line.target)]
            assert sum(row.counts.n for row in own) == line.counts.n
            assert sum(row.counts.n_success for row in own) == line.counts.n_success
            assert {(row.pose.angle, row.pose.scale) for row in own} == {(0, 1), (15, 0.8)}


def test_an_image_in_several_photographs_has_one_vote() -> None:
    done = faked(PREDICTIONS)
    found = compared(done, "as seen", "ai-dim", "dim", "t")
    # p: both succeed in one photograph. q: ai-dim alone, twice. r: neither; the other photograph has no ai-dim.
    assert (found.n, found.b, found.c) == (3, 1, 0)
    assert photographs(done, [named_target()]).comparisons == holm({("ai-dim", "dim", "", "t"): found})
