"""Estimators wrapped around a module, in every mode torch has, compiled too."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from estimator_cases import ESTIMATORS, Function
from reference import noise
from whorl.estimators import AffineInvariant
from whorl.geometry.polar import polar_plan


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    net(torch.zeros(1, 3, 20, 24))
    return net.to(dtype)


def run(net: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the gradient of a loss at the input."""
    x = x.clone().requires_grad_()
    out = net(x)
    out.float().square().sum().backward()
    assert x.grad is not None
    return out.detach(), x.grad


WRAPPED = {name: ESTIMATORS[name] for name in ("ti", "ai", "ai own", "rotation", "chain", "identity")}


def wrap(name: str, net: nn.Module) -> nn.Module:
    estimator: Any = WRAPPED[name]
    wrapped = estimator.wrap(net)
    assert isinstance(wrapped, nn.Module)
    return wrapped


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_forward_is_the_same_and_the_gradient_is_the_estimate(name: str) -> None:
    net, x = network(), noise(3, 3, 20, 24, dtype=torch.float32)
    out, gradient = run(net, x)
    wrapped_out, wrapped_gradient = run(wrap(name, net), x)
    assert torch.equal(wrapped_out, out)
    assert torch.equal(wrapped_gradient, WRAPPED[name](gradient))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapping_leaves_the_gradients_of_the_parameters_alone(name: str) -> None:
    x = noise(2, 3, 20, 24, dtype=torch.float32)
    plain, inner = network(), network()
    run(plain, x)
    run(wrap(name, inner), x)
    for expected, parameter in zip(plain.parameters(), inner.parameters(), strict=True):
        assert expected.grad is not None
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, expected.grad)


def test_wrapped_parameters_learn_where_the_input_needs_no_gradient() -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)
    torch.sum(wrap("ai", net)(x)).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())
    assert x.grad is None


def test_wrapped_module_shares_parameters_and_mode() -> None:
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5))
    wrapped = wrap("ai", net)
    assert {id(p) for p in wrapped.parameters()} == {id(p) for p in net.parameters()}
    wrapped.eval()
    assert not net[1].training
    wrapped.train()
    assert net[1].training
    wrapped.double()
    assert net[0].weight.dtype == torch.float64


def test_wrapping_twice_estimates_twice() -> None:
    net, x = network(), noise(1, 3, 20, 24, dtype=torch.float32)
    _, gradient = run(net, x)
    _, twice = run(wrap("ti", wrap("ai own", net)), x)
    assert torch.equal(twice, ESTIMATORS["ti"](ESTIMATORS["ai own"](gradient)))


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_wrapped_without_gradients(name: str, mode: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)
    with mode():
        out = wrap(name, net)(x.clone().requires_grad_())
    assert not out.requires_grad
    assert torch.equal(out, net(x))


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("backward_inside", [False, True])
def test_wrapped_under_autocast(name: str, backward_inside: bool) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)

    def run_autocast(net: nn.Module) -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(leaf)
            if backward_inside:
                out.float().square().sum().backward()
        if not backward_inside:
            out.float().square().sum().backward()
        assert leaf.grad is not None
        return out.detach(), leaf.grad

    out, gradient = run_autocast(net)
    wrapped_out, wrapped_gradient = run_autocast(wrap(name, net))
    assert out.dtype == wrapped_out.dtype == torch.bfloat16
    assert torch.equal(wrapped_out, out)
    assert wrapped_gradient.dtype == torch.float32
    assert torch.equal(wrapped_gradient, WRAPPED[name](gradient))


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_wrapped_in_other_precisions(name: str, dtype: torch.dtype) -> None:
    net, x = network(dtype), noise(2, 3, 20, 24, dtype=dtype)
    out, gradient = run(net, x)
    wrapped_out, wrapped_gradient = run(wrap(name, net), x)
    assert torch.equal(wrapped_out, out)
    assert wrapped_gradient.dtype == dtype
    assert torch.equal(wrapped_gradient, WRAPPED[name](gradient))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_under_function_transforms(name: str) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32)
    wrapped = wrap(name, net)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return torch.sum(module(x) ** 2)

    plain = torch.func.grad(functools.partial(loss, net))(x)
    estimated = torch.func.grad(functools.partial(loss, wrapped))(x)
    assert torch.equal(estimated, WRAPPED[name](plain))
    assert torch.equal(run(wrapped, x)[1], WRAPPED[name](run(net, x)[1]))
    # Nothing of the transform stays behind in a cache. (Inside it, plain torch estimates: the same up to rounding.)
    torch.testing.assert_close(run(wrapped, x)[1], estimated, rtol=0, atol=1e-6 * float(estimated.abs().max()))


@pytest.mark.parametrize("name", ["ti", "ai", "ai own"])
def test_wrapped_gradient_through_autograd_grad(name: str) -> None:
    net, x = network(), noise(2, 3, 20, 24, dtype=torch.float32).requires_grad_()
    (plain,) = torch.autograd.grad(net(x).square().sum(), x)
    (estimated,) = torch.autograd.grad(wrap(name, net)(x).square().sum(), x)
    assert torch.equal(estimated, WRAPPED[name](plain))


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    polar_plan.cache_clear()
    yield
    torch._dynamo.reset()


needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler"
)


def check_compiled(name: str, net: nn.Module, backend: str) -> None:
    x = noise(2, 3, 20, 24, dtype=torch.float32)
    compiled = torch.compile(wrap(name, net), backend=backend, fullgraph=True)
    compiled_out, compiled_gradient = run(compiled, x)  # before anything else, so that it builds its own grids
    out, gradient = run(net, x)
    assert torch.allclose(compiled_out, out, rtol=1e-4, atol=1e-6)
    expected = WRAPPED[name](gradient)
    assert (compiled_gradient - expected).norm() < 1e-5 * expected.norm()
    parameters = [parameter.grad for parameter in net.parameters()]
    assert all(grad is not None and grad.isfinite().all() for grad in parameters)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["ai", "ai own"])
def test_wrapped_compiles(name: str) -> None:
    check_compiled(name, network(), "aot_eager")


@needs_compiler
@pytest.mark.usefixtures("fresh_compiler")
def test_wrapped_compiles_to_machine_code() -> None:
    check_compiled("ai", nn.Sequential(nn.Flatten(), nn.Linear(3 * 20 * 24, 5)), "inductor")


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["ti", "chain"])
def test_estimator_compiles(name: str) -> None:
    g = noise(2, 3, 20, 24, dtype=torch.float32)
    inside = torch.compile(ESTIMATORS[name], backend="aot_eager", fullgraph=True)(g)
    assert torch.allclose(inside, ESTIMATORS[name](g), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["ti", "ai", "ai own"])
def test_a_compiled_estimator_holds_its_grids_and_kernels_ready(name: str) -> None:
    """What the compiler takes in is what runs at every step: it must not hold the building of a grid."""
    called: set[str] = set()

    def look(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        called.update(getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes)
        return graph.forward

    g = noise(1, 3, 20, 24, dtype=torch.float32)
    compiled: Any = torch.compile(ESTIMATORS[name], backend=look)
    assert torch.allclose(compiled(g), ESTIMATORS[name](g), rtol=1e-5, atol=1e-6)
    assert called
    assert not called & {"exp", "cos", "sin", "atan2", "hypot", "arange", "linspace", "floor", "tensor", "svd"}


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_once_for_all_steps() -> None:
    """A second call of the same shape is not compiled again, and a new shape gives the right answer."""
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(ESTIMATORS["ai"], backend=counter, dynamic=False)
    for seed in range(3):
        g = noise(1, 3, 20, 20, seed=seed, dtype=torch.float32)
        assert torch.allclose(compiled(g), ESTIMATORS["ai"](g), rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1
    g = noise(1, 3, 12, 30, dtype=torch.float32)
    assert torch.allclose(compiled(g), ESTIMATORS["ai"](g), rtol=1e-5, atol=1e-6)


def test_a_compiled_network_takes_images_of_any_size() -> None:
    torch._dynamo.reset()
    estimator = AffineInvariant(kernel_size=5)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    compiled = torch.compile(estimator.wrap(net), backend="aot_eager", fullgraph=True, dynamic=True)
    for side in (16, 20, 24):
        x = torch.rand(2, 3, side, side, requires_grad=True)
        (plain,) = torch.autograd.grad(net(x).sum(), x)
        (estimated,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(estimated, estimator(plain))
    torch._dynamo.reset()
