"""Where the system's Chromium is; tests that need one are skipped without it, but not in continuous integration."""

from __future__ import annotations

import os
import shutil

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """The program's path."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        message = f"no Chromium here: looked for {', '.join(PROGRAMS)}"
        if os.environ.get("CI"):
            pytest.fail(f"{message}. Install one, or the report goes untested.")
        pytest.skip(message)
    return found
