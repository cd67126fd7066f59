"""Which images a folder holds, and under which label: three layouts, distinguished by what is there.

Listing opens no image, so it is cheap, and an id does not depend on how many images are then read.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path, PurePath

from whorl.artifacts import Artifact, fetch
from whorl.data.image_files import SUFFIXES
from whorl.errors import WhorlError, printable, quoted
from whorl.files import regular

_EXPECTED = (
    "Expected images.csv (ImageId, TrueLabel) with images/, or one folder per class, "
    "or a CSV file with the columns path and label."
)
_SYNSET = re.compile(r"n\d{8}")
_NIPS17_CLASSES = 1000
_LONGEST_NAME, _LONGEST_PATH = 255, 3000  # bytes of a part of a path, which file systems let have no more; characters
_LONGEST_PART = 250  # bytes of a part of an id, to which ".png" may be added

SAMPLES = Path("samples")
"""Stands for the bundled photographs where a folder is expected."""

# The number after the last underscore is the 0-based class.
_SAMPLE_SHA256 = {
    "imagenet_00_243": "28b7b933c8028c6e20bf74a86a709eda42ce99f14c8742cb657cb386f08a4c9d",
    "imagenet_01_559": "5f03b0c74dff01b5b4195d0beabcae2a625a406e6917957ab9c455b5b7dea6d6",
    "imagenet_02_438": "ccef0734c1a65549c6cb5adb0f5d9b1c0b2e2104aba50a9e5f9202dc6d4532ed",
    "imagenet_03_990": "c7f0b2f1e9ee39d8f900759e8983afa2e4a2d7de090060e8bb947f6e90cace5f",
    "imagenet_04_949": "a7f62f3c1d214de4718c7253871ab38209283249e131faf65b8f2b7fdc970669",
    "imagenet_05_853": "8a449436c61da867528b1f4efaf8ae832ab9c9201705eae0d3af1353fbdac131",
    "imagenet_06_609": "fb061102a4e58b3ed942bb2a4f9542e1e1acdc8f225ef95498e93889290e192f",
    "imagenet_07_609": "2c297ad1e5c4804a647e9b34bc02ee2fc348b05a4d49050d170fb61c948efa5c",
    "imagenet_08_915": "c6a3411a3987799f0de45adc142f00ca412c3e14073c635e2adfae1f3913180c",
    "imagenet_09_455": "ace3716b60ac5843269b270e17020e4f8138440cd30ef3487f7d6e54da9745a4",
    "imagenet_10_541": "f325c71d9f4290ee45e99bd7ad42f4bffe513b1450ad21e7bd61c7cb137395d9",
    "imagenet_11_630": "892dff58fc528fe63d2df0c783aa3eca2342637798578ce01763fbc0553eda01",
    "imagenet_12_741": "6c256e17545b25bbf2e06cf6513ff48d049583569515ac4d4c3a52aea804a529",
    "imagenet_13_471": "52ed0e738b90d27afcabc3e92c81ae637f160c2d9f75b93a65211005ab5dcd81",
    "imagenet_14_129": "ad9371d813bf24b0365ee2f78f28c08718ee7c5975f060caa16c3f264e828139",
    "imagenet_15_99": "4b588649cd835d4c65521727ebee03d9621baff1f54d3e8a53a26b53d983ec2e",
    "imagenet_16_251": "ce3440a3b7beb6ca3009817504c44d39fa789e7c2f70a2eef7e2f9cc9a87b129",
    "imagenet_17_22": "b432341845620e9cfd67d848c4783c32dd6eaddad45513866b17180d2b09fcf5",
    "imagenet_18_317": "b9412f92f0b1c3faede45b55a44940977daa744f2040118d0538cf597fca785d",
    "imagenet_19_305": "e1f58f00e2e47ce930d7ecab0e46a78316054f68c10d0742e87c1cc092324556",
}
SAMPLE_FILES = Artifact(
    package="foolbox",
    version="3.3.4",
    files={f"foolbox/data/{name}.jpg": digest for name, digest in _SAMPLE_SHA256.items()},
)


@dataclass(frozen=True, kw_only=True)
class ListedImage:
    """A listed image.

    Args:
        path: the file, which may turn out to be absent; what errors call the image where it lies in no file of its own.
        label: 0-based class; None if ``fault`` is set.
        id: unique among all entries of a listing, relative and safe to use as a path.
        fault: what is wrong with the row that lists it, if anything.
        classes: names of all class folders, in sorted order, where they are names: ``label`` is then a place among
            them, until ``whorl.data.classes.labelled`` finds out which class of a network that is.
        at: where it lies in its data set, if not in a file of its own: a row, or first byte and length.
    """

    path: Path
    label: int | None
    id: str
    fault: str | None = None
    classes: tuple[str, ...] = ()
    at: tuple[int, ...] = ()


def list_images(source: Path) -> list[ListedImage]:
    """List what a data set holds, in a fixed order: the rows of its CSV file, or class by class and name by name.

    Args:
        source: a folder in one of the layouts of ``whorl.load_images``, or a CSV file; "samples", unless there is a
            folder of that name, for the bundled photographs.

    Raises:
        WhorlError: nothing is there, or it fits no layout.
    """
    if source == SAMPLES and not source.exists():
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
    ids = unique_ids([PurePath(item.id) for item in listed], source)
    return [replace(item, id=unique) for item, unique in zip(listed, ids, strict=True)]


def list_samples() -> list[ListedImage]:
    """List the bundled photographs, as ``list_images`` lists a folder; the first call fetches them."""
    paths = fetch(SAMPLE_FILES).values()
    return [ListedImage(path=path, label=int(path.stem.rpartition("_")[2]), id=path.stem) for path in paths]


def _table_of(folder: Path) -> Path | None:
    if (folder / "images.csv").is_file():
        return folder / "images.csv"
    tables = sorted(path for path in folder.glob("*.csv") if path.is_file())
    return tables[0] if len(tables) == 1 else None


# The functions below list each image under its path as the data set has it; list_images makes the ids of those.


def _from_csv(table: Path) -> list[ListedImage]:
    try:
        # utf-8-sig: spreadsheets put a byte order mark before the first column's name.
        with regular(table).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = set(reader.fieldnames or ())
            if {"ImageId", "TrueLabel"} <= columns:
                return list(_nips17_rows(reader, table))
            if {"path", "label"} <= columns:
                return list(_path_rows(reader, table))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WhorlError(f"{table}: cannot be read as a CSV file ({error}).") from error
    raise WhorlError(
        f"{table}: expected the columns ImageId and TrueLabel, or path and label; got {quoted(sorted(columns))}."
    )


def _nips17_rows(reader: csv.DictReader[str], table: Path) -> Iterator[ListedImage]:
    for row in reader:
        name = f"{PurePath(_named(row, 'ImageId', table, reader.line_num))}.png"
        # 1-based, because the competition's networks had a background class at 0
        label, fault = read_label(
            row["TrueLabel"], low=1, high=_NIPS17_CLASSES, where=f"{table}, line {reader.line_num}"
        )
        label = None if label is None else label - 1
        yield ListedImage(path=table.parent / "images" / name, label=label, id=name, fault=fault)


def _path_rows(reader: csv.DictReader[str], table: Path) -> Iterator[ListedImage]:
    for row in reader:
        name = _named(row, "path", table, reader.line_num)
        label, fault = read_label(row["label"], low=0, high=2**63 - 1, where=f"{table}, line {reader.line_num}")
        yield ListedImage(path=table.parent / name, label=label, id=name, fault=fault)


def _named(row: dict[str, str], column: str, table: Path, line: int) -> str:
    name = (row[column] or "").strip()
    long = any(len(part.encode()) > _LONGEST_NAME for part in PurePath(name).parts) or len(name) > _LONGEST_PATH
    if "\0" in name or PurePath(name).name in ("", "..") or long:
        raise WhorlError(
            f"{table}, line {line}: expected the name of an image in column {column!r}, got {quoted(name)}"
            + f", longer than a file's name can be ({len(name):,} characters)" * long
            + "."
        )
    return name


def read_label(text: str | None, *, low: int, high: int, where: str) -> tuple[int | None, str | None]:
    """Read a label that is written down: the label, or what is wrong with it."""
    text = (text or "").strip()
    if not text:
        return None, f"{where}: the label is missing"
    # Not int() alone: it takes underscores, digits of other scripts, and thousands of them.
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return None, f"{where}: expected a whole number as label, got {text[:40]!r}"
    if not low <= int(text) <= high:
        return None, f"{where}: expected a label from {low} to {high}, got {text}"
    return int(text), None


def class_folders(source: Path) -> list[Path]:
    """The folders of a data set that has one for each class, filled or not; none of any other layout."""
    if not source.is_dir() or _table_of(source):
        return []
    return sorted(path for path in source.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))


def _from_class_folders(folder: Path) -> list[ListedImage]:
    classes = class_folders(folder)
    if not classes:
        loose = any(path.suffix.lower() in SUFFIXES for path in folder.iterdir())
        found = "images but no labels" if loose else "no images"
        raise WhorlError(f"{folder} holds {found}. {_EXPECTED}")
    names = tuple(path.name for path in classes)
    labels = _class_labels(names, folder)
    matched = names if _kind(names[0]) == "name" else ()
    return [
        ListedImage(path=path, label=label, id=path.relative_to(folder).as_posix(), classes=matched)
        for label, path in zip(labels, classes, strict=True)
        for path in sorted(path.iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]


def _class_labels(names: tuple[str, ...], folder: Path) -> list[int]:
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


def ids_of(names: Sequence[PurePath]) -> list[str]:
    r"""Name images by their paths without suffix, and with it where two would share a name.

    An id becomes a file's name in run folders, a cell of tables and a word of messages. So no root and no ".." gets
    into it, what a terminal would obey or what is no text is written as ``printable`` has it, and a part that leaves no
    room for another suffix is cut, and distinguished by a hash.

    >>> ids_of([PurePath("cat/a.png"), PurePath("cat/b.png"), PurePath("cat/b.jpg"), PurePath("../c\x1b.png")])
    ['cat/a', 'cat/b.png', 'cat/b.jpg', 'c%1B']
    """
    safe = [PurePath(*(_safe(part) for part in name.parts if part not in (name.anchor, ".."))) for name in names]
    stems = [name.with_suffix("").as_posix() for name in safe]
    seen = Counter(stems)
    return [name.as_posix() if seen[stem] > 1 else stem for name, stem in zip(safe, stems, strict=True)]


def _safe(part: str) -> str:
    plain = printable(part).replace("\n", "%0A").replace("\t", "%09")
    if len(plain.encode()) <= _LONGEST_PART:
        return plain
    digest = hashlib.blake2b(plain.encode(), digest_size=8).hexdigest()
    kept = plain.encode()[: _LONGEST_PART - 40].decode(errors="ignore")
    return f"{kept}-{digest}{PurePath(plain).suffix[:8]}"


def unique_ids(names: Sequence[PurePath], source: object) -> list[str]:
    """Name each image as ``ids_of`` does, and see that no two share a name."""
    ids = ids_of(names)
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        raise WhorlError(f"{source} lists {quoted(twice[0])} more than once. Keep one row for each image.")
    return ids
