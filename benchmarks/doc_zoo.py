"""What the page on TransferAttack says of its zoo, from ``transferattack-zoo.json``: who runs, and why others don't."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from doc_data import read

# What a reason begins or ends like, and what the page says of all such.
_REASONS = (
    (r"several source networks", "made for several source networks, or collecting weights of their own"),
    (r"trains a generator", "training a generator, or loading the weights of one"),
    (r"builds a network of its own", "building networks of their own, with weights or layers that the given one lacks"),
    (
        r"needs the package|module that the clone does not have",
        "needing further packages, or modules that the clone does not have",
    ),
    (r"needs a file|download|weights of another network", "needing files or weights that the clone does not hold"),
    (r"does not run on|cannot be imported", "failing, most for want of a layer or an architecture that they name"),
)
_KINDS = (
    ("untargeted", lambda one: not one["targeted"]),
    ("targeted", lambda one: one["targeted"]),
    ("of these one image at a time, whatever the batch", lambda one: not one["batched"]),
)


def _attacks() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read("transferattack-zoo.json")["attacks"]
    return found


def ran() -> int:
    """How many names run."""
    return sum(one["ran"] for one in _attacks().values())


def listed() -> int:
    """How many names there are."""
    return len(_attacks())


def lines() -> list[str]:
    """The page's lists, a line each.

    >>> lines()[0][:20], len(lines())
    ('- **untargeted**: `f', 9)
    """
    attacks = _attacks()
    running = {name: one for name, one in attacks.items() if one["ran"]}
    found = [_line(kind, (name for name, one in running.items() if of(one))) for kind, of in _KINDS]
    reasons = {name: _reason(one["reason"]) for name, one in attacks.items() if not one["ran"]}
    for _, said in _REASONS:
        found.append(_line(said, (name for name, why in reasons.items() if why == said)))
    return found


def _line(head: str, names: Iterable[str]) -> str:
    return f"- **{head}**: {', '.join(f'`{name}`' for name in names)}"


def _reason(text: str) -> str:
    return next(said for pattern, said in _REASONS if re.search(pattern, text))


if __name__ == "__main__":
    print(f"{ran()} of {listed()}")
    print("\n".join(lines()))
