"""One training step: crops, blends, precision, and what a GPU can record of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hardening_cases import CLASSES, SIZE, TINY, as_classifier, same, toy, toy_images, toy_net
from whorl.hardening import Training, harden, recipe, recipe_names, trainer
from whorl.hardening.student import make_student
from whorl.hardening.trainer import Trainer
from whorl.models.prepared.graph import Recorded


@pytest.mark.parametrize("channels_last", [False, True])
def test_low_precision_learns_the_same_in_either_layout(channels_last: bool) -> None:
    settings = {**TINY, "pool": [toy(1)], "lr": 1e-3}
    exact = harden(toy(), toy_images(), "ens-at", **settings).learned
    low = harden(toy(), toy_images(), "ens-at", precision="bf16", channels_last=channels_last, **settings).learned
    start = toy().net.state_dict()
    moved = torch.cat([(exact[name] - start[name]).flatten() for name in exact])
    apart = torch.cat([(exact[name] - low[name]).flatten() for name in exact])
    assert float(apart.norm()) < 0.5 * float(moved.norm())


def test_blended_images_carry_blended_labels() -> None:
    trainer = Trainer(
        make_student(toy()), {}, [], toy_images(), recipe("pgd-at"), Training(batch=12, mix=1.0, trust=0.0)
    )
    plain = Trainer(make_student(toy()), {}, [], toy_images(), recipe("pgd-at"), Training(batch=12, trust=0.0))
    trainer.fill(3)
    plain.fill(3)
    mixed, pure = trainer.batch(), plain.batch()
    assert torch.equal(mixed.y, pure.y)
    torch.testing.assert_close(mixed.labels.sum(1), torch.ones(12))
    own = mixed.labels.gather(1, mixed.y[:, None])[:, 0]
    others = pure.y.roll(1)
    assert bool((own >= 0.5).all())
    assert bool((own[others == pure.y] == 1).all())
    # How much of the other image shows is how much of its label does.
    through = mixed.labels.gather(1, others[:, None])[:, 0]
    different = others != pure.y
    assert int(different.sum()) > 6
    change = (mixed.x - pure.x).flatten(1).abs().mean(1)
    assert float(torch.corrcoef(torch.stack((through[different], change[different])))[0, 1]) > 0.7
    assert torch.equal(pure.labels, nn.functional.one_hot(pure.y, CLASSES).float())


class Sizes(nn.Module):
    """Notes the sizes of the images that pass through."""

    seen: ClassVar[set[tuple[int, ...]]] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add(tuple(x.shape[-2:]))
        return x


def test_smaller_crops_reach_every_network_as_they_are() -> None:
    watched = as_classifier(nn.Sequential(Sizes(), toy_net(seed=1)), "watched")
    settings = TINY | {"crop": 12, "held_out": 0}
    done = harden(watched, toy_images(), "ens-at", pool=[watched], teachers=[watched], **settings)
    assert Sizes.seen == {(12, 12)}
    assert done.classifier.size == (SIZE, SIZE)


class Waits(TorchDispatchMode):
    """Notes operations that make a device wait, or that a recorded step cannot repeat."""

    FORBIDDEN: ClassVar[set[str]] = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh"}

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in self.FORBIDDEN:
            self.found.add(name)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("name", recipe_names())
def test_a_step_can_be_recorded(name: str) -> None:
    pool = {"a": toy(1), "b": toy(2)}
    trainer = Trainer(make_student(toy()), pool, [toy()], toy_images(), recipe(name), Training(batch=12, mix=0.5))
    trainer.advance()  # builds what is built once
    gradients = [parameter.grad for parameter in trainer.parameters if parameter.grad is not None]
    held = [*trainer.inputs, trainer.loss, *gradients, *trainer.parameters, *trainer.average.state.values()]
    places = [tensor.data_ptr() for tensor in held]
    with Waits() as waits:
        trainer.learn()
    assert not waits.found
    # To learn changes nothing but the gradients and the loss, and does so again.
    before = [tensor.clone() for tensor in held]
    trainer.learn()
    assert all(torch.equal(*pair) for pair in zip(before, held, strict=True))
    trainer.advance()
    assert any(not torch.equal(*pair) for pair in zip(before, gradients, strict=False))
    assert places == [tensor.data_ptr() for tensor in held]
    assert trainer.parameters[0].grad is gradients[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", recipe_names())
def test_a_recorded_step_is_the_step(name: str) -> None:
    def trained(record: bool) -> dict[str, Tensor]:
        return harden(
            toy(), toy_images(), name, pool=[toy(1)], **{**TINY, "device": "cuda"}, mix=0.5, record=record
        ).learned

    recorded, plain = trained(True), trained(False)
    start = toy().net.state_dict()
    for key, tensor in plain.items():
        moved = float((tensor - start[key]).abs().max())
        assert float((recorded[key] - tensor).abs().max()) <= 0.05 * moved


def test_a_step_too_large_to_record_is_run_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = harden(toy(), toy_images(), "pgd-at", **TINY).learned
    tried = []

    class Full(Recorded):
        def __init__(self, function: Callable[[], None], device: torch.device) -> None:
            tried.append(device)
            if len(tried) == 1:
                raise torch.cuda.OutOfMemoryError
            super().__init__(function, device)

    monkeypatch.setattr(trainer, "Recorded", Full)
    with pytest.warns(UserWarning, match="does not fit the GPU's memory"):
        found = harden(toy(), toy_images(), "pgd-at", **TINY).learned
    assert same(found, expected)


def test_a_parameter_that_plays_no_part_stays_as_it_is() -> None:
    net = toy_net(seed=0)
    net.spare = nn.Identity()
    net.spare.idle = nn.Parameter(torch.ones(3))
    done = harden(as_classifier(net.eval(), "spare"), toy_images(), "pgd-at", **TINY)
    assert torch.equal(done.learned["spare.idle"], torch.ones(3))
    assert not torch.equal(done.learned["0.weight"], net.state_dict()["0.weight"])
