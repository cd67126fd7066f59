"""Harden a network, then attack it again: python harden_and_retest.py --data photos/ --test more-photos/.

Both folders hold labelled images, in class folders or with a list (see docs/data.md). A useful training takes hours
on a GPU; --steps 20 shows that everything works.
"""

from __future__ import annotations

import argparse

import whorl
from whorl.evaluation import PAPER_POSES, success_rates
from whorl.hardening import harden

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="mobilenet_v2", help="what to harden")
parser.add_argument("--source", default="resnet18", help="what the attack is crafted on")
parser.add_argument("--data", required=True, help="images to train on")
parser.add_argument("--test", required=True, help="other images to test with")
parser.add_argument("--recipe", default="ens-at")
parser.add_argument("--attack", default="ai-dim")
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--held-out", type=int, default=256, help="images to watch the training with")
parser.add_argument("--limit", type=int, default=100, help="images to test with at most")
parser.add_argument("--out", default="runs/hardened")
parser.add_argument("--device", default="auto")
options = parser.parse_args()

done = harden(
    options.model,
    options.data,
    options.recipe,
    out=options.out,
    steps=options.steps,
    batch=options.batch,
    held_out=options.held_out,
    device=options.device,
    partial=True,
)
hardened = done.classifier
device = next(hardened.parameters()).device
targets = {"before": whorl.load_model(options.model, device=device), "after": hardened}
source = whorl.load_model(options.source, device=device)

x, y, ids = whorl.load_images(options.test, limit=options.limit, size=hardened.size)
x, y = x.to(device), y.to(device)
adv = whorl.attack(options.attack)(source, x, y, ids=ids)
counts = success_rates(targets, x, {options.attack: adv}, y)
for name, target in targets.items():
    right = (target(x).argmax(1) == y).float().mean().item()
    asked = [counts[options.attack, name, pose] for pose in PAPER_POSES]
    rates = [count.rate for count in asked if count.n_clean_correct]
    fooled = f"{sum(rates) / len(rates):.0%}" if rates else "none recognised"
    print(f"{name:6} clean accuracy {right:.0%}, fooled by {options.attack} from {source.name}: {fooled}")
print(f"weights and report: {options.out}")
