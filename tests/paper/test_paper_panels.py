"""Curves over what changes from row to row."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from browser import chromium
from paper.synthetic import Synthetic
from whorl import WhorlError, paper
from whorl.evaluation import Pose
from whorl.paper.comparison import Compared
from whorl.paper.item import Item
from whorl.paper.panels import curves, draw_panels, write_panels


def compared(name: str) -> Compared:
    """Fewer are fooled the larger the kernel, and the smaller the image."""
    item = paper.load(name)
    values = item.axis.values if item.axis else {}

    def fooled(attack: str, source: str, target: str, pose: Pose) -> int:
        return round((100 - values.get(attack, 0)) * pose.scale / 1.5) + ("jpeg" in target)

    return paper.compare_with_printed(item, Synthetic(declaration=item.declaration(present=()), fooled=fooled))


def test_figure_7_has_five_panels_and_a_curve_for_each_network() -> None:
    found = list(curves(compared("figure7")))
    panels = list(dict.fromkeys(one.panel for one in found))
    assert panels == [shown.label for shown in paper.load("figure7").poses]
    assert len(panels) == 5
    names = {one.name for one in found}
    assert len(found) == 5 * len(names)
    assert {"resnet18", "mobilenet_v2", "resnet18+randmix"} <= names
    for one in found:
        assert [at for at, _ in one.points] == [1, 3, 7, 11, 15, 19, 23, 27, 31]
    [white] = [one for one in found if (one.panel, one.name) == (panels[2], "resnet18")]
    assert white.points[0][1] == pytest.approx(100 * 99 / 150)
    assert white.points[-1][1] == pytest.approx(100 * 69 / 150)


def test_a_mean_is_one_panel() -> None:
    found = list(curves(compared("ablation-sigma")))
    assert {one.panel for one in found} == {"mean over 12 poses"}
    assert len({one.name for one in found}) == len(found) == 3
    assert len(found[0].points) == 9  # all rows but the plain attack


def test_panels_are_drawn_with_one_legend() -> None:
    figure = draw_panels(compared("figure7"))
    assert sum(bool(trace.showlegend) for trace in figure.data) == len({trace.name for trace in figure.data})
    assert len({trace.xaxis for trace in figure.data}) == 5


def test_a_page_is_written(tmp_path: Path) -> None:
    [page] = write_panels(compared("ablation-size"), tmp_path, files_too=False).values()
    assert page.name == "ablation-size-panels.html"
    assert "size of both kernels" in page.read_text()


def test_files_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido", reason="kaleido is not installed; it is part of torchwhorl[figures]")
    monkeypatch.setenv("BROWSER_PATH", chromium())
    write_panels(compared("figure7"), tmp_path, files_too=True)
    assert {path.name for path in (tmp_path / "figure7-figures").iterdir()} == {
        "panels.png",
        "panels-column.pdf",
        "panels-page.pdf",
    }


def test_a_table_without_an_axis_has_no_curves() -> None:
    with pytest.raises(WhorlError, match="table8 has no axis"):
        list(curves(compared("table8")))


def test_an_axis_names_rows() -> None:
    item = paper.load("figure7").model_dump()
    with pytest.raises(ValidationError, match="which are not rows"):
        Item.model_validate(item | {"axis": {"label": "x", "values": {"ai-dim-1": 1, "ai-dim-2": 2}}})


def test_sizes_and_widths_are_those_that_the_axis_says() -> None:
    for name, setting in (("figure7", "kernel_size"), ("ablation-size", "kernel_size"), ("ablation-sigma", "sigma")):
        item = paper.load(name)
        assert item.axis is not None
        widths = {"reference": 7 / 6, "printed": 7 / math.sqrt(3)}
        for spec in item.attacks:
            if spec.title in item.axis.values:
                value = spec.settings["estimator"][setting]
                assert item.axis.values[spec.title] == pytest.approx(widths.get(value, value), abs=1e-3)
