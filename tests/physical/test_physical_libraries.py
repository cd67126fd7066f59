"""What is needed for the physical test alone is asked for by name, and only once it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from whorl import WhorlError
from whorl.physical import libraries


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("cv2", "physical"),
        ("reportlab.pdfgen.canvas", "physical"),
        ("reportlab.lib.utils", "physical"),
        ("pypdfium2", "physical"),
        ("pillow_heif", "heic"),
    ],
)
def test_a_missing_library_names_its_extra(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(WhorlError, match=rf"whorl\[{extra}\]"):
        libraries.library(module)


def test_an_opencv_without_markers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", object())
    with pytest.raises(WhorlError, match=r"4\.8"):
        libraries.opencv()


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    heavy = ("cv2", "reportlab", "pypdfium2", "pillow_heif")
    code = f"import sys, whorl.cli.physical; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
