"""Libraries that tests need: skipped without them."""

from __future__ import annotations

from typing import Any

import pytest

from whorl.errors import WhorlError
from whorl.interop.libraries import LIBRARIES


def needs(library: str) -> Any:
    """Import a peer, or another library, or skip the test."""
    if library not in LIBRARIES:
        return pytest.importorskip(library)
    try:
        return LIBRARIES[library].load()
    except WhorlError as error:
        pytest.skip(str(error))
