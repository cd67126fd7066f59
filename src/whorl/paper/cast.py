"""Who plays the paper's networks: a profile says it, part by part."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

import whorl
from whorl.errors import WhorlError, unknown_name
from whorl.paper.item import Item, PaperNetwork
from whorl.runs.toml import TomlTable, read_toml, validated

PROFILES = ("offline", "inception", "paper")


class Profile(TomlTable):
    """What stands for each network of the paper.

    Attributes:
        name: a short name.
        about: a line.
        size: side in pixels that images are resized to; None leaves them as they are.
        networks: by role, as ``whorl.load_model`` takes them, with defences as in ``resnet18+jpeg``; ``a+b`` for an
            ensemble. ``*.ens-at`` is every network of such a name that is there.
        notes: by role, what to know about the choice.
        own: roles whose network is the paper's own, not one that stands for it.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    about: str = ""
    size: Annotated[int, Field(ge=1)] | None = None
    networks: Mapping[str, Annotated[tuple[str, ...], Field(strict=False)]]
    notes: Mapping[str, str] = Field(default_factory=dict)
    own: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _own_are_single(self) -> Self:
        for role in self.own:
            names = self.networks.get(role, ())
            if len(names) != 1 or "*" in names[0]:
                raise ValueError(f"own: {role} must name one network, the paper's; got {list(names)}")
        return self


@dataclass(frozen=True, kw_only=True)
class Cast:
    """The players of one table or figure.

    Attributes:
        sources: the paper's networks that images are crafted on, each with what stands for it.
        targets: the paper's networks that are evaluated, each with what stands for it: one or more.
        notes: who is missing and why, and what a profile says of its choice.
        own: roles that the paper's own network plays.
    """

    sources: tuple[tuple[PaperNetwork, str], ...]
    targets: tuple[tuple[PaperNetwork, str], ...]
    notes: tuple[str, ...]
    own: frozenset[str] = frozenset()

    @property
    def target_names(self) -> tuple[str, ...]:
        """The networks that images are shown to, each once."""
        return tuple(dict.fromkeys(name for _, name in self.targets))

    def lines(self) -> list[str]:
        """Say who stands for whom, as in ``Inc-v3 → resnet18``; each once."""
        played: dict[str, list[str]] = {}
        for part, name in (*self.sources, *self.targets):
            known = played.setdefault(part.heading, [])
            known += [name] if name not in known else []
        return [f"{heading} → {', '.join(names)}" for heading, names in played.items()]


def load_profile(name: str | Path | Profile) -> Profile:
    """Get a profile.

    Args:
        name: "offline", "inception" or "paper", or a TOML file of your own.

    Raises:
        WhorlError: there is no such profile, or the file does not hold one.

    >>> load_profile("offline").networks["white"]
    ('resnet18',)
    """
    if isinstance(name, Profile):
        return name
    place: Traversable = files(__package__) / "profiles" / f"{name}.toml"
    if str(name) not in PROFILES:
        if not str(name).endswith(".toml"):
            hint = "A path that ends in .toml is a profile of your own."
            raise unknown_name("profile", str(name), PROFILES, hint=hint)
        place = Path(name)
    return validated(Profile, read_toml(place, "with a profile"), f"{name} is not a profile")


def cast(item: Item, profile: Profile, present: Collection[str] | None = None) -> Cast:
    """Find who plays in a table or figure.

    Args:
        item: the table or figure.
        profile: says who stands for whom.
        present: names of networks that are there, for the profile's patterns; ``whorl.model_names()`` if None.

    Raises:
        WhorlError: no source, or no target, is there.
    """
    known = whorl.model_names() if present is None else present
    notes: list[str] = []
    sources: list[tuple[PaperNetwork, str]] = []
    for part in item.sources:
        found = _players(part, profile, known, notes)
        if len(found) > 1:
            raise WhorlError(f"profile {profile.name}: {part.role} is a source and needs one network; got {found}.")
        sources += [(part, name) for name in found]
    targets = [(part, name) for part in item.targets for name in _players(part, profile, known, notes)]
    for what, players in (("source", sources), ("target", targets)):
        if not players:
            raise WhorlError(f"{item.name} has no {what} in profile {profile.name}: {' '.join(notes)}")
    return Cast(
        sources=tuple(sources), targets=tuple(targets), notes=tuple(dict.fromkeys(notes)), own=frozenset(profile.own)
    )


def _players(part: PaperNetwork, profile: Profile, known: Collection[str], notes: list[str]) -> list[str]:
    found: list[str] = []
    for name in profile.networks.get(part.role, ()):
        found += [other for other in known if fnmatchcase(other, name)] if "*" in name else [name]
    if part.role in profile.notes and (found or part.role not in profile.networks):
        notes.append(profile.notes[part.role])
    elif not found:
        wanted = " or ".join(profile.networks.get(part.role, ()))
        why = f"no network called {wanted} is there" if wanted else f"profile {profile.name} has nothing for it"
        notes.append(f"{part.heading} is left out: {why}.")
    return found
