"""How often networks are right and attacks succeed: counted, as percentages, as a table."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

import whorl
from judge import Data, evaluated, rows
from measure import table
from whorl.evaluation import Pose, SuccessRate, mean_rate


def count(
    nets: dict[str, whorl.Classifier],
    data: Data,
    adversarial: dict[str, Tensor],
    poses: Sequence[Pose],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Counts of every attack on every network in every pose."""
    return rows(evaluated(nets, data, adversarial, poses, batch_size=options.batch_size))


def white_box(net: whorl.Classifier, data: Data, options: argparse.Namespace) -> dict[str, Any]:
    """Success rate of PGD with 20 steps at ε = 4/255 on the network itself."""
    attack = whorl.attack("pgd", eps=4 / 255, steps=20)
    adv = data.attacked(attack, net, batch_size=options.batch_size, seed=options.seed)
    [found] = evaluated({"": net}, data, {"pgd": adv}, [Pose()], batch_size=options.batch_size).counts.values()
    return {**vars(found), "rate": found.rate, "clean_accuracy": found.clean_accuracy, "accuracy": found.accuracy}


def figures(
    net: whorl.Classifier,
    data: Data,
    crafted: dict[str, Tensor],
    poses: Sequence[Pose],
    options: argparse.Namespace,
) -> tuple[float, dict[str, float]]:
    """Clean accuracy and each attack's success rate, in percent, as means over the poses."""
    cells = count({"": net}, data, crafted, poses, options)
    rates = {attack: success(cells, attack) for attack in crafted}
    # A network that is never right holds nothing.
    return accuracy(cells), {attack: 100.0 if rate is None else rate for attack, rate in rates.items()}


def accuracy(cells: list[dict[str, Any]]) -> float:
    """Clean accuracy in percent, as a mean over the poses."""
    return 100 * sum(map(_counted, cells), SuccessRate()).clean_accuracy


def success(cells: list[dict[str, Any]], attack: str) -> float | None:
    """An attack's success rate in percent, as a mean over the poses in which the network is ever right."""
    rate = mean_rate(_counted(cell) for cell in cells if cell["attack"] == attack)
    return None if math.isnan(rate) else 100 * rate


def _counted(cell: dict[str, Any]) -> SuccessRate:
    return SuccessRate(cell["n"], cell["n_clean_correct"], cell["n_success"])


def show(title: str, cells: list[dict[str, Any]], nets: dict[str, whorl.Classifier]) -> None:
    """Print one row a network: clean accuracy, then the mean success rate of each attack."""
    attacks = list(dict.fromkeys(cell["attack"] for cell in cells))
    lines = []
    for name in nets:
        own = [cell for cell in cells if cell["target"] == name]
        rates = [success(own, attack) for attack in attacks]
        told = [f"{rate:.1f}" if rate is not None else "-" for rate in (accuracy(own), *rates)]
        lines.append([name, *told])
    print(f"{title}\n{table(['network', 'clean', *attacks], lines)}", flush=True)
