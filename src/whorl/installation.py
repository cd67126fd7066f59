"""What is installed, which devices there are, what the cache holds, and how to put right what is missing.

Made to work where other things do not: nothing but the standard library is needed to import this, and whatever else is
examined may be missing or broken.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from whorl.artifacts import cache_home
from whorl.errors import DISTRIBUTION, install_line, reason

State = Literal["ok", "missing", "broken", "note"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Weights and sample photographs of everything that has a name take this much, and a download as much again.
LOW_DISK = 2 * 10**9
# Extras that only gather others.
_GATHERED = {"all"}
# A requirement as package metadata writes it: name, extras, versions, and what it belongs to.
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was examined.

    Attributes:
        section: what it belongs to; :func:`examine` fills it in.
        name: what was examined.
        state: "ok"; "missing" if it is not there and need not be; "broken" if it must be; "note" for what is worth
            knowing.
        detail: what was found.
        fix: one line that puts it right; empty if there is nothing to do.
    """

    section: str = ""
    name: str
    state: State
    detail: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A package that whorl needs, always or for an extra.

    Attributes:
        package: its name on the index.
        wanted: versions, such as ">=2.6"; empty for any.
        extra: which extra brings it; empty if it is always needed.
        brings: extras of the package itself.
    """

    package: str
    wanted: str = ""
    extra: str = ""
    brings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read one line of a package's metadata.

        >>> Requirement.parse('ray>=2.40; extra == "ray"')
        Requirement(package='ray', wanted='>=2.40', extra='ray', brings=())
        """
        found = _REQUIREMENT.match(text)
        assert found is not None, text  # noqa: S101 - the build writes these, in one format
        package, brings, wanted, marker = found.groups()
        extra = _EXTRA.search(marker or "")
        listed = tuple(part.strip() for part in (brings or "").split(",") if part.strip())
        return cls(package=package, wanted=wanted.strip(), extra=extra[1] if extra else "", brings=listed)


def examine() -> list[Finding]:
    """Look at everything. Nothing is changed, downloaded or removed."""
    found: list[Finding] = []
    for part in (programs, packages, extras, devices, cache, figures):
        try:
            found += [replace(finding, section=part.__name__) for finding in part()]
        except Exception as error:  # noqa: BLE001 - whatever is broken here is what the user wants to read about
            said = f"could not be examined: {type(error).__name__}: {error}"
            found.append(Finding(section=part.__name__, name=part.__name__, state="broken", detail=said))
    return found


def healthy(findings: Iterable[Finding]) -> bool:
    """Whether everything that whorl cannot do without works."""
    return not any(finding.state == "broken" for finding in findings)


def programs() -> Iterator[Finding]:
    """Python and whorl itself."""
    import whorl

    yield Finding(name="whorl", state="ok", detail=f"{whorl.__version__} in {Path(whorl.__file__).parent}")
    yield Finding(name="python", state="ok", detail=f"{platform.python_version()} on {platform.platform()}")


def packages(requirements: Iterable[str] | None = None) -> Iterator[Finding]:
    """What whorl cannot do without: there, recent enough, and able to be imported.

    Args:
        requirements: as package metadata has them; None for those of the installed whorl.
    """
    needed = list(_requirements(requirements))
    if not needed:
        yield Finding(
            name="whorl",
            state="note",
            detail="runs from a source tree that is not installed, so what it needs is not recorded",
            fix="pip install -e .",
        )
    for requirement in needed:
        if not requirement.extra:
            yield _package(requirement)
    yield from _imports()
    yield from _pair()


def extras(requirements: Iterable[str] | None = None) -> Iterator[Finding]:
    """What is there of each extra; an extra that is missing is no fault.

    Args:
        requirements: as for :func:`packages`.
    """
    wanted: dict[str, list[Requirement]] = {}
    for requirement in _requirements(requirements):
        if requirement.extra and requirement.extra not in _GATHERED:
            wanted.setdefault(requirement.extra, []).append(requirement)
    for extra in sorted(wanted):
        listed = list(_expanded(extra, wanted))
        lacking = [requirement for requirement in listed if _lacks(requirement)]
        shown = ", ".join(f"{r.package} {_installed(r.package)}" for r in listed if r not in lacking)
        if not lacking:
            yield Finding(name=extra, state="ok", detail=shown)
            continue
        missing = "without " + ", ".join(f"{r.package}{r.wanted}" for r in lacking)
        yield Finding(
            name=extra,
            state="missing",
            detail=f"{missing}; with {shown}" if shown else missing,
            fix=install_line(extra),
        )


def devices() -> Iterator[Finding]:
    """Where torch can compute."""
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - a broken torch raises anything, and is reported with the packages
        yield Finding(name="torch", state="note", detail=f"unknown, torch does not import ({error})")
        return
    detail = f"{torch.get_num_threads()} threads, {os.cpu_count()} cores"
    yield Finding(name="cpu", state="ok", detail=detail)
    for place in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(place)
        detail = f"{about.name}, {about.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        yield Finding(name=f"cuda:{place}", state="ok", detail=detail)
    if torch.cuda.is_available():
        return
    if shutil.which("nvidia-smi"):
        yield Finding(
            name="cuda",
            state="note",
            detail=f"there is an NVIDIA driver, but torch {torch.__version__} cannot use it",
            fix="pip install --force-reinstall torch torchvision   # a build for your CUDA version, see pytorch.org",
        )
    else:
        yield Finding(name="cuda", state="note", detail="no GPU that torch can use")


def cache() -> Iterator[Finding]:
    """What was downloaded, what was cut short, and how much room there is."""
    home = cache_home()
    size = sum(path.stat().st_size for path in _files(home))
    writable = _writable(home)
    yield Finding(
        name="folder",
        state="ok" if writable else "note",
        detail=f"{home}, {_megabytes(size)}" + ("" if writable else ", cannot be written to"),
        fix="" if writable else "export WHORL_HOME=FOLDER   # one that can be written to",
    )
    yield from _weights(home)
    unfinished = [*home.rglob("incoming-*"), *home.rglob(".*.part"), *home.rglob("download.whl")]
    if unfinished:
        yield Finding(
            name="unfinished",
            state="note",
            detail=f"{len(unfinished)} left by downloads that were cut short, or that go on right now",
            fix="load the model again: the next download of the same thing clears them away",
        )
    free = shutil.disk_usage(next(part for part in (home, *home.parents) if part.exists())).free
    low = free < LOW_DISK
    yield Finding(
        name="disk",
        state="note" if low else "ok",
        detail=f"{free / 1e9:.1f} GB free",
        fix="export WHORL_HOME=FOLDER   # on a larger disk" if low else "",
    )


def figures() -> Iterator[Finding]:
    """The browser that draws figures as files."""
    named = os.environ.get("BROWSER_PATH")
    found = (named if named and Path(named).is_file() else None) or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if found:
        yield Finding(name="browser", state="ok", detail=found)
    else:
        yield Finding(
            name="browser",
            state="missing",
            detail="no Chrome or Chromium; reports and tables need none, figures as PNG and PDF files do",
            fix="kaleido_get_chrome   # or: apt install chromium",
        )


def _requirements(lines: Iterable[str] | None) -> Iterator[Requirement]:
    if lines is None:
        try:
            lines = requires(DISTRIBUTION) or ()
        except PackageNotFoundError:
            lines = ()
    return (Requirement.parse(line) for line in lines)


def _expanded(
    extra: str, wanted: dict[str, list[Requirement]], seen: frozenset[str] = frozenset()
) -> Iterator[Requirement]:
    """The packages of an extra, those of the extras that it brings along included."""
    for requirement in wanted.get(extra, ()):
        if requirement.package.lower() != DISTRIBUTION:
            yield requirement
            continue
        for other in requirement.brings:
            if other not in seen:
                yield from _expanded(other, wanted, seen | {extra})


def _package(requirement: Requirement) -> Finding:
    installed, fix = _installed(requirement.package), f"pip install '{requirement.package}{requirement.wanted}'"
    if installed is None:
        return Finding(name=requirement.package, state="broken", detail="not installed", fix=fix)
    if _lacks(requirement):
        detail = f"{installed}, but whorl needs {requirement.wanted}"
        return Finding(name=requirement.package, state="broken", detail=detail, fix=f"{fix} --upgrade")
    return Finding(name=requirement.package, state="ok", detail=installed)


def _imports() -> Iterator[Finding]:
    """What is compiled may be there and still not load."""
    loaders: dict[str, Callable[[], object]] = {
        "torch": lambda: import_module("torch"),
        "torchvision": lambda: import_module("whorl.models._torchvision").torchvision(),
        "timm": lambda: import_module("whorl.models._torchvision").timm(),
        "numpy": lambda: import_module("numpy"),
        "pillow": lambda: import_module("PIL.Image"),
        "safetensors": lambda: import_module("safetensors.torch"),
    }
    for name, load in loaders.items():
        try:
            load()
        except Exception as error:  # noqa: BLE001 - a package that does not import may raise anything
            yield Finding(
                name=name,
                state="broken",
                detail=f"does not import: {reason(error)}",
                fix=f"pip install --force-reinstall {name}",
            )


def _pair() -> Iterator[Finding]:
    """Whether torchvision belongs to torch: its operators load beside the build that it was compiled for alone."""
    torch, vision = _installed("torch"), _installed("torchvision")
    if torch is None or vision is None:
        return
    pinned = re.search(r"==\s*([0-9.]+)", next((r for r in requires("torchvision") or () if _names_torch(r)), ""))
    built = pinned[1] if pinned else ""
    try:
        repaired = import_module("whorl.models._torchvision").is_repaired()
    except Exception:  # noqa: BLE001 - a broken torch raises anything, and is reported by itself
        repaired = False
    if repaired or (built and _numbers(built) != _numbers(torch)):
        what = f"was built for torch {built}" if built and _numbers(built) != _numbers(torch) else "is another build"
        yield Finding(
            name="torch and torchvision",
            state="note",
            detail=f"do not match: torchvision {vision} {what}, torch is {torch}. whorl works without the "
            "operators that do not load, but `import torchvision` and `import timm` may fail in other programs",
            fix="pip install --force-reinstall torch torchvision   # both at once and from one index, see pytorch.org",
        )


def _names_torch(line: str) -> bool:
    return Requirement.parse(line).package == "torch"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _lacks(requirement: Requirement) -> bool:
    installed = _installed(requirement.package)
    if installed is None:
        return True
    # Whatever else a range says is pip's to judge; what whorl declares are lower ends.
    lowest = re.search(r">=\s*([0-9.]+)", requirement.wanted)
    return lowest is not None and _numbers(installed) < _numbers(lowest[1])


def _numbers(text: str) -> tuple[int, ...]:
    """The release part of a version.

    >>> _numbers("2.13.0+cpu"), _numbers("2.6") < _numbers("2.13.0+cpu")
    ((2, 13), True)
    """
    found = re.match(r"[0-9]+(\.[0-9]+)*", text)
    parts = [int(part) for part in found[0].split(".")] if found else []
    while parts and not parts[-1]:  # 2.0 is 2
        parts.pop()
    return tuple(parts)


def _weights(home: Path) -> Iterator[Finding]:
    folders = sorted((home / "weights").glob("*/*.safetensors"))
    sizes = {path.stem: path.stat().st_size for path in folders}
    shown = ", ".join(f"{name} {_megabytes(size)}" for name, size in sizes.items())
    yield Finding(
        name="weights",
        state="ok" if sizes else "note",
        detail=shown or "none yet; each network's are fetched when it is first loaded",
        fix="" if sizes else "whorl demo   # fetches what it needs",
    )


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _writable(folder: Path) -> bool:
    there = next(part for part in (folder, *folder.parents) if part.exists())
    return os.access(there, os.W_OK)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
