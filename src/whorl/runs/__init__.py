"""What the commands do, as functions that a notebook can call: craft images into a run folder, run experiments.

from whorl import runs, load_model

done = runs.craft("ai-dim", load_model("resnet18"), runs.Images(limit=8), "runs/mine")
print(done.counts["resnet18"].rate)
"""

from whorl.models.zoo import find_device
from whorl.runs.crafting import Crafted, Interrupted, craft
from whorl.runs.declaration import AttackSpec, Data, Declaration, Grid, declare, read_declaration
from whorl.runs.experiment import Done, run
from whorl.runs.folder import RunFolder
from whorl.runs.pictures import Loaded, Pictures
from whorl.runs.query_table import table7
from whorl.runs.querying import Queried, query
from whorl.runs.setup import load_source

__all__ = [
    "AttackSpec",
    "Crafted",
    "Data",
    "Declaration",
    "Done",
    "Grid",
    "Interrupted",
    "Loaded",
    "Pictures",
    "Queried",
    "RunFolder",
    "craft",
    "declare",
    "find_device",
    "load_source",
    "query",
    "read_declaration",
    "run",
    "table7",
]
