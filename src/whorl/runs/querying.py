"""Attack targets that answer and nothing more, into a run folder, counting every image they are shown.

It is :func:`whorl.runs.craft` for black-box attacks: the same folder, the same way to go on. Besides, each image's
queries and success are written down, and so are queries that went into work which was cut short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

import whorl
from whorl.attacks.contract import Model
from whorl.data import BadImage
from whorl.models import Classifier, Ensemble
from whorl.progress import Progress, silent
from whorl.runs.crafting import Interrupted
from whorl.runs.entry import Entry, differences
from whorl.runs.folder import RunFolder, as_json, environment, folder_name
from whorl.runs.model_identity import identify, target_name
from whorl.runs.pictures import Source
from whorl.runs.query_attacks import build_query_attack, init_json, label_of
from whorl.runs.query_meter import Ledger
from whorl.runs.query_rows import QueryRow, summarise
from whorl.runs.query_trace import write_curve
from whorl.runs.query_work import Work
from whorl.runs.setup import device_of

# On a CPU a larger batch is no faster, and an interruption costs a batch.
_CPU_BATCH, _GPU_BATCH = 4, 64


@dataclass(kw_only=True)
class Queried:
    """What came of attacking a target by queries.

    Attributes:
        attack: what the images are listed under: the attack's name, and its start's if it has one (``nes-ai-dim``).
        target: name of what was asked.
        folder: where the images lie.
        ids: all images, in order.
        kept: how many of them an earlier run had made.
        queries: by id, images that the target was shown for it.
        success: by id, whether the target gave the wanted answer to one of them.
        discarded_queries: those that went into batches which were cut short and done again, in all runs so far.
        trace: the table of all steps, if it was asked for.
        plot: image of success against queries, likewise.
        left_out: images that could not be used.
    """

    attack: str
    target: str
    folder: Path
    ids: list[str] = field(default_factory=list)
    kept: int = 0
    queries: dict[str, int] = field(default_factory=dict)
    success: dict[str, bool] = field(default_factory=dict)
    discarded_queries: int = 0
    trace: Path | None = None
    plot: Path | None = None
    left_out: list[BadImage] = field(default_factory=list)

    @property
    def row(self) -> QueryRow:
        """Counts over all images; each counts, whatever the target says of the clean one."""
        records = [
            {
                "counts": True,
                "queries": self.queries[name],
                "success": self.success[name],
                "saved_success": self.success[name],  # what was asked about is what was saved
                "seconds": 0.0,
            }
            for name in self.ids
        ]
        return summarise((self.attack, "none", self.target), records)


def query(
    name: str,
    target: Model,
    pictures: Source,
    out: str | Path,
    *,
    init: str | Path | None = None,
    surrogate: Classifier | Ensemble | None = None,
    settings: Mapping[str, Any] | None = None,
    target_class: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    trace: bool = False,
    overwrite: bool = False,
    device: torch.device | None = None,
    command: Sequence[str] = (),
    progress: Progress = silent,
) -> Queried:
    """Attack images by queries and save what comes out as 8-bit PNG files, with a manifest.

    What is checked is rounded to 8 bits first (``rounded=True``), so an image that is listed as a success is one as
    saved, and the target need not be asked again.

    A batch is done whole or not at all: one that was cut, by Ctrl-C, by force or by a target that failed, is done again
    from scratch when the same is run again, so that images and counts end up as if nothing had happened. What it had
    asked by then is added to ``discarded_queries``; not even a killed process loses count.

    Args:
        name: a score-based or decision-based attack.
        target: anything that answers: a classifier, a defended one, an ONNX file's, a function.
        pictures: what to start from.
        out: the run folder.
        init: see :func:`whorl.runs.query_attacks.build_query_attack`.
        surrogate: likewise.
        settings: of the attack, such as ``{"budget": 1000}``.
        target_class: class to reach; None to leave the true one.
        seed: of all randomness.
        batch_size: images at a time; None for 4 on a CPU and 64 on a GPU.
        trace: whether to write each step's queries, loss and distance, and a plot of success against queries.
        overwrite: whether to replace images of the same attack and target that were made with other settings.
        device: where to compute; None for the target's own.
        command: what the user typed, for the manifest.
        progress: called with each batch.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and target with other settings.
        TargetError: the target failed. What was finished is kept; the best images of the batch in hand are in
            ``unfinished/``, where an ``init`` finds them.
        Interrupted: Ctrl-C. What was finished is kept.
    """
    attack = build_query_attack(name, init=init, surrogate=surrogate, settings={"rounded": True, **(settings or {})})
    if trace:
        attack = attack.with_(trace=True)
    where = device or (device_of(target) if isinstance(target, nn.Module) else torch.device("cpu"))
    if batch_size is None:
        batch_size = _GPU_BATCH if where.type == "cuda" else _CPU_BATCH
    given = getattr(attack, "init", None)
    label = label_of(name, given)
    asked = target_name(target)
    # The surrogate is a network, and tracing changes no image: both are told elsewhere or not at all.
    shown = as_json(attack.with_(surrogate=None, trace=False, init=None))
    identity = {
        "attack": label,
        "settings": {**shown, "init": init_json(given)},
        "source": asked,
        "models": identify(target),
        "surrogate": None if surrogate is None else identify(surrogate),
        "target": target_class,
        "seed": seed,
        "whorl_version": whorl.__version__,
    }
    details = {
        "repr": repr(attack.with_(trace=False)),
        "data": pictures.describe(),
        "command": list(command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "batch_size": batch_size,
        "discarded_queries": 0,
        **environment(where),
    }
    total, batches = pictures.count(), pictures.batches(batch_size)
    folder = RunFolder(out)
    earlier = folder.read()["crafted"].get(f"{label}/{asked}", {})
    entry = Entry.open(folder, identity, details, overwrite=overwrite)
    if earlier and not differences(earlier, identity):
        entry.content |= {key: earlier[key] for key in ("discarded_queries", "last_batch") if key in earlier}
    work = Work(
        attack=attack,
        label=label,
        target=target,
        entry=entry,
        ledger=Ledger(folder.path / f".queries-{folder_name(label)}-{folder_name(asked)}"),
        where=where,
        target_class=target_class,
        seed=seed,
        trace=folder.path / "trace" / label / folder_name(asked) if trace else None,
    )
    work.settle_ledger()
    done = Queried(attack=label, target=asked, folder=folder.pictures(label, asked))
    stage = f"{label} on {asked}"
    progress(stage, 0, total)
    try:
        for batch in batches:
            done.kept += work.run(batch)
            done.ids += batch.ids
            done.left_out += batch.bad
            progress(stage, len(done.ids) + len(done.left_out), total)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"{len(entry.content['images'])} images are in {done.folder}. Run the same command again to go on."
        ) from error
    for image in done.ids:
        facts = entry.content["images"][image]
        done.queries[image], done.success[image] = facts["queries"], facts["success"]
    done.discarded_queries = entry.content["discarded_queries"]
    row = done.row
    entry.content["summary"] = {
        "n": row.n,
        "n_success": row.n_success,
        "asr": row.asr,
        "mean_queries": row.mean_queries,
        "mean_queries_all": row.mean_queries_all,
    }
    entry.write()
    if work.trace is not None:
        done.trace = work.trace
        done.plot = write_curve(
            work.trace.with_name(f"{work.trace.name}.png"),
            {f"{label} on {asked}": [(done.queries[i], done.success[i]) for i in done.ids]},
            budget=int(getattr(attack, "budget", 0)),
        )
    return done
