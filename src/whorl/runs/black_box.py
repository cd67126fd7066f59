"""Attack targets that answer and nothing more, into a run folder, counting every image they are shown.

It is :func:`whorl.runs.craft` for black-box attacks: the same folder, the same way to go on. Besides, each image's
queries and success are written down, and so are queries that went into work which was cut short.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import whorl
from whorl.attacks import Attack
from whorl.attacks.contract import Model
from whorl.data import StartFolder
from whorl.errors import WhorlError
from whorl.models import Classifier, Ensemble
from whorl.runs.folder import as_json
from whorl.runs.images import GivenImages, images_of
from whorl.runs.networks import identify
from whorl.runs.single_attack import AttackResult, RunOptions, SingleAttack, run_single

GIVEN = "given"
"""What an attack that starts from a folder is said to start from."""


class QueryOptions(RunOptions, total=False):
    """How a black-box attack is run.

    Attributes:
        trace: whether to write each step's queries, loss and distance.
    """

    trace: bool


def query(
    name: str,
    target: Model,
    images: GivenImages,
    out: str | Path,
    *,
    init: str | Path | None = None,
    surrogate: Classifier | Ensemble | None = None,
    settings: Mapping[str, Any] | None = None,
    target_class: int | None = None,
    **options: Unpack[QueryOptions],
) -> AttackResult:
    """Attack images by queries and save what comes out as 8-bit PNG files, with a manifest.

    What is checked is rounded to 8 bits first (``rounded=True``), so an image that is listed as a success is one as
    saved, and the target need not be queried again.

    A batch is done whole or not at all: one that was cut, by Ctrl-C, by force or by a target that failed, is done again
    from scratch when the same is run again, so that images and counts end up as if nothing had happened. What it had
    queried by then is added to ``discarded_queries``; not even a killed process loses count.

    Args:
        name: a score-based or decision-based attack.
        target: anything that answers: a classifier, a defended one, an ONNX file's, a function.
        images: what to start from: a source, a folder or address, a torch data set or loader, or (x, y) or (x, y, ids).
        out: the run folder.
        init: where to start: None or "none", the image, or noise in a decision-based attack; "random", anywhere in the
            ball; the name of a gradient attack, crafted on ``surrogate``; or a folder of start images named by id.
        surrogate: network that ``init`` is crafted on, and that guides P-RGF.
        settings: of the attack, such as ``{"budget": 1000}``.
        target_class: class to reach; None to leave the true one.
        options: as of :func:`whorl.runs.craft`; and ``trace``, whether to write each step's queries, loss and distance.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and target with other settings.
        TargetError: the target failed. What was finished is kept; the best images of the batch in hand are in
            ``unfinished/``, where an ``init`` finds them.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    attack = build_query_attack(name, init=init, surrogate=surrogate, settings={"rounded": True, **(settings or {})})
    trace, given = options.get("trace", False), getattr(attack, "init", None)
    # Tracing changes no image, and the surrogate is a network: both are told elsewhere or not at all.
    shown = as_json(attack.with_(surrogate=None, init=None))
    # Which images a folder holds is told by their hashes; where it lies does not matter.
    begin = GIVEN if isinstance(given, StartFolder) else as_json(given)
    one = SingleAttack(
        attack=attack,
        label=label_of(name, given),
        model=target,
        settings={**shown, "init": begin},
        extra={"surrogate": None if surrogate is None else identify(surrogate)},
        target_class=target_class,
        trace=trace,
        options=options,
    )

    return run_single(one, images_of(images), out)


def build_query_attack(
    name: str,
    *,
    init: str | Path | None = None,
    surrogate: Model | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Attack:
    """Make a black-box attack of names.

    Args:
        name: one of ``whorl.attack_names(kind="score")`` or ``"decision"``.
        init: "none" or None, "random", the name of a gradient attack, or a folder of start images named by id. A
            string that names no attack is taken for a folder.
        surrogate: what ``init`` is crafted on, and what P-RGF is guided by.
        settings: of the attack.

    Raises:
        WhorlError: no black-box attack, a start that is neither, or settings that do not fit.

    >>> build_query_attack("nes", init="random", settings={"budget": 500})
    ScoreAttack(budget=500, init='random')
    """
    if name.lower() not in black_box_names():
        raise WhorlError(f"expected a black-box attack: {', '.join(black_box_names())}; got {name!r}.")
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
        return bare.with_(init=whorl.attack(init, **shared), **guide)
    folder = Path(init)
    if not folder.is_dir():
        raise WhorlError(
            f"init must be none, random, a gradient attack (`whorl attacks` lists them) or a folder of start images; "
            f"got {str(init)!r}."
        )
    return bare.with_(init=StartFolder(folder), **guide)


def black_box_names() -> list[str]:
    """The attacks that need nothing of their target but answers."""
    return [*whorl.attack_names(kind="score"), *whorl.attack_names(kind="decision")]


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
    return f"{name.lower()}-{_preset(init) if isinstance(init, Attack) else GIVEN}"


def _preset(attack: Attack) -> str:
    """The name under which an attack is known; settings that any attack has are left out of the comparison."""
    for known in whorl.attack_names(kind="gradient"):
        if attack == whorl.attack(known, eps=getattr(attack, "eps", None), norm=getattr(attack, "norm", "linf")):
            return known
    return "attack"
