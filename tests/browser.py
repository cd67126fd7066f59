"""A browser for tests: the system's Chromium without a window, and a page that notes what it should not do.

Tests that need one are skipped without it, but not in continuous integration.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESK, PHONE = {"width": 1024, "height": 720}, {"width": 390, "height": 844}


def chromium() -> str:
    """The program's path."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        message = f"no Chromium here: looked for {', '.join(PROGRAMS)}"
        if os.environ.get("CI"):
            pytest.fail(f"{message}. Install one, or the pages go untested.")
        pytest.skip(message)
    return found


@contextmanager
def launched() -> Iterator[Any]:
    """Start the browser."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; it is in torchwhorl[dev]"
    )
    program = chromium()
    with playwright.sync_playwright() as started:
        # Without a graphics card, surfaces are drawn by the processor; in a container there may be no sandbox.
        running = started.chromium.launch(executable_path=program, args=["--enable-unsafe-swiftshader", "--no-sandbox"])
        yield running
        running.close()


@dataclass
class Opened:
    """A page, and what it did that it should not."""

    page: Any
    trouble: list[str] = field(default_factory=list)
    """Errors on the console, dialogs, and requests to anybody else."""


Page = TypeVar("Page", bound=Opened)


@contextmanager
def opened(
    browser: Any, address: str, viewport: dict[str, int], *, kind: type[Page], alone: bool = False, **options: Any
) -> Iterator[Page]:
    """Open a page, and watch it.

    Args:
        browser: from ``launched``.
        address: of the page.
        viewport: its size in pixels.
        kind: class of what is given.
        alone: whether nothing but the page itself may be fetched, not even from where it came.
        options: of the browser's context.
    """
    context = browser.new_context(viewport=viewport, **options)
    context.set_default_timeout(20_000)
    shown = kind(context.new_page())

    def refuse(route: Any) -> None:
        if route.request.url == address:
            route.continue_()
        else:
            shown.trouble.append(f"request: {route.request.url}")
            route.abort()

    def requested(request: Any) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            shown.trouble.append(f"request: {request.url}")

    def heard(message: Any) -> None:
        if message.type == "error":
            shown.trouble.append(f"console: {message.text}")

    def spoke(dialog: Any) -> None:
        shown.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    if alone:
        context.route("**/*", refuse)
    # Those that no route sees too, such as a file beside the page.
    context.on("request", requested)
    shown.page.on("console", heard)
    shown.page.on("pageerror", lambda error: shown.trouble.append(f"error: {error}"))
    shown.page.on("dialog", spoke)
    shown.page.goto(address)
    yield shown
    context.close()


def settled(page: Any, expression: str, arg: Any = None) -> None:
    """Wait until an expression is true, or a function of ``arg``.

    Playwright's own waiting evaluates text within the page, which a content security policy forbids.
    """
    for _ in range(400):
        if page.evaluate(expression, arg):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")
