"""Plane to plane: 3 × 3 matrices that take points (right, down) of one to those of the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whorl.physical.layout import Box
from whorl.physical.libraries import opencv

Matrix = NDArray[np.float64]


def project(matrix: Matrix, points: NDArray[Any]) -> NDArray[np.float64]:
    """Take points through a homography.

    Args:
        matrix: (3, 3).
        points: (..., 2).

    Returns:
        (..., 2).

    >>> project(np.diag([2.0, 2.0, 1.0]), np.array([[1.0, 3.0]]))
    array([[2., 6.]])
    """
    points = np.asarray(points, np.float64)
    x, y = points[..., 0], points[..., 1]
    below = matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2]
    right = (matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2]) / below
    down = (matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2]) / below
    return np.stack((right, down), axis=-1)


def within(points: NDArray[Any], shape: tuple[int, ...]) -> bool:
    """Tell whether all points, (..., 2), lie in a photograph of a shape, (H, W, ...).

    >>> within(np.array([[0, 0], [4, 2]]), (3, 5)), within(np.array([[0, 3]]), (3, 5))
    (True, False)
    """
    return bool((points >= 0).all() and (points <= (shape[1] - 1, shape[0] - 1)).all())


def fit(points: NDArray[Any], images: NDArray[Any], *, outliers: float | None = None) -> Matrix | None:
    """Find the homography between matching points, by least squares.

    Args:
        points: (N, 2), four at least.
        images: (N, 2), where each goes.
        outliers: distance from which on a point is taken for a mistake and left out; None trusts all.

    Returns:
        (3, 3), or None if the points determine none.
    """
    cv2 = opencv()
    method = 0 if outliers is None else cv2.RANSAC
    given = np.asarray(points, np.float64), np.asarray(images, np.float64)
    matrix, _ = cv2.findHomography(*given, method, outliers or 0)
    return None if matrix is None else np.asarray(matrix, np.float64)


def jacobian(matrix: Matrix, point: NDArray[Any]) -> Matrix:
    """Give the linear map that a homography is near one point: (2, 2)."""
    below = float(matrix[2] @ (*point, 1.0))
    there = project(matrix, np.asarray(point))
    return (matrix[:2, :2] - np.outer(there, matrix[2, :2])) / below


def pixels_to_box(box: Box, size: tuple[int, int]) -> Matrix:
    """Take an image's pixels to millimetres on paper.

    Args:
        box: where the image is printed.
        size: (height, width) of the image; centres of pixels are whole numbers.

    Returns:
        (3, 3).

    >>> project(pixels_to_box(Box(10, 20, 30, 30), (3, 3)), np.array([[0, 0], [2, 2]]))
    array([[15., 25.],
           [35., 45.]])
    """
    height, width = size
    across, down = box.width / width, box.height / height
    return np.array([[across, 0, box.left + across / 2], [0, down, box.top + down / 2], [0, 0, 1]])
