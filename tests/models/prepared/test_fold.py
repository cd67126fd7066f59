"""Folding a normalisation into the convolution before it changes the time, and nothing else."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import whorl
from whorl.models.prepared.fold import fold, folded


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_lite0"])
def test_real_networks_answer_and_learn_as_before(name: str) -> None:
    plain = whorl.load_model(name).net.double().requires_grad_(True)
    folded = deepcopy(plain)
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in plain.modules())
    assert fold(folded, (64, 64), learns=True) == norms
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    answers = []
    for net in (plain, folded):
        logits = net(x)
        logits.square().mean().backward()
        answers.append(logits)
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-9, atol=1e-9)
    theirs = dict(plain.named_parameters())
    for place, parameter in folded.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[place].grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_lite0"])
def test_a_product_that_is_taken_once_answers_the_same(name: str) -> None:
    net = whorl.load_model(name).net.double()
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = net(x)
    assert fold(net, (64, 64))
    torch.testing.assert_close(net(x), before, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 4:
                parameter.zero_()
    torch.testing.assert_close(net(x), before, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("learns", [False, True])
def test_a_convolution_with_a_bias(learns: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3, bias=False),
        nn.BatchNorm2d(5),
        nn.Flatten(),
    ).eval()
    for norm in (net[1], net[4]):
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    x = torch.rand(2, 3, 9, 9)
    ran: list[nn.Module] = []
    with torch.no_grad():
        expected = net(x)
        assert fold(net, (9, 9), learns=learns) == 2
        # What a normalisation itself does is left to its convolution.
        for norm in (net[1], net[4]):
            norm.register_forward_hook(lambda module, given, out: ran.append(module) if out is not given[0] else None)
        torch.testing.assert_close(net(x), expected)
    assert not ran


class Twice(nn.Module):
    """Its convolution's output goes past the normalisation as well."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.norm.running_mean = torch.arange(4.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        out: Tensor = (x + self.norm(x)).mean((2, 3))
        return out


def test_what_a_fold_would_change_stays_as_it_is() -> None:
    torch.manual_seed(0)
    net = Twice().eval()
    x = torch.rand(2, 3, 8, 8)
    before = net(x)
    assert fold(net, (8, 8)) == 0
    torch.testing.assert_close(net(x), before)


def test_statistics_that_still_move_are_not_folded() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    assert fold(net, (8, 8)) == 0


def test_a_folded_copy_shares_tensors_and_leaves_the_classifier_as_it_is() -> None:
    model = whorl.load_model("resnet18")
    x = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    before = model(x)
    copy = folded(model)
    assert not any("forward" in vars(module) for module in model.modules())
    assert {t.data_ptr() for t in copy.parameters()} == {t.data_ptr() for t in model.parameters()}
    assert torch.equal(model(x), before)
    torch.testing.assert_close(copy(x), before, rtol=1e-3, atol=1e-3)


def test_a_folded_copy_pools_as_the_classifier_does() -> None:
    """No normalisation here: only pools, and kernels that are laid out in advance."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 4, 3), nn.AvgPool2d(5))
    model = whorl.Classifier(nn.Sequential(net, nn.Flatten()), size=16, mean=[0.5] * 3, std=[0.2] * 3, num_classes=4)
    copy = folded(model)
    changed = [type(module) for module in copy.net.modules() if "forward" in vars(module)]
    assert changed == [nn.Conv2d, nn.MaxPool2d, nn.Conv2d]
    answers = []
    for each in (model, copy):
        x = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(1)).requires_grad_()
        logits = each(x)
        answers.append((logits.detach(), *torch.autograd.grad(logits.square().sum(), x)))
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
