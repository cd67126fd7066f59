"""Keys: everything that can change a chunk's content changes its key, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from conftest import random_images
from runs.declaring import save_toy_images
from whorl import WhorlError
from whorl.data import StartFolder, save_image
from whorl.evaluation import Pose
from whorl.runs.images import Data, HashedImage
from whorl.runs.plan import Plan, Task, Variant, chunk_size, make_tasks
from whorl.runs.store import Chunk, Store

ATTACKED = Variant(attack=whorl.attack("pgd"), label="pgd", source="net", identity={"seed": 0})


@pytest.fixture
def images(tmp_path: Path) -> list[HashedImage]:
    return Data(folder=save_toy_images(tmp_path / "data")).listed()


def keys(variant: Variant, images: list[HashedImage], size: int = 3, **more: Any) -> list[str]:
    return [task.key for task in make_tasks([variant], images, size, **more)]


def test_a_key_changes_with_what_it_depends_on(images: list[HashedImage]) -> None:
    first = keys(ATTACKED, images)
    assert len(set(first)) == 3
    assert keys(ATTACKED, images) == first
    assert not set(keys(replace(ATTACKED, identity={"seed": 1}), images)) & set(first)
    assert not set(keys(ATTACKED, images, read=224)) & set(first)
    assert keys(replace(ATTACKED, targets={"net": (Pose(),)}, weight=0), images) == first
    changed = [replace(images[0], sha256="0"), *images[1:]]
    assert [a == b for a, b in zip(keys(ATTACKED, changed), first, strict=True)] == [False, True, True]
    assert keys(ATTACKED, images, size=6)[1:] == first[2:]


def test_a_key_changes_with_the_images_that_an_attack_starts_from(images: list[HashedImage], tmp_path: Path) -> None:
    for image, start in zip(images, random_images(len(images)), strict=True):
        save_image(tmp_path / "starts" / f"{image.entry.id}.png", start)
    begun = replace(ATTACKED, attack=whorl.attack("nes", init=StartFolder(tmp_path / "starts")))
    first = keys(begun, images)
    save_image(tmp_path / "starts" / f"{images[0].entry.id}.png", torch.zeros(3, 18, 18))
    assert [a == b for a, b in zip(keys(begun, images), first, strict=True)] == [False, True, True]


def test_variants_may_have_limits_of_their_own(images: list[HashedImage]) -> None:
    clean, few = Variant(identity={}), replace(ATTACKED, limit=4)
    tasks = make_tasks([clean, few], images, 3)
    assert [(len(task.images), task.variant is few) for task in tasks] == [
        *((3, False), (3, True)),
        *((3, False), (1, True)),
        (1, False),
    ]
    assert tasks[1].clean_key == tasks[0].key


def test_a_longer_chunk_serves_one_that_a_limit_cut(images: list[HashedImage], tmp_path: Path) -> None:
    store, variant = Store(tmp_path / "run"), replace(ATTACKED, targets={"net": (Pose(),)})

    def plan(count: int, **more: Any) -> Plan:
        tasks = make_tasks([variant], images[:count], 4, **more)
        return Plan(store=store, variants=(variant,), targets={"net": "its identity"}, tasks=tasks)

    def put(one: Plan, task: Task) -> None:
        content, names = [image.content for image in task.images], [image.entry.id for image in task.images]
        answers = {one.target_keys["net"]: {"0 1 0 0": "1" * len(names)}}
        store.put(variant.place, Chunk(key=task.key, variant=variant.key, images=content, ids=names, answers=answers))

    whole = plan(7)
    for task in whole.tasks:
        put(whole, task)
    assert whole.left() == []
    assert plan(6, cut=True).left() == []
    found = plan(6, cut=True).chunk(plan(6).tasks[1])
    assert found is None  # the cut is what makes it serve
    served = plan(6, cut=True)
    chunk = served.chunk(served.tasks[1])
    assert chunk is not None
    assert (chunk.ids, chunk.recognised(served.target_keys["net"], Pose())) == (
        [image.entry.id for image in images[4:6]],
        "11",
    )
    assert [len(task.images) for task in plan(6).left()] == [2]
    assert [len(task.images) for task in plan(3, cut=True).left()] == []


def test_a_longer_chunk_that_was_read_or_started_otherwise_does_not_serve(
    images: list[HashedImage], tmp_path: Path
) -> None:
    for image, start in zip(images, random_images(len(images)), strict=True):
        save_image(tmp_path / "starts" / f"{image.entry.id}.png", start)
    store = Store(tmp_path / "run")
    begun = replace(ATTACKED, attack=whorl.attack("nes", init=StartFolder(tmp_path / "starts")))

    def plan(read: Any, count: int) -> Plan:
        tasks = make_tasks([begun], images[:count], 4, read=read, cut=True)
        return Plan(store=store, variants=(begun,), tasks=tasks)

    (task,) = plan(32, 4).tasks
    content, names = [image.content for image in task.images], [image.entry.id for image in task.images]
    store.put(begun.place, Chunk(key=task.key, variant=begun.key, images=content, ids=names))
    assert plan(32, 3).left() == []
    assert len(plan(24, 3).left()) == len(plan(None, 4).left()) == 1
    start = tmp_path / "starts" / f"{names[3]}.png"  # of an image that the shorter chunk is without
    start.unlink()
    assert len(plan(32, 3).left()) == 1
    for count in (3, 4):
        save_image(start, torch.zeros(3, 18, 18))
        assert len(plan(32, count).left()) == 1


def test_images_at_a_time() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert (chunk_size(cpu), chunk_size(cpu, cpu=4), chunk_size(gpu), chunk_size(gpu, 7)) == (8, 4, 64, 7)
    with pytest.raises(WhorlError, match="batch_size must be a whole number >= 1; got 0"):
        make_tasks([ATTACKED], [], 0)
