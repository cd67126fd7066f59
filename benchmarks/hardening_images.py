"""The images that hardened networks are asked about: clean ones, and the attacks on them, kept for the next call."""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

import whorl
from whorl.evaluation import to_8_bits
from whorl.files import atomic_write

POOL_SOURCE, OTHER_SOURCE = "resnet18", "efficientnet_lite1"  # the second is in no pool
PLAIN = ("fgsm", "pgd", "mim", "dim")
# With the authors' kernel, as in the paper's tables: wide kernels pay against hardened networks.
INVARIANT = ("ai-fgsm", "ai-pgd", "ai-mim", "ai-dim", "ai-ram")
ATTACKS = {POOL_SOURCE: (*PLAIN, *INVARIANT), OTHER_SOURCE: (*PLAIN, "ai-dim", "ai-ram")}


def evaluation_images(options: argparse.Namespace) -> tuple[Tensor, Tensor, list[str]]:
    """The evaluation images on the device, with labels and names."""
    x, y, ids = whorl.load_images(options.nips, size=options.size, limit=options.limit)
    return x.to(options.device), y.to(options.device), ids


def craft(name: str, source: str, x: Tensor, y: Tensor, ids: list[str], options: argparse.Namespace) -> Tensor:
    """Adversarial versions of all images, ε = 16/255, or what an earlier call has kept of them."""
    kept = options.out / "crafted" / f"{name}-{source}-{len(x)}-{options.size}-{options.seed}.pt"
    settings = {"estimator": whorl.AffineInvariant(sigma="reference")} if name in INVARIANT else {}
    attack = whorl.attack(name, **settings)
    if kept.exists():
        pixels, *of = torch.load(kept, weights_only=True)
        if of == [list(ids), repr(attack)]:
            found: Tensor = pixels.to(x) / 255
            return found
    net = whorl.load_model(source, device=options.device)
    made = to_8_bits(batched(attack, net, x, y, ids, options))
    kept.parent.mkdir(exist_ok=True)
    with atomic_write(kept) as file:
        torch.save(((made * 255).round().byte().cpu(), list(ids), repr(attack)), file)
    return made


def craft_all(options: argparse.Namespace) -> None:
    """Make every attack of the evaluation, those of the check first."""
    x, y, ids = evaluation_images(options)
    for source, names in ATTACKS.items():
        begun = time.perf_counter()
        for name in names:
            craft(name, source, x, y, ids, options)
        print(f"{', '.join(names)} on {source} in {time.perf_counter() - begun:.0f} s", flush=True)


def batched(
    attack: whorl.Attack, net: whorl.Classifier, x: Tensor, y: Tensor, ids: list[str], options: argparse.Namespace
) -> Tensor:
    """Attack all images, some at a time."""
    parts = [slice(i, i + options.batch_size) for i in range(0, len(x), options.batch_size)]
    return torch.cat([attack(net, x[p], y[p], seed=options.seed, ids=ids[p]) for p in parts])
