"""How long each attack needs until another network is fooled in 95% of the cases: ours beside the strongest rivals.

    python benchmarks/success_per_second.py --data NIPS17_FOLDER --transferattack CLONE --device cuda

Crafted on resnet18 at 16/255, judged on efficientnet_lite0: the mean success rate over the paper's twelve poses. Every
contender climbs a ladder, from few gradients to many, and stops at the first rung that reaches 95%, or before one that
would take too long. That rung is timed: once where it takes over ten seconds, else three to twenty times. Rivals come
as they are, and once more given bfloat16 (autocast) and channels-last weights.

- ai-best: ours, with fewer or more steps.
- BSR and DeCoWA: TransferAttack's own classes, from a git clone, with fewer or more copies of an image.
- EOT: ART's rotations under its projected gradient descent, and the loop that one writes first, a draw at a time.

A first call, which may compile and record, is kept beside the others and not counted but where it is the only one.
Every timing and the outcome of every image are saved after each rung, in
``benchmarks/results/success-per-second-cuda.json``; run again, it goes on where it stopped. ``--seconds`` begins
nothing after so long.
"""

from __future__ import annotations

import contextlib
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import whorl
from judge import Data, packed
from measure import headline, metadata, parser, save, settle, table
from whorl.bench.clock import significant
from whorl.bench.peers import EPS, Workload, reason, toolbox_eot
from whorl.bench.sections import draw_by_draw
from whorl.evaluation import PAPER_POSES, Predictor, to_8_bits
from whorl.evaluation.image_counts import ImageCounts

SOURCE, TARGET, GOAL = "resnet18", "efficientnet_lite0", 0.95
LONG, FEWEST_ROUNDS, MOST_ROUNDS = 10.0, 3, 20
# Seconds after which fewer rounds will do.
ENOUGH = 6.0
COMES, GIVEN = "as it comes", "given bf16"
# Images that ART enlarges by its draws at a time, so that they fit; and copies that a published attack holds at a time.
_ART_BATCH, _MOST_COPIES = 20, 2000

Attack = Callable[[Any, Data], Tensor]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One setting of a contender.

    Attributes:
        name: what is set.
        gradients: that it spends on each image, in passes through the whole network.
        attack: makes (N, C, H, W) from a network and images.
    """

    name: str
    gradients: int
    attack: Attack


def ours(steps: int) -> Rung:
    """Our strongest."""
    made = whorl.attack("ai-best", eps=EPS, steps=steps, fast=None)
    return Rung(name=f"{steps} steps", gradients=steps, attack=lambda net, d: made(net, d.x, d.y, ids=d.ids))


def published(name: str, path: str, gradients: int, copies: str, **settings: Any) -> Rung:
    """One of TransferAttack's; ``copies`` is the setting that says how many it makes of each image."""

    def attack(net: Any, data: Data) -> Tensor:
        made = whorl.attack(f"transferattack:{name}", path=path, eps=EPS, batched=True, **settings)
        parts = data.parts(max(1, _MOST_COPIES // settings[copies]))
        return torch.cat([made(net, data.x[p], data.y[p], ids=data.ids[p]) for p in parts])

    shown = ", ".join(f"{word} {value}" for word, value in settings.items())
    return Rung(name=shown, gradients=gradients, attack=attack)


def expectation(steps: int, draws: int, *, toolbox: bool) -> Rung:
    """Expectation over transformations: ART's over rotations, or over all by the loop that one writes first."""

    def attack(net: Any, data: Data) -> Tensor:
        work = Workload(model=net, x=data.x, y=data.y, steps=steps, draws=draws)
        if not toolbox:
            return draw_by_draw(work)
        parts = [replace(work, x=data.x[p], y=data.y[p]) for p in data.parts(_ART_BATCH)]
        return torch.cat([torch.as_tensor(toolbox_eot(part).run()).to(data.x) for part in parts])

    return Rung(name=f"{steps} steps of {draws} draws", gradients=steps * draws, attack=attack)


def ladders(path: str, *, quick: bool) -> dict[str, list[Rung]]:
    """Every contender's rungs, fewest gradients first."""
    if quick:
        return {"ai-best": [ours(1), ours(2)], "EOT, draw by draw": [expectation(1, 1, toolbox=False)]}
    bsr, decowa = (1, 2, 5, 10, 20, 40), (1, 2, 5, 10, 20)
    sampled = ((10, 1), (10, 5), (10, 20), (10, 50), (50, 50))
    return {
        "ai-best": [ours(steps) for steps in (3, 4, 5, 6, 8, 10, 15, 20, 50)],
        "BSR": [published("bsr", path, 10 * n, "num_scale", steps=10, num_scale=n) for n in bsr],
        "DeCoWA": [published("decowa", path, 20 * n, "num_warping", steps=10, num_warping=n) for n in decowa],
        "EOT, draw by draw": [expectation(*one, toolbox=False) for one in sampled],
        "EOT of ART": [expectation(*one, toolbox=True) for one in sampled],
    }


class Judge:
    """Says in which poses a network recognises which image."""

    def __init__(self, target: nn.Module, data: Data) -> None:
        self.data, self.predictor = data, Predictor({TARGET: target})
        self.clean = self.recognised(data.x)

    def recognised(self, images: Tensor) -> np.ndarray:
        """(poses, N) bool."""
        found = self.predictor.recognised(images, self.data.y, {TARGET: PAPER_POSES}, ids=self.data.ids)
        return torch.stack([found[TARGET, pose] for pose in PAPER_POSES]).numpy()

    def rates(self, adversarial: np.ndarray) -> dict[str, float]:
        """Mean over poses, and pooled."""
        counts = ImageCounts(self.clean, self.clean & ~adversarial)
        return {"mean": significant(counts.value("mean"), 5), "pooled": significant(counts.value("pooled"), 5)}


@contextlib.contextmanager
def _given(precision: str, device: torch.device) -> Iterator[None]:
    with torch.autocast(device.type, torch.bfloat16) if precision == GIVEN else contextlib.nullcontext():
        yield


def timed(rung: Rung, net: Any, data: Data, precision: str) -> tuple[Tensor, float]:
    """One call and its seconds, until the images are there."""
    if data.x.is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    with _given(precision, data.x.device):
        made = rung.attack(net, data)
    if data.x.is_cuda:
        torch.cuda.synchronize()
    return made.detach(), time.perf_counter() - start


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it was before JSON, which knows no NaN."""
    return row | {name: float("nan") for name in ("mean", "pooled") if row[name] is None}


class Run:
    """What is measured, saved after each rung."""

    def __init__(self, options: Any, judge: Judge, sources: Mapping[str, Any]) -> None:
        self.options, self.judge, self.sources = options, judge, sources
        self.began, self.rows, self.missing = time.perf_counter(), list[dict[str, Any]](), dict[str, str]()
        about = {name: getattr(options, name) for name in ("limit", "size", "seed", "goal")}
        self.about = metadata(
            options.device,
            quick=options.quick,
            repeats=MOST_ROUNDS,
            source=options.source,
            target=options.target,
            **about,
        )
        if options.json and options.json.exists():
            before = json.loads(options.json.read_text(encoding="utf-8"))
            if all(before["metadata"].get(name) == self.about[name] for name in (*about, "source", "target")):
                self.rows, self.missing = [numbers(row) for row in before["rows"]], before["missing"]

    def climb(self, contender: str, precision: str, rungs: Sequence[Rung]) -> None:
        """Go up a ladder until the goal is reached, or what comes would take too long."""
        for rung in rungs:
            row = self._known(contender, precision, rung)
            if row is None:
                slow = self._slow(contender, precision, rung)
                if slow or time.perf_counter() - self.began > self.options.seconds:
                    return
                try:
                    row = self._measured(contender, precision, rung)
                except Exception as error:  # whatever is wrong with a rival, it must not stop the rest
                    if contender == "ai-best":
                        raise
                    self.missing[f"{contender}, {precision}"] = reason(error)
                    self.save()
                    return
                self.rows.append(row)
                self.save()
            if row["mean"] >= self.options.goal:
                return

    def _known(self, contender: str, precision: str, rung: Rung) -> dict[str, Any] | None:
        key = (contender, precision, rung.name)
        return next((row for row in self.rows if (row["contender"], row["precision"], row["rung"]) == key), None)

    def _slow(self, contender: str, precision: str, rung: Rung) -> bool:
        """Whether it would take too long, by what the rung below took."""
        below = [row for row in self.rows if (row["contender"], row["precision"]) == (contender, precision)]
        if not below:
            return False
        return bool(below[-1]["first_s"] / below[-1]["gradients"] * rung.gradients > self.options.most)

    def _measured(self, contender: str, precision: str, rung: Rung) -> dict[str, Any]:
        net, data = self.sources[precision], self.judge.data
        made, first = timed(rung, net, data, precision)
        moved = float((made - data.x).abs().max())
        if not 0 < moved <= EPS + 0.5 / 255:
            raise whorl.WhorlError(f"moved pixels by up to {255 * moved:.1f}/255; expected at most {255 * EPS:g}/255.")
        adversarial = self.judge.recognised(to_8_bits(made.float()))
        rates, samples = self.judge.rates(adversarial), list[float]()
        if rates["mean"] >= self.options.goal and first <= LONG:
            least, most = (1, 1) if self.options.quick else (FEWEST_ROUNDS, MOST_ROUNDS)
            while len(samples) < least or (len(samples) < most and sum(samples) < ENOUGH):
                samples.append(timed(rung, net, data, precision)[1])
        print(f"{contender}, {precision}, {rung.name}: {rates['mean']:.1%}, first {first:.2f} s", file=sys.stderr)
        return {
            "contender": contender,
            "precision": precision,
            "rung": rung.name,
            "gradients": rung.gradients,
            **rates,
            "first_s": significant(first, 6),
            "samples_s": [significant(sample, 6) for sample in samples],
            "recognised": packed(adversarial),
        }

    def save(self) -> None:
        """Write everything so far."""
        poses = [{"angle": p.angle, "scale": p.scale, "shift": list(p.shift)} for p in PAPER_POSES]
        content = {"ids": self.judge.data.ids, "poses": poses, "clean": packed(self.judge.clean)}
        if self.options.json:
            save(
                {
                    "metadata": self.about,
                    "missing": self.missing,
                    **content,
                    "rows": self.rows,
                    "summary": self.summary(),
                },
                self.options.json,
            )

    def summary(self) -> list[dict[str, Any]]:
        """Of each contender and precision, the rung that reached the goal, or the best; and its seconds."""
        found = []
        for key in dict.fromkeys((row["contender"], row["precision"]) for row in self.rows):
            own = [row for row in self.rows if (row["contender"], row["precision"]) == key]
            won = next((row for row in own if row["mean"] >= self.options.goal), None)
            row = won or max(own, key=lambda one: float(one["mean"]))
            seconds = statistics.median(row["samples_s"] or [row["first_s"]])
            found.append({**row, "reached": won is not None, "seconds": significant(seconds, 6)})
        mine = next((row["seconds"] for row in found if row["contender"] == "ai-best" and row["reached"]), None)
        kept = ("contender", "precision", "rung", "gradients", "mean", "reached", "seconds", "first_s")
        return [
            {name: row[name] for name in kept} | {"times_ours": mine and significant(row["seconds"] / mine)}
            for row in found
        ]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, print, save."""
    made = parser(__doc__)
    made.add_argument("--data", help="labelled images; the bundled samples without it")
    made.add_argument("--transferattack", default="", help="folder of the git clone")
    made.add_argument("--source", default=SOURCE, help="network that is attacked")
    made.add_argument("--target", default=TARGET, help="network that judges")
    made.add_argument("--limit", type=int, default=100, help="first images only")
    made.add_argument("--size", type=int, default=224, help="side in pixels")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--goal", type=float, default=GOAL, help="mean success rate to reach")
    made.add_argument("--most", type=float, default=40.0, help="seconds that a rung may take, by the one below it")
    made.add_argument("--seconds", type=float, default=200.0, help="begin nothing after so long")
    made.add_argument("--only", help="contenders, joined by semicolons")
    options = settle(made, argv, "success-per-second")
    if options.quick:
        options.limit, options.size, options.source, options.target = 2, 64, "mobilenet_v2", "mobilenet_v2"
    torch.manual_seed(options.seed)
    data = Data.load(options.data, options.limit, options.size, options.device)
    networks = {name: whorl.load_model(name, device=options.device) for name in {options.source, options.target}}
    short = copy.deepcopy(networks[options.source])
    short.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs leave this form out
    run = Run(options, Judge(networks[options.target], data), {COMES: networks[options.source], GIVEN: short})
    for precision in (COMES, GIVEN):
        for contender, rungs in ladders(options.transferattack, quick=options.quick).items():
            if contender == "ai-best" and precision == GIVEN:
                continue  # it chooses for itself
            if options.only is None or contender in options.only.split(";"):
                run.climb(contender, precision, rungs)
    run.save()
    _print(run)


def _print(run: Run) -> None:
    print(headline(run.about))
    lines = []
    for row in run.summary():
        seconds, ratio = f"{row['seconds']:.4g}", row["times_ours"]
        shown = [row["rung"], f"{row['mean']:.1%}", seconds if row["reached"] else f"never ({seconds})"]
        lines.append([f"{row['contender']}, {row['precision']}", *shown, "–" if ratio is None else f"{ratio:.3g}"])
    print(table(["contender", "rung", "mean success", f"s to {run.options.goal:.0%}", "times ours"], lines))
    for name, why in run.missing.items():
        print(f"not measured: {name} ({why})")


if __name__ == "__main__":
    main()
