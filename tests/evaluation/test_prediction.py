"""What networks say: checked in one place, whoever evaluates; in bfloat16 the same but for answers that were close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import CLASSES, random_images, small_net
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, Pose, Predictor, outcomes, predictions, recognised, success_rates, worst_pose

GRID = (Pose(), Pose(angle=30), Pose(scale=0.7))


def test_predictions_are_the_networks_own() -> None:
    nets, x = {"a": small_net(), "b": small_net(seed=1)}, random_images(5)
    y = torch.tensor([0, 1, 2, 3, 4])
    found, right = predictions(nets, x, GRID), recognised(nets, x, y, GRID)
    assert found.labels.dtype == torch.int64
    assert found.labels.shape == found.probabilities.shape == right.shape == (2, 3, 5)
    for t, net in enumerate(nets.values()):
        for p, pose in enumerate(GRID):
            for i in range(5):
                shares = net(pose.apply(x[i : i + 1])).detach().double().softmax(1)[0]
                assert int(found.labels[t, p, i]) == int(shares.argmax())
                assert float(found.probabilities[t, p, i]) == pytest.approx(float(shares.max()), abs=1e-5)
                assert bool(right[t, p, i]) == (int(shares.argmax()) == int(y[i]))


def test_each_target_has_poses_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    warped: list[Pose] = []
    apply = Pose.apply
    monkeypatch.setattr(Pose, "apply", lambda pose, x: warped.append(pose) or apply(pose, x))  # type: ignore[func-returns-value]  # append gives None
    nets, x, y = (
        {"a": small_net(), "b": small_net(seed=1), "c": small_net(seed=2)},
        random_images(4),
        torch.zeros(4).long(),
    )
    wanted = {"a": GRID[:2], "b": GRID[1:], "c": ()}
    found = Predictor(nets).recognised(x, y, wanted)
    assert set(found) == {(name, pose) for name, own in wanted.items() for pose in own}
    assert sorted(map(str, warped)) == sorted(map(str, GRID))
    whole = recognised(nets, x, y, GRID)
    for (name, pose), row in found.items():
        assert row.tolist() == whole[list(nets).index(name), GRID.index(pose)].tolist()


def test_no_images_need_no_network() -> None:
    def never(_: Tensor) -> Tensor:
        raise AssertionError

    none = torch.empty(0, dtype=torch.int64)
    assert recognised({"net": never}, torch.empty(0, 3, 1, 1), none, GRID).shape == (1, 3, 0)
    assert Predictor({"net": never}).recognised(random_images(2), torch.zeros(2).long(), {"net": ()}) == {}


def test_bf16_predicts_in_bf16_and_counts_the_same() -> None:
    net, x = small_net(), random_images(40)
    seen: list[torch.dtype] = []
    net[1].register_forward_hook(lambda _, __, out: seen.append(out.dtype))  # type: ignore[index]
    y = net(x).argmax(1)
    noise = (x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    seen.clear()
    full = success_rates({"net": net}, x, {"noise": noise}, y)
    assert set(seen) == {torch.float32}
    seen.clear()
    half = success_rates({"net": net}, x, {"noise": noise}, y, precision="bf16")
    assert set(seen) == {torch.bfloat16}
    for key in full:
        assert half[key].n == full[key].n
        assert abs(half[key].n_clean_correct - full[key].n_clean_correct) <= 3
        assert abs(half[key].n_success - full[key].n_success) <= 3
    assert len(full) == len(PAPER_POSES)


def test_an_unknown_precision() -> None:
    def net(x: Tensor) -> Tensor:
        return x.flatten(1)

    x, y = random_images(1), torch.zeros(1).long()
    with pytest.raises(WhorlError, match="precision must be 'full' or 'bf16'; got 'half'"):
        success_rates({"net": net}, x, {"none": x}, y, precision="half")  # type: ignore[arg-type]  # none of the two


X, IDS = random_images(6), list("abcdef")
Y = small_net()(X).argmax(1)
Network = Callable[[Tensor], Any]


class Changing:
    """A network that has one class less from its third answer on."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = small_net()(x)
        return logits[:, :-1] if self.calls > 2 else logits


def spoiled(value: float) -> Network:
    """A network whose answer for one image, the one with id 'c', has a bad value."""

    def answer(x: Tensor) -> Tensor:
        logits: Tensor = small_net()(x)
        logits = logits.clone()
        logits[2 % len(x), 1] = value
        return logits

    return answer


BAD_NETWORKS: dict[str, tuple[Callable[[], Network], str]] = {
    "NaN": (lambda: spoiled(torch.nan), "'net' must return finite logits; got NaN or infinity for image"),
    "infinity": (lambda: spoiled(torch.inf), "'net' must return finite logits; got NaN or infinity for image"),
    "minus infinity": (lambda: spoiled(-torch.inf), "'net' must return finite logits; got NaN or infinity for image"),
    "labels": (lambda: lambda x: small_net()(x).argmax(1), "'net' must return a floating tensor of logits; got a tens"),
    "integers": (lambda: lambda x: small_net()(x).round().long(), "'net' must return a floating tensor of logits; got"),
    "a tuple": (lambda: lambda x: (small_net()(x),), "'net' must return a floating tensor of logits; got tuple"),
    "one dimension": (lambda: lambda x: small_net()(x)[:, 0], r"'net' must return \(\d, classes\) logits; got \(\d,\)"),
    "too few": (lambda: lambda x: small_net()(x)[1:], r"'net' must return \(\d, classes\) logits; got \(\d, \d+\)"),
    "no classes": (lambda: lambda x: small_net()(x)[:, :0], r"'net' must return \(\d, classes\) logits; got \(\d, 0\)"),
    "changing classes": (Changing, f"'net' must have the same classes every time; got {CLASSES} before and"),
    "a label too high": (
        lambda: lambda x: small_net()(x)[:, : int(Y.max())],
        r"labels must lie in \[0, \d+\], the cla",
    ),
}
CALLERS: dict[str, Callable[[Network], object]] = {
    "recognised": lambda net: recognised({"net": net}, X, Y, GRID, ids=IDS),
    "predictions": lambda net: predictions({"net": net}, X, GRID, y=Y, ids=IDS),
    "outcomes": lambda net: outcomes(
        [(X[p], {"none": X[p]}, Y[p], IDS[p]) for p in (slice(3), slice(3, 6))], {"net": net}, GRID
    ),
    "success_rates": lambda net: success_rates({"net": net}, X, {"none": X}, Y, poses=GRID),
}


@pytest.mark.parametrize("bad", BAD_NETWORKS)
@pytest.mark.parametrize("caller", CALLERS)
def test_what_no_figure_may_rest_on_is_refused(caller: str, bad: str) -> None:
    make, message = BAD_NETWORKS[bad]
    with pytest.raises(WhorlError, match=message):
        CALLERS[caller](make())


NORMALISED = (X - 0.45) / 0.22
EVALUATED: dict[str, Callable[[], object]] = {
    "recognised": lambda: recognised({"net": small_net()}, NORMALISED, Y, GRID),
    "predictions": lambda: predictions({"net": small_net()}, NORMALISED, GRID),
    "outcomes, clean": lambda: outcomes([(NORMALISED, {"none": X}, Y, IDS)], {"net": small_net()}, GRID),
    "outcomes, adversarial": lambda: outcomes([(X, {"none": NORMALISED}, Y, IDS)], {"net": small_net()}, GRID),
    "success_rates": lambda: success_rates({"net": small_net()}, X, {"none": NORMALISED}, Y, poses=GRID),
}


@pytest.mark.parametrize("caller", EVALUATED)
def test_normalised_images_are_refused_and_named(caller: str) -> None:
    with pytest.raises(WhorlError, match=r"in \[-\d.*which look normalised: whorl takes \[0, 1\] and norm"):
        EVALUATED[caller]()


def test_errors_name_the_image_and_the_pose() -> None:
    with pytest.raises(WhorlError, match=r"for image 'c' in the pose 30°\. Check"):
        recognised({"net": spoiled(torch.nan)}, X, Y, GRID[1:], ids=IDS)
    with pytest.raises(WhorlError, match="for image 2 in the pose"):
        recognised({"net": spoiled(torch.nan)}, X, Y, GRID)
    wrong = Y.clone()
    wrong[4] = CLASSES
    with pytest.raises(WhorlError, match=rf"\[0, {CLASSES - 1}\], the classes of 'net'; got {CLASSES} for image 'e'"):
        recognised({"net": small_net()}, X, wrong, ids=IDS)
    wrong[4] = -1
    with pytest.raises(WhorlError, match="got -1 for image 'e'"):
        recognised({"net": small_net()}, X, wrong, ids=IDS)


@pytest.mark.parametrize(
    "y", [Y.float(), Y.bool(), Y[1:], Y[:, None], Y.tolist()], ids=["float", "bool", "short", "column", "list"]
)
def test_labels_are_whole_numbers_one_an_image(y: Any) -> None:
    with pytest.raises(WhorlError, match=r"labels must be .*integer.*, one for each of 6 images"):
        recognised({"net": small_net()}, X, y)
    with pytest.raises(WhorlError, match=r"labels must be .*integer.*, one for each of 6 images"):
        worst_pose(small_net(), X, y)
