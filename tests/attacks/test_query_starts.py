"""Starts from a folder, checks in 8 bits, the rate that halves, and the noise that every attack must beat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from blackbox import Counting, labels_of, related_net
from conftest import random_images, small_net
from whorl import WhorlError
from whorl.attacks.blackbox.queries import in_8_bits
from whorl.attacks.blackbox.score.loop import LearningRate
from whorl.attacks.blackbox.score.noise import NoiseSearch
from whorl.attacks.norms import NormName, find_norm
from whorl.data import StartFolder, save_image

IDS = ["a", "b/c", "d.e"]
EPS = 8 / 255


def fill(folder: Path, images: Tensor, ids: list[str] = IDS) -> Path:
    for name, image in zip(ids, images, strict=True):
        save_image(folder / f"{name}.png", image)
    return folder


def starts(x: Tensor, eps: float = EPS) -> Tensor:
    return whorl.attack("fgsm", eps=eps)(related_net(small_net()), x, labels_of(small_net(), x))


@pytest.mark.parametrize("name", ["nes", "spsa", "nattack", "boundary", "evolutionary"])
def test_a_folder_starts_like_the_tensor_it_holds(name: str, tmp_path: Path) -> None:
    net, x = small_net(), random_images(3)
    y, start = labels_of(net, x), starts(x)
    folder = fill(tmp_path / "starts", start)
    settings: dict[str, Any] = {"eps": EPS} if name in whorl.attack_names(kind="score") else {}
    made = whorl.attack(name, budget=150, **settings)
    read = StartFolder(folder).load(x, IDS)
    expected, spent = made.with_(init=read)(net, x, y, ids=IDS, return_info=True)
    adv, info = made.with_(init=StartFolder(folder))(net, x, y, ids=IDS, return_info=True)
    assert torch.equal(adv, expected)
    assert info.queries is not None
    assert spent.queries is not None
    assert torch.equal(info.queries, spent.queries)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_rounding_of_a_file_does_not_put_it_outside(norm: str, tmp_path: Path) -> None:
    net, x, eps = small_net(), random_images(3), 7.6 / 255 if norm == "linf" else 0.9
    generator = torch.Generator().manual_seed(0)
    way = torch.randn(x.shape, generator=generator)
    moved = x + eps * (way.sign() if norm == "linf" else way / way.flatten(1).norm(dim=1)[:, None, None, None])
    folder = fill(tmp_path, moved.clamp(0, 1))
    adv = whorl.attack("nes", eps=eps, norm=norm, budget=150, init=StartFolder(folder))(
        net, x, labels_of(net, x), ids=IDS
    )
    assert float(find_norm(norm).size(adv - x).max()) <= eps * (1 + 1e-5)


def bad_starts(tmp_path: Path) -> list[tuple[Callable[[], object], str]]:
    x = random_images(3)
    y = labels_of(small_net(), x)
    whole = fill(tmp_path / "whole", starts(x))
    part = fill(tmp_path / "part", starts(x)[:1], IDS[:1])
    small = fill(tmp_path / "small", starts(random_images(3, height=9, width=12)))
    far = fill(tmp_path / "far", starts(x, eps=16 / 255))

    def run(init: object, ids: list[str] | None = IDS, **settings: Any) -> Callable[[], object]:
        init = StartFolder(init) if isinstance(init, Path) else init
        return lambda: whorl.attack("nes", eps=EPS, init=init, **settings)(small_net(), x, y, ids=ids)

    return [
        (run(part), r"a start image for each of the 3 images; there is none for b/c, d\.e\."),
        (run(small), "must be 18x18 pixels, like the images under attack; that of a is 12x9"),
        (run(far), "start must lie in the ball of linf radius 0.03137 .* got 0.06275 for image a"),
        (run(tmp_path / "nothing"), "nothing is no folder"),
        (run(whole, ids=None), "a folder as init needs ids="),
        (run(whole, surrogate=small_net()), "surrogate is of no use here"),
        (run(str(whole)), r"init must be .* whorl\.data\.StartFolder\(path\)"),
    ]


@pytest.mark.parametrize("case", range(7))
def test_bad_starts(case: int, tmp_path: Path) -> None:
    make, message = bad_starts(tmp_path)[case]
    with pytest.raises(WhorlError, match=message):
        make()


SCORE_AND_NORM = [(name, norm) for name in whorl.attack_names(kind="score") for norm in ("linf", "l2")]


@pytest.mark.parametrize(
    ("name", "norm"), [*SCORE_AND_NORM, *((name, "l2") for name in whorl.attack_names(kind="decision"))]
)
def test_rounded_success_is_success_of_the_file(name: str, norm: str) -> None:
    net, x = small_net(), random_images(6)
    y, eps = labels_of(net, x), 9.7 / 255 if norm == "linf" else 1.3
    settings: dict[str, Any] = {"budget": 400}
    if name in whorl.attack_names(kind="score"):
        settings |= {"eps": eps, "norm": norm, "samples": 20}
    if name == "prgf":
        settings["surrogate"] = related_net(net)
    target = Counting(net, x)
    adv, info = whorl.attack(name, rounded=True, **settings)(target, x, y, return_info=True)
    assert torch.equal((adv * 255).round() / 255, adv)
    assert torch.equal(info.success, labels_of(net, adv) != y)
    assert int(info.success.sum()) >= 4
    if name in whorl.attack_names(kind="score"):
        assert float(find_norm(norm).size(adv - x).max()) <= eps + 1e-6
        assert info.queries is not None
        assert torch.equal(info.queries, target.seen)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_rounding_stays_in_the_ball(norm: str) -> None:
    x, way = random_images(4), torch.randn(4, 3, 18, 18, generator=torch.Generator().manual_seed(2))
    for eps in (3.2 / 255, 8 / 255) if norm == "linf" else (0.3, 2.0):
        ball = find_norm(norm).ball(x, torch.tensor(eps))
        inside = ball(x + way)
        levels = in_8_bits(inside, x, find_norm(norm), eps) * 255
        torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-4)
        assert float(find_norm(norm).size(levels / 255 - x).max()) <= eps + 1e-6
        # and no pixel moves by a level or more
        assert float((levels - inside * 255).abs().max()) < 1 + 1e-3


def literal_rates(losses: list[float], first: float, plateau: int, least: float) -> list[float]:
    """The reference's rule, one image at a time: a full window that ends lower than it began halves, and is emptied."""
    rate, window, rates = first, list[float](), []
    for loss in losses:
        window = [*window, loss][-plateau:]
        if len(window) == plateau and window[-1] < window[0]:
            rate, window = max(rate / 2, least), []
        rates.append(rate)
    return rates


def test_the_rate_halves_as_in_the_reference() -> None:
    losses = torch.randn(60, 5, generator=torch.Generator().manual_seed(1)).cumsum(0)
    rate = LearningRate(0.8, 4, 0.1, torch.zeros(5, 1, 1, 1))
    found = []
    for step, row in enumerate(losses):
        # the second image pauses for a while, as one that is not in the batch
        rows = torch.tensor([0, 2, 3, 4] if 10 <= step < 20 else [0, 1, 2, 3, 4])
        rate.heed(rows, row[rows])
        found.append(rate.now.clone())
    for image in (0, 2, 3, 4):
        expected = literal_rates(losses[:, image].tolist(), 0.8, 4, 0.08)
        assert [float(now[image]) for now in found] == pytest.approx(expected)
    assert float(found[-1].min()) == pytest.approx(0.08)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_noise_is_counted_and_of_full_strength(norm: NormName) -> None:
    net, x = small_net(), random_images(6)
    y, eps = labels_of(net, x), 6 / 255 if norm == "linf" else 1.0
    target = Counting(net, x)
    adv, info = NoiseSearch(eps=eps, norm=norm, budget=45, samples=7)(target, x, y, return_info=True)
    assert info.queries is not None
    assert torch.equal(info.queries, target.seen)
    assert int(target.seen.max()) == 45
    assert torch.equal(info.success, labels_of(net, adv) != y)
    assert float(find_norm(norm).size(adv - x).max()) <= eps + 1e-6
    assert float(find_norm(norm).size(adv - x).min()) > 0.5 * eps
    parts = [NoiseSearch(eps=eps, norm=norm, budget=45, samples=7)(net, x[i : i + 2], y[i : i + 2]) for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), adv)
