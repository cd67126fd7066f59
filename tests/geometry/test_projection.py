"""Any linear map, tilted and seen in perspective, against the camera written out pixel by pixel, and against OpenCV."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from reference import noise
from whorl import WhorlError, affine
from whorl.geometry import project
from whorl.geometry.projection import VIEWING_DISTANCE

Pair = tuple[float, float]
MATRICES = {
    "identity": ((1.0, 0.0), (0.0, 1.0)),
    "shear": ((1.0, 0.4), (0.0, 1.0)),
    "stretch": ((1.6, 0.0), (0.0, 0.7)),
    "mirror": ((-1.0, 0.0), (0.0, 1.0)),
    "any": ((0.8, -0.5), (0.3, 1.3)),
}


def literal(x: reference.Array, matrix: tuple[Pair, Pair], shift: Pair, tilt: Pair) -> reference.Array:
    """Follow each pixel's ray to the tilted plane in three dimensions: right, down, away from the camera."""
    height, width = x.shape[-2:]
    distance = 2 * max(height, width)
    a, b = (math.radians(degrees) for degrees in tilt)
    about_vertical = np.array([[math.cos(a), 0, 0], [0, 1, 0], [math.sin(a), 0, 0]])  # of what lies in the plane
    about_horizontal = np.array([[1, 0, 0], [0, math.cos(b), -math.sin(b)], [0, math.sin(b), math.cos(b)]])
    placed = about_horizontal @ about_vertical  # (right, down, nothing) of the plane to space
    out = np.zeros_like(x)
    for row in range(height):
        for col in range(width):
            seen = np.array([col - (width - 1) / 2 - shift[0], row - (height - 1) / 2 - shift[1]])
            # The camera is at (0, 0, -distance); its ray goes through (seen, 0). Where is the plane hit?
            ray = np.array([*seen, distance])
            system = np.column_stack((placed[:, 0], placed[:, 1], -ray))
            if abs(np.linalg.det(system)) < 1e-12:
                continue
            p, q, along = np.linalg.solve(system, np.array([0.0, 0.0, -distance]))
            if along <= 0:
                continue  # behind the camera
            source = np.linalg.solve(np.array(matrix), np.array([p, q]))
            where = np.array((height - 1) / 2 + source[1]), np.array((width - 1) / 2 + source[0])
            out[..., row, col] = reference.bilinear(x, *where)
    return out


def tensors(matrix: tuple[Pair, Pair], shift: Pair, tilt: Pair) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(torch.tensor([value], dtype=torch.float64) for value in (matrix, shift, tilt))  # type: ignore[return-value]


def test_the_camera_is_where_the_definition_has_it() -> None:
    assert VIEWING_DISTANCE == 2


@pytest.mark.parametrize("size", [(9, 9), (7, 12), (1, 5)], ids=str)
@pytest.mark.parametrize("tilt", [(0.0, 0.0), (30.0, 0.0), (0.0, -40.0), (25.0, 50.0), (85.0, -80.0)], ids=str)
@pytest.mark.parametrize("name", MATRICES)
def test_equals_the_definition(name: str, tilt: Pair, size: tuple[int, int]) -> None:
    x, matrix, shift = noise(1, 2, *size), MATRICES[name], (0.7, -1.3)
    expected = literal(x.numpy(), matrix, shift, tilt)
    made = project(x, *tensors(matrix, shift, tilt))
    np.testing.assert_allclose(made.numpy(), expected, rtol=0, atol=1e-9)
    if tilt == (0, 0):
        flat = project(x, *tensors(matrix, shift, tilt)[:2])
        np.testing.assert_allclose(flat.numpy(), expected, rtol=0, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    tilt=st.tuples(st.floats(-60, 60), st.floats(-60, 60)),
    shift=st.tuples(st.floats(-4, 4), st.floats(-4, 4)),
    stretch=st.tuples(st.floats(0.4, 2.5), st.floats(0.4, 2.5)),
    shear=st.floats(-1, 1),
)
def test_equals_the_definition_for_any_parameters(tilt: Pair, shift: Pair, stretch: Pair, shear: float) -> None:
    x, matrix = noise(1, 1, 6, 7), ((stretch[0], shear), (0.0, stretch[1]))
    expected = literal(x.numpy(), matrix, shift, tilt)
    np.testing.assert_allclose(project(x, *tensors(matrix, shift, tilt)).numpy(), expected, rtol=0, atol=1e-8)


def test_opencv_warps_alike() -> None:
    cv2 = pytest.importorskip("cv2")
    x, matrix, shift, tilt = noise(1, 1, 40, 50), MATRICES["any"], (3.0, -2.0), (20.0, -30.0)
    a, b = (math.radians(degrees) for degrees in tilt)
    # Four corners through the camera, by hand, and OpenCV's own homography and warp through them.
    corners = np.array([[-24.5, -19.5], [24.5, -19.5], [24.5, 19.5], [-24.5, 19.5]])
    plane = corners @ np.array(matrix).T
    right, down = plane[:, 0] * math.cos(a), plane[:, 1] * math.cos(b) - plane[:, 0] * math.sin(a) * math.sin(b)
    away = plane[:, 1] * math.sin(b) + plane[:, 0] * math.sin(a) * math.cos(b)
    seen = np.stack((right, down), 1) * (100 / (100 + away))[:, None] + shift
    middle = np.array([24.5, 19.5])
    homography = cv2.getPerspectiveTransform((corners + middle).astype(np.float32), (seen + middle).astype(np.float32))
    expected = cv2.warpPerspective(x[0, 0].numpy(), homography, (50, 40), flags=cv2.INTER_LINEAR)
    made = project(x, *tensors(matrix, shift, tilt))[0, 0].numpy()
    # OpenCV places pixels to 1/32 only.
    assert np.abs(made - expected).mean() < 0.02
    assert np.abs(made - x[0, 0].numpy()).mean() > 0.3


def test_gradcheck_in_the_image_and_in_every_parameter() -> None:
    x = noise(2, 1, 5, 6).requires_grad_()
    matrix = torch.tensor([MATRICES["any"], MATRICES["shear"]], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.31, -0.77], [1.19, 0.43]], dtype=torch.float64, requires_grad=True)
    tilt = torch.tensor([[17.0, -8.0], [-31.0, 23.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(project, (x, matrix, shift, tilt))


def test_behind_the_horizon_there_is_nothing_and_no_nan() -> None:
    x = torch.ones(1, 1, 33, 33, dtype=torch.float64, requires_grad=True)
    tilt = torch.tensor([[0.0, 89.0]], dtype=torch.float64, requires_grad=True)
    made = project(x, torch.eye(2, dtype=torch.float64)[None] * 50, torch.zeros(1, 2, dtype=torch.float64), tilt)
    made.sum().backward()
    assert bool((made[0, 0, -1] == 0).all()), "the bottom row looks past the horizon"
    assert bool((made > 0.5).any())
    assert tilt.grad is not None
    assert bool(tilt.grad.isfinite().all())


class TestMatrixOfAffine:
    def test_by_itself_it_is_the_map(self) -> None:
        x, shift = noise(2, 3, 9, 12), (1.5, -0.5)
        for matrix in MATRICES.values():
            expected = literal(x.numpy(), matrix, shift, (0.0, 0.0))
            np.testing.assert_allclose(affine(x, shift=shift, matrix=matrix).numpy(), expected, rtol=0, atol=1e-9)

    def test_it_goes_before_rotation_and_scale(self) -> None:
        x, cos, sin = noise(1, 1, 11, 11), math.cos(math.radians(40)), math.sin(math.radians(40))
        turned = 0.8 * np.array([[cos, -sin], [sin, cos]]) @ np.array(MATRICES["shear"])
        whole = affine(x, matrix=turned.tolist())
        parts = affine(x, angle=40, scale=0.8, matrix=MATRICES["shear"])
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)

    def test_one_for_each_image(self) -> None:
        x = noise(2, 1, 8, 8)
        pair = torch.tensor([MATRICES["shear"], MATRICES["mirror"]], dtype=torch.float64)
        made = affine(x, matrix=pair)
        for i in range(2):
            torch.testing.assert_close(made[i : i + 1], affine(x[i : i + 1], matrix=pair[i]), rtol=0, atol=1e-12)

    def test_it_can_be_learned(self) -> None:
        matrix = torch.tensor(MATRICES["any"], dtype=torch.float64, requires_grad=True)
        affine(noise(1, 1, 9, 9), matrix=matrix).square().sum().backward()
        assert matrix.grad is not None
        assert bool((matrix.grad != 0).all())

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            ([[1, 2], [2, 4]], "must have an inverse"),
            ([[math.nan, 0], [0, 1]], "must have an inverse"),
            ([[1, 0, 0], [0, 1, 0]], "must be 2 x 2 numbers"),
            (torch.ones(3, 2, 2), r"or \(2, 2, 2\); got \(3, 2, 2\)"),
        ],
        ids=["singular", "nan", "2 x 3", "another batch"],
    )
    def test_what_is_no_matrix_is_refused(self, matrix: object, message: str) -> None:
        with pytest.raises(WhorlError, match=message):
            affine(torch.ones(2, 1, 4, 4), matrix=matrix)  # type: ignore[arg-type]  # that is the point
