"""What photographs gave, and how images are cut out of them: the records that scoring fills and reports read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from whorl.data.image_files import Pixels
from whorl.errors import WhorlError
from whorl.geometry.pose import Pose
from whorl.physical.camera import draw_offset, random_of
from whorl.physical.extraction import SURROUNDINGS, Appearance
from whorl.physical.sheet import Print, PrintedSheet

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
        appearance: how it lies in the photograph.
        misfit: how far marker corners lie off a plane, in pixels.
        predictions: class that each network gives to it, by view and target; empty before they are evaluated.
    """

    photo: str
    sheet: str
    item: Print
    appearance: Appearance
    misfit: float
    predictions: dict[tuple[View, str], int] = field(default_factory=dict)

    def correct(self, view: View, target: str) -> bool:
        """Whether a network recognises it."""
        return self.predictions[view, target] == self.item.label


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

    def to_json(self, sheets: Mapping[str, PrintedSheet]) -> dict[str, Any]:
        """Give all of it as plain JSON, prints by their numbers on their sheets."""
        captures = [
            {
                "sheet": capture.sheet,
                "number": sheets[capture.sheet].number(capture.item),
                "appearance": asdict(capture.appearance),
                "misfit": capture.misfit,
                "predictions": [[*key, prediction] for key, prediction in capture.predictions.items()],
            }
            for capture in self.captures
        ]
        return vars(self) | {"captures": captures}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], sheets: Mapping[str, PrintedSheet]) -> Self:
        """Read what ``to_json`` gave."""
        captures = [
            Capture(
                photo=content["photo"],
                sheet=capture["sheet"],
                item=sheets[capture["sheet"]].by_number[capture["number"]],
                appearance=_appearance(**capture["appearance"]),
                misfit=capture["misfit"],
                predictions={(view, target): prediction for view, target, prediction in capture["predictions"]},
            )
            for capture in content["captures"]
        ]
        return cls(**(dict(content) | {"captures": captures}))


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """How images are cut out of photographs.

    Args:
        views: "as seen", a window of the photograph, in which the image is rotated and scaled as it was photographed;
            "rectified", the image warped back to its square.
        scale_one: what counts as scale 1 in a photograph: "page", the page just fills it; "image", the image's longer
            side is as long as the photograph's shorter side; or a number of photograph pixels for each millimetre of
            paper.
        offset: how far the windows of "as seen" are off the middle of their image at most, at random, in pixels of a
            299-pixel image, as a camera held by hand is; at 0 every image is in the middle.
        surroundings: what is seen beyond an image's edge, "black" or "photo".
        white_balance: whether to correct colours by the page's strips of known colours.
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
        return draw_offset(random_of(self.seed, f"{photo}/{number}"), self.offset) if self.offset else (0.0, 0.0)


@dataclass(kw_only=True)
class Scored:
    """What came of photographs.

    Attributes:
        settings: how images were cut out.
        targets: names of the networks that were evaluated.
        photographed: what came of each photograph.
        shown: a few images as they were cut out, by photograph, id, version and view.
        simulated: names of the photographs that no camera took.
    """

    settings: ViewSettings
    targets: tuple[str, ...]
    photographed: list[Photographed] = field(default_factory=list)
    shown: dict[tuple[str, str], dict[tuple[str, View], Pixels]] = field(default_factory=dict)
    simulated: set[str] = field(default_factory=set)

    @property
    def photos(self) -> int:
        """How many photographs there were."""
        return len(self.photographed)

    @property
    def captures(self) -> list[Capture]:
        """Every image that was identified."""
        return [capture for photo in self.photographed for capture in photo.captures]

    @property
    def unread(self) -> list[Photographed]:
        """Photographs that gave nothing, with the reason."""
        return [photo for photo in self.photographed if not photo.captures]

    @property
    def partly(self) -> int:
        """How many images were seen in part only, and left out."""
        return sum(photo.partly for photo in self.photographed)

    @property
    def unbalanced(self) -> list[str]:
        """Photographs, of those to be balanced, in which no patch strip could be seen for some page."""
        return [photo.photo for photo in self.photographed if photo.unbalanced]


def together(parts: Sequence[Scored]) -> Scored:
    """Put several scores into one, with a few images of each to show. All must have the same settings and targets."""
    whole = Scored(settings=parts[0].settings, targets=parts[0].targets)
    for part in parts:
        whole.photographed += part.photographed
        whole.simulated |= part.simulated
        whole.shown |= dict(list(part.shown.items())[: max(1, SHOWN // len(parts))])
    return whole


def _appearance(pose: Mapping[str, Any], **others: float) -> Appearance:
    right, down = pose["shift"]
    return Appearance(pose=Pose(angle=pose["angle"], scale=pose["scale"], shift=(right, down)), **others)
