"""Queries a second of the score-based attacks: batched over images, image by image, and beside peers.

Example:
    python benchmarks/queries.py --device cuda

Every variant attacks the same images with the same number of random queries a step, on a network that does not give
way, in turns. A query is an image that the network saw, counted by the network. "ours/this" above 1: our batch is
faster.

- batched: whorl as it is, all images together.
- image by image: the same attack in a loop over the images; the queries of one image still go together.
- query by query: the same with one image a pass, as against a service that takes one at a time.
- peers: SPSA of torchattacks and of CleverHans (``pip install --no-deps``), where they can be imported. Neither checks
  for success or stops early. ART and foolbox have neither NES nor SPSA.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from measure import headline, metadata, parser, save, settle, table
from whorl.bench.clock import significant, take_turns
from whorl.bench.peers import TimedCall, reason
from whorl.models.architectures import build
from whorl.models.classifier import Classifier

# Images, their side, random queries a step, steps.
SIZES: Mapping[str, tuple[int, int, int, int]] = {
    "cpu": (4, 96, 20, 1),
    "cuda": (16, 224, 20, 1),
    "quick": (2, 32, 4, 1),
}
# So small that no image ever gives way, and every variant does all its work.
EPS = 1e-5
WHORL = "whorl"
BATCHED, BY_IMAGE, BY_QUERY = "batched", "image by image", "query by query"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What all variants are given."""

    model: Classifier
    x: Tensor
    y: Tensor
    samples: int
    steps: int


def named(call: TimedCall) -> str:
    """What a way to make the queries is distinguished by."""
    return f"{call.library} {call.attack} {call.name}"


def our_entries(task: Task) -> list[TimedCall]:
    """NES and SPSA, batched and in loops."""
    # A check of the start, and a gradient and a check for each step.
    budget = 1 + task.steps * (task.samples + 1)
    entries = []
    for name in ("nes", "spsa"):
        made = whorl.attack(name, eps=EPS, samples=task.samples, budget=budget)

        def batched(made: whorl.Attack = made) -> Tensor:
            return made(task.model, task.x, task.y)

        def by_image(made: whorl.Attack = made) -> Tensor:
            pairs = zip(task.x.split(1), task.y.split(1), strict=True)
            return torch.cat([made(task.model, x, y) for x, y in pairs])

        def by_query(made: whorl.Attack = made) -> Tensor:
            return by_image(made.with_(chunk=1))

        for kind, run in ((BATCHED, batched), (BY_IMAGE, by_image), (BY_QUERY, by_query)):
            entries.append(TimedCall(attack=name, library=WHORL, name=kind, run=run))
    return entries


def torchattacks_entries(library: Any, task: Task) -> list[TimedCall]:
    """Its SPSA takes whole batches."""
    made = library.SPSA(
        task.model,
        eps=EPS,
        delta=1e-3,
        lr=EPS / 10,
        nb_iter=task.steps,
        nb_sample=task.samples // 2,
        max_batch_size=task.samples // 2,
    )

    def run() -> Tensor:
        adv: Tensor = made(task.x, task.y)
        return adv

    note = "one sign for the three channels of a pixel; no check for success"
    return [TimedCall(attack="spsa", library="torchattacks", name="SPSA", run=run, note=note)]


def cleverhans_entries(library: Any, task: Task) -> list[TimedCall]:
    """Its SPSA takes one image after the other."""

    def run() -> Tensor:
        settings = {"delta": 1e-3, "learning_rate": EPS / 10, "spsa_samples": task.samples // 2, "spsa_iters": 1}
        with torch.no_grad():
            adv: Tensor = library.spsa(
                task.model, task.x, EPS, task.steps, clip_min=0.0, clip_max=1.0, y=task.y, **settings
            )
        return adv

    return [TimedCall(attack="spsa", library="cleverhans", name="spsa", run=run, note="loops over images by itself")]


PEERS: Mapping[str, tuple[str, Callable[[Any, Task], list[TimedCall]]]] = {
    "torchattacks": ("torchattacks", torchattacks_entries),
    "cleverhans": ("cleverhans.torch.attacks.spsa", cleverhans_entries),
}


def peer_entries(task: Task) -> tuple[list[TimedCall], dict[str, str], dict[str, str]]:
    """List the peers that are there, their versions, and why the others are not."""
    entries: list[TimedCall] = []
    versions, missing = {}, {}
    for name, (module, make) in PEERS.items():
        try:
            entries += make(import_module(module), task)
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
        except Exception as error:  # noqa: BLE001 - a peer may fail to import in any way
            missing[name] = reason(error)
    return entries, versions, missing


def prepare(device: torch.device, batch: int, side: int, samples: int, steps: int) -> Task:
    """Make the network and the images."""
    torch.manual_seed(0)
    net, given = build("timm:efficientnet_lite0")
    model = Classifier(net, size=side, mean=given.mean, std=given.std, num_classes=1000, name="lite0").to(device)
    x = torch.rand(batch, 3, side, side).to(device)
    with torch.no_grad():
        y = model(x).argmax(1)
    return Task(model=model, x=x, y=y, samples=samples, steps=steps)


def queries(entry: TimedCall, task: Task) -> int:
    """Run once, check the result, and count the images that the network saw."""
    seen = 0

    def count(_: nn.Module, arguments: tuple[Tensor]) -> None:
        nonlocal seen
        seen += len(arguments[0])

    hook = task.model.net.register_forward_pre_hook(count)
    try:
        adv = torch.as_tensor(entry.run())
    finally:
        hook.remove()
    if adv.shape != task.x.shape or float((adv - task.x).abs().max()) > 2 * EPS:
        raise RuntimeError(f"{named(entry)} left the ball.")
    expected = len(task.x) * task.steps * task.samples
    if not 0.8 * expected <= seen <= 1.5 * expected:
        raise RuntimeError(f"{named(entry)} made {seen} queries; expected about {expected}.")
    return seen


def measure(task: Task, entries: Sequence[TimedCall], repeats: int) -> tuple[list[Any], dict[str, str]]:
    """Time all entries in turns: one record an entry, and why each peer's that failed did."""
    counted, failed = {}, {}
    for entry in entries:
        try:
            counted[named(entry)] = (entry, queries(entry, task))
        except Exception as error:  # a peer may fail in any way; only our own failure ends the run
            if entry.library == WHORL:
                raise
            failed[named(entry)] = reason(error)
    print(f"{tuple(task.x.shape)}: {len(counted)} variants, {repeats} rounds", file=sys.stderr)
    calls = {key: entry.run for key, (entry, _) in counted.items()}
    timings, _ = take_turns(calls, device=task.x.device, repeats=repeats)
    rates = {key: 1e3 * seen / timings[key].median_ms for key, (_, seen) in counted.items()}
    rows = []
    for key, (entry, seen) in counted.items():
        ours = rates[f"{WHORL} {entry.attack} {BATCHED}"]
        rows.append(
            {
                "attack": entry.attack,
                "library": entry.library,
                "name": entry.name,
                **asdict(timings[key]),
                "queries": seen,
                "queries_per_second": significant(rates[key]),
                "ours_over_this": significant(ours / rates[key]),
                "note": entry.note,
            }
        )
    return rows, failed


def show(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay results out as a table, and say what differs."""
    lines = [
        [
            f"{row['attack']}  {row['library']} {row['name']}",
            f"{row['median_ms']:.4g}",
            f"{row['p10_ms']:.4g} to {row['p90_ms']:.4g}",
            str(row["queries"]),
            f"{row['queries_per_second']:.4g}",
            f"{row['ours_over_this']:.3f}",
        ]
        for row in rows
    ]
    notes = [f"- {row['library']} {row['name']}: {row['note']}." for row in rows if row["note"]]
    titles = ["", "median ms", "p10 to p90", "queries", "queries/s", "ours/this"]
    return "\n".join([table(titles, lines), "", *notes])


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    made.add_argument("--batch", type=int, help="images")
    made.add_argument("--size", type=int, help="side of the images")
    made.add_argument("--samples", type=int, help="random queries a step, even")
    arguments = settle(made, argv, "queries")
    device = arguments.device
    batch, side, samples, steps = SIZES["quick" if arguments.quick else device.type]
    batch, side, samples = arguments.batch or batch, arguments.size or side, arguments.samples or samples
    task = prepare(device, batch, side, samples, steps)
    peers, versions, missing = peer_entries(task)
    settings = {"batch": batch, "size": side, "samples": samples, "steps": steps, "dtype": "float32"}
    about = metadata(device, quick=arguments.quick, repeats=arguments.repeats, peers=versions, **settings)
    print(headline(about))
    print(f"EfficientNet-Lite0 (random weights), {batch} images of {side}x{side}, {samples} queries a step")
    rows, failed = measure(task, [*our_entries(task), *peers], arguments.repeats)
    print(f"\n{show(rows)}")
    for name, why in (missing | failed).items():
        print(f"- not measured: {name} ({why}).")
    if arguments.json:
        save({"benchmark": "queries", "metadata": about, "missing": missing | failed, "rows": rows}, arguments.json)


if __name__ == "__main__":
    main()
