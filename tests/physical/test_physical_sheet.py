"""What is printed where, and the file that remembers it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import random_images
from physical.printed_run import sheet
from whorl import WhorlError
from whorl.data import save_image
from whorl.physical import Print, PrintedSheet, arrange, read_sheets, write_sheets
from whorl.physical.layout import PageLayout


def group(name: str, versions: int) -> list[Print]:
    return [Print(id=name, label=0, attack=f"a{v}", file=Path(f"{name}{v}.png"), size=(8, 8)) for v in range(versions)]


def test_versions_are_neighbours_and_take_turns() -> None:
    made = arrange([group(f"p{i}", 4) for i in range(30)], PageLayout())
    assert len(made.prints) == 120
    by_id: dict[str, list[Print]] = {}
    for item in made.prints:
        by_id.setdefault(item.id, []).append(item)
    for items in by_id.values():
        assert len({item.page for item in items}) == 1  # 18 places hold four groups of 4, and no half one
        assert max(item.place for item in items) - min(item.place for item in items) == 3
    first = Counter(min(items, key=lambda item: item.place).attack for items in by_id.values())
    assert set(first.values()) == {7, 8}
    assert len({(item.page, item.place) for item in made.prints}) == 120


def test_a_group_larger_than_a_page_goes_on_to_the_next() -> None:
    made = arrange([group("p", 25)], PageLayout())
    assert made.pages == 2
    assert len(made.prints) == 25


def test_sheet_json_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "sheet.json"
    write_sheets(path, [sheet()])
    [back] = read_sheets(tmp_path)
    assert back == replace(sheet(), prints=tuple(replace(p, file=p.file.resolve()) for p in sheet().prints))
    assert back.fingerprint == sheet().fingerprint
    assert json.loads(path.read_text())["sheets"][0]["fingerprint"] == sheet().name


def test_earlier_prints_stay_and_the_same_one_is_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "sheet.json"
    other = PrintedSheet(PageLayout(image=50), sheet().prints[:6])
    for made in (sheet(), other, sheet()):
        write_sheets(path, [made])
    assert {one.fingerprint for one in read_sheets(path)} == {sheet().fingerprint, other.fingerprint}
    assert sheet().fingerprint != other.fingerprint


def test_files_of_a_run_are_relative_so_that_it_may_move(tmp_path: Path) -> None:
    save_image(tmp_path / "run" / "adv" / "a.png", random_images(1)[0])
    item = Print(id="a", label=0, file=tmp_path / "run" / "adv" / "a.png", size=(18, 18))
    write_sheets(tmp_path / "run" / "sheet.json", [PrintedSheet(PageLayout(), (item,))])
    (tmp_path / "run").rename(tmp_path / "moved")
    [back] = read_sheets(tmp_path / "moved")
    assert back.prints[0].file.is_file()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 1}', '{"format": 9, "sheets": []}', '{"format": 1, "sheets": [{}]}']
)
def test_a_file_that_is_no_sheet(tmp_path: Path, text: str) -> None:
    (tmp_path / "sheet.json").write_text(text)
    with pytest.raises(WhorlError, match="again"):
        read_sheets(tmp_path)


def test_no_sheet_at_all(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="whorl physical print"):
        read_sheets(tmp_path)


def test_any_change_of_content_changes_the_fingerprint() -> None:
    first = sheet().prints[0]
    changed = [replace(first, **change) for change in ({"label": 5}, {"attack": "x"}, {"id": "y"}, {"size": (9, 9)})]
    prints = {PrintedSheet(PageLayout(), (one, *sheet().prints[1:])).fingerprint for one in (first, *changed)}
    assert len(prints) == 5


def test_images_keep_their_shape_and_pixels_take_whole_dots() -> None:
    wide = Print(id="a", label=0, file=Path("a.png"), size=(100, 200))
    made = PrintedSheet(PageLayout(), (wide,))
    box, square = made.box(wide), made.layout.square(0)
    assert box.width / box.height == pytest.approx(2, rel=0.01)
    assert box.left >= square.left
    assert box.top + box.height <= square.top + square.height + 1e-9
    usual = sheet().box(sheet().prints[0])
    assert usual.width == pytest.approx(224 * 2 * 25.4 / 300)
