"""The notebooks of examples/: they run, print what is committed, and show clean images recognised, attacked not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from notebook_runs import NOTEBOOKS, execute, printed

ROOT = Path(__file__).parents[1]
FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
MOST_BYTES = 400_000
every_notebook = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kinds(cell: Any) -> set[str]:
    """What kinds of output a cell has; a figure of plotly's is an image here and JSON there."""
    shown = {kind for out in cell["outputs"] for kind in out.get("data", ())} - {"text/plain"}
    return {"figure" if kind in ("image/png", "application/json") else kind for kind in shown}


@every_notebook
def test_it_runs_and_prints_what_is_committed(path: Path, tmp_path: Path) -> None:
    for needed in ("nbclient", "ipykernel", "pandas"):
        pytest.importorskip(needed, reason=f"{needed} is not installed; it is in torchwhorl[dev]")
    import nbformat

    committed, done = nbformat.read(path, as_version=4), execute(path, tmp_path, renderer="json")
    assert printed(done) == printed(committed)
    assert [kinds(cell) for cell in code_cells(done)] == [kinds(cell) for cell in code_cells(committed)]


@every_notebook
def test_what_is_committed_is_whole_and_private_to_nobody(path: Path) -> None:
    """Run from top to bottom without an error, with tables and images, and no path or time of who ran it."""
    text = path.read_text(encoding="utf-8")
    cells = code_cells(json.loads(text))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert {out["output_type"] for cell in cells for out in cell["outputs"]} <= {
        *("stream", "execute_result", "display_data"),
    }
    assert {"text/html", "figure"} <= set().union(*map(kinds, cells))
    assert not re.search(r"(?<![\w.])/(home|root|work|tmp|opt|mnt)/|iopub\.|stderr", text)


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < MOST_BYTES


@every_notebook
def test_each_shows_a_difference(path: Path) -> None:
    """Clean images are recognised, attacked ones are not; chosen by a rule that is stated."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    words = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    assert re.search(r"[Tt]he rule|The rule looks at clean", words)
    streams = ["".join(out["text"]) for cell in code_cells(notebook) for out in cell["outputs"] if "text" in out]
    [told] = [text for text in streams if "clean: " in text]
    if "recognised: [" in told:
        clean, attacked = (set(re.findall(r"True|False", line)) for line in told.splitlines() if "recognised:" in line)
        assert (clean, attacked) == ({"True"}, {"False"})
        return
    [(clean_count, _), *others] = re.findall(r"(\d+) of (?:those )?(\d+)", told[told.index("clean: ") :])
    assert int(clean_count) > 0
    assert others
    assert all((left, of) == ("0", clean_count) for left, of in others)


@every_notebook
def test_links_lead_somewhere(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    words = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    targets = re.findall(r"\]\(([^)#]+)", words)
    assert targets
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_documentation_leads_to_each() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert len(FILES) == 3
    for path in FILES:
        assert f"](../examples/notebooks/{path.name})" in page
