"""The attack loop on a GPU. Run by hand: ``pytest -m gpu tests/models/prepared``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import whorl
from whorl.attacks.gradient import GradientAttack
from whorl.attacks.transfer import TransferAttack
from whorl.bench.clock import take_turns
from whorl.evaluation import success_rates
from whorl.models.architectures import build
from whorl.models.backward import Backward, hook
from whorl.models.prepared import network, pointwise
from whorl.models.prepared.fold import alias
from whorl.models.prepared.graph import Recorded, turns
from whorl.models.prepared.layers import Geometry, OutputPart, Room, _Convolution, _Unshuffle
from whorl.models.prepared.pointwise import Activation, Pool, Window

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIDE = 96


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    network.forget()
    yield
    network.forget()


@pytest.fixture(scope="module")
def clf() -> whorl.Classifier:
    torch.manual_seed(0)
    net, given = build("torchvision:resnet18", num_classes=10)
    return whorl.Classifier.from_module(net, size=SIDE, mean=given.mean, std=given.std).cuda()


def batch(clf: whorl.Classifier, count: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).cuda()
    with torch.no_grad():
        return x, (clf(x).argmax(1) + 1) % 10


CASES: list[tuple[str, dict[str, Any]]] = [
    ("mim", {}),
    ("ai-dim", {}),
    ("ai-ram", {}),
    ("pgd", {"norm": "l2", "eps": 4.0}),
    ("eot", {"samples": 4, "steps": 3}),
    ("mim", {"optimizer": "adam"}),
    ("ti-dim", {"fast": True}),
    ("ri-dim", {}),
    ("ai-best", {}),
    ("ai-best", {"samples": 3, "steps": 4}),
]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_it_raises_the_loss_as_far_as_the_plain_loop(
    name: str, settings: dict[str, Any], clf: whorl.Classifier
) -> None:
    x, y = batch(clf)
    fast = whorl.attack(name, **{"fast": None, **settings})(clf, x, y)
    slow = whorl.attack(name, **{**settings, "fast": False})(clf, x, y)
    with torch.no_grad():
        before, quick, plain = (torch.nn.functional.cross_entropy(clf(v), y).item() for v in (x, fast, slow))
    # Without momentum every step's rounding decides anew; on random weights ram's views have little in common, and a
    # change of 1e-3 in the images moves what it reaches by a tenth.
    assert quick - before > {"eot": 0.9, "ai-ram": 0.8, "ai-best": 0.8}.get(name, 0.95) * (plain - before) > 0
    if settings.get("norm") != "l2":
        assert float((fast - x).abs().max()) <= 16 / 255 + 1e-6


@pytest.mark.parametrize("name", ["ai-dim", "ai-best", "ri-dim"])
def test_the_same_again_and_in_a_short_batch(name: str, clf: whorl.Classifier) -> None:
    x, y = batch(clf)
    attack = whorl.attack(name, fast=None)
    whole = attack(clf, x, y)
    assert torch.equal(attack(clf, x, y), whole)
    # 30 are padded to 32, so the same kernels see them
    assert torch.equal(attack(clf, x[:30], y[:30]), whole[:30])


@pytest.mark.parametrize("name", ["ai-dim", "ri-dim", "ram", "ai-ram", "ai-best"])
def test_nothing_waits_inside_the_loop(name: str, clf: whorl.Classifier) -> None:
    x, y = batch(clf)

    def waits(steps: int) -> int:
        attack = whorl.attack(name, steps=steps, fast=None)
        attack(clf, x, y)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                attack(clf, x, y)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(w.message) for w in caught)

    assert waits(2) == waits(9)


@pytest.mark.parametrize("name", whorl.attack_names(kind="gradient"))
def test_every_preset_is_one_graph(name: str, clf: whorl.Classifier) -> None:
    x, y = batch(clf, 8)
    attack = whorl.attack(name, steps=2, samples=1)
    assert isinstance(attack, GradientAttack)
    attack(clf, x, y)
    kept = network.prepared(clf, attack.source_backward)
    assert kept is not None
    [loop] = kept.loops.values()
    assert loop.recorded is not None
    assert loop.recorded.graph is not None
    assert not loop.step.changes


def test_a_changed_ensemble_of_mixed_sizes(clf: whorl.Classifier) -> None:
    torch.manual_seed(1)
    net, given = build("torchvision:mobilenet_v2", num_classes=10)
    other = whorl.Classifier.from_module(net, size=SIDE - 20, mean=given.mean, std=given.std).cuda()
    both = whorl.Ensemble([clf, other], fuse="losses")
    x, y = batch(clf)
    attack = whorl.attack("ai-best")
    assert isinstance(attack, TransferAttack)
    fast, slow = (attack.with_(fast=setting)(both, x, y) for setting in (None, False))
    kept = network.prepared(both, attack.backward)
    assert kept is not None
    assert len(kept.loops) == 1
    with torch.no_grad():
        before, quick, plain = (torch.nn.functional.cross_entropy(both(v), y).item() for v in (x, fast, slow))
    assert quick - before > 0.8 * (plain - before) > 0


def test_a_changed_gradient_is_the_hooked_one(clf: whorl.Classifier) -> None:
    """The kernels of a smooth rectifier, and weights with a factor, in float32 on the GPU itself."""
    x, _ = batch(clf, 4)
    backward = Backward(skip=0.65, rectifier=0.7, relative=True, pool=0.5)
    copy = alias(clf)
    sites = backward.sites(copy, x)
    hook(copy, sites)
    ours = network.Prepared(clf, torch.float32, sites)
    with network._full_precision():
        (_, made), (_, expected) = (network._answer(net, x) for net in (ours, copy))
    assert network.distance(made, expected) < 1e-3


@pytest.mark.parametrize("name", ["ai-dim", "ai-best"])
def test_memory_does_not_grow_and_stays_below_the_plain_loop(name: str, clf: whorl.Classifier) -> None:
    x, y = batch(clf, 64)

    def peak(**settings: Any) -> int:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        whorl.attack(name, **settings)(clf, x, y)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    fast = peak(fast=None)
    whorl.attack(name, fast=None)(clf, x, y)  # what a replay takes beside the recording
    held = torch.cuda.memory_reserved()
    for seed in range(5):
        whorl.attack(name, eps=0.01 * (seed + 1), fast=None)(clf, x, y, seed=seed)
    assert torch.cuda.memory_reserved() <= held
    network.forget()
    assert fast <= 1.05 * peak(fast=False)


def test_evaluation_in_bf16_counts_nearly_the_same(clf: whorl.Classifier) -> None:
    x, y = batch(clf, 64)
    adv = {"mim": whorl.attack("mim")(clf, x, y)}
    full, half = (success_rates({"it": clf}, x, adv, y, precision=p) for p in ("full", "bf16"))
    assert all(abs(full[key].n_adversarial_correct - half[key].n_adversarial_correct) <= 6 for key in full)


# ---------------------------------------------------------------------------------------------------------------------
# Kernels, against float64 on the CPU

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
WIDTHS = [3, 48, 80, 192, 288]


def values(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return x.cuda().contiguous(memory_format=torch.channels_last)


def wide(x: Tensor) -> Tensor:
    """The same as a range of channels of something wider."""
    batch, channels, height, width = x.shape
    whole = values(batch, channels + 24, height, width, dtype=x.dtype, seed=9)
    whole[:, 8:-16] = x
    return whole[:, 8:-16]


def exactly(x: Tensor) -> Tensor:
    return x.detach().double().cpu()


def close(made: Tensor, expected: Tensor) -> None:
    # Sums are float32's, and rounded once.
    eps = max(torch.finfo(made.dtype).eps, 1e-6)
    torch.testing.assert_close(exactly(made), expected, rtol=2 * eps, atol=4 * eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("act", ["none", "relu", "relu6"])
def test_bias_activation_and_its_gradient(dtype: torch.dtype, width: int, act: Activation) -> None:
    x, residual, bias = (values(3, width, 9, 7, dtype=dtype, seed=seed) for seed in range(3))
    shift = bias[0, :, 0, 0].float()
    leaf = (exactly(x) + exactly(shift)[:, None, None] + exactly(residual)).requires_grad_()
    expected = {"none": leaf * 1, "relu": F.relu(leaf), "relu6": F.relu6(leaf)}[act]
    room = wide(torch.zeros_like(x))
    for given, into in ((x, None), (wide(x), room)):
        close(pointwise.bias_act(given, shift, act, wide(residual), into=into), expected.detach())
    g = values(3, width, 9, 7, dtype=dtype, seed=3)
    out = exactly(room).to(dtype).cuda().contiguous(memory_format=torch.channels_last)
    stopped = (out <= 0) | (out >= 6) if act == "relu6" else out <= 0
    backwards = g if act == "none" else g.masked_fill(stopped, 0)
    for given, result, into in ((g, out, None), (wide(g), room, None), (wide(g), out, wide(torch.zeros_like(g)))):
        assert torch.equal(pointwise.act_backward(given, result, act, into=into), backwards)


POOLS = [
    Pool((3, 3), (1, 1), (1, 1)),
    Pool((3, 3), (1, 1), (1, 1), counted=False),
    Pool((3, 2), (2, 1), (1, 0)),
    Pool((3, 3), (2, 2), (1, 1), ceil_mode=True),
    Pool((5, 5), (1, 1), (2, 2), divisor=3),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_average_pools(dtype: torch.dtype, width: int, pool: Pool) -> None:
    x, bias = values(2, width, 17, 19, dtype=dtype), values(1, width, 1, 1, dtype=torch.float32, seed=1)[0, :, 0, 0]
    leaf = exactly(x).requires_grad_()
    sums = F.avg_pool2d(leaf, *pool)
    expected = F.relu(sums.detach() + exactly(bias)[:, None, None])
    room = wide(torch.zeros(expected.shape, dtype=dtype).cuda().contiguous(memory_format=torch.channels_last))
    for given, into in ((x, None), (wide(x), room)):
        close(pointwise.average_pool(given, pool, bias, "relu", into=into), expected)
    g = values(*expected.shape, dtype=dtype, seed=2)
    (backwards,) = torch.autograd.grad(sums, leaf, exactly(g).masked_fill(exactly(room) <= 0, 0))
    for given, into in ((g, None), (wide(g), wide(torch.zeros_like(x)))):
        close(pointwise.average_pool_backward(given, room, pool, x.shape, "relu", into=into), backwards)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("window", [Window(3, 2), Window(3, 2, 1), Window(2, 2, 0, ceil_mode=True)], ids=str)
def test_max_pools(dtype: torch.dtype, width: int, window: Window) -> None:
    x = (2 * values(2, width, 17, 19, dtype=dtype)).round()
    ours, leaf = x.clone().requires_grad_(), exactly(x).requires_grad_()
    expected = F.max_pool2d(leaf, window.kernel, window.stride, window.padding, ceil_mode=window.ceil_mode)
    out = pointwise.max_pool(ours, window)
    assert torch.equal(exactly(out), expected.detach())
    g = values(*expected.shape, dtype=dtype, seed=1)
    (backwards,) = torch.autograd.grad(expected, leaf, exactly(g))
    for given in (g, wide(g)):
        (made,) = torch.autograd.grad(out, ours, given, retain_graph=True)
        close(made, backwards)


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_blocks_of_a_image(padding: int) -> None:
    x = torch.rand(3, 3, 30, 29, device="cuda")[:, :, :27, :28]
    mean = torch.tensor([0.4, 0.5, 0.6], device="cuda").view(1, 3, 1, 1)
    rows, columns = ((side + 2 * padding - 3) // 2 + 2 for side in (27, 28))
    made, back = [], []
    g = values(3, 16, rows, columns, dtype=torch.float32)
    for device in ("cuda", "cpu"):
        leaf = x.to(device).detach().requires_grad_()
        like = torch.empty((), device=device)
        out = _Unshuffle.apply(leaf, mean.to(device), (16, rows, columns), padding, like)  # type: ignore[no-untyped-call]
        made.append(out.cpu())
        back.append(torch.autograd.grad(out, leaf, g.to(device))[0].cpu())
    assert torch.equal(*made)
    assert torch.equal(*back)


def test_a_convolution_in_parts_that_sit_in_a_room() -> None:
    x, weight = values(4, 64, 9, 9, dtype=torch.bfloat16), values(96, 64, 1, 1, dtype=torch.bfloat16, seed=1) / 8
    bias = torch.randn(96, device="cuda")
    parts = [OutputPart(32, "relu"), OutputPart(48, "none"), OutputPart(16, "relu", Pool((3, 3), (1, 1), (1, 1)))]
    room = Room((8, 32, 16))
    ours, leaf = x.clone().requires_grad_(), exactly(x).requires_grad_()
    seats = ((room, 1), None, (room, 2))
    outs = _Convolution.apply(ours, weight, bias, None, Geometry(), parts, seats)  # type: ignore[no-untyped-call]
    a, b, c = F.conv2d(leaf, exactly(weight)).split([32, 48, 16], 1)
    shifts = [shift[:, None, None] for shift in exactly(bias).split([32, 48, 16])]
    # In channels-last memory torch 2.11's own backward of an average pool is wrong.
    plainly = (F.relu(a + shifts[0]), b + shifts[1], F.relu(F.avg_pool2d(c.contiguous(), 3, 1, 1) + shifts[2]))
    for made, expected in zip(outs, plainly, strict=True):
        torch.testing.assert_close(exactly(made), expected.detach(), rtol=0.02, atol=0.02)
    assert room.whole is not None
    assert torch.equal(room.whole[:, 8:40], outs[0])
    g = [values(*one.shape, dtype=torch.bfloat16, seed=seed) for seed, one in enumerate(plainly, start=2)]
    (made,) = torch.autograd.grad(outs, ours, g)
    (expected,) = torch.autograd.grad(plainly, leaf, [exactly(one) for one in g])
    assert network.distance(exactly(made), expected) < 0.02


# ---------------------------------------------------------------------------------------------------------------------
# Graphs that share memory

SEVERAL = ("mim", "ai-dim", "dim", "pgd", "ti-dim")


def recordings(clf: whorl.Classifier) -> list[Recorded | None]:
    kept = network.prepared(clf)
    assert kept is not None
    return [loop.recorded for loop in kept.loops.values()]


def test_several_attacks_in_turns_are_recorded_once_and_share_memory(clf: whorl.Classifier) -> None:
    x, y = batch(clf)
    alone = {}
    for name in SEVERAL:
        network.forget()
        alone[name] = whorl.attack(name, fast=None)(clf, x, y)
    network.forget()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    whorl.attack(SEVERAL[0], fast=None)(clf, x, y)
    torch.cuda.empty_cache()
    one = torch.cuda.memory_reserved() - before
    for name in SEVERAL:
        whorl.attack(name, fast=None)(clf, x, y)
    first = recordings(clf)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before < 2 * one
    for name in (*SEVERAL[::-1], *SEVERAL):
        assert torch.equal(whorl.attack(name, fast=None)(clf, x, y), alone[name])
    assert len(first) == len(SEVERAL)
    assert set(map(id, recordings(clf))) == set(map(id, first))
    memories = {id(one.memory) for one in first if one is not None}
    assert len(memories) == 1
    assert all(one is not None and one.graph is not None and one.held() for one in first)


def test_threads_on_streams_of_their_own(clf: whorl.Classifier) -> None:
    x, y = batch(clf)
    attacks = [whorl.attack(name, fast=None) for name in SEVERAL[:3]]
    alone = [attack(clf, x, y) for attack in attacks]
    torch.cuda.synchronize()

    def run(index: int) -> Tensor:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            made = attacks[index](clf, x, y)
        stream.synchronize()
        return made

    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(run, [0, 1, 2] * 4))
    assert all(torch.equal(made, alone[place % 3]) for place, made in enumerate(together))


def test_a_step_that_keeps_something_shares_no_memory() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    kept: list[Tensor] = []
    total = torch.zeros(1000, device=device)

    def fine() -> None:
        total.add_(torch.ones(1000, device=device) * 2)

    def keeps() -> None:
        kept.append(torch.ones(1000, device=device))
        total.add_(kept[-1])

    with turns(device).taken():
        first, other = (Recorded(fine, device, shared=True) for _ in range(2))
        assert first.memory is other.memory
        assert first.held()
        second = Recorded(keeps, device, shared=True)
        assert second.held()
        assert not first.held()  # it might write where that lies
        assert not other.held()
        third = Recorded(fine, device, shared=True)
        assert third.held()
        assert third.memory is not second.memory
        alone = Recorded(fine, device)  # unasked nothing is shared
        assert alone.memory is not third.memory
        total.zero_()
        third()
        second()
        alone()
    assert total.tolist() == [5.0] * 1000


def test_queued_timings_leave_out_what_launches_take() -> None:
    x = torch.zeros(8, device="cuda")

    def many() -> None:
        for _ in range(200):
            x.add_(1)

    def slow_to_ask() -> None:
        x.add_(1)
        time.sleep(0.01)
        x.add_(1)

    device = torch.device("cuda")
    calls = {"many": many, "slow to ask": slow_to_ask}
    (plain, _), (queued, _) = (take_turns(calls, device=device, repeats=5, queued=queued) for queued in (False, True))
    assert plain["slow to ask"].median_ms > 9
    assert queued["slow to ask"].median_ms < 1
    assert queued["many"].median_ms <= plain["many"].median_ms
