"""The page's moving parts: what they say, and that a name stays text."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from conftest import random_images
from ui.ui_toys import crafted, image, toy
from whorl import Classifier
from whorl.data.image_files import to_tensor
from whorl.evaluation import Pose
from whorl.ui import fragments
from whorl.ui.bundle import Download
from whorl.ui.pair import PairSettings, StepTaken, SuccessMap, predict, success_map, whorls

EVIL = "<script>alert('1')</script>\"'"


def test_an_image_survives_its_address() -> None:
    x = random_images(1, height=9, width=12)[0]
    kind, _, data = fragments.image_uri(x).partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as decoded:
        assert torch.equal(to_tensor(np.asarray(decoded)), x)


def test_names_stay_text(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm")
    hostile = toy(labels=(EVIL,) * 7)
    made = replace(made, model=hostile, other=replace_name(hostile))
    *_, found = success_map(made)
    walked = SuccessMap.of([predict(made, Pose(angle=angle)) for angle in (0, 9)])
    page = "".join(
        (
            fragments.notice(EVIL, bad=True),
            fragments.chosen(replace(image(tmp_path), name=EVIL)),
            fragments.samples([replace(image(tmp_path), name=EVIL)]),
            fragments.tiles(predict(made, Pose()), made),
            fragments.heat_maps(found, made),
            fragments.path(walked, made),
            fragments.downloads([Download(EVIL, EVIL, "data:,")], [EVIL], EVIL),
            fragments.progress(PairSettings(), [], EVIL),
            fragments.empty(EVIL),
        )
    )
    assert "<script" not in page
    assert "alert('1')" not in page  # the quotes would end an attribute
    assert "&lt;script&gt;" in page


def replace_name(model: Classifier) -> Classifier:
    """The same network, called by something nasty."""
    named = toy(labels=tuple(model.labels))
    named.name = EVIL
    return named


def test_frames_marks_and_words_agree(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="mim", eps=24 / 255)
    posed = predict(made, Pose())
    shown = fragments.tiles(posed, made)
    tiles = re.findall(r'<figure class="w-tile (\w+)" data-version="([\w-]+)">(.*?)</figure>', shown, re.DOTALL)
    assert [version for _, version, _ in tiles] == ["clean", "mim", "ai-mim"]
    assert {kind for kind, _, _ in tiles} == {"right", "wrong"}
    for kind, version, inside in tiles:
        answer = posed.answers[version]
        assert (kind == "right") == answer.right
        assert ("M3 8.5l3.5" in inside) == answer.right  # a tick
        assert f"· {kind}<" in inside
        assert f">{answer.name}<" in inside
    assert "since the true label is unknown" in shown
    assert "does not count" not in shown
    moot = replace(made, label=(made.label + 1) % 7)
    assert "The clean version is wrong here too, so this pose does not count." in fragments.tiles(
        predict(moot, Pose()), moot
    )


def test_the_map_has_a_button_for_each_pose(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="mim", eps=1 / 255)
    first, *_, found = success_map(made)
    shown = fragments.heat_maps(found, made, Pose(angle=30, scale=0.7))
    for attack in made.attacks:
        own = shown.split(f'data-attack="{attack}"')[1].split("</table>")[0]
        counts = found.pooled(attack)
        assert own.count("<button") == 35
        assert own.count("w-cell fooled") == counts.n_success
        assert own.count("w-cell uncounted") == 35 - counts.n_clean_correct
        assert f"{counts.n_success} of {counts.n_clean_correct} poses" in own
        assert re.findall(r' here" data-angle="30" data-scale="0.7"', own) != []
    early = fragments.heat_maps(first, made)
    assert early.count("<button") == 2 * 7
    assert "7 of 35 poses" in early


def test_progress_is_told_in_numbers() -> None:
    taken = [StepTaken(attack="pgd", done=done, steps=4, probability=1 / done) for done in (1, 2, 3)]
    shown = fragments.progress(PairSettings(steps=4), taken, "At work.")
    assert 'aria-label="steps of PGD" aria-valuemin="0" aria-valuemax="4" aria-valuenow="3"' in shown
    assert "width:75%" in shown
    assert "p(label) 33%" in shown
    assert 'aria-label="steps of AI-PGD" aria-valuemin="0" aria-valuemax="4" aria-valuenow="0"' in shown


def test_magnification_is_named(tmp_path: Path) -> None:
    made = crafted(tmp_path, attack="fgsm", eps=8 / 255)
    assert "magnified 16 times" in fragments.perturbations(whorls(made), made.settings)
