"""Success rates against literal counting."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.errors import WhorlError
from whorl.evaluation import SuccessRate

labels = st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=40)


@given(labels, st.integers(0, 40))
def test_counts_are_the_definition_and_add_up(rows: list[tuple[int, int, int]], cut: int) -> None:
    clean, adversarial, y = (torch.tensor(column) for column in zip(*rows, strict=True))
    whole = SuccessRate.of(clean=clean, adversarial=adversarial, y=y)
    asked = [(c, a, t) for c, a, t in rows if c == t]
    assert whole.n == len(rows)
    assert whole.n_clean_correct == len(asked)
    assert whole.n_success == sum(a != t for _, a, t in asked)
    assert whole.accuracy == pytest.approx(sum(a == t for _, a, t in rows) / len(rows))
    assert whole.error_rate == pytest.approx(1 - whole.accuracy)
    if asked:
        assert whole.rate == pytest.approx(sum(a != t for _, a, t in asked) / len(asked))
    else:
        assert math.isnan(whole.rate)
    parts = [slice(0, cut), slice(cut, None)]
    pooled = sum((SuccessRate.of(clean=clean[p], adversarial=adversarial[p], y=y[p]) for p in parts), SuccessRate())
    assert pooled == whole


@given(st.integers(1, 400), st.data())
def test_interval_solves_wilsons_equation(m: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, m))
    low, high = SuccessRate(m, m, k, m - k).interval()
    assert 0 <= low <= k / m + 1e-12
    assert k / m - 1e-12 <= high <= 1
    for edge in (low, high):
        # the edge is where the observed rate lies 1.96 standard deviations away
        assert abs(k / m - edge) == pytest.approx(1.959964 * math.sqrt(edge * (1 - edge) / m), abs=1e-6)


def test_lengths_must_agree() -> None:
    with pytest.raises(WhorlError, match=r"of one length; got \(2,\), \(2,\) and \(3,\)"):
        SuccessRate.of(clean=torch.zeros(2), adversarial=torch.zeros(2), y=torch.zeros(3))
