"""Fail a pull request that makes a model easier to fool: python gate_a_pull_request.py --model MODEL --at-most 60.

Crafts on one network, moves the images through twelve poses, asks yours, and exits with 1 if it is fooled in more
than so many percent of the cases. gate_a_pull_request.yml runs it in GitHub Actions.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import whorl
from whorl.evaluation import PAPER_POSES, success_rates

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", required=True, help="yours, such as python:my_package.models:make_classifier")
parser.add_argument("--at-most", type=float, required=True, help="mean success rate that passes, in percent")
parser.add_argument("--source", default="resnet18", help="what the attack is crafted on")
parser.add_argument("--attack", default="ai-dim", help="ours, or another library's, such as torchattacks:VMIFGSM")
parser.add_argument("--data", help="folder of labelled images; the bundled samples by default")
parser.add_argument("--limit", type=int, default=20, help="images at most")
parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
options = parser.parse_args()

x, y, ids = (
    whorl.load_images(options.data, limit=options.limit, size=options.size)
    if options.data
    else whorl.load_samples(options.limit, size=options.size)
)
model, source = whorl.load_model(options.model), whorl.load_model(options.source)
adv = whorl.attack(options.attack)(source, x, y, seed=0, ids=ids)
counts = success_rates({"model": model}, x, {"attack": adv}, y)
rates = {pose: counts["attack", "model", pose] for pose in PAPER_POSES}
known = {pose: count.rate for pose, count in rates.items() if count.n_clean_correct}
if not known:
    sys.exit(f"{model.name} recognises none of the {len(x)} images in any pose: check its labels and preprocessing.")
mean = 100 * sum(known.values()) / len(known)
worst = max(known, key=lambda pose: known[pose])
verdict = "passes" if mean <= options.at_most else "FAILS"
report = (
    f"{model.name} {verdict}: fooled by {options.attack} from {source.name} in {mean:.1f}% of the cases "
    f"(at most {options.at_most:g}%), over {len(known)} poses and {len(x)} images; worst at {worst}."
)
print(report)
if summary := os.environ.get("GITHUB_STEP_SUMMARY"):  # shown on the pull request's page
    with Path(summary).open("a", encoding="utf-8") as page:
        page.write(f"### Robustness\n\n{report}\n")
sys.exit(0 if mean <= options.at_most else 1)
