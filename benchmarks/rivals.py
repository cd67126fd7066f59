"""The strongest published transfer attacks beside ours, on photographs that chose nothing.

    python benchmarks/rivals.py --data JUDGE --transferattack CLONE --source resnet18 --n 100 --device cuda --half

Rivals of ``rival_candidates`` come from TransferAttack's own code, a git clone, on the same network, images and radii
as ours: as published, and with about 10, 50 and 200 gradients where they can be set. Every target answers for the clean
and the adversarial images, rounded to 8 bits, in the paper's twelve poses, of which one is the image as it is. Backward
passes through the network, whole or in part, are counted for each image: its gradients.

``--targeted`` has targeted attacks instead, towards a class drawn for each image, and whether it is reached.

The outcome of every image, a bit each, is saved after each attack and radius in
``benchmarks/results/rivals-SOURCE.json``, or ``rivals-targeted-SOURCE.json``, as ``held_out.py`` has them; run again,
it goes on where it stopped. ``--only`` takes names as ``rival_candidates`` has them, ``--seconds`` begins nothing after
so long, ``--table`` prints what is saved, ``--table --against ai-best/10`` by how much one is ahead of the others.
``--merge`` puts what was measured into another ``--json`` at the same time beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import held_out
import whorl
from doc_data import HeldOut
from held_out import TARGETS, shuffled
from judge import Data, packed
from measure import HERE, metadata, save
from rival_candidates import Candidate, chosen
from whorl.analysis.calibration import other_networks
from whorl.attacks import Attack
from whorl.evaluation import PAPER_POSES, Predictor, to_8_bits
from whorl.evaluation.image_counts import ImageCounts
from whorl.evaluation.statistics import compare
from whorl.interop.transferattack import package_folder, source_sha256
from whorl.runs.folder import as_json

CLEAN = "clean"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Photographs, what is to become of them, and the networks that answer.

    Attributes:
        data: the photographs.
        goal: (N,) labels to be left, or to be reached.
        targeted: whether they are to be reached.
        predictor: the targets.
        batch: images at a time.
        seed: of the attacks.
    """

    data: Data
    goal: Tensor
    targeted: bool
    predictor: Predictor
    batch: int
    seed: int

    def bits(self, images: Tensor) -> dict[str, np.ndarray]:
        """(poses, N) bool by target: whether the answer is the label, or the class to be reached."""
        poses = dict.fromkeys(self.predictor.targets, PAPER_POSES)
        parts = [
            self.predictor.recognised(images[p], self.goal[p], poses, ids=self.data.ids[p])
            for p in self.data.parts(self.batch)
        ]
        return {
            name: torch.cat([torch.stack([part[name, pose] for pose in PAPER_POSES]) for part in parts], 1).numpy()
            for name in self.predictor.targets
        }

    def crafted(self, attack: Attack, source: nn.Module, size: int) -> tuple[Tensor, dict[str, Any]]:
        """Attack all photographs, ``size`` at a time; give them as 8-bit images, and what they cost."""
        made, seconds = [], []
        spent: list[int | None] = []
        for part in self.data.parts(size):
            began = time.perf_counter()
            y, target = (None, self.goal[part]) if self.targeted else (self.goal[part], None)
            x, ids = self.data.x[part], self.data.ids[part]
            adv, info = attack(source, x, y, target=target, seed=self.seed, ids=ids, return_info=True)
            far = float((adv - x).abs().max())  # waits for the device, too
            assert far <= attack.eps + 1e-5, f"left the ball: {far * 255:.2f}/255"  # type: ignore[attr-defined]
            seconds.append(round(time.perf_counter() - began, 3))
            made.append(to_8_bits(adv))
            spent += [None] * len(adv) if info.grad_evals is None else info.grad_evals.tolist()
        cost = {"gradients": spent if len(set(spent)) > 1 else spent[:1], "seconds": seconds, "batch": size}
        return torch.cat(made), cost


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="class folders of photographs that chose nothing")
    parser.add_argument("--transferattack", default="", help="folder of the clone")
    parser.add_argument("--source", default="resnet18")
    parser.add_argument("--targets", help="names, joined by commas; networks of other families and hardened ones")
    parser.add_argument("--targeted", action="store_true", help="towards a class drawn for each photograph")
    parser.add_argument("--eps", default="16,8", help="of 255, joined by commas")
    parser.add_argument("--n", type=int, default=100, help="first so many of the shuffled photographs")
    parser.add_argument("--size", type=int, default=224, help="side of the images, in pixels")
    parser.add_argument("--only", help="names of candidates, joined by commas")
    parser.add_argument("--list", action="store_true", help="name the candidates and stop")
    parser.add_argument("--table", action="store_true", help="print what is saved and stop")
    parser.add_argument("--merge", type=Path, help="put the attacks of this file into --json and stop")
    parser.add_argument("--against", help="with --table: the lead of this one over each, such as ai-best/10")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--half", action="store_true", help="the targets answer in bfloat16")
    parser.add_argument("--batch", type=int, default=250, help="images at a time; copies of an image count")
    parser.add_argument("--rows", type=int, default=1280, help="most images, copies included, in a pass")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    parser.add_argument("--seed", type=int, default=0, help="of the order, the classes and the attacks")
    parser.add_argument("--json", type=Path, help="where to save, and to go on from")
    options = parser.parse_args(argv)
    kind = "rivals-targeted" if options.targeted else "rivals"
    options.json = options.json or HERE / "results" / f"{kind}-{options.source}.json"
    return options


def classes_drawn(y: Tensor, classes: int, seed: int) -> Tensor:
    """(N,) one class for each image, other than its label: as likely as any other.

    >>> bool((classes_drawn(torch.arange(5), 5, 0) != torch.arange(5)).all())
    True
    """
    steps = np.random.default_rng((seed, 1)).integers(1, classes, len(y))
    return (y + torch.from_numpy(steps).to(y.device)) % classes


def others(source: str) -> list[str]:
    """Plain networks of other families, and all hardened ones.

    >>> others("efficientnet_lite0")[:3]
    ['resnet18', 'mobilenet_v2', 'efficientnet_lite0.ens-at']
    """
    plain = other_networks(source)
    return [name for name in TARGETS if "." in name or name in plain]


def known(saved: Mapping[str, Any], label: str, settings: Any, targets: Sequence[str], n: int) -> bool:
    """Whether a cell is saved for so many photographs, all targets, and the settings that it has now."""
    answers = saved.get("recognised", {})
    there = all(answers.get(target, {}).get(label, {}).get("n", 0) >= n for target in targets)
    return there and saved["settings"].get(label, settings) == settings


def enter(saved: dict[str, Any], label: str, found: Mapping[str, np.ndarray]) -> None:
    """Put the answers of all targets for one kind of images in."""
    for target, bits in found.items():
        saved["recognised"].setdefault(target, {})[label] = {"n": bits.shape[1], "bits": packed(bits)}


def opened(options: argparse.Namespace, judged: Judged, about: dict[str, Any]) -> dict[str, Any]:
    """What is saved of the same photographs, and the clean images' answers."""
    ids, drawn = list(judged.data.ids), judged.goal.tolist() if judged.targeted else None
    saved = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    if saved:
        shorter = min(len(ids), len(saved["ids"]))
        same = saved["ids"][:shorter] == ids[:shorter] and saved["metadata"]["half"] == options.half
        if not same:
            raise SystemExit(f"{options.json} holds other photographs, or another precision; give another --json.")
        before = saved["metadata"]
        earlier = [*before.pop("earlier", []), before]
        about["earlier"] = [one for one in earlier if one["command"] != about["command"]]
    fresh: dict[str, Any] = {"settings": {}, "poses": [], "ids": [], "recognised": {}, "cost": {}}
    saved = {**fresh, **saved, "metadata": about}
    saved["poses"] = [{"angle": p.angle, "scale": p.scale, "shift": list(p.shift)} for p in PAPER_POSES]
    if len(ids) >= len(saved["ids"]):
        saved["ids"] = ids
        if drawn is not None:
            saved["classes"] = drawn
    if not known(saved, CLEAN, None, list(judged.predictor.targets), len(ids)):
        enter(saved, CLEAN, judged.bits(judged.data.x))
    return saved


def measure(options: argparse.Namespace, listed: Mapping[str, Candidate]) -> None:
    """Measure what is not measured yet; save after each cell."""
    began = time.perf_counter()
    device = torch.device(options.device)
    whole = shuffled(options.data, options.size, options.seed, device)
    data = Data(x=whole.x[: options.n], y=whole.y[: options.n], ids=whole.ids[: options.n])
    names = options.targets.split(",") if options.targets else others(options.source)
    targets = {name: whorl.load_model(name, device=device) for name in names}
    source = targets.get(options.source) or whorl.load_model(options.source, device=device)
    goal = classes_drawn(data.y, source.num_classes, options.seed) if options.targeted else data.y
    judged = Judged(
        data=data,
        goal=goal,
        targeted=options.targeted,
        predictor=Predictor(targets, precision="bf16" if options.half else "full"),
        batch=options.batch,
        seed=options.seed,
    )
    about = metadata(
        device,
        data=Path(options.data).resolve().name,
        source=options.source,
        size=options.size,
        seed=options.seed,
        half=options.half,
        clone_sha256=source_sha256(package_folder(options.transferattack)),
        weights_sha256={name: net.weights_sha256 for name, net in targets.items()},
    )
    saved = opened(options, judged, about)
    for eps in options.eps.split(","):
        for name, candidate in listed.items():
            if time.perf_counter() - began > options.seconds:
                print(f"{options.seconds:g} s are over; {name} at {eps} and what follows are not measured")
                return
            label = f"{name}-{eps}"
            try:
                attack = candidate.make(float(eps) / 255)
                if known(saved, label, as_json(attack), names, options.n):
                    continue
                adv, cost = judged.crafted(attack, source, max(1, min(options.batch, options.rows // candidate.copies)))
            except (whorl.WhorlError, torch.OutOfMemoryError, AssertionError) as error:
                print(f"{label}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            enter(saved, label, judged.bits(adv))
            saved["settings"][label], saved["cost"][label] = as_json(attack), cost
            save(saved, options.json)
            print(line(HeldOut(saved), label), flush=True)


def line(found: HeldOut, label: str, against: str | None = None) -> str:
    """A cell in one line: gradients, seconds an image, and mean rates over plain and over hardened targets.

    Args:
        found: what is saved.
        label: attack and radius.
        against: an attack whose lead over this one is shown instead of the rates, with interval and p, paired by image.
    """
    cost, answers = found.data["cost"][label], found.data["recognised"]
    cells = [label] if against is None else [f"{against}-{label.rpartition('-')[2]}", label]
    measured = [target for target in answers if all(cell in answers[target] for cell in cells)]
    there = {
        "plain": [target for target in measured if "." not in target],
        "hardened": [target for target in measured if "." in target],
    }
    images = min((answers[t][c]["n"] for group in there.values() for t in group for c in cells), default=0)
    spent = float(np.mean(cost["gradients"])) if cost["gradients"] != [None] else float("nan")
    own = max(answers[t][label]["n"] for t in answers if label in answers[t])
    parts = [f"{label:24s} {spent:8.1f} gradients {sum(cost['seconds']) / own:8.3f} s an image, n = {images}"]
    for what, identity in (("poses", False), ("as it is", True)):
        shown = []
        for name, group in there.items():
            counts = [found.mean(group, cell, images, identity=identity) for cell in cells] if group else []
            shown += [f"{name} {_said(counts)}"] if counts else []
        parts.append(f"{what}: {', '.join(shown)}")
    return " | ".join(parts)


def _said(counts: Sequence[ImageCounts]) -> str:
    """A rate in percent; or the lead of the first over the second, in points."""
    if len(counts) == 1:
        return f"{100 * counts[0].value('mean'):.1f}"
    apart = compare(counts[0], counts[1], "mean")
    low, high = apart.interval
    return f"{100 * apart.difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}, p {apart.p_value:.2g})"


def merged(into: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """``into`` with every attack that ``new`` has, measured elsewhere on the same photographs; with what they cost.

    Raises:
        WhorlError: as ``held_out.merged`` has it; or precision, clone or drawn classes differ.
    """
    for name in ("half", "clone_sha256"):
        one, other = (data["metadata"][name] for data in (into, new))
        if one != other:
            raise whorl.WhorlError(f"cannot merge: {name} is {one!r} in the one, {other!r} in the other.")
    if into.get("classes") != new.get("classes"):
        raise whorl.WhorlError("cannot merge: the classes to be reached differ.")
    both = held_out.merged(into, new)
    added = both["metadata"]["merged"][-1]["cells"]
    return {**both, "cost": {**into["cost"], **{cell: new["cost"][cell] for cell in added}}}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, or list what there is."""
    options = parse(argv)
    if options.merge:
        files = [json.loads(one.read_text(encoding="utf-8")) for one in (options.json, options.merge)]
        save(merged(*files), options.json)
        return
    listed = chosen(options.only, options.source, options.transferattack, targeted=options.targeted)
    if options.list:
        print("\n".join(listed))
    elif options.table:
        found = HeldOut(json.loads(options.json.read_text(encoding="utf-8")))
        print("\n".join(line(found, label, options.against) for label in found.data["cost"]))
    else:
        measure(options, listed)


if __name__ == "__main__":
    main()
