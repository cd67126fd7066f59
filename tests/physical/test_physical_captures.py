"""Records of what photographs gave: seeded offsets, several scores as one, to JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from physical.printed_run import PREDICTIONS, faked, named_target, scored, sheet, with_images
from whorl.physical import ViewSettings
from whorl.physical.captures import Photographed, together
from whorl.physical.report import photographs
from whorl.physical.summary import summarise


def test_offsets_are_seeded_and_within_the_limit() -> None:
    settings = ViewSettings(offset=20)
    shifts = np.array([settings.shift("photo", number) for number in range(400)])
    assert np.abs(shifts).max() <= 20
    assert np.abs(shifts).mean() == pytest.approx(10, abs=1)
    assert np.abs(shifts.mean(0)).max() < 2
    assert settings.shift("photo", 7) == ViewSettings(offset=20).shift("photo", 7) != settings.shift("other", 7)
    assert ViewSettings().shift("photo", 7) == (0, 0)


def test_several_scores_become_one() -> None:
    first, second = (
        with_images(faked({key: value for key, value in PREDICTIONS.items() if key[0] == photo}))
        for photo in ("one", "rotated")
    )
    second.photographed.append(Photographed(photo="wall.jpg", reason="no markers", partly=3))
    whole = together([first, second])
    assert summarise(whole) == summarise(faked(PREDICTIONS))
    assert (whole.photos, whole.partly, len(whole.unread)) == (3, 3, 1)
    assert len(whole.shown) == 6
    made = photographs(whole, [named_target()], about=["Said first."])
    assert made.about[0] == "Said first."
    assert "3 more are seen in part" in made.about[2]
    assert made.unread == (("wall.jpg", "no markers"),)


def test_what_came_of_a_photograph_is_read_back_from_json() -> None:
    sheets = {sheet().name: sheet()}
    for photographed in (*scored().photographed, Photographed(photo="wall.jpg", reason="no markers", unbalanced=True)):
        content = json.loads(json.dumps(photographed.to_json(sheets)))
        assert replace(photographed, captures=[*photographed.captures]) == Photographed.from_json(content, sheets)
