"""How often networks are right and attacks succeed: counted, as percentages, as a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from torch import Tensor

import whorl
from hardening_images import batched
from measure import table
from whorl.evaluation import Pose, success_rates


def ask(
    nets: dict[str, whorl.Classifier],
    x: Tensor,
    adversarial: dict[str, Tensor],
    y: Tensor,
    poses: Sequence[Pose],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Counts of every attack on every network in every pose."""
    counts = success_rates(nets, x, adversarial, y, poses=poses, batch_size=options.batch_size)
    return [
        {"attack": a, "target": t, "angle": p.angle, "scale": p.scale, "shift": p.shift, **vars(c)}
        for (a, t, p), c in counts.items()
    ]


def white_box(
    net: whorl.Classifier, x: Tensor, y: Tensor, ids: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Success rate of PGD with 20 steps at ε = 4/255 on the network itself."""
    adv = batched(whorl.attack("pgd", eps=4 / 255, steps=20), net, x, y, ids, options)
    counts = success_rates({"": net}, x, {"pgd": adv}, y, poses=[Pose()], batch_size=options.batch_size)
    [count] = counts.values()
    return {**vars(count), "rate": count.rate, "clean_accuracy": count.clean_accuracy, "accuracy": count.accuracy}


def figures(
    net: whorl.Classifier,
    x: Tensor,
    crafted: dict[str, Tensor],
    y: Tensor,
    poses: Sequence[Pose],
    options: argparse.Namespace,
) -> tuple[float, dict[str, float]]:
    """Clean accuracy and each attack's success rate, in percent, as means over the poses."""
    cells = ask({"": net}, x, crafted, y, poses, options)
    rates = {attack: success(cells, attack) for attack in crafted}
    # A network that is never right holds nothing.
    return accuracy(cells), {attack: 100.0 if rate is None else rate for attack, rate in rates.items()}


def accuracy(cells: list[dict[str, Any]]) -> float:
    """Clean accuracy in percent, as a mean over the poses."""
    right: float = 100 * sum(cell["n_clean_correct"] for cell in cells) / sum(cell["n"] for cell in cells)
    return right


def success(cells: list[dict[str, Any]], attack: str) -> float | None:
    """An attack's success rate in percent, as a mean over the poses in which the network is ever right."""
    own = [cell for cell in cells if cell["attack"] == attack and cell["n_clean_correct"]]
    return 100 * sum(c["n_success"] / c["n_clean_correct"] for c in own) / len(own) if own else None


def show(title: str, cells: list[dict[str, Any]], nets: dict[str, whorl.Classifier]) -> None:
    """Print one row a network: clean accuracy, then the mean success rate of each attack."""
    attacks = list(dict.fromkeys(cell["attack"] for cell in cells))
    rows = []
    for name in nets:
        own = [cell for cell in cells if cell["target"] == name]
        rates = [success(own, attack) for attack in attacks]
        told = [f"{rate:.1f}" if rate is not None else "-" for rate in (accuracy(own), *rates)]
        rows.append([name, *told])
    print(f"{title}\n{table(['network', 'clean', *attacks], rows)}", flush=True)
