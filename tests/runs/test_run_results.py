"""results.csv: the columns of the contract, and what further numbers of poses add after them."""

from __future__ import annotations

import csv
from pathlib import Path

from whorl.evaluation import PAPER_POSES, Pose, SuccessRate
from whorl.runs.results import COLUMNS, Cell, records, write_results


def cell(pose: Pose) -> Cell:
    counts = SuccessRate(10, 8, 4, 5)
    return Cell(attack="dim", source="a", target="b", pose=pose, eps=0.1, counts=counts, grad_evals=100, seconds=2.5)


def test_the_papers_poses_have_the_columns_of_the_contract_alone(tmp_path: Path) -> None:
    write_results(tmp_path / "results.csv", [cell(pose) for pose in PAPER_POSES])
    first, second, *_ = (tmp_path / "results.csv").read_text().splitlines()
    assert first == (
        "attack,source,target,defense,angle,scale,shift_x,shift_y,eps,n,n_clean_correct,n_success,asr,accuracy,"
        "grad_evals,seconds"
    )
    assert second == "dim,a,b,none,-30,1.0,0.0,0.0,0.1,10,8,4,0.5,0.5,100,2.5"


def test_further_numbers_are_columns_after_seconds(tmp_path: Path) -> None:
    cells = [cell(Pose()), cell(Pose(tilt=(20, 0))), cell(Pose(shear=5, blur=2))]
    write_results(tmp_path / "results.csv", cells)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == (*COLUMNS, "shear", "tilt_x", "blur")
    assert [[float(row[name]) for name in ("shear", "tilt_x", "blur")] for row in rows] == [
        [0, 0, 0],
        [0, 20, 0],
        [5, 0, 2],
    ]
    assert records(cells)[2]["blur"] == 2
    assert "blur" not in records(cells[:1])[0]
