"""What another library's attack sees of a model: a network in [0, 1] whose gradient is estimated and counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from whorl.attacks.contract import Model, network_dtype
from whorl.estimators import Estimated, Estimator


class Seen(nn.Module):
    """A network that any peer can work with, made of anything that our attacks take.

    Args:
        model: from (B, C, H, W) images in [0, 1] to (B, classes) logits.
        estimator: of the input gradient.
        like: a batch of the images, for their dtype and device.

    Attributes:
        passes: rows of each gradient that reached the input, in order: 1 for a single image.
    """

    def __init__(self, model: Model, estimator: Estimator, like: Tensor) -> None:
        super().__init__()
        self.net = Estimated(_Converted(model, like), estimator)
        # Peers look for the device in the first parameter, and a callable or an ONNX network has none.
        self.place = nn.Parameter(torch.empty(0, device=like.device), requires_grad=False)
        self.passes: list[int] = []
        self.eval()

    def forward(self, x: Tensor) -> Any:
        """Logits of ``x``, in its dtype."""
        if x.requires_grad and torch.is_grad_enabled():
            x = x.view_as(x)
            x.register_hook(self._count)
        return self.net(x)

    def _count(self, gradient: Tensor) -> None:
        self.passes.append(gradient.shape[0])


class _Converted(nn.Module):
    """Feeds a model in its own precision and answers in that of the images."""

    def __init__(self, model: Model, like: Tensor) -> None:
        super().__init__()
        self.model = model
        self.dtype = network_dtype(model, like)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.to(self.dtype)).to(x.dtype)


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """Keep gradients away from a model's own parameters: some peers call ``backward``, which would pile them up."""
    held = [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else []
    try:
        for parameter in held:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)
