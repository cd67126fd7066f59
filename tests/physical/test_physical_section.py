"""Photographs as a part of a report: the figures are those of the summary, and the images those that were cut out."""

from __future__ import annotations

import numpy as np
from torch import nn

from physical.printed_run import faked
from whorl.physical import Scored
from whorl.physical.captures import Unread, together
from whorl.physical.section import contact_sheet, photographs
from whorl.physical.summary import compared, summarise
from whorl.runs.networks import Target

ANSWERS = {
    ("one", "p", "clean"): 1, ("one", "p", "dim"): 5, ("one", "p", "ai-dim"): 5,
    ("one", "q", "clean"): 1, ("one", "q", "dim"): 1, ("one", "q", "ai-dim"): 5,
    ("one", "r", "clean"): 1, ("one", "r", "dim"): 1, ("one", "r", "ai-dim"): 1,
    ("turned", "p", "clean"): 9, ("turned", "p", "dim"): 1, ("turned", "p", "ai-dim"): 1,
    ("turned", "q", "clean"): 1, ("turned", "q", "dim"): 1, ("turned", "q", "ai-dim"): 7,
    ("turned", "r", "clean"): 1, ("turned", "r", "dim"): 5,
}  # fmt: skip


def target(labels: tuple[str, ...] = ()) -> Target:
    net = nn.Identity()
    if labels:
        net.labels = labels  # type: ignore[assignment]
    return Target(model="t", net=net)


def test_cells_are_those_of_the_summary() -> None:
    done = faked(ANSWERS)
    made = photographs(done, [target()])
    [cut] = made.cut_out
    counted = {line.item.attack: line.counts for line in summarise(done)}
    assert {cell.attack: cell.counts for cell in cut.cells} == counted
    assert (counted["dim"].n, counted["dim"].n_clean_correct, counted["dim"].n_success) == (6, 5, 2)
    [turned, scaled, tilted] = cut.groups
    assert (turned.by, turned.unit, list(turned.steps)) == ("rotation", "°", [0.0, 15.0])
    assert (scaled.by, list(scaled.steps), list(tilted.steps)) == ("scale", [0.8], [0.0])
    by_attack = {cell.attack: cell.counts for cell in turned.steps[15.0]}
    assert (by_attack["ai-dim"].n, by_attack["ai-dim"].n_clean_correct, by_attack["ai-dim"].n_success) == (2, 1, 1)
    assert made.repeats == 2
    assert dict(made.facts) == {
        "photographs read": "0 of 0",
        "images identified": "17",
        "attacks": "2",
        "network": "1",
    }


def test_a_picture_in_several_photographs_has_one_vote() -> None:
    done = faked(ANSWERS)
    found = compared(done, "as seen", "ai-dim", "dim", "t")
    # p: both succeed in one photograph. q: ai-dim alone, twice. r: neither; the other photograph has no ai-dim.
    assert (found.n, found.b, found.c) == (3, 1, 0)
    assert photographs(done, [target()]).comparisons == {("ai-dim", "dim", "", "t"): found}


def with_pictures(done: Scored) -> Scored:
    for place, capture in enumerate(done.captures):
        picture = np.full((8, 8, 3), 10 * place, np.uint8)
        done.shown.setdefault((capture.photo, capture.item.id), {})[capture.item.version, "as seen"] = picture
    return done


def test_the_contact_sheet_shows_each_version_with_its_answer() -> None:
    sheet = contact_sheet(with_pictures(faked(ANSWERS)), target(labels=("a", "b", "c", "d", "e", "f")))
    assert sheet.poses == ("clean", "dim", "ai-dim")
    assert [example.id for example in sheet.examples][:2] == ["p in one", "q in one"]
    [row] = sheet.examples[0].versions
    assert row.name == "as seen"
    assert [(shot.label, shot.fooled) for shot in row.shots if shot] == [("b", False), ("f", True), ("f", True)]
    # Beyond the labels, classes have numbers; what was not captured has no image.
    [last] = sheet.examples[-1].versions
    assert [shot and shot.label for shot in last.shots] == ["b", "f", None]
    assert sheet.examples[4].versions[0].shots[2].label == "class 7"  # type: ignore[union-attr]


def test_several_scores_become_one() -> None:
    first, second = (
        with_pictures(faked({key: value for key, value in ANSWERS.items() if key[0] == photo}))
        for photo in ("one", "turned")
    )
    first.photos, second.photos, second.partly = 1, 2, 3
    second.unread.append(Unread(photo="wall.jpg", reason="no markers"))
    whole = together([first, second])
    assert summarise(whole) == summarise(faked(ANSWERS))
    assert (whole.photos, whole.partly, len(whole.unread)) == (3, 3, 1)
    assert len(whole.shown) == 6
    made = photographs(whole, [target()], about=["Told first."])
    assert made.about[0] == "Told first."
    assert "3 more are seen in part" in made.about[2]
    assert made.unread == (("wall.jpg", "no markers"),)
