"""Table 7 of the paper: what a transfer attack as a start saves score-based attacks, target by target.

What is counted. An image counts for a target if the target, defence and all, classifies the clean image correctly;
that is checked beforehand, outside the budget. Success: within the budget the target was shown an image inside the ball
that it answered wrongly. Every image that a target is shown during an attack is a query, the check of the start
included, so a start that succeeds by itself costs one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import nn

import whorl
from whorl.attacks import Attack
from whorl.attacks.blackbox.score.noise import NoiseSearch
from whorl.data import Images, StartFolder
from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.files import hashed, write_file
from whorl.models import Classifier, Ensemble, model_names
from whorl.progress import Progress, silent
from whorl.runs.engines import carry_out
from whorl.runs.folder import Json, as_json, environment, folder_name
from whorl.runs.images import Loaded
from whorl.runs.networks import Networks, identify, load_source
from whorl.runs.plan import Plan, Variant, make_tasks, surroundings
from whorl.runs.query_rows import Facts, Key, Table7, count, write
from whorl.runs.store import Chunk, Store
from whorl.runs.white_box import craft
from whorl.runs.worker import Orders, OutOfTime

ATTACKS = ("nes", "spsa", "nattack")
STARTS = ("none", "pgd", "ti-dim", "ai-dim")
SURROGATES = ("resnet18", "mobilenet_v2", "efficientnet_lite1")
DEFENDED = tuple(f"efficientnet_lite0+{name}" for name in ("jpeg", "bitdepth", "resize-pad", "randmix"))
NOISE = "noise"
"""A row of its own, beside the attacks: sign noise at the ball's corners. It has no start."""


def default_targets() -> tuple[str, ...]:
    """EfficientNet-Lite0 behind each input defence, and every adversarially trained model that there is."""
    trained = tuple(name for name in model_names() if name.endswith((".ens-at", ".alp")))
    return (*trained, *DEFENDED)


class TableOptions(TypedDict, total=False):
    """How table 7 is run, besides what is in it.

    Attributes:
        seed: of all randomness, the defences' included; 0 by default.
        block: images that are attacked together; 25 by default.
        start_settings: by start, settings of its attack other than ``eps``; its defaults where none are given.
        limits: by target, the most images to use; for targets that are dear to query.
        device: where to load networks given by name, and to compute; the CPU by default.
        time_limit: seconds after which to stop; None is no limit.
        progress: called with each attack that is done.
    """

    seed: int
    block: int
    start_settings: Mapping[str, Mapping[str, Any]]
    limits: Mapping[str, int] | None
    device: str | torch.device
    time_limit: float | None
    progress: Progress


# long: because half of it says what the options are; its steps are functions below
def table7(
    images: Images,
    out: str | Path,
    *,
    attacks: Sequence[str] = ATTACKS,
    starts: Sequence[str] = STARTS,
    targets: Sequence[str] | Mapping[str, nn.Module] | None = None,
    surrogates: Sequence[str] | Classifier | Ensemble = SURROGATES,
    eps: float = 16 / 255,
    budget: int = 10_000,
    **options: Unpack[TableOptions],
) -> Table7:
    """Run table 7, going on where an earlier call with the same settings stopped.

    Images are worked through in blocks; each block meets every target, attack and start before the next one begins.
    So whenever it ends, by the limit, by Ctrl-C or by force, what is there is a table over fewer images. A block that
    was cut is done again from scratch, and its queries are reported as discarded.

    Args:
        images: (N, 3, H, W) images in [0, 1], labels, and ids.
        out: folder for results, and for the starts as 8-bit images (``starts/``).
        attacks: names of score-based attacks, and "noise" for the baseline, which runs without a start.
        starts: "none", or names of gradient attacks, crafted on the surrogates with the same ``eps``.
        targets: names such as ``efficientnet_lite0+jpeg``, or networks by name; None is :func:`default_targets`.
        surrogates: names of the ensemble's members (mean logits), or a loaded one.
        eps: L∞ radius of starts and attacks.
        budget: most queries for each image.
        options: seed, block, start_settings, limits, device, time_limit and progress; see :class:`TableOptions`.

    Returns:
        Table7, which is also written to ``out``.

    Raises:
        WhorlError: an unknown name, settings that differ from those of what ``out`` already holds, or a target that
            fails (what was finished is kept).
    """
    seed, limit, block = options.get("seed", 0), options.get("time_limit"), options.get("block", 25)
    deadline = None if limit is None else time.monotonic() + limit
    where, progress = torch.device(options.get("device", "cpu")), options.get("progress", silent)
    named = default_targets() if targets is None else targets
    loader = Networks(where, seed)
    nets = dict(named) if isinstance(named, Mapping) else {name: loader.target(name) for name in named}
    cells = _cells(attacks, starts)
    bare = {name: _attack(name, eps=eps, budget=budget) for name, _ in cells}
    identity: Json = {
        "eps": eps,
        "budget": budget,
        "seed": seed,
        "block": block,
        "size": list(images.x.shape[-2:]),
        "attacks": {name: repr(attack) for name, attack in bare.items()},
        "whorl_version": whorl.__version__,
    }
    with Store.open(out, ["whorl", "paper", "table7"]) as store:
        _claim(store, identity)
        chosen = options.get("start_settings") or {}
        settings = {start: {**chosen.get(start, {}), "eps": eps} for start in starts if start != "none"}
        folders = _craft_starts(
            images, store.path / "starts", settings, surrogates, where, seed=seed, progress=progress
        )
        models = {name: identify(net) for name, net in nets.items()}
        made_by = {"seed": seed, **surroundings(where)}
        started = {
            (name, start): bare[name] if start == "none" else bare[name].with_(init=StartFolder(folders[start]))
            for name, start in cells
        }
        variants = _variants(started, models, options.get("limits") or {}, made_by)
        source = Loaded(images)
        plan = Plan(
            store=store,
            poses=(Pose(),),
            variants=tuple(variants.values()),
            targets=models,
            tasks=make_tasks(tuple(variants.values()), source.listed(), block, read=identity["size"]),
        )
        attacked = {key: variant for key, variant in variants.items() if variant.attack is not None}
        _note(store, identity, attacked)
        orders = Orders(folder=store.path, images=source, seed=seed, target_keys=plan.target_keys, deadline=deadline)
        complete = True
        try:
            carry_out(plan, plan.left(), orders, Networks(where, seed, given=nets), stage="table 7", progress=progress)
        except OutOfTime:
            complete = False
        finally:
            found = {key: _facts(plan, variant) for key, variant in attacked.items()}
            discarded = sum(store.settle(variant.place, variant.key) for variant in attacked.values())
            table = count(found, complete=complete, discarded=discarded, folder=store.path)
            write(table, identity, environment(where))
            _write_lines(store, identity)
    return table


def _cells(attacks: Sequence[str], starts: Sequence[str]) -> list[tuple[str, str]]:
    score = whorl.attack_names(kind="score")
    for name in attacks:
        if name not in (*score, NOISE):
            raise WhorlError(f"table 7 has score-based attacks: {', '.join(score)} or {NOISE}; got {name!r}.")
    if not attacks or not starts:
        raise WhorlError(f"expected an attack and a start at least; got {list(attacks)} and {list(starts)}.")
    for start in starts:
        if start not in ("none", *whorl.attack_names(kind="gradient")):
            raise WhorlError(f"a start is 'none' or a gradient attack such as 'ai-dim'; got {start!r}.")
    return [(name, start) for name in attacks for start in (("none",) if name == NOISE else starts)]


def _attack(name: str, *, eps: float, budget: int) -> Attack:
    return NoiseSearch(eps=eps, budget=budget) if name == NOISE else whorl.attack(name, eps=eps, budget=budget)


def _variants(
    attacks: Mapping[tuple[str, str], Attack], models: Mapping[str, Any], limits: Mapping[str, int], made_by: Json
) -> dict[Key, Variant]:
    """For each target the clean images, which tell which ones count, and then every attack from every start."""
    variants: dict[Key, Variant] = {}
    for target, model in models.items():
        targets, limit = {target: (Pose(),)}, limits.get(target)
        variants["", "", target] = Variant(identity=made_by, targets=targets, limit=limit, weight=0)
        for (name, start), attack in attacks.items():
            bare = attack if start == "none" else attack.with_(init=None)  # which images is told by their hashes
            variants[name, start, target] = Variant(
                attack=attack,
                label=name if start == "none" else f"{name}-{start}",
                source=target,
                identity={"settings": as_json(bare), "start": start, "models": model, **made_by},
                targets=targets,
                limit=limit,
                counting=True,
            )
    return variants


def _claim(store: Store, identity: Json) -> None:
    """Refuse a folder that holds a table of other settings; a later call may have other attacks."""
    first = store.read().get("table7", {}).get("settings")
    if first is None:
        return
    other = [key for key, value in identity.items() if key != "attacks" and first.get(key) != value]
    other += [name for name, shown in identity["attacks"].items() if first["attacks"].get(name, shown) != shown]
    if other:
        raise WhorlError(
            f"{store.path} holds a table made with other settings: {', '.join(other)}. "
            "Choose another folder, or remove it."
        )
    identity["attacks"] = {**first["attacks"], **identity["attacks"]}


def _note(store: Store, identity: Json, variants: Mapping[Key, Variant]) -> None:
    """Put settings, and where the chunks of each attack, start and target lie, into the manifest."""
    names = ("attack", "start", "target")
    cells = {
        hashed(key)[:16]: {**dict(zip(names, key, strict=True)), "cells": variant.place.as_posix()}
        for key, variant in variants.items()
    }

    def change(manifest: Json) -> None:
        table = manifest.setdefault("table7", {"cells": {}})
        table["settings"] = identity
        table["cells"].update(cells)

    store.write(change)


def _facts(plan: Plan, variant: Variant) -> dict[str, Facts]:
    """What is known of each image that a variant was tried on."""
    chunks = (plan.chunk(task) for task in plan.tasks if task.variant is variant)
    return {name: facts for chunk in chunks if chunk for name, facts in _of_chunk(chunk)}


def _of_chunk(chunk: Chunk) -> Iterator[tuple[str, Facts]]:
    each = round(chunk.seconds / max(1, len(chunk.ids)), 4)
    for name, *_ in chunk.images:
        if name not in chunk.ids:
            yield name, {"counts": False}
            continue
        i = chunk.ids.index(name)
        [rows] = chunk.answers.values()  # of the target alone, as it is alone
        [saved] = rows.values()
        outcome = {"success": chunk.success[i], "queries": chunk.queries[i], "saved_success": saved[i] == "0"}
        yield name, {"counts": True, **outcome, "seconds": each}


def _write_lines(store: Store, identity: Json) -> None:
    """Write what is known of each image as ``images.jsonl``, of every call that the folder holds."""
    lines: list[Json] = [identity]
    for cell in store.read()["table7"]["cells"].values():
        key = {name: cell[name] for name in ("attack", "start", "target")}
        for chunk in store.chunks(Path(cell["cells"])):
            lines += [{**key, "id": name, **facts} for name, facts in _of_chunk(chunk)]
    write_file(store.path / "images.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _craft_starts(
    images: Images,
    out: Path,
    starts: Mapping[str, Mapping[str, Any]],
    surrogates: Sequence[str] | Classifier | Ensemble,
    device: torch.device,
    *,
    seed: int,
    progress: Progress,
) -> dict[str, Path]:
    """Craft every start, with its settings, on the surrogates, as 8-bit images: folders by start."""
    if not starts:
        return {}
    ensemble = surrogates if isinstance(surrogates, Classifier | Ensemble) else load_source(surrogates, device)
    for start, settings in starts.items():
        craft(start, ensemble, Loaded(images), out, settings=settings, seed=seed, progress=progress)
    return {start: out / "adv" / start / folder_name(ensemble.name) for start in starts}
