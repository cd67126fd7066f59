"""The PDF: exact in place, lossless in its images, and the same bytes for the same sheet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from physical.printed_run import page, sheet
from whorl import WhorlError
from whorl.data.image_files import decode
from whorl.physical.codes import modules_of
from whorl.physical.layout import DOT, PATCHES, Box
from whorl.physical.libraries import library
from whorl.physical.pdf import render_pdf, write_pdf


def cut(box: Box, dpi: int = 600) -> np.ndarray:
    left, top, width, high = (round(length / DOT) * dpi // 300 for length in (box.left, box.top, box.width, box.height))
    return page(float(dpi))[top : top + high, left : left + width]


def test_images_are_printed_without_loss() -> None:
    for item in sheet().prints:
        pixels = decode(item.file, size=item.size).repeat(4, axis=0).repeat(4, axis=1)  # four dots of 600 an inch
        np.testing.assert_array_equal(cut(sheet().box(item)), pixels)


@pytest.mark.parametrize("dpi", [300, 600])
def test_markers_are_where_they_are_said_to_be(dpi: int) -> None:
    for item in sheet().prints[:4]:
        for box, code in zip(sheet().layout.markers(item.place), sheet().codes(item), strict=True):
            dots = cut(box, dpi)
            size = dots.shape[0] // 9
            assert size == dpi / 300 * round(box.width / DOT / 9)
            expected = 255 * modules_of(code).repeat(size, axis=0).repeat(size, axis=1)
            # A hairline of overlap between light modules aside.
            assert np.abs(dots[..., 0].astype(int) - expected).mean() < 2


def test_patches_have_their_colours() -> None:
    for strip in sheet().layout.strips():
        for box, colour in zip(strip, PATCHES, strict=True):
            middle = cut(box)[10:-10, 10:-10].reshape(-1, 3)
            np.testing.assert_array_equal(middle, np.broadcast_to(colour, middle.shape))


def test_margins_are_white() -> None:
    dots = int(sheet().layout.margin / DOT) * 2 - 2
    whole = page(600.0)
    for edge in (whole[:dots], whole[-dots:], whole[:, :dots], whole[:, -dots:]):
        assert (edge == 255).all()


def test_the_page_is_a4_and_the_file_always_the_same(tmp_path: Path) -> None:
    for name in ("one.pdf", "two.pdf"):
        write_pdf(sheet(), tmp_path / name)
    assert (tmp_path / "one.pdf").read_bytes() == (tmp_path / "two.pdf").read_bytes()
    document = library("pypdfium2").PdfDocument(tmp_path / "one.pdf")
    millimetres = np.array(document[0].get_size()) / 72 * 25.4
    np.testing.assert_allclose(millimetres, (210, 297), atol=0.05)
    [pixels] = render_pdf(tmp_path / "one.pdf", dpi=300)
    assert pixels.shape == (3508, 2480, 3)
    words = document[0].get_textpage().get_text_range()
    assert f"sheet {sheet().name}" in words
    assert "page 1 of 1" in words


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WhorlError, match="cannot write"):
        write_pdf(sheet(), tmp_path / "file" / "sheet.pdf")
