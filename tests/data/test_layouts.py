"""Which images a folder holds, under which label and name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from whorl.data.layouts import imagenet_synsets, list_images
from whorl.errors import WhorlError


def touch(root: Path, *names: str) -> None:
    # Listing opens no image, so empty files do.
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def listed(root: Path) -> list[tuple[str, int | None]]:
    return [(entry.id, entry.label) for entry in list_images(root)]


def test_nips17_labels_are_one_based_on_disk(tmp_path: Path) -> None:
    (tmp_path / "images.csv").write_text("ImageId,TrueLabel,TargetClass\nbb,306,1\naa,1,2\ncc,1000,3\n")
    assert listed(tmp_path) == [("bb", 305), ("aa", 0), ("cc", 999)]
    assert list_images(tmp_path)[0].path == tmp_path / "images" / "bb.png"


def test_the_only_csv_file_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "dev_dataset.csv").write_text("\ufeffImageId,URL,TrueLabel\naa,http,7\n", encoding="utf-8")
    assert listed(tmp_path) == [("aa", 6)]


def test_list_of_paths(tmp_path: Path) -> None:
    text = f"label,path\n7, b/one.jpg\n0,a/one.jpg\n3,../up.png\n4,{tmp_path}/abs.png\n"
    (tmp_path / "list.csv").write_text(text)
    ids = [("b/one", 7), ("a/one", 0), ("up", 3), (tmp_path.as_posix().strip("/") + "/abs", 4)]
    assert listed(tmp_path / "list.csv") == ids
    assert listed(tmp_path) == ids
    paths = [entry.path for entry in list_images(tmp_path)]
    assert paths == [
        tmp_path / "b/one.jpg",
        tmp_path / "a/one.jpg",
        tmp_path / "../up.png",
        tmp_path / "abs.png",
    ]


def test_class_folders_named_by_label(tmp_path: Path) -> None:
    touch(tmp_path, "002/b.jpg", "002/a.JPG", "10/a.png", "10/notes.txt", "10/.hidden.png", ".git/x.png", "007/.keep")
    assert listed(tmp_path) == [("002/a", 2), ("002/b", 2), ("10/a", 10)]


def test_class_folders_named_by_synset_get_imagenet_labels(tmp_path: Path) -> None:
    touch(tmp_path, "n15075141/a.jpg", "n01443537/a.jpg")
    assert listed(tmp_path) == [("n01443537/a", 1), ("n15075141/a", 999)]


def test_class_folders_with_other_names_are_numbered(tmp_path: Path) -> None:
    touch(tmp_path, "dog/a.jpg", "cat/a.jpg", "empty/.keep", "zebra/a.jpg")
    assert listed(tmp_path) == [("cat/a", 0), ("dog/a", 1), ("zebra/a", 3)]


def test_ids_are_unique(tmp_path: Path) -> None:
    touch(tmp_path, "0/a.jpg", "0/a.png", "0/b.png")
    assert [name for name, _ in listed(tmp_path)] == ["0/a.jpg", "0/a.png", "0/b"]


def test_synsets_are_the_thousand_in_order() -> None:
    synsets = imagenet_synsets()
    assert len(synsets) == 1000
    assert list(synsets) == sorted(synsets)
    assert list(synsets.values()) == list(range(1000))


def csv_file(text: str, *, encoding: str = "utf-8") -> Callable[[Path], None]:
    def make(root: Path) -> None:
        root.mkdir()
        (root / "images.csv").write_text(text, encoding=encoding)

    return make


def tree(*names: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        root.mkdir()
        touch(root, *names)

    return make


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "absent": (lambda root: None, "no such folder"),
    "a file": (Path.touch, "neither a folder nor a CSV file"),
    "empty": (tree(), "holds no images"),
    "only loose images": (tree("a.png"), "images but no labels"),
    "empty classes": (tree("0/.keep"), "lists no images"),
    "two lists": (tree("a.csv", "b.csv"), "holds no images"),
    "mixed class names": (tree("0/a.png", "1/a.png", "extra/a.png"), "of one kind, got '1' and 'extra'"),
    "unknown synset": (tree("n01440764/a.png", "n99999999/a.png"), "'n99999999' is not a class of ImageNet-1k"),
    "wrong columns": (csv_file("name,class\na,1\n"), "expected the columns .* got \\['class', 'name'\\]"),
    "no header": (csv_file(""), "expected the columns"),
    "no rows": (csv_file("ImageId,TrueLabel\n"), "lists no images"),
    "no name": (csv_file("ImageId,TrueLabel\n,5\n"), "line 2: expected the name of an image in column 'ImageId'"),
    "no file's length": (csv_file(f"ImageId,TrueLabel\n{'1' * 5000},5\n"), "name can be .5,000 characters"),
    "no path's length": (csv_file(f"path,label\n{'a/' * 2000}b.png,5\n"), "name can be .4,005 characters"),
    "no file name": (csv_file("path,label\n..,5\n"), "line 2: expected the name of an image"),
    "listed twice": (csv_file("path,label\na.png,5\na.png,6\n"), "lists 'a.png' more than once"),
    "not text": (csv_file("path,label\nä.png,0\n", encoding="latin-1"), "cannot be read as a CSV file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    make, says = REFUSED[case]
    make(tmp_path / "data")
    with pytest.raises(WhorlError, match=says) as caught:
        list_images(tmp_path / "data")
    assert str(tmp_path / "data") in str(caught.value)


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("", "the label is missing"),
        ("cat", "expected a whole number as label, got 'cat'"),
        ("1.5", "expected a whole number as label, got '1.5'"),
        ("1_0", "expected a whole number"),
        ("٣", "expected a whole number"),
        ("9" * 5000, "expected a whole number"),
        ("0", "expected a label from 1 to 1000, got 0"),
        ("1001", "expected a label from 1 to 1000, got 1001"),
        ("-3", "expected a label from 1 to 1000"),
    ],
)
def test_bad_labels_are_faults_of_their_row(tmp_path: Path, label: str, says: str) -> None:
    (tmp_path / "images.csv").write_text(f"ImageId,TrueLabel\naa,5\nbb,{label}\n")
    good, bad = list_images(tmp_path)
    assert good.fault is None
    assert bad.label is None
    assert bad.fault is not None
    assert says in bad.fault
    assert "line 3" in bad.fault


def test_a_short_row_has_no_label(tmp_path: Path) -> None:
    (tmp_path / "images.csv").write_text("path,label\na.png\n")
    assert "missing" in (list_images(tmp_path)[0].fault or "")
