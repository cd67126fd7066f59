"""Which figures of the pages come from which data: tables by the name in their comment, sentences by their text.

A table's function takes what its comment says behind its name, and gives a function of a row (column to text) and a
column: the numbers that the cell must show, in order; None where it is a label or a setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from doc_data import RESULTS, Frontier, HeldOut, percent, read, read_csv, read_lines, where
from whorl.analysis.correlation import correlate, read_points
from whorl.evaluation.image_counts import ImageCounts
from whorl.evaluation.statistics import Comparison, compare, holm, rate, sign_test

Cell = Callable[[Mapping[str, str], str], Sequence[float] | None]


class Printed(tuple[float, ...]):
    """Numbers behind which a cell may have others, which the paper printed."""


TABLES: dict[str, Callable[..., Cell]] = {}
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/method.md",
    "docs/attacks.md",
    "docs/models.md",
    "docs/results.md",
    "docs/frontier.md",
    "docs/analysis.md",
    "docs/hardening.md",
    "docs/blackbox.md",
    "docs/speed.md",
    "docs/physical.md",
    "docs/interop.md",
)
# What looks measured and is a setting, a version or a definition, on every page.
SETTINGS = (
    r"\d+\.\d+\.\d+",  # versions
    r"(?:torch|Python|cuDNN|CUDA) \d+\.\d+",
    r"σ(?:\s[=²]+)?\s*[\d.]+(?:\s(?:pixels|px))?",
    r"[ε=]\s?\d+(?:\.\d+)?/255",
    r"95% intervals?",
    r"p ≥ 0\.05",
    r"(?:scales?|×|s=) ?\d\.\d",
    r"§\d\.\d",
    r"Apache[- ]2\.0",
    r"requests \(2\.25\)|step size,\s+0\.1 by default",
    r"displacement of\s+0\.02 px",  # what a test allows
    r"(?:more often than in|in more than) 60%",  # an example of a gate
    r"differ by a factor of 3\.5",  # 7/√3 by 7/6
    r"geometric mean, 7\.2°",
    r"in the first step and 1\.6°|to 5°\) and scale \(to 0\.1\)|scales 1\.0, 0\.9, 0\.8",
    r"(?:range|kernel|ranges) \d(?:\.\d+)?(?: to \d\.\d+)?",
    r"\d+(?:\.\d)?° (?:to|and|in|→) \d+(?:\.\d)?°|to \d\.\d°",
)


def table(name: str) -> Callable[[Callable[..., Cell]], Callable[..., Cell]]:
    """Register the function of a table."""

    def add(made: Callable[..., Cell]) -> Callable[..., Cell]:
        TABLES[name] = made
        return made

    return add


# ---------------------------------------------------------------------------------------------------------------------
# results.md: counts on NIPS17 photographs

_TRANSFER = {"no estimator": "", "TI, σ 7/3": " + TI", "AI printed": " + AI printed", "AI reference": " + AI reference"}
_THREE = ("resnet18", "mobilenet_v2", "efficientnet_lite0")


def _transfer(attack: str, target: str) -> float:
    (found,) = where(read("transfer-cuda.json")["results"], attack=attack)
    return percent(where(found["counts"], target=target))


@table("transfer")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "base attack":
            return None
        attack = row["base attack"] + _TRANSFER.get(column, " + AI σ 0.7")
        return [_transfer(attack, target) for target in _THREE]

    return cell


@table("transfer-more")
def _() -> Cell:
    names = {
        "ram, 50": "ram, 50 steps",
        "ram + AI reference, 50": "ram + AI reference, 50 steps",
        "eot, 20 draws × 50 steps = 1,000": "eot, 20 samples x 50 steps",
    }
    first = "more gradients an image"
    return lambda row, column: None if column == first else [_transfer(names[row[first]], column)]


def _pose(column: str) -> dict[str, float]:
    """A column's pose; empty for the mean over all."""
    if found := re.fullmatch(r"θ=(-?\d+)°", column):
        return {"angle": float(found[1])}
    if found := re.fullmatch(r"s=([\d.]+)", column):
        return {"scale": float(found[1])}
    if found := re.fullmatch(r"m=n=(\d+)", column):
        return {"shift_x": float(found[1])}
    if found := re.fullmatch(r"(-?\d+)° ×([\d.]+) \((\d+), \d+\)", column):
        return {"angle": float(found[1]), "scale": float(found[2]), "shift_x": float(found[3])}
    if column != "mean":
        raise LookupError(f"no pose {column!r}")
    return {}


@table("paper")
def _(name: str, *filters: str) -> Cell:
    wanted = {key: value if key == "target" else float(value) for key, _, value in (f.partition("=") for f in filters)}
    rows = where(read_csv(f"{name}-results.csv"), **wanted)

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        return Printed([percent(where(rows, attack=row["attack"], **_pose(column)))])

    return cell


@table("paper-targets")
def _(name: str, source: str = "source=") -> Cell:
    rows = where(read_csv(f"{name}-results.csv"), source=source.removeprefix("source=") or None)

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        return Printed([percent(where(rows, attack=row["attack"], target=column.rpartition("→ ")[2]))])

    return cell


@table("figure7")
def _() -> Cell:
    rows = read_csv("figure7-results.csv")

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "size":
            return None
        own = where(rows, attack=f"ai-dim-{row['size']}")
        if column.startswith("not attacked"):
            as_they_are = where(own, angle=0.0, scale=1.0, shift_x=0.0)
            return [float(np.mean([percent(where(as_they_are, target=target)) for target in _THREE[1:]]))]
        return [percent(where(own, target=column))]

    return cell


@table("table5")
def _() -> Cell:
    results = read("physical-table5-cpu.json")["results"]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        name = row[""].partition(",")[0]
        if column == "":
            return None
        if column.startswith("the paper"):
            return list(results["paper"].get(name, []))
        rows = where(results["rows"], target=column.partition(" ")[0])
        rows = [one for one in rows if one["pictures"].partition(" on ")[0] == name]
        return [100 * one["n_adversarial_correct"] / one["n"] for one in sorted(rows, key=lambda one: one["setting"])]

    return cell


def _smallest_p(first: str, second: str, target: str, setting: str) -> float:
    compared = read("physical-table5-cpu.json")["results"]["compared"]
    names = {"first": f"{first} on resnet18", "second": f"{second} on resnet18"}
    (found,) = where(compared, target=target, setting=setting, **names)
    return sign_test(found["b"], found["c"])


def _queries(attack: str, start: str, target: str) -> list[dict[str, Any]]:
    """Images that count, of the run on a GPU where it has them, else of that on a CPU."""
    for name in ("table7-cuda.jsonl", "table7-cpu.jsonl"):
        found = [
            row for row in read_lines(name) if (row["attack"], row["start"], row["target"]) == (attack, start, target)
        ]
        if found:
            return [row for row in found if row["counts"]]
    return []


_STARTS = {"the image": "none", "dim, σ 0.5": "ai-dim", "–": "none"}


def _spent(rows: Sequence[Mapping[str, Any]]) -> float:
    return float(np.mean([row["queries"] for row in rows]))


@table("table7")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("attack", "start"):
            return None
        target = "efficientnet_lite0" + ("" if column == "none" else f"+{column.strip('`')}")
        attack = row["attack"].replace("sign noise", "noise")
        rows = _queries(attack, _STARTS.get(row["start"], row["start"]), target)
        return [100 * np.mean([one["success"] for one in rows]), _spent(rows)] if rows else []

    return cell


@table("table7-starts")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "start":
            return None
        start, target = _STARTS.get(row["start"], row["start"]), f"efficientnet_lite0+{column.strip('`')}"
        rows = [
            one
            for one in read_lines("table7-cpu.jsonl")
            if (one["attack"], one["start"], one["target"]) == ("nattack", start, target) and one["counts"]
        ]
        late = sum(one["queries"] > 1 for one in rows)
        never = sum(not one["success"] for one in rows)
        said = [never] if "never" in row[column] else [] if "all at once" in row[column] else [late]
        return [_spent(rows), *said]

    return cell


def _top1(model: str, defense: str = "none") -> float:
    for name in ("accuracy-cuda.json", "accuracy-inception-cpu.json"):
        for cell in where(read(name)["cells"], model=model, defense=defense):
            return float(100 * cell["correct"] / cell["n"])
    raise LookupError(f"no accuracy of {model}")


@table("accuracy")
def _() -> Cell:
    return lambda row, column: None if column == "network" else [_top1(row["network"], column.strip("`"))]


# ---------------------------------------------------------------------------------------------------------------------
# frontier.md: outcomes by image on NIPS17 photographs; the mean over targets of rates pooled over poses

_SOURCES = {"ResNet-18": "resnet18", "EfficientNet-Lite0": "efficientnet_lite0"}
_KERNELS = {"none": "", "narrow": "+ai0.5", "wide": "+t0s0r1.7", "narrowing ²": "+turn32-1.6"}
_PARTS = {
    "smooth rectifiers": "rectifier2",
    "shared pooling": "pool",
    "skip 0.5 and estimator": "skip0.5+ai0.5",
    "smooth warp": "warp",
    "poses on a lattice": "lattice",
    "mirror": "mirror",
    "poses on a Latin square": "latin",
    "scale 0.5 to 1.2": "scale0.5-1.2",
    "pace 20": "pace20",
    "skip 0.65": "skip0.65",
    "estimator, all parts, σ 0.5": "ai0.5",
    "gain 0.6": "gain0.6",
    "ghosts": "ghost",
    "antithetic poses": "antithetic",
    "shared channels 0.5": "channels0.5",
    "compressed gradient": "power0.5",
    "temperature 3": "temperature3",
    "relative loss": "relative",
    "feature decay": "decay",
    "overshoot 1.5": "overshoot1.5",
}


def _shown(counts: ImageCounts) -> float:
    return 100 * counts.value("mean")


def _apart(found: Comparison) -> list[float]:
    return [100 * found.difference, 100 * found.interval[0], 100 * found.interval[1]]


def _candidate(row: Mapping[str, str]) -> str:
    base = row["attack"].replace(", σ 0.5", "+ai0.5").replace("ri-dim ²", "dim+turn32-1.6").replace(" ¹", "")
    return f"{base}{_KERNELS[row['kernel']] if 'kernel' in row else ''}/{row['gradients'].replace(',', '')}"


@table("frontier")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("attack", "gradients", "kernel"):
            return None
        source, _, eps = column.partition(", ε ")
        data, name = Frontier(_SOURCES[source]), _candidate(row)
        return [_shown(data.counts(name, eps))] if data.has(name, eps) else []

    return cell


@cache
def _beside_eot() -> dict[tuple[str, str, str], Comparison]:
    """By source, eps and gradients, with Holm's correction."""
    found = {}
    for source in _SOURCES.values():
        data = Frontier(source)
        for eps in ("16", "8"):
            for gradients in ("10", "50"):
                ours, eot = data.counts(f"ai-best/{gradients}", eps), data.counts("eot/2500", eps)
                found[source, eps, gradients] = compare(ours, eot, "mean")
    return holm(found)


@table("frontier-eot")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        source, eps, gradients = _SOURCES[row["source"]], row["ε"], row["gradients"]
        found = _beside_eot()[source, eps, gradients]
        values = {
            "`ai-best`": lambda: [_shown(Frontier(source).counts(f"ai-best/{gradients}", eps))],
            "EOT": lambda: [_shown(Frontier(source).counts("eot/2500", eps))],
            "difference": lambda: _apart(found),
            "p": lambda: [found.p_value],
        }
        return values[column]() if column in values else None

    return cell


@table("frontier-parts")
def _() -> Cell:
    data = Frontier("resnet18")

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "part":
            return None
        name = f"ram+{_PARTS[row['part']]}/10"
        return _apart(compare(data.counts(name, "8"), data.counts("ram/10", "8"), "mean"))

    return cell


@table("frontier-wrapped")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column in ("attack", "steps × gradients"):
            return None
        source, _, eps = column.partition(", ε ")
        data = Frontier(_SOURCES[source])
        if not data.has(f"{row['attack']}/10", eps):
            return []
        plain, wrapped = (data.counts(f"{row['attack']}{more}/10", eps) for more in ("", "+ai0.5"))
        return [_shown(plain), _shown(wrapped), *_apart(compare(wrapped, plain, "mean"))]

    return cell


# ---------------------------------------------------------------------------------------------------------------------
# hardening.md and models.md: counts on NIPS17 photographs


def _hardened(part: str, attack: str, target: str, **pose: Any) -> list[Any]:
    return where(read("hardening-cuda.json")[part], attack=attack, target=target, **pose)


def _clean(rows: Sequence[Mapping[str, Any]]) -> float:
    return float(np.mean([100 * row["n_clean_correct"] / row["n"] for row in rows]))


@table("hardening")
def _(_where: str) -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "network":
            return None
        rows = _hardened("identity from resnet18", "dim" if column == "clean" else column, row["network"])
        return [_clean(rows) if column == "clean" else percent(rows)]

    return cell


@table("hardening-lite1")
def _() -> Cell:
    parts = {"lite1": "identity from efficientnet_lite1", "poses": "twelve poses from resnet18"}

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "network":
            return None
        part, _, attack = column.partition(": ")
        rows = _hardened(parts[part], "dim" if attack == "clean" else attack, row["network"])
        return [_clean(rows) if attack == "clean" else percent(rows)]

    return cell


@table("hardening-pattern")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "network":
            return None
        angle = re.search(r"±(\d+)°", column)
        shown = []
        for attack in ("dim", "ai-dim", "ai-ram"):
            rows = _hardened("twelve poses from resnet18", attack, row["network"])
            upright = [one for one in rows if one["scale"] == 1 and one["shift"] == [0, 0]]
            if angle or column == "as they are":
                rows = [one for one in upright if abs(one["angle"]) == (float(angle[1]) if angle else 0)]
            shown.append(percent(rows))
        return shown

    return cell


@table("models")
def _() -> Cell:
    return lambda row, column: [_top1(row["network"])] if column.startswith("top-1") else None


@table("models-hardened")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        rows = _hardened("identity from resnet18", "dim", row["name"])
        original = _hardened("identity from resnet18", "dim", row["name"].partition(".")[0])
        values = {"top-1 (%)": _clean(rows), "dim succeeds (%)": percent(rows)}
        values["the same against the original (%)"] = percent(original)
        return [values[column]] if column in values else None

    return cell


# ---------------------------------------------------------------------------------------------------------------------
# analysis.md


def _law(network: str, label: str) -> Mapping[str, Any]:
    (found,) = where(read(f"error-{network}.json")["laws"], label=label)
    return found


@table("error-bounds")
def _(network: str) -> Cell:
    names = {
        "c₁": "c1",
        "c₂": "c2",
        "c₃": "c3",
        "‖g₂-g₁‖": "distance",
        "c₁c₂": "distance_bound",
        "cos(g₁,g₂)": "cosine",
        "its bound": "cosine_bound",
    }

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        law = _law(network, row["law"]) if column != "law" else {}
        if column in names:
            return [float(np.median(law["pictures"][names[column]]))]
        return (
            [*(min(law["held"][name]) for name in ("same", "halves", "others")), len(law["pictures"]["c1"])]
            if law
            else None
        )

    return cell


@table("error-steps")
def _(network: str) -> Cell:
    steps = {
        "inverse for adjoint": "g2",
        "gradient at the image": "g1",
        "linear scaling": "linear",
        "finite kernel": "lattice",
        "interpolation": "estimate",
    }
    truths = {
        "estimate and truth": "estimate",
        "finer grid": "finer",
        "log-polar": "log-polar",
        "translation only": "translation",
        "plain gradient": "plain",
    }

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "law":
            return None
        law = _law(network, row["law"])
        if column in steps:
            return [law["steps"][steps[column]]["cosine"]]
        return [law["cosine_with_truth"][truths[column]]]

    return cell


@table("error-kernels")
def _(network: str) -> Cell:
    first = "truth under"
    return lambda row, column: None if column == first else [_law(network, row[first])["cosine_with_truth"][column]]


@table("error-signs")
def _(network: str) -> Cell:
    first = "truth under"

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        return None if column == first else [_law(network, row[first])["cosine_with_truth"][f"sign of {column}"]]

    return cell


def _points(*names: str) -> Any:
    return read_points([RESULTS / "paper" / f"{name}.csv" for name in names])


@table("correlation-points")
def _(*names: str) -> Cell:
    points = {point.attack: point for point in _points(*names)}

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        point = points[row["attack"]]
        return [point.invariance if "transformed" in column else point.transfer]

    return cell


_RUNS = {
    "attacks, tables 1 to 3": ("table1", "table2", "table3"),
    "kernels, ablation-sigma": ("ablation-sigma", "ablation-parts"),
    "kernels, table8-128": ("table8-128", "figure7"),
    "attacks and kernels": (
        *("table1", "table2", "table3"),
        *("ablation-parts", "ablation-sigma", "figure7", "table8-128"),
    ),
}


@table("correlation")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        (runs,) = (runs for begin, runs in _RUNS.items() if row["over"].startswith(begin))
        found = correlate(_points(*(f"{name}-results" for name in runs)))
        values: dict[str, list[float]] = {
            "attacks": [len(found.points)],
            "Pearson": [found.pearson, *found.pearson_interval],
            "Spearman": [found.spearman, *found.spearman_interval],
        }
        return values.get(column)

    return cell


# ---------------------------------------------------------------------------------------------------------------------
# interop.md


@table("interop")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        library, _, rest = row["attack"].partition(" ")
        (made,) = (
            one
            for one in read("interop-cuda.json")["results"]
            if (one["library"], f"{one['version']} {one['attack']}") == (library, rest)
        )
        (found,) = where(made["targets"], target=row["target"])
        plain, wrapped = (percent(where(found["counts"], gradient=one)) for one in ("plain", "affine-invariant"))
        values = {"plain": [plain], "affine-invariant": [wrapped], "difference": [wrapped - plain]}
        return values.get(column)

    return cell


# ---------------------------------------------------------------------------------------------------------------------
# Photographs that chose nothing: outcomes by image, pooled over poses

_PLAIN = ("mobilenet_v2", "efficientnet_lite0", "efficientnet_lite1")
_HARDENED = ("efficientnet_lite0.ens-at", "efficientnet_lite0.ai-at", "mobilenet_v2.ens-at")


@cache
def _held_out() -> HeldOut:
    return HeldOut()


@cache
def _photographs(eps: int) -> int:
    return _held_out().n(eps, (*_PLAIN, *_HARDENED))


@cache
def _judged(target: str, attack: str, eps: int = 16, *, identity: bool = False) -> ImageCounts:
    return _held_out().counts(target, f"{attack}-{eps}", _photographs(eps), identity=identity)


@cache
def _success(target: str, attack: str, eps: int = 16, *, identity: bool = False) -> Sequence[float]:
    """In percent, with its interval."""
    found = rate(_judged(target, attack, eps, identity=identity))
    return [100 * value for value in (found.value, *found.interval)]


@cache
def _gain(target: str, first: str, second: str, eps: int = 16) -> Comparison:
    return compare(_judged(target, first, eps), _judged(target, second, eps))


def _recognised(target: str, *, identity: bool) -> float:
    """Of the clean photographs, in percent."""
    return 100 * float(_judged(target, "dim", identity=identity).eligible.mean())


@table("held-out")
def _(eps: str, poses: str) -> Cell:
    identity = {"poses": False, "identity": True}[poses]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        if row["attack"] == "clean images recognised":
            return [_recognised(column, identity=identity)]
        return _success(column, row["attack"].removesuffix(", ours"), int(eps), identity=identity)

    return cell


_COMPARED = (("ai-dim", "dim"), ("ri-dim", "dim"), ("ri-dim", "ai-dim"), ("ai-best", "dim"), ("ai-best", "ai-dim"))


@cache
def _gains(eps: int) -> Mapping[tuple[str, str, str], Comparison]:
    """All gains of a table, with Holm's correction."""
    there = {attack for attack in ("dim", "ai-dim", "ri-dim", "ai-best") if eps == 16 or attack != "ai-dim"}
    pairs = [(first, second) for first, second in _COMPARED if {first, second} <= there]
    targets = (*_PLAIN, *_HARDENED)
    return holm({(t, first, second): _gain(t, first, second, eps) for t in targets for first, second in pairs})


@table("held-out-gains")
def _(eps: str) -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "gain":
            return None
        first, _, second = row["gain"].partition(" over ")
        found = _gains(int(eps))[column, first, second]
        return [*_apart(found), found.p_value]

    return cell


@cache
def _hardening() -> Mapping[tuple[str, str], Comparison]:
    """How much less an attack succeeds against a hardened network than against its original, with Holm's correction."""
    return holm(
        {
            (network, attack): compare(_judged(network.partition(".")[0], attack), _judged(network, attack))
            for network in _HARDENED
            for attack in ("dim", "ai-dim", "ai-best")
        }
    )


@table("held-out-hardened")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "network":
            return None
        network = row["network"]
        original = network.partition(".")[0]
        if column == "clean top-1":
            return [_recognised(one, identity=True) for one in (original, network)]
        attack = column.strip("`")
        rates = [_success(one, attack)[0] for one in (original, network)]
        return [*rates, *_apart(_hardening()[network, attack])]

    return cell


def _range(first: str, second: str, targets: Sequence[str]) -> list[float]:
    """The least and the largest gain on some targets, in points."""
    gains = [100 * _gain(target, first, second).difference for target in targets]
    return [min(gains), max(gains)]


def _ahead(first: str, second: str, targets: Sequence[str], eps: int = 16) -> bool:
    """Whether one attack is significantly ahead on all of these."""
    return all(_gains(eps)[target, first, second].ahead == 1 for target in targets)


SENTENCES: dict[str, Sequence[tuple[str, Callable[[], Sequence[float]]]]] = {
    "README.md": (
        (
            "{}% success over the poses on a network that did not tune it, where `dim` has {}%",
            lambda: [_success("efficientnet_lite1", attack)[0] for attack in ("ai-best", "dim")],
        ),
        (
            "succeeds in {}% over the poses, against the original in {}%",
            lambda: [_success(name, "ai-dim")[0] for name in ("efficientnet_lite0.ai-at", "efficientnet_lite0")],
        ),
    ),
    "docs/results.md": (
        ("the first {} of them at ε = 16/255 and the first {} at 8/255", lambda: [_photographs(16), _photographs(8)]),
        ("p = {}). EOT is the strongest", lambda: [_smallest_p("ai-dim", "ti-dim", "efficientnet_lite0", "setting1")]),
        (
            "(efficientnet_lite0, setting 1, p = {})",
            lambda: [_smallest_p("ai-dim", "eot", "efficientnet_lite0", "setting1")],
        ),
        (
            "{} MB over all 5,000, {} MB after the first 500. (Libraries and network take {} MB.)",
            lambda: [
                read("memory-cpu.json")["results"][name]
                for name in (
                    "above_networks_mb",
                    "above_networks_after_a_tenth_mb",
                    "networks_and_libraries_mb",
                )
            ],
        ),
    ),
    "docs/frontier.md": (
        (
            "it is {} points over `dim` on efficientnet_lite1, which did not tune it, and {} to {} on three hardened",
            lambda: [*_range("ai-best", "dim", ("efficientnet_lite1",))[:1], *_range("ai-best", "dim", _HARDENED)],
        ),
    ),
    "docs/analysis.md": (
        (
            "`ri-dim` is {} to {} points over `dim` on the three plain networks, all of which had a say, and {} to {} on",
            lambda: [*_range("ri-dim", "dim", _PLAIN), *_range("ri-dim", "dim", _HARDENED)],
        ),
    ),
    "docs/hardening.md": (
        (
            "succeeds in {}% against `efficientnet_lite0.ai-at`, in {}% against `efficientnet_lite0.ens-at` and in {}% "
            "against the original",
            lambda: [_success(f"efficientnet_lite0{more}", "ai-dim")[0] for more in (".ai-at", ".ens-at", "")],
        ),
        (
            "`ri-dim` succeeds in {}% and `ai-best` in {}% against `efficientnet_lite0.ai-at`",
            lambda: [_success("efficientnet_lite0.ai-at", attack)[0] for attack in ("ri-dim", "ai-best")],
        ),
        (
            "and on {}% and {}% for `alp`",
            lambda: [
                percent([read("hardening-cuda.json")["white-box PGD-20, eps 4/255"][f"{name}.alp"]])
                for name in ("efficientnet_lite0", "mobilenet_v2")
            ],
        ),
    ),
    "docs/physical.md": (
        (
            "peaked at {} MiB in the first ten photographs and at {} MiB over all",
            lambda: [
                read("physical-speed-cpu.json")["results"][name]
                for name in ("peak_mib_after_10", "peak_mib_at_the_end")
            ],
        ),
    ),
}
CLAIMS: dict[str, Sequence[tuple[str, Callable[[], bool]]]] = {}
