"""The libraries by name."""

from __future__ import annotations

from collections.abc import Mapping

from whorl.errors import unknown_name
from whorl.interop.art_library import Toolbox
from whorl.interop.foolbox_library import Foolbox
from whorl.interop.library import Library
from whorl.interop.naming import find_ignoring_case
from whorl.interop.pyautoattack_library import PyAutoAttack
from whorl.interop.torchattack_library import Torchattack
from whorl.interop.torchattacks_library import Torchattacks

LIBRARIES: Mapping[str, Library] = {
    library.key: library for library in (Torchattacks(), Torchattack(), Foolbox(), Toolbox(), PyAutoAttack())
}


def library_names() -> list[str]:
    """What names of peers' attacks start with.

    >>> library_names()
    ['torchattacks', 'torchattack', 'foolbox', 'art', 'pyautoattack']
    """
    return list(LIBRARIES)


def peer_names(library: str) -> list[str]:
    """List the attacks of a library, as :func:`whorl.interop.peer` takes them.

    Args:
        library: one of :func:`library_names`. It must be installed.

    >>> [name for name in peer_names("torchattacks") if "MIFGSM" in name]
    ['torchattacks:MIFGSM', 'torchattacks:VMIFGSM']
    """
    found = find_library(library)
    return [f"{found.key}:{name}" for name in found.attacks()]


def find_library(key: str) -> Library:
    """Look a library up by name, in any case."""
    found = find_ignoring_case(key, LIBRARIES)
    if found is None:
        hint = f"A peer's attack is LIBRARY:NAME, such as torchattacks:VMIFGSM; libraries: {', '.join(LIBRARIES)}."
        raise unknown_name("library", key, LIBRARIES, hint=hint)
    return LIBRARIES[found]
