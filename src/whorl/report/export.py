"""Figures and galleries as files for papers. The browser that draws figures may be missing, fail, or never answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.errors import WhorlError, missing_extra
from whorl.files import write_file, writing
from whorl.progress import Progress, silent
from whorl.report.charts import figure_text
from whorl.report.content import Content, Drawing
from whorl.report.figures import drawings
from whorl.report.sheet import save_gallery

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FORMATS = ("png", "pdf", "svg")
WIDTH, SURFACE_WIDTH = 760, 820
PATIENCE = 90.0
"""Seconds for the browser to start, or to draw one figure, which takes it a second or two."""
FAREWELL = 10.0
"""Seconds for it to go when it is asked to, before it is ended."""
TRIES = 2
"""How many browsers are started, one after the other, if none answers: a busy machine may have held up the first."""
_SCALE = 3  # pixels of a PNG for each of the layout's: about 300 dots an inch at the width of a column
_PAPER: tuple[str, ...] = ("png", "pdf")

Answer = TypeVar("Answer")


def save_figures(
    folder: str | Path, content: Content, formats: Sequence[str] = _PAPER, *, progress: Progress = silent
) -> list[Path]:
    """Write every figure of a report, and every gallery, as files.

    Figures are drawn by a browser without a window, a second or two each. In a PDF or an SVG, lines and words stay
    sharp at any size; surfaces are pixels there too. Galleries are pixels, and become no SVG.

    Args:
        folder: where to; made if it is not there.
        content: the report.
        formats: any of "png", "pdf" and "svg".
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
    figures = {place / f"{one.name}.{end}": titled(one) for one in drawn for end in endings}
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
    try:
        from kaleido import Kaleido
    except ImportError as error:
        raise missing_extra("a figure as a file", "kaleido", extra="figures") from error
    left = dict(figures)

    async def draw_all() -> None:
        # Formulas would be fetched from the network; there are none.
        browser = Kaleido(n=1, mathjax=False, timeout=None)
        try:
            await _in_time(browser.open())
            for path, figure in list(left.items()):
                progress("drawing figures", len(figures) - len(left), len(figures))
                write_file(path, await _in_time(browser.calc_fig(figure, opts=_options(figure, path))))
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
                    f"({_first_line(error)}). Install one (Debian: apt install chromium; anywhere: "
                    "kaleido_get_chrome), or name its program in the environment variable BROWSER_PATH."
                ) from error
    return list(figures)


def _options(figure: Figure, path: Path) -> dict[str, Any]:
    ending, layout = path.suffix.removeprefix("."), figure.layout
    scale = _SCALE if ending == "png" else 1
    return {"format": ending, "scale": scale, "width": layout.width or WIDTH, "height": layout.height}


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


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
