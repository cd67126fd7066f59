"""What the site needs beyond Markdown: the example scripts, which lie beside the documentation, not in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_EXAMPLES = Path(__file__).parents[2] / "examples"


def on_files(files: Any, config: Any) -> Any:
    """Take the examples along."""
    for path in sorted(_EXAMPLES.rglob("*")):
        if path.suffix in (".ipynb", ".py", ".sh", ".yaml", ".yml"):
            where = path.relative_to(_EXAMPLES.parent).as_posix()
            files.append(File.generated(config, where, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point to where they then are."""
    return markdown.replace("](../examples/", "](examples/")
