"""affine: the paper's M_t·M_q, against the pixel-by-pixel definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from reference import noise
from whorl.errors import WhorlError
from whorl.geometry import affine


def blob(height: int, width: int) -> Tensor:
    """Lopsided, smooth and nothing but zeros (to 1e-6) near the border."""
    down, right = np.meshgrid(np.arange(height) - height / 2, np.arange(width) - width / 2, indexing="ij")
    spot = np.exp(-((right - 3) ** 2 + (down + 2) ** 2) / 32) - 0.5 * np.exp(-((right + 4) ** 2 + (down - 3) ** 2) / 18)
    return torch.from_numpy(spot)[None, None]


PARAMETERS = [
    (0.0, 1.0, (0.0, 0.0)),
    (30.0, 1.0, (0.0, 0.0)),
    (-137.0, 1.0, (0.0, 0.0)),
    (0.0, 0.5, (0.0, 0.0)),
    (0.0, 1.7, (0.0, 0.0)),
    (0.0, 1.0, (2.0, -1.0)),
    (0.0, 1.0, (-0.25, 0.4)),
    (25.0, 0.7, (2.0, 1.5)),
    (-400.0, 1.3, (-3.3, 0.2)),
    (10.0, 1.0, (40.0, 0.0)),  # everything leaves the image
]


@pytest.mark.parametrize("size", [(12, 12), (9, 14), (14, 9), (1, 1), (1, 6)], ids=str)
@pytest.mark.parametrize(("angle", "scale", "shift"), PARAMETERS)
def test_equals_the_definition(size: tuple[int, int], angle: float, scale: float, shift: tuple[float, float]) -> None:
    x = noise(2, 3, *size)
    expected = reference.affine(x.numpy(), angle, scale, shift)
    np.testing.assert_allclose(affine(x, angle, scale, shift).numpy(), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(affine(x.float(), angle, scale, shift).numpy(), expected, rtol=0, atol=3e-5)


@settings(max_examples=30, deadline=None)
@given(
    angle=st.floats(-360, 360),
    scale=st.floats(0.25, 4),
    shift=st.tuples(st.floats(-5, 5), st.floats(-5, 5)),
    seed=st.integers(0, 1000),
)
def test_equals_the_definition_for_any_parameters(
    angle: float, scale: float, shift: tuple[float, float], seed: int
) -> None:
    x = noise(1, 1, 6, 7, seed=seed)
    expected = reference.affine(x.numpy(), angle, scale, shift)
    np.testing.assert_allclose(affine(x, angle, scale, shift).numpy(), expected, rtol=0, atol=1e-10)


def test_default_is_the_identity() -> None:
    x = noise(2, 3, 10, 13)
    assert torch.allclose(affine(x), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("turns", [-1, 1, 2, 3])
def test_quarter_turns_are_exact_and_clockwise_on_the_screen(size: int, turns: int) -> None:
    x = noise(2, 2, size, size)
    # A positive angle carries right to down; rot90's positive k carries down to right.
    assert torch.allclose(affine(x, angle=90.0 * turns), torch.rot90(x, -turns, (2, 3)), rtol=0, atol=1e-12)


def test_a_quarter_turn_carries_the_pixel_on_the_right_to_the_bottom() -> None:
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 2, 4] = 1
    moved = affine(x, angle=90)
    assert moved[0, 0, 4, 2] == pytest.approx(1, abs=1e-5)
    assert moved.abs().sum() == pytest.approx(1, abs=1e-4)


def test_shift_is_right_then_down() -> None:
    x = torch.zeros(1, 1, 6, 8)
    x[0, 0, 2, 3] = 1
    moved = affine(x, shift=(3, 1))
    assert moved[0, 0, 3, 6] == pytest.approx(1, abs=1e-5)
    assert moved.abs().sum() == pytest.approx(1, abs=1e-4)


def test_a_larger_scale_enlarges() -> None:
    x = torch.zeros(1, 1, 21, 21)
    x[0, 0, 10, 12] = 1
    enlarged = affine(x, scale=3.0)[0, 0]
    assert enlarged[10, 16] == pytest.approx(1, abs=1e-5)
    assert enlarged.sum() == pytest.approx(9, abs=1e-3)


def test_shift_comes_after_rotation_and_scaling() -> None:
    x = noise(1, 2, 20, 20)
    both = affine(x, angle=25, scale=0.5, shift=(3, -2))
    stepwise = affine(affine(x, angle=25, scale=0.5), shift=(3, -2))
    assert torch.allclose(both, stepwise, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("angle", "scale", "shift"), [(20, 1.0, (0, 0)), (0, 1.4, (0, 0)), (-35, 1.2, (3.5, -2.25))])
def test_the_inverse_transform_undoes_it(angle: float, scale: float, shift: tuple[float, float]) -> None:
    x = blob(64, 72)
    # p = R(-θ)(p' - t)/s, that is scale 1/s, angle -θ and shift -R(-θ)t/s.
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    back = (-(cos * shift[0] + sin * shift[1]) / scale, -(-sin * shift[0] + cos * shift[1]) / scale)
    there = affine(x, angle, scale, shift)
    again = affine(there, -angle, 1 / scale, back)
    assert (again - x).norm() < 0.03 * x.norm()
    assert (there - x).norm() > 0.3 * x.norm()


def test_parameters_may_differ_per_image() -> None:
    x = noise(3, 2, 9, 11)
    angle = torch.tensor([0.0, 33.0, -90.0], dtype=torch.float64)
    scale = torch.tensor([1.3, 0.6, 1.0], dtype=torch.float64)
    shift = torch.tensor([[0.5, 1.0], [-2.0, 0.3], [0.0, 0.0]], dtype=torch.float64)
    together = affine(x, angle, scale, shift)
    for i in range(3):
        alone = reference.affine(
            x[i].numpy(), float(angle[i]), float(scale[i]), (float(shift[i, 0]), float(shift[i, 1]))
        )
        np.testing.assert_allclose(together[i].numpy(), alone, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["angle", "scale", "shift"])
def test_one_parameter_per_image_mixes_with_plain_numbers(name: str) -> None:
    x = noise(2, 1, 8, 8)
    plain: dict[str, list[object]] = {
        "angle": [20.0, 20.0],
        "scale": [0.8, 0.8],
        "shift": [(1.0, 0.5), (1.0, 0.5)],
    }
    plain[name] = {"angle": [15.0, -70.0], "scale": [0.7, 1.9], "shift": [(1.0, 0.5), (-2.0, 0.25)]}[name]  # type: ignore[assignment]
    arguments = {key: values[0] for key, values in plain.items()}
    arguments[name] = torch.tensor(plain[name], dtype=torch.float64)
    together = affine(x, **arguments)  # type: ignore[arg-type]
    for i in range(2):
        alone = affine(x[i : i + 1], **{key: values[i] for key, values in plain.items()})  # type: ignore[arg-type]
        assert torch.allclose(together[i : i + 1], alone, rtol=0, atol=1e-11)


def test_gradcheck_in_the_image_and_in_every_parameter() -> None:
    x = noise(2, 2, 5, 6).requires_grad_()
    angle = torch.tensor([17.3, -41.9], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.83, 1.37], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.31, -0.77], [1.19, 0.43]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(affine, (x, angle, scale, shift))


@pytest.mark.parametrize("name", ["angle", "scale", "shift"])
def test_a_parameter_alone_can_be_learned(name: str) -> None:
    x = blob(24, 24)
    values = {"angle": [12.0], "scale": [0.9], "shift": [[0.3, 0.6]]}
    parameter = torch.tensor(values[name], dtype=torch.float64, requires_grad=True)
    (affine(x, **{name: parameter}) * noise(1, 1, 24, 24)).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.isfinite().all()
    assert (parameter.grad != 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_keeps_the_dtype(dtype: torch.dtype) -> None:
    x = noise(1, 2, 40, 40).clamp(-1, 1).to(dtype)
    out = affine(x, 20.0, 0.9, (1.0, 2.5))
    exact = affine(x.double(), 20.0, 0.9, (1.0, 2.5))
    assert out.dtype == dtype
    # Only the result may be rounded: coordinates in half precision would be off by whole hundredths of a pixel.
    assert (out.double() - exact).abs().max() <= 1.01 * torch.finfo(dtype).eps + 2e-5


@pytest.mark.parametrize("layout", ["channels_last", "sliced", "expanded"])
def test_memory_layout_does_not_matter(layout: str) -> None:
    x = noise(2, 3, 8, 9)
    same = {
        "channels_last": x.to(memory_format=torch.channels_last),
        "sliced": torch.stack((x, -x), dim=-1)[..., 0],
        "expanded": x[:1].expand(2, -1, -1, -1),
    }[layout]
    assert torch.equal(affine(same, 31.0, 1.2, (0.5, 1.0)), affine(same.contiguous(), 31.0, 1.2, (0.5, 1.0)))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, torch.tensor([1.0, 0.0]), torch.tensor([1.0, -2.0])])
def test_a_scale_that_is_not_positive_is_refused(scale: float | Tensor) -> None:
    with pytest.raises(WhorlError, match="scale"):
        affine(torch.ones(2, 1, 4, 4), scale=scale)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": torch.ones(3, 8, 8)},
        {"x": torch.ones(2, 3, 8, 8, dtype=torch.uint8)},
        {"x": torch.ones(2, 3, 8, 8), "angle": torch.zeros(3)},
        {"x": torch.ones(2, 3, 8, 8), "scale": torch.ones(3)},
        {"x": torch.ones(2, 3, 8, 8), "shift": torch.zeros(2, 3)},
    ],
    ids=["three axes", "integers", "angles of another batch", "scales of another batch", "three shifts"],
)
def test_wrong_shapes_are_refused(arguments: dict[str, Tensor]) -> None:
    with pytest.raises(WhorlError):
        affine(**arguments)
