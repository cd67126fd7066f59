"""Libraries that only the physical test needs, imported where they are used."""

from __future__ import annotations

from typing import Any

from whorl.errors import WhorlError, imported

_PACKAGES = {
    "cv2": ("opencv-python-headless", "physical"),
    "reportlab": ("reportlab", "physical"),
    "pypdfium2": ("pypdfium2", "physical"),
    "pillow_heif": ("pillow-heif", "heic"),
}
"""By module: the package that has it, and the extra of whorl that brings the package."""


def library(module: str) -> Any:
    """Import a module, such as "reportlab.lib.utils"; where it is missing, say which extra brings it."""
    package, extra = _PACKAGES[module.partition(".")[0]]
    return imported(module, "the physical test", package=package, extra=extra)


def opencv() -> Any:
    """OpenCV: markers, homographies, image processing."""
    module = library("cv2")
    if not hasattr(module, "aruco"):
        raise WhorlError("OpenCV is here without its marker detector. Install opencv-python-headless 4.8 or later.")
    return module
