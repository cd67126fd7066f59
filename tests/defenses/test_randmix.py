"""RandMix, against the published algorithm written out pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from whorl.defenses import randmix
from whorl.defenses.randmix import RandMixDraws, choose_colors, draw
from whorl.errors import WhorlError
from whorl.randomness import substream, uniform


def keys(count: int, seed: int = 0) -> torch.Tensor:
    return substream(torch.arange(count), seed)


def literal_randmix(
    picture: np.ndarray, draws: RandMixDraws, index: int, *, sigma: float, alpha: float, noise: float
) -> np.ndarray:
    """One (3, H, W) image in [0, 1], in float64, with the random numbers given."""
    _, height, width = picture.shape
    source = picture.astype(np.float64) * 2 - 1
    place, tint, choice, grain = (part[index].double().numpy() for part in draws)

    candidates = []
    for k, where in enumerate(place):
        row, column = divmod(int(where * height * width), width)
        candidates.append(source[:, row, column] + noise * tint[k])

    palette: list[np.ndarray] = []
    for turn in choice:
        best, best_score = -1, -math.inf
        for k, candidate in enumerate(candidates):
            nearest = min((float(((candidate - color) ** 2).sum()) for color in palette), default=0.0)
            score = sigma * nearest - math.log(-math.log(turn[k]))
            if score > best_score:
                best, best_score = k, score
        palette.append(candidates[best])

    out = np.zeros_like(source)
    for i in range(height):
        for j in range(width):
            pixel = source[:, i, j] + noise * grain[:, i * width + j]
            weights = [math.exp(-alpha * float(((pixel - color) ** 2).sum())) for color in palette]
            out[:, i, j] = sum(w * color for w, color in zip(weights, palette, strict=True)) / sum(weights)
    return (out + 1) / 2


CASES = [
    {},
    {"sigma": 10.0},
    {"colors": 1},
    {"colors": 8, "pixels": 3},
    {"noise": 0.0, "alpha": 2.5},
    {"pixels": 250, "alpha": 0.0},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_matches_the_literal_definition(settings: dict[str, float]) -> None:
    x = torch.rand(3, 3, 9, 14, generator=torch.Generator().manual_seed(1))
    full = {"colors": 5, "pixels": 100, "sigma": 0.0, "alpha": 10.0, "noise": 32 / 255} | settings
    draws = draw(keys(3), 9 * 14, colors=int(full.pop("colors")), pixels=int(full.pop("pixels")))
    out = randmix(x, keys(3), **settings)  # type: ignore[arg-type]
    assert out.dtype == torch.float32
    for i in range(3):
        expected = literal_randmix(x[i].numpy(), draws, i, **full)
        np.testing.assert_allclose(out[i].numpy(), expected, atol=2e-5)


def test_second_color_is_drawn_with_the_stated_probability() -> None:
    count, sigma = 40_000, 2.0
    candidates = torch.tensor([[0.0, 0, 0], [0.5, 0, 0], [1, 0, 0], [1, 1, 0]])
    chosen = choose_colors(candidates.expand(count, 4, 3), uniform(keys(count), (2, 4)), sigma)
    first = torch.bincount(chosen[:, 0], minlength=4) / count
    np.testing.assert_allclose(first, 0.25, atol=0.01)
    after_zero = chosen[chosen[:, 0] == 0, 1]
    weights = np.exp(sigma * np.array([0, 0.25, 1, 2]))
    np.testing.assert_allclose(
        torch.bincount(after_zero, minlength=4) / len(after_zero), weights / weights.sum(), atol=0.015
    )


def test_draws_are_standard_normal_and_independent() -> None:
    _, tint, _, grain = draw(keys(50), 1000, colors=2, pixels=100)
    for noise in (tint, grain):
        assert abs(noise.mean()) < 0.02
        assert abs(noise.std() - 1) < 0.02
    assert abs((tint[:, :, 0] * grain[:, 0, :100]).mean()) < 0.03


def test_paints_with_few_colors_of_the_image() -> None:
    # Two flat halves, hard assignment, no noise: the image is its own palette.
    x = torch.zeros(1, 3, 8, 8)
    x[..., 4:] = 0.8
    torch.testing.assert_close(randmix(x, keys(1), sigma=10.0, noise=0.0, alpha=1000.0), x)


def test_gradient_with_the_colors_held_fixed() -> None:
    x = torch.rand(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    # A weak sigma keeps the finite differences from changing which colors are chosen.
    assert torch.autograd.gradcheck(lambda z: randmix(z, keys(2), pixels=6, colors=3, sigma=0.0), x)


def test_half_precision_computes_in_single() -> None:
    x = torch.rand(2, 3, 16, 16).to(torch.bfloat16)
    assert torch.equal(randmix(x, keys(2)), randmix(x.float(), keys(2)).to(torch.bfloat16))


@pytest.mark.parametrize(
    "settings",
    [{"colors": 0}, {"colors": 2.0}, {"pixels": 0}, {"sigma": -1}, {"alpha": math.inf}, {"noise": "a"}, {"noise": -1}],
    ids=str,
)
def test_settings_out_of_range(settings: dict[str, object]) -> None:
    with pytest.raises(WhorlError, match=f"{next(iter(settings))} must be"):
        randmix(torch.rand(1, 3, 8, 8), keys(1), **settings)  # type: ignore[arg-type]
