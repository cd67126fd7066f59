"""The table of docs/results/evidence.md: what each file of ``benchmarks/results`` keeps, and what it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from doc_data import RESULTS

EACH, COUNTS, RATES, TIMES = "the outcome of each image", "counts", "rates", "timings, sizes, memory"
_AGAINST = "[training against `ai-best`](../hardening/frontier.md)"
# By the beginning of a file's name: the page that has its figures, and what it keeps.
_FILES: Mapping[str, tuple[str, str]] = {
    "accuracy": ("[clean accuracy](transfer.md#accuracy-on-clean-images)", COUNTS),
    "behind-defences": ("[behind defences](behind-defences.md)", EACH),
    "bench": ("none", TIMES),
    "calibration": ("[calibration](../analysis/calibration.md), as what chose", RATES),
    "cpu-loops": ("[on a CPU](../speed.md#on-a-cpu)", TIMES),
    "coverage": ("[evaluation](../evaluation.md#over-several-poses)", COUNTS),
    "error": ("[the estimator's error](../analysis/tables.md)", "medians' values of each image"),
    "estimator": ("none", TIMES),
    "families": ("[poses](../poses.md)", EACH),
    "frontier-search": ("none: what the search for `ai-best` tried", RATES),
    "frontier": ("[frontier](../frontier.md)", EACH),
    "grid": ("none", TIMES),
    "hardening-frontier-training": (_AGAINST, "the record of a training"),
    "hardening-frontier": (_AGAINST, EACH),
    "hardening": ("[hardened networks](../hardening/weights.md)", COUNTS),
    "held-out-efficientnet": ("[from efficientnet_lite0](from-efficientnet-lite0.md)", EACH),
    "held-out-inception": ("[from Inception-v3](from-inception-v3.md)", EACH),
    "held-out": ("[held-out photographs](held-out.md)", EACH),
    "hero": ("the first figure of the README", EACH),
    "interop": ("[other libraries](../interop.md#the-gain)", COUNTS),
    "kernels": ("[calibration](../analysis/calibration.md), as what chose", RATES),
    "memory": ("[memory of a run](../speed.md#memory-of-a-run)", TIMES),
    "paper/ablation": ("[ablations](ablations.md)", COUNTS),
    "paper/figure4": ("[figure 4](angle-and-scale.md)", COUNTS),
    "paper/figure7": ("[figure 7](kernels.md)", COUNTS),
    "paper/pgd-step": ("[plain PGD](levels.md#plain-pgd)", EACH),
    "paper/table6": ("[table 6](defences.md)", COUNTS),
    "paper/table8-inception": ("[table 8](kernels.md)", EACH),
    "paper/table8": ("[table 8](resnet18-kernels.md)", COUNTS),
    "paper/table": ("[tables 1 to 4](../results.md#the-papers-tables)", EACH),
    "physical-speed": ("[from Python](../physical/python.md)", TIMES),
    "physical-table5": ("[table 5](photographed.md)", f"{COUNTS}, and of each pair of attacks"),
    "precision": ("none", COUNTS),
    "queries": ("none", TIMES),
    "rivals-targeted": ("[targeted attacks](targeted.md)", EACH),
    "rivals": ("[beside published attacks](../frontier/rivals.md)", EACH),
    "shards": ("[clusters](../clusters.md#50000-images)", TIMES),
    "sizes": ("[installing](../installing.md#sizes)", TIMES),
    "spreads": ("[how `ai-best` was made](../frontier/ai-best.md#one-rule-for-each-family)", "means"),
    "startup": ("none", TIMES),
    "strength": ("[how `ai-best` was made](../frontier/ai-best.md#what-the-second-search-found)", EACH),
    "table7": ("[table 7](queries.md)", EACH),
    "transferattack-zoo": ("[TransferAttack](../interop/transferattack.md#the-zoo)", "who runs, and why others do not"),
    "transfer": ("[transfer](transfer.md)", COUNTS),
    "visibility": ("[visibility](visibility.md)", EACH),
    "worst-pose": ("[the worst pose](../poses.md#against-a-grid-of-2000-poses)", EACH),
}
_NEEDED = {
    "commit": ("commit",),
    "versions": ("packages", "torch"),
    "hardware": ("hardware",),
    "seed": ("seed", "seeds"),
}
_SEEDLESS = (TIMES, "means", "who runs, and why others do not")


def lines() -> list[str]:
    """A row for each file, those that keep and lack the same together."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name in _names():
        start = next((start for start in _FILES if name.startswith(start)), "?")
        page, kept = _FILES.get(start, ("?", "?"))
        kept = EACH if name.endswith("-outcomes.json") else kept  # and not the counts that were kept before
        rows.setdefault((page, kept, ", ".join(_lacks(name, kept)) or "–"), []).append(name)
    return [f"| {_listed(names)} | {' | '.join(said)} |" for said, names in rows.items()]


def _listed(names: list[str]) -> str:
    """All names, or of many those that begin alike once."""
    if len(names) <= 2:
        return ", ".join(f"`{name}`" for name in names)
    starts = dict.fromkeys(start for name in names for start in _FILES if name.startswith(start))
    together = {start: sum(name.startswith(start) for name in names) for start in starts}
    return ", ".join(f"`{start}…` ({count})" for start, count in together.items())


def _names() -> Iterator[str]:
    """Every file but the one that says what others do not."""
    for path in sorted(RESULTS.rglob("*.*")):
        if path.name != "about.json":
            yield str(path.relative_to(RESULTS))


def _lacks(name: str, kept: str) -> Iterator[str]:
    """What is needed to measure it again and stands neither in the file nor in ``about.json``."""
    about = json.loads((RESULTS / "about.json").read_text(encoding="utf-8"))["files"].get(name, {})
    path = RESULTS / name
    if path.suffix == ".csv":
        content: Any = {}
    else:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text.splitlines()[0] if path.suffix == ".jsonl" else text)
        if path.suffix == ".jsonl":
            content = {**content, "rows": json.loads(text.splitlines()[1])}
    known = {key for key, value in _keys(content, 4) if value is not None} | {*about}
    for what, keys in _NEEDED.items():
        if not known & {*keys} and not (what == "seed" and kept in _SEEDLESS):
            yield "commit of the run" if what == "commit" else what
    if kept == EACH and not known & {"ids", "id", "images", "columns"}:
        yield "ids (images in the order of the data set)"


def _keys(content: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict) and depth:
        yield from content.items()
        for part in content.values():
            yield from _keys(part, depth - 1)


if __name__ == "__main__":
    print("\n".join(lines()))
