"""Whether a network and its images are fit to be judged: whatever would make a verdict untrustworthy is an error."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from whorl.attacks.objectives import find_loss
from whorl.data.image_files import SUFFIXES
from whorl.data.images import Images
from whorl.data.layouts import class_folders
from whorl.errors import WhorlError, some_of
from whorl.evaluation import FEWEST, ImageCounts, Pose, Predictor, compare, wilson
from whorl.evaluation.prediction import slices
from whorl.gate.settings import GateSettings
from whorl.models import Classifier
from whorl.models.labels import named
from whorl.runs.images import HashedImage

CHECKED, EACH = 128, 4
"""Images that a network is checked on at most, and of how many of one class at least, where there are so many."""
GRADIENTS = 16
"""Images of those whose gradients are looked at, at most."""
Gradients = Literal["none", "ce", "margin"]
"""What a network can be attacked by: nothing; cross entropy; or the margin, where cross entropy is flat because the
network is so sure that a float32 cannot distinguish its answer from certainty, and an attack would stay where it is."""
FAR = 0.10
"""Other statistics, or another order of the classes, must make a network so much better before it is called wrong."""
STATISTICS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "none, images in [0, 1]": ((0.0,) * 3, (1.0,) * 3),
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "0.5 and 0.5, images in [-1, 1]": ((0.5,) * 3, (0.5,) * 3),
    "none, images in [0, 255]": ((0.0,) * 3, (1 / 255,) * 3),
}
"""Means and standard deviations that networks are commonly trained with, by what they are called."""


def check_images(images: Sequence[HashedImage], settings: GateSettings) -> None:
    """Refuse a data set with an empty class, or with too few images for the limits.

    Raises:
        WhorlError: which class is empty; or how many images it takes, and why.
    """
    filled = {image.entry.path.parent.name for image in images}
    known = class_folders(Path(settings.data))
    empty = [folder.name for folder in known if folder.name not in filled and not _has_images(folder)]
    if known and empty:
        raise WhorlError(
            f"{settings.data}: {len(empty)} of {len(known)} class folders hold no image: {some_of(empty)}. A verdict "
            "would say nothing of these classes. Put images there, or remove the folder."
        )
    check_count(len(images), settings, f"{settings.data} has {len(images)} images")


def check_count(count: int, settings: GateSettings, what: str) -> None:
    """Refuse too few images: no rule could be decided on them."""
    least = settings.least_images
    if count >= least:
        return
    reach = f"if not one of {count} were fooled, the 95% interval would still reach to {wilson(0, count)[1]:.0%}"
    why = "with fewer, the 95% interval of a rate is more than 50 points wide" if least == FEWEST else reach
    raise WhorlError(
        f"{what}, and it takes {least} to decide these rules ({why}). Take more images"
        f"{'' if least == FEWEST else ', or a limit that so many can decide'}."
    )


def _has_images(folder: Path) -> bool:
    """Whether images are in a folder, all of which a limit has left out."""
    return any(path.suffix.lower() in SUFFIXES and not path.name.startswith(".") for path in folder.iterdir())


def sample(images: Sequence[HashedImage]) -> list[HashedImage]:
    """Choose the images that networks are checked on: of classes all over the data set, several of each."""
    by_class: dict[int | None, list[HashedImage]] = defaultdict(list)
    for image in images:
        by_class[image.entry.label].append(image)
    classes = list(by_class)
    each = max(EACH, CHECKED // len(classes))
    count = min(len(classes), -(-CHECKED // each))
    spread = [classes[round(k * (len(classes) - 1) / max(1, count - 1))] for k in range(count)]
    spread += [label for label in classes if label not in spread]  # where classes have fewer than so many
    return [image for label in spread for image in by_class[label][:each]][:CHECKED]


@dataclass(frozen=True, kw_only=True)
class CheckedNetwork:
    """What the check of a network found.

    Attributes:
        recognised: of the images that it was checked on.
        checked: images that it was checked on.
        gradients: the loss to craft with, or "none" if there are no gradients.
    """

    recognised: int
    checked: int
    gradients: Gradients


def check_network(clf: Classifier, name: str, batch: Images, *, behind: nn.Module | None = None) -> CheckedNetwork:
    """Refuse a network whose verdict would say nothing of it.

    Args:
        clf: the network, on its device.
        name: what to call it.
        batch: images with the classes that they should be recognised as.
        behind: the network behind a defence, which is what is judged: its answers count, and its gradients.

    Raises:
        WhorlError: it answers NaN, is far better with other statistics of its input or with its classes in another
            order, is at chance, or has gradients that are no use.
    """
    said = answers(clf, name, batch)
    right = said == batch.y
    better = [found for found in (_other_statistics(clf, name, batch), _other_order(clf, batch.y, said)) if found]
    better = [found for found in better if _far_better(right, found.right)]
    if better:
        best = max(better, key=lambda found: int(found.right.sum()))
        raise WhorlError(f"{name} recognises {_share(right)}, and {_share(best.right)} {best.words}")
    _check_chance(clf, name, batch.y, said)
    if behind is not None:
        right = answers(behind, name, batch) == batch.y
    gradients = _gradients(clf if behind is None else behind, name, batch, right)
    return CheckedNetwork(recognised=int(right.sum()), checked=len(right), gradients=gradients)


def answers(clf: nn.Module, name: str, batch: Images) -> Tensor:
    """The labels that a network gives to images as they are: (N,) int64, on the CPU."""
    predictor, device = Predictor({name: clf}), next(clf.buffers()).device
    parts = [
        predictor.labels(batch.x[at].to(device), {name: [Pose()]}, y=batch.y[at], ids=batch.ids[at])[name, Pose()]
        for at in slices(len(batch.x), 16)
    ]
    return torch.cat(parts)


def _far_better(now: Tensor, otherwise: Tensor) -> bool:
    """Whether far more images are recognised otherwise, and significantly more; both (N,) bool."""
    everywhere = np.ones((1, len(now)))
    found = compare(ImageCounts(everywhere, otherwise[None].numpy()), ImageCounts(everywhere, now[None].numpy()))
    return found.difference >= FAR and found.ahead > 0


class Explanation(NamedTuple):
    """What may be wrong with a network that recognises little."""

    right: Tensor
    """(N,) bool: what it would recognise."""
    words: str
    """What it is, and what to do."""


def _other_statistics(clf: Classifier, name: str, batch: Images) -> Explanation | None:
    """What the network makes of images with the best of the common means and standard deviations."""
    found: dict[str, Tensor] = {}
    for what, (mean, std) in STATISTICS.items():
        if len(clf.mean) != len(mean) or np.allclose((*clf.mean, *clf.std), (*mean, *std), atol=0.02, rtol=0.02):
            continue
        other = Classifier(
            clf.net, size=clf.size, mean=mean, std=std, num_classes=clf.num_classes, resize=clf.resize, name=name
        ).to(next(clf.buffers()).device)
        try:
            found[what] = answers(other, name, batch) == batch.y
        except WhorlError:  # it is not finite there, so these are not its statistics
            continue
    if not found:
        return None
    best = max(found, key=lambda what: int(found[what].sum()))
    mean, std = STATISTICS[best]
    append = f"mean={','.join(f'{number:.4g}' for number in mean)}&std={','.join(f'{number:.4g}' for number in std)}"
    return Explanation(
        found[best],
        f"with another mean and std ({best}): it seems to be given the wrong ones. Append {append} to its address, "
        "after a ?, or whatever it was trained with.",
    )


def _other_order(clf: Classifier, y: Tensor, said: Tensor) -> Explanation | None:
    """What fits if images of a class are taken for one other class, and no two classes for the same."""
    by_class = {int(label): Counter(said[y == label].tolist()) for label in y.unique()}
    usual = {label: counts.most_common(1)[0][0] for label, counts in by_class.items()}
    if len(set(usual.values())) < len(usual):
        return None
    # An image has no say in what its own class is taken for, so that chance is not taken for an order.
    fits = torch.tensor(
        [_usual_without(by_class[own], answer) == answer for own, answer in zip(y.tolist(), said.tolist(), strict=True)]
    )
    labels = clf.labels
    moved = [f"{labels[own]!r} for {labels[answer]!r}" for own, answer in usual.items() if own != answer]
    how = (
        "Check the order of labels= (a line for each logit)"
        if named(labels)
        else "Without names, class folders are counted in sorted order; give it the names of its classes, in the order "
        "of its logits, with --labels FILE"
    )
    return Explanation(
        fits,
        f"if its classes are in another order: it takes {', '.join(moved[:3])}{', ...' * (len(moved) > 3)}. {how}.",
    )


def _usual_without(counts: Counter[int], answer: int) -> int | None:
    """What a class is taken for most often, one such answer left out."""
    rest = counts.copy()
    rest[answer] -= 1
    most, count = rest.most_common(1)[0]
    return most if count else None


def _check_chance(clf: Classifier, name: str, y: Tensor, said: Tensor) -> None:
    right, n = said == y, len(y)
    of_class, answered = (torch.bincount(labels, minlength=clf.num_classes) / n for labels in (y, said))
    # What as many answers of each class would get right if they had nothing to do with the images.
    chance = float((of_class * answered).sum()) if len(y.unique()) > 1 else 1 / clf.num_classes
    if wilson(int(right.sum()), n)[0] > chance:
        return
    common = clf.labels[int(answered.argmax())]
    raise WhorlError(
        f"{name} recognises {_share(right)}, no more than random answers with the same class frequencies would "
        f"({chance:.0%}); it answers {common!r} to {float(answered.max()):.0%} of them. A verdict on it would mean "
        "nothing. Check that these are the right weights, that it gets the mean, std and size that it was trained "
        "with, and that the images are of its classes, in its order (--labels FILE)."
    )


def _gradients(clf: nn.Module, name: str, batch: Images, right: Tensor) -> Gradients:
    """What gradients there are on images that are recognised."""
    chosen = right.nonzero()[:, 0][:GRADIENTS]
    device = next(clf.buffers()).device
    x, y = batch.x[chosen].to(device).requires_grad_(), batch.y[chosen].to(device)
    try:
        logits = clf(x)
    except WhorlError:  # an ONNX network says that it has none
        return "none"
    if not logits.requires_grad:
        return "none"

    def flat(loss: str) -> int:
        (gradient,) = torch.autograd.grad(find_loss(loss)(logits, y).sum(), x, retain_graph=True, allow_unused=True)
        return len(x) if gradient is None else int((gradient == 0).flatten(1).all(1).sum())

    if flat("margin") * 2 > len(x):
        raise WhorlError(
            f"the gradient of {name} is zero on {flat('margin')} of {len(x)} images that it recognises: a gradient "
            "attack has no direction to follow, and the network would pass without being robust. Give a version "
            "without rounding or clipping on the way, or export it to ONNX and craft on others with --surrogates."
        )
    return "margin" if flat("ce") else "ce"


def _share(right: Tensor) -> str:
    return f"{float(right.float().mean()):.0%} of {len(right)} images"
