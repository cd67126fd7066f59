"""The documentation is tested like the code: its examples run, its links lead somewhere, its commands exist."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import typer

import docs_smoke
import whorl
from browser import chromium
from doc_pages import PAGES, ROOT, SPAN, actions, all_blocks, blocks, commands, prose

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# The parent of all complaints about what was typed, in click or in the copy of it that newer typers bring.
USAGE_ERROR: Any = typer.BadParameter.__base__
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Use(NamedTuple):
    """A program on a page: ``words`` come after its name; ``whole`` is whether it is a line of a shell block."""

    page: Path
    words: list[str]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page.name}: {' '.join(self.words)}"


def uses(program: str) -> Iterator[Use]:
    """Yield each use of a program in shell blocks and code spans."""
    for page in PAGES:
        lines = [(command, True) for block in blocks(page, "sh") for _, command in commands(block)]
        for line, whole in [*lines, *((span, False) for span in SPAN.findall(prose(page)))]:
            if re.search(rf"(^|[ /]){program} ", line):
                words = [word for word in shlex.split(line) if not re.match(r"[A-Z_]+=", word)]
                words = words[2:] if words[1:3] == ["-m", program] else words
                if Path(words[0]).name == program:
                    yield Use(page, words[1:], whole)


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
    if "save_figures" in page.read_text(encoding="utf-8"):
        pytest.importorskip("kaleido")
        chromium()  # draws them
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    namespace = {"__name__": "example"}
    for block in blocks(page, "python"):
        # Blank lines in front, so that a traceback names the page's own line.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102 - running the examples is the point


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_the_first_example_shows_a_difference_and_what_it_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / name
    exec(compile(blocks(page, "python")[0].text, str(page), "exec"), {"__name__": "example"})  # noqa: S102 - likewise
    printed = capsys.readouterr().out
    assert printed == blocks(page, "text")[0].text
    clean, attacked = (re.findall(r"True|False|'[^']+'", line) for line in printed.splitlines())
    assert len(clean) == len(attacked) > 1
    assert "False" not in clean
    assert "True" not in attacked
    assert all(one != other for one, other in zip(clean, attacked, strict=True))


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


@every_page
def test_every_block_is_of_a_kind_that_is_tested(page: Path) -> None:
    """Python runs, commands are parsed, declarations are read; text is what is only shown."""
    text = page.read_text(encoding="utf-8")
    read_elsewhere = {"yaml"} if page.name == "ci.md" else set()  # by tests/test_action.py
    assert {block.language for block in all_blocks(page)} <= {"python", "sh", "toml", "text"} | read_elsewhere
    assert len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE)) == 2 * len(all_blocks(page))  # none is indented


DECLARED = [(page, block) for page in PAGES for block in blocks(page, "toml")]


@pytest.mark.parametrize(("page", "block"), DECLARED, ids=[f"{page.stem}-{block.line}" for page, block in DECLARED])
def test_declarations_can_be_read(page: Path, block: Any, tmp_path: Path) -> None:
    from whorl import paper, runs

    file = tmp_path / "mine.toml"
    content = tomllib.loads(block.text)
    if "networks" in content:
        file.write_text(block.text)
        assert paper.load_profile(str(file)).name == content["name"]
        return
    # A part of a declaration stands for what is said of it.
    around = {} if "sources" in content else {"name": "mine", "sources": ["resnet18"], "targets": ["resnet18"]}
    declared = runs.declare(**around, **content)
    assert len(declared.attacks) == len(content["attacks"])
    assert declared.all_poses()


def parsed(use: Use) -> None:
    """Let the program itself read the words, as it would before it runs."""
    import typer

    from cli.invoking import whole_application

    command = whole_application()
    words, known = list(use.words), []
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        known.append(words.pop(0))
        assert known[-1] in command.commands, use
        command = command.commands[known[-1]]
    try:
        command.make_context(" ".join(["whorl", *known]), words)
    except typer.Exit:
        pass  # --help and --version end like this
    except USAGE_ERROR as error:
        # In a sentence, a command's name is enough.
        if use.whole or type(error).__name__ not in ("MissingParameter", "NoArgsIsHelpError"):
            pytest.fail(f"{use}: {error.format_message()}")


def test_commands_can_be_typed_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(uses("whorl"))
    assert sum(use.whole for use in found) > 20
    for use in found:
        if "--install-completion" not in use.words and "…" not in "".join(use.words):
            parsed(use)


def test_a_command_that_cannot_be_typed_is_noticed() -> None:
    page = ROOT / "README.md"
    for words in (["atack"], ["attack", "pgd", "--nothing", "1"], ["evaluate", "a/", "b/", "--size", "large"]):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            parsed(Use(page, words, whole=True))


def test_whorl_is_installed_from_a_checkout() -> None:
    """By its bare name an index could serve somebody else's package."""
    for use in uses("pip"):
        assert not [word for word in use.words if word.startswith("whorl")], use


def test_newcomers_commands_are_all_run() -> None:
    """``make docs-smoke`` leaves out what it says it does, and nothing that is gone."""
    assert docs_smoke.stale() == []
    found = [action for page in docs_smoke.PAGES for action in actions(page)]
    assert {action.kind for action in found} == {"command", "python", "file"}
    spared = {action.text for action in found} & docs_smoke.NOT_RUN.keys()
    assert len(spared) < len({action.text for action in found}) / 4


def test_scripts_and_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = list(uses("make"))
    assert {use.words[0] for use in named} >= {"demo", "test"}
    for use in named:
        assert use.words[0] in targets, use
    for use in uses("python"):
        script = next((word for word in use.words if word.endswith(".py")), None)
        if script is not None:
            known = (ROOT / script).read_text(encoding="utf-8")
            # The timing scripts share their options, and so do those that measure on the held-out photographs.
            shared = [name for name in ("measure", "held_out") if f"from {name} import" in known]
            known += "".join((ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8") for name in shared)
            for option in (word for word in use.words if word.startswith("--")):
                assert f'"{option}"' in known, use


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


DIRECTIVE = re.compile(r"^::: (\S+)(?:\n    options: \{heading: ([\w.]+))?", re.MULTILINE)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("reference/*.md")), ids=lambda page: page.stem)
def test_the_reference_shows_what_its_heading_names(page: Path) -> None:
    """A function whose module has its name is hidden by the module where the source is read without being run."""
    for path, heading in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
        assert not (ROOT / "src" / path.replace(".", "/")).with_suffix(".py").exists(), f"{path} is a module"
        first, *names = (heading or path).split(".")
        found = importlib.import_module(first)
        for place, name in enumerate(names, start=2):
            if not hasattr(found, name):
                importlib.import_module(".".join([first, *names][:place]))
            found = getattr(found, name)
        assert not isinstance(found, ModuleType), heading or path


def test_as_many_attacks_are_claimed_as_there_are() -> None:
    claimed = re.search(r"(\d+) names, composed of parts", (ROOT / "docs" / "compared.md").read_text(encoding="utf-8"))
    assert claimed is not None
    assert int(claimed[1]) == len(whorl.attack_names())


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
