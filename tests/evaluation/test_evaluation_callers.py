"""Whoever evaluates refuses what no figure may rest on: NaN, infinity, the wrong shape, changing classes, wrong labels.

A network that answers NaN would otherwise count as one that always says class 0.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cli.invoking import invoke
from cli.toy_networks import Broken, broken, small
from conftest import CLASSES, random_images, small_net
from physical.printed_run import photos, sheet, target
from ui.ui_toys import crafted
from whorl import Classifier, WhorlError
from whorl.data import save_image
from whorl.evaluation import Pose, outcomes, predictions, recognised, success_rates
from whorl.hardening.gain import measure_gain
from whorl.hardening.held_out import HeldOut
from whorl.physical import score
from whorl.report.gallery import examples, gallery
from whorl.ui.pair import predict, success_map

WRONG_LABELS = "labels"
"""The network is sound, and a label is none of its classes."""
X = random_images(4)
IDS = list("abcd")
POSES = (Pose(), Pose(angle=30))
HERE = Path(__file__).parent
Case = Callable[[Classifier, Tensor, Path], object]


def saved(y: Tensor, folder: Path) -> None:
    for image, label, name in zip(X, y.tolist(), IDS, strict=True):
        for part in ("clean", "adv"):
            save_image(folder / part / str(label) / f"{name}.png", image)


def command(*arguments: str) -> None:
    """Run a command; its error is one of ours."""
    result = invoke(*arguments)
    if result.exit_code == 2 and "error: " in result.stderr:
        raise WhorlError(result.stderr)
    assert result.exit_code == 0, result.stderr


def evaluate_command(_: Classifier, y: Tensor, folder: Path) -> None:
    saved(y, folder)
    command("evaluate", str(folder / "clean"), str(folder / "adv"), "--model", "python:cli.toy_networks:broken")


def run_command(_: Classifier, y: Tensor, folder: Path) -> None:
    saved(y, folder)
    text = f"""
        name = "broken"
        sources = ["python:cli.toy_networks:small"]
        targets = ["python:cli.toy_networks:broken"]
        attacks = [{{ name = "fgsm" }}]
        data = {{ folder = "{(folder / "clean").as_posix()}" }}
        poses = [{{ angles = [0, 30] }}]
    """
    (folder / "run.toml").write_text("\n".join(line.strip() for line in text.splitlines()), encoding="utf-8")
    command("run", str(folder / "run.toml"), "--out", str(folder / "out"))


def gain(net: Classifier, y: Tensor, _: Path) -> object:
    return measure_gain((small(), net), small(), [(X, y, IDS)], attacks=("fgsm",), poses=POSES)


def held_out(net: Classifier, y: Tensor, _: Path) -> object:
    return HeldOut(X, y, torch.arange(len(X)), X, batch=2).measure(net)


def playground(show: Callable[[Any], object]) -> Case:
    def case(net: Classifier, y: Tensor, folder: Path) -> object:
        return show(replace(crafted(folder, attack="fgsm"), model=net, label=int(y.max())))

    return case


def photographs(net: Classifier, y: Tensor, _: Path) -> object:
    # What is printed has labels of ImageNet: wrong ones for seven classes.
    all_classes = nn.Sequential(net, nn.ConstantPad1d((0, 1000 - CLASSES), 0.0))
    return score([photos()], [sheet()], [target(net if int(y.max()) >= CLASSES else all_classes)])


def benchmark(net: Classifier, y: Tensor, _: Path) -> object:
    sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
    try:
        judge, data = (importlib.import_module(name) for name in ("frontier_judge", "judge"))
    finally:
        sys.path.pop(0)
    return judge.Judge({"net": net}, data.Data(x=X, y=y, ids=IDS), POSES, 2)


CALLERS: dict[str, Case] = {
    "recognised": lambda net, y, _: recognised({"net": net}, X, y, POSES),
    "predictions": lambda net, y, _: predictions({"net": net}, X, POSES, y=y),
    "outcomes": lambda net, y, _: outcomes([(X, {"none": X}, y, IDS)], {"net": net}, POSES),
    "success_rates": lambda net, y, _: success_rates({"net": net}, X, {"none": X}, y, poses=POSES),
    "whorl evaluate": evaluate_command,
    "whorl run": run_command,
    "gain of hardening": gain,
    "held-out images of hardening": held_out,
    "a pose in the playground": playground(lambda made: [predict(made, pose) for pose in POSES]),
    "the playground's map": playground(lambda made: list(success_map(made))),
    "a gallery": lambda net, y, _: gallery(net, X, {"none": X}, y, IDS),
    "examples of a gallery": lambda net, y, _: examples(net, X, {"none": X}, y, IDS),
    "photographs": photographs,
    "the frontier's judge": benchmark,
}


def test_the_networks_are_as_bad_as_they_say() -> None:
    assert torch.isfinite(small_net()(X)).all()
    for kind in Broken.KINDS:
        net = Broken(kind)
        answers = [net(X), net(X)]
        assert any(not bool(torch.isfinite(answer).all()) or answer.shape != (len(X), CLASSES) for answer in answers), (
            kind
        )


@pytest.mark.parametrize("kind", [*Broken.KINDS, WRONG_LABELS])
@pytest.mark.parametrize("caller", CALLERS)
def test_is_refused(caller: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHORL_TEST_BROKEN", kind)
    y = small_net()(X).argmax(1)
    if kind == WRONG_LABELS:
        y[-1] = CLASSES + 3
    with pytest.raises(WhorlError) as refused:
        CALLERS[caller](broken(), y, tmp_path)
    if kind in ("NaN", "infinity"):
        assert "finite" in str(refused.value)
    if kind == WRONG_LABELS:
        assert "labels must lie in [0, 6]" in str(refused.value)


ELSEWHERE = {
    "attacks/objectives.py": "an attack's own goal, for which it refuses bad labels and answers itself",
    "bench/sections.py": "labels to attack, which nothing is counted of",
    "defenses/randmix.py": "the nearest of a few colours",
    "interop/transferattack.py": "the class that a targeted attack of theirs is told to leave; answers were checked",
}
"""Where something else than a network's answer, or an attack's goal, has a largest column."""


def test_an_answer_becomes_a_label_in_one_place() -> None:
    source = HERE.parents[1] / "src" / "whorl"
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "argmax":
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                # Along the classes, without keeping the axis: what one does with logits.
                if len(given) == 1 and isinstance(given[0], ast.Constant) and given[0].value == 1:
                    found.add(path.relative_to(source).as_posix())
    assert found == {"evaluation/prediction.py", *ELSEWHERE}
