"""What a score leaves behind: the figures are those of the summary, and the images those that were cut out."""

from __future__ import annotations

import csv
from pathlib import Path

from PIL import Image

from physical.printed_run import PREDICTIONS, faked, named_target, scored, target, with_images
from whorl.physical import Scored, ViewSettings
from whorl.physical.captures import Photographed
from whorl.physical.report import as_json, contact_sheet, content, photographs, write_all
from whorl.physical.summary import summarise
from whorl.report import headline
from whorl.runs.results import COLUMNS


def test_cells_are_those_of_the_summary() -> None:
    done = faked(PREDICTIONS)
    made = photographs(done, [named_target()])
    [cut] = made.cut_out
    counted = {line.item.attack: line.counts for line in summarise(done)}
    assert {cell.attack: cell.counts for cell in cut.cells} == counted
    assert (counted["dim"].n, counted["dim"].n_clean_correct, counted["dim"].n_success) == (6, 5, 2)
    [rotated, scaled, tilted] = cut.groups
    assert (rotated.by, rotated.unit, list(rotated.steps)) == ("rotation", "°", [0.0, 15.0])
    assert (scaled.by, list(scaled.steps), list(tilted.steps)) == ("scale", [0.8], [0.0])
    by_attack = {cell.attack: cell.counts for cell in rotated.steps[15.0]}
    assert (by_attack["ai-dim"].n, by_attack["ai-dim"].n_clean_correct, by_attack["ai-dim"].n_success) == (2, 1, 1)
    assert made.repeats == 2
    assert dict(made.facts) == {
        "photographs read": "2 of 2",
        "images identified": "17",
        "attacks": "2",
        "network": "1",
    }


def test_the_contact_sheet_shows_each_version_with_its_prediction() -> None:
    sheet = contact_sheet(with_images(faked(PREDICTIONS)), named_target(labels=("a", "b", "c", "d", "e", "f")))
    assert sheet.columns == ("clean", "dim", "ai-dim")
    assert [example.id for example in sheet.examples][:2] == ["p in one", "q in one"]
    [row] = sheet.examples[0].rows
    assert row.name == "as seen"
    assert [(tile.caption, tile.fooled) for tile in row.tiles if tile] == [("b", False), ("f", True), ("f", True)]
    # Beyond the labels, classes have numbers; what was not captured has no image.
    [last] = sheet.examples[-1].rows
    assert [tile and tile.caption for tile in last.tiles] == ["b", "f", None]
    assert sheet.examples[4].rows[0].tiles[2].caption == "class 7"  # type: ignore[union-attr]


def test_files(tmp_path: Path) -> None:
    files = write_all(scored(), tmp_path, [target()])
    rows = list(csv.reader(files.results["as seen"].open()))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 1 + 2 * 2  # clean and noise, two poses
    captures = list(csv.DictReader(files.captures.open()))
    assert len(captures) == 36
    assert {row["photo"] for row in captures} == {"a.jpg", "b.jpg"}
    assert files.contact is not None
    with Image.open(files.contact) as image:
        assert image.format == "PNG"
    assert "Photographs of prints" in files.report.read_text()


def test_simulated_photographs_are_called_so() -> None:
    done = faked(PREDICTIONS)
    assert photographs(done, [named_target()]).title == "Photographs of prints"
    done.simulated = {"one"}
    some = photographs(done, [named_target()])
    assert (some.title, "1 of 2 photographs are real." in some.about[0]) == ("Photographs of prints", True)
    done.simulated = {"one", "two"}
    done.photographed.append(Photographed(photo="truth.json", reason="no image"))  # lies beside them
    every = content(done, [named_target()])
    assert every.title == "Simulated photographs of prints"
    assert "in simulated photographs" in headline(every).details[0]
    assert as_json(done)["simulated"] == 2


def test_json_is_honest_about_nothing() -> None:
    empty = Scored(settings=ViewSettings(), targets=("t",))
    content = as_json(empty)
    assert (content["identified"], content["accuracy"], content["asr"]) == (0, None, None)
