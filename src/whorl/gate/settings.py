"""What a gate checks: which network, images, attacks and limits; and the experiment that it declares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import whorl
from whorl.errors import WhorlError
from whorl.evaluation import FEWEST, wilson
from whorl.models.address import with_settings
from whorl.models.sources import parse
from whorl.runs.declaration import Declaration, declare
from whorl.runs.folder import Json
from whorl.runs.images import SAMPLES
from whorl.runs.networks import split_target

FAIL_DROP = 2.0
"""Points that may be lost against a baseline, where nobody says how many."""
ANGLES, SCALES = (-30.0, -15.0, 0.0, 15.0, 30.0), (0.5, 0.7, 1.0, 1.3, 1.5)
"""A gate's poses: every angle with every scale, 25, of which one leaves the image as it is."""


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """All that a gate depends on besides the machine; limits are percentages.

    Attributes:
        model: the network to judge, as ``whorl.load_model`` takes it; ``net+jpeg`` stands behind a defence, and is
            attacked through it.
        data: labelled images, as ``whorl.load_images`` takes them, or "samples".
        labels: file with the names of the network's classes, a line each, in the order of its logits.
        limit: take so many images, evenly over the classes; None for all.
        size: side in pixels that images are resized to; None for that of the network's input.
        seed: of all randomness.
        attack: what to craft with.
        eps: bound of the attack, such as "8/255"; None for its own.
        surrogates: networks to craft on besides, whose images are shown to the network: transfer attacks.
        fail_above: most that the success rate of an attack, pooled over the poses, may be.
        worst_case: most that the share of images that an attack fools in some pose may be.
        min_accuracy: least that the share of clean images that are recognised as they are may be.
        strict: whether to decide on the pessimistic end of the 95% interval, instead of on the rate.
        baseline: an earlier gate's folder, or its ``gate.json``, to compare with.
        fail_drop: points that the share recognised under attack may lose against the baseline, if it is significant;
            None for ``FAIL_DROP``.

    Raises:
        WhorlError: a limit that is no percentage, that no number of images could show to hold, or that nothing is held
            against; a network that is its own surrogate.

    >>> GateSettings(model="resnet18", data="samples", fail_above=60).least_images
    10
    >>> GateSettings(model="resnet18", data="samples", fail_above=5).least_images
    73
    """

    model: str
    data: str | Path = SAMPLES
    labels: Path | None = None
    limit: int | None = None
    size: int | None = None
    seed: int = 0
    attack: str = "ai-best"
    eps: str | None = None
    surrogates: tuple[str, ...] = ()
    fail_above: float | None = None
    worst_case: float | None = None
    min_accuracy: float | None = None
    strict: bool = False
    baseline: Path | None = None
    fail_drop: float | None = None

    def __post_init__(self) -> None:
        for name in ("fail_above", "worst_case", "min_accuracy", "fail_drop"):
            given = getattr(self, name)
            option = f"--{name.replace('_', '-')}"
            if given is not None and not 0 <= given <= 100:
                raise WhorlError(f"{option} must lie in [0, 100], a percentage; got {given:g}.")
            never = 100 if name == "min_accuracy" else 0
            if name != "fail_drop" and given == never:
                raise WhorlError(
                    f"{option} {never} cannot be shown to hold by any number of images: an interval always reaches "
                    f"further. Expected a percentage {'below' if never else 'above'} {never}, such as "
                    f"{abs(never - 5)}."
                )
        if self.fail_drop is not None and self.baseline is None:
            raise WhorlError(
                f"--fail-drop {self.fail_drop:g} is held against an earlier gate, and none was given: nothing would be "
                "decided. Give its folder or its gate.json, --baseline DIR."
            )
        if self.model in self.surrogates:
            raise WhorlError(
                f"{self.model} cannot be its own surrogate; it is attacked white-box anyway. Leave it out."
            )
        if whorl.attack(self.attack).black_box:
            raise WhorlError(
                f"a gate crafts by gradients, on the network or on a surrogate; got {self.attack!r}, which queries. "
                "Take ai-best, or run `whorl attack` with it."
            )

    @property
    def address(self) -> str:
        """The network with its labels, and with its defences.

        Raises:
            WhorlError: it has labels already, as those of the zoo have.
        """
        if self.labels is None:
            return self.model
        network, layers = split_target(self.model)
        address = parse(network)
        if not address.source or "labels" in address.settings:
            raise WhorlError(f"{network} has names of its classes already; leave out --labels {self.labels}.")
        return "+".join((with_settings(network, {"labels": str(self.labels)}), *layers))

    @property
    def least_images(self) -> int:
        """How many images must count so that rules can be decided; see :func:`least_images`."""
        limits = [limit / 100 for limit in (self.fail_above, self.worst_case) if limit is not None]
        limits += [] if self.min_accuracy is None else [1 - self.min_accuracy / 100]
        return least_images(min(limits, default=1.0))

    def declaration(self, *, size: int | None = None, crafting: Mapping[str, Json] | None = None) -> Declaration:
        """Declare the experiment: the attack on the network and on each surrogate, shown to the network.

        Args:
            size: side in pixels to resize images to.
            crafting: networks to craft on, by the names that the declaration gives them, with the settings that the
                attack has on each, besides its own; None for all of them as it is.
        """
        attack: Json = {"name": self.attack, "settings": {} if self.eps is None else {"eps": self.eps}}
        made = declare(
            name="gate",
            seed=self.seed,
            data={"folder": str(self.data), "limit": self.limit, "size": size, "evenly": True},
            sources=[self.address, *self.surrogates],
            attacks=[attack],
            targets=[self.address],
            poses=[{"angles": list(ANGLES), "scales": list(SCALES)}],
        )
        [name] = made.targets
        about = {"title": f"Gate: {name}", "about": f"{name} under {self.attack}, in {len(made.all_poses())} poses."}
        if crafting is None:
            return made.model_copy(update=about)
        attacks = [
            {
                **attack,
                "settings": {**attack["settings"], **own},
                "sources": [s for s in crafting if crafting[s] == own],
            }
            for place, own in enumerate(crafting.values())
            if own not in list(crafting.values())[:place]
        ]
        return declare(**{**made.model_dump(), **about, "sources": list(crafting), "attacks": attacks})


def least_images(limit: float) -> int:
    """How many images it takes for a limit to be decidable: if none were fooled, the 95% interval must end below it.

    Wilson's interval of 0 among n ends at z²/(n + z²). Fewer than ``FEWEST`` decide nothing: the interval of a rate in
    the middle is then more than 50 points wide.

    Args:
        limit: most that may be fooled, in (0, 1].

    >>> least_images(0.6), least_images(0.1), least_images(0.01)
    (10, 35, 381)
    """
    beyond = wilson(0, 1)[1]
    z_squared = beyond / (1 - beyond)
    return max(FEWEST, math.ceil(z_squared * (1 - limit) / limit))
