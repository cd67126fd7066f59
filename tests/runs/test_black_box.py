"""Black-box attacks into a run folder: exact counts, also when interrupted, killed or let down by the target."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from blackbox import labels_of, related_net
from cli.invoking import plain_environment
from cli.toy_networks import classifier
from conftest import random_images, small_net
from whorl import WhorlError, runs
from whorl.attacks import TargetError
from whorl.data import Images, load_image, save_image
from whorl.models import Ensemble
from whorl.runs.black_box import query
from whorl.runs.single_attack import AttackResult

COUNT, BUDGET = 6, 120
BLACK_BOX = [*whorl.attack_names(kind="score"), *whorl.attack_names(kind="decision")]

HALF: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.5,) * 3}


def images() -> Images:
    x = random_images(COUNT)
    return Images(x, labels_of(small_net(), x), [f"p{i}" for i in range(COUNT)])


class Counted(nn.Module):
    """A target that counts what it sees, and does something else after a while."""

    def __init__(self, after: int | None = None, error: BaseException | None = None) -> None:
        super().__init__()
        self.model, self.seen, self.passes = classifier(small_net(), "small"), 0, 0
        self.name, self.after, self.error = "counted", after, error

    def forward(self, x: Tensor) -> Tensor:
        self.seen, self.passes = self.seen + len(x), self.passes + 1
        if self.error is not None and self.passes == self.after:
            raise self.error
        answer: Tensor = self.model(x)
        return answer


def run(name: str, target: nn.Module, out: Path, *, started: bool = False, **more: Any) -> AttackResult:
    settings: dict[str, Any] = {"budget": BUDGET}
    if name in whorl.attack_names(kind="score"):
        settings |= {"samples": 20, "eps": 4 / 255}
    surrogate = classifier(related_net(small_net(), by=1.0), "surrogate")
    guide = {"init": "ai-dim"} if started else {}
    if started or name == "prgf":
        guide |= {"surrogate": surrogate}  # type: ignore[dict-item]  # a network beside a name
    arguments: dict[str, Any] = {"settings": settings, "batch_size": 2, **guide, **more}
    return query(name, target, runs.Loaded(images()), out, **arguments)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted((folder / "adv").rglob("*.png"))}


def entry(folder: Path) -> Any:
    [content] = json.loads((folder / "manifest.json").read_text())["crafted"].values()
    return content


def facts(folder: Path) -> dict[str, Any]:
    """What the manifest says of each image, but for the time it took."""
    return {
        name: {key: value for key, value in image.items() if key != "seconds"}
        for name, image in entry(folder)["images"].items()
    }


@pytest.mark.parametrize("name", BLACK_BOX)
@pytest.mark.parametrize("started", [False, True])
def test_counts_are_what_the_target_saw(name: str, started: bool, tmp_path: Path) -> None:
    target = Counted()
    done = run(name, target, tmp_path, started=started)
    assert sum(done.queries.values()) == target.seen
    assert max(done.queries.values()) <= BUDGET
    assert done.discarded_queries == 0
    assert done.attack == (f"{name}-ai-dim" if started else name)
    saved = torch.stack([load_image(done.folder / f"{i}.png") for i in done.ids])
    # success is said of the files, and nobody was asked twice for it
    assert list(done.success.values()) == (labels_of(target.model, saved) != images().y).tolist()
    assert entry(tmp_path)["summary"]["n_success"] == sum(done.success.values())
    assert {i: fact["queries"] for i, fact in facts(tmp_path).items()} == done.queries


@pytest.mark.parametrize("name", BLACK_BOX)
@pytest.mark.parametrize("started", [False, True])
def test_an_interrupted_run_ends_like_any_other(name: str, started: bool, tmp_path: Path) -> None:
    whole, first, second = Counted(), Counted(), Counted()
    expected = run(name, whole, tmp_path / "whole", started=started)
    first.after, first.error = max(2, whole.passes // 2), KeyboardInterrupt()
    with pytest.raises(runs.Interrupted, match="Run the same command again to go on"):
        run(name, first, tmp_path / "run", started=started)
    assert len(facts(tmp_path / "run")) in (0, 2, 4)
    done = run(name, second, tmp_path / "run", started=started)
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    assert facts(tmp_path / "run") == facts(tmp_path / "whole")
    assert done.queries == expected.queries
    assert sum(done.queries.values()) + done.discarded_queries == first.seen + second.seen
    assert done.discarded_queries > 0
    assert max(done.queries.values()) <= BUDGET
    # and a third time nothing is asked at all
    idle = Counted()
    again = run(name, idle, tmp_path / "run", started=started)
    assert (idle.seen, again.kept, again.discarded_queries) == (0, COUNT, done.discarded_queries)


KILLED = """
import os, signal, sys
from pathlib import Path
import runs.test_black_box as t

class Kills(t.Counted):
    def forward(self, x):
        with open(sys.argv[2], "ab") as file:
            file.write(b"." * len(x))
        if Path(sys.argv[2]).stat().st_size >= int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

t.run(sys.argv[4], Kills(), Path(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there, a process cannot be killed so")
@pytest.mark.parametrize("name", ["nes", "evolutionary"])
def test_not_even_a_killed_run_loses_count(name: str, tmp_path: Path) -> None:
    whole = Counted()
    expected = run(name, whole, tmp_path / "whole")
    log = tmp_path / "seen"
    environment = plain_environment(PYTHONPATH=str(Path(__file__).parents[1]), OMP_NUM_THREADS="1")
    for share in (0.3, 0.7):  # killed twice
        command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), str(log), str(int(share * whole.seen)), name]
        assert subprocess.run(command, env=environment, check=False).returncode == -9
    target = Counted()
    done = run(name, target, tmp_path / "run")
    assert done.queries == expected.queries
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    assert sum(done.queries.values()) + done.discarded_queries == log.stat().st_size + target.seen


def test_a_target_that_fails_stops_it_with_all_so_far_saved(tmp_path: Path) -> None:
    whole = Counted()
    run("nes", whole, tmp_path / "whole")
    broken = Counted(after=whole.passes - 1, error=ConnectionError("no route to host"))
    with pytest.raises(TargetError, match="raised ConnectionError: no route to host"):
        run("nes", broken, tmp_path / "run")
    assert len(facts(tmp_path / "run")) == COUNT - 2
    left = tmp_path / "run" / "unfinished" / "nes" / "counted"
    assert sorted(path.stem for path in left.iterdir()) == ["p4", "p5"]
    # the unfinished ones are starts for another attempt
    x, y, ids = images()
    part = Images(x[4:], y[4:], ids[4:])
    on = query("nes", Counted(), runs.Loaded(part), tmp_path / "on", init=left, settings={"eps": 4 / 255})
    assert on.attack == "nes-given"
    done = run("nes", Counted(), tmp_path / "run")
    assert facts(tmp_path / "run") == facts(tmp_path / "whole")
    assert done.discarded_queries == broken.seen - sum(list(done.queries.values())[: COUNT - 2])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda s: s * torch.nan, "scores must be finite; got NaN"),
        (lambda s: s[:, :3], "7 classes before and 3 now|labels must lie"),
    ],
)
def test_bad_answers_are_clear_errors(answer: Any, message: str, tmp_path: Path) -> None:
    net, count = classifier(small_net(), "small"), 0

    def odd(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        scores = net(x)
        changed: Tensor = answer(scores) if count > 3 else scores
        return changed

    with pytest.raises(WhorlError, match=message):
        query("nes", odd, runs.Loaded(images()), tmp_path, settings={"budget": 300, "eps": 2 / 255})
    assert entry(tmp_path)["discarded_queries"] > 0


def test_starts_from_a_folder(tmp_path: Path) -> None:
    x, y, ids = images()
    for name, start in zip(ids, whorl.attack("fgsm", eps=4 / 255)(related_net(small_net()), x, y), strict=True):
        save_image(tmp_path / "starts" / f"{name}.png", start)
    done = run("nes", Counted(), tmp_path / "run", init=tmp_path / "starts")
    assert done.attack == "nes-given"
    assert run("nes", Counted(), tmp_path / "run", init=str(tmp_path / "starts")).kept == COUNT
    save_image(tmp_path / "starts" / "p1.png", x[1])  # another start, another image
    target = Counted()
    again = run("nes", target, tmp_path / "run", init=tmp_path / "starts")
    assert again.kept == COUNT - 2  # a batch is done whole
    assert sum(again.queries[i] for i in ("p0", "p1")) == target.seen
    (tmp_path / "starts" / "p2.png").unlink()
    with pytest.raises(WhorlError, match=r"expected a start image .*p2.png; found none"):
        run("nes", Counted(), tmp_path / "run", init=tmp_path / "starts")


def test_images_that_are_made_again_are_counted_again(tmp_path: Path) -> None:
    first, second = Counted(), Counted()
    expected = run("nes", first, tmp_path)
    (expected.folder / "p1.png").unlink()
    done = run("nes", second, tmp_path)
    assert (done.queries, done.kept) == (expected.queries, COUNT - 2)
    assert sum(done.queries.values()) + done.discarded_queries == first.seen + second.seen
    third = Counted()
    traced = run("nes", third, tmp_path, trace=True)  # asked for afterwards: made again, for the steps are gone
    assert (traced.queries, traced.kept) == (expected.queries, 0)
    assert sum(traced.queries.values()) + traced.discarded_queries == first.seen + second.seen + third.seen


@pytest.mark.parametrize("name", ["nes", "boundary"])
def test_the_trace_is_whole(name: str, tmp_path: Path) -> None:
    done = run(name, Counted(), tmp_path, trace=True)
    assert done.trace is not None
    for image in done.ids:
        rows = list(csv.DictReader((done.trace / f"{image}.csv").open()))
        queries = [int(row["queries"]) for row in rows]
        assert queries == sorted(set(queries))
        assert queries[-1] <= done.queries[image]
        distance = (load_image(done.folder / f"{image}.png") - images().x[int(image[1])]).abs().max()
        if name == "nes":
            assert queries[-1] == done.queries[image]
            assert (float(rows[-1]["loss"]) > 0) == done.success[image]
            assert not done.success[image] or float(rows[-1]["distance"]) == pytest.approx(float(distance), abs=1e-6)
        else:
            assert {row["loss"] for row in rows} == {""}
    # asked for afterwards, it is made afterwards
    assert run(name, Counted(), tmp_path, trace=True).kept == COUNT


def test_other_settings_are_refused(tmp_path: Path) -> None:
    run("nes", Counted(), tmp_path)
    with pytest.raises(WhorlError, match="already holds nes/counted, made with another seed"):
        run("nes", Counted(), tmp_path, seed=1)
    assert run("nes", Counted(), tmp_path, seed=1, overwrite=True).kept == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "pgd"}, "expected a black-box attack: nes, .* got 'pgd'"),
        ({"init": "ai-dmi"}, "init must be none, random, a gradient attack .* got 'ai-dmi'"),
        ({"init": "ai-dim"}, "an attack as init needs surrogate="),
        ({"settings": {"budget": 10}}, "budget must pay for one step"),
        ({"settings": {"steps": 3}}, "unknown setting 'steps'"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match=message):
        query(**{"name": "nes", "target": Counted(), "images": runs.Loaded(images()), "out": tmp_path, **arguments})


def test_classes_are_compared_where_names_are_the_same(tmp_path: Path) -> None:
    wider = nn.Sequential(small_net(), nn.Linear(7, 9))
    target, surrogate = classifier(small_net(), "net"), whorl.Classifier.from_module(wider, size=18, **HALF, name="net")
    with pytest.raises(WhorlError, match=r"net has 7 .* and the surrogate net has 9"):
        query("nes", target, images(), tmp_path / "run", init="fgsm", surrogate=surrogate)


def test_members_of_an_ensemble_have_names_of_their_own(tmp_path: Path) -> None:
    twins = Ensemble([classifier(small_net(), "twin"), classifier(small_net(seed=3), "twin")])
    with pytest.raises(WhorlError, match="two networks are called 'twin'"):
        runs.craft("fgsm", twins, images(), tmp_path / "run")
