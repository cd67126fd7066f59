"""DeepFool and C&W: small perturbations, no larger than a peer finds on the same images."""

from __future__ import annotations

import foolbox
import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images, small_net

ATTACKS = {
    "deepfool": whorl.attack("deepfool"),
    "cw": whorl.attack("cw", steps=100, search_steps=5),
}
every_attack = pytest.mark.parametrize("name", ATTACKS)


def truth_of(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        truth: Tensor = net(x).argmax(1)
    return truth


def labels_for(net: nn.Module, x: Tensor, *, targeted: bool) -> tuple[Tensor | None, Tensor | None]:
    truth = truth_of(net, x)
    return (None, (truth + 1) % CLASSES) if targeted else (truth, None)


@every_attack
@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("shape", [(4, 3, 18, 18), (2, 1, 13, 22)], ids=str)
def test_fools_within_the_box(name: str, targeted: bool, shape: tuple[int, int, int, int]) -> None:
    net, x = small_net(shape[1]), random_images(*shape)
    y, target = labels_for(net, x, targeted=targeted)
    adv, info = ATTACKS[name](net, x, y, target=target, return_info=True)
    assert float(adv.min()) >= 0
    assert float(adv.max()) <= 1
    assert bool(info.success.all())
    answer = net(adv).argmax(1)
    assert bool((answer == target).all() if target is not None else (answer != y).all())
    # smaller than what a whole step of FGSM takes, which need not even fool
    assert float((adv - x).flatten(1).norm(dim=1).max()) < 0.7 * (x[0].numel() ** 0.5) * 16 / 255


@every_attack
@pytest.mark.parametrize("targeted", [False, True])
def test_does_not_depend_on_the_batch(name: str, targeted: bool) -> None:
    net, x = small_net().double(), random_images(8).double()
    y, target = labels_for(net, x, targeted=targeted)

    def run(part: slice) -> Tensor:
        return ATTACKS[name](
            net, x[part], None if y is None else y[part], target=None if target is None else target[part]
        )

    whole = run(slice(None))
    for batch in (1, 3):
        parts = [run(slice(i, i + batch)) for i in range(0, 8, batch)]
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-7)


@every_attack
def test_what_is_already_wrong_stays(name: str) -> None:
    net, x = small_net(), random_images(4)
    truth = truth_of(net, x)
    wrong = (truth + 1) % CLASSES
    torch.testing.assert_close(ATTACKS[name](net, x, wrong), x, rtol=0, atol=1e-5)


@every_attack
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_networks(name: str, dtype: torch.dtype) -> None:
    net, x = small_net().to(dtype), random_images(4)
    with torch.no_grad():
        y = net(x.to(dtype)).argmax(1)
    adv, info = ATTACKS[name](net, x, y, return_info=True)
    assert adv.dtype == torch.float32
    assert bool(info.success.all())


@every_attack
def test_the_estimator_has_its_slot(name: str) -> None:
    net, x = small_net(), random_images(4)
    y = truth_of(net, x)
    estimator = whorl.AffineInvariant(kernel_size=5)
    adv, info = ATTACKS[name].with_(estimator=estimator)(net, x, y, return_info=True)
    assert bool(info.success.all())
    assert not torch.equal(adv, ATTACKS[name](net, x, y))


def test_deepfool_on_a_linear_model_is_the_projection_onto_the_nearest_boundary() -> None:
    torch.manual_seed(0)
    weight = torch.randn(4, 12, dtype=torch.float64)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4, bias=False)).double()
    net[1].weight.data = weight
    x = 0.5 + 0.02 * torch.randn(6, 3, 2, 2, dtype=torch.float64)
    logits = net(x).detach()
    y = logits.argmax(1)
    adv = whorl.attack("deepfool", overshoot=0.0)(net, x, y)
    for i in range(6):
        gaps = [
            float(logits[i, y[i]] - logits[i, k]) / float((weight[y[i]] - weight[k]).norm())
            for k in range(4)
            if k != y[i]
        ]
        assert float((adv[i] - x[i]).norm()) == pytest.approx(min(gaps), rel=1e-3)


def test_cw_meets_its_confidence() -> None:
    net, x = small_net(), random_images(4)
    y = truth_of(net, x)
    logits = net(ATTACKS["cw"].with_(confidence=0.5)(net, x, y)).detach()
    own = logits.gather(1, y[:, None])[:, 0]
    assert bool((logits.scatter(1, y[:, None], -torch.inf).amax(1) - own >= 0.5 - 1e-4).all())


@pytest.mark.parametrize("name", ["deepfool", "cw"])
def test_no_larger_than_foolbox_on_real_weights(name: str) -> None:
    clf = whorl.load_model("mobilenet_v2")
    x, y, _ = whorl.load_samples(4)
    x = torch.nn.functional.interpolate(x, (224, 224), mode="bilinear", antialias=True).clamp(0, 1)
    with torch.no_grad():
        y = clf(x).argmax(1)
    peer = (
        foolbox.attacks.L2DeepFoolAttack(steps=20, candidates=5)
        if name == "deepfool"
        else foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=3, steps=15, stepsize=0.02, initial_const=1.0)
    )
    ours = (
        whorl.attack("deepfool", steps=20, candidates=4)
        if name == "deepfool"
        else whorl.attack("cw", search_steps=3, steps=15, learning_rate=0.02, initial_c=1.0)
    )
    _, theirs, fooled = peer(foolbox.PyTorchModel(clf, bounds=(0, 1)), x, y, epsilons=None)
    adv, info = ours(clf, x, y, return_info=True)
    assert bool(info.success.all())
    assert bool(fooled.all())
    distance = [(z - x).flatten(1).norm(dim=1) for z in (adv, theirs)]
    assert float(distance[0].mean()) <= float(distance[1].mean()) * 1.001
