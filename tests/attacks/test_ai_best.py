"""The attack behind ``ai-best``: what each of its settings amounts to, and what it costs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images, small_net
from whorl.attacks.gradient import Followed
from whorl.attacks.objectives import find_loss, relative, tempered
from whorl.attacks.transfer import TransferAttack
from whorl.errors import WhorlError
from whorl.estimators import CompressedGradient, SharedChannels
from whorl.models.backward import Backward
from whorl.models.families import ByFamily
from whorl.transforms import InputTransform, RandomAffine, plain
from whorl.transforms.spread import SpreadAffine


class Residual(nn.Module):
    """A small network with two residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.one, self.two = (nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 8, 1)) for _ in "ab")
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.one(x)
        x = x + self.two(x)
        out: Tensor = self.head(x * 20)
        return out


class Gradients(nn.Module):
    """Counts the images whose gradient reaches the input."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        rows: list[int] = []
        # A function is not copied, so a copy of the network counts here too.
        self.count: Callable[[Tensor], None] = lambda gradient: rows.append(len(gradient))
        self.rows: Callable[[], int] = lambda: sum(rows)

    def forward(self, x: Tensor) -> Any:
        if x.requires_grad:
            x = x.view_as(x)
            x.register_hook(self.count)
        return self.net(x)


@pytest.fixture
def source() -> nn.Module:
    return Residual().eval()


@pytest.fixture
def labels(source: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        truth: Tensor = source(x).argmax(1)
    return truth


@pytest.mark.parametrize("settings", [{}, {"momentum": 1.0, "input": RandomAffine(), "samples": 2}], ids=["pgd", "ram"])
def test_without_its_own_settings_it_is_the_common_loop(settings: Any, x: Tensor, y: Tensor, net: nn.Module) -> None:
    plainly = whorl.GradientAttack(**settings)(net, x, y, seed=4)
    assert torch.equal(TransferAttack(**settings)(net, x, y, seed=4), plainly)


@pytest.mark.parametrize("steps", [1, 4, 10])
def test_gradients_are_counted_exactly(steps: int, source: nn.Module, x: Tensor, labels: Tensor) -> None:
    cases: list[dict[str, Any]] = [{}, {"samples": 3}, {"backward": Backward(skip=0.5, rectifier=2.0)}]
    for settings in cases:
        counted = Gradients(source)
        attack = whorl.attack("ai-best", steps=steps, **settings)
        _, info = attack(counted, x, labels, return_info=True)
        assert info.grad_evals is not None
        # one more image is shown beforehand, without a gradient, to find the branches
        assert (
            info.grad_evals.tolist()
            == [counted.rows() / len(x)] * len(x)
            == [steps * settings.get("samples", 1)] * len(x)
        )


def test_a_temperature_divides_the_logits(x: Tensor, y: Tensor, net: nn.Module) -> None:
    class Cooled(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            out: Tensor = net(z) / 4
            return out

    net.double()
    x = x.double()
    expected = whorl.attack("mim")(Cooled(), x, y)
    torch.testing.assert_close(TransferAttack(momentum=1.0, temperature=4.0)(net, x, y), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_overshoot_works_in_a_larger_ball_and_comes_back(norm: str, x: Tensor, y: Tensor, net: nn.Module) -> None:
    eps = 8 / 255 if norm == "linf" else 0.5
    settings: dict[str, Any] = {"norm": norm, "momentum": 1.0}
    large = whorl.GradientAttack(eps=2 * eps, **settings)(net, x, y) - x
    adv = TransferAttack(eps=eps, overshoot=2.0, **settings)(net, x, y)
    if norm == "linf":
        expected = (x + large.clamp(-eps, eps)).clamp(0, 1)
    else:
        length = large.flatten(1).norm(dim=1)[:, None, None, None]
        expected = x + large * (eps / length).clamp(max=1)
    torch.testing.assert_close(adv, expected, rtol=0, atol=1e-6)


def test_overshoot_of_a_ball_for_each_image(x: Tensor, y: Tensor, net: nn.Module) -> None:
    eps = torch.linspace(0.0, 0.1, 8)
    adv = TransferAttack(eps=eps, overshoot=1.5)(net, x, y)
    assert bool(((adv - x).flatten(1).abs().amax(1) <= eps + 1e-6).all())


def test_pace_is_the_step_in_units_of_eps_and_steps(x: Tensor, y: Tensor, net: nn.Module) -> None:
    expected = whorl.attack("mim", eps=0.1, steps=4, alpha=0.2)(net, x, y)
    torch.testing.assert_close(whorl.attack("mim", eps=0.1, steps=4, pace=8.0)(net, x, y), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("steps", "pace"), [(4, 35.0), (10, 20.0), (50, 12.0), (200, 10.5)])
def test_without_a_pace_few_steps_are_larger_strides(steps: int, pace: float, x: Tensor, y: Tensor) -> None:
    net = small_net()
    expected = whorl.attack("mim", eps=0.1, steps=steps, alpha=0.1 * pace / steps)(net, x, y)
    torch.testing.assert_close(whorl.attack("mim", eps=0.1, steps=steps, pace=None)(net, x, y), expected)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_steps_cool_to_a_share_of_the_first(norm: Any, x: Tensor, y: Tensor) -> None:
    net, x = small_net().double(), 0.25 + x.double() / 2
    eps, steps = (0.1 if norm == "linf" else 1.0), 5
    attack = whorl.GradientAttack(eps=eps, steps=steps, norm=norm, pace=0.9, cooling=0.1)
    moved: list[Tensor] = [x]
    Followed(attack, lambda taken: moved.append(taken.adv))(net, x, y)
    for index, (before, after) in enumerate(itertools.pairwise(moved)):
        step = after - before
        size = step.abs().flatten(1).amax(1) if norm == "linf" else step.flatten(1).norm(dim=1)
        expected = eps * 0.9 / steps * 0.1 ** (index / 4)
        torch.testing.assert_close(size, torch.full_like(size, expected))


def test_skip_reaches_the_attack_and_leaves_the_source(source: nn.Module, x: Tensor, labels: Tensor) -> None:
    plainly, skipping = (TransferAttack(backward=Backward(skip=skip))(source, x, labels) for skip in (1.0, 0.2))
    assert 0.01 < float((plainly - skipping).abs().gt(1e-3).float().mean()) < 0.9
    assert torch.equal(TransferAttack()(source, x, labels), plainly)


class Spy:
    """Plans nothing, and writes down the poses that a planned transform showed."""

    def __init__(self) -> None:
        self.tables: list[Tensor] = []

    def plan(self, table: Tensor) -> InputTransform:
        self.tables.append(table)
        return self

    def __call__(self, x: Tensor, keys: Tensor) -> Tensor:
        assert bool(torch.isin(keys, self.tables[-1]).all())
        places = (self.tables[-1] == keys[:, None, None]).nonzero()
        self.seen = [*getattr(self, "seen", []), *places[:, 1:].tolist()]
        return x


def test_every_draw_of_the_loop_is_in_the_plan_once_and_in_order(x: Tensor, y: Tensor, net: nn.Module) -> None:
    spy = Spy()
    TransferAttack(steps=3, samples=2, input=spy)(net, x, y)
    assert spy.tables[0].shape == (6, 8)
    assert spy.seen == [[draw, picture] for draw in range(6) for picture in range(8)]


def test_planned_draws_do_not_depend_on_the_batch_or_its_order() -> None:
    net, x = small_net().double(), random_images(6).double()
    y = net(x).argmax(1)
    attack = TransferAttack(input=SpreadAffine(), momentum=1.0, steps=5)
    whole = attack(net, x, y, ids=list("abcdef"), seed=2)
    back = attack(net, x.flip(0), y.flip(0), ids=list("fedcba"), seed=2).flip(0)
    torch.testing.assert_close(back, whole, rtol=0, atol=1e-9)
    torch.testing.assert_close(attack(net, x[2:3], y[2:3], ids=["c"], seed=2), whole[2:3], rtol=0, atol=1e-9)


@pytest.mark.parametrize("backward", [Backward(rectifier=2.0), Backward(skip=0.5)], ids=repr)
def test_a_changed_source_treats_images_apart(backward: Backward) -> None:
    source, x = Residual().double().eval(), random_images(5).double()
    y = source(x).argmax(1)
    attack = TransferAttack(input=RandomAffine(), momentum=1.0, steps=3, samples=2, backward=backward)
    whole = attack(source, x, y, ids=list("abcde"))
    torch.testing.assert_close(attack(source, x[3:4], y[3:4], ids=["d"]), whole[3:4], rtol=0, atol=1e-9)
    torch.testing.assert_close(attack.with_(chunk=1)(source, x, y, ids=list("abcde")), whole, rtol=0, atol=1e-9)


def test_losses_by_name_by_function_and_by_temperature() -> None:
    logits, labels = torch.randn(5, 9, dtype=torch.float64), torch.arange(5)
    assert find_loss("relative") is relative
    assert find_loss(relative) is relative
    expected = torch.stack([row.mean() - row[i] for i, row in enumerate(logits)])
    torch.testing.assert_close(relative(logits, labels), expected)
    hot = 1e4 * (tempered(find_loss("ce"), 1e4)(logits, labels) - torch.log(torch.tensor(9.0)))
    torch.testing.assert_close(hot, expected, rtol=1e-2, atol=1e-2)
    with pytest.raises(WhorlError, match="unknown loss 'relativ'"):
        find_loss("relativ")


def test_gradients_are_shaped_as_their_names_say() -> None:
    g = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(CompressedGradient(power=0.5)(g) * g.abs().sqrt(), g)
    torch.testing.assert_close(SharedChannels(share=1.0)(g), g.mean(1, keepdim=True).expand_as(g))
    assert torch.equal(SharedChannels(share=0.0)(g), g)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransferAttack(temperature=0), "temperature must be a number above 0"),
        (lambda: TransferAttack(overshoot=-1), "overshoot must be a number above 0"),
        (lambda: TransferAttack(backward=0.5), "backward must be a BackwardRule"),  # type: ignore[arg-type]
        (lambda: TransferAttack(pace=0), "pace must be a number above 0"),
        (lambda: TransferAttack(cooling=0), r"cooling must be a number in \(0, 1\]"),
        (lambda: CompressedGradient(power=0), "power must be a number in"),
        (lambda: SharedChannels(share=2), "share must be a number in"),
    ],
)
def test_settings_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()


def test_the_preset_says_what_it_is() -> None:
    best = whorl.attack("AI-Best", steps=50)
    assert isinstance(best, TransferAttack)
    assert best.backward == ByFamily()
    assert "pace=None, cooling=0.2" in repr(best)
    assert "near=0.2" in repr(best)
    longest = whorl.attack("ai-max")
    assert longest == best.with_(steps=200)
    assert longest.cost.most == 200
    assert best.input is not plain
    assert "TransferAttack(steps=50" in repr(best)
    assert "ours, for transfer" in whorl.attacks.describe("ai-best")


@pytest.mark.slow
def test_it_transfers_better_than_what_it_is_made_of() -> None:
    """On real weights: the label's margin on another network, over the paper's poses, against RAM's."""
    source, target = whorl.load_model("resnet18"), whorl.load_model("mobilenet_v2")
    x, y, ids = whorl.load_samples(8, size=224)
    margins = {}
    for name in ("ram", "ai-best"):
        adv = whorl.attack(name, eps=8 / 255)(source, x, y, ids=ids)
        with torch.no_grad():
            logits = torch.stack([target(pose.apply(adv)) for pose in whorl.evaluation.PAPER_POSES])
        own = logits.gather(-1, y[None, :, None].expand(len(logits), -1, 1))[..., 0]
        margins[name] = float((logits.logsumexp(-1) - own).mean())
    assert margins["ai-best"] > margins["ram"]
