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
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from conftest import random_images
from ui.ui_toys import gradio_is_here, playground
from whorl.data import save_image
from whorl.errors import WhorlError
from whorl.models import Classifier
from whorl.ui.image import MAX_BYTES
from whorl.ui.page import MOST_WAITING
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


@pytest.mark.parametrize(
    "body",
    [b"{" * 9, b"", b"7", b'{"data": [NaN]}', b'{"data": [1e400]}', b"[" * 60_000, b'"' + b"x" * 2**17 + b'"', b"\xff"],
)
def test_a_strange_call_is_refused(address: str, body: bytes) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request("POST", "/gradio_api/queue/join", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 403


def test_a_slow_call_is_given_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl.ui.guard._SECONDS_OF_A_CALL", 0.2)
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=20) as sender:
        sender.sendall(b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        assert sender.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_huge_upload_is_refused_before_it_is_read(address: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.putrequest("POST", "/gradio_api/upload")
    connection.putheader("Content-Type", "multipart/form-data; boundary=x")
    connection.putheader("Content-Length", str(2 * MAX_BYTES))
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (413, b"Files have 25 MB at most.")


def multipart(content: bytes, *, field: str = "files") -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="mine.png"\r\n\r\n'
    return head.encode() + content + b"\r\n--x--\r\n"


def post(address: str, body: bytes, path: str = "/gradio_api/upload", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    connection.request("POST", path, body, kind | {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read()


def uploads() -> list[Path]:
    # os.walk, not rglob: folders may go while they are read.
    return [Path(folder, name) for folder, _, names in os.walk(os.environ["GRADIO_TEMP_DIR"]) for name in names]


def begin(address: str, content: bytes, *, missing: int = 1) -> socket.socket:
    """Begin an upload, and owe ``missing`` bytes of it."""
    body = multipart(content)
    place = urlsplit(address)
    sender = socket.create_connection((place.hostname, place.port), timeout=20)
    head = "POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    sender.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) - missing])
    return sender


def eventually(true: Callable[[], bool]) -> bool:
    limit = time.monotonic() + 60
    while not true() and time.monotonic() < limit:
        time.sleep(0.05)
    return true()


def test_an_upload_that_is_cut_short_leaves_nothing(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    with begin(address, b"somebody's photograph" * 9000):
        assert eventually(lambda: sum(path.stat().st_size for path in uploads()) > 0)  # it had begun to arrive
    assert eventually(lambda: uploads() == [])
    assert capfd.readouterr().err == ""


def test_a_slow_upload_is_given_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl.ui.guard._SECONDS_OF_AN_UPLOAD", 0.2)
    with begin(address, b"slowly") as sender:
        assert sender.recv(100).startswith(b"HTTP/1.1 408 ")
    assert eventually(lambda: uploads() == [])


def test_what_gradio_does_not_take_leaves_nothing(address: str) -> None:
    assert post(address, multipart(b"content", field="other"))[0] == 200
    assert post(address, multipart(b"content").replace(b"name=", b"eman="))[0] == 400
    assert eventually(lambda: uploads() == [])


def test_uploads_that_nobody_fetches_are_capped(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl.ui.upload_folder.MOST_HELD", 1000)
    try:
        assert post(address, multipart(bytes(500)))[0] == 200
        assert sum(path.stat().st_size for path in uploads()) == 500
        status, words = post(address, multipart(bytes(500)))
        assert (status, words[:5]) == (503, b"Busy:")
        with begin(address, bytes(200)):  # what is still on its way counts too, whole
            assert eventually(lambda: post(address, multipart(bytes(100)))[0] == 503)
    finally:
        for path in uploads():
            path.unlink()
    assert eventually(lambda: post(address, multipart(b""))[0] == 200)


FOREIGN = [
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site", "Origin": "http://127.0.0.1:1"},
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Referer": "https://evil.example/page"},
    {"Origin": "http://["},
]


@pytest.mark.parametrize("path", ["/gradio_api/upload", "/gradio_api/queue/join", "/gradio_api/run/predict"])
@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_another_sites_page_is_refused(address: str, path: str, headers: dict[str, str]) -> None:
    before = uploads()
    assert post(address, multipart(b"theirs"), path, **headers)[0] == 403
    assert uploads() == before


def test_its_own_page_is_not(address: str) -> None:
    own = [
        {"Origin": address, "Sec_Fetch_Site": "same-origin"},
        {"Origin": address},
        {"Referer": f"{address}/"},
        {"Origin": "http://localhost", "Host": "localhost:80"},
    ]
    assert [post(address, multipart(b""), **headers)[0] for headers in own] == [200] * len(own)


def test_no_script_of_another_site_reads_along(address: str) -> None:
    assert get(address, "/config", Origin="http://127.0.0.1:1").status == 403
    assert get(address, "/", **{"Sec-Fetch-Site": "cross-site"}).status == 200  # a link to the page


def join(address: str, number: int, session: str) -> tuple[int, bytes]:
    sent = {"data": [1, "slow", "other", "pgd", 8, 50, 0, 1, 0, 0], "fn_index": number, "session_hash": session}
    return post(address, json.dumps(sent).encode(), "/gradio_api/queue/join", Content_Type="application/json")


def test_the_queue_is_bounded_and_cannot_be_skipped() -> None:
    gradio_is_here()
    offered = playground()
    entered, go_on = threading.Event(), threading.Event()

    def wait(name: str) -> Classifier:
        entered.set()
        go_on.wait(60)
        raise WhorlError(f"{name} is not to be crafted on.")

    with running(offered) as address:
        while not offered.pace:  # the opening example is crafted first
            time.sleep(0.05)
        offered.network = wait  # type: ignore[method-assign]  # the first attack lasts as long as the test wants
        config = json.loads(get(address, "/config").read())
        [number] = [one["id"] for one in config["dependencies"] if one["id"] and len(one["inputs"]) == 10]
        first = offered.visits.of("first")
        first.order()
        first.image = offered.samples[0]
        try:
            assert join(address, number, "first")[0] == 200
            assert entered.wait(20)
            answers = [join(address, number, f"visitor {n}") for n in range(MOST_WAITING + 2)]
        finally:
            go_on.set()
        assert [status for status, _ in answers] == [200] * MOST_WAITING + [503] * 2
        assert b"Queue is full" in answers[-1][1]
        skipped = {"data": [1, "toy", "other", "pgd", 8, 1, 0, 1, 0, 0], "fn_index": number, "session_hash": "a"}
        body = json.dumps(skipped).encode()
        assert post(address, body, "/gradio_api/run/predict", Content_Type="application/json")[0] in (401, 404)


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
    with pytest.raises(WhorlError, match=r"pip install 'torchwhorl\[ui\]'"), running(playground()):
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
        said = ""
        while (found := re.search(r"The playground is at (http://127\.0\.0\.1:\d+) ", said)) is None:
            line = process.stderr.readline()
            assert line, said  # it ended
            said += line
        assert get(found[1]).status == 200
        assert len(list(tmp_path.glob("whorl-ui-*"))) == 1
        process.send_signal(number)
        assert process.wait(timeout=30) == code
        assert process.stderr.read() == ""
    assert not list(tmp_path.glob("whorl*"))
