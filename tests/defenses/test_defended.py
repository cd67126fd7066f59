"""The wrapper: every defence keeps the same promises, by one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from whorl.defenses import BitDepth, Defended, Jpeg, defense_names, jpeg, load_defense, reduce_bits
from whorl.errors import WhorlError
from whorl.models import Classifier, Ensemble
from whorl.randomness import normal

RANDOM = ["randmix", "resize-pad"]
PLAIN = ["bitdepth", "jpeg"]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A user's own defence."""

    name = "noise"
    std: float = 0.1

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        return x + self.std * normal(keys, x.shape[1:])


@pytest.fixture
def clf() -> Classifier:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, 10))
    return Classifier.from_module(net, size=(16, 16), mean=(0.5,) * 3, std=(0.25,) * 3, name="small")


@pytest.fixture
def x() -> Tensor:
    return torch.rand(5, 3, 24, 20, generator=torch.Generator().manual_seed(3))


def test_the_table_is_complete() -> None:
    assert sorted(defense_names()) == sorted(RANDOM + PLAIN)


@pytest.mark.parametrize("name", defense_names())
def test_looks_like_its_classifier(name: str, clf: Classifier) -> None:
    defended = load_defense(name.upper(), clf)
    assert defended.name == f"small+{name}"
    assert (defended.size, defended.num_classes, defended.labels) == (clf.size, clf.num_classes, clf.labels)
    assert not defended.train().training
    assert not any(module.training for module in defended.modules())
    assert not any(p.requires_grad for p in defended.parameters())
    assert f"'small+{name}'" in repr(defended)


@pytest.mark.parametrize("name", defense_names())
def test_does_not_depend_on_the_batch(name: str, clf: Classifier, x: Tensor) -> None:
    defended = load_defense(name, clf)
    whole = defended(x)
    assert whole.shape == (5, 10)
    for order in ([2], [4, 2, 0], [1, 1, 3]):
        torch.testing.assert_close(defended(x[order]), whole[order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", RANDOM)
def test_draws_follow_the_seed(name: str, clf: Classifier, x: Tensor) -> None:
    first = load_defense(name, clf, seed=1)(x)
    assert torch.equal(load_defense(name, clf, seed=1)(x), first)
    assert not torch.equal(load_defense(name, clf, seed=2)(x), first)


@pytest.mark.parametrize("name", RANDOM)
def test_samples_average_over_different_draws(name: str, clf: Classifier, x: Tensor) -> None:
    draws = torch.stack([load_defense(name, clf, samples=1, seed=seed)(x) for seed in range(40)])
    means = torch.stack([load_defense(name, clf, samples=8, seed=seed)(x) for seed in range(40)])
    # The mean of eight independent draws has an eighth of the variance.
    ratio = means.var(0).mean() / draws.var(0).mean()
    assert 0.06 < ratio < 0.25
    one = load_defense(name, clf, samples=1)(x)
    assert not torch.allclose(one, load_defense(name, clf, samples=2)(x))


@pytest.mark.parametrize("name", PLAIN)
def test_gradient_passes_straight_through(name: str, clf: Classifier, x: Tensor) -> None:
    defended = load_defense(name, clf)
    attacked = x.clone().requires_grad_()
    defended(attacked)[:, 0].sum().backward()
    seen = defended.defense(x, torch.zeros(5, dtype=torch.int64)).requires_grad_()
    assert not torch.equal(seen, x)
    clf(seen)[:, 0].sum().backward()
    assert attacked.grad is not None
    assert seen.grad is not None
    assert torch.equal(attacked.grad, seen.grad)


@pytest.mark.parametrize("name", defense_names())
def test_gradient_reaches_the_image(name: str, clf: Classifier, x: Tensor) -> None:
    attacked = x.clone().requires_grad_()
    load_defense(name, clf)(attacked).logsumexp(1).sum().backward()
    assert attacked.grad is not None
    assert attacked.grad.isfinite().all()
    assert (attacked.grad.flatten(1).abs().sum(1) > 0).all()


@pytest.mark.parametrize("name", RANDOM)
def test_average_gradient_is_the_gradient_of_the_average(name: str, clf: Classifier, x: Tensor) -> None:
    defended = load_defense(name, clf, samples=3)
    attacked = x.clone().requires_grad_()
    out = defended(attacked)
    (gradient,) = torch.autograd.grad(out[:, 1].sum(), attacked)
    assert out.shape == (5, 10)
    assert gradient.isfinite().all()


def test_wrappers_compose_outermost_first(clf: Classifier, x: Tensor) -> None:
    both = Defended(Defended(clf, BitDepth(levels=3)), Jpeg(quality=20))
    assert both.name == "small+bitdepth+jpeg"
    assert torch.equal(both(x), clf(reduce_bits(jpeg(x, quality=20), levels=3)))
    for outer in defense_names():
        for inner in defense_names():
            stacked = load_defense(outer, load_defense(inner, clf))
            assert stacked(x[:1]).isfinite().all()


def test_acts_at_the_size_that_comes_in(clf: Classifier, x: Tensor) -> None:
    seen: list[tuple[int, ...]] = []

    class Watch:
        name = "watch"

        def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
            seen.append((*x.shape, *keys.shape))
            return x

    Defended(clf, Watch())(x)
    assert seen == [(5, 3, 24, 20, 5)]


def test_a_defense_of_ones_own(clf: Classifier, x: Tensor) -> None:
    defended = Defended(clf, Noise(std=0.2), samples=3, seed=5)
    assert defended.name == "small+noise"
    torch.testing.assert_close(defended(x[2:3]), defended(x)[2:3], atol=1e-5, rtol=1e-5)


def test_two_defenses_share_no_draws(clf: Classifier, x: Tensor) -> None:
    drawn: dict[str, Tensor] = {}

    class Watch:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
            drawn[self.name] = keys
            return x

    Defended(Defended(clf, Watch("inner")), Watch("outer"))(x)
    assert not (drawn["inner"] == drawn["outer"]).any()


def test_an_ensemble_can_be_defended(clf: Classifier, x: Tensor) -> None:
    defended = load_defense("jpeg", Ensemble([clf, clf]))
    assert defended.size is None
    torch.testing.assert_close(defended(x), clf(jpeg(x)))


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("jpg", {}, "unknown defense 'jpg'. Did you mean 'jpeg'.* `whorl defenses` lists all"),
    ("jpeg", {"qualty": 5}, "unknown setting 'qualty'. Did you mean 'quality'.*jpeg takes: quality, seed"),
    ("jpeg", {"samples": 5}, "unknown setting 'samples'"),
    ("jpeg", {"quality": 0}, r"quality must be a whole number in \[1, 100\]; got 0"),
    ("bitdepth", {"levels": 1}, "levels must be"),
    ("resize-pad", {"min_scale": 2}, r"min_scale must be a number in \[0, 1\]; got 2"),
    ("randmix", {"colors": -1}, "colors must be"),
    ("randmix", {"samples": 0}, "samples must be a whole number >= 1; got 0"),
    ("randmix", {"seed": 0.5}, "seed must be a whole number; got 0.5"),
]


@pytest.mark.parametrize(("name", "settings", "says"), BAD, ids=str)
def test_bad_names_and_settings(name: str, settings: dict[str, Any], says: str, clf: Classifier) -> None:
    with pytest.raises(WhorlError, match=says):
        load_defense(name, clf, **settings)


def test_what_is_no_classifier_is_refused() -> None:
    with pytest.raises(WhorlError, match=r"got a Flatten without name, labels, num_classes.*Classifier.from_module"):
        load_defense("jpeg", nn.Flatten())


@pytest.mark.parametrize("name", defense_names())
@pytest.mark.parametrize("bad", [torch.rand(3, 8, 8), torch.rand(1, 4, 8, 8), torch.zeros(1, 3, 8, 8).long()])
def test_what_is_no_image_is_refused(name: str, bad: Tensor, clf: Classifier) -> None:
    with pytest.raises(WhorlError, match=r"expected floating images of shape \(B, 3, H, W\)"):
        load_defense(name, clf)(bad)


@pytest.mark.parametrize("name", defense_names())
def test_autocast_is_for_the_network(name: str, clf: Classifier, x: Tensor) -> None:
    seen: list[Tensor] = []
    with clf.register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        defended = load_defense(name, clf)
        defended(x)
        with torch.autocast("cpu", torch.bfloat16):
            defended(x)
    plain, cast = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))
