"""A test file run once more, as a program, in a process where Triton interprets its kernels on the CPU.

Triton decides at its import whether it interprets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


def check_interpreted(file: str, **variables: str) -> None:
    """Run a file there, with further variables of the environment, and show what went wrong."""
    tests = Path(__file__).parent
    path = os.pathsep.join((str(tests.parent / "src"), str(tests)))
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path} | variables
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
