"""Figures for papers: two widths, no title, nothing cut off, vectors, and colours that everybody tells apart."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from browser import chromium
from report.made_up import grid_cells
from whorl.report.charts import COLOURS, PAIR
from whorl.report.content import Drawing
from whorl.report.export import save_charts, titled
from whorl.report.figures import drawings
from whorl.report.print_style import PIXELS, WIDTHS, for_print

CELLS = grid_cells(attacks=("dim", "ti-dim", "ai-dim"), targets=("net-a", "a_network_with_a_long_name+jpeg"))
BY_KIND = {one.kind: one for one in reversed(drawings(CELLS))}


@pytest.mark.parametrize("one", BY_KIND.values(), ids=list(BY_KIND))
def test_a_figure_for_print_has_its_width_small_type_and_no_title(one: Drawing) -> None:
    before = json.loads(one.figure.to_json())
    for width, inches in WIDTHS.items():
        made = for_print(titled(one), width)
        assert made.layout.width == round(inches * PIXELS)
        assert made.layout.title.text is None
        assert made.layout.font.size == pytest.approx(8 * 96 / 72, abs=0.01)
        assert [trace.name for trace in made.data] == [trace.name for trace in one.figure.data]
    assert json.loads(one.figure.to_json()) == before


def test_pages_are_as_large_as_the_figure_with_nothing_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its background reaches all four edges, every word is there, and nothing of it is pixels."""
    pytest.importorskip("kaleido", reason="kaleido is not installed; it is part of torchwhorl[figures]")
    pdfium = pytest.importorskip("pypdfium2", reason="pypdfium2 is part of torchwhorl[physical]")
    monkeypatch.setenv("BROWSER_PATH", chromium())
    figures = {}
    for width in WIDTHS:
        made = for_print(BY_KIND["overview"].figure, width)
        made.update_layout(paper_bgcolor="red")
        figures[tmp_path / f"{width}.pdf"] = made
    for path, inches in zip(save_charts(figures), WIDTHS.values(), strict=True):
        with pdfium.PdfDocument(path) as document:
            assert len(document) == 1
            page = document[0]
            assert page.get_width() / 72 == pytest.approx(inches, abs=0.02)
            assert not list(page.get_objects(filter=[3]))  # FPDF_PAGEOBJ_IMAGE
            assert "success rate (%)" in page.get_textpage().get_text_bounded()
            assert "target" in page.get_textpage().get_text_bounded()
            pixels = np.asarray(page.render(scale=2).to_pil().convert("RGB"))
        for edge_pixels in (pixels[2], pixels[-4], pixels[:, 2], pixels[:, -4]):
            assert (edge_pixels == (255, 0, 0)).all(1).mean() > 0.9


def lab(colour: str, vision: str) -> np.ndarray:
    """CIE L*a*b* of a colour as people of a vision see it (Machado et al. 2009, severity 1)."""
    matrices = {
        "full": np.eye(3),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    }
    levels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(matrices[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", ["full", "protan", "deutan", "tritan"])
def test_colours_differ_for_every_vision(vision: str) -> None:
    for one, other in (*combinations(COLOURS[:5], 2), PAIR):
        assert math.dist(lab(one, vision), lab(other, vision)) > 12, (one, other)
