"""Libraries that only the physical test needs, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from whorl.errors import WhorlError, missing_extra


def opencv() -> Any:
    """OpenCV: markers, homographies, image processing."""
    module = _needed("cv2", "opencv-python-headless", "physical")
    if not hasattr(module, "aruco"):
        raise WhorlError("OpenCV is here without its marker detector. Install opencv-python-headless 4.8 or later.")
    return module


def reportlab_canvas() -> Any:
    """The module of reportlab that draws PDF pages."""
    return _needed("reportlab.pdfgen.canvas", "reportlab", "physical")


def reportlab_utils() -> Any:
    """The module of reportlab that reads images."""
    return _needed("reportlab.lib.utils", "reportlab", "physical")


def pdfium() -> Any:
    """PDF pages to pixels."""
    return _needed("pypdfium2", "pypdfium2", "physical")


def heif() -> Any:
    """Photographs as some phones save them."""
    return _needed("pillow_heif", "pillow-heif", "heic")


def _needed(module: str, package: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_extra("the physical test", package, extra=extra) from error
