"""Which class of a network a class folder names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from whorl.data.layouts import ListedImage
from whorl.errors import WhorlError, some_of
from whorl.models.labels import named, plain


def match(folders: Sequence[str], labels: Sequence[str], where: str) -> list[int]:
    """Find the class that each class folder names; case, spaces, "-" and "_" do not matter.

    Args:
        folders: names of all class folders, sorted.
        labels: of the network's classes. Where they are numbers only, folders are counted in their order, as
            most training code does; there must then be one for every class.
        where: the folders lie, for errors.

    Returns:
        A 0-based class for each folder.

    Raises:
        WhorlError: a folder names none of the classes, or two of them; or there are more or fewer than classes.

    >>> match(["bee", "sea_urchin"], ["ant", "bee", "Sea urchin"], "photos")
    [1, 2]
    >>> match(["ant", "bee"], ["0", "1"], "photos")
    [0, 1]
    """
    if not named(labels):
        if len(folders) != len(labels):
            raise WhorlError(
                f"{where}: expected a class folder for each of the network's {len(labels)} classes, got "
                f"{len(folders)}: {some_of(folders)}. Take a network that was trained on these classes; or give it the "
                "names of its own, in order, with labels=FILE in its address; or name the folders by 0-based class."
            )
        return list(range(len(folders)))
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(plain(label), []).append(place)
    strangers = [name for name in folders if plain(name) not in places]
    if strangers:
        near = get_close_matches(plain(strangers[0]), places, 1)
        guess = f" Did you mean {labels[places[near[0]][0]]!r} by {strangers[0]!r}?" if near else ""
        raise WhorlError(
            f"{where}: {len(strangers)} of {len(folders)} class folders name no class of the network: "
            f"{some_of(strangers)}. It has {len(labels)}: {some_of(labels)}.{guess} Take a network that was trained on "
            "these classes; or name the folders by its classes, by 0-based number or by synset; or, if these are its "
            "classes, say so with labels=FILE in its address, a name a line."
        )
    return [_place(name, places[plain(name)], labels, where) for name in folders]


def labelled(entries: Iterable[ListedImage], labels: Sequence[str] | None, where: object) -> Iterator[ListedImage]:
    """Give listed images the classes of a network, where class folders name them; other labels are classes already.

    Args:
        entries: of one data set, one after the other.
        labels: of the network's classes; None leaves the entries as they are.
        where: they come from, for errors.
    """
    found: list[int] | None = None
    for entry in entries:
        if labels is None or entry.label is None or not entry.classes:
            yield entry
            continue
        found = match(entry.classes, labels, str(where)) if found is None else found
        yield replace(entry, label=found[entry.label], classes=())


def _place(name: str, places: Sequence[int], labels: Sequence[str], where: str) -> int:
    """The place of a name; of several, as of Cardigan (a dog) and cardigan, that of the same spelling."""
    exact = [place for place in places if labels[place] == name] if len(places) > 1 else places
    if len(exact) != 1:
        both = " and ".join(map(str, places))
        raise WhorlError(f"{where}: {name!r} is the name of classes {both}. Name the folders by 0-based class.")
    return exact[0]
