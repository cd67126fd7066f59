"""Attack a timm model of yours, turn the images, and see who is fooled: python attack_your_timm_model.py [MODEL] [N].

MODEL is timm:NAME for published weights, or file:weights.safetensors?arch=timm:NAME for your own.
"""

import sys

import whorl

clf = whorl.load_model(sys.argv[1] if len(sys.argv) > 1 else "timm:resnet50.a1_in1k")
x, y, ids = whorl.load_samples(int(sys.argv[2]) if len(sys.argv) > 2 else 8)
for name in ("dim", "ai-dim"):  # plain, and with the paper's affine-invariant gradient
    adv = whorl.attack(name, eps=16 / 255, steps=10)(clf, x, y, ids=ids)
    for angle in (0, 15, 30):
        right = clf(whorl.affine(x, angle=angle)).argmax(1) == y
        fooled = clf(whorl.affine(adv, angle=angle)).argmax(1) != y
        print(f"{name:7} turned by {angle:2}°: {int((fooled & right).sum())} of {int(right.sum())} fooled")
