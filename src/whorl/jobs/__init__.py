"""What the commands do, as functions that a notebook can call: craft pictures into a run folder, run the demo.

from whorl import jobs, load_model

done = jobs.craft("ai-dim", load_model("resnet18"), jobs.Pictures(limit=8), "runs/mine")
print(done.counts["resnet18"].rate)
"""

from whorl.jobs.crafting import Crafted, Interrupted, craft
from whorl.jobs.demo import Demo, demo
from whorl.jobs.folder import RunFolder
from whorl.jobs.pictures import Loaded, Pictures
from whorl.jobs.setup import find_device, load_source

__all__ = [
    "Crafted",
    "Demo",
    "Interrupted",
    "Loaded",
    "Pictures",
    "RunFolder",
    "craft",
    "demo",
    "find_device",
    "load_source",
]
