"""Fetching: verified or not there at all, whatever goes wrong on the way."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from whorl import artifacts
from whorl.artifacts import Artifact, cache_home, fetch
from whorl.errors import WhorlError

FILES = {
    "demo/data/a.bin": b"first" * 1000,
    "demo/data/b.bin": b"second" * 1000,
    "demo/__init__.py": b"raise SystemExit",
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pinned(*members: str) -> Artifact:
    return Artifact(package="demo", version="1.0", files={member: sha256(FILES[member]) for member in members})


BOTH = pinned("demo/data/a.bin", "demo/data/b.bin")


def write_wheel(folder: Path, files: Mapping[str, bytes]) -> Path:
    """The smallest wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel, info = folder / "demo-1.0-py3-none-any.whl", "demo-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Python: <3\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a pip that knows one folder of wheels and nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("WHORL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def wheel(home: Path, tmp_path: Path) -> Path:
    return write_wheel(tmp_path / "wheels", FILES)


def forbid_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("pip was called")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def contents(home: Path) -> set[str]:
    """Everything in the cache but locks."""
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"}


SOUND = {f"artifacts/demo-1.0/{member}" for member in BOTH.files}


def check_sound(home: Path) -> None:
    assert contents(home) == SOUND
    for member in BOTH.files:
        assert (home / "artifacts/demo-1.0" / member).read_bytes() == FILES[member]


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHORL_HOME", str(tmp_path / "elsewhere"))
    assert cache_home() == tmp_path / "elsewhere"
    monkeypatch.delenv("WHORL_HOME")
    assert cache_home().name == "whorl"


def test_fetches_exactly_the_files_asked_for(home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = fetch(BOTH)
    assert list(paths) == list(BOTH.files)
    check_sound(home)
    forbid_pip(monkeypatch)
    assert fetch(BOTH) == paths


def test_a_line_in_the_log_says_what_is_going_on(home: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fetch(BOTH)
    assert capsys.readouterr().err == "whorl: downloading demo==1.0\n"


def test_a_damaged_file_in_the_cache_is_replaced(home: Path, wheel: Path) -> None:
    path = fetch(BOTH)["demo/data/a.bin"]
    path.write_bytes(b"f" + path.read_bytes()[1:-1] + b"?")
    fetch(BOTH)
    check_sound(home)


def test_a_complete_cache_need_not_be_writable(home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(BOTH)

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(artifacts, "exclusive", refuse)
    fetch(BOTH)


def test_a_wrong_hash_names_both_and_keeps_nothing(home: Path, wheel: Path) -> None:
    wrong = Artifact(package="demo", version="1.0", files={"demo/data/a.bin": "0" * 64})
    with pytest.raises(WhorlError, match="SHA-256") as caught:
        fetch(wrong)
    assert "0" * 64 in str(caught.value)
    assert sha256(FILES["demo/data/a.bin"]) in str(caught.value)
    assert contents(home) == set()
    fetch(BOTH)
    check_sound(home)


def test_a_missing_member_is_named(home: Path, wheel: Path) -> None:
    with pytest.raises(WhorlError, match=r"no/such\.bin"):
        fetch(Artifact(package="demo", version="1.0", files={"no/such.bin": "0" * 64}))
    assert contents(home) == set()


def test_without_a_network_the_error_says_what_to_do(home: Path) -> None:
    with pytest.raises(WhorlError, match="PIP_FIND_LINKS") as caught:
        fetch(BOTH)
    assert "No matching distribution found for demo==1.0" in str(caught.value)
    assert contents(home) == set()


def test_without_pip_the_error_says_how_to_get_it(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(WhorlError, match="ensurepip"):
        fetch(BOTH)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_cache_sound(
    home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(WhorlError, match="no space left"):
            fetch(BOTH)
    assert not contents(home) & SOUND
    fetch(BOTH)
    check_sound(home)


def test_a_disk_that_fills_up_under_pip_is_recognised(home: Path) -> None:
    said = f"ERROR: Could not install packages due to an OSError: [Errno 28] {os.strerror(errno.ENOSPC)}"
    assert "no space left" in str(artifacts._failed(BOTH, 1, said))


def test_a_cache_that_cannot_be_written_is_named(
    home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(WhorlError, match=r"cannot be written to.*WHORL_HOME"):
            fetch(BOTH)
    (tmp_path / "file").touch()
    monkeypatch.setenv("WHORL_HOME", str(tmp_path / "file"))
    with pytest.raises(WhorlError, match=r"cannot be used.*WHORL_HOME"):
        fetch(BOTH)


FETCH = f"""
from whorl.artifacts import Artifact, fetch
fetch(Artifact(package="demo", version="1.0", files={dict(BOTH.files)}))
"""


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


# The second file is written but not yet in place; the download itself is finished.
DIE_AT_THE_SECOND_FILE = """
import os, signal
calls = []
def fsync(file):
    calls.append(file)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
"""


def test_killed_while_extracting(home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(DIE_AT_THE_SECOND_FILE + FETCH)
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    left = contents(home)
    assert any(name.endswith(".part") for name in left)
    assert "artifacts/demo-1.0/download.whl" in left
    with monkeypatch.context() as patch:
        forbid_pip(patch)
        fetch(BOTH)
    check_sound(home)


def test_a_kept_wheel_that_is_damaged_is_downloaded_again(home: Path, wheel: Path) -> None:
    kept = home / "artifacts/demo-1.0/download.whl"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(wheel.read_bytes()[: wheel.stat().st_size // 2])
    fetch(BOTH)
    check_sound(home)


class Server:
    """A folder of wheels on the loopback interface whose connection stalls half-way until told otherwise."""

    def __init__(self, wheel: Path) -> None:
        self.stalled, self.go_on = threading.Event(), threading.Event()
        server, data = self, wheel.read_bytes()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = f'<a href="{wheel.name}">{wheel.name}</a>'.encode()
                body = data if self.path.endswith(".whl") else page
                self.send_response(200)
                self.send_header("Content-Type", "application/zip" if body is data else "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                if body is data and not server.go_on.is_set():
                    server.stalled.set()
                    server.go_on.wait(60)
                    return
                self.wfile.write(body[len(body) // 2 :])

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/"

    @classmethod
    @contextmanager
    def serving(cls, wheel: Path) -> Iterator[Server]:
        server = cls(wheel)
        threading.Thread(target=server.http.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.go_on.set()
            server.http.shutdown()
            server.http.server_close()


def test_killed_while_downloading(home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server.serving(wheel) as server:
        monkeypatch.setenv("PIP_FIND_LINKS", server.address)
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        process = start(FETCH)
        assert server.stalled.wait(120)
        process.kill()
        process.wait()
        assert any("/incoming-" in name for name in contents(home))
        server.go_on.set()
        fetch(BOTH)
    check_sound(home)


def test_two_processes_download_once(home: Path, wheel: Path) -> None:
    pair = [start(FETCH), start(FETCH)]
    said = "".join(process.communicate()[1] for process in pair)
    assert [process.returncode for process in pair] == [0, 0], said
    assert said.count("downloading") == 1, said
    check_sound(home)


@pytest.mark.parametrize(
    "member", ["../a", "/a", "a/../../b", "C:/a", "C:a", "a\\b", "", ".", "a//b", "./a", "a/", "a\0b"]
)
def test_paths_that_lead_out_of_the_cache_are_refused(member: str) -> None:
    with pytest.raises(WhorlError, match="relative path"):
        Artifact(package="demo", version="1.0", files={member: "0" * 64})


@pytest.mark.parametrize(
    ("package", "version"), [("--upgrade", "1"), ("a/b", "1"), ("", "1"), ("demo", "1 --pre"), ("demo", "")]
)
def test_names_that_pip_would_read_as_options_are_refused(package: str, version: str) -> None:
    with pytest.raises(WhorlError, match="must be letters"):
        Artifact(package=package, version=version, files={})


def test_hashes_are_hexadecimal() -> None:
    with pytest.raises(WhorlError, match="64 lowercase hexadecimal"):
        Artifact(package="demo", version="1.0", files={"a": "abc"})


# ---------------------------------------------------------------------------------------------------------------------
# From npm

FROM_NPM = Artifact(
    package="demo",
    version="1.0",
    files={f"package/{name}": sha256(FILES[name]) for name in ("demo/data/a.bin", "demo/data/b.bin")},
    source="npm",
)
NPM = """#!/bin/sh
echo "$@" >> "{calls}"
while [ "$1" != --pack-destination ]; do shift; done
[ -f "{package}" ] || {{ echo "npm error code E404" >&2; exit 1; }}
cp "{package}" "$2/demo-1.0.tgz"
"""


def write_package(path: Path, files: Mapping[str, bytes], *, link: str | None = None) -> None:
    """A package as npm packs it; optionally with a link in a file's place."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            if name == link:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            entry.size = 0 if name == link else len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.fixture
def npm(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake npm in front of PATH that packs one package, which is given back; its calls are in ``calls`` beside it."""
    package, script = tmp_path / "demo.tgz", tmp_path / "bin" / "npm"
    write_package(package, FILES)
    script.parent.mkdir()
    script.write_text(NPM.format(calls=tmp_path / "calls", package=package))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return package


def test_npm_packs_once_without_scripts(
    home: Path, npm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = fetch(FROM_NPM)
    assert capsys.readouterr().err == "whorl: downloading demo@1.0\n"
    assert {member: path.read_bytes() for member, path in paths.items()} == {
        f"package/{name}": FILES[name] for name in ("demo/data/a.bin", "demo/data/b.bin")
    }
    assert contents(home) == {f"artifacts/demo-1.0/{member}" for member in FROM_NPM.files}
    [call] = npm.with_name("calls").read_text().splitlines()
    assert call.startswith("pack --ignore-scripts")
    assert call.endswith(" demo@1.0")
    forbid_pip(monkeypatch)
    assert fetch(FROM_NPM) == paths


def test_without_npm_the_error_says_how_to_get_it(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("npm") is None
    with pytest.raises(WhorlError, match=r"npm is needed to download demo@1\.0.*Install Node\.js"):
        fetch(FROM_NPM)
    assert contents(home) == set()


def test_what_npm_says_is_passed_on(home: Path, npm: Path) -> None:
    npm.unlink()
    with pytest.raises(WhorlError, match=r"npm could not download demo@1\.0.*exit status 1") as caught:
        fetch(FROM_NPM)
    assert "npm error code E404" in str(caught.value)
    assert contents(home) == set()


def test_a_disk_that_fills_up_under_npm_is_recognised(home: Path) -> None:
    assert "no space left" in str(artifacts._failed(FROM_NPM, 1, "npm error code ENOSPC\nnpm error nospc"))


@pytest.mark.parametrize("case", ["cut", "garbage", "empty", "wrong", "missing", "link"])
def test_a_bad_package_is_refused_and_nothing_is_kept(home: Path, npm: Path, case: str) -> None:
    whole = npm.read_bytes()
    name = "demo/data/a.bin"
    if case in ("wrong", "missing", "link"):
        files = {key: b"other" if case == "wrong" else data for key, data in FILES.items()}
        if case == "missing":
            del files[name]
        write_package(npm, files, link=name if case == "link" else None)
    else:
        npm.write_bytes({"cut": whole[: len(whole) // 2], "garbage": b"no archive" * 99, "empty": b""}[case])
    says = {"wrong": "wrong SHA-256.*npm cache clean", "missing": "lacks an expected file", "link": "no regular file"}
    with pytest.raises(WhorlError, match=says.get(case, "is damaged.*npm cache clean")):
        fetch(FROM_NPM)
    assert contents(home) == set()


def test_a_kept_package_that_is_damaged_is_downloaded_again(home: Path, npm: Path) -> None:
    kept = home / "artifacts/demo-1.0/download.tgz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(npm.read_bytes()[:100])
    fetch(FROM_NPM)
    assert contents(home) == {f"artifacts/demo-1.0/{member}" for member in FROM_NPM.files}
    assert len(npm.with_name("calls").read_text().splitlines()) == 1
