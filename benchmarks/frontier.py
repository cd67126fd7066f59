"""Success on other networks against gradients per picture: whorl's attacks, their parts, EOT, and other libraries'.

    python benchmarks/frontier.py --source resnet18,efficientnet_lite0 --data NIPS17_FOLDER --device cuda --out FOLDER

Every candidate of :func:`candidates` is crafted on each source and shown to every network of another family in the
paper's twelve poses. One line a candidate: gradients per picture, the mean success rate over poses and targets at each
eps, the rate on each target, seconds. Results are saved in FOLDER, a file for each source, after each candidate and
eps; run again with the same FOLDER, it goes on where it stopped. ``--only`` takes names, or beginnings of names with a
``*``, and measures in its order; ``--list`` shows all. A name such as ``dim+t0.8p0.5/10`` is DIM with a kernel of that
σ of translations and that in the polar plane, 0 for none.

The libraries' attacks need ``pip install torchattack``. They get our step size and as many gradients; a candidate whose
library is missing or that fails is named and left out.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from measure import metadata, save, table
from whorl.attacks import Attack
from whorl.attacks.variants import CompressedGradient, SharedChannels, TransferAttack
from whorl.evaluation import PAPER_POSES, Pose, to_8_bits
from whorl.evaluation.grid import in_precision
from whorl.models import model_names
from whorl.models.backward import Backward
from whorl.transforms_mixed import Gain, InputChain, Mirror
from whorl.transforms_smooth import SmoothWarp
from whorl.transforms_spread import SpreadAffine

Make = Callable[[float], Attack]
"""Radius of the ball to the attack."""

PEERS: Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]] = {
    # (gradients that this is meant to spend, settings)
    "BSR": ((10, {"steps": 10, "num_scale": 1}), (50, {"steps": 10, "num_scale": 5})),
    "SSA": ((10, {"steps": 10, "num_spectrum": 1}), (50, {"steps": 10, "num_spectrum": 5})),
    "Admix": ((10, {"steps": 2, "size": 1}), (50, {"steps": 10, "size": 1})),
    "DeCoWA": ((10, {"steps": 5, "num_warping": 1}), (50, {"steps": 5, "num_warping": 5})),
    "L2T": ((10, {"steps": 1, "num_scale": 1}), (50, {"steps": 5, "num_scale": 1})),
    "VMIFGSM": ((10, {"steps": 5, "n": 1}), (50, {"steps": 10, "n": 4})),
}
NARROW = whorl.AffineInvariant(sigma=0.5)


# ---------------------------------------------------------------------------------------------------------------------
# What is compared


def candidates() -> dict[str, Make]:
    """Every candidate by name, in the order in which they run."""
    made: dict[str, Make] = {}
    for steps in (10, 50):
        suffix = f"/{steps}"
        for name in ("mim", "dim", "ti-dim", "ai-dim", "ram", "ai-ram"):
            made[name + suffix] = _named(name, steps=steps)
        made["dim+ai0.5" + suffix] = _named("dim", steps=steps, estimator=NARROW)
        for name, parts in RAM_PARTS.items():
            made[name + suffix] = _ram(steps=steps, **parts)
        if "ai-best" in whorl.attack_names():
            made["ai-best" + suffix] = _named("ai-best", steps=steps)
    for name, versions in PEERS.items():
        for gradients, settings in versions:
            for wrapped in (False, True):
                made[f"{name}{'+ai0.5' if wrapped else ''}/{gradients}"] = _peer(name, settings, wrapped)
    # In bfloat16 on a GPU, by far the dearest: docs/results.md has what that changes.
    made["eot/1000"] = _named("eot", samples=20, fast=None)
    made["eot/2500"] = _named("eot", fast=None)
    return made


# Added to RAM one at a time: what each part gives. Those of ai-best come first.
RAM_PARTS: Mapping[str, Mapping[str, Any]] = {
    "ram+ai0.5": {"estimator": NARROW},
    "ram+skip0.65": {"backward": Backward(skip=0.65)},
    "ram+rectifier2": {"backward": Backward(rectifier=2.0, late=0.5)},
    "ram+lattice": {"input": SpreadAffine(design="lattice")},
    "ram+scale0.5-1.2": {"input": whorl.RandomAffine(scale=(0.5, 1.2))},
    "ram+mirror": {"input": InputChain(Mirror(), whorl.RandomAffine())},
    "ram+gain0.6": {"input": InputChain(whorl.RandomAffine(), Gain(lowest=0.6))},
    "ram+channels0.5": {"estimator": SharedChannels(share=0.5)},
    "ram+power0.5": {"estimator": CompressedGradient(power=0.5)},
    "ram+pace20": {"pace": 20.0},
    "ram+temperature3": {"temperature": 3.0},
    "ram+latin": {"input": SpreadAffine()},
    "ram+antithetic": {"input": SpreadAffine(design="antithetic")},
    "ram+warp": {"input": InputChain(SmoothWarp(), whorl.RandomAffine())},
    "ram+overshoot1.5": {"overshoot": 1.5},
    "ram+relative": {"loss": "relative"},
    "ram+pool": {"backward": Backward(pool=10.0)},
    "ram+ghost": {"backward": Backward(ghost=0.2)},
    "ram+decay": {"backward": Backward(decay=0.3)},
    "ram+skip0.5+ai0.5": {"estimator": NARROW, "backward": Backward(skip=0.5)},
}


def _named(name: str, **settings: Any) -> Make:
    return lambda eps: whorl.attack(name, eps=eps, **settings)


def _ram(**settings: Any) -> Make:
    return lambda eps: TransferAttack(eps=eps, **{"momentum": 1.0, "input": whorl.RandomAffine(), **settings})


def _peer(name: str, settings: Mapping[str, Any], wrapped: bool) -> Make:
    estimator = NARROW if wrapped else whorl.identity

    def make(eps: float) -> Attack:
        alpha = eps * (5 / settings["steps"] if settings["steps"] > 1 else 1)
        return whorl.attack(
            f"torchattack:{name}", eps=eps, alpha=alpha, estimator=estimator, batched=True, **dict(settings)
        )

    return make


# ---------------------------------------------------------------------------------------------------------------------
# Crafting and asking


@dataclass(frozen=True, kw_only=True)
class Data:
    """Pictures on the device: (N, C, H, W), (N,) labels, N names."""

    x: Tensor
    y: Tensor
    ids: list[str]

    @classmethod
    def load(cls, folder: str | None, n: int, size: int, device: torch.device, *, skip: int = 0) -> Data:
        """``n`` pictures of a folder, or of the bundled samples, after the first ``skip``, at one size."""
        last = skip + n
        x, y, ids = whorl.load_images(folder, limit=last, size=size) if folder else whorl.load_samples(last, size=size)
        return cls(x=x[skip:].to(device), y=y[skip:].to(device), ids=list(ids)[skip:])

    def parts(self, size: int) -> list[slice]:
        """Batches, as places."""
        return [slice(start, start + size) for start in range(0, len(self.x), size)]


class Judge:
    """Targets that have seen the clean pictures in every pose once, and are asked about any number of attacks."""

    def __init__(
        self,
        targets: Mapping[str, nn.Module],
        data: Data,
        poses: Sequence[Pose],
        batch_size: int,
        *,
        half: bool = False,
    ) -> None:
        """``half``: the targets answer in bfloat16, which is enough to tell candidates apart."""
        self.targets, self.data, self.poses, self.batch_size = targets, data, poses, batch_size
        self.asked = [in_precision(target, "bf16" if half else "full") for target in targets.values()]
        self.clean = self._margins(data.x) < 0

    @torch.no_grad()
    def _margins(self, x: Tensor) -> Tensor:
        """How far the best other class is above the label, (targets, poses, N): below zero is a right answer."""
        out = torch.empty(len(self.targets), len(self.poses), len(x), device=x.device)
        for part in self.data.parts(self.batch_size):
            y = self.data.y[part, None]
            for p, pose in enumerate(self.poses):
                seen = pose.apply(x[part])
                for t, target in enumerate(self.asked):
                    logits = target(seen).float()
                    others = logits.scatter(1, y, -torch.inf).amax(1)
                    out[t, p, part] = others - logits.gather(1, y)[:, 0]
        return out

    def ask(self, adversarial: Tensor, fresh: int = 0) -> dict[str, Any]:
        """Mean success over the poses for each target and over the targets, in percent.

        Args:
            adversarial: (N, C, H, W); rounded to 8 bits first.
            fresh: leave so many pictures at the beginning out.

        Returns:
            ``mean``, ``targets``, and ``soft``: the mean of sigmoid(margin) instead of margin > 0, which tells
            candidates apart on fewer pictures. ``fooled`` and ``known``: for each target and picture, in how many poses
            it succeeds, and in how many the target knows the clean picture, so that candidates can be compared picture
            by picture.
        """
        margins = self._margins(to_8_bits(adversarial))
        kept = self.clean.clone()
        kept[:, :, :fresh] = False
        count = kept.sum(-1)
        # A pose in which a target knows no picture has no rate: 0/0, which the means leave out.
        hard = ((margins >= 0) & kept).sum(-1) / count * 100
        soft = (torch.sigmoid(margins) * kept).sum(-1) / count * 100
        rates = hard.nanmean(1).tolist()
        fooled = ((margins >= 0) & kept).sum(1).tolist()
        return {
            "mean": sum(rates) / len(rates),
            "targets": dict(zip(self.targets, rates, strict=True)),
            "soft": float(soft.nanmean(1).mean()),
            "poses": dict(zip(map(str, self.poses), hard.nanmean(0).tolist(), strict=True)),
            "fooled": dict(zip(self.targets, fooled, strict=True)),
            "known": dict(zip(self.targets, kept.sum(1).tolist(), strict=True)),
        }


def craft(attack: Attack, source: nn.Module, data: Data, *, batch_size: int, seed: int) -> tuple[Tensor, int]:
    """Attack all pictures; give them and the gradients spent on each."""
    made, spent = [], None
    for part in data.parts(batch_size):
        adv, info = attack(source, data.x[part], data.y[part], seed=seed, ids=data.ids[part], return_info=True)
        made.append(adv)
        if spent is None and info.grad_evals is not None:
            spent = int(info.grad_evals[0])
    if spent is None:
        # A library that attacks copies of a batch in one pass is counted on a single picture.
        alone, first = attack.with_(batched=False), slice(0, 1)
        _, info = alone(source, data.x[first], data.y[first], seed=seed, ids=data.ids[first], return_info=True)
        spent = int(info.grad_evals[0]) if info.grad_evals is not None else 0
    return torch.cat(made), spent


def measure(
    make: Make, eps: Sequence[float], source: nn.Module, judge: Judge, *, batch_size: int, seed: int, fresh: int = 0
) -> dict[str, Any]:
    """Craft at every eps and ask the targets; one record."""
    data, began = judge.data, time.perf_counter()
    record: dict[str, Any] = {"settings": repr(make(eps[0] / 255)), "eps": {}}
    crafting = 0.0
    for value in eps:
        start, attack = time.perf_counter(), make(value / 255)
        adv, record["gradients"] = craft(attack, source, data, batch_size=batch_size, seed=seed)
        far = float((adv - data.x).abs().max())
        assert far <= value / 255 + 1e-5, f"left the ball: {far * 255:.2f}/255"
        crafting += time.perf_counter() - start
        record["eps"][f"{value:g}"] = {**judge.ask(adv), "settings": repr(attack)}
        if fresh:
            record["eps"][f"{value:g}"]["fresh"] = judge.ask(adv, fresh)
    record["seconds_crafting"] = round(crafting, 2)
    record["seconds"] = round(time.perf_counter() - began, 2)
    return record


def joined(done: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Add what was measured at other eps to a record."""
    if done is None or done["gradients"] != more["gradients"]:
        return dict(more)
    spent = {key: round(done[key] + more[key], 2) for key in ("seconds_crafting", "seconds")}
    return {**done, **spent, "eps": {**done["eps"], **more["eps"]}}


def still_true(record: dict[str, Any] | None, make: Make) -> dict[str, Any] | None:
    """What a record holds of the candidate as it is now: only the eps at which it had the same settings."""
    kept = {}
    for eps, rates in record["eps"].items() if record else ():
        if rates.get("settings") == repr(make(float(eps) / 255)):
            kept[eps] = rates
    return {**record, "eps": kept} if record and kept else None


def line(name: str, record: Mapping[str, Any]) -> str:
    """A candidate in one line."""
    parts = [f"{name:28s} {record['gradients']:5d} gradients"]
    for eps, rates in record["eps"].items():
        each = " ".join(f"{rate:.1f}" for rate in rates["targets"].values())
        parts.append(f"eps {eps}: {rates['mean']:.2f} (soft {rates['soft']:.2f}; {each})")
        if "fresh" in rates:
            parts[-1] += f" [fresh {rates['fresh']['mean']:.2f}]"
    return " | ".join([*parts, f"{record['seconds']:.1f} s"])


def family(name: str) -> str:
    """The family of a network of the zoo.

    >>> family("efficientnet_lite0"), family("resnet18"), family("mobilenet_v2")
    ('efficientnet', 'resnet', 'mobilenet')
    """
    return name.partition("_")[0].rstrip("0123456789")


def others(source: str) -> list[str]:
    """The plain networks of the zoo that are of another family."""
    return [name for name in model_names("offline") if family(name) != family(source)]


# ---------------------------------------------------------------------------------------------------------------------
# Command line


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="resnet18", help="names, joined by commas (default: resnet18)")
    parser.add_argument("--targets", help="names, joined by commas; every zoo network of another family without it")
    parser.add_argument("--eps", default="16,8", help="of 255, joined by commas (default: 16,8)")
    parser.add_argument("--data", help="NIPS17 or class folder; the bundled samples without it")
    parser.add_argument("--n", type=int, default=200, help="first pictures (default: 200)")
    parser.add_argument("--skip", type=int, default=0, help="leave so many pictures at the beginning out")
    parser.add_argument("--fresh", type=int, default=0, help="also give rates without the first so many pictures")
    parser.add_argument("--size", type=int, default=224, help="side of the pictures, in pixels")
    parser.add_argument("--only", help="names of candidates, or beginnings, joined by commas")
    parser.add_argument("--list", action="store_true", help="name the candidates and stop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--half", action="store_true", help="the targets answer in bfloat16")
    parser.add_argument("--out", type=Path, default=Path("frontier"), help="folder for the results")
    parser.add_argument(
        "--figure", type=Path, help="also draw: .html, or .svg and .png with kaleido; {source} stands for the source"
    )
    return parser.parse_args(argv)


def chosen(only: str | None) -> dict[str, Make]:
    """The candidates that ``--only`` names, in its order; all in their own without it.

    >>> list(chosen("ti-dim/10,dim+t0.8p0/10"))
    ['ti-dim/10', 'dim+t0.8p0/10']
    """
    all_of_them = candidates()
    if not only:
        return all_of_them
    found: dict[str, Make] = {}
    for word in only.split(","):
        kernel = _KERNEL.fullmatch(word)
        if kernel:
            found[word] = _dim_with(*map(float, kernel.groups()))
        found |= {name: make for name, make in all_of_them.items() if _names(word, name)}
    return found


_KERNEL = re.compile(r"dim\+t([0-9.]+)p([0-9.]+)/([0-9]+)")


def _dim_with(translation: float, polar: float, steps: float) -> Make:
    """DIM with a kernel, each of whose parts is off at 0."""
    if not translation and not polar:
        return _named("dim", steps=int(steps))
    kernel = whorl.AffineInvariant(
        sigma=translation or polar,
        polar_sigma=polar or translation,
        translation=translation > 0,
        rotation=polar > 0,
        scaling=polar > 0,
    )
    return _named("dim", steps=int(steps), estimator=kernel)


def _names(word: str, name: str) -> bool:
    """Whether a word of ``--only`` is a candidate's name, or its beginning where it ends in "*"."""
    return name.startswith(word[:-1]) if word.endswith("*") else word in (name, name.rpartition("/")[0])


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, print, save."""
    options = parse(argv)
    listed = chosen(options.only)
    if options.list:
        print("\n".join(listed))
        return
    device, networks = torch.device(options.device), {}
    data = Data.load(options.data, options.n, options.size, device, skip=options.skip)
    for source in options.source.split(","):
        names = options.targets.split(",") if options.targets else others(source)
        for name in (source, *names):
            if name not in networks:  # each is loaded and made ready once, for all sources
                networks[name] = whorl.load_model(name, device=device)
        run(source, {name: networks[name] for name in names}, networks[source], data, listed, options)


def run(
    name_of_source: str,
    targets: Mapping[str, nn.Module],
    source: nn.Module,
    data: Data,
    listed: Mapping[str, Make],
    options: argparse.Namespace,
) -> None:
    """Measure, print and save what is not measured yet on one source."""
    eps = [float(value) for value in options.eps.split(",")]
    asked = {
        "source": name_of_source,
        "targets": list(targets),
        "n": len(data.x),
        "skip": options.skip,
        "size": options.size,
        "seed": options.seed,
        "fresh": options.fresh,
        "half": options.half,
        "data": Path(options.data).resolve().name if options.data else "samples",
    }
    path = options.out / f"frontier-{name_of_source}-{len(data.x)}.json"
    saved = json.loads(path.read_text()) if path.exists() else {}
    rows: dict[str, Any] = _defined(saved["rows"]) if saved.get("asked") == asked else {}
    about = metadata(data.x.device, weights_sha256={name: clf.weights_sha256 for name, clf in targets.items()})
    judge: Judge | None = None
    failed: dict[str, str] = {}
    for place, (name, make) in enumerate(listed.items(), 1):
        missing = eps
        try:
            known = still_true(rows.pop(name, None), make)
            if known:
                rows[name] = known
            missing = [value for value in eps if f"{value:g}" not in (known["eps"] if known else ())]
            for value in missing:
                judge = judge or Judge(targets, data, PAPER_POSES, options.batch_size, half=options.half)
                more = measure(
                    make, [value], source, judge, batch_size=options.batch_size, seed=options.seed, fresh=options.fresh
                )
                rows[name] = joined(rows.get(name), more)
                save({"metadata": about, "asked": asked, "rows": rows, "failed": failed}, path)
        except Exception as error:  # noqa: BLE001 - one candidate, often another library's, must not end the rest
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"[{place}/{len(listed)}] {name}: {failed[name]}", file=sys.stderr, flush=True)
            continue
        print(f"[{place}/{len(listed)}] {line(name, rows[name])}{'' if missing else ' (saved)'}", flush=True)
    # One that failed half-way has no rate at some eps, and no place in a table of all.
    shown = {name: rows[name] for name in listed if set(rows.get(name, {}).get("eps", ())) >= {f"{v:g}" for v in eps}}
    print(f"{name_of_source}\n{summary(shown, eps)}")
    if options.figure and shown:
        draw(shown, eps, Path(str(options.figure).format(source=name_of_source)))


def _defined(value: Any) -> Any:
    """JSON has no NaN, and null was written for it: the rate on a target that knows none of the pictures."""
    if isinstance(value, dict):
        return {name: _defined(one) for name, one in value.items()}
    return math.nan if value is None else value


def draw(rows: Mapping[str, Mapping[str, Any]], eps: Sequence[float], path: Path) -> None:
    """Write the figure as a page, or as a picture by its suffix."""
    drawn = figure(rows, eps)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        drawn.write_html(path, include_plotlyjs="cdn")
    else:
        drawn.write_image(path, width=1000, height=620)


def summary(rows: Mapping[str, Mapping[str, Any]], eps: Sequence[float]) -> str:
    """All candidates as a table, by gradients and then by the mean at the first eps."""
    order = sorted(rows.items(), key=lambda row: (row[1]["gradients"], -row[1]["eps"][f"{eps[0]:g}"]["mean"]))
    titles = ["candidate", "gradients", *(f"eps {value:g}" for value in eps), "seconds"]
    cells = [
        [name, str(r["gradients"]), *(f"{r['eps'][f'{v:g}']['mean']:.2f}" for v in eps), f"{r['seconds_crafting']:.1f}"]
        for name, r in order
    ]
    return table(titles, cells)


def best_so_far(points: Sequence[tuple[int, float, str]]) -> list[tuple[int, float, str]]:
    """Those that no candidate beats with as few gradients: the frontier, by gradients.

    >>> best_so_far([(50, 98.0, "b"), (10, 95.0, "a"), (10, 90.0, "c"), (100, 97.0, "d")])
    [(10, 95.0, 'a'), (50, 98.0, 'b')]
    """
    kept: list[tuple[int, float, str]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return kept


def figure(rows: Mapping[str, Mapping[str, Any]], eps: Sequence[float]) -> Any:
    """Success against gradients, a panel for each eps: every candidate a point, the best ones joined."""
    subplots = import_module("plotly.subplots")
    titles = [f"ε = {value:g}/255" for value in eps]
    drawn = subplots.make_subplots(rows=1, cols=len(eps), subplot_titles=titles)
    for column, value in enumerate(eps, 1):
        at = f"{value:g}"
        points = [(r["gradients"], r["eps"][at]["mean"], name) for name, r in rows.items() if at in r["eps"]]
        kinds = {
            "other libraries": [p for p in points if p[2].partition("/")[0].partition("+")[0] in PEERS],
            "EOT": [p for p in points if p[2].startswith("eot")],
            "ai-best": [p for p in points if p[2].startswith("ai-best")],
        }
        named = {point for some in kinds.values() for point in some}
        kinds["whorl's other attacks"] = [p for p in points if p not in named]
        for (kind, some), (colour, symbol) in zip(kinds.items(), _MARKS, strict=True):
            drawn.add_scatter(
                x=[p[0] for p in some],
                y=[p[1] for p in some],
                text=[p[2] for p in some],
                name=kind,
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 9},
                hovertemplate="%{text}<br>%{x} gradients, %{y:.1f} %<extra></extra>",
                showlegend=column == 1,
                row=1,
                col=column,
            )
        edge = best_so_far(points)
        drawn.add_scatter(
            x=[p[0] for p in edge],
            y=[p[1] for p in edge],
            text=[p[2].partition("/")[0] for p in edge],
            mode="lines+text",
            textposition="bottom right",
            line={"color": "#1f2328", "width": 1, "shape": "hv"},
            showlegend=False,
            hoverinfo="skip",
            row=1,
            col=column,
        )
    drawn.update_xaxes(type="log", title="gradients per picture")
    drawn.update_yaxes(title="mean success on other families (%)", col=1)
    drawn.update_layout(template="plotly_white", legend={"orientation": "h", "y": -0.2})
    return drawn


# Okabe and Ito's colours, which people of every colour vision tell apart.
_MARKS = (("#7f7f7f", "diamond"), ("#0072b2", "star"), ("#d55e00", "square"), ("#009e73", "circle"))


if __name__ == "__main__":
    main()
