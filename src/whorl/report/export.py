"""Figures and galleries as files for papers.

Figures are drawn by a browser, which may be missing, fail, or never answer; galleries by Pillow alone.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image, ImageDraw, ImageFont

from whorl.errors import WhorlError, imported, reason
from whorl.files import atomic_write, write_file, writing
from whorl.progress import Progress, silent
from whorl.report.charts import FAINT, FOOLED, INK, RECOGNISED, figure_text
from whorl.report.content import Content, Drawing
from whorl.report.figures import drawings
from whorl.report.gallery import Example, Gallery, Tile
from whorl.report.print_style import WIDTHS, for_print

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FORMATS = ("png", "pdf", "svg")
WIDTH, SURFACE_WIDTH = 760, 820
PATIENCE = 90.0
"""Seconds for the browser to start, or to draw one figure, which takes it a second or two."""
FAREWELL = 10.0
"""Seconds for it to end by itself, before it is ended."""
TRIES = 2
"""How many browsers are started, one after the other, if none answers: a busy machine may have held up the first."""
_SCALE = 3  # pixels of a PNG for each of the layout's: about 300 dots an inch at the width of a column
FOR_PAPER: tuple[str, ...] = ("png", "pdf")

Place = tuple[int, int]

SIDE, FRAME, GAP, CAPTION, GUTTER, MARGIN, HEADING, LINE = 172, 5, 12, 25, 84, 24, 34, 22
PAPER = "#ffffff"
_SHEET: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "optimize": True},
    "pdf": {"format": "PDF", "resolution": 150, "quality": 95},
}

Answer = TypeVar("Answer")


def save_figures(
    folder: str | Path, content: Content, formats: Sequence[str] = FOR_PAPER, *, progress: Progress = silent
) -> list[Path]:
    """Write every figure of a report, and every gallery, as files.

    Figures are drawn by a browser without a window, a second or two each. A PNG is for screens, with its title. A PDF
    or an SVG is for papers, in two widths (``NAME-column.pdf``, ``NAME-page.pdf``) and without a title; see
    ``whorl.report.print_style``. Lines and words stay sharp at any size there; surfaces are pixels all the same.
    Galleries are pixels, and become no SVG.

    Args:
        folder: where to; made if it is not there.
        content: the report.
        formats: any of "png", "pdf" and "svg"; PNG and PDF by default.
        progress: called with each file.

    Returns:
        The files, figures first, in the report's order.

    Raises:
        WhorlError: an unknown format, kaleido or a browser is missing, or a file cannot be written.
    """
    for name in formats:
        if name not in FORMATS:
            raise WhorlError(f"unknown format {name!r} for figures; expected some of {', '.join(FORMATS)}.")
    endings, place = tuple(dict.fromkeys(formats)), Path(folder)
    drawn = (*drawings(content.cells), *content.charts)
    contact = content.photographs.galleries if content.photographs else ()
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    figures: dict[Path, Figure] = {}
    for one, end in product(drawn, endings):
        if end == "png":
            figures[place / f"{one.name}.png"] = titled(one)
        else:
            figures |= {place / f"{one.name}-{width}.{end}": for_print(one.figure, width) for width in WIDTHS}
    written = save_charts(figures, progress=progress)
    for number, gallery in enumerate((*content.galleries, *contact), start=1):
        written += save_gallery(place / f"gallery-{number:02d}", gallery, endings)
    return written


def titled(one: Drawing) -> Figure:
    """The figure as it stands alone: with its title, on white, and as wide as a column."""
    from plotly.graph_objects import Figure

    figure = Figure(one.figure)
    title = {"text": figure_text(one.title), "x": 0.02, "xanchor": "left", "y": 0.97, "yanchor": "top"}
    figure.update_layout(
        title={**title, "font": {"size": 15}},
        paper_bgcolor="white",
        plot_bgcolor="white",
        margin={"t": figure.layout.margin.t + 40},
        height=figure.layout.height + 40,
        width=figure.layout.width or (SURFACE_WIDTH if one.kind == "surface" else WIDTH),
    )
    return figure


def save_charts(figures: Mapping[Path, Figure], *, progress: Progress = silent) -> list[Path]:
    """Draw figures in one browser, and write each as it is done; a path's ending says the format.

    Args:
        figures: by path, each with its height set; ``WIDTH`` is the width of those that have none.
        progress: called with each file.

    Returns:
        The paths.

    Raises:
        WhorlError: kaleido or a browser is missing, the browser does not answer, or a file cannot be written.
    """
    if not figures:
        return []
    kaleido = imported("kaleido", "a figure as a file", extra="figures")
    left = dict(figures)

    async def draw_all() -> None:
        # Formulas would be fetched from the network; there are none.
        browser = kaleido.Kaleido(n=1, mathjax=False, timeout=None)
        try:
            await _in_time(browser.open())
            for path, figure in list(left.items()):
                progress("drawing figures", len(figures) - len(left), len(figures))
                write_file(path, await _in_time(_drawn(browser, figure, path.suffix.removeprefix("."))))
                del left[path]
        finally:
            await _close(browser)
        progress("drawing figures", len(figures), len(figures))

    # In a thread of its own, since a notebook already runs a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        for remaining in reversed(range(TRIES)):
            try:
                pool.submit(asyncio.run, draw_all()).result()
                break
            except TimeoutError as error:
                if not remaining:
                    raise WhorlError(
                        f"figures as files are drawn by Chrome or Chromium, which was started {TRIES} times and did "
                        f"not answer within {PATIENCE:g} s. Is the machine out of memory, or very busy? "
                        f"{len(figures) - len(left)} of {len(figures)} files are written."
                    ) from error
            except RuntimeError as error:  # all that kaleido raises about a missing or failing browser is one
                raise WhorlError(
                    "figures as files are drawn by Chrome or Chromium, which could not be started "
                    f"({reason(error)}). Install one (Debian: apt install chromium; anywhere: "
                    "kaleido_get_chrome), or name its program in the environment variable BROWSER_PATH."
                ) from error
    return list(figures)


def save_gallery(stem: Path, gallery: Gallery, formats: Sequence[str] = FOR_PAPER) -> list[Path]:
    """Write a gallery as files, each of which appears whole or not at all.

    Args:
        stem: the path without its ending.
        gallery: what to draw.
        formats: "png" and "pdf", both by default; others are left out.

    Returns:
        The files.

    Raises:
        WhorlError: a file cannot be written.
    """
    sheet, written = draw_sheet(gallery), []
    for ending in (name for name in formats if name in _SHEET):
        path = stem.with_name(f"{stem.name}.{ending}")
        with writing(path), atomic_write(path) as file:
            sheet.save(file, **_SHEET[ending])
        written.append(path)
    return written


def draw_sheet(gallery: Gallery, side: int = SIDE) -> Image.Image:
    """Draw the images one below the other, a row of tiles for each version of each.

    Args:
        gallery: what to draw; an example without a truth has no heading, and without a title there is no legend.
        side: of a tile in pixels. Text has one size, so that of smaller tiles stays legible on a small page.
    """
    rows = sum(len(example.rows) for example in gallery.examples)
    headings = sum(bool(example.truth) for example in gallery.examples)
    width = 2 * MARGIN + GUTTER + len(gallery.columns) * (side + GAP) - GAP
    about = _wrapped(gallery.about, 16, width - 2 * MARGIN - 260)  # the legend stands beside it
    top = MARGIN + HEADING + bool(gallery.title) * (36 + LINE * max(1, len(about)))
    height = top + MARGIN + rows * (side + CAPTION + GAP) + headings * HEADING
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    if gallery.title:
        _write(pen, (MARGIN, MARGIN), _shortened(gallery.title, 24, width - 2 * MARGIN), 24)
        for number, line in enumerate(about):
            _write(pen, (MARGIN, MARGIN + 36 + LINE * number), line, 16, FAINT)
        _legend(pen, (width - MARGIN, MARGIN + 36))
    left = MARGIN + GUTTER
    for column, heading in enumerate(gallery.columns):
        middle = left + column * (side + GAP) + side // 2
        _write(pen, (middle, top - 8), _shortened(heading, 16, side), 16, anchor="ms")
    for example in gallery.examples:
        top = _example(sheet, pen, (left, top), example, side)
    return sheet


async def _drawn(browser: Any, figure: Figure, ending: str) -> bytes:
    """Draw a figure; a PDF is its SVG printed, for kaleido's own has margins, and lacks as much on the other side."""
    size = {"width": figure.layout.width or WIDTH, "height": figure.layout.height}
    opts = {"format": "svg" if ending == "pdf" else ending, "scale": _SCALE if ending == "png" else 1, **size}
    drawn: bytes = await browser.calc_fig(figure, opts=opts)
    return await _printed(browser, drawn.decode(), **size) if ending == "pdf" else drawn


async def _printed(browser: Any, svg: str, *, width: int, height: int) -> bytes:
    """A PDF page of exactly the size of an SVG."""
    tab = await browser.create_tab(url="about:blank")
    try:
        tree = await tab.send_command("Page.getFrameTree")
        style = f"@page{{size:{width}px {height}px;margin:0}}body{{margin:0}}svg{{position:absolute;top:0;left:0}}"
        page = {"frameId": tree["result"]["frameTree"]["frame"]["id"], "html": f"<style>{style}</style>{svg}"}
        await tab.send_command("Page.setDocumentContent", params=page)
        none = dict.fromkeys(("marginTop", "marginBottom", "marginLeft", "marginRight"), 0)
        how = {"printBackground": True, "preferCSSPageSize": True, "pageRanges": "1", **none}
        answer = await tab.send_command("Page.printToPDF", params=how)
    finally:
        await browser.close_tab(tab)
    if "result" not in answer:
        raise RuntimeError(f"the page could not be printed: {answer.get('error')}")
    return base64.b64decode(answer["result"]["data"])


async def _in_time(answer: Awaitable[Answer]) -> Answer:
    limit = asyncio.timeout(PATIENCE)
    try:
        async with limit:
            return await answer
    except RuntimeError as error:  # what kaleido makes of being interrupted
        if limit.expired():
            raise TimeoutError from error
        raise


async def _close(browser: Any) -> None:
    """Ask the browser to go; end it if it does not."""
    process = getattr(browser, "subprocess", None)
    try:
        async with asyncio.timeout(FAREWELL):
            await browser.close()
    except TimeoutError:
        if process is not None:
            process.kill()


def _example(sheet: Image.Image, pen: ImageDraw.ImageDraw, place: Place, example: Example, side: int) -> int:
    """Draw one image's rows; give where the next one begins."""
    left, top = place
    if example.truth:
        _write(pen, (left, top + 4), example.truth, 20)
        _write(pen, (left + round(_font(20).getlength(example.truth)) + GAP, top + 8), example.id, 15, FAINT)
        top += HEADING
    for row in example.rows:
        _write(pen, (left - GAP, top + side // 2), _shortened(row.name, 18, GUTTER), 18, anchor="rm")
        for column, tile in enumerate(row.tiles):
            if tile is not None:
                _tile(sheet, pen, (left + column * (side + GAP), top), tile, side)
        top += side + CAPTION + GAP
    return top


def _tile(sheet: Image.Image, pen: ImageDraw.ImageDraw, place: Place, tile: Tile, side: int) -> None:
    x, y = place
    edge, colour = 0, INK
    if tile.fooled is not None:
        edge, colour = FRAME, FOOLED if tile.fooled else RECOGNISED
        pen.rounded_rectangle((x, y, x + side - 1, y + side - 1), radius=FRAME + 1, fill=colour)
    inner = side - 2 * edge
    sheet.paste(tile.image.resize((inner, inner), Image.Resampling.LANCZOS), (x + edge, y + edge))
    if tile.fooled is not None:
        _badge(pen, (x + side - FRAME - 22, y + FRAME), colour, tick=not tile.fooled)
    sure = "" if tile.probability is None else f" {100 * tile.probability:.0f}%"
    caption = _shortened(tile.caption, 15, side - round(_font(15).getlength(sure))) + sure
    _write(pen, (x + side // 2, y + side + CAPTION // 2 + 1), caption, 15, colour, anchor="mm")


def _legend(pen: ImageDraw.ImageDraw, end: Place) -> None:
    x, y = end
    for text, colour in (("wrong", FOOLED), ("recognised", RECOGNISED)):
        x -= round(_font(16).getlength(text))
        _write(pen, (x, y), text, 16, colour)
        _badge(pen, (x - 28, y - 2), colour, tick=colour == RECOGNISED)
        x -= 46


def _badge(pen: ImageDraw.ImageDraw, place: Place, colour: str, *, tick: bool) -> None:
    """A square of 22 pixels with a white tick or cross, so that nobody needs to tell red from green."""
    x, y = place
    pen.rounded_rectangle((x, y, x + 22, y + 22), radius=4, fill=colour)
    # The font has neither.
    strokes = [[(5, 11), (9, 16), (17, 6)]] if tick else [[(6, 6), (16, 16)], [(16, 6), (6, 16)]]
    for stroke in strokes:
        pen.line([(x + right, y + down) for right, down in stroke], fill=PAPER, width=3, joint="curve")


def _write(
    pen: ImageDraw.ImageDraw, place: Place, text: str, size: int, colour: str = INK, *, anchor: str = "la"
) -> None:
    # Pillow's font has no multiplication sign.
    pen.text(place, text.replace("×", "x"), fill=colour, font=_font(size), anchor=anchor)


def _shortened(text: str, size: int, width: int) -> str:
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(f"{text}...") > width:
        text = text[:-1].rstrip()
    return f"{text}..."


def _wrapped(text: str, size: int, width: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _font(size).getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
