"""Galleries: a few images, clean and attacked, in several poses, with what a network says of each."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from PIL import Image, features
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.evaluation.outcomes import to_8_bits
from whorl.report.content import CLEAN, Encoded, Example, Gallery, Shot, Version

POSES = {
    "as it is": Pose(),
    "rotation 30°": Pose(angle=30),
    "scaling 1.5": Pose(scale=1.5),
    "mix 30°, 1.5, shift 20": Pose(angle=30, scale=1.5, shift=(20, 20)),
}
"""The paper's columns, by their headings."""
SIDE = 320
"""Images are shrunk to so many pixels at most, and never enlarged."""
ZOOM = 3
"""The close-up shows the middle third of the perturbation."""


class Labelled(Protocol):
    """A network that knows what its classes are called: a Classifier, an Ensemble, a defended one."""

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """One name per class."""
        ...

    def __call__(self, x: Tensor, /) -> Tensor:
        """(B, C, H, W) in [0, 1] to logits."""
        ...


@torch.no_grad()
def gallery(
    model: Labelled,
    x: Tensor,
    adversarial: Mapping[str, Tensor],
    y: Tensor,
    ids: Sequence[str],
    *,
    poses: Mapping[str, Pose] = POSES,
    count: int = 3,
    eps: float | None = None,
    source: str = "",
    batch_size: int = 16,
) -> Gallery:
    """Show what a network makes of a few images, clean and attacked, in several poses.

    Shown are the images whose clean version the network recognises in most poses, and of those the ones on which the
    first and the last attack differ most. Adversarial images are rounded to 8 bits first.

    Args:
        model: the network that is asked.
        x: (N, 3, H, W) clean images in [0, 1], on the network's device.
        adversarial: attack's name to (N, 3, H, W), from the weaker to the stronger.
        y: (N,) true labels.
        ids: N names.
        poses: heading to pose.
        count: how many images to show at most.
        eps: bound of the attacks, in units of the [0, 1] range: a pixel that changed by so much becomes black or white
            in the close-up. Without it, the largest change of any image takes its place.
        source: name of the network that the attacks were crafted on, for the title.
        batch_size: images per forward pass.

    Raises:
        WhorlError: the parts do not fit together, or there is nothing to show.
    """
    _check(x, adversarial, y, ids, poses)
    versions = {CLEAN: x, **{name: to_8_bits(images) for name, images in adversarial.items()}}
    answers = {name: _answers(model, images, poses, batch_size) for name, images in versions.items()}
    bound = eps or max(float((images - x).abs().max()) for images in versions.values()) or 1 / 255
    examples = []
    for i in _telling(answers, y)[:count]:
        truth = int(y[i])
        shown = tuple(
            _version(name, images[i : i + 1], x[i : i + 1], model, poses, truth, bound)
            for name, images in versions.items()
        )
        examples.append(Example(id=ids[i], truth=model.labels[truth], versions=shown))
    telling = (
        "on which the attack succeeds most."
        if len(adversarial) == 1
        else "on which the first and the last attack differ most."
    )
    made = f"Made to fool {source}, shown" if source and source != model.name else "Shown"
    return Gallery(
        title=f"{made} to {model.name}",
        about=f"{len(examples)} of {len(x)} images: those that {model.name} recognises in most poses while clean, "
        f"and of those the ones {telling} They are no fair sample.",
        poses=tuple(poses),
        magnified=0.5 / bound,
        zoom=ZOOM,
        examples=tuple(examples),
    )


def encode(picture: Tensor, *, side: int = SIDE) -> Encoded:
    """Make a small file of an image.

    Args:
        picture: (3, H, W) in [0, 1].
        side: longest side in pixels; larger images are shrunk.

    >>> encode(torch.zeros(3, 8, 8)).media in ("image/webp", "image/jpeg")
    True
    """
    levels = (picture.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    image = Image.fromarray(levels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    # Pillow's own wheels all write WebP; a distribution's may not.
    if features.check("webp"):
        image.save(file, format="WEBP", quality=88)
        return Encoded(file.getvalue(), "image/webp")
    image.save(file, format="JPEG", quality=90)
    return Encoded(file.getvalue(), "image/jpeg")


def _check(
    x: Tensor, adversarial: Mapping[str, Tensor], y: Tensor, ids: Sequence[str], poses: Mapping[str, Pose]
) -> None:
    if x.dim() != 4 or x.shape[1] != 3 or not len(x):
        raise WhorlError(f"images must be (N, 3, H, W), N at least 1; got {tuple(x.shape)}.")
    if not adversarial or not poses:
        raise WhorlError("a gallery needs at least one attack and one pose; got none.")
    if CLEAN in adversarial:
        raise WhorlError(f"no attack may be called {CLEAN!r}: that is the clean version's name. Rename it.")
    for name, images in adversarial.items():
        if images.shape != x.shape:
            raise WhorlError(f"images of {name!r} must match x, {tuple(x.shape)}; got {tuple(images.shape)}.")
    if y.shape != x.shape[:1] or len(ids) != len(x):
        raise WhorlError(
            f"expected a label and an id for each of {len(x)} images; got {tuple(y.shape)} and {len(ids)}."
        )


def _answers(model: Labelled, x: Tensor, poses: Mapping[str, Pose], batch_size: int) -> Tensor:
    """Predicted labels, (poses, N)."""
    parts = [
        torch.stack([model(pose.apply(x[i : i + batch_size])).argmax(1) for pose in poses.values()])
        for i in range(0, len(x), batch_size)
    ]
    return torch.cat(parts, dim=1)


def _telling(answers: Mapping[str, Tensor], y: Tensor) -> list[int]:
    """All images, by index, those most worth showing first. ``answers`` are (poses, N) by version."""
    right = {name: given == y for name, given in answers.items()}
    first, last = list(right)[1], list(right)[-1]
    recognised = right[CLEAN].sum(0).tolist()
    if first == last:
        difference = (~right[last]).int().sum(0).tolist()
    else:
        difference = (right[first].int() - right[last].int()).sum(0).tolist()
    return sorted(range(len(y)), key=lambda i: (-recognised[i], -difference[i], i))


def _version(
    name: str, image: Tensor, clean: Tensor, model: Labelled, poses: Mapping[str, Pose], truth: int, bound: float
) -> Version:
    shots = []
    for heading, pose in poses.items():
        seen = pose.apply(image)
        probability, answer = (part.item() for part in model(seen).softmax(1)[0].max(0))
        shots.append(
            Shot(
                picture=encode(seen[0]),
                pose=heading,
                label=model.labels[int(answer)],
                probability=float(probability),
                fooled=int(answer) != truth,
            )
        )
    if name == CLEAN:
        return Version(name=name, shots=tuple(shots))
    change = (image[0] - clean[0]) / (2 * bound) + 0.5
    return Version(name=name, shots=tuple(shots), change=encode(change), centre=encode(_middle(change)))


def _middle(change: Tensor) -> Tensor:
    """The middle of a perturbation, its pixels enlarged without smoothing."""
    height, width = change.shape[-2:]
    high, wide = max(1, height // ZOOM), max(1, width // ZOOM)
    top, left = (height - high) // 2, (width - wide) // 2
    part = change[:, top : top + high, left : left + wide]
    return part.repeat_interleave(ZOOM, dim=1).repeat_interleave(ZOOM, dim=2)
