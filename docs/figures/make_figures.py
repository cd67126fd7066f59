"""Draw the figures of docs/method.md from a real photograph, a real gradient and the library's own kernels.

Example:
    python docs/figures/make_figures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

import whorl
from whorl.geometry import gaussian_kernel, uniform_kernel

HERE = Path(__file__).parent
SIDE = 196  # of a panel, in pixels
GAP = 12
CAPTION = 22
INK = (40, 40, 40)
PHOTOGRAPH = 0  # which of the bundled samples is drawn: a dog on a lawn
COLORS = 64  # enough to read the images, few enough to keep the files small

Pixels = NDArray[np.uint8]
Panel = tuple[str, Image.Image]


def main() -> None:
    """Draw all three, and the photograph that the polar warp of docs/explained.md works on."""
    x, y, _ = whorl.load_samples()
    x, y = x[PHOTOGRAPH, None], y[PHOTOGRAPH, None]
    save("photograph.png", photograph(x))
    save("kernels.png", sheet([kernels()]))
    save("polar.png", sheet([polar(x)]))
    save("gradient.png", sheet(gradient(x, y)))


def kernels() -> list[Panel]:
    """Four 15 x 15 kernels, each shaded by its own largest weight, over the sums of its columns on one scale."""
    drawn = {
        "printed: sigma 4.04": gaussian_kernel(15, "printed"),
        "TI default: sigma 2.33": gaussian_kernel(15, 7 / 3),
        "reference: sigma 1.17": gaussian_kernel(15, "reference"),
        "uniform": uniform_kernel(15),
    }
    top = max(float(weights.sum(0).max()) for weights in drawn.values())
    return [(name, _kernel(weights, top)) for name, weights in drawn.items()]


def polar(x: Tensor) -> list[Panel]:
    """There, a shift of the columns, and back: a rotation."""
    seen = whorl.to_polar(x)
    rotated = seen.roll(x.shape[-1] // 8, dims=-1)
    return [
        ("x", photograph(x)),
        ("P x: radii down, angles right", photograph(seen)),
        ("P x, columns shifted by 1/8", photograph(rotated)),
        ("back: x rotated by 45°", photograph(whorl.from_polar(rotated))),
    ]


def gradient(x: Tensor, y: Tensor) -> list[list[Panel]]:
    """The gradient of resnet18's loss, three estimates of it, and their signs, which an L∞ attack steps along."""
    seen = x.clone().requires_grad_()
    loss = F.cross_entropy(whorl.load_model("resnet18")(seen), y)
    (g,) = torch.autograd.grad(loss, seen)
    estimates = {
        "plain gradient": g,
        "TI": whorl.TranslationInvariant()(g),
        "AI, reference": whorl.AffineInvariant(sigma="reference")(g),
        "AI, printed": whorl.AffineInvariant(sigma="printed")(g),
    }
    first = [(name, signed(value)) for name, value in estimates.items()]
    second = [(f"sign: {name}", signed(value.sign())) for name, value in estimates.items()]
    return [first, second]


def photograph(x: Tensor) -> Image.Image:
    """(1, 3, H, W) in [0, 1] as a panel."""
    return panel((x[0].clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())


def signed(g: Tensor) -> Image.Image:
    """The green channel of (1, 3, H, W): blue below zero, white at zero, red above; the 99th percentile saturates."""
    value = g[0, 1]
    value = (value / value.abs().flatten().quantile(0.99)).clamp(-1, 1)[..., None]
    red, blue = torch.tensor([178.0, 24.0, 43.0]), torch.tensor([33.0, 102.0, 172.0])
    paint = 255 + value.clamp(min=0) * (red - 255) + (-value).clamp(min=0) * (blue - 255)
    return panel(paint.round().byte().numpy(), Image.Resampling.BOX)


def panel(pixels: Pixels, how: Image.Resampling = Image.Resampling.LANCZOS) -> Image.Image:
    """Bring pixels to the size of a panel."""
    return Image.fromarray(pixels).resize((SIDE, SIDE), how)


def sheet(rows: list[list[Panel]]) -> Image.Image:
    """Lay panels out in rows, each under its caption."""
    width = max(len(row) for row in rows) * (SIDE + GAP) + GAP
    height = sum(CAPTION + max(image.height for _, image in row) + GAP for row in rows) + GAP // 2
    out = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(out), ImageFont.load_default(13)
    top = GAP // 2
    for row in rows:
        for place, (caption, image) in enumerate(row):
            left = GAP + place * (SIDE + GAP)
            draw.text((left, top + 2), caption, fill=INK, font=font)
            out.paste(image, (left, top + CAPTION))
        top += CAPTION + max(image.height for _, image in row) + GAP
    return out


def save(name: str, image: Image.Image) -> None:
    """Write a figure with few colours."""
    image.quantize(COLORS, dither=Image.Dither.NONE).save(HERE / name, optimize=True)


def _kernel(weights: Tensor, top: float) -> Image.Image:
    """A kernel's weights as shades, over bars for the sum of each column; ``top`` is the height of a full bar."""
    shades = 255 - 215 * weights / weights.max()
    tile = Image.fromarray(shades.round().byte().numpy()).convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)
    bars = SIDE // 2
    out = Image.new("RGB", (SIDE, SIDE + bars), "white")
    out.paste(tile, (0, 0))
    draw, columns = ImageDraw.Draw(out), weights.sum(0).tolist()
    for place, weight in enumerate(columns):
        left, right = place * SIDE / len(columns), (place + 1) * SIDE / len(columns) - 2
        draw.rectangle((left, out.height - 1 - weight / top * (bars - GAP), right, out.height - 1), fill=INK)
    draw.rectangle((0, 0, SIDE - 1, SIDE - 1), outline=(200, 200, 200))
    return out


if __name__ == "__main__":
    main()
