"""What lower precision does to success rates: fast attacks beside plain ones, and bfloat16 evaluation beside full.

    python benchmarks/precision.py --data NIPS17_FOLDER --device cuda

Attacks are crafted on ResNet-18 twice, with ``fast=None`` and with ``fast=False``, and shown to all networks over the
paper's twelve poses; then the same pictures are evaluated once more with ``precision="bf16"``. At the end stand the
largest differences, in points, and the most that the project allows itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import whorl
from measure import headline, metadata, parser, save, settle, significant, table
from whorl.evaluation import PAPER_POSES, SuccessRate, success_rates

SOURCE = "resnet18"
TARGETS = (SOURCE, "mobilenet_v2", "efficientnet_lite0")
ATTACKS = ("mim", "dim", "ai-dim", "ai-ram")
WAYS: Mapping[str, bool | None] = {"fast": None, "plain": False}
# Points, of a mean over the poses.
MOST_BY_ATTACK, MOST_BY_EVALUATION = 0.5, 0.2

Means = dict[tuple[str, str], float]
"""Attack and target to the mean success rate over the poses, in percent."""


def craft(
    images: whorl.data.Images, attacks: Sequence[str], device: torch.device, *, batch: int, **settings: Any
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Every attack both ways; the pictures, and seconds, by ``attack way``."""
    source = whorl.load_model(SOURCE, device=device)
    made: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    for name in attacks:
        for way, fast in WAYS.items():
            attack, start = whorl.attack(name, fast=fast, **settings), time.perf_counter()
            parts = [
                attack(source, images.x[i : i + batch], images.y[i : i + batch], ids=images.ids[i : i + batch])
                for i in range(0, len(images.ids), batch)
            ]
            made[f"{name} {way}"] = torch.cat(parts)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds[f"{name} {way}"] = significant(time.perf_counter() - start)
    return made, seconds


def means(counts: Mapping[tuple[str, str, Any], SuccessRate]) -> Means:
    """Average each attack's rates on a target over the poses; poses without a recognised picture have none."""
    grouped: dict[tuple[str, str], list[float]] = {}
    for (attack, target, _), count in counts.items():
        if count.rate is not None:
            grouped.setdefault((attack, target), []).append(100 * count.rate)
    return {key: sum(rates) / len(rates) for key, rates in grouped.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Craft, evaluate, compare, print, save."""
    made = parser(__doc__)
    made.add_argument("--data", help="labelled pictures; the bundled samples without it")
    made.add_argument("--n", type=int, default=500, help="first pictures only")
    made.add_argument("--batch-size", type=int, default=100)
    options = settle(made, argv, "precision")
    n = 2 if options.quick else options.n
    loaded = whorl.load_images(options.data, limit=n, size=224) if options.data else whorl.load_samples(n, size=224)
    images = whorl.data.Images(loaded.x.to(options.device), loaded.y.to(options.device), loaded.ids)
    attacks, names = (ATTACKS[:1], TARGETS[:1]) if options.quick else (ATTACKS, TARGETS)
    settings = {"steps": 1} if options.quick else {}
    adversarial, seconds = craft(images, attacks, options.device, batch=options.batch_size, **settings)
    nets = {name: whorl.load_model(name, device=options.device) for name in names}
    poses = PAPER_POSES[:2] if options.quick else PAPER_POSES
    full, half = (
        means(
            success_rates(
                nets, images.x, adversarial, images.y, poses=poses, batch_size=options.batch_size, precision=precision
            )
        )
        for precision in ("full", "bf16")
    )
    by_attack = {
        f"{name} on {target}": full[f"{name} fast", target] - full[f"{name} plain", target]
        for name in attacks
        for target in names
    }
    by_evaluation = {f"{attack} on {target}": half[attack, target] - full[attack, target] for attack, target in full}
    about = metadata(
        options.device,
        quick=options.quick,
        n=len(images.ids),
        data=Path(options.data).name if options.data else "samples",
        source=SOURCE,
        targets=list(names),
        weights_sha256={name: net.weights_sha256 for name, net in nets.items()},
    )
    print(headline(about))
    rows = [
        [
            name,
            target,
            *(f"{full[f'{name} {way}', target]:.2f}" for way in WAYS),
            f"{by_attack[f'{name} on {target}']:+.2f}",
        ]
        for name in attacks
        for target in names
    ]
    print(table(["attack", "target", *WAYS, "points"], rows))
    worst = {
        "fast attack, points": (max(map(abs, by_attack.values())), MOST_BY_ATTACK),
        "bf16 evaluation, points": (max(map(abs, by_evaluation.values())), MOST_BY_EVALUATION),
    }
    for what, (value, most) in worst.items():
        print(f"{what}: {value:.2f}, at most {most}{'' if value <= most else ': missed'}")
    if options.json:
        save(
            {
                "metadata": about,
                "rates": [
                    {"attack": a, "target": t, "full": rate, "bf16": half[a, t]} for (a, t), rate in full.items()
                ],
                "seconds_crafting": seconds,
                "targets": [
                    {"what": what, "value": value, "at_most": most, "met": value <= most}
                    for what, (value, most) in worst.items()
                ],
            },
            options.json,
        )


if __name__ == "__main__":
    main()
