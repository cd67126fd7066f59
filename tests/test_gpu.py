"""What only a GPU can show. Run by hand: ``pytest -m gpu``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import whorl
from conftest import random_images, small_net
from whorl.attacks.loop import SampledGradient
from whorl.attacks.objectives import Goal, cross_entropy
from whorl.evaluation import Distance, Pose
from whorl.randomness import image_keys, uniform

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

ESTIMATORS: dict[str, whorl.Estimator] = {
    "ti": whorl.TranslationInvariant(),
    "ai": whorl.AffineInvariant(),
    "ai narrow": whorl.AffineInvariant(sigma=0.5),
    "ai reference": whorl.AffineInvariant(sigma="reference"),
    "ai printed": whorl.AffineInvariant(sigma="printed", kernel_size=31),
    "ai uniform": whorl.AffineInvariant(kind="uniform", kernel_size=(3, 9)),
    "own": whorl.AffineInvariant(weights=torch.rand(5, 3, generator=torch.Generator().manual_seed(0))),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("shape", [(2, 3, 224, 224), (2, 1, 299, 299), (3, 4, 97, 131)], ids=str)
def test_the_gpu_agrees_with_the_cpu_in_float64(name: str, shape: tuple[int, int, int, int]) -> None:
    estimator = ESTIMATORS[name]
    gradient = torch.randn(shape, dtype=torch.float64)
    expected = estimator(gradient)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        out = estimator(gradient.to("cuda", dtype)).cpu().double()
        reference = expected if dtype != torch.bfloat16 else estimator(gradient.to(dtype).double())
        assert float((out - reference).norm() / reference.norm()) < tolerance


@pytest.mark.parametrize("name", ESTIMATORS)
def test_full_float32_whatever_the_global_switches_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    estimator, gradient = ESTIMATORS[name], torch.randn(8, 3, 128, 128, dtype=torch.float64)
    with torch.autocast("cuda", dtype=torch.float16):
        out = estimator(gradient.cuda().float()).cpu().double()
    expected = estimator(gradient)
    assert float((out - expected).norm() / expected.norm()) < 1e-5


def test_draws_are_the_same_bits_on_every_device() -> None:
    x = random_images(4)
    keys = image_keys(x, 7)
    assert torch.equal(image_keys(x.cuda(), 7).cpu(), keys)
    assert torch.equal(uniform(keys.cuda(), (1000,)).cpu(), uniform(keys, (1000,)))


def synchronisations(call: Callable[[], object]) -> int:
    """How often a second call makes the host wait, as torch itself counts it."""
    call()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(w.message) for w in caught)


@pytest.mark.parametrize("name", whorl.attack_names(kind="gradient"))
def test_no_synchronisation_inside_the_loop(name: str) -> None:
    net, x = small_net().cuda(), random_images(4).cuda()
    y = net(x).argmax(1)
    attacks = [whorl.attack(name, steps=n, samples=2) for n in (1, 5)]
    counts = [synchronisations(partial(attack, net, x, y)) for attack in attacks]
    assert counts[0] == counts[1]


def test_distances_are_waited_for_once() -> None:
    clean, adversarial = random_images(40).cuda(), random_images(40, seed=2).cuda()
    assert synchronisations(lambda: Distance.of(clean, adversarial)) == 1
    expected = Distance.of(clean.cpu(), adversarial.cpu())
    assert vars(Distance.of(clean, adversarial)) == pytest.approx(vars(expected), rel=1e-5)


@pytest.mark.parametrize("name", ["ti", "ai", "ai printed"])
def test_peak_extra_memory_is_three_buffers(name: str) -> None:
    gradient = torch.randn(16, 3, 256, 256, device="cuda")
    ESTIMATORS[name](gradient)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ESTIMATORS[name](gradient)
    extra = torch.cuda.max_memory_allocated() - before
    # the allocator rounds each buffer up to 2 MiB
    assert extra <= 3 * (gradient.nbytes + 2**21)


@pytest.mark.parametrize("name", ["pgd", "ai-dim", "eot", "ai-ram"])
def test_a_model_on_the_gpu_gives_what_the_cpu_gives(name: str) -> None:
    net, x = small_net().double(), random_images(4).double()
    y = net(x).argmax(1)
    attack = whorl.attack(name, steps=3, samples=2)
    expected = attack(net, x, y)
    adv = attack(net.cuda(), x.cuda(), y.cuda()).cpu()
    assert float(((adv - expected).abs() > 1e-6).double().mean()) < 1e-3


def test_images_and_model_on_different_devices() -> None:
    with pytest.raises(whorl.WhorlError, match="images are on cpu but the model is on cuda:0"):
        whorl.attack("pgd")(small_net().cuda(), random_images(2), torch.tensor([0, 1]))


class Hungry(nn.Module):
    """Runs out of memory above a given batch."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.net, self.most = small_net(), most

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.most:
            torch.empty(2**46, device=x.device)
        out: torch.Tensor = self.net(x)
        return out


def test_samples_that_do_not_fit_are_halved_until_they_do() -> None:
    x = random_images(4).cuda()
    y = torch.zeros(4, dtype=torch.int64, device="cuda")
    attack = whorl.attack("eot", steps=1, samples=16, eps=0.01)
    expected = attack(small_net().cuda(), x, y)
    adv = attack(Hungry(20).cuda(), x, y)
    assert float(((adv - expected).abs() > 1e-6).float().mean()) < 1e-2
    gradient = SampledGradient(Hungry(20).cuda(), Goal.of(x, y, None), cross_entropy, whorl.RandomAffine(), 16, None)
    with torch.enable_grad():
        gradient(x, image_keys(x, 0))
    assert gradient.fits == 4


def test_the_wrapped_model_compiles() -> None:
    net = whorl.AffineInvariant().wrap(small_net()).cuda()
    x = random_images(4).cuda().requires_grad_()
    (expected,) = torch.autograd.grad(net(x).sum(), x)
    for dynamic in (False, True):
        torch._dynamo.reset()
        (compiled,) = torch.autograd.grad(torch.compile(net, fullgraph=True, dynamic=dynamic)(x).sum(), x)
        torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["shear", "stretch", "tilt", "brightness", "contrast", "blur"])
def test_every_family_of_poses_agrees_with_the_cpu(name: str) -> None:
    value = {"stretch": (1.2, 0.8), "tilt": (20, -10), "brightness": 0.1, "contrast": 0.5}.get(name, 5)
    pose, x = Pose(angle=10, **{name: value}), random_images(2, 3, 64, 48)  # type: ignore[arg-type]  # from a table
    torch.testing.assert_close(pose.apply(x.cuda()).cpu(), pose.apply(x.double()).float(), rtol=0, atol=1e-4)
