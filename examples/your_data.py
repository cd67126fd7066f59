"""Attack images as you have them: a folder, tar shards, a Hugging Face data set, or a data set of your own code.

    python examples/your_data.py resnet18 photos/
    python examples/your_data.py resnet18 'wds:shards-{000..009}.tar'
    python examples/your_data.py resnet18 'hf:beans?split=test'
    python examples/your_data.py resnet18 python:my.data:test_set

A batch is in memory at a time, however large the data set is.
"""

import sys

import whorl
from whorl.data import iter_images
from whorl.evaluation import Pose, outcomes

model, data = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "samples"
clf = whorl.load_model(model)
attack = whorl.attack("ai-mim", steps=3)


def batches():
    """Crafted as they are evaluated; ids may be left out."""
    for x, y, ids in iter_images(data, batch_size=8, limit=16, size=clf.size):
        yield x, attack(clf, x, y, ids=ids), y


done = outcomes(batches(), {model: clf}, [Pose(), Pose(angle=30)])
print(f"{len(done.ids)} images: success rate {done.rate('adversarial', model).value:.0%} over {len(done.poses)} poses")
