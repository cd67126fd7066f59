"""The training report."""

from __future__ import annotations

import re
from pathlib import Path

from whorl.hardening.report import write_training_report


def test_the_report_needs_no_network_and_escapes_names(tmp_path: Path) -> None:
    history = [
        {"step": 1.0, "loss": 2.0, "clean": 0.5, "transfer": 0.25},
        {"step": 2.0, "loss": 1.0, "clean": 0.75, "transfer": 0.5, "held_out": 64.0},
    ]
    path = tmp_path / "report.html"
    write_training_report(path, name="<b>mine</b>", history=history, about={"recipe": "a < b"}, seconds=3.0)
    page = path.read_text(encoding="utf-8")
    assert "<b>mine</b>" not in page
    assert "a &lt; b" in page
    assert "Accuracy on 64 held-out images at the end: clean: 75.0%" in page
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(?:https?:)?//", page)
    curves = re.findall(r'"name":"([^"]+)"', page)
    assert "clean" in curves
    assert any("MIM" in name for name in curves)
    write_training_report(path, name="none", history=[], about={}, seconds=0.0)
    assert "No measurements yet" in path.read_text(encoding="utf-8")
