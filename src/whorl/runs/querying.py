"""Attack targets that answer and nothing more, into a run folder, counting every image they are shown.

It is :func:`whorl.runs.craft` for black-box attacks: the same folder, the same way to go on. Besides, each picture's
queries and success are written down, and so are queries that went into work which was cut short.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from whorl.attacks import Attack, AttackInfo, TargetError
from whorl.attacks.contract import Model
from whorl.attacks.starts import FolderStart
from whorl.data import BadImage, Images, save_image
from whorl.defenses import Defended
from whorl.errors import WhorlError
from whorl.models import Classifier, Ensemble
from whorl.models.weights import state_dict_sha256
from whorl.runs.crafting import Interrupted
from whorl.runs.entry import Entry, differences
from whorl.runs.folder import Json, RunFolder, as_json, environment, folder_name, pixels_sha256
from whorl.runs.pictures import Source
from whorl.runs.progress import Report, silent
from whorl.runs.query_meter import Ledger, Meter
from whorl.runs.query_rows import QueryRow, Table7, summarise
from whorl.runs.query_table import default_targets, table7
from whorl.runs.query_trace import write_curve, write_trace
from whorl.runs.setup import device_of

__all__ = ["Queried", "QueryRow", "Table7", "build_query_attack", "default_targets", "query", "table7"]

# On a CPU a larger batch is no faster, and an interruption costs a batch.
_CPU_BATCH, _GPU_BATCH = 4, 64
GIVEN = "given"
"""What an attack that starts from a folder is said to start from."""


@dataclass(kw_only=True)
class Queried:
    """What came of attacking a target by queries.

    Attributes:
        attack: what the pictures are listed under: the attack's name, and its start's if it has one (``nes-ai-dim``).
        target: name of what was asked.
        folder: where the pictures lie.
        ids: all pictures, in order.
        kept: how many of them an earlier run had made.
        queries: by id, images that the target was shown for it.
        success: by id, whether the target gave the wanted answer to one of them.
        discarded_queries: those that went into batches which were cut short and done again, in all runs so far.
        trace: the table of all steps, if it was asked for.
        plot: picture of success against queries, likewise.
        left_out: pictures that could not be used.
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
        """Counts over all pictures; each counts, whatever the target says of the clean one."""
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


def build_query_attack(
    name: str,
    *,
    init: str | Path | None = None,
    surrogate: Model | None = None,
    settings: Mapping[str, Any] | None = None,
    init_settings: Mapping[str, Any] | None = None,
) -> Attack:
    """Make a black-box attack of names.

    Args:
        name: one of ``whorl.attack_names(kind="score")`` or ``"decision"``.
        init: "none" or None, "random", the name of a gradient attack, or a folder of start pictures named by id. A
            string that names no attack is taken for a folder.
        surrogate: what ``init`` is crafted on, and what P-RGF is guided by.
        settings: of the attack.
        init_settings: of the attack that ``init`` names. ``eps`` and ``norm`` are the attack's own unless given here.

    Raises:
        WhorlError: no black-box attack, a start that is neither, or settings that do not fit.

    >>> build_query_attack("nes", init="random", settings={"budget": 500})
    ScoreAttack(budget=500, init='random')
    """
    black_box = (*whorl.attack_names(kind="score"), *whorl.attack_names(kind="decision"))
    if name.lower() not in black_box:
        raise WhorlError(f"expected a black-box attack: {', '.join(black_box)}; got {name!r}.")
    bare = whorl.attack(name, **(settings or {}))
    guide = {} if surrogate is None else {"surrogate": surrogate}
    if init is None or init == "none":
        return bare.with_(**guide)
    if init == "random":
        return bare.with_(init="random", **guide)
    if isinstance(init, str) and init.lower() in whorl.attack_names(kind="gradient"):
        shared = {key: getattr(bare, key) for key in ("eps", "norm") if getattr(bare, key, None) is not None}
        if name.lower() in whorl.attack_names(kind="decision"):
            shared = {}  # there eps is how near to come, not how far to go
        return bare.with_(init=whorl.attack(init, **{**shared, **(init_settings or {})}), **guide)
    folder = Path(init)
    if not folder.is_dir():
        raise WhorlError(
            f"init must be none, random, a gradient attack (`whorl attacks` lists them) or a folder of start pictures; "
            f"got {str(init)!r}."
        )
    return bare.with_(init=FolderStart(folder), **guide)


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
    report: Report = silent,
) -> Queried:
    """Attack pictures by queries and save what comes out as 8-bit PNG files, with a manifest.

    What is checked is rounded to 8 bits first (``rounded=True``), so a picture that is listed as a success is one as
    saved, and the target need not be asked again.

    A batch is done whole or not at all: one that was cut, by Ctrl-C, by force or by a target that failed, is done again
    from scratch when the same is run again, so that pictures and counts end up as if nothing had happened. What it had
    asked by then is added to ``discarded_queries``; not even a killed process loses count.

    Args:
        name: a score-based or decision-based attack.
        target: anything that answers: a classifier, a defended one, an ONNX file's, a function.
        pictures: what to start from.
        out: the run folder.
        init: see :func:`build_query_attack`.
        surrogate: likewise.
        settings: of the attack, such as ``{"budget": 1000}``.
        target_class: class to reach; None to leave the true one.
        seed: of all randomness.
        batch_size: pictures at a time; None for 4 on a CPU and 64 on a GPU.
        trace: whether to write each step's queries, loss and distance, and a plot of success against queries.
        overwrite: whether to replace pictures of the same attack and target that were made with other settings.
        device: where to compute; None for the target's own.
        command: what the user typed, for the manifest.
        report: told of each batch.

    Raises:
        WhorlError: bad input, or a folder that holds the same attack and target with other settings.
        TargetError: the target failed. What was finished is kept; the best pictures of the batch in hand are in
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
    label = _label(name, given)
    asked = target_name(target)
    # The surrogate is a network, and tracing changes no picture: both are told elsewhere or not at all.
    shown = as_json(attack.with_(surrogate=None, trace=False, init=None))
    identity = {
        "attack": label,
        "settings": {**shown, "init": _init_json(given)},
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
    work = _Work(
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
    report(stage, 0, total)
    try:
        for batch in batches:
            done.kept += work.run(batch)
            done.ids += batch.ids
            done.left_out += batch.bad
            report(stage, len(done.ids) + len(done.left_out), total)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"{len(entry.content['images'])} pictures are in {done.folder}. Run the same command again to go on."
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


@dataclass(kw_only=True)
class _Work:
    """One attack on one target, batch by batch."""

    attack: Attack
    label: str
    target: Model
    entry: Entry
    ledger: Ledger
    where: torch.device
    target_class: int | None
    seed: int
    trace: Path | None

    def settle_ledger(self) -> None:
        """Add what an earlier process left behind to the discarded queries, unless its batch was finished after all."""
        left = self.ledger.left_behind()
        if left is not None and left[0] != self.entry.content.get("last_batch"):
            self._discard(left[1])
        else:
            self.ledger.finish()

    def _discard(self, queries: int) -> None:
        self.entry.content["discarded_queries"] += queries
        self.entry.write()
        self.ledger.finish()

    def run(self, batch: Images) -> int:
        """Attack a batch unless all of it is done; returns how many pictures were."""
        x, y, ids = batch
        facts = self._facts(batch)
        missing = [i for i, name in enumerate(ids) if not self._has(name, facts[i])]
        if not missing:
            return len(ids)
        goal: dict[str, Tensor] = (
            {"y": y} if self.target_class is None else {"target": torch.full_like(y, self.target_class)}
        )
        goal = {key: value.to(self.where) for key, value in goal.items()}
        work = secrets.token_hex(8)
        meter = Meter(self.target, on_pass=self.ledger.add)
        self.ledger.begin(work)
        began = time.perf_counter()
        try:
            adv, info = self.attack(meter, x.to(self.where), **goal, seed=self.seed, ids=ids, return_info=True)
        except TargetError as error:
            self._keep_unfinished(error, ids)
            self._discard(self.ledger.count)
            raise
        except BaseException:  # Ctrl-C above all: whatever cuts a batch, its queries were spent
            self._discard(self.ledger.count)
            raise
        seconds = round((time.perf_counter() - began) / len(ids), 4)
        self._save(batch, adv, info, facts, missing, meter, seconds)
        # Written at once: a batch may have taken hours. Only then is the ledger closed, by the name of the batch.
        self.entry.content["last_batch"] = work
        self.entry.write()
        self.ledger.finish()
        return len(ids) - len(missing)

    def _save(
        self,
        batch: Images,
        adv: Tensor,
        info: AttackInfo,
        facts: list[dict[str, str]],
        missing: list[int],
        meter: Meter,
        seconds: float,
    ) -> None:
        queries = info.queries
        assert queries is not None  # noqa: S101 - every black-box attack counts
        spent, won = queries.tolist(), info.success.tolist()
        if sum(spent) != meter.seen:
            raise AssertionError(f"the attack counted {sum(spent)} queries, the target saw {meter.seen} images")
        gradients = [0] * len(spent) if info.grad_evals is None else info.grad_evals.tolist()
        for i in missing:
            save_image(self.entry.picture(batch.ids[i]), adv[i])
            if self.trace is not None and info.trace is not None:
                write_trace(self.trace / f"{batch.ids[i]}.csv", info.trace, i)
        for i in missing:  # listed together, when all are there: a batch is done whole or not at all
            self.entry.add(
                batch.ids[i],
                label=int(batch.y[i]),
                **facts[i],
                queries=spent[i],
                success=won[i],
                grad_evals=gradients[i],
                seconds=seconds,
            )
        again = set(range(len(spent))) - set(missing)
        self.entry.content["discarded_queries"] += sum(spent[i] for i in again)

    def _facts(self, batch: Images) -> list[dict[str, str]]:
        """What each picture was made from: hashes of the clean one and of its start, if that is a file."""
        facts = [{"clean_sha256": pixels_sha256(picture)} for picture in batch.x]
        init = getattr(self.attack, "init", None)
        if isinstance(init, FolderStart):
            starts = init.load(batch.x, batch.ids)
            for fact, start in zip(facts, starts, strict=True):
                fact["start_sha256"] = pixels_sha256(start)
        return facts

    def _has(self, name: str, facts: dict[str, str]) -> bool:
        known = self.entry.content["images"].get(name, {})
        same = all(known.get(key) == value for key, value in facts.items())
        traced = self.trace is None or (self.trace / f"{name}.csv").is_file()
        return same and traced and self.entry.picture(name).is_file()

    def _keep_unfinished(self, error: TargetError, ids: Sequence[str]) -> None:
        if error.adv is None:
            return
        place = self.entry.folder.path / "unfinished" / self.label / folder_name(self.entry.content["source"])
        for name, picture in zip(ids, error.adv, strict=True):
            save_image(place / f"{name}.png", picture)


def target_name(target: Model) -> str:
    """What to call a target: its own name, or its function's."""
    name = getattr(target, "name", None) or getattr(target, "__name__", None)
    return name if isinstance(name, str) else type(target).__name__


def identify(model: Model) -> list[Json]:
    """Say what a model is made of, for a manifest: names, weight hashes and defences."""
    if isinstance(model, Defended):
        shown = {"defense": as_json(model.defense), "samples": model.samples, "seed": model.seed}
        return [*identify(model.model), shown]
    if isinstance(model, Ensemble):
        return [part for member in model.models for part in identify(member)]
    if isinstance(model, Classifier):
        return [{"name": model.name, "weights_sha256": model.weights_sha256 or state_dict_sha256(model.net)}]
    weights = state_dict_sha256(model) if isinstance(model, nn.Module) else None
    return [{"name": target_name(model), "weights_sha256": weights}]


def _label(name: str, init: object) -> str:
    if init is None:
        return name.lower()
    if isinstance(init, str):
        return f"{name.lower()}-{init}"
    if isinstance(init, Attack):
        return f"{name.lower()}-{_preset(init)}"
    return f"{name.lower()}-{GIVEN}"


def _preset(attack: Attack) -> str:
    """The name under which an attack is known; settings that any attack has are left out of the comparison."""
    for known in whorl.attack_names(kind="gradient"):
        like = whorl.attack(known)
        if attack == like.with_(eps=getattr(attack, "eps", None), norm=getattr(attack, "norm", "linf")):
            return known
    return "attack"


def _init_json(init: object) -> Any:
    # Which pictures a folder holds is told by their hashes; where it lies does not matter.
    return GIVEN if isinstance(init, FolderStart) else as_json(init)
