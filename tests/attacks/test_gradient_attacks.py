"""One table drives every ε-bounded attack."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

import reference
import whorl
from conftest import CLASSES, random_images, small_net
from whorl.geometry.kernels import Sigma, _weight_tensor
from whorl.geometry.polar import polar_plan
from whorl.randomness import image_keys, substream, uniform


@dataclass(frozen=True)
class Case:
    name: str
    norm: str
    targeted: bool

    def __str__(self) -> str:
        return f"{self.name}-{self.norm}-{'targeted' if self.targeted else 'untargeted'}"

    def attack(self, **overrides: Any) -> whorl.Attack:
        fast = {"samples": 3, "steps": 3} if self.name == "eot" else {} if "fgsm" in self.name else {"steps": 4}
        eps = 8 / 255 if self.norm == "linf" else 0.5
        return whorl.attack(self.name, **{"norm": self.norm, "eps": eps, **fast, **overrides})

    def run(self, net: nn.Module, x: Tensor, labels: Tensor, *, seed: int = 0, **overrides: Any) -> Tensor:
        attack = self.attack(**overrides)
        return attack(net, x, target=labels, seed=seed) if self.targeted else attack(net, x, labels, seed=seed)


NAMES = whorl.attack_names(kind="gradient")
CASES = [Case(name, norm, targeted) for name in NAMES for norm in ("linf", "l2") for targeted in (False, True)]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_name = pytest.mark.parametrize("name", NAMES)


def size(delta: Tensor, norm: str) -> Tensor:
    return delta.flatten(1).abs().amax(1) if norm == "linf" else delta.flatten(1).norm(dim=1)


def labels_for(case: Case, net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        truth: Tensor = net(x).argmax(1)
    return (truth + 1) % CLASSES if case.targeted else truth


@every_case
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_stays_in_the_ball_and_the_box(case: Case, data: st.DataObject) -> None:
    eps = data.draw(st.floats(0, 1 if case.norm == "linf" else 5))
    shape = data.draw(st.tuples(st.integers(1, 3), st.sampled_from([1, 3]), st.integers(5, 12), st.integers(5, 12)))
    x = random_images(*shape, seed=data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        x = x.round()  # images of nothing but black and white press against the box
    net = small_net(shape[1])
    adv = case.run(net, x, labels_for(case, net, x), seed=data.draw(st.integers()), eps=eps)
    assert adv.shape == x.shape
    assert adv.dtype == x.dtype
    assert bool(adv.isfinite().all())
    assert float(adv.min()) >= 0
    assert float(adv.max()) <= 1
    assert float(size(adv - x, case.norm).max()) <= eps + 1e-6


@every_case
def test_moves_the_loss_the_right_way(case: Case) -> None:
    net, x = small_net(), random_images(8)
    labels = labels_for(case, net, x)
    adv = case.run(net, x, labels)
    with torch.no_grad():
        before, after = (nn.functional.cross_entropy(net(z), labels, reduction="none") for z in (x, adv))
    gained = (before - after) if case.targeted else (after - before)
    # a random input transform or a blurred gradient may lose on one image, never on the whole batch
    assert float(gained.mean()) > 0
    assert int((gained > 0).sum()) >= 6


@every_case
def test_does_not_depend_on_the_batch(case: Case) -> None:
    net, x = small_net().double(), random_images(8).double()
    labels = labels_for(case, net, x)
    whole = case.run(net, x, labels, seed=5)
    for batch in (1, 3):
        parts = [case.run(net, xs, ys, seed=5) for xs, ys in zip(x.split(batch), labels.split(batch), strict=True)]
        # float64 keeps the order of a sum from turning a gradient's sign
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-9)


@every_name
def test_same_seed_same_result_other_seed_other_draws(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    case = Case(name, "linf", targeted=False)
    first = case.run(net, x, y, seed=1)
    assert torch.equal(first, case.run(net, x, y, seed=1))
    draws = any(part in name for part in ("pgd", "dim", "eot", "ram", "best", "max"))
    assert torch.equal(first, case.run(net, x, y, seed=2)) != draws


@every_name
def test_ids_key_the_randomness(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    attack = Case(name, "linf", targeted=False).attack()
    ids = [f"image {i}" for i in range(8)]
    whole = attack(net, x, y, ids=ids)
    back = attack(net, x.flip(0), y.flip(0), ids=ids[::-1]).flip(0)
    assert float((whole - back).abs().gt(1e-6).float().mean()) < 1e-3


@every_name
@pytest.mark.parametrize("shape", [(2, 1, 17, 17), (2, 3, 13, 22), (2, 4, 22, 13)], ids=str)
def test_gray_colour_and_any_shape(name: str, shape: tuple[int, int, int, int]) -> None:
    net, x = small_net(shape[1]), random_images(*shape)
    adv = Case(name, "linf", targeted=False).run(net, x, net(x).argmax(1))
    assert adv.shape == x.shape
    assert not torch.equal(adv, x)


@every_name
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_networks(name: str, dtype: torch.dtype, x: Tensor) -> None:
    net = small_net()
    y = net(x).argmax(1)
    half = small_net().to(dtype)
    case = Case(name, "linf", targeted=False)
    adv = case.run(half, x, y)
    assert adv.dtype == torch.float32
    assert float((adv - x).abs().max()) <= 8 / 255 + 1e-6
    with torch.no_grad():
        gain = nn.functional.cross_entropy(net(adv), y) - nn.functional.cross_entropy(net(x), y)
        full = nn.functional.cross_entropy(net(case.run(net, x, y)), y) - nn.functional.cross_entropy(net(x), y)
    assert float(gain) > 0.5 * float(full) > 0


@every_name
def test_half_precision_images_come_back_as_they_came(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    adv = Case(name, "linf", targeted=False).run(net, x.half(), y)
    assert adv.dtype == torch.float16


@every_case
def test_works_where_the_caller_switched_gradients_off(case: Case) -> None:
    net, x = small_net(), random_images(3)
    labels = labels_for(case, net, x)
    expected = case.run(net, x, labels)
    with torch.no_grad():
        assert torch.equal(case.run(net, x, labels), expected)
    with torch.inference_mode():
        assert torch.equal(case.run(net, x.clone(), labels.clone()), expected)


@pytest.mark.parametrize("name", ["ai-fgsm", "ai-pgd", "ai-mim"])
def test_a_wrapped_model_makes_the_plain_attack_invariant(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    # with a random input the two differ on purpose: a wrapped model estimates behind the transform, ai-dim before it
    wrapped = whorl.AffineInvariant().wrap(net)
    plain = whorl.attack(name.removeprefix("ai-"))(wrapped, x, y, seed=3)
    assert torch.equal(plain, whorl.attack(name)(net, x, y, seed=3))


def test_fgsm_is_one_signed_step(net: nn.Module, x: Tensor, y: Tensor) -> None:
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(net(leaf), y, reduction="sum"), leaf)
    expected = (x + 16 / 255 * gradient.sign()).clamp(0, 1)
    torch.testing.assert_close(whorl.attack("fgsm")(net, x, y), expected, rtol=0, atol=1e-6)


def test_mim_is_the_textbook_loop(x: Tensor) -> None:
    """Literal, one image at a time, float64."""
    net = small_net().double()
    y = net(x.double()).argmax(1)
    adv = whorl.attack("mim", steps=6, eps=0.1, momentum=0.8)(net, x.double(), y)
    for i in range(len(x)):
        image, label = x[i : i + 1].double(), y[i : i + 1]
        at, velocity = image.clone(), torch.zeros_like(image)
        for _ in range(6):
            leaf = at.clone().requires_grad_()
            nn.functional.cross_entropy(net(leaf), label).backward()
            assert leaf.grad is not None
            velocity = 0.8 * velocity + leaf.grad / leaf.grad.abs().mean()
            at = torch.minimum(torch.maximum(at + (5 * 0.1 / 6) * velocity.sign(), image - 0.1), image + 0.1).clamp(
                0, 1
            )
        torch.testing.assert_close(adv[i : i + 1], at, rtol=0, atol=1e-9)


def test_pgd_starts_uniformly_in_the_ball(net: nn.Module) -> None:
    x = torch.full((4, 3, 30, 30), 0.5)
    x += torch.arange(4)[:, None, None, None] / 255
    start = whorl.attack("pgd", steps=1, alpha=1e-12, eps=0.1)(net, x, torch.zeros(4, dtype=torch.int64))
    delta = (start - x) / 0.1
    assert abs(float(delta.mean())) < 0.05
    assert abs(float(delta.var()) - 1 / 3) < 0.02
    assert float(delta.abs().max()) > 0.99


@pytest.mark.parametrize("optimizer", ["sign", "adam"])
def test_eot_is_the_mean_over_its_transforms_whatever_the_chunk(optimizer: str, x: Tensor) -> None:
    net = small_net().double()
    x = x[:3].double()
    y = net(x).argmax(1)
    results = [
        whorl.attack("eot", samples=7, steps=3, optimizer=optimizer, chunk=chunk)(net, x, y)
        for chunk in (1, 3, 7, None)
    ]
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=1e-9)


def test_one_eot_step_against_a_literal_expectation(x: Tensor) -> None:
    net = small_net().double()
    x = x[:2].double()
    y = net(x).argmax(1)
    total = torch.zeros_like(x)
    keys = substream(image_keys(x, 0), 0)
    for sample in range(20):
        leaf = x.clone().requires_grad_()
        seen = whorl.RandomAffine()(leaf, substream(keys, sample))
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(seen), y, reduction="sum"), leaf)
        total += g
    expected = (x + 0.01 * total.sign()).clamp(0, 1)
    adv = whorl.attack("eot", samples=20, steps=1, eps=0.01)(net, x, y)
    torch.testing.assert_close(adv, expected, rtol=0, atol=1e-12)


def test_eps_per_image(net: nn.Module, x: Tensor, y: Tensor) -> None:
    eps = torch.linspace(0, 0.1, 8)
    adv = whorl.attack("pgd", eps=eps)(net, x, y)
    assert bool(((adv - x).flatten(1).abs().amax(1) <= eps + 1e-6).all())
    alone = whorl.attack("pgd", eps=float(eps[5]))(net, x[5:6], y[5:6])
    assert float((adv[5:6] - alone).abs().gt(1e-6).float().mean()) < 1e-2


@pytest.mark.parametrize("loss", ["ce", "margin", "logit", "relative"])
@pytest.mark.parametrize("targeted", [False, True])
def test_every_loss_fools_the_network(loss: str, targeted: bool) -> None:
    net, x = small_net(), random_images(8)
    case = Case("pgd", "linf", targeted)
    labels = labels_for(case, net, x)
    adv = case.run(net, x, labels, loss=loss, eps=0.3, steps=20)
    hit = net(adv).argmax(1) == labels
    assert float(hit.float().mean()) >= 0.9 if targeted else float(hit.float().mean()) <= 0.1


def test_early_stop_leaves_what_already_is_wrong(net: nn.Module, x: Tensor, y: Tensor) -> None:
    wrong = y.clone()
    wrong[:4] = (wrong[:4] + 1) % CLASSES
    adv = whorl.attack("mim", early_stop=True)(net, x, wrong)
    assert torch.equal(adv[:4], x[:4])
    assert not torch.equal(adv[4:], x[4:])
    assert not torch.equal(whorl.attack("mim")(net, x, wrong)[:4], x[:4])


@pytest.mark.parametrize("base", ["fgsm", "pgd", "mim", "dim", "ram"])
def test_what_carries_the_papers_name_has_the_papers_estimator(base: str) -> None:
    for settings_ in ({}, {"eps": 4 / 255}, {"eps": 2.0, "norm": "l2"}, {"eps": (8 / 255, 4 / 255)}):
        made: Any = whorl.attack(f"ai-{base}", **settings_)
        assert made == whorl.attack(base, **settings_, estimator=whorl.AffineInvariant(sigma="reference"))
        assert made.bound_estimator is made.estimator


@pytest.mark.parametrize(("sigma", "width"), [("reference", 7 / 6), ("printed", 7 / math.sqrt(3)), (0.7, 0.7)])
@pytest.mark.parametrize("base", ["fgsm", "pgd", "mim", "dim"])
def test_the_papers_updates_are_those_of_a_literal_loop(base: str, sigma: Sigma, width: float) -> None:
    """The paper's Algorithm 1 with its estimator written out in float64, step by step."""
    net, x = small_net().double(), random_images(2).double()
    y, eps = net(x).argmax(1), 16 / 255
    attack: Any = whorl.attack(f"ai-{base}", estimator=whorl.AffineInvariant(sigma=sigma), fast=False)
    steps = attack.steps
    p = reference.gaussian(15, width)
    keys = image_keys(x, 3)
    adv, momentum = x, torch.zeros_like(x)
    if base == "pgd":
        adv = (x + uniform(substream(keys, -1), x.shape[1:], -1, 1).double() * eps).clamp(0, 1)
        adv = torch.minimum(torch.maximum(adv, x - eps), x + eps)
    for step in range(steps):
        leaf = adv.clone().requires_grad_()
        seen = leaf
        if base == "dim":
            draws = uniform(substream(keys, step, 0), (4,)).tolist()
            seen = torch.stack([reference.diverse_input(one, four) for one, four in zip(leaf, draws, strict=True)])
        (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(net(seen), y, reduction="sum"), leaf)
        g = torch.from_numpy(reference.affine_average(g.numpy(), p, p))
        if base in ("mim", "dim"):
            g = momentum = momentum + g / g.abs().mean(dim=(1, 2, 3), keepdim=True)
        size = eps if steps == 1 else 5 * eps / steps
        adv = torch.minimum(torch.maximum(adv + size * g.sign(), x - eps), x + eps).clamp(0, 1)
    made = attack(net, x, y, seed=3)
    # A gradient that is all but zero may have either sign, depending on how its sum is rounded.
    assert float((made - adv).abs().gt(1e-9).double().mean()) < 1e-3


def test_ours_narrows_with_eps_by_one_rule() -> None:
    wide: Any = whorl.attack("ri-dim")
    expected: list[tuple[dict[str, Any], tuple[float, float]]] = [
        ({}, (32.0, 1.6)),
        ({"eps": 8 / 255}, (16.0, 0.8)),
        ({"eps": 12 / 255}, (24.0, 1.2)),
        ({"eps": 32 / 255}, (32.0, 1.6)),
        ({"eps": 2.0, "norm": "l2"}, (32.0, 1.6)),
        ({"eps": (8 / 255, 4 / 255)}, (32.0, 1.6)),  # one width for all images
    ]
    for settings_, degrees in expected:
        attack: Any = whorl.attack("RI-DIM", **settings_)
        assert attack == wide.with_(**settings_)
        assert attack.bound_estimator.degrees == pytest.approx(degrees)
        assert attack.bound_estimator is wide.with_(**settings_).bound_estimator
    spelled = whorl.RotationInvariant(degrees=(16.0, 0.8))
    net, x = small_net(), random_images(3)
    y = net(x).argmax(1)
    assert torch.equal(
        whorl.attack("ri-dim", eps=8 / 255)(net, x, y), whorl.attack("dim", eps=8 / 255, estimator=spelled)(net, x, y)
    )
    chained: Any = whorl.attack("dim", eps=8 / 255, estimator=whorl.Chain(wide.estimator, whorl.identity))
    assert chained.bound_estimator == whorl.Chain(spelled, whorl.identity)


def test_composition_in_one_expression(net: nn.Module, x: Tensor, y: Tensor) -> None:
    estimator = whorl.Chain(whorl.TranslationInvariant(kernel_size=3), whorl.AffineInvariant(kernel_size=5))
    attack = whorl.GradientAttack(input=whorl.DiverseInput(), estimator=estimator, momentum=0.9, samples=2)
    assert attack(net, x, y).shape == x.shape
    assert eval(repr(attack), vars(whorl)) == attack  # noqa: S307 - our own repr


def test_info_counts_gradients_and_successes(net: nn.Module, x: Tensor, y: Tensor) -> None:
    adv, info = whorl.attack("ram", steps=4, samples=3, eps=0.2)(net, x, y, return_info=True)
    assert info.grad_evals is not None
    assert info.grad_evals.tolist() == [12] * 8
    assert info.success.tolist() == (net(adv).argmax(1) != y).tolist()
    assert info.queries is None


def test_the_model_is_left_as_it_was(x: Tensor) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(4 * 16 * 16, 7))
    net[1].eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    y = torch.zeros(8, dtype=torch.int64)
    adv = whorl.attack("pgd")(net, x, y)
    assert torch.equal(adv, whorl.attack("pgd")(net, x, y))  # dropout was off
    assert [m.training for m in net.modules()] == [True, True, False, True, True, True]
    assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


class CountReads(TorchDispatchMode):
    """Counts the operations that make the host wait for a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.reads: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.split(".")[0] in ("_local_scalar_dense", "nonzero", "masked_select", "unique2"):
            self.reads.append(str(func))
        return func(*args, **(kwargs or {}))


@every_name
def test_no_device_read_and_no_rebuild_inside_the_loop(name: str, net: nn.Module, x: Tensor, y: Tensor) -> None:
    reads = []
    one_step = {} if "fgsm" in name else {"steps": 1}
    for extra in (one_step, {**one_step, "steps": 4}):
        whorl.attack(name, **{"samples": 2, **extra})(net, x, y)
        misses = polar_plan.cache_info().misses + _weight_tensor.cache_info().misses
        with CountReads() as counted:
            whorl.attack(name, **{"samples": 2, **extra})(net, x, y)
        reads.append(len(counted.reads))
        assert polar_plan.cache_info().misses + _weight_tensor.cache_info().misses == misses
    assert reads[0] == reads[1]  # a constant few before and after, none per step


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_dynamo")
def test_the_loop_sees_one_shape_and_compiles_once(net: nn.Module, x: Tensor, y: Tensor) -> None:
    counter = CompileCounter()
    compiled = torch.compile(net, backend=counter, dynamic=False)
    whorl.attack("ai-dim")(compiled, x, y)
    assert counter.frame_count == 1
