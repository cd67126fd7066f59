"""Training: what is learned, what is held, resuming, several processes, and what can go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import whorl
from hardening_cases import CLASSES, SIZE, as_classifier, same, toy, toy_images, toy_net
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES
from whorl.hardening import Recipe, Training, harden, recipe, recipe_names, trainer
from whorl.hardening.checkpoint import FILE, load_checkpoint
from whorl.hardening.student import make_student
from whorl.hardening.trainer import Trainer
from whorl.models.prepared.graph import Recorded

TINY: dict[str, Any] = {"steps": 8, "batch": 12, "held_out": 10, "reports": 2, "checkpoints": 2, "device": "cpu"}
TESTS = Path(__file__).parents[1]
# What a process of its own trains; {say} is what it does after each measurement.
PROGRAM = """
import faulthandler, os, signal, sys, torch
faulthandler.dump_traceback_later(280, exit=True)  # a process that waits for another one in vain says where
torch.set_num_threads(1)
from hardening_cases import toy, toy_images
from whorl.hardening import harden

def say(entry):
    {say}

done = harden(
    toy(0, dtype=torch.float64), toy_images(), "ens-at", out=sys.argv[1], pool=[toy(1, dtype=torch.float64)],
    steps=8, batch=12, held_out=10, reports=8, checkpoints=4, mix=0.5, device="cpu", say=say,
)
if int(os.environ.get("RANK", "0")) == 0:
    torch.save(done.learned, sys.argv[2])
"""


def run(*arguments: str, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(script, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments[:-2], str(program), *arguments[-2:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    done = harden(
        toy(0, dtype=torch.float64),
        toy_images(),
        "ens-at",
        out=tmp_path_factory.mktemp("whole"),
        pool=[toy(1, dtype=torch.float64)],
        **TINY | {"reports": 8, "checkpoints": 4, "mix": 0.5},
    )
    return done.learned


def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path, uninterrupted: dict[str, Tensor]) -> None:
    killing = PROGRAM.format(say="if entry['step'] == 5: os.kill(os.getpid(), signal.SIGKILL)")
    killed = run(str(tmp_path), str(tmp_path / "never"), script=killing, folder=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "never").exists()
    steps: list[float] = []
    resumed = harden(
        toy(0, dtype=torch.float64),
        toy_images(),
        "ens-at",
        out=tmp_path,
        pool=[toy(1, dtype=torch.float64)],
        say=lambda entry: steps.append(entry["step"]),
        **TINY | {"reports": 8, "checkpoints": 4, "mix": 0.5},
    )
    assert steps == [5, 6, 7, 8]  # the checkpoint is from after step 4
    assert [entry["step"] for entry in resumed.history] == list(range(1, 9))
    assert same(resumed.learned, uninterrupted)


def test_two_processes_match_one(tmp_path: Path, uninterrupted: dict[str, Tensor]) -> None:
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    out = tmp_path / "learned.pt"
    done = run(*launch, str(tmp_path / "run"), str(out), script=PROGRAM.format(say="pass"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    learned = torch.load(out, weights_only=True)
    assert learned.keys() == uninterrupted.keys()
    for name, tensor in learned.items():
        # float64: what is left is the order of additions.
        torch.testing.assert_close(tensor, uninterrupted[name], rtol=1e-9, atol=1e-9)
    assert (tmp_path / "run" / "weights.safetensors").is_file()


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    first, second = (harden(toy(), toy_images(), "alp", pool=[toy(1)], **TINY) for _ in range(2))
    other = harden(toy(), toy_images(), "alp", pool=[toy(1)], seed=1, **TINY)
    assert same(first.learned, second.learned)
    assert not same(first.learned, other.learned)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_makes_the_network_more_robust(name: str) -> None:
    original, radius = toy(), 0.1 if name == "ai-at" else 0.06  # the toy is fooled at other radii than a real network
    measure = accuracy_when_posed if name == "ai-at" else accuracy_under_attack
    chosen = recipe(name)
    chosen = chosen.with_(examples=tuple(kind.with_(eps=(radius, radius)) for kind in chosen.examples), ramp=0.0)
    settings: dict[str, Any] = {"steps": 100 if name == "trades" else 50, "batch": 16, "lr": 1e-2, "optimizer": "adam"}
    settings |= {
        "held_out": 0,
        "reports": 1,
        "norm": "affine",
        "area": (0.7, 1.0),
        "trust": 0.5,
        "head": True,
        "device": "cpu",
    }
    done = harden(original, toy_images(140), chosen, pool=[toy(1)], **settings)
    assert done.classifier.name == f"toy0.{name}"
    assert measure(done.classifier) > measure(original) + 0.15
    x, y = unseen()
    assert float((done.classifier(x).argmax(1) == y).float().mean()) >= 0.95


def unseen() -> tuple[Tensor, Tensor]:
    images = toy_images(70, seed=3)
    return nn.functional.interpolate(images.pixels / 255, (16, 16), mode="bilinear"), images.labels


def accuracy_under_attack(classifier: nn.Module) -> float:
    x, y = unseen()
    adv = whorl.attack("pgd", eps=0.05)(classifier, x, y)
    return float((classifier(adv).argmax(1) == y).float().mean())


def accuracy_when_posed(classifier: nn.Module) -> float:
    x, y = unseen()
    adv = whorl.attack("ai-ram", eps=0.1)(toy(1), x, y)
    right = [(classifier(pose.apply(adv)).argmax(1) == y).float().mean() for pose in PAPER_POSES]
    return float(torch.stack(right).mean())


@pytest.mark.parametrize("norm", ["affine", "frozen", "batch"])
def test_what_is_held_does_not_move(norm: str) -> None:
    original = toy()
    done = harden(original, toy_images(), "pgd-at", norm=norm, **TINY)
    before, after = original.net.state_dict(), done.classifier.net.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    kernels = {"0.weight", "0.bias", "3.weight", "3.bias"}
    scales = {f"{place}.{name}" for place in (1, 4) for name in ("weight", "bias")}
    statistics = {f"{place}.{name}" for place in (1, 4) for name in ("running_mean", "running_var")}
    statistics |= {"1.num_batches_tracked", "4.num_batches_tracked"}
    expected = {"affine": kernels | scales, "frozen": kernels, "batch": kernels | scales | statistics}[norm]
    assert moved == expected
    assert set(done.learned) == expected
    assert not any(parameter.requires_grad for parameter in done.classifier.parameters())
    assert same(original.net.state_dict(), toy().net.state_dict())


def test_the_head_moves_only_if_told_to() -> None:
    done = harden(toy(), toy_images(), "pgd-at", head=True, **TINY)
    assert {"8.weight", "8.bias"} <= set(done.learned)


def test_starting_from_other_weights() -> None:
    begun = harden(toy(), toy_images(), "ens-at", pool=[toy(1)], head=True, **TINY).classifier
    done = harden(toy(), toy_images(), "alp", pool=[toy(1)], start=begun, **TINY | {"lr": 1e-12})
    for name, tensor in done.classifier.net.state_dict().items():
        torch.testing.assert_close(tensor, begun.net.state_dict()[name], rtol=0, atol=1e-6)
    assert done.classifier.name == "toy0.alp"


@pytest.fixture
def steps_take(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], float]]:
    """Makes a clock on which time passes as steps are taken, and only then."""

    def make(*, first: float, later: float) -> Callable[[], float]:
        taken = [0.0]
        advance = Trainer.advance

        def ticking(trainer: Trainer) -> None:
            advance(trainer)
            taken.append(first if len(taken) <= 8 else later)  # two to warm up and six that are timed

        monkeypatch.setattr(Trainer, "advance", ticking)
        return lambda: sum(taken)

    return make


def test_a_time_limit_becomes_a_number_of_steps(tmp_path: Path, steps_take: Callable[..., Any]) -> None:
    settings = {key: value for key, value in TINY.items() if key != "steps"}
    settings |= {"seconds": 8.0, "clock": steps_take(first=0.5, later=0.5)}
    done = harden(toy(), toy_images(), "pgd-at", out=tmp_path, **settings)
    assert done.training.steps == 16
    assert done.history[-1]["step"] == done.training.steps
    again = harden(toy(), toy_images(), "pgd-at", out=tmp_path, **settings)  # finished already
    assert again.training.steps == done.training.steps
    assert same(again.learned, done.learned)


@pytest.mark.parametrize(("timed", "planned"), [(2**-14, 983_040), (20.0, 3)])
def test_a_plan_that_was_timed_wrongly_is_made_anew(
    timed: float, planned: int, steps_take: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a device that another process takes, or gives back, after the first steps."""
    monkeypatch.setattr("whorl.hardening.trainer._CHECK_EVERY", 1)
    settings = {key: value for key, value in TINY.items() if key != "steps"} | {"reports": 1}
    shown: list[int] = []
    done = harden(
        toy(),
        toy_images(),
        "pgd-at",
        seconds=60,
        clock=steps_take(first=timed, later=2.5),
        progress=lambda stage, step, steps: shown.append(steps),
        **settings,
    )
    assert (shown[0], set(shown[1:])) == (planned, {24})
    assert done.training.steps == 24
    assert done.history[-1]["lr"] == pytest.approx(0, abs=1e-9)
    assert done.seconds == 60


@pytest.mark.parametrize("channels_last", [False, True])
def test_low_precision_learns_the_same_in_either_layout(channels_last: bool) -> None:
    settings = {**TINY, "pool": [toy(1)], "lr": 1e-3}
    exact = harden(toy(), toy_images(), "ens-at", **settings).learned
    low = harden(toy(), toy_images(), "ens-at", precision="bf16", channels_last=channels_last, **settings).learned
    start = toy().net.state_dict()
    moved = torch.cat([(exact[name] - start[name]).flatten() for name in exact])
    apart = torch.cat([(exact[name] - low[name]).flatten() for name in exact])
    assert float(apart.norm()) < 0.5 * float(moved.norm())


def test_timing_leaves_no_trace(steps_take: Callable[..., Any]) -> None:
    settings = {key: value for key, value in TINY.items() if key != "steps"}
    timed = harden(toy(), toy_images(), "pgd-at", seconds=5, clock=steps_take(first=0.5, later=0.5), **settings)
    assert timed.training.steps == 10
    plain = harden(toy(), toy_images(), "pgd-at", steps=timed.training.steps, **settings)
    assert same(timed.learned, plain.learned)


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


class Failing(nn.Module):
    """Answers NaN from some call on."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.net, self.calls = toy_net(seed=0), calls

    def forward(self, x: Tensor) -> Tensor:
        self.calls -= 1
        logits: Tensor = self.net(x)
        return logits if self.calls >= 0 else logits * torch.nan


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    teacher = as_classifier(Failing(7), "teacher")  # two calls see whether its normalisations can be folded
    with pytest.raises(WhorlError, match=r"training stopped: the loss is nan.*after step 4, is .*checkpoint\.pt"):
        harden(toy(), toy_images(), "pgd-at", out=tmp_path, teachers=[teacher], **TINY)
    content = torch.load(tmp_path / FILE, weights_only=True)
    assert content["step"] == 4
    assert all(bool(tensor.isfinite().all()) for tensor in content["student"].values())
    with pytest.raises(WhorlError, match="Nothing was saved"):
        harden(toy(), toy_images(), "pgd-at", teachers=[as_classifier(Failing(2), "teacher")], **TINY)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY)
    with pytest.raises(WhorlError, match=r"belongs to another run: its recipe is .*pgd-at.*expected .*trades"):
        harden(toy(), toy_images(), "trades", out=tmp_path, **TINY)
    with pytest.raises(WhorlError, match="its settings is"):
        harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY | {"steps": 9})
    with pytest.raises(WhorlError, match="its images is"):
        harden(toy(), toy_images(seed=4), "pgd-at", out=tmp_path, **TINY)
    (tmp_path / FILE).write_bytes(b"no checkpoint")
    with pytest.raises(WhorlError, match="no sound checkpoint"):
        harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY)
    assert load_checkpoint(tmp_path / "absent", {}) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch": 61}, "at least a batch of 61 images to train on, got 60"),
        ({"recipe": "ens_tta"}, "unknown recipe 'ens_tta'. Did you mean 'ens-at'"),
        ({"pool": []}, "empty pool"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"optimizer": "lbfgs"}, "optimizer must be 'adam' or 'sgd'"),
        ({"mix": 2.0}, "mix must lie in"),
        ({"momentum": 0.5}, "unknown setting 'momentum'"),
        ({"norm": "off"}, "norm must be one of frozen, affine, batch"),
        ({"area": (0.5, 1.5)}, "area must be"),
        ({"crop": 0}, "crop must be a whole number of pixels"),
        ({"precision": "fp8"}, "precision must be 'bf16' or 'full'"),
        ({"held_out": -1}, "held_out must be"),
        ({"ema": 1.0}, "ema must lie in"),
        ({"steps": 0}, "steps must be a whole number"),
    ],
)
def test_bad_settings(change: dict[str, Any], says: str) -> None:
    given = {"recipe": "ens-at", "pool": [toy(1)]} | TINY | change
    with pytest.raises(WhorlError, match=says):
        harden(toy(), toy_images(), given.pop("recipe"), **given)


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


def test_networks_must_know_the_same_classes() -> None:
    ten = as_classifier(nn.Sequential(toy_net(seed=0), nn.Linear(CLASSES, CLASSES)), "same")
    harden(toy(), toy_images(), "ens-at", pool=[ten], **TINY | {"steps": 1})
    other = whorl.Classifier.from_module(
        nn.Sequential(toy_net(seed=0), nn.Linear(CLASSES, 10)), size=16, mean=(0.5,) * 3, std=(0.5,) * 3
    )
    with pytest.raises(WhorlError, match="must know the 7 classes of toy0; Sequential knows 10"):
        harden(toy(), toy_images(), "ens-at", pool=[other], **TINY)


def test_a_network_that_is_all_head_has_nothing_to_learn() -> None:
    head = as_classifier(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, CLASSES)), "head")
    with pytest.raises(WhorlError, match="nothing to learn"):
        harden(head, toy_images(), "pgd-at", **TINY)


def test_settings_and_recipes_refuse_nonsense() -> None:
    with pytest.raises(WhorlError, match="at least one kind"):
        Recipe(name="none", examples=())
    with pytest.raises(WhorlError, match="objective must be one of"):
        recipe("alp", objective="hinge")
    with pytest.raises(WhorlError, match="eps must be"):
        recipe("ens-at").examples[0].with_(eps=(0.2, 0.1))
    with pytest.raises(WhorlError, match="unknown setting"):
        Training().with_(stepps=3)


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


def test_the_learning_rate_suits_the_optimiser() -> None:
    assert Training().rate == 0.03
    assert Training().with_(optimizer="adam").rate == 1.5e-4
    assert Training(optimizer="adam", lr=0.5).lr_at(999) < 1e-6 < Training(lr=0.5, warmup=0.0).lr_at(0) == 0.5


def test_a_parameter_that_plays_no_part_stays_as_it_is() -> None:
    net = toy_net(seed=0)
    net.spare = nn.Identity()
    net.spare.idle = nn.Parameter(torch.ones(3))
    done = harden(as_classifier(net.eval(), "spare"), toy_images(), "pgd-at", **TINY)
    assert torch.equal(done.learned["spare.idle"], torch.ones(3))
    assert not torch.equal(done.learned["0.weight"], net.state_dict()["0.weight"])
