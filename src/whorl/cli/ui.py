"""``whorl ui``: the playground in a browser."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from whorl.cli.app import app
from whorl.cli.console import messages
from whorl.cli.options import Device, Seed

_EXAMPLES = """
Example: whorl ui

Example: whorl ui --model timm:resnet50 --port 7860
"""


@app.command(epilog=_EXAMPLES)
def ui(
    host: Annotated[
        str, typer.Option(help="Address to listen on. The default is this machine alone; 0.0.0.0 lets others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Offer this network first: a name or an address, as in `whorl models`. May be repeated."),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
    device: Device = "auto",
    seed: Seed = 0,
) -> None:
    """Open a page in the browser to attack an image, rotate, scale and translate it. Needs the extra ui.

    Works offline. Images stay in memory, and are forgotten when the page is closed.
    """
    messages().print(Text("Starting the playground: torch and gradio take some seconds to load."))
    from whorl.models.zoo import find_device  # brings torch: after the line above, so that the start is not silent
    from whorl.ui.guard import is_loopback
    from whorl.ui.playground import Playground, offers
    from whorl.ui.server import serve

    place = find_device(device)
    playground = Playground(offers(model or ()), device=place, seed=seed)
    for name in dict.fromkeys(model or ()):
        playground.network(name)  # a bad address is refused now, and not when somebody chooses it
    if not is_loopback(host):
        messages().print(Text("Anyone who can reach this machine can use the page.", style="yellow"))

    def ready(address: str) -> None:
        messages().print(Text(f"The playground is at {address} (Ctrl-C ends it)."))
        if browser:
            import webbrowser

            webbrowser.open(address)

    serve(playground, host=host, port=port, ready=ready)
