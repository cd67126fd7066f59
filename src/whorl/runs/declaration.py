"""An experiment as a declaration: what to attack, with what, and who is evaluated in which poses."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from whorl.attacks import Attack
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, Pose, poses
from whorl.evaluation.prediction import Precision
from whorl.runs.folder import attack_label
from whorl.runs.images import Data
from whorl.runs.networks import split_target
from whorl.runs.settings import build_attack

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Model = TypeVar("Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Grid(_Strict):
    """Every combination of rotations (degrees), scales (factors) and shifts (pixels of a 299-pixel image)."""

    angles: tuple[float, ...] = (0.0,)
    scales: tuple[float, ...] = (1.0,)
    shifts: tuple[float | tuple[float, float], ...] = (0.0,)

    def poses(self) -> tuple[Pose, ...]:
        """The product."""
        return poses(angles=self.angles, scales=self.scales, shifts=self.shifts)


class AttackSpec(_Strict):
    """One attack. In a declaration its name alone will do.

    Attributes:
        name: one of ``whorl.attack_names()``.
        label: what to call it in tables and paths; its name unless two rows share one.
        settings: as ``whorl.runs.settings.build_attack`` takes them.
        sources: networks to craft on; None for all of the declaration's.
    """

    name: str
    label: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    sources: Names | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.build()
        if not _LABEL.fullmatch(self.title):
            raise ValueError(f"label must be letters, digits and . _ + - (it names a folder); got {self.title!r}")
        return self

    @property
    def title(self) -> str:
        """The label, or the name where there is none."""
        return self.label or attack_label(self.name)

    def build(self) -> Attack:
        """Make the attack."""
        return build_attack(self.name, self.settings)


class Declaration(_Strict):
    """A whole experiment.

    Attributes:
        name: a short name.
        title: a line for the report.
        about: a paragraph for the report.
        seed: of all randomness.
        data: which images.
        sources: networks to craft on; ``a+b`` is an ensemble of equal weights.
        attacks: what to craft with.
        targets: networks to evaluate; ``net+jpeg`` stands behind a defence, ``net+jpeg+bitdepth`` behind two.
        poses: in which to show the images: "paper" for its twelve, and grids; each pose counts once.
        batch_size: images at a time; None for 8 on a CPU and 64 on a GPU. Rounding, and so an image, may depend on
            it.
        precision: in which targets answer, "full" or "bf16"; see ``whorl.evaluation.outcomes``.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    title: str = ""
    about: str = ""
    seed: int = 0
    data: Data = Data()
    sources: Names
    attacks: Annotated[tuple[AttackSpec, ...], Field(min_length=1)]
    targets: Names
    poses: Annotated[tuple[Literal["paper"] | Grid, ...], Field(min_length=1)] = ("paper",)
    batch_size: Annotated[int, Field(ge=1)] | None = None
    precision: Precision = "full"

    @field_validator("targets")
    @classmethod
    def _known_defenses(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        for target in targets:
            split_target(target)
        _each_once("target", targets)
        return targets

    @field_validator("poses")
    @classmethod
    def _sound_poses(cls, given: tuple[Literal["paper"] | Grid, ...]) -> tuple[Literal["paper"] | Grid, ...]:
        for grid in given:
            if isinstance(grid, Grid):
                grid.poses()
        return given

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        _each_once("attack and source", [f"{spec.title} on {source}" for spec, source in self.versions()])
        return self

    def versions(self) -> list[tuple[AttackSpec, str]]:
        """Every attack with every source that it is crafted on."""
        return [(spec, source) for spec in self.attacks for source in spec.sources or self.sources]

    def all_poses(self) -> tuple[Pose, ...]:
        """Every pose once, in the order of the declaration."""
        listed = (PAPER_POSES if grid == "paper" else grid.poses() for grid in self.poses)
        return tuple(dict.fromkeys(pose for some in listed for pose in some))


def declare(**settings: Any) -> Declaration:
    """Make a declaration, with errors that name the setting.

    Raises:
        WhorlError: an unknown setting, a missing one, or a bad value.

    >>> mine = declare(name="mine", sources=["resnet18"], attacks=["dim", "ai-dim"], targets=["mobilenet_v2+jpeg"])
    >>> [spec.title for spec in mine.attacks], len(mine.all_poses())
    (['dim', 'ai-dim'], 12)
    """
    return validated(Declaration, settings, "the declaration")


def read_declaration(path: str | Path) -> Declaration:
    """Read a declaration from a TOML file; a relative data folder is taken from where the file lies.

    Raises:
        WhorlError: the file cannot be read, is not TOML, or declares something unknown.
    """
    place = Path(path)
    declared = validated(Declaration, read_toml(place, "that declares a run"), str(place))
    return declared.model_copy(update={"data": declared.data.seen_from(place.resolve().parent)})


def read_toml(place: Traversable, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        place: the file.
        what: it was expected to be, as in "with a profile".

    Raises:
        WhorlError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise WhorlError(f"{place} cannot be read ({error}). Expected a TOML file {what}.") from error
    except tomllib.TOMLDecodeError as error:
        raise WhorlError(f"{place} is not TOML: {error}.") from error


def validated(kind: type[Model], content: dict[str, Any], where: str) -> Model:
    """Make a record of what a file or a call says, with errors that name the setting.

    Raises:
        WhorlError: an unknown setting, a missing one, or a bad value.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise WhorlError(f"{where}: " + "; ".join(_problem(item) for item in error.errors())) from error


def _problem(item: Any) -> str:
    """Word one problem: where, what was expected, what came."""
    at = ".".join(str(part) for part in item["loc"]) or "as a whole"
    if item["type"] == "extra_forbidden":
        return f"{at} is not known; remove it, or check its spelling"
    if item["type"] == "missing":
        return f"{at} is missing"
    said = str(item["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{at}: {said}" + ("" if item["type"] == "value_error" else f"; got {item['input']!r:.80}")


def _each_once(what: str, names: list[str] | tuple[str, ...]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"each {what} must be there once; got {twice[0]} twice. A label tells two of one name apart")
