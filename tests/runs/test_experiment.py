from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from cli.toy_networks import small
from conftest import CLASSES
from runs.declaring import COUNT, OTHER, SMALL, declared, made, save_toy_images, table
from whorl import WhorlError, runs
from whorl.data import load_image, save_image
from whorl.evaluation import Pose
from whorl.files import write_file
from whorl.runs import Data, craft
from whorl.runs.store import Store

SLOW = "python:cli.toy_networks:slow"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return save_toy_images(tmp_path / "data")


def run(declaration: runs.Declaration, out: Path, **more: Any) -> runs.Done:
    return runs.run(declaration, out, device="cpu", **more)


def named_by_address() -> whorl.Classifier:
    clf = whorl.load_model(SMALL)
    clf.name = SMALL
    return clf


def test_a_separate_script_counts_the_same(data: Path, tmp_path: Path) -> None:
    grid = {"angles": [-30, 0, 30], "scales": [0.7, 1], "shifts": [0, 20]}
    done = run(declared(data, targets=[SMALL], poses=[grid]), tmp_path / "out")
    adversarial = [runs.RunFolder(done.folder).images(name, SMALL) for name in ("mim", "ai-mim")]
    tests = Path(__file__).parents[1]
    recounted = subprocess.run(
        [sys.executable, tests / "cli" / "recount.py", data, *adversarial],
        env=os.environ | {"PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        check=True,
    )
    unseen = ("attack", "source", "target", "eps", "grad_evals", "seconds")  # what no image shows
    counted = list(csv.DictReader(recounted.stdout.splitlines()))
    tables = [
        [[row[name] for name in row if name not in unseen] for row in rows] for rows in (table(done.folder), counted)
    ]
    assert tables[0] == tables[1]
    assert any(0 < cell.counts.rate < 1 for cell in done.cells)


def test_images_are_what_the_attack_alone_makes(data: Path, tmp_path: Path) -> None:
    done = run(declared(data, seed=3, batch_size=COUNT), tmp_path / "out")
    x, y, ids = whorl.load_images(data)
    adv = whorl.attack("ai-mim", eps=12 / 255)(whorl.load_model(SMALL), x, y, seed=3, ids=ids)
    saved = runs.RunFolder(done.folder).load("ai-mim", SMALL, ids)
    assert torch.equal(saved, (adv * 255).round() / 255)
    assert done.distances["ai-mim", SMALL].linf_max <= 12 / 255 + 1e-6


def test_the_table_names_everything(data: Path, tmp_path: Path) -> None:
    done = run(declared(data), tmp_path / "out", command=("whorl", "run", "x.toml"))
    rows = table(done.folder)
    assert {(row["target"], row["defense"]) for row in rows} == {
        (SMALL, "none"),
        (OTHER, "none"),
        (SMALL, "resize-pad"),
    }
    assert {row["grad_evals"] for row in rows} == {str(10 * COUNT)}
    manifest = json.loads((done.folder / "manifest.json").read_text())
    assert manifest["experiment"]["seed"] == 0
    assert manifest["command"] == ["whorl", "run", "x.toml"]
    assert manifest["targets"][OTHER]["model"][0]["weights_sha256"]
    assert manifest["crafted"][f"mim/{SMALL}"]["settings"]["eps"] == pytest.approx(12 / 255)
    assert {"torch", "whorl"} <= manifest["versions"].keys()


def test_a_second_run_does_nothing(data: Path, tmp_path: Path) -> None:
    first = run(declared(data), tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "cells").rglob("*.json")}
    again = run(declared(data), tmp_path / "out")
    assert (first.computed, again.computed) == (12, 0)
    assert again.cells == first.cells
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "cells").rglob("*.json")}


def test_only_what_changed_is_done_again(data: Path, tmp_path: Path) -> None:
    out, chunks = tmp_path / "out", 4
    run(declared(data), out)
    kept = made(out)
    changed = [{"name": "mim", "settings": {"eps": "20/255"}}, {"name": "ai-mim", "settings": {"eps": "12/255"}}]
    second = run(declared(data, attacks=changed), out)
    assert second.computed == chunks
    now = made(out)
    assert all((now[name] == kept[name]) == name.startswith("adv/ai-mim") for name in kept)
    more_poses = declared(data, attacks=changed, poses=[{"angles": [-30, 0, 30], "scales": [0.7, 1]}, {"angles": [45]}])
    assert run(more_poses, out).computed == 3 * chunks
    assert made(out) == now  # asked again, not crafted again
    assert run(declared(data, attacks=changed, targets=[SMALL]), out).computed == 0
    fresh = run(declared(data, attacks=changed), tmp_path / "fresh")
    assert run(declared(data, attacks=changed), out).cells == tuple(
        runs.results.Cell(**(vars(cell) | {"seconds": old.seconds}))
        for cell, old in zip(fresh.cells, run(declared(data, attacks=changed), out).cells, strict=True)
    )


def test_going_back_to_old_settings_makes_the_old_images_again(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(declared(data), out)
    first = made(out)
    run(declared(data, attacks=[{"name": "mim", "settings": {"eps": "20/255"}}]), out)
    assert run(declared(data), out).computed > 0
    assert made(out) == first


def test_a_changed_image_is_noticed(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(declared(data), out)
    path = sorted(data.rglob("*.png"))[0]
    save_image(path, 1 - load_image(path))
    assert run(declared(data), out).computed == 3  # one chunk, in three versions
    adversarial = sorted((out / "adv" / "mim").rglob("*.png"))[0]
    before = made(out)
    adversarial.unlink()
    assert run(declared(data), out).computed == 1
    save_image(adversarial, torch.zeros(3, 18, 18))
    assert run(declared(data, targets=[SMALL, OTHER]), out).computed == 1
    assert made(out) == before


def test_more_images_leave_the_first_ones_alone(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(declared(data, data={"folder": str(data), "limit": 4}), out).computed == 6
    assert run(declared(data), out).computed == 6
    assert table(out) == table(run(declared(data), tmp_path / "whole").folder)


def test_bad_images_stop_the_run_or_are_left_out(data: Path, tmp_path: Path) -> None:
    bad = sorted(data.rglob("*.png"))[:2]  # a whole chunk
    for path in bad:
        path.write_bytes(b"not an image")
    with pytest.raises(WhorlError, match=bad[0].name):
        run(declared(data), tmp_path / "out")
    done = run(declared(data, data={"folder": str(data), "skip_bad": True}), tmp_path / "out")
    assert len(done.ids) == COUNT - 2
    assert [name for name, _ in done.left_out] == [p.relative_to(data).with_suffix("").as_posix() for p in bad]
    assert all(cell.counts.n == COUNT - 2 for cell in done.cells)
    shutil.rmtree(data)
    save_toy_images(data, 1)
    next(data.rglob("*.png")).write_bytes(b"")
    with pytest.raises(WhorlError, match="none of the 1 images can be used"):
        run(declared(data, data={"folder": str(data), "skip_bad": True}), tmp_path / "none")


def test_images_of_two_sizes_need_a_size(data: Path, tmp_path: Path) -> None:
    save_image(sorted(data.rglob("*.png"))[0], torch.rand(3, 20, 24))
    with pytest.raises(WhorlError, match=r"one size .*\(20, 24\).*\(18, 18\)"):
        run(declared(data), tmp_path / "out")
    run(declared(data, data={"folder": str(data), "size": 18}), tmp_path / "out")


def test_attacks_are_compared_image_by_image(data: Path, tmp_path: Path) -> None:
    done = run(declared(data), tmp_path / "out")
    pose = Pose(angle=30)
    counts = {cell.attack: cell.counts for cell in done.cells if (cell.target, cell.pose) == (OTHER, pose)}
    compared = done.compare("mim", "ai-mim", SMALL, OTHER, pose)
    assert compared.b - compared.c == counts["mim"].n_success - counts["ai-mim"].n_success
    assert compared.n == counts["mim"].n_clean_correct
    assert done.compare("mim", "mim", SMALL, OTHER).p_value == 1
    for wrong in (("mim", "pgd", SMALL, OTHER), ("mim", "mim", OTHER, OTHER), ("mim", "mim", SMALL, "x")):
        with pytest.raises(WhorlError):
            done.compare(*wrong)
    with pytest.raises(WhorlError, match="was not evaluated"):
        done.compare("mim", "mim", SMALL, OTHER, Pose(angle=1))


def test_the_folder_of_an_experiment_can_be_evaluated(data: Path, tmp_path: Path) -> None:
    from whorl.runs.adversarial import open_adversarial

    done = run(declared(data), tmp_path / "out")
    folder = open_adversarial(runs.RunFolder(done.folder).images("mim", SMALL))
    assert (folder.attack, folder.source) == ("mim", SMALL)
    assert folder.eps == pytest.approx(12 / 255)
    assert folder.spent("grad_evals", done.ids) == 10 * COUNT
    with pytest.raises(WhorlError, match="belongs to an experiment"):
        runs.craft("mim", named_by_address(), runs.Data(folder=data), done.folder)


def test_black_box_attacks_can_be_declared(data: Path, tmp_path: Path) -> None:
    queries = [{"name": "nes", "settings": {"budget": 60, "samples": 20, "eps": "8/255"}}]
    done = run(declared(data, attacks=queries, targets=[SMALL]), tmp_path / "out")
    chunks = list(Store(done.folder).chunks(done.plan.variants[1].place))
    assert sum(len(chunk.queries) for chunk in chunks) == COUNT
    assert all(0 < count <= 60 for chunk in chunks for count in chunk.queries)
    assert not list(done.folder.rglob("*.queries"))
    queried = runs.query(
        "nes",
        named_by_address(),
        runs.Data(folder=data),
        tmp_path / "query",
        settings={"budget": 60, "samples": 20, "eps": 8 / 255, "rounded": False},
        batch_size=2,
    )
    assert {
        name: count for chunk in chunks for name, count in zip(chunk.ids, chunk.queries, strict=True)
    } == queried.queries


def test_the_images_of_an_experiment_can_be_printed(data: Path, tmp_path: Path) -> None:
    from whorl.physical import collect

    done = run(declared(data), tmp_path / "out")
    groups = collect(done.folder, limit=2)  # finds the clean ones by itself, and that they are the attacked ones
    assert [[one.attack for one in group][1:] for group in groups] == [["mim", "ai-mim"]] * 2
    assert [one.grad_evals for one in groups[0][1:]] == [10, 10]
    path = data / f"{groups[0][0].id}.png"
    save_image(path, 1 - load_image(path))
    with pytest.raises(WhorlError, match=groups[0][0].id):
        collect(done.folder, limit=2)


def test_a_folder_that_holds_something_else(data: Path, tmp_path: Path) -> None:
    runs.craft("mim", named_by_address(), runs.Data(folder=data), tmp_path / "out")
    with pytest.raises(WhorlError, match="made by `whorl attack`"):
        run(declared(data), tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(WhorlError, match="is a file"):
        run(declared(data), tmp_path / "file" / "out")


def test_a_record_that_cannot_be_read_is_named(data: Path, tmp_path: Path) -> None:
    run(declared(data), tmp_path / "out")
    record = sorted((tmp_path / "out" / "cells").rglob("*.json"))[0]
    record.write_text("{")
    with pytest.raises(WhorlError, match=f"{record.name} is damaged"):
        run(declared(data), tmp_path / "out")


def test_a_full_disk_is_told_and_loses_nothing(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whorl.runs import store

    written: list[Path] = []

    def limited(path: Path, content: str) -> None:
        if len(written) > 6:
            raise OSError(28, "No space left on device")
        written.append(path)
        write_file(path, content)

    monkeypatch.setattr(store, "write_file", limited)
    with pytest.raises(WhorlError, match="No space left on device"):
        run(declared(data), tmp_path / "out")
    monkeypatch.undo()
    assert 0 < run(declared(data), tmp_path / "out").computed < 12
    assert table(tmp_path / "out") == table(run(declared(data), tmp_path / "whole").folder)


def test_ctrl_c_keeps_what_was_finished(data: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def impatient(stage: str, done: int, total: int) -> None:
        seen.append(done)
        if stage.startswith("crafting") and done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(runs.Interrupted, match="Run the same command again"):
        run(declared(data), tmp_path / "out", progress=impatient)
    assert not (tmp_path / "out" / "results.csv").exists()
    assert 0 < run(declared(data), tmp_path / "out").computed < 12


def test_fewer_images_keep_what_lies_beyond(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(declared(data), out)
    assert run(declared(data, data={"folder": str(data), "limit": 4}), out).computed == 0
    assert run(declared(data), out).computed == 0
    assert run(declared(data, batch_size=3), out).computed == 6  # other chunks; only the last is the same
    assert run(declared(data), out).computed == 9


def test_a_source_that_recognises_nothing_is_refused_before_anything_is_crafted(tmp_path: Path) -> None:
    data, stages = save_toy_images(tmp_path / "data"), list[str]()
    folders = sorted(data.iterdir())
    for place, folder in enumerate(folders):  # every image into another class's folder
        folder.rename(data / f"was {place}")
    for place, folder in enumerate(folders):
        (data / f"was {(place + 1) % len(folders)}").rename(folder)

    def note(stage: str, done: int, total: int) -> None:
        stages.append(stage)

    out = tmp_path / "out"
    with pytest.raises(WhorlError, match="small recognises none of the clean images"):
        run(declared(data), out, progress=note)
    assert stages[-1] == "checking the sources"
    assert not list(out.glob("adv/**/*.png"))
    assert not list(out.glob("cells/**/*.json"))
    with pytest.raises(WhorlError, match="recognises none of the clean images"):
        craft("mim", small(), Data(folder=data), out / "one", device=torch.device("cpu"))
    assert not list(out.glob("one/adv/**/*.png"))
    assert not list(out.rglob("manifest.json"))  # which would list attacks that never were


def test_one_recognised_image_will_do(tmp_path: Path) -> None:
    data = save_toy_images(tmp_path / "data")
    moved = sorted(data.rglob("*.png"))[:-1]
    for image in moved:
        label = (int(image.parent.name) + 1) % CLASSES
        (data / str(label)).mkdir(exist_ok=True)
        image.rename(data / str(label) / f"moved-{image.name}")
    found = run(declared(data, targets=[SMALL], poses=[{"angles": [0]}]), tmp_path / "out")
    assert {cell.counts.n_clean_correct for cell in found.cells} == {1}
