"""The paper's tables and figures: declared, run, and put beside what it printed.

from whorl import paper, runs

item = paper.load("table3")
done = runs.run(item.declaration("offline", limit=8, without=["eot"]), "runs/paper-offline")
compared = paper.compare_with_printed(item, done)
print(compared.summary)
"""

from whorl.paper.cast import PROFILES, Profile, load_profile
from whorl.paper.comparison import Compared
from whorl.paper.declaration import PaperOptions, declaration
from whorl.paper.item import Item, load, names
from whorl.paper.printed import compare_with_printed
from whorl.paper.reproduction import Reproduced, reproduce

__all__ = [
    "PROFILES",
    "Compared",
    "Item",
    "PaperOptions",
    "Profile",
    "Reproduced",
    "compare_with_printed",
    "declaration",
    "load",
    "load_profile",
    "names",
    "reproduce",
]
