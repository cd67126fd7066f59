"""Where pixels go: affine warps, polar warps and their inverse, and the kernels that blur over them."""

from whorl.geometry.affine import affine
from whorl.geometry.kernels import blur, gaussian_kernel, uniform_kernel
from whorl.geometry.polar import from_polar, to_polar

__all__ = ["affine", "blur", "from_polar", "gaussian_kernel", "to_polar", "uniform_kernel"]
