"""The recorded loop does what the plain one does. A CPU records nothing, but calls the same step on such buffers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images, small_net
from whorl.attacks import gradient, recorded
from whorl.attacks.contract import held_in_eval
from whorl.attacks.gradient import GradientAttack
from whorl.attacks.loop import Made, UnderAttack, run, step_by_step
from whorl.attacks.objectives import Goal
from whorl.attacks.recorded import _BUFFERS, Loop, loop_for, recordable, roomy
from whorl.attacks.transfer import TransferAttack
from whorl.errors import WhorlError
from whorl.geometry.polar import polar_plan
from whorl.models.backward import Backward
from whorl.models.prepared import network
from whorl.models.prepared.fold import folded
from whorl.models.prepared.graph import Constants, Recorded, turns
from whorl.randomness import image_keys
from whorl.transforms import Gain, InputChain, Mirror, SpreadAffine


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    network.forget()
    yield
    network.forget()


def under_attack(attack: GradientAttack, x: Tensor, y: Tensor, *, targeted: bool = False) -> UnderAttack:
    """What an attack's loop is given, without a random start."""
    eps = attack.radius(x)
    goal = Goal(y, targeted, int(y.max()))
    return UnderAttack(x, x, goal, image_keys(x, 3), eps, eps * 5 / attack.steps)


def classifier(seed: int = 0) -> whorl.Classifier:
    """A small one with batch norms to fold."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn_like(module.running_mean) / 4  # type: ignore[arg-type]
            module.running_var = torch.rand_like(module.running_var) + 0.5  # type: ignore[arg-type]
    return whorl.Classifier.from_module(net, size=18, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))


SETTINGS: dict[str, dict[str, Any]] = {
    "mim": {},
    "dim": {},
    "ai-mim": {},
    "ai-dim": {},
    "ti-pgd": {},
    "eot": {"samples": 5, "chunk": 2},
    "ai-ram": {"norm": "l2", "eps": 2.0},
    "pgd": {"loss": "margin", "momentum": 0.8},
    "ri-dim": {},
    "ram": {},
    "ai-best": {"temperature": 2.0, "overshoot": 1.5},
    # More draws than one a step; the other designs of poses.
    "ai-best latin": {"samples": 3, "chunk": 2, "input": InputChain(Gain(), SpreadAffine(), Mirror())},
    "mim antithetic": {"input": SpreadAffine(design="antithetic")},
    "mim near": {"input": SpreadAffine(near=1.0), "cooling": 0.3},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("targeted", [False, True])
def test_the_step_on_buffers_is_the_step_of_the_plain_loop(name: str, targeted: bool) -> None:
    net, x = small_net().double(), random_images(4).double()
    y = net(x).argmax(1)
    attack = whorl.attack(name.split()[0], **{"steps": 4, **SETTINGS[name]})
    assert isinstance(attack, GradientAttack)
    assert recordable(attack)
    batch = under_attack(attack, x, (y + 1) % CLASSES if targeted else y, targeted=targeted)
    with held_in_eval(net):
        expected = run(attack, net, batch).images
        loop = Loop(attack, net, x, targeted=targeted)
        assert isinstance(batch.alpha, Tensor)
        given = (batch.goal.labels, batch.keys, batch.eps, batch.alpha)
        for _ in range(2):  # the second time finds used buffers
            adv, finite = loop.run(x, x, *given, 4)
            torch.testing.assert_close(adv, expected, rtol=0, atol=1e-9)
            assert bool(finite.all())
        # Other images in between, whose draws are others.
        loop.run(x.flip(0), x.flip(0), given[0].flip(0), given[1] + 1, *given[2:], 4)
        torch.testing.assert_close(loop.run(x, x, *given, 4)[0], expected, rtol=0, atol=1e-9)
        # A short batch gets what it gets in the whole one.
        some = [part[1:3] if len(part) == 4 else part for part in given]
        adv, finite = loop.run(x[1:3], x[1:3], some[0], some[1], some[2], some[3], 4)
        torch.testing.assert_close(adv, expected[1:3], rtol=0, atol=1e-9)
        assert len(finite) == 2


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_may_be_called_once_more_than_there_are_steps(name: str) -> None:
    """As a recording's warm-ups do, whose results nobody looks at: on a GPU an index out of range ends the process."""
    x = random_images(2)
    attack = whorl.attack(name.split()[0], **{**SETTINGS[name], "steps": 1})
    assert isinstance(attack, GradientAttack)
    loop = Loop(attack, small_net(), x, targeted=False)
    for _ in range(3):
        loop.step()
    assert int(loop.buffers.step) == 3


def test_a_gradient_that_is_not_finite_is_told() -> None:
    class Bad(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x.flatten(1).sum(1), (x[:, 0, 0, 0] - 0.5).sqrt()], dim=1)

    x = torch.full((3, 3, 6, 6), 0.6)
    x[1] = 0.5  # an infinite slope
    attack = GradientAttack(steps=1)
    batch = under_attack(attack, x, torch.zeros(3, dtype=torch.int64))
    loop = Loop(attack, Bad(), x, targeted=False)
    _, finite = loop.run(x, x, batch.goal.labels, batch.keys, batch.eps, batch.eps, 1)
    assert finite.tolist() == [True, False, True]


def test_an_answer_that_is_not_finite_is_told_though_the_gradient_is() -> None:
    class Overflowing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            total = x.flatten(1).sum(1)
            return torch.stack([total, torch.where(total > 60, total.detach() / 0, 0 * total)], dim=1)

    x = torch.full((2, 3, 6, 6), 0.5)
    x[1] = 0.7
    attack = GradientAttack(steps=1, loss="logit")
    batch = under_attack(attack, x, torch.zeros(2, dtype=torch.int64))
    loop = Loop(attack, Overflowing(), x, targeted=False)
    _, finite = loop.run(x, x, batch.goal.labels, batch.keys, batch.eps, batch.eps, 1)
    assert finite.tolist() == run(attack, Overflowing(), batch).finite.tolist() == [True, False]


class Planless(whorl.RandomAffine):
    """Plans anew for each batch, in a way that no recording can take over."""

    def plan(self, table: Tensor) -> whorl.InputTransform:
        return lambda x, keys: self.pose(x, table.float()[: len(x), :4] * 0)


def test_what_may_be_recorded() -> None:
    def recorded(**settings: Any) -> bool:
        return recordable(GradientAttack(**settings))

    assert recorded(estimator=whorl.Chain(whorl.TranslationInvariant(), whorl.AffineInvariant()))
    assert not recorded(optimizer="adam")
    assert not recorded(early_stop=True)
    assert not recorded(estimator=lambda g: g)
    assert not recorded(estimator=whorl.Chain(whorl.TranslationInvariant(), lambda g: g))
    assert not recorded(input=lambda x, keys: x)
    assert recorded(input=InputChain(Mirror(), SpreadAffine(), Gain()))
    assert not recorded(input=InputChain(Mirror(), lambda x, keys: x))
    assert not recorded(input=Planless())
    assert not recorded(input=InputChain(Mirror(), Planless()))
    # Every preset that takes sign steps.
    presets = [whorl.attack(name) for name in whorl.attack_names(kind="gradient")]
    assert all(recordable(preset) for preset in presets if isinstance(preset, GradientAttack))


def fast(attack: whorl.Attack, model: nn.Module, x: Tensor, y: Tensor) -> Made:
    assert isinstance(attack, GradientAttack)
    with held_in_eval(model):
        return recorded.run_fast(attack, model, under_attack(attack, x, y))


@pytest.mark.parametrize(
    "settings",
    [{}, {"optimizer": "adam"}, {"early_stop": True}, {"estimator": lambda g: g}],
    ids=["plain", "adam", "early stop", "own estimator"],
)
def test_on_a_prepared_network_the_attack_is_as_strong(settings: dict[str, Any]) -> None:
    clf, x = classifier(), random_images(24)
    y = clf(x).argmax(1)
    attack = whorl.attack("mim", **settings)
    assert isinstance(attack, GradientAttack)
    made = fast(attack, clf, x, y)
    kept = network.prepared(clf)
    assert kept is not None
    assert len(kept.loops) == (0 if settings else 1)
    plainly = step_by_step(attack, clf, under_attack(attack, x, y)).images
    assert float((made.images - x).abs().max()) <= 16 / 255 + 1e-6
    fooled, expected = ((clf(adv).argmax(1) != y).sum().item() for adv in (made.images, plainly))
    assert abs(fooled - expected) <= 1
    # bfloat16 turns the sign of a small gradient now and then, and no more
    assert float(((made.images - x).sign() == (plainly - x).sign()).float().mean()) > 0.9


class Blocks(nn.Module):
    """Two residual blocks with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(32, CLASSES)
        self.one, self.two = (
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)) for _ in "ab"
        )
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.act(x + self.one(x))
        x = self.act(x + self.two(x))
        out: Tensor = self.head(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))
        return out


def test_a_changed_source_is_prepared_with_its_changes_and_recorded() -> None:
    torch.manual_seed(0)
    clf = whorl.Classifier.from_module(Blocks(), size=18, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    x = random_images(24)
    y = clf(x).argmax(1)
    attack = whorl.attack("ai-best", steps=5)
    assert isinstance(attack, TransferAttack)
    batch = under_attack(attack, x, y)
    with held_in_eval(clf):
        made = recorded.run_fast(attack, clf, batch)
        with attack.backward.applied(clf, x) as changed:
            plainly = run(attack, changed, batch).images
    kept = network.prepared(clf, attack.backward)
    assert kept is not None
    assert len(kept.loops) == 1
    assert not any(module._forward_hooks for module in clf.modules())
    # bfloat16 turns the sign of a small gradient now and then, and no more
    unchanged = fast(attack.with_(backward=Backward()), clf, x, y).images
    same, other = (((v - x).sign() == (plainly - x).sign()).float().mean() for v in (made.images, unchanged))
    assert float(same) > 0.97
    assert float(other) < 0.92
    # What is planned is planned for so many steps, and a loop for each number of them is kept.
    fast(attack.with_(steps=3), clf, x, y)
    assert len(kept.loops) == 2
    # A module that is no classifier is changed by hooks, on a copy of it.
    by_hooks = fast(attack, clf.net, x, y).images
    assert float((by_hooks - x).abs().max()) <= 16 / 255 + 1e-6
    assert not any(module._forward_hooks for module in clf.modules())


def test_an_ensemble_is_prepared_member_by_member() -> None:
    both = whorl.Ensemble([classifier(0), classifier(1)], weights=[2, 1], fuse="losses")
    x = random_images(4)
    kept = network.prepared(both)
    assert kept is not None
    assert kept.network is not None
    torch.testing.assert_close(kept.network(x), both(x), rtol=0, atol=0.05)
    made = fast(whorl.attack("mim", steps=2), both, x, both(x).argmax(1))
    assert made.grad_evals.tolist() == [2] * 4


def test_loops_are_kept_by_what_they_depend_on_and_few_of_them() -> None:
    clf, x = classifier(), random_images(5)
    kept = network.prepared(clf)
    assert kept is not None
    attack = whorl.attack("ai-dim")
    assert isinstance(attack, GradientAttack)
    first = loop_for(attack, kept, x, targeted=False)
    assert len(first.buffers.x) == 6
    # Bound, step size and steps are given anew each time; a preset's parts are the same objects.
    again = whorl.attack("ai-dim", eps=0.1, steps=3)
    assert isinstance(again, GradientAttack)
    assert loop_for(again, kept, x, targeted=False) is first
    # Two estimators with weights of one's own compare equal, and are not the same.
    others = [whorl.AffineInvariant(weights=torch.rand(3, 3)) for _ in range(2)]
    assert others[0] == others[1]
    loops = [loop_for(attack.with_(estimator=other), kept, x, targeted=False) for other in others]
    assert loops[0] is not loops[1]
    assert len(kept.loops) == 3
    assert loop_for(attack, kept, x, targeted=False) is first
    # A chain that suits itself to ε is another object every time, of the same parts.
    suited = attack.with_(estimator=whorl.Chain(whorl.AffineInvariant(), whorl.RotationInvariant(at_eps=0.1)), eps=0.05)
    wider = suited.with_(eps=0.06)
    both = [loop_for(one, kept, x, targeted=False) for one in (suited, wider)]
    assert both[0] is not both[1]
    assert all(loop_for(a, kept, x, targeted=False) is b for a, b in zip((suited, wider), both, strict=True))
    loops += both
    # They take turns, so that one set of buffers does for a shape; it goes with the last of them.
    assert all(loop.buffers is first.buffers for loop in loops)
    assert loop_for(attack, kept, x[:2], targeted=False).buffers is not first.buffers
    more = [whorl.AffineInvariant(weights=torch.rand(3, 3)) for _ in range(8)]
    for other in more:
        loop_for(attack.with_(estimator=other), kept, x, targeted=False)
    assert len(kept.loops) == 8
    assert loop_for(attack, kept, x, targeted=False) is not first
    del first, loops, both
    kept.loops.clear()
    assert not _BUFFERS


def test_threads_take_turns() -> None:
    """Loops of one shape share buffers, so two threads must not mix theirs."""
    net, x = small_net(), random_images(4)
    names = ("mim", "dim", "ti-pgd")
    attacks = [attack for attack in map(whorl.attack, names) if isinstance(attack, GradientAttack)]
    y = net(x).argmax(1)
    loops = [Loop(attack, net, x, targeted=False) for attack in attacks]
    assert loops[0].buffers is loops[1].buffers

    def run(index: int) -> Tensor:
        batch = under_attack(attacks[index], x, y)
        assert isinstance(batch.alpha, Tensor)
        return loops[index].run(x, x, y, batch.keys, batch.eps, batch.alpha, 5)[0]

    with held_in_eval(net):
        alone = [run(index) for index in range(len(loops))]
        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(run, [0, 1, 2] * 4))
    assert all(torch.equal(made, alone[place % 3]) for place, made in enumerate(together))
    assert turns(torch.device("cpu")) is turns(torch.device("cpu"))


def test_labels_are_checked_before_the_loop() -> None:
    clf, x = classifier(), random_images(2)
    with pytest.raises(WhorlError, match="labels must lie in"):
        fast(whorl.attack("mim"), clf, x, torch.tensor([0, CLASSES]))


def test_what_does_not_fit_is_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    clf, x = classifier(), random_images(7)
    y = clf(x).argmax(1)
    attack = whorl.attack("mim", eps=torch.linspace(0.01, 0.07, 7))
    whole = fast(attack, clf, x, y).images
    sizes: list[int] = []
    run = Loop.run

    def run_if_small(self: Loop, x: Tensor, *rest: Any) -> Any:
        if len(x) > 2:
            raise torch.cuda.OutOfMemoryError
        sizes.append(len(x))
        return run(self, x, *rest)

    monkeypatch.setattr(Loop, "run", run_if_small)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    parts = fast(attack, clf, x, y).images
    assert sizes == [2, 2, 2, 1]
    assert float(((parts - whole).abs() > 1e-6).float().mean()) < 0.05
    monkeypatch.setattr(Loop, "run", lambda *_: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError()))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        fast(attack.with_(eps=0.1), clf, x[:1], y[:1])


def test_sizes_depend_on_the_batch_alone() -> None:
    sizes = [roomy(n) for n in range(1, 2000)]
    for n, size in enumerate(sizes, start=1):
        assert n <= size < max(n * 1.5, n + 1.5)
    assert len(set(sizes)) < 25


def test_a_cache_that_may_have_dropped_something_is_noticed() -> None:
    def plan(side: int) -> None:
        polar_plan(side, side, torch.device("cpu"), torch.float32, side)

    polar_plan.cache_clear()
    plan(5)
    constants = Constants()
    assert polar_plan in constants.seen
    plan(5)
    plan(6)
    assert constants.held()
    for side in range(7, 7 + polar_plan.cache_parameters()["maxsize"]):
        plan(side)
    assert not constants.held()
    constants = Constants()
    polar_plan.cache_clear()
    assert not constants.held()


def test_a_cpu_calls_the_function_itself() -> None:
    calls: list[int] = []
    recorded = Recorded(lambda: calls.append(1), torch.device("cpu"))
    assert not calls
    recorded()
    assert calls == [1]


@pytest.mark.parametrize("fast_setting", [None, True])
def test_on_a_cpu_batch_norms_are_folded_and_nothing_else(
    fast_setting: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf = whorl.load_model("resnet18")
    x, y, ids = whorl.load_samples(2, size=96)
    made: list[bool] = []

    def counted(model: whorl.Classifier, *, norms: bool) -> whorl.Classifier:
        made.append(norms)
        return folded(model, norms=norms)

    monkeypatch.setattr(gradient, "folded", counted)
    plain = whorl.attack("ai-dim", steps=2, fast=False)(clf, x, y, ids=ids)
    assert not made
    quick = whorl.attack("ai-dim", steps=2, fast=fast_setting)(clf, x, y, ids=ids)
    assert made == [True]
    # Rounding turns the sign of few gradients.
    assert float((quick - plain).abs().gt(1e-6).float().mean()) < 0.02
    assert not network._KEPT
    # A copy would lose the hook.
    with clf.net.register_forward_hook(lambda *_: None):
        whorl.attack("ai-dim", steps=2, fast=fast_setting)(clf, x, y, ids=ids)
    assert made == [True]
    # For a single gradient folding would not pay; kernels are laid out in any case.
    once, plain = (whorl.attack("fgsm", fast=fast)(clf, x, y, ids=ids) for fast in (fast_setting, False))
    assert made == [True, False]
    assert float((once - plain).abs().gt(1e-6).float().mean()) < 0.001


def test_unasked_it_is_fast_and_asked_not_to_nothing_changes() -> None:
    clf, x = classifier(), random_images(3)
    y = clf(x).argmax(1)
    attack = whorl.attack("ai-dim", steps=3)
    assert isinstance(attack, GradientAttack)
    assert attack.fast is None
    with held_in_eval(clf):
        plainly = step_by_step(attack, clf, under_attack(attack, x, y)._replace(keys=image_keys(x, 0))).images
    assert torch.equal(attack.with_(fast=False)(clf, x, y), plainly)
    torch.testing.assert_close(attack(clf, x, y), plainly, rtol=0, atol=1e-5)
    assert not network._KEPT


def test_a_setting_that_is_none_of_the_three() -> None:
    with pytest.raises(WhorlError, match="fast must be True or False, or None"):
        whorl.attack("mim", fast="very")


@dataclass(frozen=True)
class Unfollowed:
    """Changes from step to step, and cannot read the step from a device."""

    inner: whorl.RotationInvariant
    pure: ClassVar[bool] = True

    def at(self, step: int, steps: int) -> whorl.Estimator:
        return self.inner.at(step, steps)

    def __call__(self, gradient: Tensor) -> Tensor:
        return self.inner(gradient)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 1.0])
@pytest.mark.parametrize("asked", [False, True], ids=["followed", "asked outside"])
def test_an_estimator_that_changes_follows_the_step_or_is_asked_outside_of_what_is_recorded(
    chained: bool, momentum: float, asked: bool
) -> None:
    inner = whorl.RotationInvariant(degrees=(60.0, 4.0))
    narrowing: Any = Unfollowed(inner) if asked else inner
    estimator = whorl.Chain(whorl.TranslationInvariant(kernel_size=3, sigma=0.6), narrowing) if chained else narrowing
    attack = whorl.attack("dim", steps=4, estimator=estimator, momentum=momentum)
    assert isinstance(attack, GradientAttack)
    assert recordable(attack)
    clf, x = classifier(), random_images(3)
    y = torch.arange(3)
    batch = under_attack(attack, x, y)
    net = folded(clf)
    loop = Loop(attack, net, x, targeted=False)
    assert loop.step.changes == asked
    adv, finite = loop.run(x, x, y, batch.keys, batch.eps, torch.as_tensor(batch.alpha), attack.steps)
    assert bool(finite.all())
    assert (adv - run(attack, net, batch).images).abs().max() < 1e-6
    still = Loop(attack.with_(estimator=narrowing.at(0, 4)), net, x, targeted=False)
    assert not still.step.changes
