"""Crafting on a source, and evaluating on networks of other families in every pose."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from frontier_candidates import Make
from judge import Data
from whorl.attacks import Attack
from whorl.evaluation import Outcomes, Pose, Predictor, mean_rate, to_8_bits

_IT = "the candidate"


class Judge:
    """Targets that have seen the clean images in every pose once, and evaluate any number of attacks."""

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
        self.predictor = Predictor(targets, precision="bf16" if half else "full")
        self.clean, _ = self._predict(data.x)

    def _predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each image is recognised, and how far the best other class is above the label.

        Returns:
            Both (targets, poses, N), on the CPU.
        """
        right, margins = [], []
        poses = dict.fromkeys(self.targets, tuple(self.poses))
        for part in self.data.parts(self.batch_size):
            found = self.predictor.margins(x[part], self.data.y[part], poses, ids=self.data.ids[part])
            cells = [found[name, pose] for name in self.targets for pose in self.poses]
            right.append(torch.stack([cell[0] for cell in cells]))
            margins.append(torch.stack([cell[1] for cell in cells]))
        shape = (len(self.targets), len(self.poses))
        return torch.cat(right, 1).unflatten(0, shape), torch.cat(margins, 1).unflatten(0, shape)

    def evaluate(self, adversarial: Tensor, fresh: int = 0) -> dict[str, Any]:
        """Mean success over the poses for each target and over the targets, in percent.

        Args:
            adversarial: (N, C, H, W); rounded to 8 bits first.
            fresh: leave so many images at the beginning out.

        Returns:
            ``mean``, ``targets``, and ``soft``: the mean of sigmoid(margin) instead of margin > 0, which tells
            candidates apart on fewer images. ``fooled`` and ``known``: for each target and image, in how many poses
            it succeeds, and in how many the target knows the clean image, so that candidates can be compared image
            by image.
        """
        right, margins = self._predict(to_8_bits(adversarial))
        kept = self.clean.clone()
        kept[:, :, :fresh] = False
        done = Outcomes(
            ids=tuple(self.data.ids),
            attacks=(_IT,),
            targets=tuple(self.targets),
            poses=tuple(self.poses),
            clean=kept,
            adversarial=right[None],
        )
        rates = {name: 100 * mean_rate(done.counts[_IT, name, pose] for pose in done.poses) for name in done.targets}
        by_pose = {
            str(pose): 100 * mean_rate(done.counts[_IT, name, pose] for name in done.targets) for pose in done.poses
        }
        # A pose in which a target knows no image has no rate: 0/0, which the mean leaves out.
        soft = (torch.sigmoid(margins) * kept).sum(-1) / kept.sum(-1) * 100
        return {
            "mean": sum(rates.values()) / len(rates),
            "targets": rates,
            "soft": float(soft.nanmean(1).mean()),
            "poses": by_pose,
            "fooled": dict(zip(self.targets, done.success[0].sum(1).tolist(), strict=True)),
            "known": dict(zip(self.targets, kept.sum(1).tolist(), strict=True)),
        }


def craft(attack: Attack, source: nn.Module, data: Data, *, batch_size: int, seed: int) -> tuple[Tensor, int]:
    """Attack all images; give them and the gradients spent on each."""
    made, spent = [], None
    for part in data.parts(batch_size):
        adv, info = attack(source, data.x[part], data.y[part], seed=seed, ids=data.ids[part], return_info=True)
        made.append(adv)
        if spent is None and info.grad_evals is not None:
            spent = int(info.grad_evals[0])
    if spent is None:
        # A library that attacks copies of a batch in one pass is counted on a single image.
        alone, first = attack.with_(batched=False), slice(0, 1)
        _, info = alone(source, data.x[first], data.y[first], seed=seed, ids=data.ids[first], return_info=True)
        spent = int(info.grad_evals[0]) if info.grad_evals is not None else 0
    return torch.cat(made), spent


def measure(
    make: Make, eps: Sequence[float], source: nn.Module, judge: Judge, *, batch_size: int, seed: int, fresh: int = 0
) -> dict[str, Any]:
    """Craft at every eps and evaluate on the targets; one record."""
    data, began = judge.data, time.perf_counter()
    record: dict[str, Any] = {"settings": repr(make(eps[0] / 255)), "eps": {}}
    crafting = 0.0
    for value in eps:
        start, attack = time.perf_counter(), make(value / 255)
        adv, record["gradients"] = craft(attack, source, data, batch_size=batch_size, seed=seed)
        far = float((adv - data.x).abs().max())
        assert far <= value / 255 + 1e-5, f"left the ball: {far * 255:.2f}/255"
        crafting += time.perf_counter() - start
        record["eps"][f"{value:g}"] = {**judge.evaluate(adv), "settings": repr(attack)}
        if fresh:
            record["eps"][f"{value:g}"]["fresh"] = judge.evaluate(adv, fresh)
    record["seconds_crafting"] = round(crafting, 2)
    record["seconds"] = round(time.perf_counter() - began, 2)
    return record


def joined(done: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Add what was measured at other eps to a record."""
    if done is None or done["gradients"] != more["gradients"]:
        return dict(more)
    spent = {key: round(done[key] + more[key], 2) for key in ("seconds_crafting", "seconds")}
    return {**done, **spent, "eps": {**done["eps"], **more["eps"]}}
