"""The one place that imports torchvision and timm.

torchvision's compiled operators load only beside the torch build they were compiled for. Where they cannot (say, the
default torchvision wheel beside a CPU-only torch), its import dies because it describes detection operators that were
never declared. whorl uses none of them, so declaring their signatures is enough for torchvision, and for timm, which
imports it, to work.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from whorl.errors import imported

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_MISSING = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # torch forgets an operator once its library object is collected


def torchvision() -> ModuleType:
    """Return the torchvision package, declaring its missing operators first if it cannot be imported without."""
    try:
        return _load("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    # The failed import leaves submodules behind that no longer belong to any package.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    _declared.append(library)
    for operator in _MISSING:
        if not hasattr(torch.ops.torchvision, operator):
            library.define(operator + _SIGNATURE)
    return _load("torchvision")


def is_repaired() -> bool:
    """Whether torchvision works because its operators were declared here; elsewhere its import fails."""
    return bool(_declared)


def timm() -> ModuleType:
    """Return the timm package."""
    torchvision()
    return _load("timm")


def _load(package: str) -> ModuleType:
    loaded: ModuleType = imported(package, "this model")
    return loaded
