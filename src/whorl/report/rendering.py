"""Figures drawn by a browser without a window, which may be missing, fail, or never answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from whorl.errors import WhorlError, missing_extra
from whorl.files import atomic_write
from whorl.progress import Progress

PATIENCE = 90.0
"""Seconds for the browser to start, or to draw one figure, which takes it a second or two."""

FAREWELL = 10.0
"""Seconds for it to go when it is asked to, before it is ended."""

TRIES = 2
"""How many browsers are started, one after the other, if none answers: a busy machine may have held up the first."""

Answer = TypeVar("Answer")


def render(figures: Mapping[Path, tuple[Any, dict[str, Any]]], progress: Progress) -> None:
    """Draw all in one browser, and write each as it is done.

    Args:
        figures: a plotly figure and kaleido's options for each file.
        progress: called with each file.

    Raises:
        WhorlError: kaleido or a browser is missing, or the browser does not answer.
    """
    if not figures:
        return
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
            for path, (figure, options) in list(left.items()):
                progress("drawing figures", len(figures) - len(left), len(figures))
                data = await _in_time(browser.calc_fig(figure, opts=options))
                with atomic_write(path) as file:
                    file.write(data)
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
