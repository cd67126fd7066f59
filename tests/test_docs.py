"""The documentation is tested like the code: its examples run, its links lead somewhere, its commands exist."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import whorl

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Block(NamedTuple):
    """A fenced block of a page; ``line`` is where its text starts, counted from 1."""

    language: str
    text: str
    line: int


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in FENCE.finditer(text)]
    return [block for block in found if block.language == language]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def command_lines(program: str) -> Iterator[tuple[Path, list[str]]]:
    """Yield each use of a program in shell blocks and code spans, as (page, words after the program)."""
    for page in PAGES:
        lines = [line for block in blocks(page, "sh") for line in block.text.splitlines()]
        for line in [*lines, *SPAN.findall(prose(page))]:
            words = shlex.split(line, comments=True) if line.startswith((f"{program} ", ".venv/bin/")) else []
            if words and Path(words[0]).name == program:
                yield page, words[1:]


def slug(heading: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    namespace = {"__name__": "example"}
    for block in blocks(page, "python"):
        # Blank lines in front, so that a traceback names the page's own line.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102 - running the examples is the point


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for target in LINK.findall(prose(page)):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)
    assert not dead


def test_commands_exist() -> None:
    import typer.main
    from typer.core import TyperGroup

    from whorl.cli import app

    named = list(command_lines("whorl"))
    assert named
    for page, words in named:
        command = typer.main.get_command(app)
        for word in words:
            where = f"{page.name}: whorl {' '.join(words)}"
            if word.startswith("--"):
                options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
                assert word.partition("=")[0] in options, where
            elif isinstance(command, TyperGroup):
                assert word in command.commands, where
                command = command.commands[word]


def test_scripts_and_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = list(command_lines("make"))
    assert {words[0] for _, words in named} >= {"demo", "test"}
    for page, words in named:
        assert words[0] in targets, f"{page.name}: make {words[0]}"
    for page, words in command_lines("python"):
        script = next((word for word in words if word.endswith(".py")), None)
        if script is not None:
            # The timing scripts share their options.
            sources = (ROOT / script, ROOT / "benchmarks" / "measure.py")
            known = "".join(path.read_text(encoding="utf-8") for path in sources)
            for option in (word for word in words if word.startswith("--")):
                assert f'"{option}"' in known, f"{page.name}: {script} {option}"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("README.md", whorl.attack_names()),
        ("docs/attacks.md", whorl.attack_names()),
        ("docs/models.md", whorl.model_names()),
        ("docs/defenses.md", whorl.defense_names()),
        ("README.md", whorl.defense_names()),
    ],
)
def test_every_name_is_documented(page: str, names: list[str]) -> None:
    spans = SPAN.findall(prose(ROOT / page))
    assert [name for name in names if name not in spans] == []


def test_the_version_is_one() -> None:
    assert re.search(rf"^version: {re.escape(whorl.__version__)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert f"## [{whorl.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_citation_is_yaml_and_credits_the_paper() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert [author["family-names"] for author in cited["preferred-citation"]["authors"]] == [
        "Xiang",
        "Su",
        "Liu",
        "Guo",
        "Zheng",
    ]


@every_page
def test_nothing_private_is_mentioned(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(home|root|work|tmp|opt|mnt)/", text)
