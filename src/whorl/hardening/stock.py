"""A stock of adversarial images, crafted between the steps of a training by whole attacks, and shown many times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.attacks.contract import Model
from whorl.hardening.recipes import CraftedExamples, Recipe
from whorl.hardening.student import at_size
from whorl.progress import count_work, piece_of_work
from whorl.randomness import substream, uniform

# Streams of an image's randomness in one version.
_VERSION, _EPOCH, _RADIUS, _ATTACK = 201, 202, 203, 204
# Images in a pass of an attack.
_PASS = {"cpu": 32, "cuda": 256}


class Shown(NamedTuple):
    """Which of its versions is shown of each image, (b,) both."""

    slots: Tensor
    """Where its perturbation lies."""
    keys: Tensor
    """From which its crop follows."""


class Stock:
    """Perturbations of all training images, of several versions at a time.

    A version is a crop of each image and a perturbation of it; who makes it is dealt out image by image, in another
    way for each version. It is a function of seed, version and image, so that a run that was stopped makes it again.

    Args:
        recipe: which attacks, and how many versions are kept for how many epochs.
        pool: static networks to craft on, by name.
        crops: gives the (b, 3, H, W) crops of some images, by place and by key.
        labels: (N,) of all images.
        keys: (N,) likewise.
        size: height and width of the crops.
    """

    def __init__(
        self,
        recipe: Recipe,
        pool: Mapping[str, Model],
        crops: Callable[[Tensor, Tensor], Tensor],
        labels: Tensor,
        keys: Tensor,
        size: tuple[int, int],
    ) -> None:
        kinds = [kind for kind in recipe.examples if isinstance(kind, CraftedExamples)]
        self.versions, self.lasts = max(kind.versions for kind in kinds), max(kind.lasts for kind in kinds)
        self.pool = {name: at_size(net, size, folded=False) for name, net in pool.items()}
        self.dealt = [(name, kind) for name in self.pool for kind in kinds for _ in range(kind.weight)]
        self.crops, self.labels, self.keys = crops, labels, keys
        # Whole steps of 8 bits: a quarter of the memory, and what a file of the image would hold.
        shape = (self.versions, len(keys), 3, *size)
        self.perturbations = torch.zeros(shape, dtype=torch.int8, device=keys.device)
        self.made: dict[int, int] = {}

    def newest(self, epoch: int) -> int:
        """The last version that an epoch shows; it shows those before it too, as many as are kept."""
        return epoch // self.lasts

    def prepare(self, epoch: int, learning: Sequence[int]) -> None:
        """Craft what an epoch shows and is not there, of the images that are learned from."""
        newest = self.newest(epoch)
        for version in range(max(0, newest - self.versions + 1), newest + 1):
            if self.made.get(version % self.versions) != version:
                with piece_of_work(f"crafting version {version + 1} of the images", len(learning), "crafted"):
                    self._craft(version, learning)
                self.made[version % self.versions] = version

    def shown(self, images: Tensor, epoch: int) -> Shown:
        """Draw one of the versions at hand for each of (b,) images."""
        newest, keys = self.newest(epoch), self.keys[images]
        alive = min(newest + 1, self.versions)
        back = (uniform(substream(keys, _EPOCH, epoch)) * alive).to(torch.int64).clamp(max=alive - 1)
        version = newest - back
        return Shown(version % self.versions, substream(keys, _VERSION, version))

    def perturbed(self, x: Tensor, images: Tensor, slots: Tensor, growth: Tensor) -> Tensor:
        """Adversarial versions of (b, 3, H, W) crops, (b,) images by place; ``growth`` is a factor on the radius."""
        perturbation = self.perturbations[slots, images].to(x.dtype)
        return (x + growth.to(x.dtype) * perturbation / 255).clamp(0, 1)

    def _craft(self, version: int, learning: Sequence[int]) -> None:
        slot, device = version % self.versions, self.keys.device
        most = _PASS.get(device.type, _PASS["cpu"])
        for turn, (name, kind) in enumerate(self.dealt):
            mine = torch.tensor(learning[(turn - version) % len(self.dealt) :: len(self.dealt)], device=device)
            # Equal parts: on a GPU each size of a batch is recorded by itself.
            for part in mine.chunk(math.ceil(len(mine) / most)):
                keys = substream(self.keys[part], _VERSION, version)
                x = self.crops(part, keys)
                eps = uniform(substream(keys, _RADIUS), (), *kind.eps)
                attack = kind.attack.with_(eps=tuple(eps.tolist()))
                ids = substream(keys, _ATTACK).tolist()
                adv = attack(self.pool[name], x, self.labels[part], ids=ids)
                self.perturbations[slot, part] = ((adv - x) * 255).round().to(torch.int8)
                count_work(len(part), "crafted")
