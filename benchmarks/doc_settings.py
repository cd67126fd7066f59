"""What looks measured on the pages and is a setting, a version, an example or a definition.

And how many images the data of a page has, which the page may speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from doc_data import HeldOut, cells, read, read_lines
from whorl.evaluation.image_counts import FEWEST
from whorl.evaluation.statistics import MANY

# On every page.
SETTINGS = (
    r"scales 0\.7, 1\.0 and 1\.3|scales 1\.0, 0\.9, 0\.8",  # before the pattern that takes the first of them alone
    r"\d+\.\d+\.\d+",  # versions
    r"(?:torch|Python|cuDNN|CUDA|ART) \d+\.\d+(?: to \d+\.\d+)?",
    r"σ(?:\s[=²]+)?\s*[\d.]+(?:\s(?:pixels|px))?",
    r"(?:0\.8|1|2|4|8|12|16)/255",
    r"95% (?:confidence )?intervals?|interval of a rate, 95%|success rate, 95%|BCa, 95%",
    r"within 5 points",
    r"p ≥ 0\.05|McNemar's in one pose, at 0\.05",
    r"(?:scales?|×|s=) ?\d\.\d(?!\d)",
    r"scales from \d\.\d to \d\.\d",
    r"§\d\.\d",
    r"0\.000 is below 0\.0005",
    r"Apache[- ]2\.0",
    r"geometric mean, 7\.2°",
    r"in the first step and 1\.6°|to 5°\) and scale \(to 0\.1\)",
    r"(?:range|kernel|ranges) \d(?:\.\d+)?(?: to \d\.\d+)?",
    r"\d+(?:\.\d)?° (?:to|and|in|→) \d+(?:\.\d)?°|to \d\.\d°",
    r"(?:one|two) of (?:the )?(?:three|twenty)",  # parts of a whole that nobody counted
    r"photographs of twelve megapixels",
)

# What an image may cost: what attacks of the figures spend, 200 and 300 being those of ai-max and of targeted attacks.
GRADIENTS = {1, 10, 50, 100, 200, 300, 2500}
# On one page alone: what a program does, what a limit is, an example, what the paper prints.
OF_PAGE: Mapping[str, Sequence[str]] = {
    "docs/clusters.md": (r"300 seconds", r"1\.2 million predictions", r"50,000 images"),
    "docs/evaluation.md": (r"a rate\s+near 100%", r"K₁ = 0\.01, K₂ = 0\.03"),
    "docs/exports.md": (r"3\.3 inches|6\.9 inches|8 points",),
    "docs/gate.md": (
        r"scales 0\.5, 0\.7, 1, 1\.3 and 1\.5",
        r"at (?:most|least) \d+%",
        r"0\.5 and 0\.5|10 points more|paired test, 5%|50\s+points wide|3\.84",
        r"a limit of 10% takes 35 images, 5% takes 73, 1% takes 381",
        r"p < 5%",
        r"in 2\.5% of cases at most|on 12% of 200\s+images|robust on 2%|in 97% of draws",  # tests/gate/test_gate.py
    ),
    "docs/glossary.md": (r"p below 0\.05", r"above 60%"),
    "docs/hardening.md": (r"take 0\.55 GB a version",),  # 5,000 images of 192 pixels, eight bits a value
    "docs/hardening/frontier.md": (r"3 points of (?:clean )?top-1",),  # the bar
    "docs/hardening/weights.md": (r"35 seconds each", r"1\.15 of the way", r"some 40 means of three trainings"),
    "docs/frontier.md": (r"from 1 to 225 gradients",),
    "docs/frontier/ai-best.md": (r"of 0\.7 and of 1",),
    "docs/installing.md": (r"Ubuntu 24\.04",),
    "docs/interop.md": (r"requests \(2\.25\)|size,\s+0\.1\s+by\s+default",),
    "docs/interop/torchattacks.md": (r"requests\s+\(2\.25\)",),
    "docs/interop/art.md": (r"step size, 0\.1,",),
    "docs/method.md": (r"differ by a factor of 3\.5", r"displacement of\s+0\.02 px"),  # 7/√3 by 7/6; a test's limit
    "docs/paper.md": (
        r"false ✓ or ✗\s+is 5%",
        r"## Where the paper is unclear.*",  # what the paper prints
    ),
    "docs/physical.md": (r"(?:more\s+often than in|in more than)\s+60%",),  # an example of a gate
    "docs/playground.md": (r"25 MB|100 MB",),
    "docs/poses.md": (r"20 pixels of 299",),
    "docs/provenance.md": (r"numpy below 2\.1",),
    "docs/report.md": (
        r"scale 0\.6 and 0\.8",
        r"(?m)^> .*?(?=\n\n)",  # an example of a sentence
        r"scaling\s+by\s+1\.5",
        r"Safari\s+16\.4",
        r"under 4 MB",  # tests/report/test_report_page.py
    ),
    "docs/frontier/rivals.md": (r"within 1 point",),
    "docs/results/levels.md": (r"adds 0\.4 times",),  # in the authors' code
    "docs/results/other-sources.md": (r"above -1 point|within 1 point|within 3 at 8/255",),
    "docs/speed.md": (
        r"64 images of 299 pixels|1×1 convolutions of one input|one channel of one image|loops of one batch",
        r"in 95 of 100 cases",
    ),
    "docs/tutorial.md": (r"more than 60% of the cases",),
}

# Where such words say what a mark, a column or a test means, or that nothing was tested.
DEFINITIONS = (
    r"[✓✗~] (?:not )?significant(?:ly)?(?: ahead| behind| the other way round)?",
    r"no (?:gain|difference)[\w ]*is\s+called\s+significant",
    r"call no row ahead of another",
    r"not significantly behind the winner|always looks better than it is",
    r"also says where EOT is ahead",
    r"\*\*Ahead\.\*\*",
    r"are ahead of the attacks that they build on",  # what the page asks
    r"far smaller differences significant than|called ahead of another unless",
    r"calls nothing ahead|no row is called ahead|intervals and significance over seeds",
)


def settings(path: str) -> tuple[str, ...]:
    """Patterns of what is a setting on a page."""
    return (*OF_PAGE.get(path, ()), *SETTINGS)


def images(path: str) -> set[int]:
    """How many images a page may speak of: as many as its data has."""
    return {count() for count in IMAGES.get(path, ())}


def _judge() -> int:
    return len(HeldOut().data["ids"])


def _outcomes(name: str) -> int:
    return len(read(f"paper/{name}-outcomes.json")["ids"])


def _cells(name: str) -> int:
    return max(int(row["n"]) for row in cells(name))


def _said(name: str, *keys: str) -> int:
    found = read(name)
    for key in keys:
        found = found[key]
    return int(found) if isinstance(found, int) else len(found)


def _targeted(name: str, target: str) -> int:
    """Images that were attacked on a target, by any attack."""
    return len({row["id"] for row in read_lines(name) if row["target"] == f"efficientnet_lite0{target}"})


_FRONTIER = partial(_said, "frontier-resnet18.json", "late", "asked", "n")
_HARDENING = partial(_said, "hardening-cuda.json", "metadata", "n")
_TRAINED = 5000
_SUITE = partial(_outcomes, "table1-inception")
IMAGES: Mapping[str, Sequence[Callable[[], int]]] = {
    "README.md": (_FRONTIER, _judge),
    "docs/analysis.md": (_SUITE, partial(_cells, "figure7")),
    "docs/analysis/calibration.md": (partial(_said, "calibration-resnet18.json", "images"),),
    "docs/analysis/tables.md": (partial(_said, "error-resnet18.json", "settings", "images"),),
    "docs/clusters.md": (lambda: int(read("shards-cpu.json")["measured"][-1]["images"]),),
    "docs/evaluation.md": (lambda: FEWEST, lambda: MANY),
    "docs/frontier.md": (_FRONTIER,),
    "docs/frontier/ai-best.md": (
        partial(_said, "spreads-cpu.json", "n"),
        lambda: int(read_lines("strength-cuda.jsonl")[0]["n"]),
    ),
    "docs/frontier/ai-best-parts.md": (partial(_said, "frontier-search-resnet18.json", "metadata", "n"),),
    "docs/hardening/frontier.md": (partial(_said, "hardening-frontier-choice.json", "ids"),),
    "docs/hardening/weights.md": (_HARDENING, lambda: _TRAINED),
    "docs/interop.md": (partial(_said, "interop-cuda.json", "metadata", "n"),),
    "docs/models.md": (_HARDENING, lambda: int(read("accuracy-cuda.json")["cells"][0]["n"])),
    "docs/poses.md": (partial(_said, "families-resnet18.json", "asked", "n"),),
    "docs/results.md": (_SUITE, partial(_cells, "table6")),
    "docs/results/held-out.md": (_judge,),
    "docs/results/targeted.md": (
        lambda: int(read_lines("strength-cuda.jsonl")[-1]["n"]),
    ),  # of the last, a targeted one
    "docs/results/ablations.md": (partial(_cells, "ablation-sigma"),),
    "docs/results/eot.md": (partial(_outcomes, "table4-resnet18"), partial(_outcomes, "table1-inception-adam")),
    "docs/results/kernels.md": (partial(_cells, "figure7"), partial(_outcomes, "table8-inception")),
    "docs/results/levels.md": (_SUITE, partial(_outcomes, "pgd-step"), lambda: 1000),  # the paper's
    "docs/results/photographed.md": (partial(_said, "physical-table5-cpu.json", "results", "images"),),
    "docs/results/queries.md": (
        partial(_targeted, "table7-cpu.jsonl", "+jpeg"),
        partial(_targeted, "table7-cpu.jsonl", "+bitdepth"),
    ),
    "docs/results/transfer.md": (partial(_said, "transfer-cuda.json", "metadata", "n"),),
    "docs/speed.md": (partial(_said, "memory-cpu.json", "results", "images"), lambda: 64),  # 64: an example
    "docs/physical/python.md": (partial(_said, "physical-speed-cpu.json", "results", "photos"), lambda: 18),
}
