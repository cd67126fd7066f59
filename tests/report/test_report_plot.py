"""Figures of results by the name of their kind, and results as data frames."""

from __future__ import annotations

from pathlib import Path

import pytest

import whorl
from conftest import small_net
from report.made_up import grid_cells
from runs.declaring import OTHER, declared, save_toy_images, table
from whorl import WhorlError, runs
from whorl.evaluation import Pose, outcomes
from whorl.models import Classifier
from whorl.report.plot import plot


def test_every_kind_that_the_report_has() -> None:
    cells = grid_cells()
    assert plot(cells).layout.xaxis.title.text == "target"
    assert plot(cells, "profile", target="net-b").layout.xaxis.title.text in ("angle (°)", "scale")
    assert plot(cells, "surface").data[0].type == "surface"
    only = plot(cells, target="net-b", source="net-a")
    assert {name for trace in only.data for name in trace.x} == {"net-b"}


def test_what_is_not_there_is_an_error_that_says_what_is() -> None:
    with pytest.raises(WhorlError, match=r"no figure of the kind 'cost'.* there are: overview"):
        plot(grid_cells(where=[Pose()]), "cost")
    with pytest.raises(WhorlError, match=r"unknown target 'net-bb'. Did you mean 'net-b'"):
        plot(grid_cells(), target="net-bb")
    with pytest.raises(WhorlError, match=r"unknown source 'x'"):
        plot(grid_cells(), source="x")


def test_an_experiment(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    done = runs.run(declared(save_toy_images(tmp_path / "data"), attacks=["fgsm"]), tmp_path / "run", device="cpu")
    frame = done.to_pandas()
    frame.drop(columns="seconds").to_csv(tmp_path / "again.csv", index=False)
    ours = [{k: float(v) if k == "asr" and v else v for k, v in row.items()} for row in table(tmp_path, "again.csv")]
    wanted = [{k: float(v) if k == "asr" and v else v for k, v in row.items()} for row in table(tmp_path / "run")]
    assert [row["asr"] for row in ours] == [row["asr"] for row in wanted]
    assert list(ours[0]) == list(wanted[0])
    assert [trace.name for trace in done.plot().data] == ["fgsm"]
    assert done.plot("profile", target=OTHER).layout.xaxis.title.text == "angle (°)"


def test_outcomes_and_single_attacks(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    data = save_toy_images(tmp_path / "data")
    clf = Classifier.from_module(small_net(), size=(18, 18), mean=(0, 0, 0), std=(1, 1, 1), name="small")
    x, y, ids = whorl.load_images(data)
    adv = whorl.attack("fgsm", eps=0.1)(clf, x, y, ids=ids)
    found = outcomes([(x, {"fgsm": adv}, y, ids)], {"small": clf}, [Pose(), Pose(angle=20)])
    [trace] = found.plot().data
    assert (trace.name, list(trace.x)) == ("fgsm", ["small"])
    assert trace.y[0] == pytest.approx(100 * found.headline("fgsm", "small").value, abs=1e-3)

    crafted = runs.craft("fgsm", clf, data, tmp_path / "white", settings={"eps": 0.1})
    assert crafted.to_pandas().success.sum() == crafted.counts["small"].n_success
    assert crafted.plot().data[0].x == (pytest.approx(100 * crafted.counts["small"].rate),)
    queried = runs.query("nes", clf, data, tmp_path / "black", settings={"budget": 60, "samples": 10, "eps": 0.1})
    frame = queried.to_pandas().set_index("id")
    assert frame.queries.to_dict() == queried.queries
    assert queried.plot().layout.xaxis.title.text == "queries"
