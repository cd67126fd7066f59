"""Runs the notebooks of examples/; ``python tests/notebook_runs.py [NAME ...]`` keeps what came out in them."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"


def execute(path: Path, folder: Path, *, renderer: str) -> Any:
    """Run a notebook in a kernel of its own.

    Args:
        path: the notebook.
        folder: where it runs, so that what it writes stays out of the repository.
        renderer: how plotly shows figures: "png" needs a browser, "json" nothing.

    Returns:
        The notebook with what came out.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, coalesce_streams=True, resources={"metadata": {"path": str(folder)}})
    # The kernel is this Python, whatever is registered under its name; a history file is not for tests to write.
    with patch.dict(os.environ, PLOTLY_RENDERER=renderer, IPYTHONDIR=str(folder), TQDM_DISABLE="1"):
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran, which would change each time
        for out in cell.get("outputs", ()):
            if len(out.get("data", ())) > 1:
                out.data.pop("text/plain", None)  # stands behind a table or a figure, and has addresses of memory in it
    return notebook


def printed(notebook: Any) -> dict[str, str]:
    """What the cells of a notebook print, by the id of the cell."""
    found = {}
    for cell in notebook.cells:
        texts = [out.text for out in cell.get("outputs", ()) if out.output_type == "stream" and out.name == "stdout"]
        if texts:
            found[cell.id] = "".join(texts)
    return found


def main(*names: str) -> None:
    """Run notebooks, all by default, and keep what came out, figures as PNG."""
    import nbformat

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if path.stem in names or not names:
            with tempfile.TemporaryDirectory() as folder:
                done = execute(path, Path(folder), renderer="png")
            path.write_text(nbformat.writes(done) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
