"""Make black-box attacks of names, and say what they are called in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import whorl
from whorl.attacks import Attack
from whorl.attacks.contract import Model
from whorl.data import StartFolder
from whorl.errors import WhorlError
from whorl.runs.folder import as_json

GIVEN = "given"
"""What an attack that starts from a folder is said to start from."""


def build_query_attack(
    name: str,
    *,
    init: str | Path | None = None,
    surrogate: Model | None = None,
    settings: Mapping[str, Any] | None = None,
    init_settings: Mapping[str, Any] | None = None,
) -> Attack:
    """Make a black-box attack of names.

    Args:
        name: one of ``whorl.attack_names(kind="score")`` or ``"decision"``.
        init: "none" or None, "random", the name of a gradient attack, or a folder of start images named by id. A
            string that names no attack is taken for a folder.
        surrogate: what ``init`` is crafted on, and what P-RGF is guided by.
        settings: of the attack.
        init_settings: of the attack that ``init`` names. ``eps`` and ``norm`` are the attack's own unless given here.

    Raises:
        WhorlError: no black-box attack, a start that is neither, or settings that do not fit.

    >>> build_query_attack("nes", init="random", settings={"budget": 500})
    ScoreAttack(budget=500, init='random')
    """
    black_box = (*whorl.attack_names(kind="score"), *whorl.attack_names(kind="decision"))
    if name.lower() not in black_box:
        raise WhorlError(f"expected a black-box attack: {', '.join(black_box)}; got {name!r}.")
    bare = whorl.attack(name, **(settings or {}))
    guide = {} if surrogate is None else {"surrogate": surrogate}
    if init is None or init == "none":
        return bare.with_(**guide)
    if init == "random":
        return bare.with_(init="random", **guide)
    if isinstance(init, str) and init.lower() in whorl.attack_names(kind="gradient"):
        shared = {key: getattr(bare, key) for key in ("eps", "norm") if getattr(bare, key, None) is not None}
        if name.lower() in whorl.attack_names(kind="decision"):
            shared = {}  # there eps is how near to come, not how far to go
        return bare.with_(init=whorl.attack(init, **{**shared, **(init_settings or {})}), **guide)
    folder = Path(init)
    if not folder.is_dir():
        raise WhorlError(
            f"init must be none, random, a gradient attack (`whorl attacks` lists them) or a folder of start images; "
            f"got {str(init)!r}."
        )
    return bare.with_(init=StartFolder(folder), **guide)


def label_of(name: str, init: object) -> str:
    """Say what images are listed under: the attack's name, and its start's if it has one (``nes-ai-dim``).

    Args:
        name: of the attack.
        init: what it starts from, as the attack itself holds it.

    >>> label_of("NES", whorl.attack("ai-dim"))
    'nes-ai-dim'
    """
    if init is None:
        return name.lower()
    if isinstance(init, str):
        return f"{name.lower()}-{init}"
    if isinstance(init, Attack):
        return f"{name.lower()}-{_preset(init)}"
    return f"{name.lower()}-{GIVEN}"


def init_json(init: object) -> Any:
    """Show what an attack starts from, for a manifest."""
    # Which images a folder holds is told by their hashes; where it lies does not matter.
    return GIVEN if isinstance(init, StartFolder) else as_json(init)


def _preset(attack: Attack) -> str:
    """The name under which an attack is known; settings that any attack has are left out of the comparison."""
    for known in whorl.attack_names(kind="gradient"):
        if attack == whorl.attack(known, eps=getattr(attack, "eps", None), norm=getattr(attack, "norm", "linf")):
            return known
    return "attack"
