"""A classifier behind a defence, what a defence is, and the checks that all of them share."""

from __future__ import annotations

import zlib
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.randomness import image_keys, substream
from whorl.records import Count, checked


class Defense(Protocol):
    """What is done to images before the classifier sees them.

    Any object with a name that can be called like this is one; nothing needs registering:

    >>> import torch
    >>> from dataclasses import dataclass
    >>> from whorl.models import Classifier
    >>> from whorl.randomness import normal
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Noise:
    ...     name = "noise"
    ...     std: float = 0.1
    ...
    ...     def __call__(self, x, keys):
    ...         return x + self.std * normal(keys, x.shape[1:])
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> clf = Classifier.from_module(net, size=(8, 8), mean=(0.5,) * 3, std=(0.5,) * 3, name="mine")
    >>> defended = Defended(clf, Noise(std=0.2), samples=5)
    >>> defended.name, defended(torch.rand(2, 3, 8, 8)).shape
    ('mine+noise', torch.Size([2, 10]))
    """

    @property
    def name(self) -> str:
        """Short name, which becomes part of the defended classifier's: ``resnet18+jpeg``."""
        ...

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        """Defend a batch.

        Args:
            x: (B, 3, H, W) in [0, 1].
            keys: (B,) int64, one random key an image, to draw from with ``whorl.randomness``. Each image's answer
                must depend on its own pixels and key only.

        Returns:
            (B, 3, H', W').
        """
        ...


class Defended(nn.Module):
    """A classifier whose input passes through a defence: RGB NCHW in [0, 1] at any size -> logits.

    The defence acts on the image at the size it comes in, before the classifier resizes it. Wrappers compose: in
    ``Defended(Defended(clf, a), b)`` an image meets ``b``, then ``a``, then ``clf``.

    Randomness belongs to the image: the same image, draw and seed give the same logits, alone or in any batch.
    An attack that changes the image changes the draw, as it would on a defence that draws afresh for each query.

    Like a Classifier it is frozen: in eval mode for good, without parameter gradients.

    Args:
        model: a Classifier, an Ensemble, or another Defended.
        defense: what to do to its input.
        samples: how many draws to average the logits over; an attack's gradient is averaged with them.
        seed: any integer; another seed, other draws.

    Attributes:
        model: as given.
        defense: as given.
        samples: as given.
        seed: as given.
        size: (height, width) that the classifier works at; None if it has no single one (an Ensemble).
        num_classes: how many logits come out.
        labels: one name per class.
        name: the classifier's name and the defence's, joined by "+".
        weights_sha256: the classifier's, where known.
    """

    def __init__(self, model: nn.Module, defense: Defense, *, samples: int = 1, seed: int = 0) -> None:
        super().__init__()
        samples, seed = checked("samples", samples, Count), checked("seed", seed, int)
        missing = [name for name in ("name", "labels", "num_classes") if not hasattr(model, name)]
        if missing:
            raise WhorlError(
                f"expected a classifier to defend, got a {type(model).__name__} without {', '.join(missing)}. "
                "Wrap it with whorl.Classifier.from_module first."
            )
        self.model = model
        self.defense = defense
        self.samples = samples
        self.seed = seed
        self.size: tuple[int, int] | None = getattr(model, "size", None)
        self.num_classes: int = getattr(model, "num_classes")  # noqa: B009 - nn.Module would call it a tensor
        self.labels: tuple[str, ...] = getattr(model, "labels")  # noqa: B009 - as above
        self.name = f"{getattr(model, 'name')}+{defense.name}"  # noqa: B009 - as above
        self.weights_sha256: str | None = getattr(model, "weights_sha256", None)
        # The name goes into the keys, so that two defences, or an attack of the same seed, share no random numbers.
        self._stream = zlib.crc32(defense.name.encode())
        self.requires_grad_(False)
        super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Classify defended images.

        Args:
            x: (B, 3, H, W), floating, RGB in [0, 1].

        Returns:
            (B, num_classes) logits, the mean over ``samples`` draws.
        """
        keys = substream(image_keys(x, self.seed), self._stream)
        logits: Tensor = self.model(self._defend(x, substream(keys, 0)))
        for sample in range(1, self.samples):
            logits = logits + self.model(self._defend(x, substream(keys, sample)))
        return logits / self.samples

    def _defend(self, x: Tensor, keys: Tensor) -> Tensor:
        # Autocast is meant for the network: an image is made in its own precision.
        with torch.autocast(x.device.type, enabled=False):
            return self.defense(x, keys)

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - the signature is torch's
        """Stay in eval mode, whatever is requested."""
        return super().train(False)

    def extra_repr(self) -> str:
        """Describe the defence in the first line of the repr."""
        return f"{self.name!r}, {self.defense!r}, samples={self.samples}, seed={self.seed}"


def require_images(x: Tensor) -> None:
    """Refuse what is not a floating (B, 3, H, W) tensor. Looks at no values, so it never waits for the device."""
    if x.ndim != 4 or x.shape[1] != 3 or not x.is_floating_point():
        raise WhorlError(f"expected floating images of shape (B, 3, H, W), got {x.dtype} of shape {tuple(x.shape)}.")


def at_least_single(x: Tensor) -> Tensor:
    """Return half-precision images in float32, whose 8-bit levels and squared distances are exact enough."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def straight_through(value: Tensor, x: Tensor) -> Tensor:
    """Return ``value`` exactly, with the gradient of ``x``.

    >>> x = torch.tensor([0.2, 0.7], requires_grad=True)
    >>> straight_through(x.round(), x)
    tensor([0., 1.], grad_fn=<AddBackward0>)
    """
    # Not x + (value - x): its rounding errors would change the value.
    return value.detach() + (x - x.detach())
