"""Training from end to end: recipes, resuming, several processes, time, what can go wrong, and the files it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from hardening_cases import CLASSES, SIZE, TINY, as_classifier, same, toy, toy_images, toy_net
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES
from whorl.files import sha256_of
from whorl.hardening import harden, recipe, recipe_names
from whorl.hardening.checkpoint import FILE, load_checkpoint
from whorl.hardening.trainer import Trainer
from whorl.models import Classifier
from whorl.progress import Tracker

TESTS = Path(__file__).parents[1]
# What a process of its own trains; {then} is what it does after each measurement.
PROGRAM = """
import faulthandler, os, signal, sys, torch
faulthandler.dump_traceback_later(280, exit=True)  # a process that waits for another one in vain says where
torch.set_num_threads(1)
from hardening_cases import toy, toy_images
from whorl.hardening import harden
from whorl.progress import Tracker

class Told(Tracker):
    def log(self, step, values):
        {then}

done = harden(
    toy(0, dtype=torch.float64), toy_images(), "ens-at", out=sys.argv[1], pool=[toy(1, dtype=torch.float64)],
    steps=8, batch=12, held_out=10, reports=8, checkpoints=4, mix=0.5, device="cpu", track=Told(),
)
if int(os.environ.get("RANK", "0")) == 0:
    torch.save(done.learned, sys.argv[2])
"""


class Told(Tracker):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.files: dict[str, Path] = {}

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.begun = (name, dict(settings))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.logged.append((step, dict(values)))

    def end(self, files: Mapping[str, Path]) -> None:
        self.files = dict(files)


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
    killing = PROGRAM.format(then="if step == 5: os.kill(os.getpid(), signal.SIGKILL)")
    killed = run(str(tmp_path), str(tmp_path / "never"), script=killing, folder=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "never").exists()
    told = Told()
    resumed = harden(
        toy(0, dtype=torch.float64),
        toy_images(),
        "ens-at",
        out=tmp_path,
        pool=[toy(1, dtype=torch.float64)],
        track=told,
        **TINY | {"reports": 8, "checkpoints": 4, "mix": 0.5},
    )
    assert [step for step, _ in told.logged] == [5, 6, 7, 8]  # the checkpoint is from after step 4
    assert all({"loss", "lr", "clean"} <= values.keys() for _, values in told.logged)
    assert told.begun[0] == "toy0.ens-at"
    assert {"steps": 8, "batch": 12}.items() <= told.begun[1].items()
    assert sorted(told.files) == ["manifest", "report", "weights"]
    assert all(path.is_file() for path in told.files.values())
    assert [entry["step"] for entry in resumed.history] == list(range(1, 9))
    assert same(resumed.learned, uninterrupted)


def test_two_processes_match_one(tmp_path: Path, uninterrupted: dict[str, Tensor]) -> None:
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    out = tmp_path / "learned.pt"
    done = run(*launch, str(tmp_path / "run"), str(out), script=PROGRAM.format(then="pass"), folder=tmp_path)
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
    posed = name in ("ai-at", "best-at")
    original, radius = toy(), 0.1 if posed else 0.06  # the toy is fooled at other radii than a real network
    measure = accuracy_when_posed if posed else accuracy_under_attack
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
        progress=lambda stage, step, steps: shown.append(steps) if stage == "training" else None,
        **settings,
    )
    assert (shown[0], set(shown[2:])) == (planned, {24})  # before the first step; the second may be either
    assert done.training.steps == 24
    assert done.history[-1]["lr"] == pytest.approx(0, abs=1e-9)
    assert done.seconds == 60


def test_timing_leaves_no_trace(steps_take: Callable[..., Any]) -> None:
    settings = {key: value for key, value in TINY.items() if key != "steps"}
    timed = harden(toy(), toy_images(), "pgd-at", seconds=5, clock=steps_take(first=0.5, later=0.5), **settings)
    assert timed.training.steps == 10
    plain = harden(toy(), toy_images(), "pgd-at", steps=timed.training.steps, **settings)
    assert same(timed.learned, plain.learned)


class Failing(nn.Module):
    """Answers NaN once it has seen so many images."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self.net, self.images = toy_net(seed=0), images

    def forward(self, x: Tensor) -> Tensor:
        self.images -= len(x)
        logits: Tensor = self.net(x)
        return logits if self.images >= 0 else logits * torch.nan


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    # Two images see whether its normalisations can be folded, and each step a batch.
    teacher = as_classifier(Failing(2 + 5 * TINY["batch"]), "teacher")
    with pytest.raises(WhorlError, match=r"training stopped: the loss is nan.*after step 4, is .*checkpoint\.pt"):
        harden(toy(), toy_images(), "pgd-at", out=tmp_path, teachers=[teacher], **TINY)
    kept = load_checkpoint(tmp_path / FILE, {})
    assert kept is not None
    assert kept.step == 4
    assert all(bool(tensor.isfinite().all()) for tensor in kept.student.values())
    with pytest.raises(WhorlError, match="Nothing was saved"):
        harden(toy(), toy_images(), "pgd-at", teachers=[as_classifier(Failing(2), "teacher")], **TINY)


class Infinite(nn.Module):
    """Sure beyond all numbers that one class is none: probabilities stay finite."""

    def __init__(self, images: int = 0) -> None:
        super().__init__()
        self.net, self.images = toy_net(seed=0), images

    def forward(self, x: Tensor) -> Tensor:
        self.images -= len(x)
        logits: Tensor = self.net(x)
        return logits if self.images >= 0 else torch.cat((logits[:, :-1], logits[:, -1:] - torch.inf), 1)


def test_static_networks_that_answer_no_numbers_are_named() -> None:
    bad = as_classifier(Infinite(4), "bad")
    with pytest.raises(WhorlError, match=r"training stopped: the training learns from .*bad answered NaN or infinity"):
        harden(toy(), toy_images(), "pgd-at", teachers=[bad], **TINY)
    with pytest.raises(WhorlError, match="bad answered NaN or infinity"):
        harden(toy(), toy_images(), "ens-at", pool=[bad], teachers=[], **TINY)


def test_networks_of_the_pool_have_names_of_their_own() -> None:
    with pytest.raises(WhorlError, match="two networks are called 'twin'"):
        harden(toy(), toy_images(), "ens-at", pool=[as_classifier(toy_net(seed=s), "twin") for s in (1, 2)], **TINY)
    with pytest.raises(WhorlError, match="cannot be called 'student'"):
        harden(toy(), toy_images(), "ens-at", pool=[as_classifier(toy_net(seed=1), "student")], **TINY)


def test_a_checkpoint_belongs_to_one_code_and_input(tmp_path: Path) -> None:
    def pooled(code: str) -> Classifier:
        net = as_classifier(toy_net(seed=1), "mine")
        net.code_sha256 = code
        return net

    harden(toy(), toy_images(), "ens-at", out=tmp_path, pool=[pooled("0")], **TINY)
    with pytest.raises(WhorlError, match="belongs to another run: its pool is"):
        harden(toy(), toy_images(), "ens-at", out=tmp_path, pool=[pooled("1")], **TINY)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY)
    with pytest.raises(WhorlError, match=r"belongs to another run: its recipe is .*pgd-at.*expected .*trades"):
        harden(toy(), toy_images(), "trades", out=tmp_path, **TINY)
    with pytest.raises(WhorlError, match="its settings is"):
        harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY | {"steps": 9})
    with pytest.raises(WhorlError, match="its images is"):
        harden(toy(), toy_images(seed=4), "pgd-at", out=tmp_path, **TINY)
    assert load_checkpoint(tmp_path / "absent", {}) is None


def test_a_checkpoint_that_was_changed_is_refused(tmp_path: Path) -> None:
    harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY)
    file = tmp_path / FILE
    sound = file.read_bytes()
    middle = len(sound) // 2  # in a tensor, where torch itself would not notice
    flipped = sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :]
    for content in (b"", b"no checkpoint", sound[:-1], sound + b"x", flipped, sound[40:]):
        file.write_bytes(content)
        with pytest.raises(WhorlError, match=r"checkpoint\.pt is damaged, or is not .*Delete it to start anew"):
            harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY)
    file.write_bytes(sound)
    assert harden(toy(), toy_images(), "pgd-at", out=tmp_path, **TINY).training.steps == TINY["steps"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch": 61}, "at least a batch of 61 images to train on, got 60"),
        ({"recipe": "ens_tta"}, "unknown recipe 'ens_tta'. Did you mean 'ens-at'"),
        ({"pool": []}, "empty pool"),
        ({"lr": 0.0}, "lr must be a number above 0"),
        ({"optimizer": "lbfgs"}, "optimizer must be 'adam' or 'sgd'"),
        ({"mix": 2.0}, "mix must be a number in"),
        ({"momentum": 0.5}, "unknown setting 'momentum'"),
        ({"norm": "off"}, "norm must be 'frozen', 'affine' or 'batch'"),
        ({"area": (0.5, 1.5)}, "area must be"),
        ({"crop": 0}, "crop must be a whole number >= 1"),
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


def test_networks_must_know_the_same_classes() -> None:
    ten = as_classifier(nn.Sequential(toy_net(seed=0), nn.Linear(CLASSES, CLASSES)), "same")
    harden(toy(), toy_images(), "ens-at", pool=[ten], **TINY | {"steps": 1})
    other = whorl.Classifier.from_module(
        nn.Sequential(toy_net(seed=0), nn.Linear(CLASSES, 10)), size=16, mean=(0.5,) * 3, std=(0.5,) * 3
    )
    with pytest.raises(WhorlError, match="must know the 7 classes of toy0; Sequential knows 10"):
        harden(toy(), toy_images(), "ens-at", pool=[other], **TINY)


def test_training_needs_little_of_a_bare_gpu_machine() -> None:
    absent = ["plotly", "typer", "pydantic", "yaml"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}));"
        "import torch; from hardening_cases import toy, toy_images; from whorl.hardening import harden;"
        "harden(toy(), toy_images(), 'pgd-at', steps=1, batch=8, device='cpu')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_folder_holds_everything(tmp_path: Path) -> None:
    done = harden(toy(), toy_images(), "pgd-at", out=tmp_path, steps=4, batch=12, held_out=10, reports=2, device="cpu")
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["name"] == "toy0.pgd-at"
    assert manifest["weights"]["sha256"] == sha256_of(tmp_path / "weights.safetensors")
    assert [entry["step"] for entry in manifest["history"]] == [2, 4]
    assert {"clean", "white_box", "loss", "lr", "seconds"} <= manifest["history"][-1].keys()
    # Anyone can load them: a whole state dict, without whorl's help.
    from safetensors.torch import load_file

    net = toy_net(seed=5)
    net.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    x = torch.rand(3, 3, SIZE, SIZE)
    torch.testing.assert_close(net.eval()((x - 0.5) / 0.25), done.classifier(x))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "toy0.pgd-at" in page
    assert "PGD on the student" in page
