"""Boundary and Evolutionary: exact counts, labels alone, and nearer than noise blended in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from blackbox import Counting, labels_of, related_net
from conftest import CLASSES, random_images, small_net
from whorl import WhorlError
from whorl.attacks import TargetError
from whorl.attacks.blackbox.decision import BoundaryWalk, EvolutionaryWalk

NAMES = whorl.attack_names(kind="decision")
every_attack = pytest.mark.parametrize("name", NAMES)


def lengths(adv: Tensor, x: Tensor) -> Tensor:
    size: Tensor = (adv - x).flatten(1).norm(dim=1)
    return size


def labels_only(net: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda z: net(z).argmax(1)


class Recording(nn.Module):
    """A target that counts all it sees, noise included."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.seen = net, 0

    def forward(self, x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        assert float(x.min()) >= 0
        assert float(x.max()) <= 1
        self.seen += len(x)
        scores: Tensor = self.net(x)
        return scores


INITS: dict[str, dict[str, Any]] = {
    "none": {},
    "tensor": {"init": 1 - random_images(8)},
    "ai-dim": {"init": whorl.attack("ai-dim", steps=2), "surrogate": related_net(small_net(), by=1.0)},
}


@every_attack
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_the_counter_is_exact_and_within_the_budget(name: str, init: str, batch: int) -> None:
    net, x = small_net(), random_images(8)
    y = labels_of(net, x)
    y[0] = (y[0] + 1) % CLASSES  # wrong already: one query
    for part in torch.arange(8).split(batch):
        settings = dict(INITS[init])
        if init == "tensor":
            settings["init"] = settings["init"][part]
        target = Recording(net)
        _, info = whorl.attack(name, budget=61, eps=0.5, **settings)(target, x[part], y[part], return_info=True)
        assert info.queries is not None
        assert int(info.queries.sum()) == target.seen
        assert int(info.queries.max()) <= 61
        if 0 in part:
            assert int(info.queries[0]) == 1


@every_attack
def test_the_count_is_each_images_own(name: str) -> None:
    net, x = small_net(), random_images(6)
    target = Counting(net, x)
    init = whorl.attack("fgsm", eps=0.2)(net, x, labels_of(net, x))
    _, info = whorl.attack(name, budget=80, eps=0.4, init=init)(target, x, labels_of(net, x), return_info=True)
    assert info.queries is not None
    assert torch.equal(info.queries, target.seen)
    assert len(set(info.queries.tolist())) > 1


@every_attack
@pytest.mark.parametrize("targeted", [False, True])
def test_comes_near_from_labels_alone(name: str, targeted: bool) -> None:
    net, x = small_net(), random_images(6)
    y = labels_of(net, x)
    others = random_images(64, seed=9)
    said = labels_of(net, others)
    wanted = (y + 1) % CLASSES
    starts = torch.stack([others[said == int(w)][0] for w in wanted])
    labels: dict[str, Any] = {"target": wanted} if targeted else {"y": y}
    settings: dict[str, Any] = {"init": starts} if targeted else {}
    first = whorl.attack(name, budget=30, **settings)(labels_only(net), x, **labels)
    adv, info = whorl.attack(name, budget=1500, **settings)(labels_only(net), x, return_info=True, **labels)
    answer = labels_of(net, adv)
    assert bool((answer == wanted).all() if targeted else (answer != y).all())
    assert bool(info.success.all())
    assert float(adv.min()) >= 0
    assert float(adv.max()) <= 1
    # a start and its bisection is what noise alone gives
    assert float((lengths(adv, x) / lengths(first, x)).mean()) < 0.35


@every_attack
def test_scores_and_labels_give_the_same(name: str) -> None:
    net, x = small_net(), random_images(3)
    y = labels_of(net, x)
    made = whorl.attack(name, budget=100)
    assert torch.equal(made(net, x, y, seed=4), made(labels_only(net), x, y, seed=4))
    assert not torch.equal(made(net, x, y, seed=4), made(net, x, y, seed=5))


@every_attack
def test_does_not_depend_on_the_batch_or_the_chunk(name: str) -> None:
    net, x = small_net().double(), random_images(5).double()
    y = labels_of(net, x)
    made = whorl.attack(name, budget=200)
    whole = made(net, x, y)
    parts = [made(net, x[i : i + 2], y[i : i + 2]) for i in range(0, 5, 2)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-9)
    torch.testing.assert_close(made.with_(chunk=2)(net, x, y), whole, rtol=0, atol=1e-9)


@every_attack
def test_a_transfer_start_saves_queries(name: str) -> None:
    net, x = small_net(), random_images(8)
    y = labels_of(net, x)
    init = whorl.attack("ai-dim", steps=5)
    _, plain = whorl.attack(name, budget=1500, eps=0.5)(net, x, y, return_info=True)
    started = whorl.attack(name, budget=1500, eps=0.5, init=init, surrogate=related_net(net))
    adv, info = started(net, x, y, return_info=True)
    assert plain.queries is not None
    assert info.queries is not None
    assert info.grad_evals is not None
    assert int(info.queries.sum()) < 0.6 * int(plain.queries.sum())
    assert info.grad_evals.tolist() == [5] * 8
    assert torch.equal(info.success, (lengths(adv, x) <= 0.5) & (labels_of(net, adv) != y))


@every_attack
def test_a_targeted_start_that_misses_is_given_up(name: str) -> None:
    net, x = small_net(), random_images(2)
    wanted = (labels_of(net, x) + 1) % CLASSES
    adv, info = whorl.attack(name, budget=100, init=x)(net, x, target=wanted, return_info=True)
    assert torch.equal(adv, x)
    assert not bool(info.success.any())
    assert info.queries is not None
    assert info.queries.tolist() == [2, 2]


@every_attack
def test_the_trace_tells_the_way(name: str) -> None:
    net, x = small_net(), random_images(3)
    y = labels_of(net, x)
    adv, info = whorl.attack(name, budget=200, trace=True)(net, x, y, return_info=True)
    assert info.trace is not None
    assert info.queries is not None
    assert bool((info.trace.queries.diff(dim=0) >= 0).all())
    assert bool((info.trace.queries[-1] <= info.queries).all())
    assert bool(info.trace.loss.isnan().all())
    torch.testing.assert_close(info.trace.distance[-1], lengths(adv, x), rtol=1e-4, atol=1e-6)


@every_attack
def test_a_target_that_fails_loses_nothing(name: str) -> None:
    net, x = small_net(), random_images(3)
    y = labels_of(net, x)
    left = 60

    def breaks(z: Tensor) -> Tensor:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError("too slow")
        return labels_of(net, z)

    with pytest.raises(TargetError, match=r"failed in step \d+, .*TimeoutError: too slow") as caught:
        whorl.attack(name, budget=1000)(breaks, x, y)
    assert caught.value.adv is not None
    assert caught.value.info is not None
    assert bool(caught.value.info.success.all())
    assert bool((labels_of(net, caught.value.adv) != y).all())


X, Y = random_images(3), torch.tensor([0, 1, 2])
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: whorl.attack("boundary", budget=13), "budget must pay for one step: .* make 14; got 13"),
    (lambda: whorl.attack("evolutionary", budget=12), "make 13; got 12"),
    (lambda: whorl.attack("boundary", tries=0), "tries must be a whole number >= 1"),
    (lambda: whorl.attack("boundary", bisections=-1), "bisections must be a whole number >= 0"),
    (lambda: whorl.attack("boundary", eps=0), "eps must be a number above 0"),
    (lambda: whorl.attack("boundary", walk="straight"), "walk must be a Walk"),
    (lambda: whorl.attack("boundary", norm="linf"), "unknown setting 'norm'"),
    (lambda: BoundaryWalk(adaptation=1), "adaptation must be a number above 1"),
    (lambda: EvolutionaryWalk(mu=1.5), r"mu must be a number in \(0, 1\); got 1.5"),
    (lambda: whorl.attack("boundary")(small_net(), X, target=Y), "targeted decision-based attack needs init="),
    (lambda: whorl.attack("boundary", surrogate=small_net())(small_net(), X, Y), "surrogate is of no use here"),
    (lambda: whorl.attack("boundary")(lambda z: torch.zeros(1, dtype=torch.int64), X, Y), r"\(3,\) labels; got \(1,\)"),
    (lambda: whorl.attack("boundary")(lambda z: torch.zeros(3), X, Y), r"must return \(3, classes\) logits"),
    (lambda: whorl.attack("boundary")(lambda z: [0, 1, 2], X, Y), "must return a tensor; got list"),  # type: ignore[arg-type, return-value]
]


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()
