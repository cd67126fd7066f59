"""What every input transform must hold to."""

from __future__ import annotations

import torch

from conftest import random_images
from whorl.transforms import InputTransform


def check_own_keys(transform: InputTransform) -> None:
    """Each image follows from its own key, whatever batch it is in, and a gradient reaches it."""
    x, keys = random_images(6, 3, 22, 30), torch.arange(6) * 101
    whole = transform(x, keys)
    assert whole.shape == x.shape
    for i in range(6):
        torch.testing.assert_close(transform(x[i : i + 1], keys[i : i + 1]), whole[i : i + 1], rtol=0, atol=1e-5)
    assert torch.equal(transform(x, keys), whole)
    assert float((transform(x, keys + 1) - whole).abs().max()) > 1e-3
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(transform(leaf, keys).square().sum(), leaf)
    assert bool(gradient.flatten(1).abs().sum(1).gt(0).all())
