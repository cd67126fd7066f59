"""Settings and recipes."""

from __future__ import annotations

import pytest

from whorl.errors import WhorlError
from whorl.hardening import Recipe, Training, recipe


def test_settings_and_recipes_refuse_nonsense() -> None:
    with pytest.raises(WhorlError, match="at least one kind"):
        Recipe(name="none", examples=())
    with pytest.raises(WhorlError, match="objective must be 'mixed', 'pairing' or 'trades'"):
        recipe("alp", objective="hinge")
    with pytest.raises(WhorlError, match="eps must be"):
        recipe("ens-at").examples[0].with_(eps=(0.2, 0.1))
    with pytest.raises(WhorlError, match="unknown setting"):
        Training().with_(stepps=3)


def test_the_learning_rate_suits_the_optimiser() -> None:
    assert Training().rate == 0.03
    assert Training().with_(optimizer="adam").rate == 1.5e-4
    assert Training(optimizer="adam", lr=0.5).lr_at(999) < 1e-6 < Training(lr=0.5, warmup=0.0).lr_at(0) == 0.5
