"""Outcomes of images × poses × targets, against evaluating one image at a time."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cli.toy_networks import small
from conftest import random_images, small_net
from whorl import WhorlError, load_defense
from whorl.evaluation import (
    PAPER_POSES,
    AttackedImages,
    Distance,
    ImageCounts,
    Outcomes,
    Pose,
    SuccessRate,
    compare,
    for_headline,
    outcomes,
    poses,
    success_rates,
)
from whorl.evaluation.attacked_images import split, to_8_bits


def test_rates_are_what_evaluating_one_by_one_gives() -> None:
    x, targets = random_images(10), {"a": small_net(seed=0), "b": small_net(seed=1)}
    y = targets["a"](x).argmax(1)
    adversarial = {"noise": (x + 0.1 * torch.randn_like(x)).clamp(0, 1), "none": x}
    poses = PAPER_POSES[:4]
    counts = success_rates(targets, x, adversarial, y, poses=poses, batch_size=3)
    assert set(counts) == {(a, t, p) for a in adversarial for t in targets for p in poses}
    for (attack, target, pose), count in counts.items():
        right = wrong = 0
        for i in range(10):
            clean = targets[target](pose.apply(x[i : i + 1])).argmax()
            stored = (adversarial[attack][i : i + 1] * 255).round() / 255
            answer = targets[target](pose.apply(stored)).argmax()
            right += int(clean == y[i])
            wrong += int(clean == y[i] and answer != y[i])
        assert (count.n, count.n_clean_correct, count.n_success) == (10, right, wrong)
    assert all(counts["none", t, p].n_success == 0 for t in targets for p in poses)
    assert any(counts["noise", t, p].n_success > 0 for t in targets for p in poses)


def literal_label(weights: list[list[float]], image: list[list[list[float]]], pose: Pose) -> int:
    """Turn, scale and shift an image by the definition, pixel by pixel in float64, and score it with a linear map."""
    height, width = len(image[0]), len(image[0][0])
    right, down = (shift * width / 299 for shift in pose.shift)
    turn = math.radians(pose.angle)
    seen = []
    for channel in image:
        for i in range(height):
            for j in range(width):
                # where the pixel comes from: the shift is undone first, then the rotation and the scale
                u, v = j - (width - 1) / 2 - right, i - (height - 1) / 2 - down
                column = (math.cos(turn) * u + math.sin(turn) * v) / pose.scale + (width - 1) / 2
                row = (-math.sin(turn) * u + math.cos(turn) * v) / pose.scale + (height - 1) / 2
                value = 0.0
                for r in (math.floor(row), math.floor(row) + 1):
                    for c in (math.floor(column), math.floor(column) + 1):
                        if 0 <= r < height and 0 <= c < width:
                            value += channel[r][c] * (1 - abs(row - r)) * (1 - abs(column - c))
                seen.append(value)
    scores = [sum(w * value for w, value in zip(own, seen, strict=True)) for own in weights]
    return max(range(len(scores)), key=scores.__getitem__)


def test_outcomes_are_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(6, 3, 7, 7, generator=generator, dtype=torch.float64)
    weights = torch.randn(2, 4, 147, generator=generator, dtype=torch.float64)
    weak, strong = (torch.rand(x.shape, generator=generator, dtype=torch.float64) * c - c / 2 for c in (0.2, 1.5))
    made = {"weak": (x + weak).clamp(0, 1), "strong": (x + strong).clamp(0, 1)}
    targets = {str(t): lambda seen, w=w: seen.flatten(1) @ w.T for t, w in enumerate(weights)}
    y, ids = (x.flatten(1) @ weights[0].T).argmax(1), list("abcdef")
    grid = [Pose(), Pose(angle=30, scale=0.7, shift=(40, 20)), Pose(angle=-75, scale=1.3)]
    batches = [(x[p], {name: adv[p] for name, adv in made.items()}, y[p], ids[p]) for p in (slice(4), slice(4, 6))]
    done = outcomes(batches, targets, grid)
    for t, w in enumerate(weights.tolist()):
        for p, pose in enumerate(grid):
            for i in range(6):
                assert bool(done.clean[t, p, i]) == (literal_label(w, x[i].tolist(), pose) == y[i])
                for a, adv in enumerate(made.values()):
                    stored = [[[round(v * 255) / 255 for v in row] for row in plane] for plane in adv[i].tolist()]
                    assert bool(done.adversarial[a, t, p, i]) == (literal_label(w, stored, pose) == y[i])
    assert 0 < int(done.success.sum()) < done.success.numel()


def test_rounds_and_does_not_truncate() -> None:
    assert (to_8_bits(torch.tensor([0.999, 1.0, 254.6 / 255])) * 255).tolist() == [255.0, 255.0, 255.0]


def test_shapes_must_agree() -> None:
    x = random_images(2)
    with pytest.raises(WhorlError, match="adversarial images of 'pgd' must match x"):
        success_rates({}, x, {"pgd": x[:1]}, torch.zeros(2))


GRID = poses(angles=(-30, 0), scales=(0.7, 1))
TARGETS = {"small": small(), "small+jpeg": load_defense("jpeg", small())}


def stream(size: int) -> Iterator[AttackedImages]:
    """The same ten images with two attacks, in batches that are made as they are asked for."""
    x, y = random_images(10), small()(random_images(10)).argmax(1)
    noisy = (x + 0.1 * random_images(10, seed=3) - 0.05).clamp(0, 1)
    for i in range(0, 10, size):
        part, ids = slice(i, i + size), [str(k) for k in range(10)]
        yield AttackedImages(x[part], {"noise": noisy[part], "none": x[part]}, y[part], ids[part])


def streamed(size: int = 3) -> Outcomes:
    return outcomes(stream(size), TARGETS, GRID)


def test_streaming_is_the_same_as_all_at_once() -> None:
    [(x, adversarial, y, ids, _)] = stream(10)
    done = streamed()
    assert done.counts == success_rates(TARGETS, x, adversarial, y, poses=GRID, batch_size=10)
    assert done.ids == tuple(ids)
    assert done.distances["none"] == Distance(n=10, ssim_sum=10, ssim_min=1)
    assert vars(done.distances["noise"]) == pytest.approx(vars(Distance.of(x, to_8_bits(adversarial["noise"]))))


def test_a_batch_is_let_go_before_the_next_is_read() -> None:
    seen: list[weakref.ref[Tensor]] = []

    def watched() -> Iterator[AttackedImages]:
        for batch in stream(2):
            assert all(held() is None for held in seen[:-1])
            copy = batch._replace(x=batch.x.clone())
            seen.append(weakref.ref(copy.x))
            yield copy
            del copy, batch

    outcomes(watched(), TARGETS, GRID)
    assert len(seen) == 5


def test_each_image_is_warped_once_a_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    warped: list[Pose] = []
    apply = Pose.apply

    def watched(pose: Pose, x: Tensor) -> Tensor:
        warped.append(pose)
        return apply(pose, x)

    monkeypatch.setattr(Pose, "apply", watched)
    outcomes(stream(10), TARGETS, [*GRID, *GRID])
    assert sorted(map(str, warped)) == sorted(map(str, GRID * 3))  # one clean side, two attacks, however many targets


def test_outcomes_are_the_counts() -> None:
    done = streamed()
    assert done.success.dtype == torch.bool
    assert done.success.shape == (2, 2, len(GRID), 10)
    for a, attack in enumerate(done.attacks):
        for t, target in enumerate(done.targets):
            for p, pose in enumerate(GRID):
                counts = done.counts[attack, target, pose]
                assert int(done.success[a, t, p].sum()) == counts.n_success
                assert int(done.clean[t, p].sum()) == counts.n_clean_correct
                assert int(done.adversarial[a, t, p].sum()) == counts.n_adversarial_correct


def test_attacks_are_compared_in_a_pose_or_over_all() -> None:
    done = streamed()
    one, other = (ImageCounts.of(done.clean[0], done.adversarial[a, 0]) for a in range(2))
    assert done.compare("noise", "none", "small", poses="pooled") == compare(one, other)
    assert done.compare("noise", "none", "small", poses="mean") == compare(one, other, "mean")
    kept = for_headline(one, other)
    assert done.compare("noise", "none", "small") == compare(kept[0], kept[1])
    single = done.compare("noise", "none", "small", GRID[0])
    assert (single.b, single.c) == (done.counts["noise", "small", GRID[0]].n_success, 0)
    with pytest.raises(WhorlError, match="there is no attack 'pgd' on a target 'small'"):
        done.compare("pgd", "none", "small")
    with pytest.raises(WhorlError, match="was not evaluated"):
        done.compare("noise", "none", "small", Pose(angle=1))


def test_batches_must_fit_together() -> None:
    first, second = stream(5)
    with pytest.raises(WhorlError, match=r"the same attacks, \['noise', 'none'\]; got \['none'\]"):
        outcomes([first, second._replace(adversarial={"none": second.x})], TARGETS)
    with pytest.raises(WhorlError, match=r"a label and an id for each of 5 images; got \(5,\) and 4"):
        outcomes([first._replace(ids=first.ids[1:])], TARGETS)
    with pytest.raises(WhorlError, match="at least one batch"):
        outcomes([], TARGETS)
    with pytest.raises(WhorlError, match="batch_size must be a whole number >= 1; got 0"):
        success_rates(TARGETS, first.x, {}, first.y, batch_size=0)
    with pytest.raises(WhorlError, match="ids must differ, for each counts once; got '0' more than once"):
        outcomes([first, first], TARGETS)


POOLED_AND_MEAN: tuple[Any, ...] = ("pooled", "mean")
POSES = (Pose(), Pose(angle=30), Pose(scale=0.7))


@st.composite
def made_up(draw: st.DrawFn, images: int | None = None) -> Outcomes:
    """Any outcomes of up to two attacks, two targets and three poses."""
    n = draw(st.integers(0, 9)) if images is None else images
    a, t, p = draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    bits = draw(st.lists(st.booleans(), min_size=(1 + a) * t * p * n, max_size=(1 + a) * t * p * n))
    both = torch.tensor(bits, dtype=torch.bool).reshape(1 + a, t, p, n)
    attacks = ("weak", "strong")[:a]
    return Outcomes(
        ids=tuple(f"image {i}" for i in range(n)),
        attacks=attacks,
        targets=("net", "other")[:t],
        poses=POSES[:p],
        clean=both[0],
        adversarial=both[1:],
        distances={name: Distance(n, 0.5 * n, 0.5, n, 2.0) for name in attacks},
    )


def part(whole: Outcomes, images: slice) -> Outcomes:
    n = len(whole.ids[images])
    return Outcomes(
        ids=whole.ids[images],
        attacks=whole.attacks,
        targets=whole.targets,
        poses=whole.poses,
        clean=whole.clean[..., images],
        adversarial=whole.adversarial[..., images],
        distances={name: Distance(n, 0.5 * n, 0.5, n, 2.0) if n else Distance() for name in whole.attacks},
    )


def same(one: Outcomes, other: Outcomes) -> bool:
    names = all(getattr(one, what) == getattr(other, what) for what in ("ids", "attacks", "targets", "poses"))
    tensors = torch.equal(one.clean, other.clean) and torch.equal(one.adversarial, other.adversarial)
    return names and tensors and one.counts == other.counts


@given(made_up(), st.integers(0, 9), st.integers(0, 9))
def test_chunks_add_up_whatever_the_cuts(whole: Outcomes, first: int, second: int) -> None:
    low, high = sorted((first, second))
    one, two, three = part(whole, slice(low)), part(whole, slice(low, high)), part(whole, slice(high, None))
    assert same(one + two + three, whole)
    assert same(one + (two + three), whole)
    if whole.ids:
        assert (one + two + three).distances == whole.distances


@given(made_up())
def test_bits_hold_everything(whole: Outcomes) -> None:
    bits = whole.to_bits()
    names: dict[str, Any] = {"ids": whole.ids, "attacks": whole.attacks, "targets": whole.targets, "poses": whole.poses}
    assert len(bits) == math.ceil((whole.clean.numel() + whole.adversarial.numel()) / 8)
    assert same(Outcomes.from_bits(bits, **names), whole)
    with pytest.raises(WhorlError, match="bytes for outcomes of shape"):
        Outcomes.from_bits(bits + b"\0", **names)


@given(made_up())
def test_rates_over_poses_are_their_definitions(whole: Outcomes) -> None:
    for a, attack in enumerate(whole.attacks):
        for t, target in enumerate(whole.targets):
            clean, still = whole.clean[t].tolist(), whole.adversarial[a, t].tolist()
            fooled = [[c and not s for c, s in zip(*rows, strict=True)] for rows in zip(clean, still, strict=True)]
            eligible, won = sum(map(sum, clean)), sum(map(sum, fooled))
            worst = whole.worst_case(attack, target)
            images = list(zip(*clean, strict=True)), list(zip(*fooled, strict=True)), list(zip(*still, strict=True))
            assert worst == SuccessRate(
                len(whole.ids), sum(map(any, images[0])), sum(map(any, images[1])), sum(map(all, images[2]))
            )
            if not eligible:
                for how in POOLED_AND_MEAN:
                    with pytest.raises(WhorlError, match=f"{target} recognises none of the clean images"):
                        whole.rate(attack, target, how)
                continue
            rates = [sum(w) / sum(c) for w, c in zip(fooled, clean, strict=True) if any(c)]
            pooled = whole.rate(attack, target)
            assert (pooled.n, pooled.successes, pooled.poses) == (eligible, won, len(rates))
            assert pooled.value == pytest.approx(won / eligible)
            assert whole.rate(attack, target, "mean").value == pytest.approx(sum(rates) / len(rates))


def test_outcomes_must_fit_their_names() -> None:
    whole = streamed()
    with pytest.raises(WhorlError, match=r"\(targets, poses, images\), \(2, 4, 9\)"):
        Outcomes(**(vars_of(whole) | {"ids": whole.ids[1:]}))
    with pytest.raises(WhorlError, match="targets must differ"):
        Outcomes(**(vars_of(whole) | {"targets": ("small", "small")}))
    other = Outcomes(**(vars_of(whole) | {"targets": ("small", "big")}))
    with pytest.raises(WhorlError, match=r"the same targets, \['small', 'small\+jpeg'\]; got \['small', 'big'\]"):
        whole + other
    with pytest.raises(WhorlError, match="there is no attack 'noise' on a target 'big'"):
        whole.rate("noise", "big")


def vars_of(done: Outcomes) -> dict[str, Any]:
    names = ("ids", "attacks", "targets", "poses", "clean", "adversarial", "distances")
    return {name: getattr(done, name) for name in names}


def test_ids_and_names_may_be_left_out() -> None:
    x, y = torch.rand(5, 3, 8, 8), torch.arange(5)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 5))
    adv = 1 - x
    named = outcomes([(x, {"adversarial": adv}, y, ["0", "1", "2", "3", "4"])], {"net": net}, [Pose()])
    plain = outcomes([(x[:2], adv[:2], y[:2]), (x[2:], adv[2:], y[2:])], {"net": net}, [Pose()])
    assert plain.ids == named.ids
    assert plain.counts == named.counts
    assert success_rates({"net": net}, x, adv, y, poses=[Pose()]) == named.counts
    with pytest.raises(WhorlError, match="got 2 parts"):
        outcomes([(x, y)], {"net": net})  # type: ignore[list-item]  # on purpose


def test_attacks_of_other_runs_are_paired_by_image() -> None:
    whole = streamed()
    first = Outcomes(**(vars_of(whole) | {"attacks": ("noise",), "adversarial": whole.adversarial[:1]}))
    order = [7, 2, 5, 0]
    second = Outcomes(
        ids=tuple(whole.ids[i] for i in order),
        attacks=("none",),
        targets=whole.targets,
        poses=whole.poses,
        clean=whole.clean[..., order],
        adversarial=whole.adversarial[1:, ..., order],
    )
    both = first.beside(second)
    assert both.ids == ("0", "2", "5", "7")
    kept = sorted(order)
    one, other = (ImageCounts.of(whole.clean[0][:, kept], whole.adversarial[a, 0][:, kept]) for a in range(2))
    assert both.compare("noise", "none", "small", poses="pooled") == compare(one, other)
    with pytest.raises(WhorlError, match="4 shared images, attacks"):
        both.beside(second)
    with pytest.raises(WhorlError, match="not the same images or networks"):
        first.beside(Outcomes(**(vars_of(second) | {"clean": ~second.clean})))


def test_targeted_attacks_have_a_success_and_a_hit_rate() -> None:
    [(x, adversarial, y, ids, _)] = stream(10)
    wanted = (y + 1) % 4
    done = outcomes([AttackedImages(x, adversarial, y, ids, wanted)], TARGETS, GRID)
    assert torch.equal(done.adversarial, streamed(10).adversarial)
    for a, images in enumerate(adversarial.values()):
        for t, net in enumerate(TARGETS.values()):
            for p, pose in enumerate(GRID):
                answers = net(pose.apply(to_8_bits(images))).argmax(1)
                assert done.reached is not None
                assert torch.equal(done.reached[a, t, p], answers == wanted)
    assert done.reached is not None
    hit = done.rate("noise", "small", of="hit")
    assert (hit.n, hit.successes) == (10 * len(GRID), int(done.reached[0, 0].sum()))
    success = done.counted("noise", "small", of="targeted")
    assert success.success.sum() == int((done.reached[0, 0] & done.clean[0]).sum())
    assert success.eligible.sum() == int(done.clean[0].sum())
    names: dict[str, Any] = {"ids": done.ids, "attacks": done.attacks, "targets": done.targets, "poses": done.poses}
    packed = Outcomes.from_bits(done.to_bits(), **names, targeted=True)
    assert packed.reached is not None
    assert torch.equal(packed.reached, done.reached)
    assert torch.equal(packed.adversarial, done.adversarial)
    joined = outcomes(split(AttackedImages(x, adversarial, y, ids, wanted), 5), TARGETS, GRID)
    assert joined.reached is not None
    assert torch.equal(joined.reached, done.reached)
    with pytest.raises(WhorlError, match="was not evaluated as a targeted one"):
        streamed().rate("noise", "small", of="hit")
    with pytest.raises(WhorlError, match="other than its own"):
        outcomes([AttackedImages(x, adversarial, y, ids, y)], TARGETS, GRID)
    with pytest.raises(WhorlError, match="labels must lie in"):
        outcomes([AttackedImages(x, adversarial, y, ids, y + 100)], TARGETS, GRID)
