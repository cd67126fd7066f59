"""The store: chunks whole or not at all, hashes that are checked, one lock, and queries that are never lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.invoking import plain_environment
from runs.declaring import COUNT, SMALL, save_toy_images
from whorl import WhorlError
from whorl.data import save_image
from whorl.evaluation import Distance, Pose
from whorl.files import has_sha256, hashed
from whorl.runs import store as module
from whorl.runs.store import CLEAN, Chunk, Ledger, Store, image_facts

PLACE, PHOTOGRAPHS = Path("nes", "small"), Path("_photographs")
KEY, VARIANT = hashed("key"), hashed("variant")
TESTS = Path(__file__).parents[1]


def chunk(**more: Any) -> Chunk:
    facts: dict[str, Any] = {"images": [["a", 3, "00"], ["b", 4, "11"], ["c", 5, "22"]], "ids": ["a", "c"]}
    facts |= {"bad": [("b", "torn")], "clean": ["aa", "cc"], "grad_evals": [10, 10], "seconds": 3.0}
    return Chunk(**({"key": KEY, "variant": VARIANT} | facts | more))


def images(store: Store) -> dict[Path, Any]:
    return {store.image("nes", "small", name): torch.rand(3, 4, 4) for name in ("a", "c")}


def test_a_chunk_comes_back_as_it_was(tmp_path: Path) -> None:
    store, mine = Store(tmp_path), chunk(answers={"target": {"0 1 0 0": "10"}}, queries=[7, 1], success=[True, False])
    store.put(PLACE, mine, images(store))
    assert store.get(PLACE, KEY) == mine
    assert sorted(mine.files) == ["adv/nes/small/a.png", "adv/nes/small/c.png"]
    assert all(has_sha256(tmp_path / name, digest) for name, digest in mine.files.items())
    assert store.get(PLACE, hashed("another")) is None
    assert store.get(CLEAN, KEY) is None
    assert mine.recognised("target", Pose()) == "10"
    assert mine.missing("target", [Pose(), Pose(angle=5)]) == (Pose(angle=5),)
    store.put(PLACE, chunk(key=hashed("another")))
    store.cell(PLACE, hashed("another")).replace(store.cell(PLACE, KEY))  # a name says nothing: the key inside does
    assert store.get(PLACE, KEY) is None


def test_facts_of_each_image(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(PLACE, chunk())
    expected = {"label": 3, "clean_sha256": "aa", "grad_evals": 10, "seconds": 1.5}
    assert chunk().facts()["a"] == expected
    assert image_facts(tmp_path, {"images": {"x": {"label": 1}}}, PLACE)["c"] == expected | {
        "label": 5,
        "clean_sha256": "cc",
    }
    queried = chunk(queries=[7, 1], success=[True, False], starts=["s", "t"]).facts()["c"]
    assert (queried["queries"], queried["success"], queried["start_sha256"]) == (1, False, "t")


def test_the_first_images_of_a_longer_chunk() -> None:
    whole = chunk(answers={"t": {"p": "10"}}, queries=[7, 1], success=[True, False], reached="01")
    cut = whole.first(2)
    assert (cut.ids, cut.bad, cut.answers) == (["a"], [("b", "torn")], {"t": {"p": "1"}})
    assert (cut.queries, cut.success, cut.reached) == ([7], [True], "0")
    assert (cut.images, cut.seconds) == (whole.images[:2], 1.5)
    assert whole.first(3) == whole


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_files_are_checked(harm: str, tmp_path: Path) -> None:
    store, mine = Store(tmp_path), chunk()
    store.put(PLACE, mine, images(store))
    assert store.sound(mine)
    path = store.image("nes", "small", "c")
    path.unlink()
    if harm == "changed":
        save_image(path, torch.rand(3, 4, 4))
    assert not store.sound(mine)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_cut_leaves_nothing(error: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def torn(path: Path, content: str) -> None:
        raise error

    monkeypatch.setattr(module, "write_file", torn)
    with pytest.raises(error):
        store.put(PLACE, chunk(), images(store))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_chunk_never_speaks_of_files_that_are_being_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.put(PLACE, chunk(), images(store))

    def look(path: Path, x: torch.Tensor) -> None:
        assert not store.cell(PLACE, KEY).exists()
        save_image(path, x)

    monkeypatch.setattr(module, "save_image", look)
    store.put(PLACE, chunk(), images(store))
    assert store.get(PLACE, KEY) is not None


def test_images_that_are_made_anew_are_forgotten(tmp_path: Path) -> None:
    store, other = Store(tmp_path), hashed("other")
    store.put(PLACE, chunk(queries=[7, 1], success=[True, True], work="w"))
    store.put(PLACE, chunk(key=other, ids=["z"]))
    store.forget_overlapping(PLACE, {"a"}, keep=set())
    assert (store.get(PLACE, KEY), store.settle(PLACE, VARIANT)) == (None, 8)  # what they had cost is counted
    assert store.get(PLACE, other) is not None
    store.forget_overlapping(PLACE, {"z"}, keep={other})
    assert store.get(PLACE, other) is not None


def test_queries_of_work_that_was_cut_count_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.settle(PLACE, VARIANT) == 0
    killed = store.begin(PLACE, VARIANT, KEY)
    killed.add(7)
    killed.add(5)
    killed.close()  # and no more: as a killed process leaves it
    assert [store.settle(PLACE, VARIANT) for _ in range(2)] == [12, 12]
    cut = store.begin(PLACE, VARIANT, KEY)
    cut.add(3)
    store.discard(cut)
    assert [Store(tmp_path).settle(PLACE, VARIANT) for _ in range(2)] == [15, 15]
    assert store.settle(PLACE, hashed("another")) == 0


def test_work_that_was_finished_after_all_is_not_discarded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ledger = store.begin(PLACE, VARIANT, KEY)
    ledger.add(8)
    store.put(PLACE, chunk(queries=[7, 1], success=[True, True], work=ledger.work))
    ledger.close()  # killed before the ledger was removed
    assert store.settle(PLACE, VARIANT) == 0
    assert not list(tmp_path.rglob("*.queries"))


def test_work_that_is_cut_when_its_chunk_is_there_is_not_discarded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ledger = store.begin(PLACE, VARIANT, KEY)
    ledger.add(8)
    store.put(PLACE, chunk(queries=[7, 1], success=[True, True], work=ledger.work))
    store.discard(ledger)  # Ctrl-C, just then
    assert store.settle(PLACE, VARIANT) == 0


@pytest.mark.parametrize("text", ["-5", "12", "1_2", "9" * 21, "twenty", "\xff"])
def test_a_count_that_was_edited_is_named(text: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    ledger = store.begin(PLACE, VARIANT, KEY)
    ledger.add(3)
    store.discard(ledger)
    [note] = tmp_path.rglob("*.discarded")
    note.write_text(text, encoding="latin-1")
    with pytest.raises(WhorlError, match=r"\.discarded is damaged, .* Delete it to leave the queries"):
        store.settle(PLACE, VARIANT)


def test_somebody_elses_files_are_no_ledgers(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin(PLACE, VARIANT, KEY).close()
    [folder] = {path.parent for path in tmp_path.rglob("*.queries")}
    for name in ("mine.queries", "..queries", "a.b.queries"):
        (folder / name).write_text("7")
    assert store.settle(PLACE, VARIANT) == 0
    assert (folder / "mine.queries").read_text() == "7"


def test_a_torn_ledger_counts_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ledger = store.begin(PLACE, VARIANT, KEY)
    ledger.close()
    assert isinstance(ledger, Ledger)
    ledger.path.write_text("")
    assert store.settle(PLACE, VARIANT) == 0


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WhorlError, match="is a file"), Store.open(tmp_path / "file" / "run"):
        pass
    with pytest.raises(WhorlError, match="No space left"), Store.open(tmp_path / "run"):
        raise OSError(28, "No space left on device")


def test_what_a_killed_process_left_half_written_goes(tmp_path: Path) -> None:
    part = tmp_path / "adv" / ".a.png.0000.part"
    part.parent.mkdir()
    part.touch()
    with Store.open(tmp_path):
        assert not part.exists()


def test_a_record_comes_back_by_its_key(tmp_path: Path) -> None:
    key, content = hashed({"photo": "one"}), {"captures": [1, 2.5, None], "reason": "É"}
    with Store.open(tmp_path / "run") as store:
        assert store.record(PHOTOGRAPHS, key) is None
        store.put_record(PHOTOGRAPHS, key, content)
    with Store.open(tmp_path / "run") as store:
        assert store.record(PHOTOGRAPHS, key) == content
        assert store.record(PHOTOGRAPHS, hashed({"photo": "two"})) is None
        # Of another key that begins alike, and so has the same file.
        assert store.record(PHOTOGRAPHS, key[:40] + hashed("other")[:24]) is None


@pytest.mark.parametrize("kind", ["chunk", "record"])
@pytest.mark.parametrize("part", ["key", "sha256", "format", "answers", "content", "surplus", "distance"])
def test_a_cell_that_was_edited_is_named(tmp_path: Path, kind: str, part: str) -> None:
    with Store.open(tmp_path) as store:
        if kind == "chunk":
            store.put(PLACE, chunk())
        else:
            store.put_record(PLACE, KEY, [1, 2])
        file = store.cell(PLACE, KEY)
        file.write_text(json.dumps(json.loads(file.read_text()) | {part: "changed"}))
        with pytest.raises(WhorlError) as caught:
            store.get(PLACE, KEY) if kind == "chunk" else store.record(PLACE, KEY)
    assert str(file) in str(caught.value)
    assert "Delete it to have what it speaks of made again" in str(caught.value)


def test_cells_of_another_version_are_left_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put_record(PHOTOGRAPHS, KEY, [1, 2])
        file = store.cell(PHOTOGRAPHS, KEY)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
        assert store.record(PHOTOGRAPHS, KEY) is None
        assert store.get(PHOTOGRAPHS, KEY) is None


def test_cells_from_before_they_carried_a_hash_still_count(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put(PLACE, chunk())
        file = store.cell(PLACE, KEY)
        content = json.loads(file.read_text()) | {"format": 2}
        del content["sha256"]
        file.write_text(json.dumps(content))
        assert store.get(PLACE, KEY) == chunk()
        file.write_text(json.dumps(content | {"ids": 3}))
        with pytest.raises(WhorlError, match="ids is not as it was written"):
            store.get(PLACE, KEY)


def test_a_similarity_that_a_chunk_was_stored_without_is_not_known(tmp_path: Path) -> None:
    """Nor is that of all images with its own; what is known of them stays, and the queries that they cost."""
    now = Distance.of(torch.zeros(1, 3, 16, 16), torch.full((1, 3, 16, 16), 0.5))
    with Store.open(tmp_path) as store:
        store.put(PLACE, chunk(distance=now))
        assert store.get(PLACE, KEY) == chunk(distance=now)
        file = store.cell(PLACE, KEY)
        content = json.loads(file.read_text())
        del content["sha256"], content["distance"]["ssim_sum"], content["distance"]["ssim_min"]
        file.write_text(json.dumps({"sha256": hashed({k: v for k, v in content.items() if k != "format"}), **content}))
        before = store.get(PLACE, KEY)
    assert before is not None
    for distance in (before.distance, before.distance + now, now + before.distance):
        assert distance.ssim_min is None
        assert distance.ssim_mean != distance.ssim_mean  # NaN
    assert (before.distance.linf_max, (before.distance + now).linf_mean) == (0.5, 0.5)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", '"x"', "\x00", "[" * 100_000, '{"format": 3', '{"format": "3"}']
)
def test_a_cell_that_is_no_json_of_ours_says_what_to_do(tmp_path: Path, text: str) -> None:
    with Store.open(tmp_path) as store:
        store.put_record(PHOTOGRAPHS, KEY, [1, 2])
        file = store.cell(PHOTOGRAPHS, KEY)
        file.write_text(text)
        for read in (store.record, store.get):
            with pytest.raises(WhorlError, match=f"{file.name} is damaged, or is not what whorl wrote .*Delete it"):
                read(PHOTOGRAPHS, KEY)


HOLD = """
import sys
from whorl.runs.store import Store
with Store.open(sys.argv[1], ["whorl", "attack", "ai-dim"]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def attack(data: Path, out: Path, *more: str, model: str = SMALL) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "whorl", "attack", "pgd", "--model", model, "--device", "cpu", *more]
    return subprocess.Popen(
        [*command, "--batch-size", "1", "--data", str(data), "--out", str(out)],
        env=plain_environment(PYTHONPATH=str(TESTS), OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def made(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.glob("adv/**/*.png")}


def test_a_second_process_waits_and_says_for_whom(tmp_path: Path) -> None:
    data, out = save_toy_images(tmp_path / "data"), tmp_path / "run"
    environment = plain_environment(PYTHONPATH=str(TESTS))
    hold = [sys.executable, "-c", HOLD, str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(hold, env=environment, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with attack(data, out) as second:
            assert second.stderr is not None
            assert f"waiting for process {holder.pid} on " in (line := second.stderr.readline())
            assert line.endswith(": whorl attack ai-dim\n")
            assert not made(out)
            holder.communicate("go on\n")
            said, error = second.communicate()
    assert second.returncode == 0, error
    assert f"{COUNT} images" in said
    assert len(made(out)) == COUNT
    assert not (out / ".run.holder").exists()
