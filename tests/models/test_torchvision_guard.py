from __future__ import annotations

import subprocess
import sys

import pytest

from whorl.errors import WhorlError
from whorl.models import _torchvision


def test_importing_is_repeatable() -> None:
    assert _torchvision.torchvision() is _torchvision.torchvision() is sys.modules["torchvision"]
    assert _torchvision.timm() is sys.modules["timm"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(WhorlError, match="pip install timm"):
        _torchvision.timm()


def test_the_package_needs_torch_and_numpy_alone() -> None:
    heavy = ["timm", "torchvision", "safetensors", "onnxruntime", "filelock", "platformdirs", "rich", "PIL"]
    # None makes every import of it fail.
    code = f"import sys, torch; sys.modules.update(dict.fromkeys({heavy})); import whorl.models as m; m.model_names()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
