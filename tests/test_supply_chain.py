"""What is locked, pinned and declared elsewhere says what pyproject.toml and the source say."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import whorl
from whorl.artifacts import Artifact
from whorl.data.layouts import SAMPLE_FILES
from whorl.installation import Requirement, _numbers
from whorl.models.networks import NETWORKS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
WORKFLOWS = [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), ROOT / "examples" / "gate_a_pull_request.yml"]
CHOSEN_BY_MACHINE = {"torch", "torchvision"}
ALWAYS_NEEDED = [Requirement.parse(line) for line in PROJECT["dependencies"]]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, list[str]]:
    """Versions of each package in the lock: several where they depend on the Python."""
    found: dict[str, list[str]] = {}
    for name, pinned in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", LOCK, re.MULTILINE):
        found.setdefault(normal(name), []).append(pinned)
    return found


def wanted(extra: str) -> list[Requirement]:
    """The packages of an extra, those of the extras that it gathers included."""
    listed = [Requirement.parse(line) for line in PROJECT["optional-dependencies"][extra]]
    gathered = [brought for one in listed if one.package == PROJECT["name"] for brought in one.brings]
    own = [one for one in listed if one.package != PROJECT["name"]]
    return own + [one for name in gathered for one in wanted(name)]


def test_everything_in_the_lock_has_a_version_and_a_hash() -> None:
    entries = [entry for entry in re.split(r"\n(?=\S)", LOCK.strip()) if not entry.startswith("#")]
    assert len(entries) > 100
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\S+.*\\\n", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in LOCK


def test_the_lock_holds_what_development_needs_but_what_depends_on_the_machine() -> None:
    versions = locked()
    for requirement in (*ALWAYS_NEEDED, *wanted("dev"), Requirement(package="torchattacks", wanted=">=3.5")):
        if requirement.package in CHOSEN_BY_MACHINE:
            continue
        lowest = re.search(r">=\s*([0-9.]+)", requirement.wanted)
        assert normal(requirement.package) in versions, requirement
        for version in versions[normal(requirement.package)]:
            assert lowest is None or _numbers(version) >= _numbers(lowest[1]), requirement
    assert not [name for name in versions if name in CHOSEN_BY_MACHINE or name.startswith(("nvidia-", "cuda-"))]
    constrained = re.findall(r"^([a-z]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(constrained) == CHOSEN_BY_MACHINE


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_read_alone_and_name_actions_by_commit(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    used = [line.strip() for line in text.splitlines() if "uses:" in line and "uses: ./" not in line]
    assert used
    for line in used:
        assert re.fullmatch(r"- uses: [\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+(: .*)?", line), line


def test_the_workflow_covers_the_versions_that_the_package_names() -> None:
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert jobs["test"]["strategy"]["matrix"]["python"] == jobs["wheel"]["strategy"]["matrix"]["python"] == named


FETCHED = {**{name: network.artifact for name, network in NETWORKS.items()}, "samples": SAMPLE_FILES}


@pytest.mark.parametrize(("name", "artifact"), FETCHED.items(), ids=FETCHED)
def test_everything_that_is_fetched_has_its_origin_and_terms_told(name: str, artifact: Artifact) -> None:
    page = (ROOT / "docs" / "provenance.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if f"`{artifact.package}` {artifact.version}" in line]
    assert [row for row in rows if re.search("MIT|Apache 2.0|BSD", row)]
    if artifact is not SAMPLE_FILES:
        [(member, digest)] = artifact.files.items()
        assert f"| `{name}` | `{member}` | `{digest}` |" in page
    shipped = json.loads((ROOT / "src/whorl/models/defended/manifest.json").read_text(encoding="utf-8"))["models"]
    assert not [defended for defended in shipped if f"`{defended}`" not in page]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, each on one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_the_container_gets_the_files_that_the_build_needs_and_runs_the_demo() -> None:
    """Read, not built: where these tests run there is no container to build in."""
    steps = instructions()
    assert {word for word, _ in steps} <= {
        "ARG", "FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "VOLUME", "ENTRYPOINT", "CMD"
    }  # fmt: skip
    assert steps[0] == ("ARG", "BASE=python:3.11-slim")
    copied = [word for kind, rest in steps if kind == "COPY" for word in rest.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for name in copied:
        assert (ROOT / name).exists(), name
        assert [line for line in ignored if fnmatch.fnmatch(name, line.removeprefix("!"))][-1].startswith("!"), name
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {PROJECT["readme"], *PROJECT["license-files"], "src", "pyproject.toml", "constraints.txt"}
    assert build["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"][0].startswith("src")
    assert needed == set(copied)
    [(_, program), (_, words)] = steps[-2:]
    from cli.invoking import whole_application

    command, *options = json.loads(words)
    assert json.loads(program) == ["whorl"]
    whole_application().commands[command].make_context("whorl demo", options)


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for() -> None:
    """Read, not built."""
    yaml = pytest.importorskip("yaml")
    recipe: Any = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == whorl.__version__
    assert recipe["package"]["name"] == PROJECT["name"]
    [entry] = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == PROJECT["scripts"]
    called = {"torch": "pytorch"}  # there
    run = [f"python {PROJECT['requires-python']}"]
    run += [f"{called.get(one.package, one.package)} {one.wanted}" for one in ALWAYS_NEEDED]
    assert recipe["requirements"]["run"] == run
