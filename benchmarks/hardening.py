"""Train defended networks within a given time, and measure what hardening bought.

    python benchmarks/hardening.py --data IMAGENET5K --side 192 --out hardened --device cuda \
        --train mobilenet_v2:ens-at:110 mobilenet_v2:alp:110:ens-at
    python benchmarks/hardening.py --nips NIPS17 --out hardened --device cuda --evaluate
    python benchmarks/hardening.py --out hardened --ship mobilenet_v2.ens-at mobilenet_v2.alp@0.85

A job is MODEL:RECIPE:SECONDS, or MODEL:RECIPE:SECONDS:START to begin with the weights of an earlier recipe. Each leaves
``MODEL.RECIPE.safetensors`` (fp16, what training changed) and a record in ``training.json``. The evaluation asks every
such file, and the originals, and saves ``evaluation.json`` after each of its parts, so that a run that is cut short
keeps what it has. Shipping puts a file, or what lies 0.85 of the way from the original to it, into the package, and
what is known of it into the package's manifest.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import whorl
from measure import metadata, save, table
from whorl.artifacts import sha256_of
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, Pose, success_rates
from whorl.hardening import Hardened, TrainingPictures, harden, load_pictures
from whorl.hardening.student import blended
from whorl.hardening.watching import Watch
from whorl.models.defended import overlay, pack, unpack
from whorl.models.defended.entries import HERE, MANIFEST
from whorl.models.weights import state_dict_sha256

POOL_SOURCE, OTHER_SOURCE = "resnet18", "efficientnet_lite1"  # the second is in no pool
PLAIN = ("fgsm", "pgd", "mim", "dim")
# With the authors' kernel, as in the paper's tables: wide kernels pay against hardened networks.
INVARIANT = ("ai-fgsm", "ai-pgd", "ai-mim", "ai-dim", "ai-ram")
# Mobilenet learns from a stronger network besides itself.
TEACHERS = {"mobilenet_v2": ("mobilenet_v2", "efficientnet_lite0")}


@dataclass(frozen=True)
class Job:
    """What to train: a network, a recipe, for how long, and the recipe whose weights to begin with."""

    model: str
    recipe: str
    seconds: float
    start: str = ""

    @classmethod
    def parse(cls, text: str) -> Job:
        """Read MODEL:RECIPE:SECONDS[:START]."""
        model, recipe, seconds, *start = text.split(":")
        return cls(model, recipe, float(seconds), *start)

    @property
    def name(self) -> str:
        """Of the trained network, and of its file."""
        return f"{self.model}.{self.recipe}"


def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="class folders to train on")
    parser.add_argument("--nips", help="NIPS17 folder to evaluate on; never trained on")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and records")
    parser.add_argument("--train", nargs="+", default=[], metavar="JOB", help="MODEL:RECIPE:SECONDS[:START]")
    parser.add_argument("--evaluate", action="store_true", help="measure every weight file in --out")
    parser.add_argument("--ship", nargs="+", default=[], metavar="NAME[@BLEND]", help="files of --out for the package")
    parser.add_argument("--ship-to", type=Path, default=HERE, help="folder of the package")
    parser.add_argument("--blends", default="", help="shares of the way from the original to look at too")
    parser.add_argument("--side", type=int, default=192, help="pixels that training pictures are kept at")
    parser.add_argument("--limit", type=int, help="training pictures and evaluation pictures, to see that it runs")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the training")
    parser.add_argument(
        "--search",
        default="",
        metavar="SETTINGS;SETTINGS",
        help='sets to try first, such as "lr=0.03; lr=0.01 mix=0.5"',
    )
    parser.add_argument("--search-seconds", type=float, default=15, help="for each set and network")
    parser.add_argument("--compile", action="store_true", help="compile the student")
    parser.add_argument("--size", type=int, default=224, help="side of the evaluation pictures")
    parser.add_argument("--batch-size", type=int, default=250, help="evaluation pictures at a time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    if options.train:
        train(options)
    if options.evaluate:
        evaluate(options)
    for text in options.ship:
        ship(text, options)
    print(f"all done in {time.perf_counter() - started:.0f} s", flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# Training


def train(options: argparse.Namespace) -> None:
    """Run the jobs one after the other."""
    begun = time.perf_counter()
    pictures = load_pictures(options.data, side=options.side, limit=options.limit)
    print(f"{len(pictures)} pictures decoded in {time.perf_counter() - begun:.1f} s", flush=True)
    extra = settings_of(options.set)
    chosen: dict[str, dict[str, Any]] = {}
    for text in options.train:
        job = Job.parse(text)
        if options.search and job.model not in chosen:
            chosen[job.model] = search(job, pictures, options, extra)
        train_one(job, pictures, options, chosen.get(job.model, {}) | extra)


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE words; a value is JSON, or else text.

    >>> settings_of(["optimizer=sgd", "lr=0.03", "head=true"])
    {'optimizer': 'sgd', 'lr': 0.03, 'head': True}
    """
    settings = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            settings[name] = json.loads(text)
        except json.JSONDecodeError:
            settings[name] = text
    return settings


def search(job: Job, pictures: TrainingPictures, options: argparse.Namespace, extra: dict[str, Any]) -> dict[str, Any]:
    """The settings after which held-out pictures, clean and transferred, are recognised most often."""
    best, highest = {}, -1.0
    for text in options.search.split(";"):
        settings = settings_of(text.split())
        done = short(job, options.search_seconds, pictures, options, {"reports": 2} | settings | extra)
        last = done.history[-1]
        score = (last["clean"] + last["transfer"]) / 2
        print(f"-- {job.name} {settings}: {100 * score:.1f}", flush=True)
        if score > highest:
            best, highest = settings, score
    return best


def train_one(job: Job, pictures: TrainingPictures, options: argparse.Namespace, extra: dict[str, Any]) -> None:
    """Train one network, look at it on held-out pictures, and save it."""
    begun = time.perf_counter()
    original = whorl.load_model(job.model, device=options.device)
    done = short(job, job.seconds, pictures, options, extra)
    path = options.out / f"{job.name}.safetensors"
    pack(path, done.learned, about={"name": job.name, "seed": str(options.seed)})
    held = held_out(pictures, done.training.held_out, options)
    measured: dict[str, dict[str, float]] = {}
    for amount in (1.0, *blends(options)):
        overlay(done.classifier.net, blended(original, unpack(path), amount), job.name)
        measured[f"{amount:g}"] = rates = held.measure(done.classifier)
        print(f"  {amount:g} of the way: " + ", ".join(f"{k} {100 * v:.1f}" for k, v in rates.items()), flush=True)
    before = held.measure(original)
    print("  original: " + ", ".join(f"{k} {100 * v:.1f}" for k, v in before.items()), flush=True)
    record = {
        "job": vars(job),
        "about": done.about,
        "steps": done.training.steps,
        "seconds": round(done.seconds, 1),
        "wall": round(time.perf_counter() - begun, 1),
        "batch": done.training.batch,
        "history": done.history,
        "held_out": {"original": before, "blends": measured},
        "metadata": metadata(torch.device(options.device)),
    }
    listed = options.out / "training.json"
    records = json.loads(listed.read_text()) if listed.exists() else {}
    save(records | {job.name: record}, listed)
    print(f"== {job.name}: {done.training.steps} steps, {time.perf_counter() - begun:.0f} s in all", flush=True)


def short(
    job: Job, seconds: float, pictures: TrainingPictures, options: argparse.Namespace, extra: dict[str, Any]
) -> Hardened:
    """Train one network for some time, telling how it goes."""
    original = whorl.load_model(job.model, device=options.device)
    start = None
    if job.start:
        start = whorl.load_model(job.model, device=options.device)
        overlay(start.net, unpack(options.out / f"{job.model}.{job.start}.safetensors"), job.start)
        start.name = f"{job.model}.{job.start}"
    gpu = torch.device(options.device).type == "cuda"
    settings = {"seed": options.seed, "precision": "bf16" if gpu else "full"} | extra
    print(f"== {job.name}: {seconds:g} s, {extra}{f', from {job.start}' if job.start else ''}", flush=True)

    def say(entry: dict[str, float]) -> None:
        rates = "  ".join(f"{k} {100 * entry[k]:5.1f}" for k in ("clean", "transfer", "white_box") if k in entry)
        print(
            f"  step {entry['step']:5d}/{entry['steps']}  {entry['seconds']:6.1f} s  loss {entry['loss']:.3f}  {rates}",
            flush=True,
        )

    def run(compiled: bool) -> Hardened:
        return harden(
            original,
            pictures,
            job.recipe,
            start=start,
            teachers=TEACHERS.get(job.model),
            seconds=seconds,
            partial=options.limit is not None,
            device=options.device,
            say=say,
            **settings | {"compile": compiled},
        )

    if options.compile:
        try:
            return run(True)
        except WhorlError:
            raise
        except Exception as error:  # noqa: BLE001 - compilers fail in many ways, and the hours of a GPU cost meanwhile
            print(f"  compiling failed, going on without ({type(error).__name__}: {str(error)[:300]})", flush=True)
            options.compile = False
    return run(False)


def held_out(pictures: TrainingPictures, count: int, options: argparse.Namespace) -> Watch:
    """The pictures that no training has seen, with MIM versions crafted on resnet18, in full precision."""
    _, held = pictures.split(min(count, len(pictures) // 5), options.seed)
    source = whorl.load_model(POOL_SOURCE, device=options.device)
    x = F.interpolate(pictures.pixels[held].to(options.device) / 255, source.size, mode="bilinear", antialias=True)
    keys = pictures.keys(options.seed)[held].to(options.device)
    return Watch.of(x.clamp(0, 1), pictures.labels[held].to(options.device), keys, source, options.batch_size)


def blends(options: argparse.Namespace) -> list[float]:
    """The shares of the way that are looked at besides the whole of it."""
    return [float(part) for part in options.blends.split(",") if part]


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation


def evaluate(options: argparse.Namespace) -> None:
    """Ask originals and hardened networks about clean and adversarial pictures, cheapest questions first."""
    device = torch.device(options.device)
    x, y, ids = whorl.load_images(options.nips, size=options.size, limit=options.limit)
    x, y = x.to(device), y.to(device)
    whole, partway = networks(options)
    results: dict[str, Any] = {
        "metadata": metadata(device, data=Path(options.nips).name, n=len(x), size=options.size, seed=options.seed),
        "weights_sha256": {name: net.weights_sha256 for name, net in (whole | partway).items()},
    }

    def keep(part: str, content: Any) -> None:
        results[part] = content
        save(results, options.out / "evaluation.json")

    crafted = {}
    attacks: dict[str, tuple[str, ...]] = {
        POOL_SOURCE: (*PLAIN, *INVARIANT),
        OTHER_SOURCE: (*PLAIN, "ai-dim", "ai-ram"),
    }
    for source, names in attacks.items():
        crafted[source] = {name: craft(name, source, x, y, ids, options) for name in names}
        everyone = whole | partway
        cells = ask(everyone, x, crafted[source], y, [Pose()], options)
        keep(f"identity from {source}", cells)
        show(f"identity, crafted on {source} (%)", cells, everyone)
    rates = {name: white_box(net, x, y, ids, options) for name, net in whole.items()}
    keep("white-box PGD-20, eps 4/255", rates)
    print(table(["white-box PGD-20, ε = 4/255", "success"], [[k, f"{100 * v['rate']:.1f}"] for k, v in rates.items()]))
    for source, posed in ((POOL_SOURCE, attacks[POOL_SOURCE]), (OTHER_SOURCE, ("dim", "ai-dim", "ai-ram"))):
        chosen = {name: crafted[source][name] for name in posed}
        cells = ask(whole, x, chosen, y, PAPER_POSES, options)
        keep(f"twelve poses from {source}", cells)
        show(f"mean over twelve poses, crafted on {source} (%)", cells, whole)


def networks(options: argparse.Namespace) -> tuple[dict[str, whorl.Classifier], dict[str, whorl.Classifier]]:
    """Originals and hardened networks by name, and those that go only part of the way."""
    whole: dict[str, whorl.Classifier] = {}
    partway: dict[str, whorl.Classifier] = {}
    for path in sorted(options.out.glob("*.safetensors")):
        model = path.stem.partition(".")[0]
        for amount in (1.0, *blends(options)):
            net = whorl.load_model(model, device=options.device)
            whole.setdefault(model, whorl.load_model(model, device=options.device))
            state = blended(net, unpack(path), amount)
            # What is asked is what a file would hold.
            overlay(net.net, {k: t.half().float() if t.is_floating_point() else t for k, t in state.items()}, path.name)
            net.weights_sha256 = state_dict_sha256(net.net)
            net.name = path.stem if amount == 1 else f"{path.stem} {amount:g}"
            (whole if amount == 1 else partway)[net.name] = net
    if not whole:
        sys.exit(f"there are no weight files in {options.out}: train first.")
    return whole, partway


def craft(name: str, source: str, x: Tensor, y: Tensor, ids: list[str], options: argparse.Namespace) -> Tensor:
    """Adversarial versions of all pictures, ε = 16/255."""
    settings = {"estimator": whorl.AffineInvariant(sigma="reference")} if name in INVARIANT else {}
    net, attack = whorl.load_model(source, device=options.device), whorl.attack(name, **settings)
    return whorl.evaluation.to_8_bits(batched(attack, net, x, y, ids, options))


def batched(
    attack: whorl.Attack, net: whorl.Classifier, x: Tensor, y: Tensor, ids: list[str], options: argparse.Namespace
) -> Tensor:
    """Attack all pictures, some at a time."""
    parts = [slice(i, i + options.batch_size) for i in range(0, len(x), options.batch_size)]
    return torch.cat([attack(net, x[p], y[p], seed=options.seed, ids=ids[p]) for p in parts])


def white_box(
    net: whorl.Classifier, x: Tensor, y: Tensor, ids: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Success rate of PGD with 20 steps at ε = 4/255 on the network itself."""
    adv = batched(whorl.attack("pgd", eps=4 / 255, steps=20), net, x, y, ids, options)
    counts = success_rates({"": net}, x, {"pgd": adv}, y, poses=[Pose()], batch_size=options.batch_size)
    [count] = counts.values()
    return {**vars(count), "rate": count.rate, "clean_accuracy": count.clean_accuracy, "accuracy": count.accuracy}


def ask(
    nets: dict[str, whorl.Classifier],
    x: Tensor,
    adversarial: dict[str, Tensor],
    y: Tensor,
    poses: Sequence[Pose],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Counts of every attack on every network in every pose."""
    counts = success_rates(nets, x, adversarial, y, poses=poses, batch_size=options.batch_size)
    return [
        {"attack": a, "target": t, "angle": p.angle, "scale": p.scale, "shift": p.shift, **vars(c)}
        for (a, t, p), c in counts.items()
    ]


def show(title: str, cells: list[dict[str, Any]], nets: dict[str, whorl.Classifier]) -> None:
    """Print one row a network: clean accuracy, then the mean success rate of each attack."""
    attacks = list(dict.fromkeys(cell["attack"] for cell in cells))
    rows = []
    for name in nets:
        own = [cell for cell in cells if cell["target"] == name]
        right = sum(c["n_clean_correct"] for c in own) / sum(c["n"] for c in own)
        rates = []
        for attack in attacks:
            each = [
                c["n_success"] / c["n_clean_correct"] for c in own if c["attack"] == attack and c["n_clean_correct"]
            ]
            rates.append(sum(each) / len(each) if each else float("nan"))
        rows.append([name, *(f"{100 * value:.1f}" for value in (right, *rates))])
    print(f"{title}\n{table(['network', 'clean', *attacks], rows)}", flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# Shipping


def ship(text: str, options: argparse.Namespace) -> None:
    """Write one weight file and its entry of the manifest into the package."""
    name, _, amount = text.partition("@")
    base, _, recipe = name.partition(".")
    evaluation = json.loads((options.out / "evaluation.json").read_text(encoding="utf-8"))
    record = json.loads((options.out / "training.json").read_text(encoding="utf-8"))[name]
    measured_as = f"{name} {float(amount):g}" if amount else name
    net = whorl.load_model(base)
    path = options.ship_to / f"{name}.safetensors"
    pack(path, blended(net, unpack(options.out / path.name), float(amount or 1)), about={"name": name})
    overlay(net.net, unpack(path), path.name)
    digest = state_dict_sha256(net.net)
    if evaluation["weights_sha256"].get(measured_as) != digest:
        sys.exit(f"{measured_as} was not measured with these weights: evaluate --out, with its blend, first.")
    entry = {
        "base": base,
        "file": path.name,
        "sha256": sha256_of(path),
        "weights_sha256": digest,
        "bytes": path.stat().st_size,
        "recipe": recipe,
        "blend": float(amount or 1),
        "started_from": record["job"]["start"] or None,
        "about": record["about"],
        "steps": record["steps"],
        "seconds": record["seconds"],
        "command": record["metadata"]["command"],
        "commit": record["metadata"]["commit"],
        "hardware": record["metadata"]["hardware"],
        "measured": measured(evaluation, measured_as),
    }
    listed = options.ship_to / MANIFEST.name
    content = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else {"models": {}}
    content["models"] = dict(sorted({**content["models"], name: entry}.items()))
    save(content, listed)
    print(f"shipped {name}: {entry['bytes'] / 1e6:.2f} MB", flush=True)


def measured(evaluation: dict[str, Any], name: str) -> dict[str, Any]:
    """What an evaluation says of one network: clean accuracy and success rates, in percent with one decimal."""
    found: dict[str, Any] = {"data": evaluation["metadata"]["data"], "n": evaluation["metadata"]["n"]}
    for part, content in evaluation.items():
        if part.startswith(("identity", "twelve poses")):
            own = [cell for cell in content if cell["target"] == name]
            rates: dict[str, list[float]] = {}
            for cell in own:
                if cell["n_clean_correct"]:
                    rates.setdefault(cell["attack"], []).append(cell["n_success"] / cell["n_clean_correct"])
                if part.startswith("identity"):
                    found["clean"] = round(100 * cell["n_clean_correct"] / cell["n"], 1)
            if own:
                found[part] = {attack: round(100 * sum(each) / len(each), 1) for attack, each in rates.items()}
        if part.startswith("white-box") and name in content:
            found[part] = round(100 * content[name]["rate"], 1)
    return found


if __name__ == "__main__":
    main()
