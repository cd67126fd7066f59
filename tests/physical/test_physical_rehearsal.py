"""Table 5 with a simulated camera, on real photographs and a real network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import whorl
from physical.printed_run import sheet
from whorl.physical import PageLayout, Rehearsal, arrange, table5
from whorl.physical.captures import SHOWN
from whorl.physical.rehearsal import SETTINGS
from whorl.physical.simulation import SIMULATED
from whorl.runs.networks import Target


def test_table5() -> None:
    net, where = whorl.load_model("resnet18"), Rehearsal(settings=("setting1", "setting3"), size=(1200, 1600))
    done = table5(sheet(), [Target(model="resnet18", net=net)], where)
    assert list(done.scored) == ["setting1", "setting3"]
    for setting, angle, scale in (("setting1", 0, 1.0), ("setting3", 15, 0.8)):
        assert done.identified(setting) == 1
        captures = done.scored[setting].captures
        assert {round(capture.appearance.pose.angle) for capture in captures} == {angle}
        assert {round(capture.appearance.pose.scale, 1) for capture in captures} == {scale}
        shifts = torch.tensor([capture.appearance.pose.shift for capture in captures]).abs()
        assert 0 < float(shifts.max()) <= 20
    clean, noisy = (done.counts("setting1", version, "resnet18") for version in ("clean", "noise"))
    assert clean.n == noisy.n == 9
    # Nine photographs, most of which the network knows as they are; at two megapixels some are lost, not all.
    assert clean.accuracy > 0
    same = done.compared("setting1", "noise", "noise", "resnet18")
    assert (same.b, same.c) == (0, 0)
    assert same.n == clean.n_clean_correct


@pytest.mark.slow  # fresh processes load torch anew
def test_workers_change_nothing() -> None:
    targets = [Target(model="mean", net=Mean())]
    where = Rehearsal(settings=("setting2",), size=(900, 1200))
    alone, spread = (table5(sheet(), targets, where, workers=workers) for workers in (1, 2))
    assert alone.scored["setting2"].captures == spread.scored["setting2"].captures


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    where = Rehearsal(settings=("setting3",), size=(600, 900))
    small = PageLayout(width=100, height=150, image=38)
    pages = arrange([[item] for item in sheet().prints if item.attack == "clean"], small)
    first = -(-SHOWN // small.places)  # pages of the contact sheet's images
    assert first < pages.pages - 1
    whole = table5(pages, [Target(model="mean", net=Mean())], where)
    with pytest.raises(KeyboardInterrupt):
        table5(pages, [Target(model="mean", net=Mean(calls_left=pages.pages - 1))], where, folder=folder)
    part = folder / "cells" / ".0123.json.0a1b2c3d.part"
    part.write_text('{"photo": "setti')  # as a process leaves it that is killed as it writes
    counting = Mean()
    again = table5(pages, [Target(model="mean", net=counting)], where, folder=folder)
    for setting, scored in again.scored.items():
        assert scored.captures == whole.scored[setting].captures
        assert scored.shown.keys() == whole.scored[setting].shown.keys()
        assert (scored.photos, scored.unread) == (pages.pages, [])
    assert not part.exists()
    assert counting.calls == first + 1  # and the last page, which was never done
    for other in (where.with_(seed=1), where.with_(size=(660, 990))):
        counting = Mean()
        table5(pages, [Target(model="mean", net=counting)], other, folder=folder)
        assert counting.calls == pages.pages  # another run


class Mean(nn.Module):
    """Predicts an image's brightness, and counts how often it is called; the keyboard may interrupt it."""

    def __init__(self, calls_left: int = 1000) -> None:
        super().__init__()
        self.calls, self.calls_left = 0, calls_left

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > self.calls_left:
            raise KeyboardInterrupt
        return nn.functional.one_hot((x.mean((1, 2, 3)) * 999).long(), 1000).float()


def test_the_settings_are_the_papers() -> None:
    assert SETTINGS == ("setting1", "setting2", "setting3")
    assert "Simulated" in SIMULATED
