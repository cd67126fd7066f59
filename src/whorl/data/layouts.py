"""Which images a folder holds, and under which label: three layouts, distinguished by what is there.

Listing opens no image, so it is cheap, and an id does not depend on how many images are then read.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePath

from whorl.data.pictures import SUFFIXES
from whorl.errors import WhorlError

_EXPECTED = (
    "Expected images.csv (ImageId, TrueLabel) with images/, or one folder per class, "
    "or a CSV file with the columns path and label."
)
_SYNSET = re.compile(r"n\d{8}")
_NIPS17_CLASSES = 1000

SAMPLES = Path("samples")
"""Stands for the bundled photographs where a folder is asked for."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A listed image.

    Args:
        path: the file, which may turn out to be absent.
        label: 0-based class; None if ``fault`` is set.
        id: unique among all entries of a listing, relative and safe to use as a path.
        fault: what is wrong with the row that lists it, if anything.
    """

    path: Path
    label: int | None
    id: str
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Listed:
    path: Path
    name: PurePath  # what the id is made of: the path as the data set has it
    label: int | None
    fault: str | None = None


def list_images(source: Path) -> list[Entry]:
    """List what a data set holds, in a fixed order: the rows of its CSV file, or class by class and name by name.

    Args:
        source: a folder in one of the layouts of ``whorl.load_images``, or a CSV file; "samples", unless there is a
            folder of that name, for the bundled photographs.

    Raises:
        WhorlError: nothing is there, or it fits no layout.
    """
    if source == SAMPLES and not source.exists():
        from whorl.data.samples import list_samples  # which is built on this module

        return list_samples()
    if source.is_file():
        if source.suffix.lower() != ".csv":
            raise WhorlError(f"{source} is neither a folder nor a CSV file. {_EXPECTED}")
        listed = _from_csv(source)
    elif source.is_dir():
        table = _table_of(source)
        listed = _from_csv(table) if table else _from_class_folders(source)
    else:
        raise WhorlError(f"{source}: no such folder. {_EXPECTED}")
    if not listed:
        raise WhorlError(f"{source} lists no images. {_EXPECTED}")
    ids = _unique_ids([item.name for item in listed], source)
    return [
        Entry(path=item.path, label=item.label, id=name, fault=item.fault)
        for item, name in zip(listed, ids, strict=True)
    ]


def _table_of(folder: Path) -> Path | None:
    if (folder / "images.csv").is_file():
        return folder / "images.csv"
    tables = sorted(path for path in folder.glob("*.csv") if path.is_file())
    return tables[0] if len(tables) == 1 else None


def _from_csv(table: Path) -> list[_Listed]:
    try:
        # utf-8-sig: spreadsheets put a byte order mark before the first column's name.
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = set(reader.fieldnames or ())
            if {"ImageId", "TrueLabel"} <= columns:
                return list(_nips17_rows(reader, table))
            if {"path", "label"} <= columns:
                return list(_path_rows(reader, table))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WhorlError(f"{table}: cannot be read as a CSV file ({error}).") from error
    raise WhorlError(f"{table}: expected the columns ImageId and TrueLabel, or path and label; got {sorted(columns)}.")


def _nips17_rows(reader: csv.DictReader[str], table: Path) -> Iterator[_Listed]:
    for row in reader:
        name = PurePath(_named(row, "ImageId", table, reader.line_num))
        path = table.parent / "images" / f"{name}.png"
        # 1-based, because the competition's networks had a background class at 0
        label, fault = _label(row["TrueLabel"], low=1, high=_NIPS17_CLASSES, where=f"{table}, line {reader.line_num}")
        yield _Listed(path=path, name=PurePath(f"{name}.png"), label=None if label is None else label - 1, fault=fault)


def _path_rows(reader: csv.DictReader[str], table: Path) -> Iterator[_Listed]:
    for row in reader:
        name = PurePath(_named(row, "path", table, reader.line_num))
        label, fault = _label(row["label"], low=0, high=2**63 - 1, where=f"{table}, line {reader.line_num}")
        yield _Listed(path=table.parent / name, name=name, label=label, fault=fault)


def _named(row: dict[str, str], column: str, table: Path, line: int) -> str:
    name = (row[column] or "").strip()
    if "\0" in name or PurePath(name).name in ("", ".."):
        raise WhorlError(f"{table}, line {line}: expected the name of an image in column {column!r}, got {name!r}.")
    return name


def _label(text: str | None, *, low: int, high: int, where: str) -> tuple[int | None, str | None]:
    text = (text or "").strip()
    if not text:
        return None, f"{where}: the label is missing"
    # Not int() alone: it takes underscores, digits of other scripts, and thousands of them.
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return None, f"{where}: expected a whole number as label, got {text[:40]!r}"
    if not low <= int(text) <= high:
        return None, f"{where}: expected a label from {low} to {high}, got {text}"
    return int(text), None


def _from_class_folders(folder: Path) -> list[_Listed]:
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))
    if not classes:
        loose = any(path.suffix.lower() in SUFFIXES for path in folder.iterdir())
        found = "images but no labels" if loose else "no images"
        raise WhorlError(f"{folder} holds {found}. {_EXPECTED}")
    labels = _class_labels([path.name for path in classes], folder)
    return [
        _Listed(path=path, name=path.relative_to(folder), label=label)
        for label, path in zip(labels, classes, strict=True)
        for path in sorted(path.iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]


def _class_labels(names: list[str], folder: Path) -> list[int]:
    """Label class folders: by the names themselves if whole numbers, by ImageNet if synsets, else by sorted place."""
    kinds = {_kind(name): name for name in names}
    if len(kinds) > 1:
        # Counting places here would shift every label after the odd one out, without a sign of it.
        examples = " and ".join(repr(name) for name in kinds.values())
        raise WhorlError(
            f"{folder}: expected class folders of one kind, got {examples}. "
            "Name all of them by 0-based label, all by WordNet synset, or none."
        )
    match next(iter(kinds)):
        case "number":
            return [int(name) for name in names]
        case "synset":
            unknown = [name for name in names if name not in imagenet_synsets()]
            if unknown:
                raise WhorlError(
                    f"{folder}: {unknown[0]!r} is not a class of ImageNet-1k. "
                    "Name the folders by 0-based label, or list the images in a CSV file."
                )
            return [imagenet_synsets()[name] for name in names]
        case _:
            return list(range(len(names)))


def _kind(name: str) -> str:
    if re.fullmatch(r"[0-9]{1,18}", name):
        return "number"
    return "synset" if _SYNSET.fullmatch(name) else "name"


@cache
def imagenet_synsets() -> dict[str, int]:
    """Return the 1,000 WordNet synsets of ImageNet-1k, each with its 0-based label.

    >>> imagenet_synsets()["n01440764"]
    0
    """
    text = resources.files("whorl.data").joinpath("imagenet_synsets.txt").read_text(encoding="ascii")
    return {synset: label for label, synset in enumerate(text.split())}


def _unique_ids(names: list[PurePath], source: Path) -> list[str]:
    """Name each image by its path without suffix; with suffix where two would share a name."""
    # Ids become file names in run folders, so no root and no '..' may get into them.
    safe = [PurePath(*(part for part in name.parts if part not in (name.anchor, ".."))) for name in names]
    stems = [name.with_suffix("").as_posix() for name in safe]
    seen = Counter(stems)
    ids = [name.as_posix() if seen[stem] > 1 else stem for name, stem in zip(safe, stems, strict=True)]
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        raise WhorlError(f"{source} lists {twice[0]!r} more than once. Keep one row for each image.")
    return ids
