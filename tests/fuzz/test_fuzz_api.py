"""Attacks and evaluation in Python: images, labels, networks, seeds, ids, estimators."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

import whorl
from conftest import CLASSES, random_images
from fuzz.harness import Verdict, fuzz, judge
from fuzz.networks import BAD, GOOD, IN_PLACE, SIDE, WITHOUT_GRADIENT
from whorl.attacks.blackbox.score.noise import NoiseSearch
from whorl.evaluation import Pose, outcomes
from whorl.evaluation.prediction import recognised

FAMILY = "python"
X, Y = random_images(3, height=SIDE, width=SIDE), torch.tensor([0, 1, 2])
EPS = 8 / 255

ATTACKS: dict[str, dict[str, Any]] = {
    "fgsm": {},
    "pgd": {"steps": 2},
    "ai-dim": {"steps": 2},
    "mim": {"steps": 2, "early_stop": True, "norm": "l2"},
    "eot": {"steps": 1, "samples": 2},
    "deepfool": {"steps": 2},
    "cw": {"steps": 2, "search_steps": 1},
    "nes": {"budget": 20, "samples": 4},
    "spsa": {"budget": 20, "samples": 4},
    "nattack": {"budget": 20, "samples": 4},
    "boundary": {"budget": 30},
    "evolutionary": {"budget": 30},
}
QUERIES = ("nes", "spsa", "nattack", "boundary", "evolutionary")
LABELS_ALONE = ("boundary", "evolutionary")

IMAGES: dict[str, tuple[Any, bool]] = {
    "good": (X, True),
    "float64": (X.double(), True),
    "half": (X.half(), True),
    "one": (X[:1], True),
    "inference mode": (X, True),
    "a hair outside": (X + 1e-5, True),
    "levels": (X * 255, False),
    "below": (X - 0.1, False),
    "NaN": (X.where(X > 0.5, torch.nan), False),
    "infinite": (X * torch.inf, False),
    "bytes": ((X * 255).byte(), False),
    "whole": ((X * 1).round().long(), False),
    "no batch": (X[0], False),
    "no pixels": (X[:, :, :0], False),
    "no channels": (X[:, :0], False),
    "five axes": (X[None], False),
    "one channel": (X[:, :1], False),
    "array": (X.numpy(), False),
    "list": (X.tolist(), False),
    "nothing": (None, False),
    "text": ("x", False),
    "complex": (X.to(torch.complex64), False),
    "meta": (X.to("meta"), False),
    "sparse": (X.to_sparse(), False),
}
LABELS: dict[str, tuple[Any, bool]] = {
    "good": (Y, True),
    "int32": (Y.int(), True),
    "bytes": (Y.byte(), True),
    "uint16": (Y.to(torch.uint16), True),
    "meta": (Y.to("meta"), False),
    "complex": (Y.to(torch.complex64), False),
    "highest": (torch.full((3,), CLASSES - 1), True),
    "float": (Y.float(), False),
    "flags": (Y.bool(), False),
    "too high": (Y + CLASSES, False),
    "huge": (Y + 2**62, False),
    "negative": (Y - 1, False),
    "too few": (Y[:2], False),
    "too many": (torch.zeros(4, dtype=torch.int64), False),
    "one-hot": (torch.eye(3).long(), False),
    "scalar": (torch.tensor(0), False),
    "list": ([0, 1, 2], False),
    "array": (Y.numpy(), False),
    "none": (None, False),
}
SEEDS: dict[str, tuple[Any, bool]] = {
    **{repr(one): (one, True) for one in (0, -5, 2**80, -(2**80), np.int64(7), np.uint8(3))},
    **{repr(one): (one, False) for one in (None, 1.5, 1.0, "1", True, np.float64(1), np.bool_(True), [1])},
}
IDS: dict[str, tuple[Any, bool]] = {
    "none": (None, True),
    "text": (["a", "b", "c"], True),
    "numbers": ([1, 2, 3], True),
    "tuple": (("a", "b", "c"), True),
    "tensor": (torch.arange(3), True),
    "array": (np.array(["a", "b", "c"]), True),
    "odd names": (["a\x1b[31m", "", "ü" * 300], True),
    "a string": ("abc", False),
    "bytes": (b"abc", False),
    "a set": ({1, 2, 3}, False),
    "a dict": ({"a": 1, "b": 2, "c": 3}, False),
    "too few": (["a"], False),
    "too many": (list("abcd"), False),
    "iterator": (iter("abc"), False),
    "number": (3, False),
    "fractions": ([1.0, 2.0, 3.0], False),
    "flags": ([True, False, True], False),
    "nothing in it": ([None] * 3, False),
    "lists": ([["a"], "b", "c"], False),
    "column": (torch.arange(3)[:, None], False),
    "no axis": (torch.tensor(3), False),
}
# Of networks whose weights are out of sight nobody knows that they compute in float32.
OUT_OF_SIGHT, OTHER_DTYPES = ("frozen", "function"), ("float64", "half")
NETWORKS = {**GOOD, **BAD, **WITHOUT_GRADIENT, **IN_PLACE}


def network_verdict(attack: str, network: str) -> Verdict:
    if network in BAD:
        return "error"
    if network in WITHOUT_GRADIENT:
        return "works" if attack in QUERIES else ("either" if attack == "deepfool" else "error")
    return "either" if network in IN_PLACE and attack not in QUERIES else "works"


def attacked(attack: str, network: str, x: Any, y: Any, seed: Any, ids: Any) -> Tensor:
    made = whorl.attack(attack, **ATTACKS[attack])
    net = NETWORKS[network]()
    before = x.clone() if isinstance(x, Tensor) else None
    modes = [part.training for part in net.modules()] if network == "training mode" else []
    adv: Tensor = made(net, x, y, seed=seed, ids=ids)
    if before is not None and network not in IN_PLACE:
        assert torch.equal(x, before), "the caller's images were changed"
        assert modes == ([part.training for part in net.modules()] if modes else [])
    return adv


def sound(attack: str, x: Tensor, adv: Tensor) -> None:
    """What every result must be."""
    assert adv.shape == x.shape
    assert adv.dtype == x.dtype
    assert bool(adv.isfinite().all())
    assert float(adv.min()) >= 0
    assert float(adv.max()) <= 1
    made: Any = whorl.attack(attack, **ATTACKS[attack])
    eps = getattr(made, "eps", None)
    if eps and attack not in LABELS_ALONE:
        change = (adv.double() - x.double().clamp(0, 1)).flatten(1)
        size = change.norm(dim=1) if made.norm == "l2" else change.abs().amax(1)
        assert float(size.max()) <= eps + 2e-3


def check(attack: str, network: str, images: str, labels: str, seed: str, ids: str) -> None:
    x, good_x = IMAGES[images]
    if images == "inference mode":
        with torch.inference_mode():
            x = x.clone()
    y, good_y = LABELS[labels]
    s, good_s = SEEDS[seed]
    i, good_i = IDS[ids]
    if ids == "iterator":
        i = iter("abc")
    if images == "one":  # then everything else is for one image too
        y = y[:1] if isinstance(y, Tensor) and y.dim() == 1 and labels not in ("too few", "too many") else y
        good_y = good_y and isinstance(y, Tensor) and len(y) == 1
        i, good_i = (i[:1], good_i) if good_i and i is not None else (i, good_i or ids == "too few")
    said = network_verdict(attack, network)
    if network in OUT_OF_SIGHT and images in OTHER_DTYPES:
        said = "either"
    if network == "too few classes" and isinstance(y, Tensor) and not y.is_meta and not bool(y.any()):
        said = "either"  # one class, and it is the right one
    verdict: Verdict = "error" if not (good_x and good_y and good_s and good_i) else said
    adv = judge(lambda: attacked(attack, network, x, y, s, i), verdict)
    if adv is not None and network not in IN_PLACE:
        sound(attack, x, adv)


DEFAULT = {"network": "small", "images": "good", "labels": "good", "seed": "0", "ids": "none"}
OF: dict[str, dict[str, Any]] = {"network": NETWORKS, "images": IMAGES, "labels": LABELS, "seed": SEEDS, "ids": IDS}
# Every single fault, with attacks of each kind: what the issue lists is all in it.
ONE = [(kind, name) for kind, table in OF.items() for name in table]


@pytest.mark.parametrize(("kind", "name"), ONE, ids=[f"{kind} {name}" for kind, name in ONE])
def test_listed(kind: str, name: str) -> None:
    for attack in ("pgd", "deepfool", "cw", "nes", "boundary"):
        check(attack, **{**DEFAULT, kind: name})


mostly_good = {kind: st.one_of(st.just(DEFAULT[kind]), st.sampled_from(sorted(table))) for kind, table in OF.items()}


@fuzz(0.2, attack=st.sampled_from(sorted(ATTACKS)), **mostly_good)
def test_an_attack(attack: str, network: str, images: str, labels: str, seed: str, ids: str) -> None:
    check(attack, network, images, labels, seed, ids)


@fuzz(
    0.08,
    network=st.sampled_from(sorted(NETWORKS)),
    images=mostly_good["images"],
    labels=mostly_good["labels"],
    angle=st.floats(),
)
def test_an_evaluation(network: str, images: str, labels: str, angle: float) -> None:
    x, good_x = IMAGES[images]
    y, good_y = LABELS[labels]
    if images in ("one", "inference mode", "meta"):
        return
    good_net = network not in BAD and network != "in place"
    verdict: Verdict = "works" if good_x and good_y and good_net and abs(angle) <= 1e6 else "error"
    if network in OUT_OF_SIGHT and images in OTHER_DTYPES and verdict == "works":
        verdict = "either"
    if network in IN_PLACE or (network == "too few classes" and labels == "good"):
        verdict = "either" if verdict == "works" or network in IN_PLACE else verdict

    def evaluated() -> object:
        batches = [(x, x, y, ["a", "b", "c"])]
        return outcomes(batches, targets={"net": NETWORKS[network]()}, poses=[Pose(angle=angle)])

    judge(evaluated, verdict)


ESTIMATORS: dict[str, tuple[Any, Verdict]] = {
    "identity": (lambda g: g, "works"),
    "NaN": (lambda g: g * torch.nan, "error"),
    "infinite": (lambda g: g * torch.inf, "error"),
    "shape": (lambda g: g[:, :1], "error"),
    "rows": (lambda g: g[:1], "error"),
    "None": (lambda g: None, "error"),
    "number": (lambda g: 3.0, "error"),
    "array": (lambda g: g.numpy(), "error"),
    "raises": (lambda g: g @ torch.ones(1), "error"),
    "two arguments": (lambda g, h: g, "error"),
    "whole": (lambda g: g.long(), "error"),
    "complex": (lambda g: g + 0j, "error"),
    "elsewhere": (lambda g: g.to("meta"), "error"),
    "float64": (lambda g: g.double(), "works"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("attack", ["pgd", "mim", "deepfool", "cw"])
def test_estimators(attack: str, name: str) -> None:
    estimator, verdict = ESTIMATORS[name]
    made = whorl.attack(attack, estimator=estimator, **ATTACKS[attack])
    net = GOOD["small"]()
    judge(lambda: made(net, X, net(X).argmax(1)), verdict)


INPUTS: dict[str, tuple[Any, Verdict]] = {
    "as it is": (lambda x, keys: x, "works"),
    "None": (lambda x, keys: None, "error"),
    "raises": (lambda x, keys: x @ torch.ones(1), "error"),
    "another size": (lambda x, keys: torch.nn.functional.pad(x, (2, 1, 0, 3)), "works"),
    "flat": (lambda x, keys: x.flatten(2), "error"),
    "channels": (lambda x, keys: x[:, :1], "error"),
    "rows": (lambda x, keys: x[:1], "error"),
    "whole": (lambda x, keys: (x * 255).long(), "error"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("attack", ["pgd", "eot"])
def test_input_transforms(attack: str, name: str) -> None:
    shown, verdict = INPUTS[name]
    made = whorl.attack(attack, **{**ATTACKS[attack], "input": shown})
    judge(lambda: made(GOOD["small"](), X, Y), verdict)


LOSSES: dict[str, tuple[Any, Verdict]] = {
    "logit": (lambda logits, labels: -logits.gather(1, labels[:, None])[:, 0], "works"),
    "mean": (torch.nn.functional.cross_entropy, "error"),
    "None": (lambda logits, labels: None, "error"),
    "of each class": (lambda logits, labels: logits, "error"),
    "raises": (lambda logits, labels: logits @ labels, "error"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    loss, verdict = LOSSES[name]
    judge(lambda: whorl.attack("pgd", steps=2, loss=loss)(GOOD["small"](), X, Y), verdict)


@pytest.mark.parametrize("network", ["small", None, 5, [], "resnet18"])
def test_what_is_no_network(network: Any) -> None:
    made = GOOD["small"]() if network == "small" else network
    settings: dict[str, Any] = {"size": SIDE, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    verdict: Verdict = "works" if network == "small" else "error"
    judge(lambda: whorl.Classifier.from_module(made, **settings)(X), verdict)
    judge(lambda: whorl.Ensemble([made]), "error")
    if network != "resnet18":
        judge(lambda: whorl.load_model(made), "error")


@pytest.mark.parametrize(
    "given", [None, "x", X.numpy(), X.to_sparse(), X[:, :, :0]], ids=lambda given: str(type(given))
)
def test_what_is_no_image(given: Any) -> None:
    model = whorl.Classifier.from_module(GOOD["small"](), size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3)
    for function in (model, whorl.to_polar, whorl.from_polar):
        judge(lambda function=function: function(given), "error")  # type: ignore[misc]  # bound at once
    for estimator in (whorl.AffineInvariant(), whorl.TranslationInvariant(), whorl.RotationInvariant()):
        nothing = isinstance(given, Tensor) and not given.numel()
        judge(lambda estimator=estimator: estimator(given), "works" if nothing else "error")  # type: ignore[misc]


@pytest.mark.parametrize("ids", [n for n, (_, good) in IDS.items() if not good])
def test_an_evaluation_checks_its_ids(ids: str) -> None:
    given: Any = iter("abc") if ids == "iterator" else IDS[ids][0]
    judge(lambda: recognised({"net": GOOD["small"]()}, X, Y, ids=given), "error")


@pytest.mark.parametrize("labels", [n for n, (_, good) in LABELS.items() if not good])
def test_an_evaluation_checks_its_labels(labels: str) -> None:
    judge(lambda: recognised({"net": GOOD["small"]()}, X, LABELS[labels][0]), "error")
    judge(lambda: whorl.worst_pose(GOOD["small"](), X, LABELS[labels][0], budget=2), "error")


CLASSIFIERS: list[tuple[dict[str, Any], Verdict]] = [
    ({}, "works"),
    ({"mean": (float("nan"), 0.5, 0.5)}, "error"),
    ({"std": (0.0, 0.5, 0.5)}, "error"),
    ({"std": (0.5, 0.5)}, "error"),
    ({"mean": ()}, "error"),
    ({"mean": "abc"}, "error"),
    ({"mean": None}, "error"),
    ({"size": 0}, "error"),
    ({"size": -3}, "error"),
    ({"size": "x"}, "error"),
    ({"size": 2.5}, "error"),
    ({"size": True}, "error"),
    ({"size": (8, 8, 8)}, "error"),
    ({"size": None}, "error"),
    ({"size": 10**9}, "error"),
    ({"resize": "nearest"}, "error"),
    ({"labels": ["a"]}, "works"),  # the network says so when it is asked
    ({"labels": "abcdefg"[:CLASSES]}, "error"),
    ({"labels": set("abcdefg"[:CLASSES])}, "error"),
    ({"labels": list(range(CLASSES))}, "error"),
    ({"labels": np.array(list("abcdefg"[:CLASSES]))}, "works"),
    ({"labels": 5}, "error"),
    ({"name": 5}, "error"),
    ({"num_classes": 0}, "error"),
    ({"num_classes": 7.0}, "error"),
    ({"num_classes": "7"}, "error"),
    ({"num_classes": True}, "error"),
    ({"num_classes": 10**12}, "error"),
    ({"num_classes": np.int64(CLASSES)}, "works"),
    ({"num_classes": CLASSES + 1}, "works"),
]


def name_of(change: dict[str, Any]) -> str:
    """A case's name, the same in every process: a set of texts has another order in each."""
    return repr({key: sorted(value) if isinstance(value, set) else value for key, value in change.items()})[:40]


@pytest.mark.parametrize(("change", "verdict"), CLASSIFIERS, ids=[name_of(change) for change, _ in CLASSIFIERS])
def test_classifiers(change: dict[str, Any], verdict: Verdict) -> None:
    settings: dict[str, Any] = {"size": SIDE, "mean": (0.5,) * 3, "std": (0.5,) * 3} | change
    judge(lambda: whorl.Classifier.from_module(GOOD["small"](), **settings), verdict)


def test_a_classifier_with_other_classes_says_so_when_it_is_asked() -> None:
    wrong = whorl.Classifier.from_module(
        GOOD["small"](), size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, num_classes=CLASSES + 1
    )
    judge(lambda: whorl.attack("fgsm")(wrong, X, Y), "error")


POSES: list[tuple[dict[str, Any], Verdict]] = [
    ({"angle": 30}, "works"),
    ({"angle": float("nan")}, "error"),
    ({"angle": True}, "error"),
    ({"angle": "30"}, "error"),
    ({"angle": 1e300}, "error"),
    ({"scale": 0}, "error"),
    ({"scale": -1}, "error"),
    ({"scale": float("inf")}, "error"),
    ({"shift": 3}, "error"),
    ({"shift": (1, 2, 3)}, "error"),
    ({"shift": [1, 2]}, "works"),
    ({"shift": (0, float("nan"))}, "error"),
]


@pytest.mark.parametrize(("settings", "verdict"), POSES, ids=[repr(s)[:40] for s, _ in POSES])
def test_poses(settings: dict[str, Any], verdict: Verdict) -> None:
    judge(lambda: Pose(**settings).apply(X), verdict)
    if settings.get("shift", (0, 0)) != [1, 2]:
        judge(lambda: whorl.affine(X, **settings), "either")


def test_the_baseline_of_noise_refuses_as_the_others_do() -> None:
    for net in (BAD["NaN"](), BAD["tuple"](), BAD["rows"]()):
        judge(partial(NoiseSearch(budget=10), net, X, Y), "error")
