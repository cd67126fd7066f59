"""What the commands do, as functions that a notebook can call: craft images into a run folder, run experiments.

from whorl import runs, load_model

done = runs.craft("ai-dim", load_model("resnet18"), runs.Data(limit=8), "runs/mine")
print(done.counts["resnet18"].rate)
"""

from whorl.models.zoo import find_device
from whorl.runs.black_box import query
from whorl.runs.declaration import AttackSpec, Declaration, Grid, declare, read_declaration
from whorl.runs.done import Done
from whorl.runs.engines import Interrupted
from whorl.runs.experiment import run
from whorl.runs.folder import RunFolder
from whorl.runs.images import Data, Loaded, Opened, images_of
from whorl.runs.merge import merge
from whorl.runs.networks import load_source
from whorl.runs.query_table import table7
from whorl.runs.shard import Shard
from whorl.runs.single_attack import AttackResult
from whorl.runs.white_box import craft

__all__ = [
    "AttackResult",
    "AttackSpec",
    "Data",
    "Declaration",
    "Done",
    "Grid",
    "Interrupted",
    "Loaded",
    "Opened",
    "RunFolder",
    "Shard",
    "craft",
    "declare",
    "find_device",
    "images_of",
    "load_source",
    "merge",
    "query",
    "read_declaration",
    "run",
    "table7",
]
