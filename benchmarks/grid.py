"""How much a grid evaluation saves over the loops that one would write first.

    python benchmarks/grid.py --data NIPS17_FOLDER --device cuda

Twelve attacks (as many as the paper's table 6 has rows), its twelve poses, three targets, images on disk. Three ways,
which must count the same:

- naive: for each attack, pose and target, for each image: read both versions, warp them, predict;
- naive, in batches: the same loops, a batch of images at a time;
- whorl: ``whorl.runs.scores.evaluate_folders``, one pass in which every image is read once, warped once a pose,
  and the clean side is shared by all attacks.

A whole evaluation takes long, so the median is of three rounds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import whorl
from measure import headline, metadata, parser, save, settle, table
from whorl.bench.clock import Timing, significant, take_turns
from whorl.data import load_image, save_image
from whorl.evaluation import PAPER_POSES, Pose, SuccessRate
from whorl.runs.networks import Target
from whorl.runs.pairs import PairedImages
from whorl.runs.scores import evaluate_folders

ROUNDS = 3
TARGETS = ("resnet18", "mobilenet_v2", "efficientnet_lite0")
# What the images show does not matter here, so they are the cheapest to craft.
ATTACKS = {
    f"{name}-{eps}": whorl.attack(name, eps=eps / 255)
    for name in ("fgsm", "ti-fgsm", "ai-fgsm")
    for eps in (2, 4, 8, 16)
}
_BATCH = {"cpu": 8, "cuda": 64}

Counts = dict[tuple[str, str, Pose], SuccessRate]


class Files:
    """Clean images and their adversarial versions on disk, and the networks to evaluate."""

    def __init__(self, folder: Path, images: whorl.data.Images, targets: Sequence[str], device: torch.device) -> None:
        self.device, self.clean, x = device, folder / "clean", images.x.to(device)
        self.labels = {f"{label}/{name}": label for label, name in zip(images.y.tolist(), images.ids, strict=True)}
        for name, image in zip(self.labels, images.x, strict=True):
            save_image(self.clean / f"{name}.png", image)
        source = whorl.load_model(targets[0], device=device)
        self.attacks = {name: folder / "adv" / name for name in ATTACKS}
        for name, place in self.attacks.items():
            adversarial = ATTACKS[name](source, x, images.y, ids=images.ids).cpu()
            for image_name, image in zip(self.labels, adversarial, strict=True):
                save_image(place / f"{image_name}.png", image)
        self.targets = {name: whorl.load_model(name, device=device) for name in targets}

    def _read(self, folder: Path, names: Sequence[str]) -> torch.Tensor:
        return torch.stack([load_image(folder / f"{name}.png") for name in names]).to(self.device)

    @torch.no_grad()
    def naive(self, batch: int, poses: Sequence[Pose]) -> Counts:
        """The loops that one would write first."""
        counts: Counts = {}
        names = list(self.labels)
        for attack, place in self.attacks.items():
            for pose in poses:
                for target, net in self.targets.items():
                    for i in range(0, len(names), batch):
                        some = names[i : i + batch]
                        y = torch.tensor([self.labels[name] for name in some], device=self.device)
                        clean, adversarial = (
                            net(pose.apply(self._read(folder, some))).argmax(1) for folder in (self.clean, place)
                        )
                        cell = (attack, target, pose)
                        counted = SuccessRate.of(clean=clean, adversarial=adversarial, y=y)
                        counts[cell] = counts.get(cell, SuccessRate()) + counted
        return counts

    def whorl(self, batch: int, poses: Sequence[Pose]) -> Counts:
        """One pass."""
        pairs = PairedImages(self.clean, list(self.attacks.values()), device=self.device, batch_size=batch)
        targets = [Target(model=name, net=net) for name, net in self.targets.items()]
        done = evaluate_folders(pairs, targets, poses=poses)
        return {(cell.attack, cell.target, cell.pose): cell.counts for cell in done.cells}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    made.add_argument("--data", help="labelled images; the bundled samples without it")
    made.add_argument("--limit", type=int, default=4, help="first images only")
    made.add_argument("--size", type=int, default=224, help="side in pixels")
    options = settle(made, argv, "grid")
    limit = 2 if options.quick else options.limit
    images = (
        whorl.load_images(options.data, limit=limit, size=options.size)
        if options.data
        else whorl.load_samples(limit, size=options.size)
    )
    targets, poses = (TARGETS[1:2], PAPER_POSES[:2]) if options.quick else (TARGETS, PAPER_POSES)
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder), images, targets, options.device)
        batch = _BATCH[options.device.type]
        ways: dict[str, Callable[[], Counts]] = {
            "naive": lambda: files.naive(1, poses),
            "naive, in batches": lambda: files.naive(batch, poses),
            "whorl": lambda: files.whorl(batch, poses),
        }
        found = {name: way() for name, way in ways.items()}
        different = sum(found["naive"][cell] != found["whorl"][cell] for cell in found["naive"])
        timed, _ = take_turns(ways, device=options.device, warmup=0, repeats=ROUNDS)
    report(timed, different, options, n=len(images.ids), poses=len(poses), targets=targets)


def report(timed: dict[str, Timing], different: int, options: Any, **settings: Any) -> None:
    """Print and save."""
    ours = timed["whorl"].median_ms
    rows: list[dict[str, Any]] = [
        {"way": name, **asdict(timing), "times_whorl": significant(timing.median_ms / ours)}
        for name, timing in timed.items()
    ]
    about = metadata(
        options.device,
        quick=options.quick,
        repeats=ROUNDS,
        data=Path(options.data).name if options.data else "samples",
        size=options.size,
        attacks=list(ATTACKS),
        cells_that_differ=different,  # float32 rounding in batches of another size can tip a close call
        **settings,
    )
    print(headline(about))
    shown = [[str(row["way"]), f"{row['median_ms'] / 1e3:.2f}", f"{row['times_whorl']:.2f}"] for row in rows]
    print(table(["way", "seconds", "times whorl's"], shown))
    print(f"{different} cells counted differently")
    if options.json:
        save({"metadata": about, "results": rows}, options.json)


if __name__ == "__main__":
    main()
