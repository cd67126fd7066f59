"""The two balls: what projecting, stepping and drawing do, image by image."""

from __future__ import annotations

import pytest
import torch

import whorl
from whorl.attacks.norms import NORMS, column, find_norm, l2_size, per_image, radius_faults, unit
from whorl.errors import SettingsError, WhorlError
from whorl.randomness import image_keys

EPS = torch.tensor([0.1, 0.2, 0.3]).reshape(-1, 1, 1, 1)


@pytest.mark.parametrize("name", NORMS)
def test_a_projection_stays_in_the_ball_and_the_range_and_moves_nothing_that_is_there(name: str) -> None:
    norm, generator = find_norm(name), torch.Generator().manual_seed(0)
    x = torch.rand(3, 3, 8, 8, generator=generator)
    project = norm.ball(x, EPS)
    z = project(x + torch.randn(x.shape, generator=generator))
    assert (
        (norm.size(z - x) <= EPS.flatten() + 1e-6) & (z.flatten(1).amin(1) >= 0) & (z.flatten(1).amax(1) <= 1)
    ).all()
    torch.testing.assert_close(project(z), z)


@pytest.mark.parametrize("name", NORMS)
def test_the_steepest_step_is_of_norm_1_and_climbs(name: str) -> None:
    norm, g = find_norm(name), torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    step = norm.steepest(g)
    torch.testing.assert_close(norm.size(step), torch.ones(3))
    assert ((step * g).sum(dim=(1, 2, 3)) > 0).all()


@pytest.mark.parametrize("name", NORMS)
def test_draws_fill_the_ball_and_belong_to_their_image(name: str) -> None:
    norm, x = find_norm(name), torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    keys = image_keys(x, 0, ["a", "b", "c"])
    drawn = norm.random(x, keys, EPS)
    assert (norm.size(drawn) <= EPS.flatten() + 1e-6).all()
    assert (norm.size(drawn) > 0.5 * EPS.flatten()).all()  # in so many dimensions nearly all of a ball is near its rim
    torch.testing.assert_close(norm.random(x[1:2], keys[1:2], EPS[1:2])[0], drawn[1])


def test_zero_has_no_direction() -> None:
    assert not unit(torch.zeros(2, 3, 4, 4)).any()
    assert l2_size(torch.full((1, 1, 2, 2), 0.5)).tolist() == [1.0]
    assert column(torch.ones(5, 2)).shape == (5, 2, 1, 1, 1)


def test_an_image_is_reduced_alike_alone_and_in_a_batch() -> None:
    v = torch.randn(5, 3, 63, 65, generator=torch.Generator().manual_seed(1))
    together = per_image(lambda one: one.sum(dim=(1, 2, 3)), v)
    alone = torch.cat([per_image(lambda one: one.sum(dim=(1, 2, 3)), v[i : i + 1]) for i in range(5)])
    assert torch.equal(together, alone)


def test_a_ball_that_holds_every_image_is_a_slip() -> None:
    assert not radius_faults(1.0, "linf")
    assert not radius_faults(16, "l2")
    assert "16/255" in str(radius_faults((0.1, 16), "linf")[0])
    for name in ("pgd", "nes"):
        with pytest.raises(SettingsError, match="did you mean 8/255"):
            whorl.attack(name, eps=8)
        with pytest.raises(SettingsError) as told:
            whorl.attack(name, eps=8, norm="l1")
        assert [fault.place for fault in told.value.faults] == [("norm",)]


def test_a_norm_that_is_none() -> None:
    with pytest.raises(WhorlError, match="A norm is 'linf' or 'l2'"):
        find_norm("l1")
