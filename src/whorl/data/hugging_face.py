"""Data sets of the Hugging Face hub, or saved by its library: rows of a table that stays on disk."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from whorl.data.layouts import ListedImage, unique_ids
from whorl.data.sets import BinaryFile, EncodedImages
from whorl.data.torch_sets import checked_label, row_id
from whorl.errors import WhorlError, imported, reason

_LABELS = ("label", "labels", "fine_label", "class")


class HubImages(EncodedImages):
    """Images of one split, in the bytes that the table holds.

    Args:
        text: the address, for errors.
        rows: a ``datasets.Dataset``.
        image: column of images; the only one of that kind by default.
        label: column of 0-based labels; ``label``, ``labels``, ``fine_label`` or ``class`` by default.
        id: column of names; the number of the row by default.

    Raises:
        WhorlError: there is no such column, or none that can be recognised.
    """

    def __init__(self, text: str, rows: Any, *, image: str = "", label: str = "", id: str = "") -> None:  # noqa: A002 - as addresses have it
        from datasets import Image

        kinds = rows.features
        images = [name for name, kind in kinds.items() if isinstance(kind, Image)]
        labels = [name for name in _LABELS if name in kinds]
        self.text, self.names = text, id
        self.image = _column("image", image, images, images, text)
        self.label = _column("label", label, labels[:1], list(kinds), text)
        if id:
            _column("id", id, [], list(kinds), text)
        # As bytes: they are decoded where every other image is, with the same checks.
        self.rows = rows.cast_column(self.image, Image(decode=False))

    def entries(self) -> list[ListedImage]:
        """List every row; no image is opened."""
        place = PurePath(self.text.partition(":")[2].partition("?")[0]).name
        labels = list(self.rows[self.label])
        ids = unique_ids([PurePath(f"{name}.x") for name in self.rows[self.names]], self.text) if self.names else None
        listed = []
        for row, value in enumerate(labels):
            label, fault = checked_label(value, f"{self.text}, row {row}, {self.label}")
            name = row_id(row) if ids is None else ids[row]
            listed.append(ListedImage(path=Path(place, f"row {row}"), label=label, id=name, fault=fault, at=(row,)))
        if not listed:
            raise WhorlError(f"{self.text} has no rows. Choose another split by ?split=.")
        return listed

    def open(self, entry: ListedImage) -> BinaryFile:
        """The encoded image of one row: in the table, or in a file that it names."""
        stored = self.rows[entry.at[0]][self.image]
        if stored is None:
            raise WhorlError(f"{entry.path}: there is no image. Leave such rows out with skip_bad.")
        if stored["bytes"] is None:
            return Path(stored["path"]).open("rb")
        return io.BytesIO(stored["bytes"])


def open_hub(text: str, place: str, settings: Mapping[str, str]) -> HubImages:
    """Open a data set by its name on the hub, or by the folder that it is in.

    Args:
        text: the whole address.
        place: a name, a folder that ``save_to_disk`` wrote, or one of image, Parquet or Arrow files.
        settings: split, name (of the configuration) and revision; image, label and id name columns.

    Raises:
        WhorlError: the library is missing, the data set cannot be loaded, or it has several splits and none is chosen.
    """
    datasets = imported("datasets", "a Hugging Face data set", extra="datasets")
    split, columns = settings.get("split"), {key: settings[key] for key in ("image", "label", "id") if key in settings}
    folder = Path(place).expanduser()
    saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        if saved:
            found = datasets.load_from_disk(str(folder))
        else:
            which = {"name": settings.get("name"), "revision": settings.get("revision")}
            # A folder that is there is never looked for on the hub.
            found = datasets.load_dataset(str(folder) if folder.is_dir() else place, **which)
    except Exception as error:  # the library, and each version of it, has its own errors
        raise WhorlError(
            f"the data set {text!r} could not be loaded ({reason(error)}). Check its name and the connection "
            "(HF_ENDPOINT names a mirror), or save it to a folder elsewhere, with save_to_disk, and name that: "
            "hf:FOLDER."
        ) from error
    return HubImages(text, _one_split(found, split, text), **columns)


def _one_split(found: Any, split: str | None, text: str) -> Any:
    if not hasattr(found, "keys"):
        if split is not None:
            raise WhorlError(f"{text!r} is a single split, saved as such; leave out ?split={split}.")
        return found
    names = list(found)
    if split is None and len(names) == 1:
        return found[names[0]]
    if split not in names:
        came = "none" if split is None else repr(split)
        raise WhorlError(f"{text!r} has the splits {', '.join(names)}; got {came}. Choose one: ?split={names[-1]}.")
    return found[split]


def _column(what: str, given: str, likely: Sequence[str], allowed: Sequence[str], text: str) -> str:
    if given:
        if given not in allowed:
            raise WhorlError(
                f"{text!r} has no {what} column {given!r}; expected one of {', '.join(allowed) or 'none'}."
            )
        return given
    if len(likely) != 1:
        came = f"{len(likely)} ({', '.join(likely)})" if likely else "none"
        raise WhorlError(f"{text!r}: expected one {what} column, got {came}. Name it: ?{what}=COLUMN.")
    return likely[0]
