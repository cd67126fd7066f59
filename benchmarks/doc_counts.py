"""Tables that rest on counts, on NIPS17 photographs: the paper's, transfer, defences, hardening, other libraries."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from doc_data import cells, percent, read, read_csv, read_lines, where
from doc_tables import Cell, Printed, table
from whorl import paper
from whorl.evaluation.image_counts import FEWEST
from whorl.evaluation.statistics import sign_test
from whorl.models.networks import NETWORKS

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


_STANDS_FOR = {
    ".ens-at": "Ens-AT",
    ".alp": "ALP",
    "+jpeg": "JPEG",
    "+bitdepth": "Bit-Red",
    "+resize-pad": "R&P",
    "+randmix": "RandMix",
    "resnet18": "Inc-v3",
    "": "Inc-v4",
}


def _in_the_paper(name: str, attack: str, target: str, source: str | None, pose: str = "mean") -> list[float]:
    """What the paper printed for a row, for the network that a target stands for; nothing where it printed none."""
    item = paper.load(name)
    role = "ensemble" if source and "+" in source else item.sources[0].role
    rows = item.printed.get(role, {})
    if attack not in rows:
        return []
    heading = next(stands for end, stands in _STANDS_FOR.items() if target.endswith(end))
    place = [one.heading for one in item.targets].index(heading)
    by_pose = {shown.label: group[place] for shown, group in zip(item.poses, rows[attack], strict=True)}
    return [float(np.mean(list(by_pose.values()))) if pose == "mean" else by_pose[pose]]


@table("paper")
def _(name: str, *filters: str) -> Cell:
    wanted = {key: value if key == "target" else float(value) for key, _, value in (f.partition("=") for f in filters)}
    rows = where(cells(name), **wanted)

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        found = where(rows, attack=row["attack"], **_pose(column))
        values = Printed([percent(found)])
        values.few = len(found) == 1 and found[0]["n_clean_correct"] < FEWEST
        if "target" in wanted:
            values.printed = _in_the_paper(name, row["attack"], str(wanted["target"]), None, column)
        return values

    return cell


@table("paper-targets")
def _(name: str, source: str = "source=") -> Cell:
    rows = where(read_csv(f"{name}-results.csv"), source=source.removeprefix("source=") or None)

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "attack":
            return None
        target, crafted_on = column.rpartition("→ ")[2], source.removeprefix("source=")
        values = Printed([percent(where(rows, attack=row["attack"], target=target))])
        values.printed = _in_the_paper(name, row["attack"], target, crafted_on)
        return values

    return cell


@table("figure7")
def _(name: str = "figure7") -> Cell:
    rows = cells(name)
    sources, targets = ({row[key] for row in rows} for key in ("source", "target"))
    not_attacked = [target for target in targets - sources if not {".", "+"} & {*target}]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "size":
            return None
        own = where(rows, attack=f"ai-dim-{row['size']}")
        if column.startswith("not attacked"):
            as_they_are = where(own, angle=0.0, scale=1.0, shift_x=0.0)
            return [float(np.mean([percent(where(as_they_are, target=target)) for target in not_attacked]))]
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
        rows = [one for one in rows if one["images"].partition(" on ")[0] == name]
        return [100 * one["n_adversarial_correct"] / one["n"] for one in sorted(rows, key=lambda one: one["setting"])]

    return cell


def smallest_p(first: str, second: str, target: str, setting: str) -> float:
    """P of the paired test of two attacks after print and camera, as it was simulated."""
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


def queried() -> list[int]:
    """Images without a defence and those that count, and so on for the defences; on the GPU, from the image itself."""
    numbers = []
    for defense in ("", "+jpeg", "+bitdepth", "+resize-pad", "+randmix"):
        rows = where(read_lines("table7-cuda.jsonl"), target=f"efficientnet_lite0{defense}", attack="nes", start="none")
        numbers += [len(rows), sum(row["counts"] for row in rows)]
    return numbers


def queried_again() -> list[int]:
    """Of the CPU's run, likewise: behind three defences, started from ``ti-dim``."""
    numbers = []
    for defense in ("jpeg", "resize-pad", "bitdepth"):
        target = f"efficientnet_lite0+{defense}"
        rows = where(read_lines("table7-cpu.jsonl"), target=target, attack="nattack", start="ti-dim")
        numbers += [len(rows), sum(row["counts"] for row in rows)]
    return numbers


def _top1(model: str, defense: str = "none") -> float:
    for name in ("accuracy-cuda.json", "accuracy-inception-cpu.json"):
        for cell in where(read(name)["cells"], model=model, defense=defense):
            return float(100 * cell["correct"] / cell["n"])
    raise LookupError(f"no accuracy of {model}")


@table("accuracy")
def _() -> Cell:
    return lambda row, column: None if column == "network" else [_top1(row["network"], column.strip("`"))]


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


_TRAININGS = {
    "mobilenet_v2.ens-at, first": "mobilenet_v2.ens-at, the other end of the line",
    "mobilenet_v2.ens-at, second": "mobilenet_v2.ens-at",
}


@table("hardening-training")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        found = read("hardening-cuda.json")["training"][_TRAININGS.get(row["network"], row["network"])]
        if column == "rate":
            return [float(re.findall(r"Training\(lr=([\d.]+)", found["about"]["settings"])[0])]
        return [found[column]] if column in ("seconds", "steps") else None

    return cell


@table("models")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        if column == "input":
            return [NETWORKS[row["network"]].input.size[0]]
        return [_top1(row["network"])] if column.startswith("top-1") else None

    return cell


@table("models-hardened")
def _() -> Cell:
    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        rows = _hardened("identity from resnet18", "dim", row["name"])
        original = _hardened("identity from resnet18", "dim", row["name"].partition(".")[0])
        values = {"top-1 (%)": _clean(rows), "dim succeeds (%)": percent(rows)}
        values["the same against the original (%)"] = percent(original)
        return [values[column]] if column in values else None

    return cell


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


_BASES, _KINDS = ("fgsm", "pgd", "mim", "dim"), ("ai", "ti")


def ai_over_ti(hardened: bool | None = None) -> float:
    """By how many points AI attacks are above TI attacks in the mean over table 6; None takes all columns."""
    rows = [row for row in read_csv("table6-results.csv") if hardened in (None, "." in row["target"])]
    ai, ti = (
        percent([row for row in rows if row["attack"] in {f"{kind}-{base}" for base in _BASES}]) for kind in _KINDS
    )
    return ai - ti


def printed_ai_over_ti() -> float:
    """The same of the paper."""
    tables = paper.load("table6").printed.values()
    ai, ti = (np.mean([table[f"{kind}-{base}"] for table in tables for base in _BASES]) for kind in _KINDS)
    return float(ai - ti)


def eligible(name: str, **wanted: float | str) -> list[float]:
    """The fewest and the most clean images that a target recognises in a pose, or one target in it."""
    found = [row["n_clean_correct"] for row in where(cells(name), **wanted)]
    return [min(found), max(found)]


def loops_ratio(name: str, other: str) -> float:
    """The median time of a loop on a CPU over another's."""
    mine, others = (where(read("cpu-loops-cpu.json")["rows"], name=one)[0] for one in (name, other))
    return float(statistics.median(mine["samples_ms"]) / statistics.median(others["samples_ms"]))


@table("shards")
def _() -> Cell:
    """Seconds and MB of the parts of a run; the last row is extrapolated."""
    data = read("shards-cpu.json")
    columns = {
        "merge": "merge, s",
        "whole run": "whole run, s",
        "a shard's memory": "largest shard, MB",
        "merge's": "merge, MB",
        "whole run's": "whole run, MB",
        f"slowest of {data['shards']} shards": "slowest shard, s",
    }
    rows = {f"{row['images']:,}": row for row in data["measured"]}
    rows[f"{data['extrapolated']['images']:,} (extrapolated)"] = data["extrapolated"]

    def cell(row: Mapping[str, str], column: str) -> Sequence[float] | None:
        found = rows[row["images"]]
        if column == "images":
            return None
        return [] if row[column] == "not extrapolated" and columns[column] not in found else [found[columns[column]]]

    return cell


def interop_gain(library: str) -> list[float]:
    """Of a library's PGD on efficientnet_lite0: as it is, wrapped, and the difference."""
    (found,) = where(read("interop-cuda.json")["results"], library=library)
    (on,) = where(found["targets"], target="efficientnet_lite0")
    plain, wrapped = (on["mean_success_rate"][name] for name in ("plain", "affine-invariant"))
    return [plain, wrapped, wrapped - plain]


PHOTOGRAPHED = ("resnet18", "mobilenet_v2", "efficientnet_lite0")


def photographed_differs(*targets: str) -> list[tuple[str, str, str]]:
    """Which two attacks differ after print and camera, and in which setting, with p below 5% and no correction."""
    rows = [row for row in read("physical-table5-cpu.json")["results"]["compared"] if row["target"] in targets]
    return [
        (row["first"].partition(" ")[0], row["second"].partition(" ")[0], row["setting"])
        for row in rows
        if sign_test(row["b"], row["c"]) < 0.05
    ]


def photographed_prints() -> list[int]:
    """Pages, and the prints on them if all were identified: of each image the clean one and one an attack."""
    results = read("physical-table5-cpu.json")["results"]
    identified = min(results["identified"].values())
    return [results["pages"], round(identified * results["images"] * len({row["images"] for row in results["rows"]}))]


def coverage(images: int, kind: str) -> list[float]:
    """The least and the most of the shares, in percent, in which an interval held the true rate."""
    shares = [100 * row[kind] / row["trials"] for row in where(read("coverage-cpu.json")["rows"], images=images)]
    return [min(shares), max(shares)]


def simulated() -> list[float]:
    """Poses of these simulations, and the least and the most true rate in percent."""
    data = read("coverage-cpu.json")
    rates = [100 * row["rate"] for row in data["rows"]]
    return [data["metadata"]["poses"], min(rates), max(rates)]


def inception_recognises() -> list[int]:
    """Images that Inception-v3 recognises, and of how many."""
    [cell] = where(read("accuracy-inception-cpu.json")["cells"], model="inception_v3", defense="none")
    return [cell["correct"], cell["n"]]


def hero_is_as_said() -> bool:
    """Whether the README's first figure shows what the words in its place count."""
    fooled = {name: sum(row) for name, row in read("hero-cpu.json")["fooled"].items()}
    return fooled == {"clean": 0, "dim": 1, "ai-dim": 1, "ai-best": 6}
