"""Random numbers that belong to an image, not to its place in a batch.

Every draw is a pure function of (seed, image, stream, position): a counter-based generator written in integer tensor
operations. It keeps no state, needs no host round trip, gives the same uniform draws on every device, and an
image draws the same numbers whether it is alone or in a batch of a thousand. Many numbers on a GPU come from kernels
(:mod:`whorl.randomness.gpu`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from whorl.errors import WhorlError, quoted

Ids = Sequence[str] | Sequence[int] | Tensor | None

# Constants of the SplitMix64 generator, as signed 64-bit integers (torch has no unsigned arithmetic).
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def image_keys(x: Tensor, seed: int, ids: Ids = None) -> Tensor:
    """Give each image of a batch its own random key.

    Args:
        x: (B, C, H, W) images in [0, 1].
        seed: any integer.
        ids: one string or integer per image. Without ids the key comes from the image itself (rounded to 8 bits),
            so that the same image still draws the same numbers in any batch.

    Returns:
        (B,) int64 on the device of ``x``.

    >>> x = torch.rand(3, 3, 8, 8)
    >>> bool((image_keys(x, 0)[1:] == image_keys(x[1:], 0)).all())
    True
    """
    check_ids(ids, x.shape[0])
    check_seed(seed)
    base = _mix(torch.full((), _wrap(int(seed)), dtype=torch.int64, device=x.device) + _GOLDEN)
    if ids is None:
        pixels = (x.detach().flatten(1) * 255).round().to(torch.int64)
        place = torch.arange(pixels.shape[1], device=x.device) * _GOLDEN
        names = _mix(pixels + place).sum(dim=1)
    else:
        listed: Sequence[str | int] = ids.tolist() if isinstance(ids, Tensor | np.ndarray) else ids
        names = torch.tensor([_hash(str(i)) for i in listed], dtype=torch.int64, device=x.device)
    return _mix(names ^ base)


def check_seed(seed: object) -> None:
    """Refuse what is no whole number; numpy's are."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise WhorlError(f"seed must be a whole number; got {quoted(seed)}.")


def check_ids(ids: Ids, count: int) -> None:
    """Refuse ids that are not one per image, in order."""
    if isinstance(ids, str | bytes) or not (ids is None or isinstance(ids, Sequence | Tensor | np.ndarray)):
        raise WhorlError(f"ids must be a list with one id per image; got {type(ids).__name__} {ids!r:.60}.")
    if ids is None:
        return
    shape = tuple(ids.shape) if isinstance(ids, Tensor | np.ndarray) else (len(ids),)
    if shape != (count,):
        raise WhorlError(
            f"ids must hold one id per image; expected {count}, got {', '.join(map(str, shape)) or 'one'}."
        )
    for name in ids.tolist() if isinstance(ids, Tensor | np.ndarray) else ids:
        # Their text is what draws follow from: 1 and 1.0 would be two images, and None one for all.
        if isinstance(name, bool) or not isinstance(name, str | Integral):
            raise WhorlError(f"ids must be strings or whole numbers; got {quoted(name)}.")


def substream(keys: Tensor, *path: int | Tensor) -> Tensor:
    """Derive independent keys, for example for a step and a sample: ``substream(keys, step, sample)``.

    Args:
        keys: (B,) int64.
        path: integers that name the stream, or int64 tensors that broadcast with ``keys``.

    Returns:
        int64, shape of ``keys`` broadcast with every part.
    """
    for part in path:
        step = (part + 1) * _GOLDEN if isinstance(part, Tensor) else _wrap((part + 1) * _GOLDEN)
        keys = _mix(keys + step)
    return keys


def uniform(keys: Tensor, shape: Sequence[int] = (), low: float = 0.0, high: float = 1.0) -> Tensor:
    """Draw uniform numbers in [low, high) for each key.

    Args:
        keys: (B,) int64.
        shape: shape of each image's draw.
        low: lower end.
        high: upper end.

    Returns:
        (B, *shape) float32.

    >>> uniform(torch.tensor([1, 2]), (3,)).shape
    torch.Size([2, 3])
    """
    count = math.prod(shape)
    if _on_gpu(keys):
        from whorl.randomness.gpu import uniform_on_gpu

        fast = uniform_on_gpu(keys, count, low, high)
        if fast is not None:
            return fast.reshape(-1, *shape)
    counters = torch.arange(1, count + 1, device=keys.device) * _GOLDEN
    bits = _mix(keys[:, None] + counters)
    # 24 bits fill a float32 mantissa exactly, so 1.0 itself is never reached.
    unit = ((bits >> 40) & 0xFFFFFF).to(torch.float32) / 2**24
    return (unit * (high - low) + low).reshape(-1, *shape)


def normal(keys: Tensor, shape: Sequence[int] = ()) -> Tensor:
    """Draw standard normal numbers for each key (Box and Muller).

    Args:
        keys: (B,) int64.
        shape: shape of each image's draw.

    Returns:
        (B, *shape) float32.
    """
    if _on_gpu(keys):
        from whorl.randomness.gpu import normal_on_gpu

        fast = normal_on_gpu(keys, math.prod(shape))
        if fast is not None:
            return fast.reshape(-1, *shape)
    # 1 - u lies in (0, 1], so the logarithm stays finite.
    radius = torch.sqrt(-2 * torch.log1p(-uniform(substream(keys, 0), shape)))
    return radius * torch.cos(2 * math.pi * uniform(substream(keys, 1), shape))


def _on_gpu(keys: Tensor) -> bool:
    return keys.is_cuda


def _mix(z: Tensor) -> Tensor:
    if _on_gpu(z):
        from whorl.randomness.gpu import mix_on_gpu

        fast = mix_on_gpu(z)
        if fast is not None:
            return fast
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def _shift(z: Tensor, by: int) -> Tensor:
    # torch shifts int64 arithmetically; the mask makes it a logical shift
    return (z >> by) & ((1 << (64 - by)) - 1)


def _wrap(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
