"""A shop of ten classes: images of ten colours, and a small network fitted to them, as state dict and as ONNX."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl.data import save_image
from whorl.models.architectures import build

ARCH, SIDE = "timm:test_resnet", 32
NAMES = ("bolt", "bracket", "flange", "gasket", "rivet", "shim", "spring", "sprocket", "valve", "wing nut")
CLASSES = tuple(reversed(NAMES))
"""In the order of the network's logits."""
EACH = 3
SATURATION = 0.35
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INPUT = {"size": str(SIDE), "mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225"}


@dataclass(frozen=True)
class Shop:
    """Where a network and its images lie."""

    folder: Path

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    @property
    def labels(self) -> str:
        return str(self.folder / "classes.txt")

    def address(self, file: str = "net.pth", **settings: str) -> str:
        """A network's address; ``settings`` replace or add to what the network was fitted with."""
        kind = "onnx" if file.endswith(".onnx") else "file"
        more = {} if kind == "onnx" else {"arch": ARCH, "num_classes": "10"}
        given = {**more, **INPUT, **settings}
        return f"{kind}:{self.folder / file}?" + "&".join(f"{name}={value}" for name, value in given.items() if value)


def images(each: int = EACH, *, seed: int = 0) -> tuple[Tensor, list[str]]:
    """Images of each class, (N, 3, SIDE, SIDE) in [0, 1], with the names of their classes."""
    generator = torch.Generator().manual_seed(seed)
    x, names = [], []
    for place, name in enumerate(NAMES):
        colour = torch.tensor(colorsys.hsv_to_rgb(place / len(NAMES), SATURATION, 0.8))[:, None, None]
        for _ in range(each):
            noise = 0.05 * torch.randn(3, SIDE, SIDE, generator=generator)
            x.append((colour + noise).clamp(0, 1))
            names.append(name)
    return (torch.stack(x) * 255).round() / 255, names


def fitted(x: Tensor, y: Tensor, *, seed: int = 0, sure: float = 5.0) -> Any:
    """A network whose last layer tells normalised images apart: least squares on what the others make of them."""
    torch.manual_seed(seed)
    net: Any = build(ARCH, num_classes=len(NAMES))[0].eval()
    with torch.no_grad():
        seen = net.forward_head(net.forward_features(x), pre_logits=True).double()
        middle, spread = seen.mean(0), seen.std()
        wanted = torch.eye(len(NAMES), dtype=torch.float64)[y]
        inputs = (seen - middle) / spread
        square = inputs.T @ inputs + 1e-3 * torch.eye(inputs.shape[1], dtype=torch.float64)
        weight = torch.linalg.solve(square, inputs.T @ wanted).T / spread
        net.fc.weight.copy_(sure * weight)
        net.fc.bias.copy_(-sure * weight @ middle)
    return net


def make_shop(folder: Path, *, each: int = EACH) -> Shop:
    """Write images, labels and networks of the same classes: ``net`` (.pth and .onnx), and ``sibling``, which shares
    all of it but the last layer."""
    shop = Shop(folder)
    x, names = images(each)
    for i, (image, name) in enumerate(zip(x, names, strict=True)):
        save_image(folder / "data" / name.replace(" ", "_") / f"{i}.png", image)
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n", encoding="utf-8")
    for file, seed in (("net", 1), ("sibling", 2)):
        torch.save(trained(seed).state_dict(), folder / f"{file}.pth")
    torch.onnx.export(
        trained(1),
        (x[:1],),
        folder / "net.onnx",
        dynamo=False,
        dynamic_axes={"input": {0: "n"}},
        input_names=["input"],
    )
    return shop


def trained(seed: int, *, sure: float = 5.0) -> Any:
    """The shop's network, its last layer fitted to images that no test shows it."""
    x, names = images(8, seed=seed)
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
    return fitted((x - mean) / std, torch.tensor([CLASSES.index(name) for name in names]), sure=sure)
