"""The worst pose: found where it is rare, counted exactly, within its box, and the same in any batch."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import random_images, small_net
from whorl import WhorlError
from whorl.evaluation import Pose, SuccessRate
from whorl.evaluation.pose_search import coarse_points, refined, spread_points, worst_pose
from whorl.geometry.pose import NUMBERS
from whorl.transforms import RandomAffine

SIDE = 33


def spots(*places: tuple[int, int]) -> Tensor:
    """An image with one soft spot for each place, (right, down) of the centre."""
    axis = torch.arange(SIDE) - SIDE // 2
    return torch.stack(
        [torch.exp(-((axis - right) ** 2 + (axis[:, None] - down) ** 2) / 4.0)[None] for right, down in places]
    )


class Pit(nn.Module):
    """Errs only where the image's centre of mass lies within ``radius`` of a place; its margin says how far that is."""

    def __init__(self, place: tuple[float, float], radius: float) -> None:
        super().__init__()
        self.place, self.radius, self.seen = torch.tensor(place), radius, 0

    def forward(self, x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        self.seen += len(x)
        axis = torch.arange(SIDE) - SIDE // 2
        mass = x.sum((1, 2, 3)) + 1e-6
        right, down = (x * axis).sum((1, 2, 3)) / mass, (x * axis[:, None]).sum((1, 2, 3)) / mass
        far = (torch.stack((right, down), 1) - self.place).norm(dim=1)
        return torch.stack((far, torch.full_like(far, self.radius)), 1)


LABELS = torch.zeros(1, dtype=torch.int64)


def test_a_rare_pose_is_found_and_fools_when_it_is_applied() -> None:
    x, net = spots((8, 0)), Pit((6.1, 5.3), 0.15)
    grid = RandomAffine().numbers(coarse_points(4, 72))
    with torch.no_grad():
        assert all(net(Pose.of(row).apply(x)).argmax(1) == 0 for row in grid.tolist()), "too easy to test anything"
    found = worst_pose(net, x, LABELS)
    assert bool(found.fooled)
    assert 73 < int(found.queries) <= 200
    with torch.no_grad():
        logits = net(found.poses[0].apply(x))
    assert int(logits.argmax(1)) == 1
    assert float(logits[0, 1] - logits[0, 0]) == pytest.approx(float(found.margins), abs=1e-5)
    assert found.counts == SuccessRate(1, 1, 1, 0)


@pytest.mark.parametrize("seed", range(3))
def test_no_fewer_are_fooled_than_by_a_grid_of_ten_times_as_many(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    places = torch.randint(-8, 9, (8, 2), generator=random).tolist()
    x = spots(*[(right, down) for right, down in places])
    net = Pit((7.3 + seed, -5.2), 0.4)
    y = torch.zeros(8, dtype=torch.int64)
    shares = [torch.linspace(0, 1, count, dtype=torch.float64).tolist() for count in (10, 8, 5, 5)]
    grid = RandomAffine().numbers(torch.tensor(list(product(*shares)), dtype=torch.float64))
    assert len(grid) == 2000
    hit = torch.zeros(8, dtype=torch.bool)
    with torch.no_grad():
        for row in grid.tolist():
            hit |= net(Pose.of(row).apply(x)).argmax(1) == 1
    found = worst_pose(net, x, y)
    assert int(hit.sum()) > 0
    assert int(found.fooled.sum()) >= int(hit.sum())
    assert int(found.queries.max()) <= 200


def test_queries_are_exactly_the_images_that_the_network_saw() -> None:
    x = spots((8, 0), (0, 8), (-5, 5), (6, 6))
    net = Pit((6.1, 5.3), 1.5)
    found = worst_pose(net, x, torch.zeros(4, dtype=torch.int64), batch_size=3)
    assert net.seen == int(found.queries.sum())
    assert int(found.queries.min()) < int(found.queries.max())


@pytest.mark.parametrize("budget", [1, 2, 6, 73, 75, 200])
def test_a_robust_image_costs_the_budget_and_no_more(budget: int) -> None:
    net = Pit((100.0, 0.0), 1.0)
    found = worst_pose(net, spots((8, 0), (3, 3)), torch.zeros(2, dtype=torch.int64), budget=budget)
    assert found.queries.tolist() == [budget, budget]
    assert net.seen == 2 * budget
    assert not bool(found.fooled.any())
    assert found.counts == SuccessRate(2, 2, 0, 2)


def test_what_is_wrong_as_it_is_costs_one_query() -> None:
    net = Pit((8.0, 0.0), 1.0)
    found = worst_pose(net, spots((8, 0), (-8, 0)), torch.zeros(2, dtype=torch.int64), budget=5)
    assert found.queries.tolist() == [1, 5]
    assert found.poses[0] == Pose()
    assert found.recognised.tolist() == [False, True]
    assert found.counts.n_clean_correct == 1


@pytest.mark.parametrize("defense", ["jpeg", "bitdepth", "resize-pad", "randmix"])
def test_a_network_behind_a_defence(defense: str) -> None:
    clf = whorl.Classifier.from_module(small_net(), size=18, mean=(0.5,) * 3, std=(0.5,) * 3, name="small")
    defended = whorl.load_defense(defense, clf)
    x = random_images(4)
    found = worst_pose(defended, x, clf(x).argmax(1), budget=12)
    seen = torch.cat([pose.apply(x[i : i + 1]) for i, pose in enumerate(found.poses)])
    assert torch.equal(defended(seen).argmax(1) != clf(x).argmax(1), found.fooled)
    assert torch.equal(defended(x).argmax(1) == clf(x).argmax(1), found.recognised)


def test_an_image_does_not_depend_on_the_others() -> None:
    net, x = small_net(), random_images(5, 3, 20, 20)
    y = net(x).argmax(1).detach()
    together = worst_pose(net, x, y, budget=90, batch_size=7)
    alone = [worst_pose(net, x[i : i + 1], y[i : i + 1], ids=[str(i)], budget=90) for i in range(5)]
    added = alone[0] + alone[1] + alone[2] + alone[3] + alone[4]
    assert added.ids == together.ids
    assert added.queries.tolist() == together.queries.tolist()
    assert added.fooled.tolist() == together.fooled.tolist()
    for one, other in zip(added.poses, together.poses, strict=True):
        assert one.numbers == pytest.approx(other.numbers, abs=1e-6)


def test_all_poses_lie_in_the_box_and_what_has_no_range_stays() -> None:
    box = RandomAffine(angle=0, scale=(1, 1), shift=12, shear=15, tilt=20, brightness=0.1, contrast=(0.5, 1), blur=2)
    seen: list[Pose] = []
    for left in ((100.0, 0.0), (-100.0, 3.0)):
        seen += worst_pose(Pit(left, 1.0), spots((8, 0), (0, -4)), torch.zeros(2, dtype=torch.int64), box=box).poses
    for pose in seen:
        for value, number in zip(pose.numbers, NUMBERS, strict=True):
            low, high = box.ranges[number.name]
            assert low - 1e-12 <= value <= high + 1e-12, (number.name, value)
    assert {pose.angle for pose in seen} == {0}
    assert any(pose.tilt != (0, 0) for pose in seen)


def test_a_box_of_one_pose_is_the_image_as_it_is() -> None:
    still = RandomAffine(angle=0, scale=(1, 1), shift=0)
    found = worst_pose(Pit((100.0, 0.0), 1.0), spots((8, 0)), LABELS, box=still)
    assert found.queries.tolist() == [1]


def test_it_is_public_and_takes_adversarial_images() -> None:
    net, x = small_net(), random_images(2, 3, 16, 16)
    y = net(x).argmax(1).detach()
    adversarial = whorl.attack("fgsm", eps=0.3)(net, x, y)
    assert whorl.worst_pose(net, adversarial, y, budget=3).ids == ("0", "1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0}, "budget must be a whole number >= 1; got 0"),
        ({"y": torch.tensor([5])}, r"labels must lie in \[0, 1\]"),
        ({"x": torch.ones(1, 1, SIDE, SIDE) * 255}, "must lie in"),
        ({"model": lambda x: torch.full((len(x), 2), torch.nan)}, "must return finite logits"),
        ({"ids": ["a", "b"]}, "one id per image"),
    ],
    ids=["budget", "labels", "images", "nan", "ids"],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    given = {"model": Pit((0.0, 0.0), 1.0), "x": spots((8, 0)), "y": LABELS} | change
    with pytest.raises(WhorlError, match=message):
        worst_pose(**given)  # type: ignore[arg-type]  # that is the point


def test_coarse_points_hold_the_corners_and_reach_every_face() -> None:
    points = coarse_points(4, 72)
    assert points.shape == (72, 4)
    assert {tuple(row) for row in points[:16].tolist()} == set(product((0.0, 1.0), repeat=4))
    inner = points[16:]
    assert bool(((inner == 0) | (inner == 1)).any(0).all())
    assert bool(((inner > 0.25) & (inner < 0.75)).any(0).all())
    assert coarse_points(9, 40).shape == (40, 9)
    assert spread_points(3, 5, 2).tolist() == spread_points(3, 7)[2:].tolist()


def test_refinement_stays_near_the_best_and_comes_nearer() -> None:
    from whorl.evaluation.pose_search import _Tried

    points = torch.tensor([[[0.5, 0.5], [0.1, 0.9], [0.9, 0.9]]], dtype=torch.float64)
    known = _Tried(points, torch.tensor([[3.0, 1.0, 2.0]]))
    far, near = ((refined(known, at, 3, 73) - points[:, [0, 2, 1]]).abs().amax() for at in (0.0, 1.0))
    assert near < far / 3
