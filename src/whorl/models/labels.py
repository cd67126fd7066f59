"""The names of networks' classes, and whether several networks have the same ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from whorl.errors import WhorlError, some_of


def named(labels: Sequence[str]) -> bool:
    """Whether labels are names, and not just numbers from 0, which stand for none.

    >>> named(["ant", "bee"]), named(["0", "1"])
    (True, False)
    """
    return any(label != str(place) for place, label in enumerate(labels))


def shared_labels(networks: Mapping[str, object]) -> tuple[str, ...] | None:
    """The classes that all of some networks have, by their attribute ``labels``; those without one are left out.

    Args:
        networks: by name.

    Returns:
        One label per class, of the first network that has names; None if no network has labels.

    Raises:
        WhorlError: another number of classes, or the same names in another order.

    >>> from types import SimpleNamespace as Net
    >>> shared_labels({"mine": Net(labels=("0", "1")), "yours": Net(labels=("ant", "bee")), "a function": len})
    ('ant', 'bee')
    """
    found: tuple[str, tuple[str, ...]] | None = None
    for name, network in networks.items():
        own = getattr(network, "labels", None)
        if not isinstance(own, tuple):
            continue
        if found is not None:
            _check_same(*found, name, own)
        if found is None or (named(own) and not named(found[1])):
            found = name, own
    return None if found is None else found[1]


def plain(name: str) -> str:
    """A class name as it is compared: case, spaces, "-" and "_" do not matter.

    >>> plain("Sea_urchin") == plain("sea urchin")
    True
    """
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _check_same(first: str, ours: tuple[str, ...], second: str, theirs: tuple[str, ...]) -> None:
    if len(ours) != len(theirs):
        raise WhorlError(
            f"networks that share images must have the same classes; {first} has {len(ours)} ({some_of(ours)}) and "
            f"{second} has {len(theirs)} ({some_of(theirs)}). Craft on networks that were trained on the target's "
            "classes, or attack it by queries: nes, spsa, nattack, boundary."
        )
    if not named(ours) or not named(theirs):
        return
    places = [{plain(label): place for place, label in enumerate(labels)} for labels in (ours, theirs)]
    both = [name for name in places[0] if name in places[1]]
    # Two lists may use other words for some classes, as those of ImageNet do; a word that both have tells the order.
    moved = next((name for name in both if plain(theirs[places[0][name]]) != name), None)
    if not both or moved is not None:
        how = "no name in common" if moved is None else f"{moved!r} is class {places[0][moved]} and {places[1][moved]}"
        raise WhorlError(
            f"networks that share images must have the same classes in the same order; {first} and {second} do not: "
            f"{how}. {first}: {some_of(ours)}; {second}: {some_of(theirs)}. Check labels= in their addresses."
        )
