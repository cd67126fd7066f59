"""NES, SPSA, NAttack and P-RGF: exact counts, right gradients, and more success than noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from blackbox import Counting, labels_for, labels_of, related_net
from conftest import random_images, small_net
from whorl import WhorlError
from whorl.attacks import TargetError
from whorl.attacks.blackbox.score.gradients import (
    FiniteDifferences,
    GaussianSearch,
    PriorGuided,
    QueryGradient,
    Site,
    best_lean,
)
from whorl.attacks.objectives import margin
from whorl.attacks.spaces import Tanh

NAMES = whorl.attack_names(kind="score")
BALLS = {"linf": 16 / 255, "l2": 2.0}
every_attack = pytest.mark.parametrize("name", NAMES)
every_norm = pytest.mark.parametrize("norm", BALLS)


def attack(name: str, **settings: Any) -> whorl.Attack:
    """A preset on a short budget, with a surrogate where it cannot do without."""
    guide = {"surrogate": related_net(small_net())} if name == "prgf" else {}
    return whorl.attack(name, **{"budget": 700, "samples": 20, **guide, **settings})


INITS: dict[str, dict[str, Any]] = {
    "none": {},
    "random": {"init": "random"},
    "tensor": {"init": random_images(8) * (1 - 8 / 255)},
    "ai-dim": {"init": whorl.attack("ai-dim", steps=2), "surrogate": related_net(small_net(), by=1.0)},
}


@every_attack
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_the_counter_is_exact_and_within_the_budget(name: str, init: str, batch: int) -> None:
    net, x = small_net(), random_images(8)
    target = Counting(net, x)
    y = labels_of(net, x)
    queries = []
    for part in torch.arange(8).split(batch):
        settings = dict(INITS[init])
        if init == "tensor":
            settings["init"] = settings["init"][part]
        # a small ball, so that some images spend the whole budget
        settings = {"eps": 8 / 255 if init in ("tensor", "ai-dim") else 2 / 255, "budget": 150, **settings}
        if init == "ai-dim":
            settings["init"] = settings["init"].with_(eps=8 / 255)
        _, info = attack(name, **settings)(target, x[part], y[part], return_info=True)
        assert info.queries is not None
        queries.append(info.queries)
    assert torch.equal(torch.cat(queries), target.seen)
    assert int(target.seen.max()) <= 150


@every_attack
@every_norm
@pytest.mark.parametrize("targeted", [False, True])
def test_succeeds_in_the_ball_and_the_box(name: str, norm: str, targeted: bool) -> None:
    net, x = small_net(), random_images(8)
    original = x.clone()
    labels = labels_for(net, x, targeted=targeted)
    adv, info = attack(name, norm=norm, eps=BALLS[norm], budget=2000)(net, x, return_info=True, **labels)
    assert torch.equal(x, original)
    assert float(adv.min()) >= 0
    assert float(adv.max()) <= 1
    gap = (adv - x).flatten(1)
    size = gap.abs().amax(1) if norm == "linf" else gap.norm(dim=1)
    assert float(size.max()) <= BALLS[norm] * (1 + 1e-5)
    answer = labels_of(net, adv)
    assert torch.equal(info.success, answer == labels["target"] if targeted else answer != labels["y"])
    assert int(info.success.sum()) >= 7


@every_attack
def test_beats_noise_at_equal_queries(name: str) -> None:
    net, x = small_net(), random_images(32)
    y, eps, budget = labels_of(net, x), 8 / 255, 400
    adv = attack(name, eps=eps, budget=budget)(net, x, y)
    generator = torch.Generator().manual_seed(0)
    # at the corners of the ball, where noise is strongest
    signs = torch.randint(0, 2, (budget, *x.shape), generator=generator) * 2.0 - 1
    with torch.no_grad():
        noisy = torch.stack([margin(net((x + eps * s).clamp(0, 1)), y) for s in signs])
        fooled = int((noisy.amax(0) > 0).sum())
    assert int((labels_of(net, adv) != y).sum()) >= fooled + 5


@every_attack
@pytest.mark.parametrize("targeted", [False, True])
def test_does_not_depend_on_the_batch_or_the_chunk(name: str, targeted: bool) -> None:
    net, x = small_net().double(), random_images(5).double()
    labels = labels_for(net, x, targeted=targeted)
    guide = {"surrogate": related_net(small_net()).double()} if name == "prgf" else {}

    def run(part: slice, **settings: Any) -> tuple[Tensor, Tensor]:
        some = {key: value[part] for key, value in labels.items()}
        made = attack(name, budget=300, eps=4 / 255, **guide, **settings)
        adv, info = made(net, x[part], return_info=True, seed=3, **some)
        assert info.queries is not None
        return adv, info.queries

    whole, queries = run(slice(None))
    parts = [run(slice(i, i + 2)) for i in range(0, 5, 2)]
    torch.testing.assert_close(torch.cat([adv for adv, _ in parts]), whole, rtol=0, atol=1e-6)
    assert torch.equal(torch.cat([count for _, count in parts]), queries)
    torch.testing.assert_close(run(slice(None), chunk=7)[0], whole, rtol=0, atol=1e-6)


@every_attack
def test_the_seed_decides(name: str) -> None:
    net, x = small_net(), random_images(4)
    y = labels_of(net, x)
    guide = {"surrogate": small_net(seed=9)} if name == "prgf" else {}
    made = attack(name, budget=100, **guide)
    assert torch.equal(made(net, x, y, seed=1), made(net, x, y, seed=1))
    assert not torch.equal(made(net, x, y, seed=1), made(net, x, y, seed=2))


@pytest.mark.parametrize("name", ["nes", "spsa", "nattack"])
def test_a_transfer_start_saves_queries(name: str) -> None:
    net, x = small_net(), random_images(8)
    y = labels_of(net, x)
    init = whorl.attack("ai-dim", steps=5)
    _, plain = attack(name)(net, x, y, return_info=True)
    _, started = attack(name, init=init, surrogate=related_net(net))(net, x, y, return_info=True)
    assert plain.queries is not None
    assert started.queries is not None
    assert started.grad_evals is not None
    assert int(started.queries.sum()) < 0.7 * int(plain.queries.sum())
    assert started.grad_evals.tolist() == [5] * 8
    assert int(started.success.sum()) >= int(plain.success.sum())


def test_what_is_wrong_already_costs_one_query() -> None:
    net, x = small_net(), random_images(3)
    adv, info = attack("nes")(net, x, (labels_of(net, x) + 1) % 7, return_info=True)
    assert torch.equal(adv, x)
    assert info.queries is not None
    assert info.queries.tolist() == [1, 1, 1]
    assert bool(info.success.all())


@every_attack
def test_the_trace_tells_the_way(name: str) -> None:
    net, x = small_net(), random_images(4)
    y = labels_of(net, x)
    adv, info = attack(name, trace=True, budget=200)(net, x, y, return_info=True)
    assert info.trace is not None
    assert info.queries is not None
    assert torch.equal(info.trace.queries[0], torch.ones(4, dtype=torch.int64))
    assert torch.equal(info.trace.queries[-1], info.queries)
    assert bool((info.trace.queries.diff(dim=0) >= 0).all())
    assert torch.equal(info.trace.loss[-1] > 0, info.success)
    with torch.no_grad():
        torch.testing.assert_close(info.trace.loss[0], margin(net(x), y))
    distance = (adv - x).flatten(1).abs().amax(1)
    torch.testing.assert_close(info.trace.distance[-1][info.success], distance[info.success])


def test_targets_of_every_kind() -> None:
    net, x = small_net(), random_images(3)
    y = labels_of(net, x)
    made = attack("nes", budget=200)

    def detached(z: Tensor) -> Tensor:
        return torch.from_numpy(net(z).numpy())

    expected = made(net, x, y)
    assert torch.equal(made(detached, x, y), expected)
    assert torch.equal(made(net.train(), x, y), expected)
    half = made(small_net().to(torch.bfloat16), x.to(torch.bfloat16), y)
    assert half.dtype == torch.bfloat16


def site(slope: Tensor, samples: int, *, points: Tensor, prior: Tensor | None = None) -> Site:
    """A linear objective, whose gradient is ``slope`` everywhere."""

    def ask(z: Tensor, rows: Tensor) -> Tensor:
        return (z * slope[rows]).flatten(1).sum(1)

    rows = torch.arange(len(points))
    return Site(
        points=points,
        value=ask(points, rows),
        keys=rows + 11,
        rows=rows,
        samples=samples,
        sigma=1e-2,
        width=64,
        ask=ask,
        prior=lambda z, some: slope[some] if prior is None else prior[some],
        step=0,
        memory=points.new_zeros(len(points)),
    )


GRADIENTS: dict[str, QueryGradient] = {
    "gaussian": FiniteDifferences(),
    "signs": FiniteDifferences(draw="signs"),
    "distribution": GaussianSearch(side=None),
    "guided by nothing": PriorGuided(),
}


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a.flatten(1), b.flatten(1)).mean())


@pytest.mark.parametrize("kind", GRADIENTS)
def test_estimates_converge_at_the_known_rate(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (8, 3, 12, 12)
    slope = torch.randn(shape, generator=generator, dtype=torch.float64)
    useless = torch.zeros_like(slope)
    points = torch.full(shape, 0.5, dtype=torch.float64)
    dimensions = slope[0].numel()
    for samples in (8, 32, 128, 512, 2048):
        found = GRADIENTS[kind](site(slope, samples, points=points, prior=useless))
        drawn = samples // 2 if isinstance(GRADIENTS[kind], FiniteDifferences) else samples
        # n random directions of D catch n/(n + D) of the squared gradient
        expected = math.sqrt(drawn / (drawn + dimensions))
        assert cosine(found, slope) == pytest.approx(expected, rel=0.12)


def test_a_good_prior_is_followed_and_a_bad_one_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (8, 3, 12, 12)
    slope, noise = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    points = torch.full(shape, 0.5, dtype=torch.float64)
    plain = cosine(PriorGuided()(site(slope, 50, points=points, prior=torch.zeros_like(slope))), slope)
    half = cosine(PriorGuided()(site(slope, 50, points=points, prior=slope + 2 * noise)), slope)
    bad = cosine(PriorGuided()(site(slope, 50, points=points, prior=noise)), slope)
    turned = cosine(PriorGuided()(site(slope, 50, points=points, prior=-slope)), slope)
    assert half > max(plain, 0.4)
    assert bad > 0.7 * plain
    assert turned > 0.99


def test_the_lean_is_the_best_there_is() -> None:
    size, samples = 500, 20
    cosines = torch.tensor([0.003, 0.01, 0.03], dtype=torch.float64)
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
    # what the expected squared cosine of the estimate grows with, maximised by brute force
    mean = (grid * cosines + (1 - grid) / (size - 1) * (1 - cosines)) ** 2
    second = (1 - 1 / samples) * (grid**2 * cosines + ((1 - grid) / (size - 1)) ** 2 * (1 - cosines)) + 1 / samples * (
        grid * cosines + (1 - grid) / (size - 1) * (1 - cosines)
    )
    best = grid[(mean / second).argmax(0), 0]
    torch.testing.assert_close(best_lean(cosines, size, samples), best, rtol=0, atol=2e-3)


class Fails(nn.Module):
    """Answers a few times, then does what it is told."""

    def __init__(self, after: int, then: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.left, self.then = small_net(), after, then

    def forward(self, x: Tensor) -> Any:
        self.left -= 1
        scores = self.net(x)
        return scores if self.left >= 0 else self.then(scores)


def breaks(scores: Tensor) -> Tensor:
    raise ConnectionError("no route to host")


FAILURES: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "raises": (breaks, "failed in step 2, .*raised ConnectionError: no route to host"),
    "nan": (lambda s: s * torch.nan, "scores must be finite; got NaN"),
    "fewer classes": (lambda s: s[:, :5], "7 classes before and 5 now|labels must lie"),
    "no tensor": (lambda s: s.numpy(), "must return a tensor; got ndarray"),
    "shape": (lambda s: s[0], r"classes\) logits; got \(7,\)"),
}


@every_attack
@pytest.mark.parametrize("what", FAILURES)
def test_a_target_that_fails_loses_nothing(name: str, what: str) -> None:
    then, message = FAILURES[what]
    x = random_images(3)
    y = labels_of(small_net(), x)
    made = attack(name, eps=1 / 255, samples=10, chunk=64)
    # a check and a gradient a step; P-RGF with a good prior asks once for its gradient, and in its first step twice
    steps = 6 if name == "prgf" else 4
    with pytest.raises(TargetError, match=message) as caught:
        made(Fails(steps, then), x, y)
    error = caught.value
    assert error.adv is not None
    assert error.info is not None
    assert error.info.queries is not None
    with torch.no_grad():
        assert bool((margin(small_net()(error.adv), y) >= margin(small_net()(x), y)).all())
    assert float((error.adv - x).abs().max()) <= 1 / 255 + 1e-6
    # and it can be gone on from
    attack(name, eps=1 / 255, samples=10, init=error.adv)(small_net(), x, y)


X, Y = random_images(3), torch.tensor([0, 1, 2])
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: whorl.attack("nes", budget=101), "budget must pay for one step: .* make 102; got 101"),
    (lambda: whorl.attack("prgf", budget=62), "make 63; got 62"),
    (lambda: whorl.attack("nes", budget=1e4), "budget must be a whole number"),
    (lambda: whorl.attack("nes", samples=7), "samples must be even.*got 7"),
    (lambda: whorl.attack("nattack", samples=1), "samples must be >= 2"),
    (lambda: whorl.attack("nes", sigma=0), "sigma must be a number above 0"),
    (lambda: whorl.attack("nes", eps=-1), "eps must be a number above 0"),
    (lambda: whorl.attack("nes", norm="l1"), "norm must be 'linf' or 'l2'; got 'l1'"),
    (lambda: whorl.attack("nes", optimizer="sgd"), "'sign', 'adam' or 'ascent'; got 'sgd'"),
    (lambda: whorl.attack("nes", gradient="nes"), "gradient must be a QueryGradient"),
    (lambda: whorl.attack("prgf", space=Tanh()), r"space must be Pixels\(\); got Tanh\(\)"),
    (lambda: whorl.attack("nes", init="ai-dim"), "init must be an attack, .* got 'ai-dim'"),
    (lambda: FiniteDifferences(draw="cauchy"), "draw must be 'gaussian' or 'signs'"),  # type: ignore[arg-type]
    (lambda: whorl.attack("nes", init=whorl.attack("fgsm"))(small_net(), X, Y), "needs surrogate="),
    (lambda: whorl.attack("prgf")(small_net(), X, Y), "PriorGuided needs surrogate="),
    (lambda: whorl.attack("nes", surrogate=small_net())(small_net(), X, Y), "surrogate is of no use here"),
    (
        lambda: whorl.attack("nes", eps=8 / 255, init=whorl.attack("fgsm"), surrogate=small_net())(
            small_net(), X, Y, ids=["a", "b", "c"]
        ),
        "start must lie in the ball of linf radius 0.03137 .* got 0.06275 for image a.*same eps and norm",
    ),
    (lambda: whorl.attack("nes", init=X[:2])(small_net(), X, Y), "one start per image"),
    (lambda: whorl.attack("nes", init=X + 2)(small_net(), X, Y), r"images must lie in \[0, 1\]"),
    (lambda: whorl.attack("nes")(small_net(), X, Y + 5), r"labels must lie in \[0, 6\].* got 7"),
    (lambda: whorl.attack("nes")(nn.Identity(), X, Y), r"must return \(3, classes\) logits"),
    (lambda: whorl.attack("nes")(lambda z: small_net()(z).argmax(1), X, Y), r"must return \(3, classes\) logits"),
]


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()


def test_an_empty_batch_comes_back_empty() -> None:
    adv, info = attack("nes")(small_net(), X[:0], Y[:0], return_info=True)
    assert adv.shape == (0, 3, 18, 18)
    assert info.queries is not None
    assert info.queries.shape == (0,)


def test_the_repr_is_short() -> None:
    made = whorl.attack("nes", init=whorl.attack("fgsm"), surrogate=small_net(), budget=500)
    assert repr(made) == "ScoreAttack(budget=500, init=GradientAttack(steps=1), surrogate=<Sequential>)"
