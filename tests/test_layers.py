"""The house: who may import whom (every import counts, wherever it stands), and what names and functions look like."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

import whorl

ROOT = Path(whorl.__file__).parent

# A package, or a module of the root, imports only from rows above its own.
ROWS: tuple[tuple[str, ...], ...] = (
    ("errors", "records", "progress", "files", "artifacts"),
    ("randomness", "geometry"),
    ("estimators", "transforms"),
    ("models",),
    ("attacks",),
    ("data", "defenses", "evaluation"),
    ("runs",),
    ("report",),
    ("paper", "physical", "analysis", "hardening", "interop", "gate", "bench", "demo", "installation"),
    ("ui", "cli"),
)
ROW = {package: place for place, packages in enumerate(ROWS) for package in packages}
# Rows within which packages may import one another, without a cycle.
OPEN_ROWS = {0, 1, 2, 3, 5, 9}
# The paper declares what the others of its row run; benchmarks read the list of peers.
OPEN_PAIRS = {("paper", other) for other in ROWS[8]} | {("bench", "interop")}
# Single imports against the rows, each for a reason.
EXCEPTIONS = {
    ("attacks/presets.py", "interop"): "a peer's attack is looked up by name, library:NAME; the libraries are extras",
    ("records.py", "report"): ".plot() of results is looked up by name in the one chart toolkit, which is above",
}
MOST_LINES = 60
MOST_PARAMETERS = 8
# A comment above or beside the head of a function that says why it is so.
REASON_LONG = re.compile(r"# long: \w+")
REASON_WIDE = re.compile(r"# wide: \w+")


@cache
def trees() -> dict[str, ast.Module]:
    """Every source file, by its path from the package's folder."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    }


@cache
def modules() -> frozenset[str]:
    return frozenset(
        "whorl." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in trees()
    )


def room(name: str) -> str | None:
    """The package that ``whorl.<name>`` is of; None for what is the package's own, such as its version."""
    if name in whorl._LAZY:
        return whorl._LAZY[name].split(".")[1]
    return name if name in ROW or f"whorl.{name}" in modules() else None


def imported(tree: ast.Module) -> Iterator[str]:
    """The packages that a module imports: at its top, in functions, for types, by name, or as ``whorl.something``."""
    whole: set[str] = set()  # what `import whorl` is called here
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                whole |= {alias.asname or "whorl" for alias in names if alias.name == "whorl"}
                yield from (alias.name.split(".")[1] for alias in names if alias.name.startswith("whorl."))
            case ast.ImportFrom(level=1 | 2 | 3):
                raise AssertionError(f"line {node.lineno}: a relative import, which no row of the table can judge")
            case ast.ImportFrom(module="whorl", names=names):
                yield from filter(None, (room(alias.name) for alias in names))
            case ast.ImportFrom(module=str(name)) if name.startswith("whorl."):
                yield name.split(".")[1]
            case ast.Constant(value=str(name)) if name in modules() and name != "whorl":
                yield name.split(".")[1]  # import_module("whorl.geometry.warp_kernels")
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in whole:
                yield from filter(None, [room(attribute)])


@cache
def edges() -> dict[tuple[str, str], tuple[str, ...]]:
    """Pairs of packages, the first of which imports the second, with the files that do so."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, tree in trees().items():
        package = path.removesuffix(".py").split("/")[0]
        if package in ("__init__", "__main__"):  # the public names, and the door to the command line
            continue
        for other in sorted(set(imported(tree)) - {package}):
            if (path, other) not in EXCEPTIONS:
                found[package, other].append(path)
    return {pair: tuple(paths) for pair, paths in found.items()}


def allowed(package: str, other: str) -> bool:
    mine, its = ROW[package], ROW[other]
    return its < mine or (its == mine and (mine in OPEN_ROWS or (package, other) in OPEN_PAIRS))


def test_every_package_has_a_row() -> None:
    packages = {path.removesuffix(".py").split("/")[0] for path in trees()} - {"__init__", "__main__"}
    assert packages - set(ROW) == set(), "name its row in ROWS, and in the table of docs/architecture.md"


def test_imports_follow_the_rows() -> None:
    assert {pair: paths for pair, paths in edges().items() if not allowed(*pair)} == {}


@pytest.mark.parametrize(("path", "package"), sorted(EXCEPTIONS))
def test_every_exception_is_needed(path: str, package: str) -> None:
    assert package in set(imported(trees()[path]))


def reached(package: str) -> set[str]:
    found: set[str] = set()
    new = {package}
    while new:
        new = {other for mine, other in edges() if mine in new} - found
        found |= new
    return found


def test_no_package_imports_itself_through_others() -> None:
    circular = {package for package in ROW if package in reached(package)}
    assert circular == set(), "let one of them know nothing of the other"


def test_imports_of_every_kind_are_seen() -> None:
    source = """
        from typing import TYPE_CHECKING
        import whorl
        import whorl.files
        if TYPE_CHECKING:
            from whorl.errors import WhorlError
        def f():
            from whorl import load_model, runs, __version__
            import whorl as w
            import_module("whorl.report.page")
            return whorl.attack, w.load_images, whorl.__version__, "whorl.no.module"
        """
    assert set(imported(ast.parse(dedent(source)))) >= {"files", "errors", "models", "runs", "attacks", "data"}
    with pytest.raises(AssertionError, match="relative import"):
        list(imported(ast.parse("from .files import x")))


def test_modules_are_named_by_nouns() -> None:
    found = {path.removesuffix(".py") for path in trees() if path.endswith("ing.py")}
    assert found == set(), "say what is in it, not what it does"


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert {name for name, paths in places.items() if len(paths) > 1} == set(), "rename one of the classes"


def identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def test_an_image_is_called_an_image() -> None:
    found = {path for path, tree in trees().items() if any("picture" in name.lower() for name in identifiers(tree))}
    assert found == set(), "one word for one thing: image"


def functions() -> Iterator[tuple[str, str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Path, text of the head with the comments above and in it, and the function; commands left out."""
    for path, tree in trees().items():
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_command(path, node):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
                while first and lines[first - 1].lstrip().startswith("#"):
                    first -= 1
                yield path, "\n".join(lines[first : node.body[0].lineno]), node


def is_command(path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether typer reads the signature: its parameters are options of the command line."""
    return path.startswith("cli/") and any(".command(" in ast.unparse(d) for d in node.decorator_list)


def test_long_functions_have_a_reason() -> None:
    long, excused = set(), set()
    for path, head, node in functions():
        name = f"{path.split('/')[0]}: {node.name}"
        long |= {name} if (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES else set()
        excused |= {name} if REASON_LONG.search(head) else set()
    assert long <= excused, "take it apart, or say why not in a comment at its head: # long: because ..."
    assert excused <= long, "it is short by now: its comment goes"


def test_many_parameters_have_a_reason() -> None:
    wide = {
        f"{path.split('/')[0]}: {node.name}"
        for path, head, node in functions()
        # A Triton kernel takes every pointer, size and stride by itself.
        if not path.endswith("kernels.py")
        and len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) > MOST_PARAMETERS
        and not REASON_WIDE.search(head)
    }
    assert wide == set(), "pass a record, or say why not in a comment at its head: # wide: because ..."


def test_every_home_that_the_architecture_names_is_there() -> None:
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)", page))
    assert len(named) > 40
    there = {path for path in named if (ROOT / path).is_file() or (ROOT.parents[1] / path).is_file()}
    assert named == there
