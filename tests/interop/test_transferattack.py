"""Attacks of a TransferAttack clone: a small package with its interface, and a real clone where there is one."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whorl
from cli.invoking import invoke
from conftest import CLASSES, random_images, small_net
from interop.small_zoo import ABSENT, write_clone
from whorl import WhorlError, interop, runs
from whorl.data import save_image
from whorl.interop import transferattack
from whorl.interop.harness import PeerNetwork
from whorl.runs.folder import as_json

EPS, ALPHA = 16 / 255, 1.6 / 255
TOY = "python:cli.toy_networks:small"
REAL = os.environ.get(transferattack.VARIABLE, "")
ZOO = Path(__file__).parents[2] / "benchmarks" / "results" / "transferattack-zoo.json"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_clone(tmp_path_factory.mktemp("clone")))


@pytest.fixture(autouse=True)
def _absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transferattack, "_UNUSED", (ABSENT, "pandas"))
    monkeypatch.delenv(transferattack.VARIABLE, raising=False)


@pytest.fixture
def clf() -> whorl.Classifier:
    return whorl.Classifier.from_module(small_net(), size=18, mean=(0.4,) * 3, std=(0.3,) * 3, name="toy")


@pytest.fixture
def made(clone: str) -> Callable[..., interop.Peer]:
    return lambda name, **settings: interop.peer(f"transferattack:{name}", path=clone, **settings)


@pytest.fixture
def y(clf: whorl.Classifier, x: Tensor) -> Tensor:
    with torch.no_grad():
        truth: Tensor = clf(x).argmax(1)
    return truth


def literal(net: nn.Module, x: Tensor, y: Tensor, steps: int, *, sign: int = 1) -> Tensor:
    """Signed steps by their definition, image by image, in double precision."""
    done = []
    for image, label in zip(x.split(1), y.split(1), strict=True):
        clean, adv = image.double(), image.double()
        for _ in range(steps):
            adv = adv.detach().requires_grad_()
            [gradient] = torch.autograd.grad(sign * F.cross_entropy(net(adv), label), adv)
            adv = (adv + ALPHA * gradient.sign()).detach()
            adv = torch.max(torch.min(adv, clean + EPS), clean - EPS).clamp(0, 1)
        done.append(adv)
    return torch.cat(done)


def agreement(a: Tensor, b: Tensor) -> float:
    """Share of the values that agree; the sign of what is nearly zero is anyone's guess."""
    return float(((a - b).abs() < 1e-5).float().mean())


def spent(info: whorl.AttackInfo) -> list[int]:
    """Gradients of each image."""
    assert info.grad_evals is not None
    counted: list[int] = info.grad_evals.tolist()
    return counted


def test_it_is_the_attack_as_it_is_written(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    double = whorl.Classifier.from_module(small_net().double(), size=18, mean=(0.4,) * 3, std=(0.3,) * 3)
    for batched in (False, True):
        adv, info = made("sign", steps=3, batched=batched)(clf, x, y, return_info=True)
        assert agreement(adv, literal(double, x, y, 3)) > 0.99
        assert spent(info) == [3] * len(x)
        assert info.success.tolist() == (clf(adv).argmax(1) != y).tolist()
    target = (y + 1) % CLASSES
    assert agreement(made("sign", steps=3)(clf, x, target=target), literal(double, x, target, 3, sign=-1)) > 0.99
    reached = made("reach", steps=3)(clf, x, target=target)
    assert agreement(reached, literal(double, x, target, 3, sign=-1)) > 0.99


def test_settings_have_the_clones_names_and_ours(made: Callable[..., interop.Peer]) -> None:
    assert made("SIGN", steps=3, alpha=0.01, momentum=0.5).settings == (("alpha", 0.01), ("decay", 0.5), ("epoch", 3))
    assert made("reach", alpha=0.01).settings == (("lr", 0.01),)
    assert made("sign", epoch=3, eps=8 / 255).with_(steps=5).settings == (("epoch", 5),)
    assert made("sign").eps == EPS
    assert made("sign", norm="linf").norm == "linf"
    assert made("sign", norm="l2", eps=2).norm == "l2"


def test_randomness_follows_from_seed_and_id(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    attack, ids = made("noisy", steps=1), [f"image{i}" for i in range(len(x))]
    first = attack(clf, x, y, seed=3, ids=ids)
    torch.manual_seed(8)
    before = torch.get_rng_state()
    assert torch.equal(attack(clf, x.flip(0), y.flip(0), seed=3, ids=ids[::-1]).flip(0), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(attack(clf, x, y, seed=4, ids=ids), first)


def test_copies_of_a_batch_are_counted(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    for batched in (False, True):
        _, info = made("copies", steps=2, batched=batched)(clf, x, y, return_info=True)
        assert spent(info) == [6] * len(x)


def test_passes_through_a_part_of_the_network_are_counted(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    seen: list[int] = []

    def watched(gradient: Tensor) -> Tensor:
        seen.append(len(gradient))
        return gradient

    _, info = made("feature", steps=2, batched=True, estimator=watched)(clf, x, y, return_info=True)
    assert spent(info) == [3] * len(x)  # one that ends at the layer, two that begin there
    assert seen == [len(x)] * 2  # only what reaches the images is estimated


def test_one_image_at_a_time_where_it_says_so(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    assert made("alone", batched=True)(clf, x, y).shape == x.shape


def test_the_network_stays_as_it_is(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    before, modules = deepcopy(clf.state_dict()), list(clf.modules())
    for name in ("feature", "pruned", "bpa"):
        made(name, steps=1)(clf, x, y)
    assert list(clf.modules()) == modules
    assert all(not module._forward_hooks for module in modules)
    assert all(torch.equal(value, before[name]) for name, value in clf.state_dict().items())
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in clf.parameters())


def test_a_network_that_it_looks_up_is_ours(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    class Louder(nn.Module):
        def forward(self, shown: Tensor) -> Any:
            inner = clf.net
            assert isinstance(inner, nn.Sequential)
            return inner[2:](2 * inner[1](inner[0](clf.normalised(shown))))

    adv = made("bpa", steps=2)(clf, x, y)
    assert agreement(adv, made("sign", steps=2)(Louder(), x, y)) > 0.99
    assert not torch.equal(adv, made("sign", steps=2)(clf, x, y))


def test_a_network_that_it_wraps_again_is_normalised_as_ours(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    adv, info = made("again", steps=2)(clf, x, y, return_info=True)
    assert agreement(adv, made("sign", steps=2)(lambda shown: 2 * clf(shown), x, y)) > 0.99
    assert spent(info) == [2] * len(x)


def test_the_estimator_acts_on_what_reaches_the_images(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    estimator = whorl.AffineInvariant()
    adv = made("sign", steps=1, estimator="ai")(clf, x, y)
    shown = x.clone().requires_grad_()
    [gradient] = torch.autograd.grad(F.cross_entropy(clf(shown), y, reduction="sum"), shown)
    assert agreement(adv, (x + ALPHA * estimator(gradient).sign()).clamp(0, 1)) > 0.99
    assert not torch.equal(adv, made("sign", steps=1)(clf, x, y))


def test_a_plain_module_and_a_function_will_do(made: Callable[..., interop.Peer], x: Tensor) -> None:
    net = small_net()
    labels = net(x).argmax(1)
    bare = made("sign", steps=2)(net, x, labels)
    assert agreement(bare, made("sign", steps=2)(lambda shown: net(shown), x, labels)) > 0.99
    stages = PeerNetwork(net, whorl.identity, x).stages()
    assert type(stages[1]) is type(net)  # layers are where a peer looks for them
    assert stages[1] is not net


def test_prints_are_dropped(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    made("sign", steps=1)(clf, x, y)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sing", "unknown attack of transferattack 'sing'. Did you mean 'sign'"),
        ("several", "it is made for several source networks"),
        ("generator", "it trains a generator"),
        ("builds", "it builds a network of its own"),
        ("packaged", "needs the package whorl_tests_other_package"),
        ("gone", "needs a module that the clone does not have: gradient.missing_module"),
        ("broken", "its module cannot be imported: AttributeError"),
    ],
)
def test_what_cannot_run_is_said_when_it_is_named(name: str, message: str, made: Callable[..., interop.Peer]) -> None:
    with pytest.raises(WhorlError) as caught:
        made(name)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("filed", {}, "needs a file that is not there: .*checkpoints/weights.pth"),
        ("fetched", {}, r"needs weights of another network \(https://weights.invalid/whorl-tests.pth\)"),
        ("exits", {}, "does not run on toy: SystemExit"),
        ("stray", {}, "does not run on toy: AttributeError: .*layer9"),
        ("reach", {}, "has no untargeted form. Give target"),
        ("fixed", {"alpha": 0.02}, "sets alpha itself, to 0.01. Leave it out."),
        ("feature", {"layer": "nowhere"}, "does not run on toy: KeyError"),
    ],
)
def test_what_fails_says_why(
    name: str,
    settings: dict[str, Any],
    message: str,
    made: Callable[..., interop.Peer],
    clf: whorl.Classifier,
    x: Tensor,
    y: Tensor,
) -> None:
    with pytest.raises(WhorlError, match=message):
        made(name, **settings)(clf, x, y)


def test_a_target_is_refused_where_there_is_none(
    made: Callable[..., interop.Peer], clf: whorl.Classifier, x: Tensor, y: Tensor
) -> None:
    with pytest.raises(WhorlError, match="no targeted form"):
        made("feature")(clf, x, target=y)


def test_the_folder(clone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        WhorlError, match=r"path must be the folder of a git clone .* WHORL_TRANSFERATTACK .*; got none"
    ):
        whorl.attack("transferattack:sign")
    with pytest.raises(WhorlError, match="which is no folder"):
        whorl.attack("transferattack:sign", path=str(tmp_path / "nowhere"))
    with pytest.raises(WhorlError, match=r"which holds no transferattack/attack\.py"):
        whorl.attack("transferattack:sign", path=str(tmp_path))
    broken = write_clone(tmp_path / "broken")
    (broken / "transferattack" / "attack.py").write_text("raise OSError('half a clone')\n")
    with pytest.raises(WhorlError, match="cannot be imported as TransferAttack: OSError: half a clone"):
        whorl.attack("transferattack:sign", path=str(broken))
    assert "sign" in dict.fromkeys(name.partition(":")[2] for name in interop.peer_names("transferattack", path=clone))
    monkeypatch.setenv(transferattack.VARIABLE, clone)
    assert whorl.attack("transferattack:sign") == whorl.attack("transferattack:sign", path=f"{clone}/transferattack")
    assert not [name for name in sys.modules if name.split(".")[0] in ("transferattack", ABSENT)]


def test_where_it_lies_changes_nothing_and_what_it_holds_does(clone: str, tmp_path: Path) -> None:
    other = str(write_clone(tmp_path / "other"))
    first, second = (whorl.attack("transferattack:sign", path=path, steps=2) for path in (clone, other))
    assert first == second
    assert as_json(first) == as_json(second)
    assert "path" not in as_json(first)
    assert pickle.loads(pickle.dumps(first)).library.path == clone  # noqa: S301 - its own bytes
    assert first.with_(steps=3).path == clone  # type: ignore[attr-defined]  # a peer
    changed = write_clone(tmp_path / "changed")
    (changed / "transferattack" / "gradient" / "new.py").write_text("")
    assert as_json(whorl.attack("transferattack:sign", path=str(changed)))["version"] != as_json(first)["version"]


def test_nothing_is_imported_too_early(clone: str) -> None:
    code = (
        "import sys, whorl; from whorl.interop import transferattack;"
        f"transferattack._UNUSED = ({ABSENT!r},);"
        f"whorl.attack('transferattack:sign', path={clone!r});"
        "print([name for name in sys.modules if name.startswith('_whorl_') and name.count('.') > 1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    [name] = [name for name in eval(done.stdout) if not name.endswith((".utils", ".attack"))]  # noqa: S307 - our own
    assert name.endswith(".gradient.sign")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two small images in folders of their classes."""
    for label, image in zip((3, 5), random_images(2), strict=True):
        save_image(tmp_path / "data" / str(label) / f"image{label}.png", image)
    return tmp_path / "data"


def test_the_command_stores_it(clone: str, data: Path) -> None:
    out = data.parent / "run"
    asked = ("--transferattack", clone, "--estimator", "ri", "--steps", "2", "--eps", "8/255", "--set", "loss=other")
    done = invoke("attack", "transferattack:SIGN", "--model", TOY, "--data", str(data), "--out", str(out), *asked)
    assert done.exit_code == 0, done.stderr
    [entry] = json.loads((out / "manifest.json").read_text())["crafted"].values()
    assert entry["attack"] == "transferattack-sign"
    assert (entry["settings"]["name"], entry["settings"]["eps"]) == ("transferattack:sign", 8 / 255)
    assert entry["settings"]["estimator"]["type"] == "RotationInvariant"
    assert [image["grad_evals"] for image in entry["images"].values()] == [2, 2]
    wrong = invoke("attack", "pgd", "--model", TOY, "--data", str(data), "--out", str(out), "--transferattack", clone)
    assert wrong.exit_code == 2
    assert "--transferattack is for attacks of that library" in wrong.stderr


def test_a_declaration_has_the_folder_among_the_settings(clone: str, data: Path, tmp_path: Path) -> None:
    entry = {"name": "transferattack:sign", "settings": {"steps": 1, "path": clone}}
    common = {"name": "peers", "sources": [TOY], "targets": [TOY], "data": {"folder": str(data)}}
    done = runs.run(runs.declare(attacks=[entry], **common), tmp_path / "run", device="cpu")
    assert "transferattack-sign" in done.results.read_text()
    with pytest.raises(WhorlError, match=r"path.*expected the folder of a git clone"):
        runs.declare(attacks=["transferattack:sign"], **common)


def base_of(folder: str) -> Any:
    """The class that a user of the clone has: imported as a package, here under a name of its own."""
    package = transferattack._imported(transferattack.package_folder(folder))
    return transferattack._base(package)


def test_ours_as_one_of_theirs(clone: str, clf: whorl.Classifier, x: Tensor, y: Tensor) -> None:
    attack = whorl.attack("ai-pgd", steps=2)
    made: Any = interop.as_transferattack(attack, base_of(clone), seed=5)
    assert issubclass(made, base_of(clone))
    ours = made(clf)
    assert torch.allclose(x + ours(x, y), attack(clf, x, y, seed=5), atol=1e-6)
    assert (ours.epsilon, ours.norm, ours.targeted) == (attack.eps, "linfty", False)  # type: ignore[attr-defined]
    target = (y + 1) % CLASSES
    aimed = made(clf, epsilon=8 / 255, targeted=True, device=torch.device("cpu"))
    expected = attack.with_(eps=8 / 255)(clf, x, target=target, seed=5)
    assert torch.allclose(x + aimed(x, [y, target]), expected, atol=1e-6)
    with pytest.raises(RuntimeError, match="would load weights of resnet50"):  # theirs, by name
        made("resnet50")


def test_ours_as_one_of_theirs_needs_a_base_and_a_bound(clone: str) -> None:
    with pytest.raises(
        WhorlError, match=r"base must be the class transferattack.attack.Attack of a clone; got 'Attack'"
    ):
        interop.as_transferattack(whorl.attack("pgd"), "Attack")  # type: ignore[arg-type]
    with pytest.raises(WhorlError, match="has no eps"):
        interop.as_transferattack(whorl.attack("deepfool"), base_of(clone))


def known_to_run() -> list[str]:
    """Names that ran when the zoo was tried last."""
    listed = json.loads(ZOO.read_text(encoding="utf-8"))["attacks"] if ZOO.exists() else {}
    return [name for name, one in listed.items() if one["ran"] and one["seconds"] < 15]


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason=f"{transferattack.VARIABLE} names no clone")
@pytest.mark.parametrize("name", known_to_run())
def test_the_real_zoo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On real weights; what the clone's attacks import beside the usual may be missing."""
    monkeypatch.setattr(transferattack, "_UNUSED", ("pandas", "timm"))
    entry = json.loads(ZOO.read_text(encoding="utf-8"))["attacks"][name]
    if name in ("mumodig",) and importlib.util.find_spec("kornia") is None:
        pytest.skip("kornia is not installed")
    clf, (x, y, ids) = whorl.load_model("resnet18"), whorl.load_samples(2, size=224)
    attack = interop.peer(f"transferattack:{name}", path=REAL, batched=entry["batched"], **entry["settings"])
    label, target = (None, (y + 1) % 1000) if entry["targeted"] else (y, None)
    adv = attack(clf, x, label, target=target, ids=ids)
    assert 0 < float((adv - x).abs().max()) <= EPS + 1e-6


@pytest.mark.skipif(not REAL, reason=f"{transferattack.VARIABLE} names no clone")
def test_ours_in_the_real_zoo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transferattack, "_UNUSED", ("pandas", "timm"))
    clf, (x, y, _) = whorl.load_model("resnet18"), whorl.load_samples(1, size=96)
    attack = whorl.attack("ai-dim", steps=2)
    made: Any = interop.as_transferattack(attack, base_of(REAL))
    assert torch.allclose(x + made(clf)(x, y), attack(clf, x, y), atol=1e-6)
