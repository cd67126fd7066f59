"""Red and green examples: what a network says of a few images, plain and attacked, in every pose."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from whorl.data import Images
from whorl.models.zoo import find_device
from whorl.paper.item import Item
from whorl.report.sheet import Panel, Tile, draw
from whorl.runs.experiment import Done
from whorl.runs.folder import RunFolder
from whorl.runs.networks import Networks, split_target

EXAMPLES = 4
CLEAN = "clean"
_BATCH = 16


@torch.no_grad()
def draw_gallery(
    item: Item, done: Done, path: str | Path, *, device: str = "auto", examples: int = EXAMPLES
) -> list[str]:
    """Draw the examples of a gallery as a PNG file.

    Shown are the first images that the target recognises clean in every pose, whatever the attacks make of them. If
    there are too few, those follow that it recognises in most poses.

    Args:
        item: a gallery.
        done: what came of running its declaration.
        path: the file.
        device: "auto", "cpu", "cuda" or "cuda:1".
        examples: how many images to show, at most.

    Returns:
        The ids of the images that are shown.
    """
    declared = done.declaration
    [source], [target] = declared.sources, declared.targets
    networks = Networks(find_device(device), declared.seed)
    net, labels = networks.target(target), networks.model(split_target(target)[0]).labels
    folder, eps = RunFolder(done.folder), next(cell.eps for cell in done.cells)
    poses = {shown.label: shown.pose for shown in item.poses}
    panels, shown = [], []
    for picture in _best_recognised(item, done, net, networks.device, examples):
        versions = {CLEAN: picture.x}
        versions |= {spec.title: folder.load(spec.title, source, picture.ids) for spec in declared.attacks}
        truth, rows = int(picture.y), {}
        for name, x in versions.items():
            seen = torch.cat([pose.apply(x.to(networks.device)) for pose in poses.values()])
            tiles = _tiles(net(seen).softmax(1), seen, labels, truth)
            rows[name] = (_change(x, picture.x, eps) if name != CLEAN else None, *tiles)
        panels.append(Panel(name=labels[truth], rows=rows))
        shown += picture.ids
    draw(
        panels,
        Path(path),
        title=f"{item.title}: crafted on {source}, shown to {target}",
        subtitle="The first images that it recognises clean in every pose, or in most.",
        columns=("perturbation", *poses),
    )
    return shown


def _best_recognised(item: Item, done: Done, net: nn.Module, device: torch.device, examples: int) -> list[Images]:
    """The images that the network gets right in most poses, the earlier before the later, one by one."""
    data, used = done.declaration.data, set(done.ids)
    best: list[tuple[int, Images]] = []
    for batch in data.batches(_BATCH):
        x, y = batch.x.to(device), batch.y.to(device)
        missed = torch.stack([net(pose.apply(x)).argmax(1) != y for pose in item.all_poses()]).sum(0).tolist()
        best += [
            (missed[i], Images(batch.x[i : i + 1], batch.y[i : i + 1], [name]))
            for i, name in enumerate(batch.ids)
            if name in used
        ]
        best = sorted(best, key=lambda one: one[0])[:examples]  # a stable sort, so the order of the data set holds
        if len(best) == examples and not best[-1][0]:
            break
    return [picture for _, picture in best]


def _tiles(probabilities: Tensor, seen: Tensor, labels: tuple[str, ...], truth: int) -> list[Tile]:
    sure, answers = (part.tolist() for part in probabilities.max(1))
    return [
        Tile(picture=view, caption=f"{labels[answer]} {share:.0%}", fooled=answer != truth)
        for view, answer, share in zip(seen.cpu(), answers, sure, strict=True)
    ]


def _change(x: Tensor, clean: Tensor, eps: float | None) -> Tile:
    """The perturbation around grey: a pixel changed by eps is black or white."""
    change = x[0] - clean[0]
    reach = eps or float(change.abs().max()) or 1.0
    return Tile(picture=change / (2 * reach) + 0.5)
