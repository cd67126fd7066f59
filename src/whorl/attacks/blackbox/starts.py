"""Where a black-box attack starts: at the image, anywhere in the ball, or where a transfer attack got to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from whorl.attacks.contract import Attack, Model, check_images
from whorl.attacks.norms import Norm
from whorl.attacks.objectives import Goal
from whorl.errors import WhorlError
from whorl.randomness import Ids
from whorl.records import Record

# Images that went through float32 arithmetic stray this far from the ball, and are put back; 8-bit steps are 0.004.
_TOLERANCE = 1e-4
_HALF_LEVEL = 0.5 / 255
_NAMED = 5


@dataclass(frozen=True, repr=False)
class FolderStart(Record):
    """Start images on disk: ``<folder>/<id>.png`` for each image under attack, as ``whorl attack`` writes them.

    Attributes:
        folder: where they lie; any format that :func:`whorl.data.load_image` reads will do.
    """

    folder: Path

    def path(self, name: str) -> Path:
        """The start image of one id.

        Raises:
            WhorlError: there is none.
        """
        from whorl.data.image_files import SUFFIXES  # needs Pillow, which the core does without

        # PNG first: it is the only one that whorl writes. Not with_suffix: ids may hold dots.
        for suffix in (".png", *sorted(SUFFIXES - {".png"})):
            found = self.folder / f"{name}{suffix}"
            if found.is_file():
                return found
        raise WhorlError(f"expected a start image {self.folder / name}.png; found none.")

    def load(self, x: Tensor, ids: Ids) -> Tensor:
        """Read the starts of (B, C, H, W) images ``x`` by their ``ids``: same shape, device and dtype.

        Raises:
            WhorlError: no folder, no ids, an id without an image, or an image of another size.
        """
        from whorl.data import load_image

        if not self.folder.is_dir():
            raise WhorlError(f"init: {self.folder} is no folder. Expected one of start images, named by id.")
        if ids is None:
            raise WhorlError("a folder as init needs ids=, one name per image, to find each image's start; got none.")
        names = [str(name) for name in (ids.tolist() if isinstance(ids, Tensor) else ids)]
        missing = [name for name in names if not self._has(name)]
        if missing:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise WhorlError(
                f"init: {self.folder} must hold a start image for each of the {len(names)} images; there is none for "
                f"{', '.join(missing[:_NAMED])}{more}."
            )
        starts = [load_image(self.path(name)) for name in names]
        for name, start in zip(names, starts, strict=True):
            if start.shape != x.shape[1:]:
                height, width = start.shape[1:]
                raise WhorlError(
                    f"init: start images must be {x.shape[3]}x{x.shape[2]} pixels, like the images under attack; "
                    f"that of {name} is {width}x{height}. Craft it on images of the same size."
                )
        return torch.stack(starts).to(x)

    def _has(self, name: str) -> bool:
        try:
            self.path(name)
        except WhorlError:
            return False
        return True


Init = Attack | FolderStart | Path | Tensor | Literal["random"] | None
Given = Attack | FolderStart | Path | Tensor


def is_given(init: Init) -> bool:
    """Whether a start is made or read, rather than drawn."""
    return isinstance(init, Given)


def check_init(init: Init) -> None:
    """Refuse what cannot be a start."""
    if not (init is None or is_given(init) or init == "random"):
        raise WhorlError(
            f"init must be an attack, a tensor of start images, a pathlib.Path of a folder of them, 'random' or None; "
            f"got {init!r}."
        )


def given_start(
    init: Given, surrogate: Model | None, x: Tensor, goal: Goal, *, seed: int, ids: Ids
) -> tuple[Tensor, Tensor]:
    """The images that ``init`` stands for, and the (B,) int64 surrogate gradients they cost."""
    none = torch.zeros_like(goal.labels)
    if isinstance(init, Path):
        init = FolderStart(init)
    if isinstance(init, FolderStart):
        return init.load(x, ids), none
    if isinstance(init, Tensor):
        if init.shape != x.shape:
            raise WhorlError(f"init must hold one start per image, {tuple(x.shape)}; got {tuple(init.shape)}.")
        return check_images(init).to(x), none
    if surrogate is None:
        raise WhorlError("an attack as init needs surrogate=, the model or ensemble to craft it on; got none.")
    y, target = (None, goal.labels) if goal.targeted else (goal.labels, None)
    adv, info = init(surrogate, x, y, target=target, seed=seed, ids=ids, return_info=True)
    return adv, none if info.grad_evals is None else info.grad_evals


def slack(init: Init, x: Tensor, norm: Norm) -> float:
    """How far outside the ball a start may lie for no fault of its own; it is then put back."""
    if not isinstance(init, FolderStart | Path):
        return _TOLERANCE
    # Files hold 8 bits: where eps is no whole number of levels, rounding alone may leave the ball by half a level.
    return _TOLERANCE + _HALF_LEVEL * (math.sqrt(x[0].numel()) if norm.name == "l2" else 1.0)


def check_in_ball(start: Tensor, x: Tensor, norm: Norm, eps: float, ids: Ids, *, slack: float = _TOLERANCE) -> None:
    """Refuse a start that lies further than ``eps`` and a ``slack`` from its image."""
    size = norm.size(start - x)
    worst = int(size.argmax())
    if float(size[worst]) > eps * (1 + _TOLERANCE) + slack:
        names: Sequence[object] | Tensor = range(len(x)) if ids is None else ids
        raise WhorlError(
            f"a start must lie in the ball of {norm.name} radius {eps:.4g} around its image; got "
            f"{float(size[worst]):.4g} for image {names[worst]}. Give both attacks the same eps and norm."
        )
