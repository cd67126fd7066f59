"""One attack on one source in a run folder: what was asked for, and which images are done."""

from __future__ import annotations

import time
from pathlib import Path

from whorl.errors import WhorlError
from whorl.runs.folder import Json, RunFolder


class Entry:
    """A part of the manifest, held in memory and written now and then.

    Args:
        folder: the run folder.
        content: the entry as the manifest holds it.
    """

    def __init__(self, folder: RunFolder, content: Json) -> None:
        self.folder, self.content = folder, content
        self.key = f"{content['attack']}/{content['source']}"
        self._written = 0.0

    @classmethod
    def open(cls, folder: RunFolder, identity: Json, details: Json, *, overwrite: bool) -> Entry:
        """Take up the images of an earlier run if it is the same work, or start anew.

        Args:
            folder: the run folder.
            identity: what the images depend on, as JSON.
            details: what else is worth keeping.
            overwrite: whether to remove the images of other work that lies in the same place.
        """
        entry = cls(folder, {**identity, **details, "images": {}})
        earlier = folder.read()["crafted"].get(entry.key)
        if earlier is not None and "cells" in earlier:
            raise WhorlError(f"{entry.key} in {folder.path} belongs to an experiment. Choose another folder (out).")
        if earlier is None or not earlier["images"]:
            return entry
        other = differences(earlier, identity)
        if not other:
            entry.content["images"] = earlier["images"]
            return entry
        if not overwrite:
            raise WhorlError(
                f"{folder.path} already holds {entry.key}, made with another {' and another '.join(other)}. "
                "Choose another folder (out), or replace it (overwrite)."
            )
        # The manifest forgets the old images before any new one is written: at no time do both count as one.
        entry.write()
        for path in folder.pictures(identity["attack"], identity["source"]).rglob("*.png"):
            path.unlink()
        return entry

    def picture(self, name: str) -> Path:
        """The path of an image, by its id."""
        return self.folder.picture(self.content["attack"], self.content["source"], name)

    def has(self, name: str, clean_sha256: str) -> bool:
        """Whether the image is done, and was made from these pixels."""
        known = self.content["images"].get(name)
        return known is not None and known["clean_sha256"] == clean_sha256 and self.picture(name).is_file()

    def add(self, name: str, **facts: str | int | float) -> None:
        """List an image that has been written."""
        self.content["images"][name] = facts

    def total(self, fact: str, names: list[str]) -> float:
        """Add up a number that was listed with each image."""
        return float(sum(self.content["images"][name][fact] for name in names))

    def write(self, every: float = 0.0) -> None:
        """Put the entry into the manifest, unless that was done less than ``every`` seconds ago."""
        if time.monotonic() - self._written >= every:
            self.folder.write(lambda manifest: manifest["crafted"].update({self.key: self.content}))
            self._written = time.monotonic()


def differences(earlier: Json, now: Json) -> list[str]:
    """Name what differs, one level into settings.

    >>> before = {"seed": 0, "settings": {"eps": 0.1, "steps": 10}}
    >>> differences(before, {"seed": 1, "settings": {"eps": 0.2, "steps": 10}})
    ['seed', 'eps']
    """
    found = []
    for key, value in now.items():
        before = earlier.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            found += [name for name in value | before if value.get(name) != before.get(name)]
        elif value != before:
            found.append(key)
    return found
