"""Input transforms made of others, against literal versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conftest import pictures
from whorl.errors import WhorlError
from whorl.geometry import affine
from whorl.randomness import substream, uniform
from whorl.transforms import DiverseInput, InputTransform, RandomAffine, plain
from whorl.transforms.mixed import (
    Blend,
    BlockShuffle,
    Gain,
    InputChain,
    Mirror,
    Mosaic,
    SelfMix,
    Sometimes,
    SpectrumNoise,
)

ALL: list[InputTransform] = [
    InputChain(DiverseInput(), RandomAffine()),
    Blend(part=RandomAffine(), count=3),
    Sometimes(part=RandomAffine()),
    Mosaic(),
    BlockShuffle(blocks=3),
    SelfMix(),
    Gain(),
    Mirror(),
    SpectrumNoise(),
]


@pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
def test_every_picture_is_transformed_by_its_own_key(transform: InputTransform) -> None:
    x, keys = pictures(6, 3, 22, 30), torch.arange(6) * 101
    whole = transform(x, keys)
    assert whole.shape == x.shape
    for i in range(6):
        torch.testing.assert_close(transform(x[i : i + 1], keys[i : i + 1]), whole[i : i + 1], rtol=0, atol=1e-5)
    assert torch.equal(transform(x, keys), whole)
    assert float((transform(x, keys + 1) - whole).abs().max()) > 1e-3
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(transform(leaf, keys).square().sum(), leaf)
    assert bool(gradient.flatten(1).abs().sum(1).gt(0).all())


def test_a_chain_applies_its_parts_in_order_with_keys_of_their_own() -> None:
    x, keys = pictures(3), torch.arange(3)
    expected = RandomAffine()(DiverseInput()(x, substream(keys, 0)), substream(keys, 1))
    assert torch.equal(InputChain(DiverseInput(), RandomAffine())(x, keys), expected)
    assert repr(InputChain(plain, Gain())) == "InputChain(Plain(), Gain())"


def test_a_blend_is_the_mean_of_its_draws() -> None:
    x, keys = pictures(2), torch.arange(2)
    draws = [RandomAffine()(x, substream(keys, i)) for i in range(3)]
    torch.testing.assert_close(Blend(part=RandomAffine(), count=3)(x, keys), sum(draws, torch.zeros(1)) / 3)


def test_sometimes_means_as_often_as_it_says() -> None:
    x, keys = torch.ones(400, 1, 4, 4), torch.arange(400)
    darker = Sometimes(part=Gain(lowest=0.5), probability=0.3)(x, keys)[:, 0, 0, 0] < 1
    assert 0.2 < float(darker.float().mean()) < 0.4


def test_a_mosaic_shows_a_pose_in_every_tile() -> None:
    x, keys = pictures(2, 3, 24, 40), torch.arange(2)
    out = Mosaic(tiles=2, angle=20, scale=(1.0, 1.6), shift=0.1)(x, keys)
    signed = uniform(keys, (4, 2, 2), -1, 1).double()
    for b in range(2):
        for i in range(2):
            for j in range(2):
                angle, size, across, along = signed[b, :, i, j].tolist()
                # the image at half its size and the tile's own pose, on a canvas of the whole, its middle in the tile
                shift = ((j - 0.5) * 20 + 0.1 * across * 20, (i - 0.5) * 12 + 0.1 * along * 12)
                seen = affine(x[b : b + 1], angle=20 * angle, scale=(1.3 + 0.3 * size) / 2, shift=shift)
                tile: tuple[slice, slice] = slice(12 * i, 12 * i + 12), slice(20 * j, 20 * j + 20)
                torch.testing.assert_close(out[b][:, *tile], seen[0][:, *tile], rtol=0, atol=1e-4)


def test_blocks_are_moved_whole() -> None:
    x = torch.arange(11 * 13).reshape(1, 1, 11, 13).double()
    seen: set[tuple[float, ...]] = set()
    for key in range(20):
        out = BlockShuffle(blocks=2)(x, torch.tensor([key]))[0, 0]
        assert sorted(out.flatten().tolist()) == list(range(11 * 13))
        # two pieces a side: at most one place where neighbours do not follow each other
        assert int((out[0].diff() != 1).sum()) <= 1
        assert int((out[:, 0].diff() != 13).sum()) <= 1
        seen.add(tuple(out.flatten().tolist()))
    assert len(seen) > 5


def test_what_is_mixed_in_is_the_picture_mirrored_and_rolled_without_gradient() -> None:
    x = pictures(1, 1, 6, 8).requires_grad_()
    out = SelfMix(strength=0.5)(x, torch.tensor([9]))
    rolls = [x.flip(-1).roll((i, j), (-2, -1)) for i in range(6) for j in range(8)]
    assert any(torch.allclose(out, x + 0.5 * other, atol=1e-6) for other in rolls)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))


def test_mirror_and_gain() -> None:
    x, keys = pictures(40), torch.arange(40)
    out = Mirror()(x, keys)
    mirrored = (out == x.flip(-1)).flatten(1).all(1)
    assert bool((mirrored | (out == x).flatten(1).all(1)).all())
    assert 8 < int(mirrored.sum()) < 32
    factor = (Gain(lowest=0.4)(x, keys) / x.clamp_min(1e-3))[x > 0.1]
    assert 0.4 - 1e-4 <= float(factor.min()) < 0.5
    assert 0.9 < float(factor.max()) <= 1 + 1e-4


def test_spectrum_noise_changes_every_frequency_by_no_more_than_its_spread() -> None:
    x = pictures(2, 1, 12, 16).double()
    out = SpectrumNoise(noise=0.0, spread=0.3)(x, torch.arange(2))
    ratio = cosine_coefficients(out) / cosine_coefficients(x)
    assert 0.7 - 1e-6 <= float(ratio.min()) < 0.75
    assert 1.25 < float(ratio.max()) <= 1.3 + 1e-6
    torch.testing.assert_close(SpectrumNoise(noise=0.0, spread=0.0)(x, torch.arange(2)), x)
    noisy = SpectrumNoise(noise=0.1, spread=0.0)(x, torch.arange(2)) - x
    assert 0.08 < float(noisy.std()) < 0.12


def cosine_coefficients(x: Tensor) -> Tensor:
    """Type-II cosine transform by its definition, unnormalised."""
    for axis in (-1, -2):
        side = x.shape[axis]
        k, n = torch.arange(side).double(), torch.arange(side).double()
        waves = torch.cos(torch.pi / side * (n + 0.5) * k[:, None])
        x = (x.transpose(axis, -1) @ waves.T).transpose(axis, -1)
    return x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Blend(part=plain, count=0), "count must be"),
        (lambda: Sometimes(part=plain, probability=2), "probability must lie in"),
        (lambda: Mosaic(tiles=0), "tiles must be"),
        (lambda: Mosaic(scale=(2, 1)), "0 < lowest <= highest"),
        (lambda: BlockShuffle(blocks=0), "blocks must be"),
        (lambda: Gain(lowest=0), "lowest must lie in"),
        (lambda: Mirror(probability=-1), "probability must lie in"),
    ],
)
def test_settings_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()
