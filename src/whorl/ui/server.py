"""Serving the page: to this machine alone by default, with requests to nobody else, and leaving nothing."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from whorl.errors import WhorlError
from whorl.ui.first_example import OpeningExample
from whorl.ui.guard import Guard, is_loopback
from whorl.ui.image import MAX_BYTES
from whorl.ui.layout import library
from whorl.ui.page import build, style
from whorl.ui.playground import Playground

LOOPBACK = "127.0.0.1"

_SECONDS_TO_CLOSE = 2
_SECONDS_TO_OPEN = 60


def serve(
    playground: Playground, *, host: str = LOOPBACK, port: int = 0, ready: Callable[[str], None] | None = None
) -> None:
    """Serve the page until the process is interrupted or told to end. Runs in the main thread.

    Args:
        playground: what the page offers.
        host: address to listen on; others than the default let other machines in.
        port: to listen on; 0 takes a free one.
        ready: called with the page's address once it can be opened.

    Raises:
        WhorlError: gradio is not installed, or the address cannot be listened on.
    """
    with _server(playground, host, port) as (server, bound, address):
        if ready is not None:
            _when_started(server, lambda: ready(address))
        # uvicorn hands a signal on once it has closed. By default that would end the process before the folder is gone.
        before = signal.signal(signal.SIGTERM, _end)
        try:
            server.run(sockets=[bound])
        except KeyboardInterrupt:
            pass  # the way to end it
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def running(playground: Playground, *, host: str = LOOPBACK, port: int = 0) -> Iterator[str]:
    """Serve the page in a thread while the block runs.

    Args:
        playground: what the page offers.
        host: address to listen on.
        port: to listen on; 0 takes a free one.

    Yields:
        The page's address.
    """
    with _server(playground, host, port) as (server, bound, address):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="whorl-ui", daemon=True)
        thread.start()
        try:
            _wait_until(lambda: server.started or not thread.is_alive())
            if not server.started:
                raise WhorlError("the playground did not start. The log above says why.")
            yield address
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _server(playground: Playground, host: str, port: int) -> Iterator[tuple[Any, socket.socket, str]]:
    """A server that is not started yet, its socket and its address. What it wrote is deleted with the block."""
    opening = OpeningExample(playground)
    with tempfile.TemporaryDirectory(prefix="whorl-ui-") as folder, _environment(**_settings(folder)):
        library()
        uvicorn: Any = import_module("uvicorn")  # comes with gradio, like fastapi
        bound = _bind(host, port)
        try:
            config = uvicorn.Config(
                _app(playground, opening, host, folder),
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=_SECONDS_TO_CLOSE,
            )
            with opening.prepared():
                yield uvicorn.Server(config), bound, _address(bound)
        finally:
            bound.close()


def _app(playground: Playground, opening: OpeningExample, host: str, folder: str) -> Any:
    gr, fastapi = library(), import_module("fastapi")
    no_docs: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    # Read from the environment when gradio was imported; a second server would bring the first one's folder back.
    routes: Any = import_module("gradio.routes")
    routes.DEFAULT_TEMP_DIR = folder
    app, page = fastapi.FastAPI(**no_docs), build(playground, opening)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        server_name=host,
        app_kwargs=no_docs,
        footer_links=[],
        run_history=False,
        show_error=False,
        max_file_size=MAX_BYTES,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        # Fonts by name alone: whatever the visitor's system has.
        theme=gr.themes.Default(
            primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
        ),
        css=style(),
    )
    page.has_launched = True  # or gradio does not check which files a call names
    app.add_middleware(Guard, local=is_loopback(host), uploads=Path(folder))
    return app


def _settings(folder: str) -> dict[str, str]:
    """Gradio's, as far as they are not arguments: uploads pass through ``folder``, and nothing is reported."""
    return {
        "GRADIO_TEMP_DIR": folder,
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_SHARE": "False",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _bind(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise WhorlError(f"port must lie in [0, 65535], 0 for any that is free; got {port}.")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise WhorlError(f"there is no address {host!r} to listen on ({error.strerror}). Try {LOOPBACK}.") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except OSError as error:
        bound.close()
        raise WhorlError(
            f"cannot listen on {host}, port {port} ({error.strerror}). Choose another port, or 0 for any that is free."
        ) from error
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    # Listening on all addresses is not an address to open.
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - compared with, not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _when_started(server: Any, call: Callable[[], None]) -> None:
    def wait() -> None:
        _wait_until(lambda: server.started or server.should_exit)
        if server.started:
            call()

    threading.Thread(target=wait, name="whorl-ui-ready", daemon=True).start()


def _wait_until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + _SECONDS_TO_OPEN
    while not true() and time.monotonic() < limit:
        time.sleep(0.05)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
