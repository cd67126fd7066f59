from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import CLASSES, random_images, small_net
from whorl.errors import WhorlError
from whorl.models import Classifier, Ensemble


def member(seed: int, size: int = 18) -> Classifier:
    half = (0.5, 0.5, 0.5)
    return Classifier.from_module(small_net(seed=seed), size=size, mean=half, std=half, name=f"net{seed}")


MEMBERS = [member(0), member(1, size=24), member(2)]
WEIGHTS = [2, 1, 1]


def literal(x: Tensor, fuse: str) -> Tensor:
    """Σ wᵢ · logitsᵢ, or log Σ wᵢ · softmax(logitsᵢ), in float64."""
    outputs = [m(x).double() for m in MEMBERS]
    if fuse == "probabilities":
        mean: Any = sum(w / 4 * o.softmax(1) for w, o in zip(WEIGHTS, outputs, strict=True))
        return torch.log(mean)
    logits: Any = sum(w / 4 * o for w, o in zip(WEIGHTS, outputs, strict=True))
    return torch.as_tensor(logits)


@pytest.mark.parametrize("fuse", ["logits", "probabilities", "losses"])
def test_is_the_weighted_mean(fuse: Any, x: Tensor) -> None:
    ensemble = Ensemble(MEMBERS, weights=WEIGHTS, fuse=fuse)
    torch.testing.assert_close(ensemble(x).double(), literal(x, fuse), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fuse", ["logits", "probabilities"])
def test_one_loss_term_unless_losses_are_fused(fuse: Any, x: Tensor) -> None:
    ensemble = Ensemble(MEMBERS, fuse=fuse)
    [(weight, logits)] = ensemble.loss_terms(x)
    assert weight == 1.0
    assert torch.equal(logits, ensemble(x))


def test_one_loss_term_per_member_if_losses_are_fused(x: Tensor) -> None:
    terms = Ensemble(MEMBERS, weights=WEIGHTS, fuse="losses").loss_terms(x)
    assert [weight for weight, _ in terms] == [0.5, 0.25, 0.25]
    for (_, logits), one in zip(terms, MEMBERS, strict=True):
        assert torch.equal(logits, one(x))


class Fixed(nn.Module):
    num_classes = 2

    def __init__(self, logits: Sequence[float]) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([self.logits]) + 0 * x.mean(dim=(1, 2, 3))[:, None]


def test_probabilities_too_small_for_a_float_stay_finite() -> None:
    # Both members give the second class a probability of exp(-300), which is 0 in float32.
    logits = Ensemble([Fixed([0, -300]), Fixed([0, -300])], fuse="probabilities")(random_images(1))
    torch.testing.assert_close(logits, torch.tensor([[0.0, -300.0]]))


@pytest.mark.parametrize("fuse", ["logits", "probabilities", "losses"])
def test_gradients_reach_the_image(fuse: Any) -> None:
    x = random_images(2).requires_grad_()
    Ensemble(MEMBERS, fuse=fuse)(x)[:, 0].sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad.flatten(1).abs().sum(1).min() > 0


def test_describes_itself_and_stays_frozen() -> None:
    ensemble = Ensemble([*MEMBERS[:2]]).train()
    assert ensemble.name == "net0+net1"
    assert ensemble.num_classes == CLASSES
    assert len(ensemble.labels) == CLASSES
    assert "'net0+net1', fuse=logits, weights=(0.5, 0.5), classes=7" in repr(ensemble)
    assert not any(module.training for module in ensemble.modules())
    assert not any(parameter.requires_grad for parameter in ensemble.parameters())


@pytest.mark.parametrize(
    ("models", "settings", "says"),
    [
        ([], {}, "at least one"),
        (MEMBERS, {"weights": [1, 1]}, "expected 3"),
        (MEMBERS, {"weights": [1, 0, 1]}, "positive"),
        (MEMBERS, {"weights": {1, 2, 3}}, "positive"),
        (MEMBERS, {"weights": "abc"}, "positive"),
        (MEMBERS, {"weights": [True, 1, 1]}, "positive"),
        (MEMBERS, {"weights": [1, float("nan"), 1]}, "positive"),
        (MEMBERS, {"fuse": "votes"}, "logits, probabilities, losses"),
        ([MEMBERS[0], Fixed([0, 1])], {}, "net0 has 7, Fixed has 2"),
        ([small_net()], {}, "from_module"),
    ],
)
def test_refuses_members_and_weights_that_do_not_fit(
    models: list[nn.Module], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(WhorlError, match=says):
        Ensemble(models, **settings)
