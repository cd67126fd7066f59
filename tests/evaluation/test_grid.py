"""The grid of poses, against asking one image at a time."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from cli.toy_networks import small
from conftest import pictures, small_net
from whorl import WhorlError, load_defense
from whorl.evaluation import PAPER_POSES, Batch, Distance, Evaluation, Pose, compare, evaluate, poses, success_rates
from whorl.evaluation.grid import to_8_bits


def test_rates_are_what_asking_one_by_one_gives() -> None:
    x, targets = pictures(10), {"a": small_net(seed=0), "b": small_net(seed=1)}
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


def test_rounds_and_does_not_truncate() -> None:
    assert (to_8_bits(torch.tensor([0.999, 1.0, 254.6 / 255])) * 255).tolist() == [255.0, 255.0, 255.0]


def test_shapes_must_agree() -> None:
    x = pictures(2)
    with pytest.raises(WhorlError, match="adversarial images of 'pgd' must match x"):
        success_rates({}, x, {"pgd": x[:1]}, torch.zeros(2))


GRID = poses(angles=(-30, 0), scales=(0.7, 1))
TARGETS = {"small": small(), "small+jpeg": load_defense("jpeg", small())}


def stream(size: int) -> Iterator[Batch]:
    """The same ten images with two attacks, in batches that are made as they are asked for."""
    x, y = pictures(10), small()(pictures(10)).argmax(1)
    noisy = (x + 0.1 * pictures(10, seed=3) - 0.05).clamp(0, 1)
    for i in range(0, 10, size):
        part = slice(i, i + size)
        yield Batch(x[part], {"noise": noisy[part], "none": x[part]}, y[part], [str(k) for k in range(10)[part]])


def streamed(size: int = 3, *, keep_outcomes: bool = True) -> Evaluation:
    return evaluate(TARGETS, stream(size), poses=GRID, keep_outcomes=keep_outcomes)


def test_streaming_is_the_same_as_all_at_once() -> None:
    [(x, adversarial, y, ids)] = stream(10)
    done = streamed()
    assert done.counts == success_rates(TARGETS, x, adversarial, y, poses=GRID, batch_size=10)
    assert done.ids == ids
    assert done.distances["none"] == Distance(n=10)
    assert vars(done.distances["noise"]) == pytest.approx(vars(Distance.of(x, to_8_bits(adversarial["noise"]))))


def test_a_batch_is_let_go_before_the_next_is_read() -> None:
    seen: list[weakref.ref[Tensor]] = []

    def watched() -> Iterator[Batch]:
        for batch in stream(2):
            assert all(held() is None for held in seen[:-1])
            copy = batch._replace(x=batch.x.clone())
            seen.append(weakref.ref(copy.x))
            yield copy
            del copy, batch

    evaluate(TARGETS, watched(), poses=GRID)
    assert len(seen) == 5


def test_each_picture_is_warped_once_a_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    warped: list[Pose] = []
    apply = Pose.apply

    def watched(pose: Pose, x: Tensor) -> Tensor:
        warped.append(pose)
        return apply(pose, x)

    monkeypatch.setattr(Pose, "apply", watched)
    evaluate(TARGETS, stream(10), poses=[*GRID, *GRID])
    assert sorted(map(str, warped)) == sorted(map(str, GRID * 3))  # one clean side, two attacks, however many targets


def test_kept_outcomes_are_the_counts() -> None:
    done = streamed()
    for (attack, target), outcomes in done.outcomes.items():
        assert outcomes.success.dtype == torch.bool
        assert outcomes.success.shape == (len(GRID), 10)
        for i, pose in enumerate(GRID):
            counts = done.counts[attack, target, pose]
            assert int(outcomes.success[i].sum()) == counts.n_success
            assert int(outcomes.clean_correct[i].sum()) == counts.n_clean_correct
            assert int(outcomes.adversarial_correct[i].sum()) == counts.n_adversarial_correct


def test_attacks_are_compared_in_a_pose_or_over_all() -> None:
    done = streamed()
    one, other = (done.outcomes[attack, "small"] for attack in ("noise", "none"))
    assert done.compare("noise", "none", "small") == compare(one, other)
    single = done.compare("noise", "none", "small", GRID[0])
    assert (single.b, single.c) == (done.counts["noise", "small", GRID[0]].n_success, 0)
    with pytest.raises(WhorlError, match="there is no attack 'pgd' on a target 'small'"):
        done.compare("pgd", "none", "small")
    with pytest.raises(WhorlError, match="was not evaluated"):
        done.compare("noise", "none", "small", Pose(angle=1))
    with pytest.raises(WhorlError, match="keep_outcomes=True"):
        streamed(keep_outcomes=False).compare("noise", "none", "small")


def test_batches_must_fit_together() -> None:
    first, second = stream(5)
    with pytest.raises(WhorlError, match=r"the same attacks, \['noise', 'none'\]; got \['none'\]"):
        evaluate(TARGETS, [first, second._replace(adversarial={"none": second.x})])
    with pytest.raises(WhorlError, match=r"a label and an id for each of 5 images; got \(5,\) and 4"):
        evaluate(TARGETS, [first._replace(ids=first.ids[1:])])
    with pytest.raises(WhorlError, match="at least one batch"):
        evaluate(TARGETS, [])
    with pytest.raises(WhorlError, match="batch_size must be a whole number from 1; got 0"):
        success_rates(TARGETS, first.x, {}, first.y, batch_size=0)
