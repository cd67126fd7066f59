"""Input transforms made of others, against literal versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from conftest import random_images
from transform_checks import check_own_keys
from whorl.errors import WhorlError
from whorl.randomness import substream
from whorl.transforms import DiverseInput, Gain, InputChain, InputTransform, Mirror, RandomAffine, plain

ALL: list[InputTransform] = [
    InputChain(DiverseInput(), RandomAffine()),
    Gain(),
    Mirror(),
]


@pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
def test_every_image_is_transformed_by_its_own_key(transform: InputTransform) -> None:
    check_own_keys(transform)


def test_a_chain_applies_its_parts_in_order_with_keys_of_their_own() -> None:
    x, keys = random_images(3), torch.arange(3)
    expected = RandomAffine()(DiverseInput()(x, substream(keys, 0)), substream(keys, 1))
    assert torch.equal(InputChain(DiverseInput(), RandomAffine())(x, keys), expected)
    assert repr(InputChain(plain, Gain())) == "InputChain(Plain(), Gain())"


def test_mirror_and_gain() -> None:
    x, keys = random_images(40), torch.arange(40)
    out = Mirror()(x, keys)
    mirrored = (out == x.flip(-1)).flatten(1).all(1)
    assert bool((mirrored | (out == x).flatten(1).all(1)).all())
    assert 8 < int(mirrored.sum()) < 32
    factor = (Gain(lowest=0.4)(x, keys) / x.clamp_min(1e-3))[x > 0.1]
    assert 0.4 - 1e-4 <= float(factor.min()) < 0.5
    assert 0.9 < float(factor.max()) <= 1 + 1e-4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gain(lowest=0), "lowest must be a number in"),
        (lambda: Mirror(probability=-1), "probability must be a number in"),
    ],
)
def test_settings_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()
