"""What ``whorl paper`` keeps of each image: enough to recompute every figure of the table without whorl."""

from __future__ import annotations

import ast
import base64
import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper.toys import OTHER, SMALL, toy_images, toy_profile
from whorl import paper
from whorl.evaluation import Outcomes, Pose
from whorl.evaluation.image_counts import ImageCounts
from whorl.evaluation.statistics import compare, holm, swap_test
from whorl.paper import PaperOptions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tables on small networks, in one run folder."""
    place = tmp_path_factory.mktemp("outcomes")
    data, profile = toy_images(place, 40), toy_profile(place)

    def reproduce(name: str, *attacks: str, **more: Any) -> paper.Reproduced:
        options = PaperOptions(profile=profile, data=data, attacks=attacks, device="cpu", **more)
        return paper.reproduce(name, place / "run", options)

    return reproduce


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import recompute_paper

    return recompute_paper


CASES = [
    ("table1", ("fgsm", "ai-fgsm", "pgd", "ai-pgd", "ri-pgd"), {}),
    ("table1", ("pgd", "ai-pgd"), {"kernel": "printed"}),
    ("table4", ("eot", "ai-dim"), {"quick": True}),
]


@pytest.mark.parametrize(("name", "attacks", "more"), CASES, ids=["poses", "printed", "means"])
def test_every_figure_is_recomputed_without_whorl(
    run: Any, plain: Any, name: str, attacks: tuple[str, ...], more: dict[str, Any]
) -> None:
    made = run(name, *attacks, **more)
    found = plain.recompute(json.loads(made.files["outcomes"].read_text()))
    with made.files["figures"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found) > 0
    assert plain.differences(found, str(made.files["figures"])) == []
    marks = {row["marks"] for row in rows}
    assert marks - {""}
    key = next(key for key in found if found[key][3])
    found[key] = (*found[key][:3], "?")
    assert len(plain.differences(found, str(made.files["figures"]))) == 1


def test_gaps_over_several_tables_are_those_of_the_products_comparison(run: Any, plain: Any) -> None:
    rows = ("pgd", "ai-pgd")
    made = [run(name, *rows) for name in ("table1", "table3")]
    files = [json.loads(one.files["outcomes"].read_text()) for one in made]
    found = plain.gaps(files, "ai-pgd", "pgd")
    expected = {}
    for source, target in found:
        seen = [plain.unpacked(data)[:, data["targets"].index(target)] for data in files]
        clean, pgd, ai = np.concatenate(seen, axis=1)  # the two tables have no pose in common
        expected[source, target] = compare(ImageCounts(clean, clean & ~ai), ImageCounts(clean, clean & ~pgd), "mean")
    for key, one in holm(expected).items():
        assert found[key][:3] == pytest.approx([100 * x for x in (one.difference, *one.interval)], abs=1e-6)
        assert found[key][3] == pytest.approx(one.p_value)
    assert len(found) > 1


def test_counts_are_those_of_the_run(run: Any, plain: Any, tmp_path: Path) -> None:
    made = run("table1", "pgd", "ai-pgd")
    plain.write_counts([json.loads(made.files["outcomes"].read_text())], tmp_path / "counts.csv", [OTHER])
    with (tmp_path / "counts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (made.files["outcomes"].parent / "table1-results.csv").open(newline="") as file:
        written = [row for row in csv.DictReader(file) if row["target"] == OTHER]
    names = (
        "attack",
        "source",
        "target",
        "defense",
        "angle",
        "scale",
        "shift_x",
        "shift_y",
        "n_clean_correct",
        "n_success",
    )
    kept = [[row[name] for name in names] for row in rows]
    assert sorted(kept) == sorted([row[name] for name in names] for row in written)
    assert kept


def test_it_runs_where_there_is_no_whorl(run: Any) -> None:
    made = run("table1", "pgd", "ai-pgd")
    files = [str(made.files["outcomes"]), "--against", str(made.files["figures"])]
    isolated = [sys.executable, "-c", _WITHOUT, str(BENCHMARKS / "recompute_paper.py"), *files]
    done = subprocess.run(isolated, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{SMALL} -> {OTHER}, θ=30°, ai-pgd: " in done.stdout
    changed = made.files["figures"].parent / "changed.csv"
    changed.write_text(made.files["figures"].read_text().replace("✓", "✗").replace("~", "✗"))
    isolated[-1] = str(changed)
    assert subprocess.run(isolated, capture_output=True, check=False).returncode == 1
    for name in ("recompute_paper", "recompute_held_out"):
        imported = {
            alias.name if isinstance(node, ast.Import) else str(node.module)
            for node in ast.walk(ast.parse((BENCHMARKS / f"{name}.py").read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not any(module.startswith(("whorl", "torch")) for module in imported)


_WITHOUT = """
import runpy, sys
sys.modules["whorl"] = sys.modules["torch"] = None
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_file_holds_the_outcomes_themselves(run: Any) -> None:
    made = run("table1", "pgd", "ai-pgd")
    data = json.loads(made.files["outcomes"].read_text())
    whole = made.done.whole
    again = Outcomes.from_bits(
        base64.b64decode(data["bits"]),
        ids=data["ids"],
        attacks=["/".join(row) for row in data["rows"]],
        targets=data["targets"],
        poses=[Pose(**{**pose, "shift": tuple(pose["shift"])}) for pose in data["poses"]],
    )
    assert (again.ids, again.targets, again.poses) == (whole.ids, whole.targets, whole.poses)
    assert np.array_equal(again.clean, whole.clean)
    assert np.array_equal(again.adversarial, whole.adversarial)
    assert "AffineInvariant(sigma='reference')" in data["attacks"]["ai-pgd"]
    assert data["networks"].keys() == {SMALL, OTHER}


def test_two_kernels_leave_files_of_their_own(run: Any) -> None:
    kept = {kernel: run("table1", "ai-pgd", kernel=kernel).files for kernel in ("reference", "printed")}
    assert kept["printed"]["outcomes"].name == "table1-printed-outcomes.json"
    contents = {kernel: json.loads(files["outcomes"].read_text()) for kernel, files in kept.items()}
    assert {kernel: content["kernel"] for kernel, content in contents.items()} == {
        "reference": "reference",
        "printed": "printed",
    }
    assert "σ = l/√3" in kept["printed"]["comparison"].read_text().splitlines()[0]
    assert contents["reference"]["bits"] != contents["printed"]["bits"]


def test_the_plain_test_is_whorls(plain: Any) -> None:
    generator = np.random.default_rng(3)
    for leads in (
        generator.integers(-3, 4, 40),
        generator.normal(0.3, 1, 60),
        np.array([0.25, 0.25, -0.25]),
        np.zeros(3),
    ):
        assert plain.swap_test(leads) == pytest.approx(swap_test(leads), rel=1e-6)
