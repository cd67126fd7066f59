"""What lower precision does to success rates: fast attacks beside plain ones, and bfloat16 evaluation beside full.

    python benchmarks/precision.py --data NIPS17_FOLDER --device cuda

Attacks are crafted on one network (ResNet-18) twice, with ``fast=None`` and with ``fast=False``, and shown to all over
the paper's twelve poses; then the same images are evaluated once more with ``precision="bf16"``. At the end stand the
largest differences of an attack's mean over the networks, in points, and the most that the project allows itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

import whorl
from judge import Data, evaluated, percent, rows
from measure import headline, metadata, parser, save, settle, table
from whorl.bench.clock import significant
from whorl.evaluation import PAPER_POSES, Outcomes, Precision

SOURCE = "resnet18"
TARGETS = (SOURCE, "mobilenet_v2", "efficientnet_lite0")
ATTACKS = ("mim", "dim", "ai-dim", "ai-ram")
WAYS: Mapping[str, bool | None] = {"fast": None, "plain": False}
# Points, of a mean over the poses.
MOST_BY_ATTACK, MOST_BY_EVALUATION = 0.5, 0.2

Means = dict[tuple[str, str], float]
"""Attack and target to the mean success rate over the poses, in percent."""


def craft(
    data: Data, attacks: Sequence[str], source: torch.nn.Module, device: torch.device, *, batch: int, **settings: Any
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Every attack both ways; the images, and seconds, by ``attack way``."""
    made: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    for name in attacks:
        for way, fast in WAYS.items():
            attack, start = whorl.attack(name, fast=fast, **settings), time.perf_counter()
            made[f"{name} {way}"] = data.attacked(attack, source, batch_size=batch)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds[f"{name} {way}"] = significant(time.perf_counter() - start)
    return made, seconds


def means(done: Outcomes) -> Means:
    """Average each attack's rates on a target over the poses; poses without a recognised image have none."""
    return {(attack, target): percent(done, attack, target) for attack in done.attacks for target in done.targets}


class Compared(NamedTuple):
    """What changed, in points, by attack and target."""

    by_attack: Means
    """Fast less plain, evaluated in full precision."""
    by_evaluation: Means
    """Evaluated in bfloat16 less in full precision; here the attack's name says which way it was crafted."""


def compared(full: Means, half: Means) -> Compared:
    """Hold the two ways of crafting, and of evaluating, against each other."""
    by_attack = {
        (attack.removesuffix(" fast"), target): rate - full[attack.removesuffix(" fast") + " plain", target]
        for (attack, target), rate in full.items()
        if attack.endswith(" fast")
    }
    return Compared(by_attack, {key: half[key] - rate for key, rate in full.items()})


def targets(found: Compared) -> list[dict[str, Any]]:
    """Hold the largest change of an attack's mean over the networks against what is allowed.

    On one network it may be larger by chance: in some poses few images are recognised at all, and each pose counts
    the same.
    """
    rows = []
    for what, points, most in (
        ("fast attack, points", found.by_attack, MOST_BY_ATTACK),
        ("bf16 evaluation, points", found.by_evaluation, MOST_BY_EVALUATION),
    ):
        grouped: dict[str, list[float]] = {}
        for (attack, _), change in points.items():
            grouped.setdefault(attack, []).append(change)
        value = max(abs(sum(changes)) / len(changes) for changes in grouped.values())
        single = max(map(abs, points.values()))
        rows.append({"what": what, "value": value, "at_most": most, "met": value <= most, "one_network": single})
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Craft, evaluate, compare, print, save."""
    made = parser(__doc__)
    made.add_argument("--data", help="labelled images; the bundled samples without it")
    made.add_argument("--n", type=int, default=500, help="first images only")
    made.add_argument("--batch-size", type=int, default=100)
    made.add_argument("--attacks", nargs="+", default=list(ATTACKS), help="presets")
    made.add_argument("--source", default=SOURCE, help="the network that they are crafted on")
    made.add_argument("--size", type=int, default=224, help="of the images, in pixels")
    options = settle(made, argv, "precision")
    n = 2 if options.quick else options.n
    data = Data.load(options.data, n, options.size, options.device)
    attacks, names = (options.attacks[:1], TARGETS[:1]) if options.quick else (options.attacks, TARGETS)
    settings = {"steps": 1} if options.quick else {}
    source = whorl.load_model(options.source, device=options.device)
    adversarial, seconds = craft(data, attacks, source, options.device, batch=options.batch_size, **settings)
    nets = {name: whorl.load_model(name, device=options.device) for name in names}
    poses = PAPER_POSES[:2] if options.quick else PAPER_POSES
    done = {
        precision: evaluated(nets, data, adversarial, poses, batch_size=options.batch_size, precision=precision)
        for precision in get_args(Precision)
    }
    full, half = (means(each) for each in done.values())
    found = compared(full, half)
    about = metadata(
        options.device,
        quick=options.quick,
        n=len(data.ids),
        data=Path(options.data).name if options.data else "samples",
        source=options.source,
        targets=list(names),
        size=options.size,
        seed=0,
        ids=list(data.ids),
        weights_sha256={name: net.weights_sha256 for name, net in nets.items()},
    )
    print(headline(about))
    lines = [
        [name, target, *(f"{full[f'{name} {way}', target]:.2f}" for way in WAYS), f"{points:+.2f}"]
        for (name, target), points in found.by_attack.items()
    ]
    print(table(["attack", "target", *WAYS, "points"], lines))
    held = targets(found)
    for row in held:
        verdict = "met" if row["met"] else "missed"
        print(f"{row['what']}: {row['value']:.2f}, at most {row['at_most']}: {verdict}", end="; ")
        print(f"on one network at most {row['one_network']:.2f}")
    if options.json:
        save(
            {
                "metadata": about,
                "rates": [
                    {"attack": a, "target": t, "full": rate, "bf16": half[a, t]} for (a, t), rate in full.items()
                ],
                "outcomes": {precision: rows(each) for precision, each in done.items()},
                "seconds_crafting": seconds,
                "targets": held,
            },
            options.json,
        )


if __name__ == "__main__":
    main()
