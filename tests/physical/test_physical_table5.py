"""Table 5 with a simulated camera, on real photographs and a real network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from physical.printed_run import sheet
from whorl.physical import Layout, arrange, table5
from whorl.physical.captures import SHOWN
from whorl.physical.table5 import PAPER, SETTINGS, SIMULATED
from whorl.runs.networks import Target


def test_table5() -> None:
    net = whorl.load_model("resnet18")
    done = table5(sheet(), [Target(model="resnet18", net=net)], settings=("setting1", "setting3"), size=(1200, 1600))
    assert list(done.scored) == ["setting1", "setting3"]
    for setting, angle, scale in (("setting1", 0, 1.0), ("setting3", 15, 0.8)):
        assert done.identified(setting) == 1
        captures = done.scored[setting].captures
        assert {round(capture.seen.pose.angle) for capture in captures} == {angle}
        assert {round(capture.seen.pose.scale, 1) for capture in captures} == {scale}
        shifts = torch.tensor([capture.seen.pose.shift for capture in captures]).abs()
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
    asked = [Target(model="mean", net=Mean())]
    alone, spread = (
        table5(sheet(), asked, settings=("setting2",), size=(900, 1200), workers=workers) for workers in (1, 2)
    )
    assert alone.scored["setting2"].captures == spread.scored["setting2"].captures


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    notes = tmp_path / "new" / "notes.jsonl"
    where: dict[str, Any] = {"settings": ("setting3",), "size": (600, 900)}
    small = Layout(width=100, height=150, picture=38)
    pages = arrange([[item] for item in sheet().prints if item.attack == "clean"], small)
    first = -(-SHOWN // small.places)  # pages of the contact sheet's images
    assert first < pages.pages - 1
    whole = table5(pages, [Target(model="mean", net=Mean())], **where)

    class Interrupted(Mean):
        left = pages.pages - 1

        def forward(self, x: Tensor) -> Tensor:
            Interrupted.left -= 1
            if Interrupted.left < 0:
                raise KeyboardInterrupt
            return super().forward(x)

    with pytest.raises(KeyboardInterrupt):
        table5(pages, [Target(model="mean", net=Interrupted())], **where, notes=notes)
    with notes.open("a") as file:
        file.write('[99, {"setting1": {"pho')  # as a process leaves it that is killed as it writes
    counting = Counting()
    again = table5(pages, [Target(model="mean", net=counting)], **where, notes=notes)
    for setting, scored in again.scored.items():
        assert scored.captures == whole.scored[setting].captures
        assert scored.shown.keys() == whole.scored[setting].shown.keys()
        assert (scored.photos, scored.unread) == (pages.pages, [])
    assert counting.calls == first + 1  # and the last page, which was never done
    # Another seed is another run.
    other = Counting()
    table5(pages, [Target(model="mean", net=other)], **where, seed=1, notes=notes)
    assert other.calls == pages.pages


class Mean(nn.Module):
    """Answers with an image's brightness."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot((x.mean((1, 2, 3)) * 999).long(), 1000)


class Counting(Mean):
    """Counts how often it is asked."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


def test_the_papers_figures_are_the_printed_ones() -> None:
    assert PAPER["ai-dim"] == (10.5, 5.5, 5.6)
    assert SETTINGS == ("setting1", "setting2", "setting3")
    assert "Simulated" in SIMULATED
