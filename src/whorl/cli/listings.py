"""``whorl attacks``, ``whorl models`` and ``whorl defenses``: what there is to choose from."""

from __future__ import annotations

from dataclasses import asdict

from whorl.cli.app import app
from whorl.cli.console import output, show_json, table
from whorl.cli.options import AsJson
from whorl.runs import catalog


@app.command(epilog="Example: whorl attacks --json")
def attacks(as_json: AsJson = False) -> None:
    """List the attacks: what each does, and its settings."""
    entries = catalog.attack_catalog()
    if as_json:
        return show_json([asdict(entry) for entry in entries])
    rows = ((entry.name, entry.kind, entry.description, entry.settings) for entry in entries)
    output().print(table("name", "kind", "what it does", "settings", rows=rows))
    return None


@app.command(epilog="Example: whorl models --json")
def models(as_json: AsJson = False) -> None:
    """List the networks that have a name: input size, where the weights come from, and whether they are here."""
    entries = catalog.model_catalog()
    if as_json:
        return show_json([asdict(entry) for entry in entries])
    listing = table("name", "kind", "input", "weights", "cached")
    for entry in entries:
        size = "{} x {}".format(*entry.size)
        listing.add_row(entry.name, entry.kind, size, entry.source, "yes" if entry.cached else "no")
    console = output()
    console.print(listing)
    console.print(
        "Names are case-insensitive, and '-' and '_' are the same. Any other network has an address: timm:NAME, "
        "torchvision:NAME, file:PATH?arch=NAME, onnx:PATH or python:MODULE:FACTORY.",
        style="dim",
    )
    return None


@app.command(epilog="Example: whorl defenses --json")
def defenses(as_json: AsJson = False) -> None:
    """List the defences that can stand before a network, with their settings."""
    entries = catalog.defense_catalog()
    if as_json:
        return show_json([asdict(entry) for entry in entries])
    listing = table("name", "what it does", "settings")
    for entry in entries:
        settings = ", ".join(f"{name}={value:g}" for name, value in entry.settings.items())
        listing.add_row(entry.name, entry.description, settings)
    output().print(listing)
    return None
