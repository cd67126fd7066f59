"""Search for the parts of ``ai-best``: which of them, added to RAM, help on other networks at ten gradients an image.

    python benchmarks/frontier_search.py --data NIPS17_FOLDER --device cuda --seconds 240 --out FOLDER

Greedy and forward: every move is tried alone on a known start, then those that help are added in the order of what they
gave, each kept if it still helps, then numbers are tried a little up and down. Tuned on one source and two targets
over the first images; what was found is then checked on other images, other targets and another source. Every
result is saved as soon as it is there, and a run with the same FOLDER does not repeat it.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import whorl
from frontier_judge import Judge, measure
from frontier_transforms import Blend, BlockShuffle, Mosaic, SelfMix, SmoothWarp, Sometimes, SpectrumNoise
from judge import Data
from measure import in_short, metadata, save, table
from whorl.attacks import Attack
from whorl.attacks.transfer import TransferAttack
from whorl.estimators import CompressedGradient, SharedChannels
from whorl.evaluation import PAPER_POSES
from whorl.models.backward import Backward
from whorl.transforms import DiverseInput, Gain, InputChain, InputTransform, Mirror, RandomAffine, SpreadAffine

Settings = Mapping[str, Any]

# Everything that a move can change, at the value that changes nothing. This is RAM.
RAM: Settings = {
    "steps": 10,
    "samples": 1,
    "momentum": 1.0,
    "pace": 5.0,
    "overshoot": 1.0,
    "loss": "ce",
    "temperature": 1.0,
    "sigma": 0.0,  # of the estimator, in pixels; 0 is none
    "polar_sigma": None,
    "power": 1.0,  # before the estimator
    "power_after": 1.0,
    "channels": 0.0,
    "skip": 1.0,
    "rectifier": None,
    "late": 0.5,
    "design": "independent",
    "angle": 30.0,
    "scale": (0.5, 1.5),
    "shift": 20.0,
    "warp": 0.0,
    "points": 5,
    "mosaic": 0.0,  # share of the draws
    "mosaic_scale": (1.0, 2.0),
    "blend": 1,
    "gain": 1.0,
    "mirror": False,
    "dim": False,
    "blocks": 0.0,  # share of the draws
    "mix": 0.0,
    "spectrum": 0.0,
}
START: Settings = {"sigma": 0.5, "skip": 0.5}

# By promise. Two moves that change the same setting exclude each other.
MOVES: Sequence[Settings] = (
    {"temperature": 3.0},
    {"pace": 20.0},
    {"design": "latin"},
    {"power_after": 0.5},
    {"mosaic": 0.3},
    {"loss": "relative"},
    {"overshoot": 1.5},
    {"warp": 0.03},
    {"pace": 10.0},
    {"temperature": 6.0},
    {"skip": 0.35},
    {"sigma": 0.6},
    {"scale": (0.5, 1.2)},
    {"rectifier": 2.0},
    {"power": 0.5},
    {"design": "lattice"},
    {"overshoot": 2.0},
    {"mosaic": 0.6},
    {"mirror": True},
    {"momentum": 0.9},
    {"gain": 0.6},
    {"skip": 0.65},
    {"sigma": 0.4},
    {"scale": (0.6, 1.4)},
    {"blend": 2},
    {"dim": True},
    {"blocks": 0.5},
    {"channels": 0.5},
    {"warp": 0.06},
    {"rectifier": 5.0, "late": 0.0},
    {"power_after": 0.25},
    {"scale": (0.4, 1.4)},
    {"angle": 40.0},
    {"shift": 30.0},
    {"overshoot": 0.75},
    {"momentum": 1.15},
    {"sigma": 0.8},
    {"skip": 0.2},
    {"mix": 0.2},
    {"spectrum": 0.3},
    {"design": "antithetic"},
    {"scale": (0.7, 1.5)},
    {"angle": 20.0},
    {"rectifier": 1.0},
    {"mosaic": 1.0, "mosaic_scale": (1.2, 2.5)},
    {"polar_sigma": 1.0},
    {"steps": 5, "samples": 2},
    {"warp": 0.04, "points": 8},
    {"gain": 0.3},
    {"momentum": 0.7},
    {"shift": 10.0},
    # How the rectifiers are smoothed.
    {"rectifier": 4.0},
    {"rectifier": 2.0, "late": 0.25},
    {"rectifier": 2.0, "late": 0.75},
    {"rectifier": 1.0, "late": 0.75},
)
# Tried up and down at the end.
FACTORS: Mapping[str, Sequence[float]] = {
    "skip": (0.8, 1.25),
    "sigma": (0.85, 1.2),
    "temperature": (0.6, 1.7),
    "pace": (0.6, 1.7),
    "overshoot": (0.8, 1.25),
    "warp": (0.6, 1.6),
    "gain": (0.8, 1.2),
    "momentum": (0.93, 1.07),
}


def build(settings: Settings, eps: float) -> Attack:
    """The attack that settings describe; what they leave out is as in RAM."""
    s = {**RAM, **settings}
    estimators: list[Any] = []
    if s["power"] < 1:
        estimators.append(CompressedGradient(power=s["power"]))
    if s["channels"]:
        estimators.append(SharedChannels(share=s["channels"]))
    if s["sigma"]:
        estimators.append(whorl.AffineInvariant(sigma=s["sigma"], polar_sigma=s["polar_sigma"]))
    if s["power_after"] < 1:
        estimators.append(CompressedGradient(power=s["power_after"]))
    estimator = estimators[0] if len(estimators) == 1 else whorl.Chain(*estimators) if estimators else whorl.identity
    return TransferAttack(
        eps=eps,
        input=_input(s),
        estimator=estimator,
        fast=False,  # all candidates in one precision
        backward=Backward(
            **{name: s[name] for name in ("skip", "rectifier")},
            late=0.0 if s["rectifier"] is None else s["late"],
        ),
        **{name: s[name] for name in ("steps", "samples", "momentum", "pace", "overshoot", "loss", "temperature")},
    )


def _input(s: Settings) -> InputTransform:
    ranges = {name: s[name] for name in ("angle", "scale", "shift")}
    pose: InputTransform = (
        RandomAffine(**ranges) if s["design"] == "independent" else SpreadAffine(**ranges, design=s["design"])
    )
    if s["blend"] > 1:
        pose = Blend(part=pose, count=s["blend"])
    if s["mosaic"]:
        pose = Sometimes(part=Mosaic(scale=s["mosaic_scale"]), otherwise=pose, probability=s["mosaic"])
    parts: list[InputTransform] = [
        *([Mirror()] if s["mirror"] else []),
        *([SelfMix(strength=s["mix"])] if s["mix"] else []),
        *([SpectrumNoise(spread=s["spectrum"])] if s["spectrum"] else []),
        *([SmoothWarp(reach=s["warp"], points=s["points"])] if s["warp"] else []),
        *([Sometimes(part=BlockShuffle(), probability=s["blocks"])] if s["blocks"] else []),
        pose,
        *([DiverseInput()] if s["dim"] else []),
        *([Gain(lowest=s["gain"])] if s["gain"] < 1 else []),
    ]
    return pose if len(parts) == 1 else InputChain(*parts)


def name_of(settings: Settings) -> str:
    """Settings in short, sorted, without what is as in RAM.

    >>> name_of({"skip": 0.5, "pace": 5.0, "sigma": 0.5})
    'sigma=0.5 skip=0.5'
    """
    return in_short(settings, RAM)


@dataclass
class Search:
    """One source with its judge, and everything measured so far."""

    source: nn.Module
    judge: Judge
    eps: Sequence[float]
    seed: int
    path: Path
    about: dict[str, Any]
    rows: dict[str, Any]
    deadline: float

    def left(self) -> float:
        """Seconds."""
        return self.deadline - time.perf_counter()

    def score(self, settings: Settings, label: str, *, where: str = "tune") -> float:
        """Measure settings, unless that is done; give what is to be raised: the mean soft rate over eps and targets."""
        name = f"{where}: {name_of(settings) or 'ram'}"
        if name not in self.rows:
            try:
                record = measure(
                    lambda eps: build(settings, eps), self.eps, self.source, self.judge, batch_size=500, seed=self.seed
                )
            except Exception as error:  # noqa: BLE001 - one candidate that fails must not end the search
                print(f"{label:9s} {type(error).__name__}: {error}  {name}", flush=True)
                return -math.inf
            for rates in record["eps"].values():  # a search is long, and its file is read for the means
                del rates["fooled"], rates["known"]
            self.rows[name] = {**record, "changes": {k: v for k, v in settings.items() if RAM[k] != v}}
            save({"metadata": self.about, "rows": self.rows}, self.path)
        record = self.rows[name]
        mean: float = sum(rates["soft"] for rates in record["eps"].values()) / len(record["eps"])
        hard = "/".join(f"{rates['mean']:.2f}" for rates in record["eps"].values())
        each = " ".join(
            "/".join(f"{rates['targets'][t]:.1f}" for rates in record["eps"].values()) for t in self.judge.targets
        )
        print(f"{label:9s} soft {mean:6.2f}  {hard}  ({each})  {record['seconds']:.1f}s  {name}", flush=True)
        return mean


def returns(start: Settings) -> list[Settings]:
    """Moves back to RAM, a setting at a time, for whatever a start has.

    >>> returns({"sigma": 0.5, "pace": 5.0, "mirror": True})
    [{'sigma': 0.0}, {'mirror': False}]
    """
    return [{name: RAM[name]} for name, value in start.items() if value != RAM[name]]


def greedy(search: Search, start: Settings, *, reserve: float, gain: float = 0.05) -> Settings:
    """Find settings from a start on; stops in time to leave ``reserve`` seconds."""
    search.score(RAM, "ram")
    base = search.score(start, "start")
    budget = search.left() - reserve
    gains: list[tuple[float, Settings]] = []
    moves = [*returns(start), *MOVES]
    for move in moves:
        if search.left() - reserve < 0.45 * budget:
            print(f"out of time for {len(moves) - len(gains)} of {len(moves)} moves", flush=True)
            break
        if {**start, **move} != start:
            gains.append((search.score({**start, **move}, "alone") - base, move))
    best, score = dict(start), base
    for alone, move in sorted(gains, key=lambda pair: -pair[0]):
        if search.left() < reserve + 0.15 * budget or alone < gain:
            break
        if any(best.get(name, RAM[name]) != start.get(name, RAM[name]) for name in move):
            continue  # a better move on the same setting is in already
        now = search.score({**best, **move}, "added")
        if now > score + gain:
            best, score = {**best, **move}, now
            print(f"--> {name_of(best)}", flush=True)
    for name, factors in FACTORS.items():
        for factor in factors:
            value: Any = best.get(name, RAM[name])
            if value == RAM[name] or search.left() < reserve:
                continue
            tried = round(value * factor, 3)
            if name in ("skip", "gain") and not 0 < tried < 1:
                continue
            now = search.score({**best, name: tried}, "tuned")
            if now > score + gain:
                best, score = {**best, name: tried}, now
                print(f"--> {name_of(best)}", flush=True)
    return best


def main(argv: Sequence[str] | None = None) -> None:
    """Search, then check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--targets", default="mobilenet_v2,efficientnet_lite0", help="tuned on")
    parser.add_argument(
        "--check", default="resnet18>efficientnet_lite1,efficientnet_lite2;efficientnet_lite0>resnet18,mobilenet_v2"
    )
    parser.add_argument("--start", default=str(dict(START)), help="settings to begin with, as a Python dictionary")
    parser.add_argument("--eps", default="16,8")
    parser.add_argument("--data")
    parser.add_argument("--n", type=int, default=150, help="images to tune on; as many again, others, to check on")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("frontier"))
    options = parser.parse_args(argv)
    began = time.perf_counter()
    device = torch.device(options.device)

    eps = [float(value) for value in options.eps.split(",")]
    both = Data.load(options.data, 2 * options.n, options.size, device)
    half = min(options.n, len(both.x) // 2)
    tune = Data(x=both.x[:half], y=both.y[:half], ids=both.ids[:half])
    checked = Data(x=both.x[half:], y=both.y[half:], ids=both.ids[half:])
    pairs = [pair.partition(">")[::2] for pair in options.check.split(";") if pair]
    names = {options.source, *options.targets.split(",")}
    names |= {name for source, targets in pairs for name in (source, *targets.split(","))}
    nets = {name: whorl.load_model(name, device=device) for name in sorted(names)}
    path = options.out / f"search-{options.source}-{half}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    print(
        f"{len(tune.x)} images to tune on, {len(checked.x)} to check on; {time.perf_counter() - began:.0f} s",
        flush=True,
    )

    def searcher(source: str, targets: str, data: Data) -> Search:
        judge = Judge(
            {name: nets[name] for name in targets.split(",")}, data, PAPER_POSES, 500, half=device.type == "cuda"
        )
        about = metadata(device, source=source, targets=targets, n=len(data.x), seed=options.seed)
        return Search(
            source=nets[source],
            judge=judge,
            eps=eps,
            seed=options.seed,
            path=path,
            about=about,
            rows=rows,
            deadline=began + options.seconds,
        )

    start = ast.literal_eval(options.start)
    best = greedy(searcher(options.source, options.targets, tune), start, reserve=0.2 * options.seconds)
    print(f"best: {name_of(best)}\n{build(best, eps[0] / 255)!r}", flush=True)
    for source, targets in pairs:
        search = searcher(source, targets, checked)
        for steps in (10, 50):
            for settings in (RAM, start, best):
                if search.left() > 0 or steps == 10:
                    each = {**settings, "steps": steps // settings.get("samples", 1)}
                    search.score(each, f"check/{steps}", where=f"{source}>{targets}")
    tuned = sorted(
        (
            (sum(r["soft"] for r in row["eps"].values()), name, row)
            for name, row in rows.items()
            if name.startswith("tune")
        ),
        key=lambda entry: -entry[0],
    )
    print(
        table(
            ["candidate", *(f"eps {v:g}" for v in eps), "soft"],
            [
                [name, *(f"{r['mean']:.2f}" for r in row["eps"].values()), f"{soft / len(eps):.2f}"]
                for soft, name, row in tuned[:25]
            ],
        )
    )


if __name__ == "__main__":
    main()
