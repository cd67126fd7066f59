"""The one gallery: rows of small images with what a network says of each. A page and a file show the same record."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from PIL import Image, features
from torch import Tensor

from whorl.errors import WhorlError
from whorl.evaluation import AttackedImages, Outcomes, Pose, outcomes, predictions, to_8_bits
from whorl.evaluation.attacked_images import check_fit, split

CLEAN = "clean"
"""Name of the version that nobody attacked."""
POSES = {
    "as it is": Pose(),
    "rotation 30°": Pose(angle=30),
    "scaling 1.5": Pose(scale=1.5),
    "mix 30°, 1.5, shift 20": Pose(angle=30, scale=1.5, shift=(20, 20)),
}
"""The paper's columns, by their headings."""
SIDE = 256
"""In a page, images are shrunk to so many pixels at most, and never enlarged."""
NOTEBOOK = 900
"""Pixels that a notebook's page is wide."""
ZOOM = 3
"""The close-up shows the middle third of the perturbation."""

RULE = (
    "the first whose clean version {} recognises in every pose shown, or else in the most; chosen without regard to "
    "the attacks."
)
"""How examples are chosen; the network's name is to be put in."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One small image, and what a network says of it.

    Attributes:
        image: 8-bit RGB, as the network saw it; :func:`to_image` makes one of a tensor.
        caption: what the network says; "" if it was not evaluated.
        fooled: whether that is wrong; None if it was not evaluated.
        probability: that the network gives to it, in [0, 1]; None if it was not kept.
    """

    image: Image.Image
    caption: str = ""
    fooled: bool | None = None
    probability: float | None = None

    @property
    def uri(self) -> str:
        """The image, small, as an address that needs no network."""
        return data_uri(self.image)


@dataclass(frozen=True, kw_only=True)
class TileRow:
    """One version of an image in every column: its name, and a tile or nothing for each column."""

    name: str
    tiles: tuple[Tile | None, ...]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One image in all its versions.

    Attributes:
        id: the image's name.
        truth: what it shows.
        rows: a version each, the clean one first.
    """

    id: str
    truth: str
    rows: tuple[TileRow, ...]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """A few images, clean and attacked, as one network sees them; see :func:`gallery`.

    Attributes:
        title: what it shows.
        about: a sentence or two.
        columns: headings of the columns of tiles.
        examples: the images.
    """

    title: str
    about: str = ""
    columns: tuple[str, ...]
    examples: tuple[Example, ...]

    def _repr_jpeg_(self) -> bytes:
        """The sheet that ``save_gallery`` writes, as small as a notebook shows it."""
        from whorl.report.export import draw_sheet  # which draws what is defined here

        sheet, file = draw_sheet(self), io.BytesIO()
        sheet.thumbnail((NOTEBOOK, sheet.height))
        sheet.save(file, "JPEG", quality=70)
        return file.getvalue()


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
def gallery(  # wide: the images with all that belongs to them, and independent choices of what to show
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

    Shown are the first images whose clean version the network recognises in every pose, or else in most; what the
    attacks make of them has no part in it. Adversarial images are rounded to 8 bits first.

    Args:
        model: the network that is evaluated.
        x: (N, 3, H, W) clean images in [0, 1], on the network's device.
        adversarial: attack's name to (N, 3, H, W), in the order of the rows.
        y: (N,) true labels.
        ids: N names.
        poses: heading to pose.
        count: how many images to show at most.
        eps: bound of the attacks, in units of the [0, 1] range: a pixel that changed by so much becomes black or white
            in the close-up. Without it, the largest change of any image takes its place.
        source: name of the network that the attacks were crafted on, for the title.
        batch_size: images per forward pass.

    Raises:
        WhorlError: the parts do not fit together, there is nothing to show, or the network's answer is not finite.
    """
    _check(x, adversarial, y, ids, poses)
    batches = split(AttackedImages(x, adversarial, y, ids), batch_size)
    shown_in = tuple(poses.values())
    chosen = recognised_first(outcomes(batches, {model.name: model}, shown_in), model.name, shown_in)[:count]
    shown = {name: images[chosen] for name, images in adversarial.items()}
    bound = eps or reach(x, adversarial)
    made = examples(model, x[chosen], shown, y[chosen], [ids[i] for i in chosen], poses=poses, eps=bound)
    return described(made, model.name, len(x), source=source)


@torch.no_grad()
def examples(
    model: Labelled,
    x: Tensor,
    adversarial: Mapping[str, Tensor],
    y: Tensor,
    ids: Sequence[str],
    *,
    poses: Mapping[str, Pose] = POSES,
    eps: float | None = None,
) -> Gallery:
    """Show all of the images, whatever the network says of them; otherwise as :func:`gallery`, and without a title."""
    _check(x, adversarial, y, ids, poses)
    versions = {CLEAN: x, **{name: to_8_bits(images) for name, images in adversarial.items()}}
    bound = eps or reach(x, adversarial)
    shown = []
    for i, (truth, name) in enumerate(zip(y.tolist(), ids, strict=True)):
        rows = []
        for version, images in versions.items():
            close: list[Tile | None] = [None, None]
            if version != CLEAN:
                change = (images[i] - x[i]) / (2 * bound) + 0.5
                close = [Tile(image=to_image(part)) for part in (change, _middle(change))]
            rows.append(TileRow(name=version, tiles=(*_tiles(model, images[i], poses, truth), *close)))
        shown.append(Example(id=name, truth=model.labels[truth], rows=tuple(rows)))
    columns = (*poses, f"perturbation ×{0.5 / bound:.0f}", f"centre ×{ZOOM}")
    return Gallery(title="", columns=columns, examples=tuple(shown))


def recognised_first(found: Outcomes, target: str, poses: Collection[Pose] = tuple(POSES.values())) -> list[int]:
    """All images, by index: first those whose clean version is recognised in every pose, then those in most.

    Among equals the order of the data set holds. What the attacks make of an image has no part in it.

    Args:
        found: what became of each image.
        target: name of the network whose answers are shown.
        poses: those that are shown; of the others only if none of these was evaluated.
    """
    rows = [place for place, pose in enumerate(found.poses) if pose in poses] or slice(None)
    recognised = found.clean[found.targets.index(target), rows].sum(0).tolist()
    return sorted(range(len(found.ids)), key=lambda i: -recognised[i])


def to_image(pixels: Tensor) -> Image.Image:
    """Make an 8-bit image of (3, H, W) in [0, 1]; what lies outside is clipped.

    >>> to_image(torch.ones(3, 8, 9)).size
    (9, 8)
    """
    levels = (pixels.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(levels)


def data_uri(image: Image.Image, *, side: int | None = SIDE) -> str:
    """Put an image into an address, so that a page needs no other file.

    Args:
        image: 8-bit RGB.
        side: longest side in pixels; larger images are shrunk, and all are compressed with a little loss. None keeps
            every pixel as it is.

    >>> data_uri(to_image(torch.zeros(3, 8, 8)), side=None).partition(",")[0]
    'data:image/png;base64'
    """
    file = io.BytesIO()
    if side is None:
        # Level 1 is several times faster than the default, and such a page goes no further than this machine.
        media, options = "png", {"compress_level": 1}
    else:
        image = image.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        # Pillow's own wheels all write WebP; a distribution's may not.
        media, options = ("webp", {"quality": 80}) if features.check("webp") else ("jpeg", {"quality": 82})
    image.save(file, format=media.upper(), **options)
    return address(f"image/{media}", file.getvalue())


def address(media: str, content: bytes) -> str:
    """Put a file of some media type into an address."""
    return f"data:{media};base64,{base64.b64encode(content).decode('ascii')}"


def described(made: Gallery, model: str, total: int, *, source: str = "") -> Gallery:
    """Say of a gallery what it shows, and by what rule its images were chosen.

    Args:
        made: the gallery.
        model: the network that was evaluated.
        total: of how many images they were chosen.
        source: the network that the attacks were crafted on; "" if unknown.
    """
    opening = f"Crafted on {source}, evaluated" if source and source != model else "Evaluated"
    return replace(
        made, title=f"{opening} on {model}", about=f"{len(made.examples)} of {total} images: {RULE.format(model)}"
    )


def _check(
    x: Tensor, adversarial: Mapping[str, Tensor], y: Tensor, ids: Sequence[str], poses: Mapping[str, Pose]
) -> None:
    if x.dim() != 4 or x.shape[1] != 3 or not len(x):
        raise WhorlError(f"images must be (N, 3, H, W), N at least 1; got {tuple(x.shape)}.")
    if not adversarial or not poses:
        raise WhorlError("a gallery needs at least one attack and one pose; got none.")
    if CLEAN in adversarial:
        raise WhorlError(f"no attack may be called {CLEAN!r}: that is the clean version's name. Rename it.")
    check_fit(x, adversarial, y, ids)


def reach(x: Tensor, adversarial: Mapping[str, Tensor]) -> float:
    """The largest change of any channel of any pixel, after rounding to 8 bits; one level if there is none."""
    return max(float((to_8_bits(images) - x).abs().max()) for images in adversarial.values()) or 1 / 255


def _tiles(model: Labelled, image: Tensor, poses: Mapping[str, Pose], truth: int) -> list[Tile]:
    y = torch.tensor([truth])
    answers, probabilities = predictions({model.name: model}, image[None], tuple(poses.values()), y=y)
    said = zip(poses.values(), answers.flatten().tolist(), probabilities.flatten().tolist(), strict=True)
    return [
        Tile(
            image=to_image(pose.apply(image[None])[0]),
            caption=model.labels[answer],
            fooled=answer != truth,
            probability=probability,
        )
        for pose, answer, probability in said
    ]


def _middle(change: Tensor) -> Tensor:
    """The middle of a perturbation, its pixels enlarged without smoothing."""
    height, width = change.shape[-2:]
    high, wide = max(1, height // ZOOM), max(1, width // ZOOM)
    top, left = (height - high) // 2, (width - wide) // 2
    part = change[:, top : top + high, left : left + wide]
    return part.repeat_interleave(ZOOM, dim=1).repeat_interleave(ZOOM, dim=2)
