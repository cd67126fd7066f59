"""The gain of hardening, and its cost: a network and its hardened version on the same adversarial images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from whorl.attacks import attack
from whorl.data import ImageData, iter_images, open_images
from whorl.errors import WhorlError
from whorl.evaluation import (
    PAPER_POSES,
    Comparison,
    Outcomes,
    Pose,
    Rate,
    compare,
    for_headline,
    holm,
    outcomes,
    rate,
)
from whorl.files import defined, json_text, write_file
from whorl.models import Classifier, load_model
from whorl.models.defended import shipped
from whorl.models.labels import shared_labels
from whorl.progress import Progress, silent
from whorl.runs.networks import device_of
from whorl.runs.plan import chunk_size

ATTACKS = ("fgsm", "pgd", "mim", "dim", "ai-pgd", "ai-mim", "ai-dim", "ai-ram")
Batches = Iterable[tuple[Tensor, Tensor, Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class AttackGain:
    """One attack: how often it fools the original and the hardened network; NaN where undefined.

    Attributes:
        attack: its name.
        identity: success rates at identity, (original, hardened).
        pooled: the same over all poses that have enough images of both; see ``whorl.evaluation.headline``.
        means: the same as unweighted means over all poses, as in the paper's tables.
        change: of the pooled rate from the original to the hardened network, paired by image and corrected for the
            number of attacks (Holm): negative is a gain.
    """

    attack: str
    identity: tuple[Rate, Rate]
    pooled: tuple[Rate, Rate]
    means: tuple[Rate, Rate]
    change: Comparison


@dataclass(frozen=True, kw_only=True)
class HardeningGain:
    """What hardening gained, and what it cost.

    Attributes:
        original: name of the network.
        hardened: name of its hardened version.
        source: name of the network that the images were crafted on.
        n: images.
        poses: how many poses the rates are over.
        clean: accuracy on clean images as they are, (original, hardened), in [0, 1].
        rows: one an attack.
    """

    original: str
    hardened: str
    source: str
    n: int
    poses: int
    clean: tuple[float, float]
    rows: tuple[AttackGain, ...]

    def record(self) -> dict[str, Any]:
        """Everything as plain JSON; rates that are undefined are null."""

        def pair(values: tuple[float, float]) -> dict[str, float]:
            return dict(zip(("original", "hardened"), values, strict=True))

        def rates(both: tuple[Rate, Rate]) -> dict[str, Any]:
            known = (("n", "n"), ("interval", "interval"), ("few", "few"))
            details = {key: [getattr(one, name) for one in both] for key, name in known}
            return {**pair((both[0].value, both[1].value)), **details}

        def row(one: AttackGain) -> dict[str, Any]:
            change = one.change
            tested = {"difference": change.difference, "interval": change.interval, "p_value": change.p_value}
            kinds = {"identity": one.identity, "pooled": one.pooled, "mean": one.means}
            return {**{name: rates(both) for name, both in kinds.items()}, "change": tested}

        content = {
            "original": self.original,
            "hardened": self.hardened,
            "source": self.source,
            "n": self.n,
            "poses": self.poses,
            "clean_accuracy": pair(self.clean),
            "attacks": {one.attack: row(one) for one in self.rows},
        }
        return defined(content)


def measure_gain(
    pair: tuple[Classifier, Classifier],
    source: Classifier,
    batches: Batches,
    *,
    attacks: Sequence[str] = ATTACKS,
    poses: Sequence[Pose] = PAPER_POSES,
    eps: float = 16 / 255,
    seed: int = 0,
    progress: Progress = silent,
) -> HardeningGain:
    """Craft on one network and evaluate on two others, batch by batch.

    Args:
        pair: the undefended network, and its hardened version.
        source: network to craft on; all three on one device.
        batches: (x, y, ids) on that device.
        attacks: names of gradient attacks.
        poses: to take the rates over; the identity is evaluated in any case.
        eps: radius of the ball.
        seed: of the attacks.
        progress: called with how many images are done; how many there are is not known here.
    """
    original, hardened = pair
    evaluated = tuple(dict.fromkeys((Pose(), *poses)))
    if not attacks:
        raise WhorlError("expected at least one attack to compare with, got none.")
    chosen = {name: attack(name, eps=eps) for name in attacks}
    done = 0

    def crafted() -> Iterable[tuple[Tensor, dict[str, Tensor], Tensor, Sequence[str]]]:
        nonlocal done
        for x, y, ids in batches:
            yield x, {name: how(source, x, y, seed=seed, ids=ids) for name, how in chosen.items()}, y, ids
            done += len(x)
            progress("crafting and evaluating", done, done)

    found = outcomes(crafted(), {"original": original, "hardened": hardened}, evaluated)
    clean = [found.counts[next(iter(chosen)), name, Pose()].clean_accuracy for name in found.targets]
    rows = [_attack_gain(found, name, poses) for name in chosen]
    changes = holm({row.attack: row.change for row in rows})
    return HardeningGain(
        original=original.name,
        hardened=hardened.name,
        source=source.name,
        n=len(found.ids),
        poses=len(poses),
        clean=(clean[0], clean[1]),
        rows=tuple(replace(row, change=changes[row.attack]) for row in rows),
    )


def _attack_gain(found: Outcomes, name: str, poses: Sequence[Pose]) -> AttackGain:
    at_identity, posed = (
        tuple(found.counted(name, target, where) for target in found.targets) for where in ([Pose()], poses)
    )
    kept = for_headline(*posed)
    return AttackGain(
        attack=name,
        identity=(rate(at_identity[0]), rate(at_identity[1])),
        pooled=(rate(kept[0]), rate(kept[1])),
        means=(rate(posed[0], "mean"), rate(posed[1], "mean")),
        change=compare(kept[1], kept[0]),
    )


def gain_on_folder(
    pair: tuple[Classifier, Classifier],
    source: Classifier,
    folder: ImageData,
    *,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> HardeningGain:
    """Measure the gain on a folder of labelled images, at the size of the undefended network.

    Args:
        pair: the undefended network, and its hardened version.
        source: network to craft on; all three on one device.
        folder: anything that ``whorl.load_images`` takes.
        limit: take only the first so many.
        seed: of the attacks.
        progress: called with how many images are done.
    """
    device = device_of(source)
    listed = sum(1 for _ in open_images(folder).entries())
    total = listed if limit is None else min(listed, limit)
    labels = shared_labels({net.name: net for net in pair} | {f"the source {source.name}": source})
    images = iter_images(folder, batch_size=chunk_size(device), limit=limit, size=pair[0].size, labels=labels)
    batches = ((x.to(device), y.to(device), ids) for x, y, ids in images)

    def of_total(stage: str, done: int, _: int) -> None:
        progress(stage, done, total)

    return measure_gain(pair, source, batches, seed=seed, progress=of_total)


def shipped_pair(name: str) -> tuple[Classifier, Classifier]:
    """Load a hardened network of whorl, and before it its original.

    Raises:
        WhorlError: it is not one of those.
    """
    hardened = load_model(name)
    entry = shipped().get(hardened.name)
    if entry is None:
        raise WhorlError(
            f"expected a hardened network of whorl to compare with its original, got {name!r}. "
            f"There are: {', '.join(shipped()) or 'none'}. To train one, give --data."
        )
    return load_model(entry.base), hardened


def write_gain(gain: HardeningGain, folder: Path) -> dict[str, Path]:
    """Write ``comparison.html`` and ``comparison.json`` into a folder; give the paths by what they are."""
    files = {"comparison": folder / "comparison.html", "figures": folder / "comparison.json"}
    draw(gain, files["comparison"])
    write_file(files["figures"], json_text(gain.record()))
    return files


def draw(gain: HardeningGain, path: Path) -> None:
    """Draw the comparison as pairs of bars, on a page that opens offline.

    Args:
        gain: what to draw.
        path: an HTML file, which appears whole or not at all.
    """
    from whorl.report import Drawing, bars, write_chart  # needs packages that a training does not

    def pair(rates: tuple[Rate | float, Rate | float]) -> dict[str, Rate | float]:
        return dict(zip((gain.original, gain.hardened), rates, strict=True))

    groups = {
        "clean accuracy": {"as they are": pair(gain.clean)},
        "fooled, as they are": {row.attack: pair(row.identity) for row in gain.rows},
        f"fooled, pooled over {gain.poses} poses": {row.attack: pair(row.pooled) for row in gain.rows},
    }
    title = f"The gain of hardening: {gain.hardened}"
    about = (
        f"{gain.n} images; attacks crafted on {gain.source}. Fooled: success rate, lower is better, with its 95% "
        "interval over images."
    )
    alt = "Bars in pairs, before and after: accuracy on clean images, and the success rate of each attack."
    chart = Drawing(name="comparison", title="Before and after", alt=alt, figure=bars(groups))
    write_chart(path, chart, title=title, about=about)
