"""Networks whose gradients are known in closed form, and small ones of different kin."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from cli.toy_networks import classifier
from conftest import CLASSES, random_images, small_net
from whorl import Classifier
from whorl.data import save_image

SIDE = 17
FIRST, SECOND, THIRD = (f"python:analysis.toy_fields:{name}" for name in ("first", "second", "third"))


class Linear(nn.Module):
    """Logits w_k · x: with the loss "logit" the gradient is -w_y at every image."""

    def __init__(self, side: int = SIDE, classes: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.w = nn.Parameter(torch.randn(classes, 3, side, side, generator=generator, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bchw,kchw->bk", x, self.w)


class Quadratic(nn.Module):
    """Logits -(a/2)‖x‖² for each class: with the loss "logit" the gradient is a·x."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = a

    def forward(self, x: Tensor) -> Tensor:
        return (-self.a / 2 * x.square().sum((1, 2, 3)))[:, None].expand(-1, CLASSES)


def first() -> Classifier:
    return classifier(small_net(), "first")


def second() -> Classifier:
    return classifier(small_net(seed=5), "second")


def third() -> Classifier:
    return classifier(small_net(seed=9), "third")


def framed(count: int, side: int = SIDE, margin: int = 5, *, seed: int = 0) -> Tensor:
    """Random images in a wide black frame, so that small shifts lose nothing; float64."""
    x = torch.zeros(count, 3, side, side, dtype=torch.float64)
    inside = side - 2 * margin
    generator = torch.Generator().manual_seed(seed)
    x[:, :, margin:-margin, margin:-margin] = torch.rand(
        count, 3, inside, inside, generator=generator, dtype=torch.float64
    )
    return x


def smooth(side: int = 65, *, seed: int = 0) -> Tensor:
    """A smooth random image that fades to 0 at its border, (1, 1, side, side) float64."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(1, 1, 6, 6, generator=generator, dtype=torch.float64)
    fine = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic", align_corners=True)
    ramp = torch.linspace(-1, 1, side, dtype=torch.float64)
    window = (torch.cos(ramp * torch.pi / 2) ** 2)[:, None] * (torch.cos(ramp * torch.pi / 2) ** 2)[None, :]
    return fine * window


def saved(folder: Path, count: int = 10) -> Path:
    """Save images under the labels that the first network gives them."""
    x = random_images(count)
    for i, label in enumerate(first()(x).argmax(1).tolist()):
        save_image(folder / "data" / str(label) / f"{i}.png", x[i])
    return folder / "data"
