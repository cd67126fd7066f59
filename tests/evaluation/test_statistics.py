"""Rates, intervals and tests, against scipy and against enumerating every way the images could have fallen."""

from __future__ import annotations

import math
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from whorl import WhorlError
from whorl.evaluation import (
    FEWEST,
    Comparison,
    ImageCounts,
    Over,
    compare,
    for_headline,
    headline,
    holm,
    mean_interval,
    rate,
    wilson,
)
from whorl.evaluation.statistics import swap_test

BOTH: tuple[Over, ...] = ("pooled", "mean")


def made_up(images: int = 60, poses: int = 5, chance: float = 0.8, seed: int = 0) -> ImageCounts:
    """Images that differ in how easily they are recognised, and fooled."""
    generator = np.random.default_rng(seed)
    eligible = generator.random((poses, images)) < generator.beta(4, 1.5, images)
    return ImageCounts(
        eligible, eligible & (generator.random((poses, images)) < generator.beta(2, 2 / chance - 2, images))
    )


# ---------------------------------------------------------------------------------------------------------- one rate


@given(st.integers(1, 400), st.data())
def test_wilsons_interval_is_scipys(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    expected = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert wilson(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("over", BOTH)
@pytest.mark.parametrize("counts", [made_up(), made_up(300, 3, 0.95), made_up(25, 12, 0.5)])
def test_the_interval_over_images_is_scipys_bca(counts: ImageCounts, over: Over) -> None:
    e, s = counts.eligible.astype(np.float64), counts.success.astype(np.float64)

    def literal(*columns: Any, axis: int = -1) -> Any:
        chosen = np.stack(columns)  # (1, ..., images): the images' places
        places = chosen[0].astype(int)
        above, below = (part[:, places].sum(-1) for part in (s, e))
        return above.sum(0) / below.sum(0) if over == "pooled" else (above / below).mean(0)

    places = (np.arange(e.shape[1]),)
    many, random = 8000, np.random.default_rng(5)
    expected = stats.bootstrap(places, literal, n_resamples=many, method="BCa", vectorized=True, rng=random)
    found = rate(counts, over, resamples=many, seed=3)
    assert found.method == "BCa"
    assert found.value == pytest.approx(float(literal(*places)), abs=1e-6)
    spread = float(expected.standard_error)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval), abs=0.1 * spread)


@pytest.mark.parametrize("values", [np.arange(40.0) ** 2, np.exp(np.random.default_rng(0).normal(0, 1, 60))])
def test_the_interval_of_a_mean_is_scipys_bca(values: np.ndarray[Any, Any]) -> None:
    expected = stats.bootstrap((values,), np.mean, n_resamples=8000, method="BCa", rng=np.random.default_rng(2))
    found = mean_interval(values, resamples=8000, seed=1)
    assert found == pytest.approx(tuple(expected.confidence_interval), abs=0.1 * float(expected.standard_error))
    assert all(map(math.isnan, mean_interval(values[:0])))


def test_poses_are_not_taken_for_images() -> None:
    once = made_up(80, 1)
    copies = ImageCounts.joined([once] * 12)
    low, high = rate(copies).interval
    assert rate(copies).value == pytest.approx(rate(once).value)
    wide, narrow = rate(once).interval, wilson(float(copies.success.sum()), float(copies.eligible.sum()))
    assert high - low > 0.8 * (wide[1] - wide[0]) > 2 * (narrow[1] - narrow[0])


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    generator, held = np.random.default_rng(0), 0
    for seed in range(200):
        p = generator.beta(6, 1.5, 120)  # the truth is 0.8
        eligible = generator.random((6, 120)) < 0.7
        counts = ImageCounts(eligible, eligible & (generator.random((6, 120)) < p))
        low, high = rate(counts, resamples=500, seed=seed).interval
        held += low <= 0.8 <= high
    assert 180 <= held <= 199


def test_where_all_succeed_the_interval_is_not_a_point() -> None:
    certain = ImageCounts(np.ones((4, 20)), np.ones((4, 20)))
    found = rate(certain)
    assert (found.value, found.method) == (1.0, "Wilson")
    assert found.interval == wilson(20, 20)
    assert found.interval[0] < 0.85
    none = rate(ImageCounts(np.zeros((4, 20)), np.zeros((4, 20))))
    assert math.isnan(none.value)
    assert math.isnan(none.interval[0])
    assert (none.n, none.images, str(none)) == (0, 0, "no rate")


def test_the_same_seed_gives_the_same_interval() -> None:
    counts = made_up()
    assert rate(counts, seed=1) == rate(counts, seed=1)
    assert rate(counts, seed=1).interval != rate(counts, seed=2).interval


def test_too_few_images_are_marked_and_left_out() -> None:
    eligible = np.zeros((2, 40), bool)
    eligible[0], eligible[1, : FEWEST - 1] = True, True
    counts = ImageCounts(eligible, eligible & (np.arange(40) % 2 == 0))
    assert (rate(counts).poses, rate(counts).n, rate(counts).few) == (2, 40 + FEWEST - 1, False)
    kept = headline(counts)
    assert (kept.poses, kept.n, kept.left_out, kept.few) == (1, 40, 1, False)
    few = headline(ImageCounts(eligible[1:], eligible[1:]))
    assert (few.n, few.left_out, few.few) == (FEWEST - 1, 0, True)
    one, other = for_headline(counts, ImageCounts(eligible[::-1], eligible[::-1]))
    assert len(one.eligible) == len(other.eligible) == 2  # no pose has enough of both


# -------------------------------------------------------------------------------------------------------- two rates


@pytest.mark.parametrize(("b", "c"), [(b, c) for b in range(6) for c in range(6)])
def test_mcnemars_test_is_scipys_and_the_share_of_splits_at_least_as_uneven(b: int, c: int) -> None:
    splits = [abs(2 * sum(coins) - (b + c)) for coins in product((0, 1), repeat=b + c)]
    expected = sum(uneven >= abs(b - c) for uneven in splits) / len(splits)
    found = Comparison(n=20, b=b, c=c).p_value
    assert found == pytest.approx(expected, abs=1e-15)
    if b + c:
        assert found == pytest.approx(stats.binomtest(b, b + c).pvalue, abs=1e-12)


def test_many_images_are_no_trouble() -> None:
    assert Comparison(n=50_000, b=10_000, c=10_000).p_value == 1
    assert 0 < Comparison(n=50_000, b=9_600, c=10_000).p_value < 0.01
    assert Comparison(n=50_000, b=20_000, c=0).p_value == 0  # below the smallest float
    leads = np.random.default_rng(0).integers(-3, 5, 30_000).astype(float)
    assert 0 <= swap_test(leads) < 1e-6
    exact, normal = leads[:1900] - 0.4, leads[:1900]
    assert swap_test(np.tile(normal, 2)) == pytest.approx(
        math.erfc(abs(2 * normal.sum()) / math.sqrt(4 * (normal @ normal))), rel=1e-9
    )
    assert 0 <= swap_test(exact) <= 1


whole_numbers = st.lists(st.integers(-4, 4).map(float), max_size=10)
any_numbers = st.lists(st.floats(-2, 2).map(lambda x: round(x, 3)), max_size=10)


@settings(deadline=None)
@given(st.one_of(whole_numbers, any_numbers))
def test_the_test_of_swaps_counts_all_of_them(leads: list[float]) -> None:
    sums = [
        abs(sum(sign * lead for sign, lead in zip(signs, leads, strict=True)))
        for signs in product((-1, 1), repeat=len(leads))
    ]
    # What is rounded onto steps may fall on either side of a tie; of whole numbers, ties count.
    whole = all(lead == round(lead) for lead in leads)
    slack = 1e-9 if whole else len(leads) * sum(map(abs, leads)) / 2**15 + 1e-9
    low, high = (sum(one >= abs(sum(leads)) + edge for one in sums) / len(sums) for edge in (slack, -slack))
    assert (high if whole else low) - 1e-12 <= swap_test(np.array(leads)) <= high + 1e-12


def test_the_test_of_swaps_is_scipys_permutation_test() -> None:
    leads = np.random.default_rng(2).normal(0.4, 1, 14)
    expected = stats.permutation_test(
        (leads, np.zeros(14)),
        lambda a, b, axis: np.sum(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert swap_test(leads) == pytest.approx(expected.pvalue, rel=0.02)


@settings(deadline=None, max_examples=60)
@given(arrays(np.bool_, (4, 2, 6)))
def test_two_networks_are_swapped_with_their_eligible_images(cells: np.ndarray[Any, Any]) -> None:
    e1, s1, e2, s2 = cells[0], cells[0] & cells[1], cells[2], cells[2] & cells[3]
    if not e1.any() or not e2.any():
        return

    def unlike(swaps: tuple[bool, ...]) -> float:
        """How far the successes of the one are from what the rate of both would give."""
        swapped = np.array(swaps)
        es, ss = np.where(swapped, e2, e1).sum(), np.where(swapped, s2, s1).sum()
        return float(abs(ss - es * (s1.sum() + s2.sum()) / (e1.sum() + e2.sum())))

    def expected(slack: float) -> float:
        every = [unlike(swaps) for swaps in product((False, True), repeat=6)]
        return sum(one >= unlike((False,) * 6) + slack for one in every) / len(every)

    slack = 12 * 2**-13  # steps of the lattice
    found = compare(ImageCounts(e1, s1), ImageCounts(e2, s2), resamples=20).p_value
    low, high = expected(slack), expected(-slack)
    assert found >= low - 1e-12
    if (e1 == e2).all():
        assert found <= high + 1e-12
        return
    # The networks differ in what they recognise: the test must hold on the images that both do, the same way round.
    own = s1.sum() / e1.sum() - s2.sum() / e2.sum()
    e1 = e2 = e1 & e2
    s1, s2 = s1 & e1, s2 & e2
    if not (int(s1.sum()) - int(s2.sum())) * own > 0:
        assert found == 1
    else:
        assert max(low, expected(slack)) - 1e-12 <= found <= max(high, expected(-slack)) + 1e-12


def test_networks_alike_that_recognise_different_images_are_seldom_called_different() -> None:
    """Of comparisons in which nothing differs at most 5% are significant, with few images and rates near 1 as well."""
    generator, found = np.random.default_rng(0), []
    for _ in range(600):
        counts = []
        for share in (0.9, 0.5):
            eligible = generator.random((1, 40)) < share
            counts.append(ImageCounts(eligible, eligible & (generator.random((1, 40)) < 0.97)))
        first, second = counts
        found.append(compare(first, second, resamples=20).p_value < 0.05)
    assert np.mean(found) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 600)


rows = st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=30)


@settings(deadline=None)
@given(rows)
def test_in_one_pose_only_clean_correct_images_count_and_the_test_is_mcnemars(
    rows: list[tuple[bool, bool, bool]],
) -> None:
    clean, one, other = (torch.tensor(column) for column in zip(*rows, strict=True))
    found = compare(ImageCounts.of(clean, one), ImageCounts.of(clean, other), resamples=50)
    eligible = [(not first, not second) for right, first, second in rows if right]
    assert found.n == len(eligible)
    assert found.b == sum(first and not second for first, second in eligible)
    assert found.c == sum(second and not first for first, second in eligible)
    if eligible:
        assert found.difference == pytest.approx((found.b - found.c) / found.n, abs=1e-6)
    assert found.p_value == pytest.approx(Comparison(n=found.n, b=found.b, c=found.c).p_value)


@pytest.mark.parametrize("over", BOTH)
def test_a_difference_has_a_paired_interval(over: Over) -> None:
    generator = np.random.default_rng(1)
    eligible = generator.random((6, 200)) < 0.8
    hard = generator.random(200)  # most of the spread is the images', and both attacks share it
    weak, strong = (eligible & (hard < edge) & (generator.random((6, 200)) < 0.97) for edge in (0.6, 0.7))
    one, other = ImageCounts(eligible, strong), ImageCounts(eligible, weak)
    found = compare(one, other, over)
    low, high = found.interval
    assert found.difference == pytest.approx(one.value(over) - other.value(over))
    assert low < found.difference < high
    apart = math.hypot(*(np.diff(rate(counts, over).interval)[0] for counts in (one, other)))
    assert high - low < 0.6 * apart  # than that of two unpaired rates
    assert found.differs()
    assert found.leads
    assert found.ahead == 1
    assert compare(other, one, over).p == found.p


def test_no_difference_is_not_known_to_the_last_digit() -> None:
    everyone = ImageCounts(np.ones((3, 20)), np.ones((3, 20)))
    found = compare(everyone, everyone)
    assert (found.difference, found.p_value, found.ahead) == (0, 1, 0)
    assert found.interval == pytest.approx((-wilson(0, 20)[1], wilson(0, 20)[1]))


def test_an_interval_holds_zero_where_the_test_does_not_exclude_it() -> None:
    everyone = np.ones((2, 200))
    more, fewer = (ImageCounts(everyone, np.tile(np.arange(200) < k, (2, 1))) for k in (123, 120))
    found = compare(more, fewer)
    assert (found.b, found.c, found.p_value) == (3, 0, 0.25)
    assert found.interval[0] == 0 < found.difference < found.interval[1]


def test_a_comparison_from_the_other_side() -> None:
    found = Comparison(n=9, b=6, c=1, difference=0.5, interval=(0.1, 0.8), p=0.02)
    assert found.swapped() == Comparison(n=9, b=1, c=6, difference=-0.5, interval=(-0.8, -0.1), p=0.02)
    assert (found.ahead, found.swapped().ahead) == (1, -1)
    assert Comparison(n=9, b=6, c=1, difference=0.5, p=0.2).ahead == 0


def test_differs_at_a_level() -> None:
    comparison = Comparison(n=9, b=6, c=0)  # p = 2 / 64
    assert comparison.differs()
    assert not comparison.differs(alpha=0.03)


def test_other_images_are_refused() -> None:
    one, other = ImageCounts(np.ones((1, 3)), np.ones((1, 3))), ImageCounts(np.ones((1, 2)), np.ones((1, 2)))
    with pytest.raises(
        WhorlError, match=r"only on the same images and poses; got \(poses, images\) \(1, 3\) and \(1, 2\)"
    ):
        compare(one, other)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_correction_is_the_closed_test(p_values: list[float]) -> None:
    found = holm({place: Comparison(n=9, b=1, c=0, p=p) for place, p in enumerate(p_values)})
    places = range(len(p_values))
    subsets = list(chain.from_iterable(combinations(places, k) for k in range(1, len(p_values) + 1)))
    bonferroni = {some: min(1.0, len(some) * min(p_values[i] for i in some)) for some in subsets}
    for place in places:
        expected = max(p for some, p in bonferroni.items() if place in some)
        assert found[place].p_value == pytest.approx(expected)
        assert holm(found)[place].p_value == found[place].p_value  # from the single p-values, whatever was corrected
