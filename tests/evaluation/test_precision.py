"""Evaluation in bfloat16: the same counts but for answers that were close."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conftest import pictures, small_net
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, success_rates


def test_bf16_asks_in_bf16_and_counts_the_same() -> None:
    net, x = small_net(), pictures(40)
    seen: list[torch.dtype] = []
    net[1].register_forward_hook(lambda _, __, out: seen.append(out.dtype))  # type: ignore[index]
    y = net(x).argmax(1)
    noise = (x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    seen.clear()
    full = success_rates({"net": net}, x, {"noise": noise}, y)
    assert set(seen) == {torch.float32}
    seen.clear()
    half = success_rates({"net": net}, x, {"noise": noise}, y, precision="bf16")
    assert set(seen) == {torch.bfloat16}
    for key in full:
        assert half[key].n == full[key].n
        assert abs(half[key].n_clean_correct - full[key].n_clean_correct) <= 3
        assert abs(half[key].n_success - full[key].n_success) <= 3
    assert len(full) == len(PAPER_POSES)


def test_an_unknown_precision() -> None:
    def net(x: Tensor) -> Tensor:
        return x.flatten(1)

    with pytest.raises(WhorlError, match="precision must be 'full' or 'bf16'; got 'half'"):
        success_rates({"net": net}, pictures(1), {"none": pictures(1)}, torch.zeros(1).long(), precision="half")  # type: ignore[arg-type]
