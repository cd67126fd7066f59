"""Time of the attacks on ResNet-18, beside the same attacks of torchattacks and foolbox where those can be imported.

Example:
    python benchmarks/attacks.py --device cuda

Same network, batch, precision, eps, step size and steps for all, in turns. "peer/ours" above 1: ours is faster.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from measure import Timing, headline, metadata, parser, save, settle, significant, table, time_together
from whorl.models.architectures import build
from whorl.models.classifier import Classifier

OURS = ("fgsm", "pgd", "mim", "dim", "ti-dim", "ai-dim", "eot", "ram", "ai-ram")
# Pictures, their side, steps, and the draws a step of eot (50 in the preset).
SIZES: Mapping[str, tuple[int, int, int, int]] = {
    "cpu": (2, 224, 10, 3),
    "cuda": (64, 224, 10, 5),
    "quick": (2, 32, 2, 2),
}
EPS = 16 / 255
WHORL = "whorl"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What all attacks are given."""

    model: Classifier
    x: Tensor
    y: Tensor
    steps: int
    draws: int

    @property
    def alpha(self) -> float:
        """The step size of iterative attacks."""
        return 5 * EPS / self.steps


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One attack of one library, ready to run.

    Attributes:
        attack: name of ours that it is compared with.
        library: where it comes from.
        name: what it is called there.
        run: attacks the task's batch.
        gradients: input gradients that it takes of each picture.
        note: how its work differs from ours.
    """

    attack: str
    library: str
    name: str
    run: Callable[[], Tensor]
    gradients: int
    note: str = ""


def our_entries(task: Task) -> list[Entry]:
    """List our attacks."""
    entries = []
    for name in OURS:
        settings: dict[str, Any] = {} if name == "fgsm" else {"steps": task.steps, "alpha": task.alpha}
        settings |= {"samples": task.draws} if name == "eot" else {}
        attack = whorl.attack(name, eps=EPS, **settings)
        note = f"{task.draws} draws a step, {task.steps} steps; the preset has 50 and 50" if name == "eot" else ""
        gradients = (1 if name == "fgsm" else task.steps) * settings.get("samples", 1)

        def run(attack: whorl.Attack = attack) -> Tensor:
            return attack(task.model, task.x, task.y)

        entries.append(Entry(attack=name, library=WHORL, name=name, run=run, gradients=gradients, note=note))
    return entries


def torchattacks_entries(library: Any, task: Task) -> list[Entry]:
    """List what torchattacks has of the same."""
    steps: dict[str, Any] = {"eps": EPS, "alpha": task.alpha, "steps": task.steps}
    # At 0.9 the network sees pictures of the size it sees from us; at 1.1 it would see 1.2 times the pixels.
    diverse = {"decay": 1.0, "resize_rate": 0.9, "diversity_prob": 0.7}
    batchwise = "diverse input by shrinking to 0.9 and padding back, one draw for the whole batch"
    both = f"always runs diverse input too, so it stands beside ti-dim; {batchwise}"
    listed: list[tuple[str, str, dict[str, Any], str]] = [
        ("fgsm", "FGSM", {"eps": EPS}, ""),
        ("pgd", "PGD", steps, "random start from the global generator, not by image"),
        ("mim", "MIFGSM", steps | {"decay": 1.0}, ""),
        ("dim", "DIFGSM", steps | diverse, batchwise),
        ("ti-dim", "TIFGSM", steps | diverse, both),
    ]
    entries = []
    for attack, name, settings, note in listed:
        made = getattr(library, name)(task.model, **settings)

        def run(made: Any = made) -> Tensor:
            adv: Tensor = made(task.x, task.y)
            return adv

        gradients = settings.get("steps", 1)
        entries.append(Entry(attack=attack, library="torchattacks", name=name, run=run, gradients=gradients, note=note))
    return entries


def foolbox_entries(library: Any, task: Task) -> list[Entry]:
    """List what foolbox has of the same, without the forward pass that its attacks end with to report success."""
    model = library.PyTorchModel(task.model, bounds=(0, 1), device=task.x.device)
    criterion = library.criteria.Misclassification(task.y)
    steps = {"steps": task.steps, "abs_stepsize": task.alpha}
    listed: list[tuple[str, str, dict[str, Any], str]] = [
        ("fgsm", "LinfFastGradientAttack", {}, ""),
        ("pgd", "LinfProjectedGradientDescentAttack", steps, "random start from the global generator, not by image"),
        ("mim", "LinfMomentumIterativeFastGradientMethod", steps | {"momentum": 1.0}, "accumulates signs: less work"),
    ]
    entries = []
    for attack, name, settings, note in listed:
        made = getattr(library.attacks, name)(**settings)

        def run(made: Any = made) -> Tensor:
            adv: Tensor = made.run(model, task.x, criterion, epsilon=EPS)
            return adv

        gradients = settings.get("steps", 1)
        entries.append(Entry(attack=attack, library="foolbox", name=name, run=run, gradients=gradients, note=note))
    return entries


PEERS: Mapping[str, Callable[[Any, Task], list[Entry]]] = {
    "torchattacks": torchattacks_entries,
    "foolbox": foolbox_entries,
}


def peer_entries(task: Task) -> tuple[list[Entry], dict[str, str], dict[str, str]]:
    """List the peers' attacks.

    Returns:
        Entries; the version of each library that is there; why each of the others is not.
    """
    entries: list[Entry] = []
    versions, missing = {}, {}
    for name, listed in PEERS.items():
        try:
            library = import_module(name)
            entries += listed(library, task)
            versions[name] = str(getattr(library, "__version__", "unknown"))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a peer, it must not stop the rest
            missing[name] = _reason(error)
    return entries, versions, missing


def _reason(error: Exception) -> str:
    """Say in one line what went wrong; of a path only the last name, as its place means nothing elsewhere."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {re.sub(r'(?<![^ (])/[^ )]*/', '', line)}"


def prepare(device: torch.device, batch: int, side: int, steps: int, draws: int) -> Task:
    """Make the network and the batch."""
    torch.manual_seed(0)
    net, given = build("torchvision:resnet18")
    model = Classifier(net, size=side, mean=given.mean, std=given.std, num_classes=1000, name="resnet18").to(device)
    x = torch.rand(batch, 3, side, side).to(device)
    with torch.no_grad():
        # Any label but the answer: random weights are so sure of that one that its gradient vanishes.
        y = (model(x).argmax(1) + 1) % 1000
    return Task(model=model, x=x, y=y, steps=steps, draws=draws)


def passes(entry: Entry, task: Task) -> float:
    """Run an attack once, check its result, and count what the network had to see, in units of the batch."""
    seen = 0

    def count(_: nn.Module, arguments: tuple[Tensor]) -> None:
        nonlocal seen
        seen += arguments[0].numel()

    hook = task.model.net.register_forward_pre_hook(count)
    try:
        adv = entry.run()
    finally:
        hook.remove()
    moved = float((adv - task.x).abs().amax())
    if not (0.5 * EPS < moved <= EPS + 1e-6 and float(adv.amin()) >= 0 and float(adv.amax()) <= 1):
        raise RuntimeError(f"{entry.library} {entry.name} moved pixels by {moved:.4f}; eps is {EPS:.4f}.")
    return seen / task.x.numel()


def bare_gradient(task: Task) -> Callable[[], Tensor]:
    """Take one input gradient and nothing else: the floor under every attack."""

    def gradient() -> Tensor:
        leaf = task.x.detach().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(task.model(leaf), task.y, reduction="sum"), leaf)[0]

    return gradient


def measure(task: Task, entries: Sequence[Entry], repeats: int) -> tuple[list[Any], dict[str, str]]:
    """Time all entries in turns.

    Returns:
        One record an entry; why each peer's attack that failed did.
    """
    counted, failed = {}, {}
    for entry in entries:
        key = f"{entry.library} {entry.name}"
        try:
            counted[key] = (entry, passes(entry, task))
        except Exception as error:  # a peer may fail in any way; only our own failure ends the run
            if entry.library == WHORL:
                raise
            failed[key] = _reason(error)
    print(f"{tuple(task.x.shape)}: {len(counted)} attacks, {repeats} rounds", file=sys.stderr)
    bare = "bare gradient"
    calls = {bare: bare_gradient(task)} | {key: entry.run for key, (entry, _) in counted.items()}
    timings = time_together(calls, device=task.x.device, warmup=1, repeats=repeats, queued=False)
    floor = timings[bare]
    rows: list[Any] = [{"attack": None, "library": None, "name": bare, **floor.record(), **rates(floor, task, 1)}]
    for key, (entry, seen) in counted.items():
        timing, ours = timings[key], timings[f"{WHORL} {entry.attack}"]
        ratios = {"bare_gradients": significant(timing.median / (entry.gradients * floor.median))}
        if entry.library != WHORL:
            ratios["ours"] = significant(timing.median / ours.median)
        rows.append(
            {
                "attack": entry.attack,
                "library": entry.library,
                "name": entry.name,
                **timing.record(),
                **rates(timing, task, entry.gradients),
                "network_passes": significant(seen),
                "ratios": ratios,
                "note": entry.note,
            }
        )
    return rows, failed


def rates(timing: Timing, task: Task, gradients: int) -> dict[str, float | int]:
    """Say per picture and per gradient what a whole batch took."""
    batch = len(task.x)
    return {
        "gradients": gradients,
        "seconds_per_image": significant(timing.median / batch),
        "gradients_per_second": significant(batch * gradients / timing.median),
    }


def show(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay results out as a table, each of ours followed by its peers, and say what differs."""
    titles = ["", "median ms", "p10 to p90", "s/image", "gradients/s", "passes", "x gradients", "peer/ours"]
    floor, *rest = rows
    rest.sort(key=lambda row: OURS.index(row["attack"]))  # stable, so ours stays first
    lines, notes = [], []
    for row in [floor, *rest]:
        ratios = row.get("ratios", {})
        peer = row["library"] not in (None, WHORL)
        label = f"  {row['library']} {row['name']}" if peer else row["name"]
        lines.append(
            [
                label,
                f"{row['median_ms']:.4g}",
                f"{row['p10_ms']:.4g} to {row['p90_ms']:.4g}",
                f"{row['seconds_per_image']:.3g}",
                f"{row['gradients_per_second']:.4g}",
                f"{row.get('network_passes', 1):.4g}",
                f"{ratios.get('bare_gradients', 1):.3f}",
                f"{ratios['ours']:.3f}" if peer else "",
            ]
        )
        if row.get("note"):
            notes.append(f"- {label.strip()}: {row['note']}.")
    legend = [
        "- passes: what the network saw, in batches of the given size; equal means equal work.",
        "- x gradients: time over that of as many bare input gradients of the same batch.",
    ]
    return "\n".join([table(titles, lines), "", *legend, *notes])


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    made.add_argument("--batch", type=int, help="pictures (default: 2 on a CPU, 64 on a GPU)")
    made.add_argument("--size", type=int, help="side of the pictures (default: 224)")
    made.add_argument("--steps", type=int, help="steps of the iterative attacks (default: 10)")
    arguments = settle(made, argv, "attacks")
    device = arguments.device
    batch, side, steps, draws = SIZES["quick" if arguments.quick else device.type]
    batch, side, steps = arguments.batch or batch, arguments.size or side, arguments.steps or steps
    task = prepare(device, batch, side, steps, draws)
    peers, versions, missing = peer_entries(task)
    settings = {"batch": batch, "size": side, "steps": steps, "eps": EPS, "alpha": task.alpha, "dtype": "float32"}
    about = metadata(device, quick=arguments.quick, repeats=arguments.repeats, peers=versions, **settings)
    print(headline(about))
    print(f"ResNet-18 (random weights), {batch} pictures of {side}x{side}, fp32, eps 16/255, {steps} steps")
    rows, failed = measure(task, [*our_entries(task), *peers], arguments.repeats)
    print(f"\n{show(rows)}")
    for name, reason in (missing | failed).items():
        print(f"- not measured: {name} ({reason}).")
    if arguments.json:
        save({"benchmark": "attacks", "metadata": about, "missing": missing | failed, "rows": rows}, arguments.json)


if __name__ == "__main__":
    main()
