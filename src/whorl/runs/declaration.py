"""An experiment as a declaration: what to attack, with what, and who is evaluated in which poses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

import whorl
from whorl.attacks import Attack
from whorl.errors import Fault, SettingsError, WhorlError, quoted
from whorl.evaluation import PAPER_POSES, Pose, poses
from whorl.evaluation.prediction import Precision
from whorl.geometry.pose import GRID_AXES, MOST_POSES
from whorl.models import model_names
from whorl.models.address import with_settings
from whorl.models.sources import own_name
from whorl.runs.folder import attack_label
from whorl.runs.images import Data
from whorl.runs.model_names import checked_model, named_models, seen_from
from whorl.runs.networks import is_address, split_defended, split_target
from whorl.runs.overrides import overridden
from whorl.runs.settings import build_attack
from whorl.runs.toml import TomlTable, read_toml, validated

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}")

Names = Annotated[tuple[Annotated[str, BeforeValidator(checked_model)], ...], Field(min_length=1, strict=False)]
Numbers = Annotated[tuple[float, ...], Field(strict=False)]
Pairs = Annotated[tuple[float | Annotated[tuple[float, float], Field(strict=False)], ...], Field(strict=False)]


class Grid(TomlTable):
    """Every combination of some values of what a pose is made of; units as in ``whorl.evaluation.Pose``.

    Of a shift, a stretch and a tilt, a number stands for both directions, or a pair says (right, down).
    """

    angles: Numbers = (0.0,)
    scales: Numbers = (1.0,)
    shifts: Pairs = (0.0,)
    shears: Numbers = (0.0,)
    stretches: Pairs = (1.0,)
    tilts: Pairs = (0.0,)
    brightnesses: Numbers = (0.0,)
    contrasts: Numbers = (1.0,)
    blurs: Numbers = (0.0,)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self.poses()
        return self

    def poses(self) -> tuple[Pose, ...]:
        """The product."""
        return poses(**{name: getattr(self, name) for name in GRID_AXES})


class AttackSpec(TomlTable):
    """One attack. In a declaration its name alone will do.

    Attributes:
        name: one of ``whorl.attack_names()``.
        label: what to call it in tables and paths; its name unless two rows share one.
        settings: as :func:`whorl.attack` takes them. ``eps`` and ``alpha`` may be fractions as text; an estimator or an
            input transform is a table with its ``type`` and settings.
        sources: networks to craft on; None for all of the declaration's.
        seed: of its randomness; None for the declaration's.
        swept: values that a sweep gave it, by setting: columns of the table.
    """

    name: str
    label: str = ""
    settings: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    sources: Names | None = None
    seed: int | None = None
    swept: dict[str, bool | int | float | str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        with suppress(SettingsError):  # what a peer's attack cannot do without stands among the settings
            whorl.attack(name)
        return name

    @field_validator("sources")
    @classmethod
    def _of_networks(cls, sources: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if sources is None else _all_networks(sources)

    @field_validator("label")
    @classmethod
    def _names_a_folder(cls, label: str) -> str:
        if label and not _LABEL.fullmatch(label):
            expected = "letters, digits and . _ + @ -, at most 80 (it names a folder)"
            raise SettingsError([Fault((), expected, quoted(label))])
        return label

    @field_validator("settings")
    @classmethod
    def _fit_the_attack(cls, settings: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        # Of a field, not of the whole: so that what else is wrong with the row is said at the same time.
        if "name" in info.data:
            build_attack(info.data["name"], settings)
        return settings

    @property
    def title(self) -> str:
        """The label, or the name where there is none."""
        return self.label or attack_label(self.name)

    def build(self) -> Attack:
        """Make the attack."""
        return build_attack(self.name, self.settings)


class Declaration(TomlTable):
    """A whole experiment.

    Attributes:
        name: a short name.
        title: a line for the report.
        about: a paragraph for the report.
        seed: of all randomness.
        data: which images.
        models: addresses of networks, by name. Of a network that another setting gives by its address, or as a table of
            ``address``, ``name`` and ``labels``, the name is left there, and its address is put here.
        sources: networks to craft on; ``a+b`` is an ensemble of equal weights, ``net+jpeg`` is attacked through its
            defence.
        attacks: what to craft with.
        targets: networks to evaluate; ``net+jpeg`` stands behind a defence, ``net+jpeg+bitdepth`` behind two.
        poses: in which to show the images: "paper" for its twelve, and grids; each pose counts once.
        batch_size: images at a time; None for 8 on a CPU and 64 on a GPU. On a GPU rounding, and so an
            image, may depend on it.
        precision: in which targets answer, "full" or "bf16"; see ``whorl.evaluation.outcomes``.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    title: str = ""
    about: str = ""
    seed: int = 0
    data: Data = Data()
    models: dict[str, str] = Field(default_factory=dict)
    sources: Names
    attacks: Annotated[tuple[AttackSpec, ...], Field(min_length=1, strict=False)]
    targets: Names
    poses: Annotated[tuple[Literal["paper"] | Grid, ...], Field(min_length=1, strict=False)] = ("paper",)
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    precision: Precision = "full"

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        return named_models(given) if isinstance(given, dict) else given

    @field_validator("sources")
    @classmethod
    def _of_networks(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        return _all_networks(sources)

    @field_validator("targets")
    @classmethod
    def _known_defenses(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        for target in targets:
            split_target(target)
        _each_once("target", targets)
        return targets

    @field_validator("poses")
    @classmethod
    def _not_too_many(cls, given: tuple[Literal["paper"] | Grid, ...]) -> tuple[Literal["paper"] | Grid, ...]:
        count = sum(len(grid.poses()) for grid in given if isinstance(grid, Grid))
        if count > MOST_POSES:
            raise ValueError(f"grids may have {MOST_POSES:,} poses together at most; got {count:,}. Take fewer")
        return given

    @model_validator(mode="after")
    def _of_different_names(self) -> Self:
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

    Args:
        settings: the fields of :class:`Declaration`; ``name``, ``sources``, ``attacks`` and ``targets`` at least.

    Raises:
        WhorlError: an unknown setting, a missing one, or a bad value.

    >>> mine = declare(name="mine", sources=["resnet18"], attacks=["dim", "ai-dim"], targets=["mobilenet_v2+jpeg"])
    >>> [spec.title for spec in mine.attacks], len(mine.all_poses())
    (['dim', 'ai-dim'], 12)
    """
    return validated(Declaration, settings, "the declaration")


def read_declaration(path: str | Path, *, overrides: Sequence[str] = (), sweeps: Sequence[str] = ()) -> Declaration:
    """Read a declaration from a TOML file; a relative data folder is taken from where the file lies.

    So are relative paths of networks and labels, where they lead to something; else from the working directory.

    Args:
        path: the file.
        overrides: what to change, as in ``"attacks.0.eps=8/255"``; see ``whorl.runs.overrides.overridden``. A data
            folder that is given here is taken from the working directory.
        sweeps: what to try several values of, as in ``"attacks.0.eps=4/255,8/255"``; of several, every combination.

    Raises:
        WhorlError: the file cannot be read, is not TOML, or declares something unknown.
    """
    place = Path(path)
    read = read_toml(place, "that declares a run")
    content, faults = overridden(read, overrides, sweeps, fields=AttackSpec.model_fields)
    changed = " and ".join(option for option, given in (("--set", overrides), ("--sweep", sweeps)) if given)
    where = f"{place} as changed by {changed}" if changed else str(place)
    declared = validated(Declaration, content, where, faults=faults)
    here = any(text.partition("=")[0].strip() in ("data", "data.folder") for text in overrides)
    home = place.resolve().parent
    models = _seen_from(home, declared.models, where)
    data = declared.data.seen_from(Path.cwd() if here else home)
    return _by_own_names(declared.model_copy(update={"data": data, "models": models}))


def _seen_from(home: Path, models: Mapping[str, str], where: str) -> dict[str, str]:
    """Addresses of networks, their paths taken from a folder; what is wrong with them is said all at once."""
    seen, faults = dict[str, str](), list[Fault]()
    for name, address in models.items():
        try:
            seen[name] = seen_from(home, address)
        except WhorlError as error:
            faults.append(Fault(("models", name), str(error).rstrip(".")))
    if faults:
        raise SettingsError(faults, where=where)
    return seen


def _by_own_names(declared: Declaration) -> Declaration:
    """Call networks of one's own Python as their factories call them, as other commands do, where nobody else is so.

    Only what somebody is about to run is named so: to find the name out, the factory is called.
    """
    every = (declared.sources, declared.targets, *(spec.sources or () for spec in declared.attacks))
    names = dict.fromkeys(split_defended(name)[0] for listed in every for name in listed)
    own = {name: own_name(declared.models.get(name, name)) for name in names if is_address(name)}
    taken = Counter([*names, *declared.models, *model_names(), *own.values()])
    called = {name: short for name, short in own.items() if short and taken[short] == 1}
    if not called:
        return declared

    def each(listed: tuple[str, ...]) -> tuple[str, ...]:
        split = map(split_defended, listed)
        return tuple("+".join((called.get(model, model), *layers)) for model, layers in split)

    models = {name: address for name, address in declared.models.items() if name not in called}
    for name, short in called.items():
        models[short] = with_settings(declared.models.get(name, name), {"name": short})
    attacks = tuple(
        spec if spec.sources is None else spec.model_copy(update={"sources": each(spec.sources)})
        for spec in declared.attacks
    )
    changed = {"sources": each(declared.sources), "targets": each(declared.targets)}
    return declared.model_copy(update={**changed, "attacks": attacks, "models": models})


def _all_networks(sources: tuple[str, ...]) -> tuple[str, ...]:
    for source in sources:
        split_defended(source)  # says what names none
    return sources


def _each_once(what: str, names: list[str] | tuple[str, ...]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"each {what} must be there once; got {twice[0]} twice. A label distinguishes two of one name")
