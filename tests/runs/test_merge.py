"""Shards of a run: together they are the run, byte for byte; what does not fit together is named."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.invoking import invoke
from runs.declaring import COUNT, SMALL, declared, made, save_toy_images, table
from whorl import WhorlError, runs
from whorl.report import report_experiment
from whorl.runs.shard import Shard

COMMAND = ("whorl", "run", "small.toml")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return save_toy_images(tmp_path / "data")


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still, so that two runs have nothing to differ in."""

    class Still(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Still:
            return cls(2026, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr("whorl.runs.experiment.datetime", Still)


def run(declaration: runs.Declaration, out: Path, number: int, count: int, **more: Any) -> runs.Done:
    return runs.run(declaration, out, device="cpu", shard=Shard(count=count, number=number), command=COMMAND, **more)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a run folder but locks and logs, byte for byte."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith((".", "logs/"))}


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("count", [2, 3])
def test_shards_merged_are_one_run_byte_for_byte(data: Path, tmp_path: Path, count: int) -> None:
    (data / "0" / "broken.png").parent.mkdir(exist_ok=True)
    (data / "0" / "broken.png").write_bytes(b"no image")
    declaration = declared(data, data={"folder": str(data), "skip_bad": True})
    whole = runs.run(declaration, tmp_path / "whole", device="cpu", command=COMMAND)
    report_experiment(whole, device="cpu")
    parts = [run(declaration, tmp_path / f"part{n}", n, count) for n in range(1, count + 1)]
    assert sorted(name for part in parts for name in part.ids) == sorted(whole.ids)
    assert not any(part.results.exists() for part in parts)
    merged = runs.merge([part.folder for part in reversed(parts)], tmp_path / "merged", device="cpu", command=COMMAND)
    report_experiment(merged, device="cpu")
    assert merged.ids == whole.ids
    assert merged.cells == whole.cells
    one, other = content(tmp_path / "whole"), content(tmp_path / "merged")
    one = {name: text.replace(b"/whole", b"/merged") for name, text in one.items()}  # where the folder lies
    assert {"manifest.json", "results.csv", "report.html"} < one.keys()
    assert sum(name.endswith(".png") for name in one) == 2 * COUNT
    assert one == other


def test_a_later_run_finds_nothing_to_do_in_what_was_merged(data: Path, tmp_path: Path) -> None:
    for n in (1, 2):
        run(declared(data), tmp_path / str(n), n, 2)
    runs.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged", device="cpu")
    assert runs.run(declared(data), tmp_path / "merged", device="cpu").computed == 0
    assert runs.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged", device="cpu").computed == 0


PROGRAM = """
import sys
from pathlib import Path
from runs.declaring import declared
from whorl import runs
out, data = map(Path, sys.argv[1:3])
targets = ["python:cli.toy_networks:mortal"]
runs.run(declared(data, targets=targets), out, device="cpu", shard=runs.Shard.parse("1/2"))
"""


def test_a_killed_shard_goes_on(data: Path, tmp_path: Path) -> None:
    declaration = declared(data, targets=["python:cli.toy_networks:mortal"])
    run(declaration, tmp_path / "2", 2, 2)
    whole = runs.run(declaration, tmp_path / "whole", device="cpu")
    order = tmp_path / "order"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
        "WHORL_TEST_KILL": str(order),
    }
    # Killed three times, each time a little later: the first task after each start is where it dies.
    for _ in range(3):
        order.touch()
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "1"), str(data)]
        killed = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        with pytest.raises(WhorlError, match=r"(shard 1/2 in .*1 lacks \d of its chunks|holds no shard)"):
            runs.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "early", device="cpu")
    run(declaration, tmp_path / "1", 1, 2)
    merged = runs.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged", device="cpu")
    assert made(tmp_path / "merged") == made(tmp_path / "whole")
    assert table(tmp_path / "merged") == table(whole.folder)
    assert merged.ids == whole.ids


@pytest.fixture
def shards(data: Path, tmp_path: Path) -> list[Path]:
    folders = [tmp_path / f"{n}-of-3" for n in (1, 2, 3)]
    for n, folder in enumerate(folders, 1):
        run(declared(data), folder, n, 3)
    return folders


def test_what_does_not_fit_together_is_named(data: Path, shards: list[Path], tmp_path: Path) -> None:
    one, two, three = shards
    out = tmp_path / "out"

    def refused(folders: list[Path], message: str, to: Path = out) -> None:
        with pytest.raises(WhorlError, match=message):
            runs.merge(folders, to, device="cpu")

    refused([], "got none")
    refused([one, three], r"shard 2/3 of the run is missing.*--shard 2/3")
    refused([two], r"shard 1/3, 3/3 of the run is missing")
    refused([one, two, three, one], rf"shard 1/3 is there twice: {one} and {one}")
    refused([one, data], "holds no shard")
    refused(shards, "cannot be the folder to merge into", to=two)
    run(declared(data, seed=4), tmp_path / "seed", 2, 3)
    refused(
        [one, tmp_path / "seed", three],
        rf"shard 2/3 in {tmp_path}/seed was made with another seed and .* than shard 1/3",
    )
    stronger = [{"name": "mim", "settings": {"eps": "20/255"}}, "ai-mim"]
    run(declared(data, attacks=stronger), tmp_path / "eps", 2, 3)
    refused([one, tmp_path / "eps", three], "another attacks and another eps")
    run(declared(data), tmp_path / "half", 1, 2)
    refused([one, tmp_path / "half"], r"must be of one run; got shard 1/3 .* and shard 1/2")
    assert not out.exists()


def test_what_changed_since_is_named(data: Path, shards: list[Path], tmp_path: Path) -> None:
    image = next((shards[1] / "adv").rglob("*.png"))
    whole = image.read_bytes()
    image.write_bytes(whole[:-1] + b"x")
    with pytest.raises(WhorlError, match=rf"shard 2/3 in {shards[1]} lacks 1 of its chunks"):
        runs.merge(shards, tmp_path / "out", device="cpu")
    image.write_bytes(whole)
    assert runs.merge(shards, tmp_path / "out", device="cpu").computed == 0  # it goes on
    manifest = json.loads((shards[2] / "manifest.json").read_text())
    assert manifest["shard"] == "3/3"
    for entry in manifest["crafted"].values():
        entry["torch_version"] = "0.1"
    for folder in shards:
        (folder / "manifest.json").write_text(json.dumps(manifest | {"shard": f"{shards.index(folder) + 1}/3"}))
    with pytest.raises(WhorlError, match="another torch_version than is here"):
        runs.merge(shards, tmp_path / "other", device="cpu")


def test_a_folder_holds_one_shard(data: Path, tmp_path: Path) -> None:
    run(declared(data), tmp_path / "a", 1, 2)
    with pytest.raises(WhorlError, match=r"holds shard 1/2. Choose another folder \(out\) for shard 2/2"):
        run(declared(data), tmp_path / "a", 2, 2)
    runs.run(declared(data), tmp_path / "b", device="cpu")
    with pytest.raises(WhorlError, match="holds a whole run"):
        run(declared(data), tmp_path / "b", 1, 2)
    assert runs.run(declared(data), tmp_path / "a", device="cpu").computed == 6  # the rest of it: a whole run now
    assert "shard" not in json.loads((tmp_path / "a" / "manifest.json").read_text())


def test_more_shards_than_chunks(data: Path, tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="7 images in chunks of 2 make 4 chunks"):
        run(declared(data), tmp_path / "a", 5, 5)


def test_only_its_own_images_are_hashed(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    from whorl.data.sets import EncodedImages

    real = EncodedImages.sha256

    def noted(self: EncodedImages, entry: Any) -> str:
        hashed.append(entry.id)
        return real(self, entry)

    monkeypatch.setattr(EncodedImages, "sha256", noted)
    done = run(declared(data), tmp_path / "a", 1, 2)
    assert sorted(hashed) == sorted(done.ids)


def test_every_image_is_in_one_shard() -> None:
    for count, size in itertools.product((1, 2, 5, 16), (1, 3, 8)):
        every = [Shard(count=count, number=n).takes(size) for n in range(1, count + 1)]
        assert all(sum(takes(place) for takes in every) == 1 for place in range(100))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", "", "1.5/4"])
def test_shards_that_are_none(text: str) -> None:
    with pytest.raises(WhorlError, match="shard"):
        Shard.parse(text)


def test_workers_write_logs(data: Path, tmp_path: Path) -> None:
    run(declared(data), tmp_path / "a", 1, 2)
    [log] = (tmp_path / "a" / "logs").glob(f"*-{os.getpid()}.log")
    lines = log.read_text().splitlines()
    assert len(lines) == 2 * 3  # chunks times variants
    assert "clean: 2 images from" in lines[0]
    assert f"mim/{SMALL}: 2 images from" in lines[1]


def test_the_commands(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(
        f'name = "small"\nsources = ["{SMALL}"]\nattacks = ["fgsm"]\ntargets = ["{SMALL}"]\nbatch_size = 2\n'
        f'poses = [{{angles = [0, 30]}}]\n[data]\nfolder = "data"\n'
    )
    for n in (1, 2):
        result = invoke("run", "small.toml", "--shard", f"{n}/2", "--device", "cpu")
        assert result.exit_code == 0, result.stderr
        assert f"shard {n}/2: {5 - n} images done" in result.stdout
        assert f"shard {n}/2: crafting" in result.stderr
        assert not Path(f"runs/small-{n}-of-2/report.html").exists()
    result = invoke("merge", "runs/small-1-of-2", "--out", "runs/small", "--device", "cpu")
    assert (result.exit_code, "shard 2/2 of the run is missing" in result.stderr) == (2, True)
    result = invoke("merge", "runs/small-1-of-2", "runs/small-2-of-2", "--out", "runs/small", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert Path("runs/small/report.html").is_file()
    assert invoke("run", "small.toml", "--out", "whole", "--no-report", "--device", "cpu").exit_code == 0
    assert table(Path("runs/small")) == table(Path("whole"))
    assert invoke("run", "small.toml", "--shard", "0/2").exit_code == 2
