"""Changes to a source's backward pass, against literal derivatives; nothing of them stays behind."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conftest import random_images, small_net
from reference import soft_step
from whorl.errors import WhorlError
from whorl.models.architectures import build
from whorl.models.backward import Backward, BackwardRule
from whorl.models.branches import structure
from whorl.models.families import ByFamily
from whorl.models.spreads import probe


class Block(nn.Module):
    """x + w·tanh(x), added in place as torchvision does."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(1, 1, 1, bias=False).double(), nn.Tanh()
        nn.init.constant_(self.conv.weight, w)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(self.act(x))
        out += x
        return out


def gradient(net: nn.Module, x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(net(leaf).sum(), leaf)
    return g


def changed_gradient(backward: BackwardRule, net: nn.Module, x: Tensor) -> Tensor:
    with backward.applied(net, x) as changed:
        return gradient(changed, x)


@pytest.fixture
def x() -> Tensor:
    return random_images(3, 1, 6, 6).double() - 0.5


def test_skip_scales_the_branch_and_not_the_shortcut(x: Tensor) -> None:
    net = nn.Sequential(Block(0.7), Block(-1.3))
    middle = 0.7 * torch.tanh(x) + x

    def slope(z: Tensor, w: float) -> Tensor:
        return 1 + 0.4 * w * (1 - torch.tanh(z) ** 2)

    expected = slope(x, 0.7) * slope(middle, -1.3)
    torch.testing.assert_close(changed_gradient(Backward(skip=0.4), net, x), expected)


def test_a_rectifier_gets_the_derivative_of_a_smooth_one(x: Tensor) -> None:
    for inplace in (False, True):
        net = nn.Sequential(nn.Identity(), nn.ReLU(inplace))
        leaf = (4 * x).clone().requires_grad_()
        (expected,) = torch.autograd.grad((leaf * torch.sigmoid(1.5 * leaf)).sum(), leaf)
        with Backward(rectifier=1.5).applied(net, x) as changed:
            seen = leaf * 1
            out = changed(seen)
            assert torch.equal(out, (4 * x).clamp_min(0))
            (g,) = torch.autograd.grad(out.sum(), leaf)
        torch.testing.assert_close(g, expected)
        assert bool(net[1].inplace) == inplace


def test_a_rectifier_with_a_ceiling_is_smooth_at_both_ends(x: Tensor) -> None:
    z = 20 * x
    g = changed_gradient(Backward(rectifier=2.0), nn.ReLU6(), z)
    torch.testing.assert_close(g, soft_step(z, 2.0) * soft_step(6 - z, 2.0))
    with Backward(rectifier=2.0).applied(nn.ReLU6(), z) as changed:
        assert torch.equal(changed(z), z.clamp(0, 6))


def test_late_leaves_the_first_rectifiers(x: Tensor) -> None:
    net = nn.Sequential(nn.ReLU(), nn.Hardshrink(0.0), nn.ReLU())
    smooth_last = changed_gradient(Backward(rectifier=2.0, late=0.5), net, x)
    expected = (x > 0) * soft_step(x.clamp_min(0), 2.0)
    torch.testing.assert_close(smooth_last, expected * (x != 0))


def test_a_relative_sharpness_is_in_units_of_each_rectifiers_spread() -> None:
    """Two rectifiers, the second a hundred times as wide; literal spreads of what the probe gives."""
    net, x = (
        nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 1, bias=False), nn.ReLU6()).double(),
        random_images(3, 2, 6, 8).double(),
    )
    assert isinstance(net[1], nn.Conv2d)
    nn.init.constant_(net[1].weight, 50.0)
    shown = probe(2, (6, 8)).double()
    inner = 50 * shown.sum(1, keepdim=True).expand_as(shown)
    sharp = [1.5 / float(z.flatten(1).var(1, correction=0).mean().sqrt()) for z in (shown, inner)]
    sites = Backward(rectifier=1.5, relative=True).sites(net, x[:1])
    assert [name for name, _ in sites.rectifiers] == ["0", "2"]
    for (_, ours), exact in zip(sites.rectifiers, sharp, strict=True):
        assert ours == pytest.approx(exact, rel=0.006)  # it has three digits
    z = 50 * x.sum(1, keepdim=True)
    beyond = soft_step(z, sites.rectifiers[1][1]) * soft_step(6 - z, sites.rectifiers[1][1])
    expected = soft_step(x, sites.rectifiers[0][1]) * 50 * 2 * beyond
    torch.testing.assert_close(changed_gradient(Backward(rectifier=1.5, relative=True), net, x), expected)


def test_sites_do_not_depend_on_the_images() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    rule = Backward(rectifier=0.7, relative=True)
    assert rule.sites(net, random_images(1)) == rule.sites(net, 9 * random_images(5, seed=3))


class Side(nn.Module):
    """Branches of one, two and three convolutions; the last ends in a rectifier."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Sequential(*(nn.Conv2d(1, 1, 1, bias=False) for _ in range(depth))).double() for depth in (1, 2, 3)
        )
        self.c.append(nn.ReLU())
        for part, w in ((self.a, 0.5), (self.b, 2.0), (self.c, 1.5)):
            for weight in part.parameters():
                nn.init.constant_(weight, w)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x), self.c(x)], 1)


@pytest.mark.parametrize("rectifier", [None, 1.5])
def test_join_scales_a_branch_for_each_convolution_more(rectifier: float | None, x: Tensor) -> None:
    last = (x > 0).double() if rectifier is None else soft_step(1.5**3 * x, rectifier)
    expected = 0.5 + 0.8 * 2.0**2 + 0.8**2 * 1.5**3 * last
    found = changed_gradient(Backward(join=0.8, rectifier=rectifier), Side(), x)
    torch.testing.assert_close(found, expected)


def test_what_is_passed_on_beside_what_is_made_from_it_is_no_branch(x: Tensor) -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.one, self.two = (nn.Conv2d(c, 1, 1).double() for c in (1, 1, 2))

        def forward(self, x: Tensor) -> Tensor:
            first = self.first(x)
            both = torch.cat([first, self.one(first)], 1)
            return torch.cat([both, self.two(both)], 1)

    assert structure(Dense(), x).joined == ()


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_a_share_of_a_pools_gradient_goes_to_the_whole_window(ceil_mode: bool) -> None:
    x = random_images(2, 1, 7, 8).double()
    net = nn.MaxPool2d(3, 2, padding=1, ceil_mode=ceil_mode)
    rows, columns = net(x).shape[2:]
    expected = torch.zeros_like(x)
    for image, i, j in itertools.product(range(2), range(rows), range(columns)):
        pixels = [(h, w) for h in range(2 * i - 1, 2 * i + 2) for w in range(2 * j - 1, 2 * j + 2)]
        inside = [(h, w) for h, w in pixels if 0 <= h < 7 and 0 <= w < 8]
        best = max(inside, key=lambda at: float(x[image, 0, at[0], at[1]]))
        expected[image, 0, best[0], best[1]] += 0.6
        for h, w in inside:
            expected[image, 0, h, w] += 0.4 / 9
    torch.testing.assert_close(changed_gradient(Backward(pool=0.4), net, x), expected)
    with Backward(pool=0.4).applied(net, x) as changed:
        assert torch.equal(changed(x), net(x))


CHANGES = [
    Backward(skip=0.5),
    Backward(rectifier=1.0),
    Backward(rectifier=0.7, relative=True, pool=0.5),
    ByFamily(),
]


@pytest.mark.parametrize("backward", CHANGES, ids=repr)
@pytest.mark.parametrize("architecture", ["torchvision:resnet18", "timm:resnet18"])
def test_a_real_network_is_as_before_afterwards(architecture: str, backward: BackwardRule) -> None:
    torch.manual_seed(0)
    net = build(architecture)[0].eval().requires_grad_(False)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)  # timm begins with branches that are zero
    x = random_images(2, 3, 64, 64)
    before, logits = gradient(net, x), net(x)
    with backward.applied(net, x) as changed:
        torch.testing.assert_close(changed(x), logits, rtol=1e-5, atol=1e-5)
        changed_there = gradient(changed, x)
        assert torch.equal(gradient(net, x), before)  # meanwhile too
        assert not any(module._forward_hooks for module in net.modules())
    assert float((changed_there - before).abs().max()) > 1e-3 * float(before.abs().max())
    assert torch.equal(gradient(net, x), before)
    assert not any(module._forward_hooks for module in net.modules())


def test_an_error_inside_leaves_nothing_behind(x: Tensor) -> None:
    net = nn.Sequential(Block(0.7), nn.ReLU(inplace=True))
    with pytest.raises(ZeroDivisionError), Backward(skip=0.5, rectifier=1.0).applied(net, x):
        raise ZeroDivisionError
    assert net[1].inplace
    assert not any(module._forward_hooks for module in net.modules())


def test_a_network_without_branches_is_said_to_have_none() -> None:
    net, x = small_net(), random_images(2)
    with pytest.warns(UserWarning, match=r"Sequential has no branch of the kind that Backward\(skip=0.5\) acts on"):
        g = changed_gradient(Backward(skip=0.5), net, x)
    assert torch.equal(g, gradient(net, x))


def test_what_cannot_be_copied_is_said_to_be_so(x: Tensor) -> None:
    class Locked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    with (
        pytest.raises(WhorlError, match=r"Locked cannot be: .*backward=Backward\(\)"),
        Backward(skip=0.5).applied(Locked(), x),
    ):
        pass


def test_what_is_no_module_cannot_be_changed() -> None:
    with (
        pytest.raises(WhorlError, match=r"must be an nn\.Module; got function"),
        Backward(skip=0.5).applied(lambda x: x, random_images(1)),
    ):
        pass
    with Backward().applied(lambda x: x, random_images(1)):  # nothing to change
        pass


def test_compiled_networks_run_as_they_were_written(x: Tensor) -> None:
    net = nn.Sequential(Block(0.7), Block(-1.3))
    compiled = torch.compile(net, backend="eager")
    assert isinstance(compiled, nn.Module)
    plain = gradient(compiled, x)
    changed = changed_gradient(Backward(skip=0.4), compiled, x)
    torch.testing.assert_close(changed, changed_gradient(Backward(skip=0.4), net, x))
    torch.testing.assert_close(gradient(compiled, x), plain)


class InPlace(nn.Module):
    """Goes on with the tensor that a rectifier was given, which holds what it made: x + 2·relu(x) where it is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        shown = x * 1
        out: Tensor = 2 * self.act(shown) + shown
        return out


class ByName(nn.Module):
    """Calls what it holds with torch's own name of the input."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.part(input=x)
        return out


def test_a_rectifier_that_works_in_place_still_does(x: Tensor) -> None:
    with Backward(rectifier=1.5).applied(InPlace(), x) as changed:
        assert torch.equal(changed(x), 3 * x.clamp_min(0))
    torch.testing.assert_close(changed_gradient(Backward(rectifier=1.5), InPlace(), x), 3 * soft_step(x, 1.5))


@pytest.mark.parametrize("relative", [False, True])
def test_modules_may_be_given_their_input_by_name(relative: bool, x: Tensor) -> None:
    rule = Backward(rectifier=1.5, relative=relative)
    named, plain = changed_gradient(rule, ByName(nn.ReLU()), x), changed_gradient(rule, nn.Sequential(nn.ReLU()), x)
    assert torch.equal(named, plain)
    rule = Backward(pool=0.5)
    named = changed_gradient(rule, ByName(nn.MaxPool2d(2)), x)
    assert torch.equal(named, changed_gradient(rule, nn.Sequential(nn.MaxPool2d(2)), x))


class Thrice(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


class TwicePooled(nn.MaxPool2d):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = 2 * super().forward(x)
        return out


def own_forward() -> nn.Module:
    net = nn.ReLU()
    net.forward = lambda x: x.clamp_min(0) * 5  # type: ignore[method-assign, assignment]
    return net


def other_ceiling() -> nn.Module:
    net = nn.ReLU6()
    net.max_val = 0.25
    return net


@pytest.mark.parametrize(
    ("make", "rule", "missing"),
    [
        (Thrice, Backward(rectifier=1.5), "rectifier of torch's"),
        (own_forward, Backward(rectifier=1.5), "rectifier of torch's"),
        (other_ceiling, Backward(rectifier=1.5), "rectifier of torch's"),
        (lambda: TwicePooled(2), Backward(pool=0.5), "max pool"),
        (lambda: nn.MaxPool2d(2, dilation=2), Backward(pool=0.5), "max pool"),
    ],
)
def test_what_is_none_of_torchs_is_left_alone(
    make: Callable[[], nn.Module], rule: Backward, missing: str, x: Tensor
) -> None:
    net = nn.Sequential(make())
    with pytest.warns(UserWarning, match=f"Sequential has no {missing} .* acts on"):
        found = changed_gradient(rule, net, x)
    assert torch.equal(found, gradient(net, x))


def test_half_precision_does_not_overflow() -> None:
    x = torch.tensor([-60000.0, 0.0, 60000.0], dtype=torch.float16).reshape(1, 1, 1, 3)
    g = changed_gradient(Backward(rectifier=200.0), nn.ReLU(), x)
    assert g.flatten().tolist() == [0, 0.5, 1]


def test_hooks_of_the_callers_stay_where_they_were(x: Tensor) -> None:
    net = nn.Sequential(nn.Identity(), nn.ReLU())
    net[1].register_forward_pre_hook(lambda _, given: (given[0] * 2,))
    net[1].register_forward_hook(lambda _, __, out: out * 5)
    with Backward(rectifier=1.5).applied(net, x) as changed:
        assert torch.equal(changed(x), net(x))
        torch.testing.assert_close(gradient(changed, x), 10 * soft_step(2 * x, 1.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Backward(skip=0), r"skip must be a number in \(0, 1\]; got 0"),
        (lambda: Backward(rectifier=-1.0), "rectifier must be a number above 0, or None"),
        (lambda: Backward(late=-0.1), r"late must be a number in \[0, 1\]"),
        (lambda: Backward(join=1.5), r"join must be a number in \(0, 1\]"),
        (lambda: Backward(pool=2), r"pool must be a number in \[0, 1\]"),
    ],
)
def test_settings_out_of_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WhorlError, match=message):
        make()
