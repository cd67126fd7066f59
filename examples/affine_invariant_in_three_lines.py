"""Make somebody else's attack affine-invariant: python affine_invariant_in_three_lines.py [N].

Any attack of any PyTorch library will do; here it is PGD of foolbox (pip install foolbox).
"""

import sys

import foolbox

import whorl
from whorl.evaluation import PAPER_POSES, success_rates

source, target = whorl.load_model("resnet18"), whorl.load_model("efficientnet_lite0")
x, y, ids = whorl.load_samples(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
pgd = foolbox.attacks.LinfPGD(steps=10)
made = {}

_, made["their PGD"], _ = pgd(foolbox.PyTorchModel(source, bounds=(0, 1)), x, y, epsilons=16 / 255)

# The three lines: an estimator, a network whose gradient goes through it, and their attack on that network.
estimator = whorl.AffineInvariant()  # the paper's
net = estimator.wrap(source).eval()
_, made["with AI"], _ = pgd(foolbox.PyTorchModel(net, bounds=(0, 1)), x, y, epsilons=16 / 255)

counts = success_rates({"target": target}, x, made, y)
for name in made:
    rates = [counts[name, "target", pose].rate for pose in PAPER_POSES if counts[name, "target", pose].n_clean_correct]
    print(f"{name:10} fools {target.name} in {sum(rates) / len(rates):.0%} of the cases, over {len(rates)} poses")
