"""Where pixels go: affine and projective warps, polar warps and their inverse, and the kernels that blur over them."""

from whorl.geometry.affine import affine
from whorl.geometry.kernels import blur, gaussian_kernel, uniform_kernel
from whorl.geometry.photometry import adjust, defocus
from whorl.geometry.polar import from_polar, to_polar
from whorl.geometry.projection import project

__all__ = [
    "adjust",
    "affine",
    "blur",
    "defocus",
    "from_polar",
    "gaussian_kernel",
    "project",
    "to_polar",
    "uniform_kernel",
]
