"""Search for stronger attacks: as the image is, from sources of other families, with 50 and 200 gradients, targeted.

    python benchmarks/strength_search.py --data NIPS17_FOLDER --device cuda --seconds 390 --out strength.jsonl

One phase after the other, each with its share of the seconds: moves one at a time on three sources (``ai-best`` with
one setting changed), then those that help added to one another, then 50 gradients, 200 (at the last eps), targeted with
300 (at the first), and what was found on images that chose nothing. Every row is written as soon as it is there, and a
run with the same file does not repeat it.

Each image is shown as it is and in four of the paper's other eleven poses, in turn, so that all poses get equally many
images: more images fit into the time than with twelve poses each, and images differ more than poses. ``poses`` is
pooled over the twelve as if each had been seen in all; ``score``, which is raised, is the mean of ``sigmoid(margin)``
over eps and targets, half as it is and half over the twelve.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from judge import Data, packed
from strength_candidates import (
    AGAIN,
    BEST,
    CONCATENATED,
    EOT,
    FIFTY,
    INPUT,
    INVERTED,
    MAXIMAL,
    RELATIVE,
    SHARED,
    SHIPPED,
    TARGETED,
    TARGETED_MORE,
    Settings,
    build,
    name_of,
)
from whorl.evaluation import PAPER_POSES, Pose, Predictor, to_8_bits

IDENTITY = Pose()
OTHERS = tuple(pose for pose in PAPER_POSES if pose != IDENTITY)
_SHOWN = (0, 3, 6, 9)  # of the eleven others, from the image's own place on
# A network is attacked for the sake of other families. Hardened ones stay close to what they were made from.
TARGETS: Mapping[str, Sequence[str]] = {
    "resnet18": (
        "mobilenet_v2",
        "efficientnet_lite0",
        "inception_v3",
        "efficientnet_lite0.ens-at",
        "mobilenet_v2.ens-at",
        "efficientnet_lite0.ai-at",
    ),
    "efficientnet_lite0": ("resnet18", "mobilenet_v2", "inception_v3", "mobilenet_v2.ens-at", "mobilenet_v2.alp"),
    "inception_v3": (
        "resnet18",
        "mobilenet_v2",
        "efficientnet_lite0",
        "efficientnet_lite0.ens-at",
        "mobilenet_v2.ens-at",
        "efficientnet_lite0.ai-at",
    ),
}


class Views:
    """Images as they are, and each in four of the other poses."""

    def __init__(self, count: int, device: torch.device) -> None:
        shown = [[i for i in range(count) if (p - i) % len(OTHERS) in _SHOWN] for p in range(len(OTHERS))]
        self.rows = [torch.tensor(rows, device=device, dtype=torch.long) for rows in shown]
        self.count = count

    def of(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N + 4N, C, H, W)."""
        return torch.cat([x, *(pose.apply(x[rows]) for pose, rows in zip(OTHERS, self.rows, strict=True) if len(rows))])

    def labels(self, y: Tensor) -> Tensor:
        """(N,) likewise."""
        return torch.cat([y, *(y[rows] for rows in self.rows)])


class Panel:
    """Targets that evaluate adversarial images at several eps at once."""

    def __init__(self, networks: Mapping[str, nn.Module], data: Data, most: int) -> None:
        self.networks, self.data, self.most = networks, data, most
        self.views = Views(len(data.x), data.x.device)
        self.predictor = Predictor(networks, precision="bf16" if data.x.is_cuda else "full")
        self.labels = self.views.labels(data.y)
        self.clean = self.predict(self.views.of(data.x), self.labels)

    def predict(self, x: Tensor, labels: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Whether each view is recognised as its label, and by how much another class is ahead, for each target."""
        found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in self.networks}
        for start in range(0, len(x), self.most):
            part = slice(start, start + self.most)
            cells = self.predictor.margins(x[part], labels[part], dict.fromkeys(self.networks, (IDENTITY,)))
            for name in self.networks:
                found[name].append(cells[name, IDENTITY])
        return {name: (torch.cat([r for r, _ in f]), torch.cat([m for _, m in f])) for name, f in found.items()}

    def evaluate(self, made: Mapping[str, Tensor], target: Tensor | None) -> dict[str, dict[str, Any]]:
        """Rates by eps and target; ``made`` is eps to (N, C, H, W) images."""
        seen = torch.cat([self.views.of(to_8_bits(x)) for x in made.values()])
        wanted = self.labels if target is None else self.views.labels(target)
        answers = self.predict(seen, wanted.repeat(len(made)))
        size = len(self.labels)
        return {
            eps: {
                name: self._rates(right[i * size : (i + 1) * size], margins[i * size : (i + 1) * size], name, target)
                for name, (right, margins) in answers.items()
            }
            for i, eps in enumerate(made)
        }

    def _rates(self, right: Tensor, margins: Tensor, name: str, target: Tensor | None) -> dict[str, Any]:
        hit = right if target is not None else ~right
        known = torch.ones_like(right) if target is not None else self.clean[name][0]
        soft = torch.sigmoid(-margins if target is not None else margins.float())
        n = self.views.count
        weight = torch.full((len(known),), len(OTHERS) / len(_SHOWN), dtype=torch.float64)
        weight[:n] = 1.0  # as if each image had been seen in all twelve poses

        def rate(value: Tensor, part: slice) -> float:
            share = weight[part] * known[part]
            return round(100 * float((value[part] * share).sum() / share.sum().clamp_min(1e-9)), 3)

        first, everything = slice(0, n), slice(None)
        return {
            "identity": rate(hit.double(), first),
            "poses": rate(hit.double(), everything),
            "soft_identity": rate(soft.double(), first),
            "soft_poses": rate(soft.double(), everything),
            "known": int(known[:n].sum()),
            "hits": packed(hit.numpy()),
        }


@dataclass
class Track:
    """One source, its targets, and one set of images."""

    source: str
    network: nn.Module
    panel: Panel
    book: Book
    eps: Sequence[float]
    tag: str = "choose"
    target: Tensor | None = None
    seed: int = 0

    def score(self, settings: Settings, label: str) -> float:
        """Measure, unless it is in the book; give what is to be raised."""
        about = {"source": self.source, "tag": self.tag, "n": len(self.panel.data.x), "eps": list(self.eps)}
        changed = {name: value for name, value in settings.items() if BEST[name] != value}
        key = json.dumps({**about, "settings": changed}, sort_keys=True, default=list)
        row = self.book.rows.get(key)
        if row is None:
            began = time.perf_counter()
            row = {"key": key, "label": label, **about, "settings": changed}
            try:
                row |= self._measured(settings)
            except Exception as error:  # noqa: BLE001 - one candidate that fails must not end the search
                row |= {"failed": f"{type(error).__name__}: {error}"[:400], "score": -1.0}
                torch.cuda.empty_cache()
            row["seconds"] = round(time.perf_counter() - began, 3)
            self.book.add(row)
        show(row)
        return float(row["score"])

    def _measured(self, settings: Settings) -> dict[str, Any]:
        data, made, began = self.panel.data, {}, time.perf_counter()
        for value in self.eps:
            attack = build(settings, value / 255)
            goal = {"y": data.y} if self.target is None else {"target": self.target}
            made[f"{value:g}"], info = attack(
                self.network, data.x, **goal, seed=self.seed, ids=data.ids, return_info=True
            )
            far = float((made[f"{value:g}"] - data.x).abs().max())
            assert far <= value / 255 + 1e-5, f"left the ball: {far * 255:.2f}/255"
        crafting = round(time.perf_counter() - began, 3)
        rates = self.panel.evaluate(made, self.target)
        cells = [cell for by_target in rates.values() for cell in by_target.values()]
        score = sum(cell["soft_identity"] + cell["soft_poses"] for cell in cells) / (2 * len(cells))
        return {
            "score": round(score, 4),
            "gradients": int(_sure(info.grad_evals)[0]),
            "crafting": crafting,
            "attack": repr(attack),
            "rates": rates,
        }


def _sure(value: Tensor | None) -> Tensor:
    assert value is not None  # for mypy
    return value


@dataclass
class Book:
    """All rows, in memory and in a file."""

    path: Path
    began: float
    seconds: float
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                row = json.loads(line)
                if "key" in row and "failed" not in row:
                    self.rows[row["key"]] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        if "key" in row:
            self.rows[row["key"]] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def start(self) -> None:
        """Everything is loaded: what is left of the seconds is for the search."""
        now = time.perf_counter()
        self.seconds -= now - self.began
        self.began = now

    def gone(self) -> float:
        """Which share of the search's seconds is gone."""
        return (time.perf_counter() - self.began) / self.seconds

    def until(self, share: float) -> bool:
        """Whether less than a share of the search's seconds is gone."""
        return self.gone() < share


def show(row: Mapping[str, Any]) -> None:
    """A row in one line: score, then as it is and over the twelve poses at each eps."""
    where = f"{row['label']:10s} {row['source'][:9]:9s}"
    if "failed" in row:
        print(f"{where} FAILED {row['failed']}  {name_of(row['settings'])}", flush=True)
        return
    means = []
    for eps, by_target in row["rates"].items():
        cells = list(by_target.values())
        both = (sum(cell[kind] for cell in cells) / len(cells) for kind in ("identity", "poses"))
        means.append(f"{eps}: " + "/".join(f"{mean:.1f}" for mean in both))
    spent = f"{row['crafting']:.1f}+{row['seconds'] - row['crafting']:.1f} s"
    print(f"{where} {row['score']:6.2f}  {'  '.join(means)}  {spent}  {name_of(row['settings'])}", flush=True)


def alone(track: Track, start: Settings, moves: Sequence[Settings], label: str, until: float) -> list[Settings]:
    """Moves one at a time on a start; those that help, the best first."""
    base = track.score(start, label)
    gains: list[tuple[float, int, Settings]] = []
    for move in moves:
        if not track.book.until(until):
            break
        gains.append((track.score({**start, **move}, label) - base, len(gains), move))
    return [move for gain, _, move in sorted(gains, reverse=True, key=lambda g: (g[0], -g[1])) if gain > 0.1]


def together(
    track: Track, start: Settings, moves: Sequence[Settings], label: str, until: float, gain: float = 0.08
) -> Settings:
    """Add moves to one another as long as it helps."""
    best, score = dict(start), track.score(start, label)
    for move in moves:
        if not track.book.until(until):
            break
        tried = {**best, **move}
        if tried == best:
            continue
        now = track.score(tried, label)
        if now > score + gain:
            best, score = tried, now
            print(f"--> {name_of(best)}", flush=True)
    return best


MOVES: Mapping[str, Sequence[Settings]] = {
    "resnet18": INPUT,
    "efficientnet_lite0": INVERTED,
    "inception_v3": CONCATENATED,
}
# What belongs to a source, the rest is one for all.
_OF_SOURCE = ("skip", "early", "rectifier", "late", "relative", "join", "flat", "pool")


def common(settings: Settings) -> dict[str, Any]:
    """What of settings is no rule of the backward pass."""
    return {name: value for name, value in settings.items() if name not in _OF_SOURCE}


@dataclass
class Work:
    """What the phases share."""

    tracks: Mapping[str, Track]
    fresh: Mapping[str, Track]
    narrow: Mapping[str, Track]
    strong: Track
    towards: Track
    eot: Mapping[str, Track]
    book: Book

    def run(self) -> None:
        """All phases, by expected value."""
        starts: dict[str, Settings] = {"resnet18": {}}
        helped: dict[str, list[Settings]] = {}
        for (source, moves), until in zip(MOVES.items(), (0.15, 0.26, 0.39), strict=True):
            track = self.tracks[source]
            if source not in starts:
                plain, relative = track.score({}, "alone"), track.score(RELATIVE, "alone")
                starts[source] = RELATIVE if relative > plain else {}
            helped[source] = alone(track, starts[source], moves, "alone", until)
        found = {
            source: together(self.tracks[source], starts[source], helped[source][:9], "together", until)
            for source, until in (("resnet18", 0.43), ("efficientnet_lite0", 0.48), ("inception_v3", 0.54))
        }
        found = self.shared(found, 0.60)
        self.book.add({"found": {source: dict(settings) for source, settings in found.items()}})
        self.fifty(found, 0.65)
        self.maximal(found["resnet18"], 0.81)
        self.targeted(found["resnet18"], 0.91)
        self.check(found, 0.98)
        self.rest(found)

    def again(self) -> None:
        """From what ships on: moves alone at the last eps, then together; then with more gradients."""
        found = dict(SHIPPED)
        for source, until in (("resnet18", 0.42), ("efficientnet_lite0", 0.57), ("inception_v3", 0.75)):
            narrow, begun = self.narrow[source], self.book.gone()
            helped = alone(narrow, SHIPPED[source], AGAIN[source], "again", begun + 0.68 * (until - begun))
            found[source] = together(self.tracks[source], SHIPPED[source], helped[:9], "again, together", until)
        self.book.add({"found": {source: dict(settings) for source, settings in found.items()}})
        for source, track in self.fresh.items():
            for settings in (SHIPPED[source], found[source]):
                if self.book.until(0.83):
                    track.score(settings, "again, check")
        for steps in (50, 200):
            for settings in (SHIPPED["resnet18"], found["resnet18"]):
                if self.book.until(0.89):
                    self.strong.score({**settings, "steps": steps, "pace": 10.0 + 100.0 / steps}, "again, more")
        self.targeted(found["resnet18"], 1.0)

    def shared(self, found: Mapping[str, Settings], until: float) -> dict[str, Settings]:
        """What was found on one source, tried on the others: the rest of the attack is to be one for all."""
        result = dict(found)
        for source, track in self.tracks.items():
            own = {name: value for name, value in found[source].items() if name in _OF_SOURCE}
            tried = [{**own, **common(found[other])} for other in found if other != source]
            scores = [(track.score(found[source], "shared"), found[source])]
            scores += [(track.score(each, "shared"), each) for each in tried if self.book.until(until)]
            result[source] = max(scores, key=lambda s: s[0])[1]
        return result

    def fifty(self, found: Mapping[str, Settings], until: float) -> None:
        """50 gradients."""
        for source in ("resnet18", "efficientnet_lite0"):
            self.tracks[source].score({"steps": 50}, "fifty")
            for move in FIFTY[: None if source == "resnet18" else 3]:
                if self.book.until(until):
                    self.tracks[source].score({**found[source], "steps": 50, **move}, "fifty")

    def maximal(self, found: Settings, until: float) -> None:
        """200 gradients."""
        track = self.strong
        if not self.book.until(until):
            return
        scores = [(track.score({**found, **move}, "maximal"), move) for move in SHARED if self.book.until(until)]
        start = {**found, **max(scores, key=lambda s: s[0])[1]}
        helped = alone(track, start, MAXIMAL, "maximal", until - 0.03)
        together(track, start, helped, "maximal", until)

    def targeted(self, found: Settings, until: float) -> None:
        """300 gradients towards the data set's own targets."""
        if not self.book.until(until):
            return
        scores = [
            (self.towards.score({**found, **move}, "targeted"), move) for move in TARGETED if self.book.until(until)
        ]
        start = {**found, **max(scores, key=lambda s: s[0])[1]}
        for move in TARGETED_MORE:
            if self.book.until(until):
                self.towards.score({**start, **move}, "targeted")

    def check(self, found: Mapping[str, Settings], until: float) -> None:
        """What was found on images that chose nothing."""
        for source, track in self.fresh.items():
            for settings in ({}, found[source], RELATIVE, {"steps": 50}, {**found[source], "steps": 50}):
                if self.book.until(until):
                    track.score(settings, "check")

    def rest(self, found: Mapping[str, Settings]) -> None:
        """EOT, then every move on what was found."""
        for track in self.eot.values():
            if self.book.until(1):
                track.score(EOT, "eot")
        for source, moves in MOVES.items():
            for move in moves:
                if self.book.until(1):
                    self.tracks[source].score({**found[source], **move}, "rest")


def targets_of(folder: str, ids: Sequence[str], device: torch.device) -> Tensor:
    """The labels that NIPS17 wants its images to be taken for."""
    with (Path(folder) / "images.csv").open() as file:
        wanted = {row["ImageId"]: int(row["TargetClass"]) - 1 for row in csv.DictReader(file)}
    return torch.tensor([wanted[name] for name in ids], device=device)


def load(name: str, device: torch.device, weights: Path | None) -> nn.Module:
    """A network of the zoo, its weights from a folder of ``NAME.safetensors`` where they are there."""
    path = weights / f"{name}.safetensors" if weights else None
    return whorl.load_model(f"file:{path}?arch={name}" if path and path.exists() else name, device=device)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="NIPS17 folder")
    parser.add_argument(
        "--weights", type=Path, help="folder of NAME.safetensors, in any precision; the cache without it"
    )
    parser.add_argument("--n", type=int, default=220, help="images to choose by; a multiple of 11 (default: 220)")
    parser.add_argument("--fresh", type=int, default=220, help="images after these, for the check")
    parser.add_argument("--targeted", type=int, default=110, help="images of the targeted search")
    parser.add_argument("--sources", default=",".join(TARGETS), help="names, joined by commas")
    parser.add_argument("--targets", type=int, help="only the first so many targets of each source")
    parser.add_argument("--eps", default="16,8")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--views", type=int, default=2200, help="views in one forward pass")
    parser.add_argument("--seconds", type=float, default=390.0, help="from the start of the program")
    parser.add_argument("--eot", type=int, default=0, help="first images that EOT with 2,500 gradients attacks, last")
    parser.add_argument("--again", action="store_true", help="begin with what ships, and with 10 gradients")
    parser.add_argument("--only-eot", action="store_true", help="nothing but these")
    parser.add_argument("--only", type=int, help="try this many candidates on the first source, then stop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("strength.jsonl"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Load, search, save."""
    began, options = time.perf_counter(), parse(argv)
    device = torch.device(options.device)
    book = Book(options.out, began, options.seconds)
    eps = [float(value) for value in options.eps.split(",")]
    both = Data.load(options.data, options.n + options.fresh, options.size, device)
    sources = options.sources.split(",")
    targets = {source: TARGETS[source][: options.targets] for source in sources}
    networks = {name: load(name, device, options.weights) for name in sorted({n for t in targets.values() for n in t})}
    attacked = {name: load(name, device, options.weights) for name in sources}

    def track(source: str, tag: str, rows: slice, each: Sequence[float], *, toward: bool = False) -> Track:
        data = Data(x=both.x[rows], y=both.y[rows], ids=both.ids[rows])
        panel = Panel({name: networks[name] for name in targets[source]}, data, options.views)
        wanted = targets_of(options.data, data.ids, device) if toward else None
        network = load(source, device, options.weights) if tag == "eot" else attacked[source]
        return Track(source, network, panel, book, each, tag, wanted)

    choose, later = slice(0, options.n), slice(options.n, options.n + options.fresh)
    tracks = {source: track(source, "choose", choose, eps) for source in sources}
    few = slice(0, options.eot)
    eot = {source: track(source, "eot", few, eps) for source in sources} if options.eot else {}
    book.add(about(tracks, options))
    book.start()
    print(f"ready after {time.perf_counter() - began:.0f} s", flush=True)
    if options.only or options.only_eot:
        for settings in ({}, *INPUT)[: options.only or 0]:
            tracks[sources[0]].score(settings, "only")
        for each in eot.values():
            each.score(EOT, "eot")
        return
    narrow = {source: replace(each, eps=eps[-1:]) for source, each in tracks.items()}
    work = Work(
        tracks,
        {source: track(source, "fresh", later, eps) for source in sources},
        narrow,
        narrow["resnet18"],
        track("resnet18", "targeted", slice(0, options.targeted), eps[:1], toward=True),
        eot,
        book,
    )
    work.again() if options.again else work.run()
    print(f"done after {time.perf_counter() - began:.0f} s", flush=True)


def about(tracks: Mapping[str, Track], options: argparse.Namespace) -> dict[str, Any]:
    """What is to be known of a run beside its rows: on which images each target was right."""
    return {
        "clean": {
            source: {name: packed(right.numpy()) for name, (right, _) in track.panel.clean.items()}
            for source, track in tracks.items()
        },
        "hardware": torch.cuda.get_device_name() if options.device != "cpu" else "cpu",
        "torch": torch.__version__,
        "options": {name: str(value) for name, value in vars(options).items()},
    }


if __name__ == "__main__":
    main()
