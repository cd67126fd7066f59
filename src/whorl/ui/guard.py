"""What stands before gradio: it lets through what the page needs, and nothing else.

Gradio's server can do much more than this page needs: serve and copy files of the machine, fetch addresses, record
runs. Whoever reaches the port could request that too, so the door lists what is wanted, not what is not.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from whorl.ui.image import MAX_BYTES
from whorl.ui.upload_folder import MOST_HELD, UploadFolder

_API = "/gradio_api"
_READ = {"/", "/config", "/favicon.ico", "/theme.css", f"{_API}/queue/data", f"{_API}/upload_progress"}
_READ_BELOW = ("/assets/", "/static/", f"{_API}/heartbeat/")
_CALL = {f"{_API}/queue/join", f"{_API}/run/predict", f"{_API}/cancel", f"{_API}/reset"}
_UPLOAD = f"{_API}/upload"
# The page's calls are a few hundred bytes; an upload is a file and a little around it.
_MOST_OF_A_CALL = 2**16
_MOST_OF_AN_UPLOAD = MAX_BYTES + 2**16
_SECONDS_OF_A_CALL, _SECONDS_OF_AN_UPLOAD = 20, 120

_TOO_LARGE = 413, f"Files have {MAX_BYTES / 2**20:g} MB at most."
_TOO_SLOW = 408, f"The file took longer than {_SECONDS_OF_AN_UPLOAD} seconds. Send it again, or make it smaller."
_CALL_TOO_SLOW = 408, f"The call took longer than {_SECONDS_OF_A_CALL} seconds. Send it again."
_FULL = 503, f"Busy: uploads of {MOST_HELD / 2**20:g} MB are being read. Try again in a minute."

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
        self.app, self.local, self.uploads = app, local, UploadFolder(uploads)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or start and stop with the server."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        body, refusal = b"", self._refusal(scope)
        if refusal is None and scope["path"] in _CALL:
            try:
                async with asyncio.timeout(_SECONDS_OF_A_CALL):
                    body = await _read(receive)
                if not self._may_call(body):
                    refusal = (403, "Calls name uploaded files alone, and are short.")
            except TimeoutError:
                refusal = _CALL_TOO_SLOW
            receive = _again(body, receive)
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *given]}
            await send(message)

        if scope["path"] == _UPLOAD:
            await self._upload(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)

    async def _upload(self, scope: Any, receive: Any, send: Any) -> None:
        size = int(_header(scope, b"content-length"))
        if not self.uploads.has_room_for(size):
            await _refuse(_FULL, scope, receive, send)
            return
        left = import_module("starlette.requests").ClientDisconnect
        with self.uploads.arriving(size):
            try:
                async with asyncio.timeout(_SECONDS_OF_AN_UPLOAD):
                    await self.app(scope, receive, send)
            except left:
                pass  # nobody waits for an answer
            except TimeoutError:
                await _refuse(_TOO_SLOW, scope, receive, send)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        if scope["type"] != "http":
            return 403, "This page speaks HTTP."
        if self.local and not is_loopback(_asked_for(scope)):
            return 403, "This page is for this machine alone."
        if _is_foreign(scope):
            return 403, "The request comes from another site's page. Open this one by its own address."
        method, path = scope["method"], scope["path"]
        if method in ("GET", "HEAD") and (path in _READ or path.startswith(_READ_BELOW)):
            return None
        if method == "POST" and path in _CALL:
            return None
        if method == "POST" and path == _UPLOAD:
            length = _header(scope, b"content-length")
            if length.isdecimal() and len(length) < 12 and int(length) <= _MOST_OF_AN_UPLOAD:
                return None
            return _TOO_LARGE
        return 404, "There is nothing here."

    def _may_call(self, body: bytes) -> bool:
        if len(body) > _MOST_OF_A_CALL:
            return False
        try:
            content = json.loads(body, parse_constant=_finite, parse_float=_finite)
            return isinstance(content, dict) and all(self._is_upload(path) for path in _paths(content))
        except (ValueError, RecursionError):
            return False

    def _is_upload(self, path: object) -> bool:
        # An address of another host is a relative path here, and so is refused too.
        return isinstance(path, str) and Path(path).resolve().is_relative_to(self.uploads.path)


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("127.evil.example")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _finite(text: str) -> float:
    # NaN would pass every bound of a control.
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no number")
    return number


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


def _is_foreign(scope: Any) -> bool:
    """Whether a browser says that the page of another site sends a request that could change something.

    Programs other than browsers say nothing of the kind; they could say anything.

    >>> def sent(**headers: str) -> bool:
    ...     given = {"host": "127.0.0.1:7860"} | {name.replace("_", "-"): value for name, value in headers.items()}
    ...     return _is_foreign({"method": "POST", "headers": [(n.encode(), v.encode()) for n, v in given.items()]})
    >>> sent(), sent(origin="http://127.0.0.1:7860"), sent(sec_fetch_site="same-origin", origin="null")
    (False, False, False)
    >>> sent(origin="http://127.0.0.1:3000"), sent(origin="null"), sent(referer="http://evil.example/page")
    (True, True, True)
    """
    origin, site = _header(scope, b"origin"), _header(scope, b"sec-fetch-site")
    if scope["method"] in ("GET", "HEAD"):  # a link from elsewhere may lead here; no script of elsewhere may read along
        return bool(origin) and not _is_own(scope, origin)
    if site:
        return site not in ("same-origin", "none")
    claimed = origin or _header(scope, b"referer")
    return bool(claimed) and not _is_own(scope, claimed)


def _is_own(scope: Any, address: str) -> bool:
    """Whether an address has the host and port that the request was sent to; its scheme a proxy may have changed."""
    with suppress(ValueError):
        claimed, host = urlsplit(address), urlsplit(f"//{_header(scope, b'host')}")
        usual = {"http": 80, "https": 443}.get(claimed.scheme)
        return (claimed.hostname, claimed.port or usual) == (host.hostname, host.port or usual) != (None, usual)
    return False


async def _refuse(refusal: tuple[int, str], scope: Any, receive: Any, send: Any) -> None:
    status, words = refusal
    await import_module("starlette.responses").PlainTextResponse(words, status)(scope, receive, send)


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
