"""From a folder of trained and measured weights into the package, with what is known of them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import whorl
from hardening_counts import accuracy, success
from hardening_limits import scaled
from measure import save
from whorl.files import sha256_of
from whorl.hardening.student import blended
from whorl.models.defended import overlay, pack, unpack
from whorl.models.defended.entries import MANIFEST
from whorl.models.weights import state_dict_sha256


def ship(text: str, options: argparse.Namespace) -> None:
    """Write one weight file and its entry of the manifest into the package."""
    name, _, amount = text.partition("@")
    base, _, recipe = name.partition(".")
    evaluation = json.loads((options.out / "evaluation.json").read_text(encoding="utf-8"))
    record = json.loads((options.out / f"{name}.json").read_text(encoding="utf-8"))
    measured_as = f"{name} {float(amount):g}" if amount else name
    net = whorl.load_model(base)
    path = options.ship_to / f"{name}.safetensors"
    pack(path, blended(net, unpack(options.out / path.name), float(amount or 1)), about={"name": name})
    overlay(net.net, unpack(path), path.name)
    digest = state_dict_sha256(net.net)
    if evaluation["weights_sha256"].get(measured_as) != digest:
        sys.exit(f"{measured_as} was not measured with these weights: evaluate --out, with its blend, first.")
    entry = {
        "base": base,
        "file": path.name,
        "sha256": sha256_of(path),
        "weights_sha256": digest,
        "bytes": path.stat().st_size,
        "recipe": recipe,
        **scaled(record, float(amount or 1)),
        "blend_chosen_on": record.get("blend_chosen_on"),
        "started_from": record["job"]["start"] or None,
        "about": record["about"],
        "seed": record.get("seed", options.seed),
        "steps": record["steps"],
        "seconds": record["seconds"],
        "command": record["metadata"]["command"],
        "commit": record["metadata"]["commit"] or options.commit,
        "hardware": record["metadata"]["hardware"],
        "measured": measured(evaluation, measured_as),
    }
    listed = options.ship_to / MANIFEST.name
    content = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else {"models": {}}
    content["models"] = dict(sorted({**content["models"], name: entry}.items()))
    save(content, listed)
    print(f"shipped {name}: {entry['bytes'] / 1e6:.2f} MB", flush=True)


def measured(evaluation: dict[str, Any], name: str) -> dict[str, Any]:
    """What an evaluation says of one network: clean accuracy and success rates, in percent with one decimal."""
    found: dict[str, Any] = {"data": evaluation["metadata"]["data"], "n": evaluation["metadata"]["n"]}
    for part, content in evaluation.items():
        if part.startswith(("identity", "twelve poses")):
            own = [cell for cell in content if cell["target"] == name]
            rates = {attack: success(own, attack) for attack in dict.fromkeys(cell["attack"] for cell in own)}
            if own and part.startswith("identity"):
                found["clean"] = round(accuracy(own), 1)
            if own:
                found[part] = {attack: round(rate, 1) for attack, rate in rates.items() if rate is not None}
        if part.startswith("white-box") and name in content:
            rate = content[name]["rate"]  # null where the network is never right
            found[part] = None if rate is None else round(100 * rate, 1)
    return found
