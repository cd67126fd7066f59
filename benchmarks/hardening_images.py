"""The images that hardened networks are evaluated on: clean ones, and the attacks on them, kept for the next call."""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

import whorl
from judge import Data
from whorl.evaluation import to_8_bits
from whorl.files import atomic_write

POOL_SOURCE, OTHER_SOURCE = "resnet18", "efficientnet_lite1"  # the second is in no pool
PLAIN = ("fgsm", "pgd", "mim", "dim")
# With the authors' kernel, as in the paper's tables: wide kernels pay against hardened networks.
INVARIANT = ("ai-fgsm", "ai-pgd", "ai-mim", "ai-dim", "ai-ram")
ATTACKS = {POOL_SOURCE: (*PLAIN, *INVARIANT), OTHER_SOURCE: (*PLAIN, "ai-dim", "ai-ram")}


def evaluation_images(options: argparse.Namespace) -> Data:
    """The evaluation images on the device, with labels and names."""
    return Data.load(str(options.nips), options.limit, options.size, options.device)


def craft(name: str, source: str, data: Data, options: argparse.Namespace) -> Tensor:
    """Adversarial versions of all images, ε = 16/255, or what an earlier call has kept of them."""
    kept = options.out / "crafted" / f"{name}-{source}-{len(data.ids)}-{options.size}-{options.seed}.pt"
    settings = {"estimator": whorl.AffineInvariant(sigma="reference")} if name in INVARIANT else {}
    attack = whorl.attack(name, **settings)
    if kept.exists():
        pixels, *of = torch.load(kept, weights_only=True)
        if of == [data.ids, repr(attack)]:
            found: Tensor = pixels.to(data.x) / 255
            return found
    net = whorl.load_model(source, device=options.device)
    made = to_8_bits(data.attacked(attack, net, batch_size=options.batch_size, seed=options.seed))
    kept.parent.mkdir(exist_ok=True)
    with atomic_write(kept) as file:
        torch.save(((made * 255).round().byte().cpu(), data.ids, repr(attack)), file)
    return made


def craft_all(options: argparse.Namespace) -> None:
    """Make every attack of the evaluation, those of the check first."""
    data = evaluation_images(options)
    for source, names in ATTACKS.items():
        begun = time.perf_counter()
        for name in names:
            craft(name, source, data, options)
        print(f"{', '.join(names)} on {source} in {time.perf_counter() - begun:.0f} s", flush=True)
