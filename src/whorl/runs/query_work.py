"""The resumable work of a black-box attack: batches into a run folder, with no query lost from the count."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from whorl.attacks import Attack, AttackInfo, TargetError
from whorl.attacks.contract import Model
from whorl.data import Images, StartFolder, save_image
from whorl.runs.entry import Entry
from whorl.runs.folder import folder_name, pixels_sha256
from whorl.runs.query_meter import Ledger, Meter
from whorl.runs.query_trace import write_trace


@dataclass(kw_only=True)
class Work:
    """One attack on one target, batch by batch. A batch is done whole or not at all.

    Attributes:
        attack: the attack.
        label: what its images are listed under.
        target: what is asked.
        entry: the images' entry in the run folder.
        ledger: queries of the batch in hand.
        where: device to compute on.
        target_class: class to reach; None to leave the true one.
        seed: of all randomness.
        trace: folder for each image's steps; None keeps none.
    """

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
        """Attack a batch unless all of it is done; returns how many images were."""
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
        """What each image was made from: hashes of the clean one and of its start, if that is a file."""
        facts = [{"clean_sha256": pixels_sha256(picture)} for picture in batch.x]
        init = getattr(self.attack, "init", None)
        if isinstance(init, StartFolder):
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
