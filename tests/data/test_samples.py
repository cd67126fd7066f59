"""The bundled photographs."""

from __future__ import annotations

import pytest
import torch

from whorl.data import load_samples
from whorl.errors import WhorlError


def test_all_twenty() -> None:
    x, y, ids = load_samples()
    assert x.shape == (20, 3, 224, 224)
    assert y.dtype == torch.int64
    assert y.tolist()[:3] == [243, 559, 438]
    assert ids[19] == "imagenet_19_305"
    assert len(set(ids)) == 20
    assert x.std() > 0.1


def test_the_first_few_at_their_own_size() -> None:
    assert torch.equal(load_samples(3).x, load_samples(20).x[:3])
    assert load_samples(2, size=None).x.shape == (2, 3, 512, 512)


@pytest.mark.parametrize("n", [0, 21, -1, 2.0, "all"])
def test_n_out_of_range(n: object) -> None:
    with pytest.raises(WhorlError, match="expected n from 1 to 20"):
        load_samples(n)  # type: ignore[arg-type]
