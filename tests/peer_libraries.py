"""Libraries that tests need: skipped without them."""

from __future__ import annotations

from typing import Any

import pytest

from whorl.models._torchvision import torchvision


def needs(library: str) -> Any:
    """Import a library, or skip the test."""
    torchvision()  # which some of them import, and which may need a hand
    return pytest.importorskip(library)
