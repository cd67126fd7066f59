"""Training images: decoded once, kept as bytes on the device, and cropped there."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.data import ImageData, open_images
from whorl.data.classes import labelled
from whorl.data.layouts import ListedImage
from whorl.errors import WhorlError, some_of
from whorl.progress import Progress, silent
from whorl.randomness import image_keys, substream, uniform

# Streams of an image's randomness; those of a training step are in whorl.hardening.trainer.
_HELD_OUT, _ORDER = 101, 102


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingImages:
    """Labelled images of one size, in memory.

    Attributes:
        pixels: (N, 3, S, S) uint8.
        labels: (N,) int64, 0-based.
        ids: N unique names, from which all randomness follows.
        sha256: of the names, labels and pixels.
    """

    pixels: Tensor
    labels: Tensor
    ids: Sequence[str]
    sha256: str

    @classmethod
    def of(cls, pixels: Tensor, labels: Tensor, ids: Sequence[str]) -> TrainingImages:
        """Take images that are in memory already, (N, 3, H, W) uint8, with (N,) labels and N names."""
        if pixels.dtype != torch.uint8 or pixels.dim() != 4 or pixels.shape[1] != 3:
            raise WhorlError(f"pixels must be (N, 3, H, W) uint8; got {pixels.dtype} of shape {tuple(pixels.shape)}.")
        if not len(pixels) == len(labels) == len(ids):
            raise WhorlError(
                f"expected a label and a name for each of {len(pixels)} images; got {len(labels)} and {len(ids)}."
            )
        if len(set(ids)) != len(ids):
            raise WhorlError("the names of images must differ from each other; got one name twice.")
        digest = hashlib.sha256()
        digest.update("\n".join(ids).encode())
        digest.update(labels.cpu().to(torch.int64).numpy().tobytes())
        digest.update(pixels.cpu().contiguous().numpy().data)
        return cls(pixels=pixels, labels=labels.to(torch.int64), ids=tuple(ids), sha256=digest.hexdigest())

    def __len__(self) -> int:
        return len(self.pixels)

    def check_classes(self, num_classes: int, *, partial: bool = False) -> None:
        """Refuse labels that a network has no class for, and classes that have no image.

        Args:
            num_classes: how many the network knows.
            partial: whether classes without an image are meant to be.
        """
        highest = int(self.labels.max())
        if highest >= num_classes:
            raise WhorlError(
                f"labels must lie in [0, {num_classes - 1}], the network's classes; got {highest}. "
                "Class folders must be named by 0-based label, or by synset."
            )
        missing = sorted(set(range(num_classes)) - set(self.labels.tolist()))
        if missing and not partial:
            raise WhorlError(
                f"expected images of all {num_classes} classes, got none of class {some_of(missing, 8)}. A missing "
                "class folder shifts the labels of folders that are not named by label. Add it, or say that it is "
                "meant: partial=True, --partial."
            )

    def split(self, held_out: int, seed: int) -> tuple[Tensor, Tensor]:
        """Choose images to watch the training with, at random but by name: (training, held-out) indices."""
        order = uniform(substream(self.keys(seed), _HELD_OUT)).argsort(stable=True)
        return order[held_out:].sort().values, order[:held_out].sort().values

    def keys(self, seed: int) -> Tensor:
        """(N,) random keys on the CPU, one for each image."""
        return image_keys(torch.empty(len(self.ids), 0), seed, self.ids)


def load_training_images(
    data: ImageData,
    *,
    side: int,
    limit: int | None = None,
    labels: Sequence[str] | None = None,
    progress: Progress = silent,
) -> TrainingImages:
    """Decode every image of a data set once.

    Args:
        data: anything that ``whorl.load_images`` takes.
        side: images are resized to a square of this side, in pixels.
        limit: take only so many, spread evenly over the listing (class by class in class folders).
        labels: names of the network's classes, in order: what class folders are called is found among them.
        progress: called with how many are done.

    Raises:
        WhorlError: no such folder, no layout that fits, or a bad image or label.
    """
    if side < 1:
        raise WhorlError(f"side must be a whole number of pixels from 1; got {side}.")
    images = open_images(data)
    entries = list(labelled(images.entries(), labels, data))
    if limit is not None and limit < len(entries):
        if limit < 1:
            raise WhorlError(f"limit must be a whole number from 1; got {limit}.")
        entries = [entries[i * len(entries) // limit] for i in range(limit)]
    for entry in entries:
        if entry.fault:
            raise WhorlError(f"{entry.fault}. Correct it, or take it off the list.")
    pixels = torch.empty(len(entries), 3, side, side, dtype=torch.uint8)

    def read(place: int, entry: ListedImage) -> None:
        pixels[place] = (images.read(entry, (side, side)) * 255).round().to(torch.uint8)

    # Pillow lets go of the interpreter while it decodes, so threads help.
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1) if images.threads else 1) as workers:
        waiting = [workers.submit(read, place, entry) for place, entry in enumerate(entries)]
        try:
            for done, job in enumerate(waiting, start=1):
                job.result()
                progress("decoding images", done, len(entries))
        except BaseException:
            workers.shutdown(cancel_futures=True)
            raise
    classes = torch.tensor([entry.label for entry in entries], dtype=torch.int64)
    return TrainingImages.of(pixels, classes, [entry.id for entry in entries])


@dataclass(frozen=True, eq=False)
class Order:
    """Which images each step sees: every epoch a new order, a function of (seed, epoch, image) and nothing else.

    Attributes:
        indices: (N,) images to draw from, on the CPU.
        keys: (N,) their keys.
        batch: images a step; what is left over at the end of an epoch waits for the next one.
    """

    indices: Tensor
    keys: Tensor
    batch: int

    def __post_init__(self) -> None:
        if len(self.indices) < self.batch:
            raise WhorlError(
                f"expected at least a batch of {self.batch} images to train on, got {len(self.indices)}. "
                "Add images, or make the batch or the held-out part smaller."
            )

    def of(self, epoch: int) -> Tensor:
        """All (N,) images in the order of an epoch."""
        return self.indices[uniform(substream(self.keys, _ORDER, epoch)).argsort(stable=True)]

    def at(self, step: int) -> tuple[int, slice]:
        """The epoch that a step belongs to, and its part of that epoch's order.

        >>> order = Order(torch.arange(10), torch.arange(10), batch=5)
        >>> order.at(0), order.at(1), order.at(2)
        ((0, slice(0, 5, None)), (0, slice(5, 10, None)), (1, slice(0, 5, None)))
        """
        epoch, place = divmod(step, len(self.indices) // self.batch)
        return epoch, slice(place * self.batch, (place + 1) * self.batch)


def random_crops(
    x: Tensor,
    keys: Tensor,
    size: tuple[int, int],
    *,
    area: tuple[float, float] = (0.35, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Cut a random rectangle out of each image, resize it, and mirror every other one.

    One bilinear warp an image. The rectangle always lies inside.

    Args:
        x: (B, C, H, W) floating.
        keys: (B,) int64, one an image (:mod:`whorl.randomness`).
        size: (height, width) of the crops, in pixels.
        area: lowest and highest share of the image that is kept.
        ratio: lowest and highest width divided by height; drawn evenly in its logarithm.

    Returns:
        (B, C, height, width), dtype of ``x``.

    >>> random_crops(torch.rand(2, 3, 20, 20), torch.tensor([1, 2]), (8, 8)).shape
    torch.Size([2, 3, 8, 8])
    """
    draws = uniform(keys, (5,)).to(torch.promote_types(x.dtype, torch.float32))
    share = area[0] + (area[1] - area[0]) * draws[:, 0]
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * draws[:, 1])
    # Sides as shares of the image's own; one that would be longer than the image is cut to it.
    width = (share * aspect).sqrt().clamp(max=1)
    height = (share / aspect).sqrt().clamp(max=1)
    across = (1 - width) * (2 * draws[:, 2] - 1)
    along = (1 - height) * (2 * draws[:, 3] - 1)
    mirror = torch.where(draws[:, 4] < 0.5, -1.0, 1.0).to(draws.dtype)
    zero = torch.zeros_like(width)
    rows = torch.stack((mirror * width, zero, across, zero, height, along), dim=1).view(-1, 2, 3)
    grid = F.affine_grid(rows, [len(x), x.shape[1], *size], align_corners=False)
    # The border pixel continues outwards: a sample between the last pixel's centre and the edge is no black seam.
    out = F.grid_sample(x.to(rows.dtype), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return out.to(x.dtype)
