"""A peer's attack by name, stored and scored like our own: ``whorl.attack``, run folders, declarations, the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import whorl
from cli.invoking import invoke
from conftest import random_images
from peer_libraries import needs
from whorl import interop, runs
from whorl.data import save_image
from whorl.evaluation import PAPER_POSES

TOY = "python:cli.toy_networks:small"
NAME = "torchattacks:VMIFGSM"


@pytest.fixture(autouse=True)
def _library() -> None:
    needs("torchattacks")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two small images in folders of their classes."""
    for label, image in zip((3, 5), random_images(2), strict=True):
        save_image(tmp_path / "data" / str(label) / f"image{label}.png", image)
    return tmp_path / "data"


def attack(name: str, data: Path, *more: str) -> Any:
    """Run the command; what it makes lies beside the data."""
    out = str(data.parent / "run")
    return invoke("attack", name, "--model", TOY, "--data", str(data), "--out", out, *more)


def test_a_colon_makes_it_a_peers() -> None:
    attack = whorl.attack("TORCHATTACKS:vmifgsm", eps=8 / 255, estimator="ai")
    assert attack == interop.peer(NAME, eps=8 / 255, estimator="ai")


def test_the_command_stores_it(data: Path) -> None:
    asked = ("--estimator", "ai", "--steps", "2", "--eps", "8/255")
    done = attack(NAME, data, *asked)
    assert done.exit_code == 0, done.stderr
    out = data.parent / "run"
    [entry] = json.loads((out / "manifest.json").read_text())["crafted"].values()
    assert entry["attack"] == "torchattacks-vmifgsm"  # a folder's name on every system
    assert entry["settings"]["name"] == NAME
    assert entry["settings"]["eps"] == 8 / 255
    assert entry["settings"]["estimator"]["type"] == "AffineInvariant"
    assert entry["settings"]["version"] == interop.peer(NAME).version
    assert [image["grad_evals"] for image in entry["images"].values()] == [12, 12]  # N + 1 gradients a step
    x, y, ids = whorl.load_images(data)
    saved = runs.RunFolder(out).load(entry["attack"], entry["source"], ids)
    made = interop.peer(NAME, estimator="ai", steps=2, eps=8 / 255)(whorl.load_model(TOY), x, y, ids=ids)
    assert float((saved - made).abs().max()) <= 0.5 / 255 + 1e-6
    assert "2 of them from before" in attack(NAME, data, *asked).stdout


def test_on_real_weights_and_through_the_poses(tmp_path: Path) -> None:
    """As the documentation has it, on a photograph: crafted on resnet18, stored, and asked of another network."""
    [image], [label], [name] = whorl.load_samples(1, size=112)
    save_image(tmp_path / "data" / str(int(label)) / f"{name}.png", image)
    asked = ("--model", "resnet18", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--device", "cpu")
    done = invoke("attack", NAME, "--estimator", "ai", *asked, "--steps", "3")
    assert done.exit_code == 0, done.stderr
    assert "100.0%" in done.stdout  # white-box
    made = tmp_path / "run" / "adv" / "torchattacks-vmifgsm" / "resnet18"
    few = ("--angles", "0,30", "--scales", "1", "--shifts", "0", "--json", "--device", "cpu")
    scored = invoke("evaluate", str(tmp_path / "data"), str(made), "--model", "mobilenet_v2", *few)
    assert scored.exit_code == 0, scored.stderr
    cells = json.loads(scored.stdout)["cells"]
    assert [(cell["attack"], cell["source"], cell["angle"]) for cell in cells] == [
        ("torchattacks-vmifgsm", "resnet18", 0.0),
        ("torchattacks-vmifgsm", "resnet18", 30.0),
    ]
    assert (cells[0]["n_clean_correct"], cells[0]["n_success"], cells[0]["grad_evals"]) == (1, 1, 18)


def test_a_declaration_scores_it(data: Path, tmp_path: Path) -> None:
    declared = runs.declare(
        name="peers",
        sources=[TOY],
        targets=[TOY],
        data={"folder": str(data)},
        attacks=[
            {"name": NAME, "settings": {"steps": 1, "eps": "8/255"}},
            {"name": NAME, "label": "with-ai", "settings": {"steps": 1, "estimator": {"type": "AffineInvariant"}}},
        ],
    )
    done = runs.run(declared, tmp_path / "run", device="cpu")
    with done.results.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["attack"] for row in rows} == {"torchattacks-vmifgsm", "with-ai"}
    assert len(rows) == 2 * len(PAPER_POSES)
    assert {float(row["eps"]) for row in rows if row["attack"] == "torchattacks-vmifgsm"} == {8 / 255}


def test_the_estimator_option_works_for_our_own(data: Path) -> None:
    done = attack("pgd", data, "--estimator", "ti", "--steps", "1")
    assert done.exit_code == 0, done.stderr
    [entry] = json.loads((data.parent / "run" / "manifest.json").read_text())["crafted"].values()
    assert entry["settings"]["estimator"]["type"] == "TranslationInvariant"


@pytest.mark.parametrize(
    ("asked", "sigma"),
    [
        ("ai", "reference"),
        ("AI:Reference", "reference"),
        ("ai:printed", "printed"),
        ("ai:0.7", 0.7),
        ("ti:2", 2.0),
    ],
)
def test_the_estimator_option_takes_a_width(asked: str, sigma: str | float, data: Path) -> None:
    done = attack("ai-pgd", data, "--estimator", asked, "--steps", "1")
    assert done.exit_code == 0, done.stderr
    [entry] = json.loads((data.parent / "run" / "manifest.json").read_text())["crafted"].values()
    assert entry["settings"]["estimator"]["sigma"] == sigma


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NAME, "--estimator", "affine"), "unknown estimator 'affine'"),
        (("ai-dim", "--estimator", "ai:papers"), "or 'printed' or 'reference'; got 'papers'"),
        (("ai-dim", "--estimator", "ai:0"), "sigma must be a positive number of pixels"),
        (("pgd", "--estimator", "none:2"), "no estimator has no sigma"),
        (("torchattacks:nothing",), "unknown attack of torchattacks 'nothing'"),
        (("nowhere:PGD",), "unknown library 'nowhere'"),
        (("torchattacks:FGSM", "--steps", "3"), "unknown setting 'steps'"),
        (("foolbox:L2PGD",), "needs eps"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple[str, ...], message: str, data: Path) -> None:
    done = attack(arguments[0], data, *arguments[1:])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (data.parent / "run").exists()
