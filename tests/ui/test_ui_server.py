"""Serving: this machine alone, no word to others, nothing left behind."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from conftest import random_images
from ui.ui_toys import gradio_is_here, playground
from whorl.data import save_image
from whorl.errors import WhorlError
from whorl.ui.image import MAX_BYTES
from whorl.ui.server import running

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def contacted() -> Iterator[list[Any]]:
    """Every address that this process connects to or looks up."""
    seen: list[Any] = []
    connect, find = socket.socket.connect, socket.getaddrinfo

    def connecting(self: socket.socket, address: Any) -> None:
        seen.append(address[0] if isinstance(address, tuple) else address)
        connect(self, address)

    def finding(host: Any, *rest: Any, **more: Any) -> Any:
        seen.append(host)
        return find(host, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connecting)
        patch.setattr(socket, "getaddrinfo", finding)
        yield seen


@pytest.fixture(scope="module")
def address(contacted: list[Any]) -> Iterator[str]:
    gradio_is_here()
    with running(playground()) as place:
        yield place


def get(address: str, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_it_listens_to_this_machine_alone(address: str) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
    port = urlsplit(address).port
    table = Path("/proc/net/tcp")
    if table.exists():
        listening = [line.split()[1] for line in table.read_text().splitlines()[1:] if line.split()[3] == "0A"]
        assert [place for place in listening if place.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def test_the_page_may_call_nobody(address: str) -> None:
    answer = get(address)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    page = answer.read().decode()
    assert "<title>" in page or "gradio_config" in page
    assert "fonts.googleapis" not in page


@pytest.mark.parametrize(
    ("name", "status"),
    [("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200), ("evil.example", 403), ("127.evil.example", 403)],
)
def test_another_name_for_this_machine_is_refused(address: str, name: str, status: int) -> None:
    assert get(address, Host=name).status == status


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/openapi.json",
        "/monitoring",
        "/gradio_api/runs",
        "/gradio_api/info",
        "/gradio_api/deep_link",
        "/gradio_api/vibe-code",
        f"/gradio_api/file={__file__}",
        "/gradio_api/proxy=http://192.0.2.1/",
    ],
)
def test_there_is_nothing_but_the_page(address: str, path: str) -> None:
    assert get(address, path).status == 404


def call(address: str, sent: Any) -> tuple[int, bytes]:
    """Send a file's name to the page's own function for uploads, as anybody who reaches the port can."""
    config = json.loads(get(address, "/config").read())
    [number] = [one["id"] for one in config["dependencies"] if one["targets"][0][1] == "upload"]
    body = json.dumps({"data": [sent], "fn_index": number, "session_hash": "stranger", "event_data": None})
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request("POST", "/gradio_api/queue/join", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("where", ["file", "outside", "http://192.0.2.1/a.png", "https://example.com/a.png", 7, "a\0b"])
def test_a_call_names_no_files_but_uploads(
    address: str, contacted: list[Any], tmp_path: Path, where: Any, nested: bool
) -> None:
    mine = tmp_path / "mine.png"
    save_image(mine, random_images(1)[0])
    folder = Path(os.environ["GRADIO_TEMP_DIR"])
    path = {"file": str(mine), "outside": f"{folder}/../{mine.name}"}.get(where, where)
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    assert call(address, {"value": [file]} if nested else file)[0] == 403
    assert mine.exists()
    assert not list(folder.rglob("mine*"))
    assert not {"192.0.2.1", "example.com"} & {str(place) for place in contacted}


def test_a_call_for_an_upload_that_is_gone_is_harmless(address: str) -> None:
    file = {"path": f"{os.environ['GRADIO_TEMP_DIR']}/gone/gone.png", "meta": {"_type": "gradio.FileData"}}
    assert call(address, file)[0] == 200


@pytest.mark.parametrize("body", [b"{" * 9, b"[" * 60_000, b'"' + b"x" * 2**17 + b'"', b"\xff"])
def test_a_strange_call_is_refused(address: str, body: bytes) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request("POST", "/gradio_api/queue/join", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 403


def test_a_huge_upload_is_refused_before_it_is_read(address: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.putrequest("POST", "/gradio_api/upload")
    connection.putheader("Content-Type", "multipart/form-data; boundary=x")
    connection.putheader("Content-Length", str(2 * MAX_BYTES))
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (413, b"Files have 25 MB at most.")


def test_nobody_was_contacted(address: str, contacted: list[Any]) -> None:
    get(address).read()
    others = {str(place) for place in contacted} - {"127.0.0.1", "localhost", "::1", "None"}
    assert others == set()


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gradio_is_here()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, folders = dict(os.environ), []
    for _ in range(2):  # the second must not bring back what the first left out
        with running(playground()):
            folder = Path(os.environ["GRADIO_TEMP_DIR"])
            assert folder.parent == tmp_path
            assert folder.stat().st_mode & 0o077 == 0  # nobody else may look in
            (folder / "upload.png").write_bytes(b"somebody's photograph")
        folders.append(folder)
    assert len(set(folders)) == 2
    assert [path for path in tmp_path.iterdir() if path.name.startswith(("whorl", "gradio"))] == []
    assert dict(os.environ) == before


def test_a_port_in_use_is_told() -> None:
    gradio_is_here()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = f"cannot listen on 127.0.0.1, port {port}"
        with pytest.raises(WhorlError, match=message), running(playground(), port=port):
            pass


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [("127.0.0.1", 65536, r"port must lie in \[0, 65535\]"), ("no such host", 0, "there is no address 'no such host'")],
)
def test_a_bad_address_is_told(host: str, port: int, message: str) -> None:
    gradio_is_here()
    with pytest.raises(WhorlError, match=message), running(playground(), host=host, port=port):
        pass


def test_without_gradio_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(WhorlError, match=r"pip install 'whorl\[ui\]'"), running(playground()):
        pass


COMMAND = "import whorl.cli.ui; from whorl.cli import app; app()"


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 0, marks=pytest.mark.slow), (signal.SIGTERM, 128 + signal.SIGTERM)],
    ids=["interrupted", "terminated"],
)
def test_the_command_serves_until_it_is_told_to_end(number: int, code: int, tmp_path: Path) -> None:
    gradio_is_here()
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    arguments = ["ui", "--model", "python:cli.toy_networks:small", "--device", "cpu"]
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"The playground is at (http://127\.0\.0\.1:\d+) ", line)
        assert found, line + process.stderr.read()
        assert get(found[1]).status == 200
        assert len(list(tmp_path.glob("whorl-ui-*"))) == 1
        process.send_signal(number)
        assert process.wait(timeout=30) == code
        assert process.stderr.read() == ""
    assert not list(tmp_path.glob("whorl*"))
