"""Small networks and images for the playground's tests."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conftest import CLASSES, random_images, small_net
from whorl import Classifier
from whorl.data import save_image
from whorl.errors import WhorlError
from whorl.models.architectures import imagenet_labels
from whorl.ui.image import ChosenImage
from whorl.ui.pair import CraftedPair, PairSettings, StepTaken, craft
from whorl.ui.playground import Offer, Playground

SIDE = 18
LABELS = tuple(f"kind {letter}" for letter in "abcdefg"[:CLASSES])


def gradio_is_here() -> None:
    """Skip without gradio, but fail in continuous integration."""
    if importlib.util.find_spec("gradio") is None:
        message = "gradio is not installed; it is part of torchwhorl[ui]"
        if os.environ.get("CI"):
            pytest.fail(f"{message}. Install it, or the playground goes untested.")
        pytest.skip(message)


def toy(*, seed: int = 0, labels: tuple[str, ...] = LABELS) -> Classifier:
    """A network that tells random images apart; its seven classes have names."""
    return Classifier.from_module(
        small_net(seed=seed), size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, labels=labels, name="toy"
    )


def slow() -> Classifier:
    """The same, in no hurry."""
    return Classifier.from_module(
        nn.Sequential(Sleep(), small_net()), size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, labels=LABELS, name="slow"
    )


def imagenet_toy() -> Classifier:
    """A network with the classes of ImageNet that knows nothing about them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 1000))
    return Classifier.from_module(net, size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, labels=imagenet_labels())


class Sleep(nn.Module):
    """Lets 0.1 seconds pass."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Sleep.calls += 1
        time.sleep(0.1)
        return x


def image(folder: Path, *, seed: int = 1, label: int | None = None, side: int = SIDE) -> ChosenImage:
    """A random image in a file."""
    path = folder / f"noise-{seed}.png"
    save_image(path, random_images(1, height=side, width=side, seed=seed)[0])
    return ChosenImage(name=path.name, id=f"noise {seed}", label=label, source=path)


def crafted(folder: Path, **settings: object) -> CraftedPair:
    """What the toy makes of a random image."""
    return craft(toy(), image(folder), PairSettings(**settings))  # type: ignore[arg-type]  # as the test gives them


def followed(model: Classifier, chosen: ChosenImage, settings: PairSettings) -> tuple[list[StepTaken], CraftedPair]:
    """The steps, and what was made."""
    steps: list[StepTaken] = []
    return steps, craft(model, chosen, settings, on_step=steps.append)


def playground() -> Playground:
    """A page that offers a quick toy, a slow one, and one that cannot be had."""
    networks = {"toy": toy(), "other": toy(seed=1), "slow": slow()}

    def load(name: str) -> Classifier:
        if name not in networks:
            raise WhorlError(f"the weights of {name} are on the moon.")
        return networks[name]

    return Playground([Offer(name=name, here=name in networks) for name in (*networks, "lost")], load=load)
