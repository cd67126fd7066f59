"""RandMix: repaint the image with a few of its own colours, drawn at random, and vote over several draws.

Zhang and Liang, "Defending against Whitebox Adversarial Attacks via Randomized Discretization", AISTATS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from whorl.defenses.defended import at_least_single, require_images
from whorl.defenses.registry import DEFENSES
from whorl.randomness import normal, substream, uniform
from whorl.records import Count, NotNegative, Record


class RandMixDraws(NamedTuple):
    """Every random number that ``randmix`` uses on a batch."""

    place: Tensor  # (B, pixels), uniform in [0, 1): which pixels are candidates
    tint: Tensor  # (B, pixels, 3), normal: noise on the candidates
    choice: Tensor  # (B, colors, pixels), uniform in [0, 1): which candidates become colours
    grain: Tensor  # (B, 3, H * W), normal: noise on the image


def draw(keys: Tensor, area: int, *, colors: int, pixels: int) -> RandMixDraws:
    """Draw the random numbers for images of ``area`` pixels; ``keys`` is (B,) int64."""
    return RandMixDraws(
        place=uniform(substream(keys, 0), (pixels,)),
        tint=normal(substream(keys, 1), (pixels, 3)),
        choice=uniform(substream(keys, 2), (colors, pixels)),
        grain=normal(substream(keys, 3), (3, area)),
    )


def randmix(
    x: Tensor,
    keys: Tensor,
    *,
    colors: int = 5,
    pixels: int = 100,
    sigma: float = 0.0,
    alpha: float = 10.0,
    noise: float = 32 / 255,
) -> Tensor:
    """Repaint each image as a soft mixture of a few of its own colours.

    With values on [-1, 1]: some pixels are picked at random and given noise. From these the colours are chosen one by
    one, each with probability proportional to exp(σ · d²), d being the distance to the nearest colour chosen before.
    The image is given noise of its own, and each of its pixels becomes the mean of the colours, weighted by
    exp(-α · distance²).

    Args:
        x: (B, 3, H, W) in [0, 1].
        keys: (B,) int64, one random key an image (``whorl.randomness.image_keys``).
        colors: how many colours to repaint with.
        pixels: how many pixels the colours are chosen from (with repetition).
        sigma: how strongly colours keep apart. 0 chooses at random, which is what the evaluation platform of the paper
            does in effect: its code says 10, but never updates the distances from their common start.
        alpha: how hard pixels are assigned to the nearest colour.
        noise: standard deviation of both noises, on [-1, 1].

    Returns:
        Like ``x``. The colours carry noise, so values may lie a little outside [0, 1]; the published algorithm does not
        cut them off either. Differentiable, with the choice of colours held fixed.

    >>> randmix(torch.rand(2, 3, 16, 16), torch.tensor([1, 2])).shape
    torch.Size([2, 3, 16, 16])
    """
    require_images(x)
    RandMix(colors=colors, pixels=pixels, sigma=sigma, alpha=alpha, noise=noise)  # checks them
    source = at_least_single(x).flatten(2) * 2 - 1
    draws = draw(keys, source.shape[2], colors=colors, pixels=pixels)
    where = (draws.place * source.shape[2]).long()
    candidates = source.gather(2, where[:, None, :].expand(-1, 3, -1)).mT + noise * draws.tint.to(source.dtype)
    palette = candidates.gather(1, choose_colors(candidates, draws.choice, sigma)[:, :, None].expand(-1, -1, 3))
    painted = _repaint(source + noise * draws.grain.to(source.dtype), palette, alpha)
    return ((painted + 1) / 2).reshape(x.shape).to(x.dtype)


@DEFENSES.add
@dataclass(frozen=True, kw_only=True, repr=False)
class RandMix(Record):
    """RandMix; see ``randmix``.

    Args:
        colors: how many colours to repaint with.
        pixels: how many pixels the colours are chosen from.
        sigma: how strongly colours keep apart; 10 is what the published method means to do.
        alpha: how hard pixels are assigned to the nearest colour.
        noise: standard deviation of the noise, on [-1, 1].
    """

    name: ClassVar[str] = "randmix"
    about: ClassVar[str] = "repaint with a few of the image's own colours, at random"
    samples: ClassVar[int] = 10  # draws that are averaged by default
    colors: Count = 5
    pixels: Count = 100
    sigma: NotNegative = 0.0
    alpha: NotNegative = 10.0
    noise: NotNegative = 32 / 255

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Repaint ``x``."""
        return randmix(x, keys, **vars(self))


def choose_colors(candidates: Tensor, choice: Tensor, sigma: float) -> Tensor:
    """Choose colours that lie apart: (B, pixels, 3) candidates -> (B, colours) indices into them."""
    candidates = candidates.detach()
    # The largest of log p + Gumbel noise is a draw from p; no sums whose rounding differs between devices.
    luck = -torch.log(-torch.log(choice.to(candidates.dtype)))
    apart: Tensor | None = None  # squared distance to the nearest chosen colour
    chosen = []
    for turn in luck.unbind(1):
        index = (turn if apart is None else sigma * apart + turn).argmax(1)
        color = candidates.gather(1, index[:, None, None].expand(-1, 1, 3))
        distance = (candidates - color).square().sum(2)
        apart = distance if apart is None else torch.minimum(apart, distance)
        chosen.append(index)
    return torch.stack(chosen, dim=1)


def _repaint(source: Tensor, palette: Tensor, alpha: float) -> Tensor:
    """Mix each pixel of (B, 3, N) from a (B, colours, 3) palette, nearest colours first."""
    # |p - c|² = |p|² - 2 p·c + |c|², and |p|² is the same for all colours, so the softmax does not see it. That leaves
    # one matrix product, without a (B, colours, 3, N) tensor of differences.
    closeness = torch.baddbmm(palette.square().sum(2, keepdim=True), palette, source, beta=-alpha, alpha=2 * alpha)
    return palette.mT @ closeness.softmax(1)
