"""What photographs gave, and how they were looked at: the records that scoring fills and reports read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whorl.errors import WhorlError
from whorl.physical.extraction import SURROUNDINGS, Seen
from whorl.physical.sheet import Print

Pixels = NDArray[np.uint8]
View = Literal["as seen", "rectified"]

VIEWS: tuple[View, ...] = ("as seen", "rectified")
SHOWN = 6
"""So many images does a contact sheet show, each with all its versions."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One printed image in one photograph.

    Attributes:
        photo: the photograph's name.
        sheet: the sheet's name.
        item: what was printed.
        seen: how it lies in the photograph.
        misfit: how far marker corners lie off a plane, in pixels.
        answers: what each network says, by view and target.
    """

    photo: str
    sheet: str
    item: Print
    seen: Seen
    misfit: float
    answers: dict[tuple[View, str], int]

    def right(self, view: View, target: str) -> bool:
        """Whether a network recognises it."""
        return self.answers[view, target] == self.item.label


@dataclass(frozen=True, kw_only=True)
class Photographed:
    """What came of one photograph.

    Attributes:
        photo: its name.
        captures: every image that is wholly visible.
        partly: how many are not.
        reason: why there are no images; empty if there are.
        unbalanced: whether colours were to be put right, and no patch strip could be seen for some page.
    """

    photo: str
    captures: Sequence[Capture] = ()
    partly: int = 0
    reason: str = ""
    unbalanced: bool = False


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A photograph that gave nothing.

    Attributes:
        photo: its path.
        reason: why.
    """

    photo: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How photographs are looked at.

    Args:
        views: ways to cut images out.
        scale_one: what counts as scale 1 in a photograph; see ``extraction.unit``.
        offset: windows of the view as seen are off the image's middle by up to so many pixels of a 299-pixel image,
            at random, as a camera that is held by hand is. Cut out of a photograph of a whole page, images would
            always be in the middle.
        surroundings: what is seen beyond an image's edge, "black" or "photo".
        white_balance: whether to put colours right by the patch strip.
        seed: of the offsets.
    """

    views: tuple[View, ...] = VIEWS
    scale_one: str | float = "page"
    offset: float = 0.0
    surroundings: str = "black"
    white_balance: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.views or any(view not in VIEWS for view in self.views):
            raise WhorlError(f"views must be some of {', '.join(VIEWS)}; got {self.views!r}.")
        if not 0 <= self.offset <= 299:
            raise WhorlError(f"offset must be from 0 to 299 pixels; got {self.offset!r}.")
        if self.surroundings not in SURROUNDINGS:
            raise WhorlError(f"surroundings must be {' or '.join(SURROUNDINGS)}; got {self.surroundings!r}.")

    def shift(self, photo: str, number: int) -> tuple[float, float]:
        """Draw the offset of one image in one photograph."""
        if not self.offset:
            return (0.0, 0.0)
        digest = hashlib.blake2b(f"{self.seed}/{photo}/{number}".encode(), digest_size=16).digest()
        random = np.random.default_rng(int.from_bytes(digest, "big"))
        right, down = random.uniform(0, self.offset, 2) * random.choice((-1, 1), 2)
        return (float(right), float(down))


@dataclass(kw_only=True)
class Scored:
    """What came of photographs.

    Attributes:
        settings: how they were looked at.
        targets: names of the networks that were asked.
        photos: how many photographs there were.
        captures: every image that was identified.
        unread: photographs that gave nothing, with the reason.
        partly: how many images were seen in part only, and left out.
        unbalanced: photographs, of those to be balanced, in which no patch strip could be seen for some page.
        shown: a few images as they were cut out, by photograph, id, version and view.
    """

    settings: Settings
    targets: tuple[str, ...]
    photos: int = 0
    captures: list[Capture] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    partly: int = 0
    unbalanced: list[str] = field(default_factory=list)
    shown: dict[tuple[str, str], dict[tuple[str, View], Pixels]] = field(default_factory=dict)


def together(parts: Sequence[Scored]) -> Scored:
    """Put several scores into one, with a few images of each to show. All must have the same settings and targets."""
    whole = Scored(settings=parts[0].settings, targets=parts[0].targets)
    for part in parts:
        whole.photos += part.photos
        whole.partly += part.partly
        whole.captures += part.captures
        whole.unread += part.unread
        whole.unbalanced += part.unbalanced
        whole.shown |= dict(list(part.shown.items())[: max(1, SHOWN // len(parts))])
    return whole
