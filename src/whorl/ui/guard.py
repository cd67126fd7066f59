"""What stands before gradio: it lets through what the page needs, and nothing else.

Gradio's server can do much more than this page asks of it: serve and copy files of the machine, fetch addresses, record
runs. Whoever reaches the port could ask for that too, so the door lists what is wanted, not what is not.
"""

from __future__ import annotations

import ipaddress
import json
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from whorl.ui.image import MAX_BYTES

_API = "/gradio_api"
_READ = {"/", "/config", "/favicon.ico", "/theme.css", f"{_API}/queue/data", f"{_API}/upload_progress"}
_READ_BELOW = ("/assets/", "/static/", f"{_API}/heartbeat/")
_CALL = {f"{_API}/queue/join", f"{_API}/run/predict", f"{_API}/cancel", f"{_API}/reset"}
_UPLOAD = f"{_API}/upload"
# The page's calls are a few hundred bytes; an upload is a file and a little around it.
_MOST_OF_A_CALL = 2**16
_MOST_OF_AN_UPLOAD = MAX_BYTES + 2**16

# Gradio's page needs inline scripts and styles, and makes functions of text; what it may not do is call anybody.
_POLICY = (
    "default-src 'self'",
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "worker-src 'self' blob:",
    "frame-ancestors 'none'",
    "base-uri 'self'",
    "form-action 'self'",
    "object-src 'none'",
)
_HEADERS = {
    "content-security-policy": "; ".join(_POLICY),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """An ASGI application before another.

    Args:
        app: the one behind.
        local: whether requests made to another name than this machine's are refused. A page elsewhere could point a
            name of its own at this machine, and so read along.
        uploads: the folder that uploads pass through; a call may name no other file.
    """

    def __init__(self, app: Any, *, local: bool, uploads: Path) -> None:
        self.app, self.local, self.uploads = app, local, uploads.resolve()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or start and stop with the server."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        body, refusal = b"", self._refusal(scope)
        if refusal is None and scope["path"] in _CALL:
            body = await _read(receive)
            if not self._may_call(body):
                refusal = (403, "Calls name uploaded files alone, and are short.")
            receive = _again(body, receive)
        if refusal is not None:
            status, words = refusal
            await import_module("starlette.responses").PlainTextResponse(words, status)(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *given]}
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        if scope["type"] != "http":
            return 403, "This page speaks HTTP."
        if self.local and not is_loopback(_asked_for(scope)):
            return 403, "This page is for this machine alone."
        method, path = scope["method"], scope["path"]
        if method in ("GET", "HEAD") and (path in _READ or path.startswith(_READ_BELOW)):
            return None
        if method == "POST" and path in _CALL:
            return None
        if method == "POST" and path == _UPLOAD:
            length = _header(scope, b"content-length")
            if length.isdecimal() and len(length) < 12 and int(length) <= _MOST_OF_AN_UPLOAD:
                return None
            return 413, f"Files have {MAX_BYTES / 2**20:g} MB at most."
        return 404, "There is nothing here."

    def _may_call(self, body: bytes) -> bool:
        if len(body) > _MOST_OF_A_CALL:
            return False
        try:
            return all(self._is_upload(path) for path in _paths(json.loads(body or b"null")))
        except (ValueError, RecursionError):
            return False

    def _is_upload(self, path: object) -> bool:
        # An address of another host is a relative path here, and so is refused too.
        return isinstance(path, str) and Path(path).resolve().is_relative_to(self.uploads)


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("127.evil.example")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _paths(content: object) -> list[object]:
    """Everything that a call names as a file, however deep.

    >>> _paths({"data": [3, {"path": "a.png", "meta": {}}, [{"path": "b.png"}]]})
    ['a.png', 'b.png']
    """
    if isinstance(content, dict):
        own = [content["path"]] if "path" in content else []
        return own + [path for value in content.values() for path in _paths(value)]
    return [path for value in content for path in _paths(value)] if isinstance(content, list) else []


def _header(scope: Any, wanted: bytes) -> str:
    value: bytes = next((value for name, value in scope["headers"] if name == wanted), b"")
    return value.decode("latin-1")


def _asked_for(scope: Any) -> str:
    """The host that a request names, without its port."""
    try:
        return urlsplit(f"//{_header(scope, b'host')}").hostname or ""
    except ValueError:
        return ""


async def _read(receive: Any) -> bytes:
    """A request's body, or just more than is allowed of it."""
    body = b""
    while len(body) <= _MOST_OF_A_CALL:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body", False):
            break
    return body


def _again(body: bytes, receive: Any) -> Any:
    """Let a body that was read be read once more."""
    handed = False

    async def replay() -> Any:
        nonlocal handed
        if handed:
            return await receive()
        handed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
