"""Originals and hardened networks side by side: gain and cost of hardening."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from hardening_counts import count, show, white_box
from hardening_images import ATTACKS, OTHER_SOURCE, POOL_SOURCE, craft, evaluation_images
from hardening_networks import networks
from measure import metadata, save, table
from whorl.evaluation import PAPER_POSES, Pose


def evaluate(options: argparse.Namespace) -> None:
    """Evaluate originals and hardened networks on clean and adversarial images, what is cheapest first."""
    device = torch.device(options.device)
    data = evaluation_images(options)
    whole, partway = networks(options)
    results: dict[str, Any] = {
        "metadata": metadata(
            device, data=Path(options.nips).name, n=len(data.ids), ids=data.ids, size=options.size, seed=options.seed
        ),
        "weights_sha256": {name: net.weights_sha256 for name, net in (whole | partway).items()},
    }

    def keep(part: str, content: Any) -> None:
        results[part] = content
        save(results, options.out / "evaluation.json")

    crafted = {}
    for source, names in ATTACKS.items():
        crafted[source] = {name: craft(name, source, data, options) for name in names}
        everyone = whole | partway
        cells = count(everyone, data, crafted[source], [Pose()], options)
        keep(f"identity from {source}", cells)
        show(f"identity, crafted on {source} (%)", cells, everyone)
    rates = {name: white_box(net, data, options) for name, net in whole.items()}
    keep("white-box PGD-20, eps 4/255", rates)
    print(table(["white-box PGD-20, ε = 4/255", "success"], [[k, f"{100 * v['rate']:.1f}"] for k, v in rates.items()]))
    for source, posed in ((POOL_SOURCE, ATTACKS[POOL_SOURCE]), (OTHER_SOURCE, ("dim", "ai-dim", "ai-ram"))):
        chosen = {name: crafted[source][name] for name in posed}
        cells = count(whole, data, chosen, PAPER_POSES, options)
        keep(f"twelve poses from {source}", cells)
        show(f"mean over twelve poses, crafted on {source} (%)", cells, whole)
