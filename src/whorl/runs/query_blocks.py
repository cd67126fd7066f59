"""The blocks of table 7: a few images at a time meet a target; what came of it is kept in a file that only grows."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whorl.attacks import Attack, TargetError
from whorl.data import Images
from whorl.errors import WhorlError
from whorl.evaluation.outcomes import to_8_bits
from whorl.files import atomic_write
from whorl.runs.query_meter import Ledger, Meter, OutOfTime
from whorl.runs.query_rows import Key


@dataclass
class Blocks:
    """Results image by image, in a file that grows by whole blocks."""

    folder: Path
    identity: dict[str, Any]
    done: dict[Key, dict[str, dict[str, Any]]] = field(default_factory=dict)
    discarded: int = 0
    clean: dict[tuple[str, tuple[str, ...]], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file, self.ledger = self.folder / "images.jsonl", Ledger(self.folder / ".queries")
        lines = self._lines()
        if not lines:
            self._append([self.identity])
            lines = [json.dumps(self.identity)]
        first, *rest = (json.loads(line) for line in lines)
        for record in rest:
            if "discarded_queries" in record:
                self.discarded += record["discarded_queries"]
            elif "attacks" in record:
                first["attacks"].update(record["attacks"])
            else:
                self.done.setdefault((record["attack"], record["start"], record["target"]), {})[record["id"]] = record
        asked = self.identity["attacks"]
        other = [key for key, value in self.identity.items() if key != "attacks" and first.get(key) != value]
        other += [name for name, shown in asked.items() if first["attacks"].get(name, shown) != shown]
        if other:
            raise WhorlError(
                f"{self.folder} holds a table made with other settings: {', '.join(other)}. "
                "Choose another folder, or remove it."
            )
        if asked.keys() - first["attacks"].keys():  # a later call may ask for more
            self._append([{"attacks": asked}])
        left = self.ledger.left_behind()
        if left is not None:
            self._discard(left[1], left[0])

    def _lines(self) -> list[str]:
        """What is in the file, without a last line that was cut when a process was killed."""
        if not self.file.is_file():
            return []
        content = self.file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with atomic_write(self.file) as file:
                file.write(whole)
        return whole.decode().splitlines()

    def _append(self, records: list[dict[str, Any]]) -> None:
        with self.file.open("ab") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records).encode())
            file.flush()

    def _discard(self, queries: int, what: str) -> None:
        if queries:
            self.discarded += queries
            self._append([{"discarded_queries": queries, "block": what}])
        self.ledger.finish()

    def run(self, net: nn.Module, part: Images, attack: Attack, key: Key, *, seed: int, deadline: float | None) -> bool:
        """Attack a block unless it is done; False if time ran out."""
        name, start, target = key
        known = self.done.setdefault(key, {})
        if all(image in known for image in part.ids):
            return True
        if deadline is not None and time.monotonic() > deadline:
            return False
        right = self._recognised(net, target, part)
        chosen = right.nonzero()[:, 0]
        x, y, ids = part.x[chosen], part.y[chosen], [part.ids[i] for i in chosen.tolist()]
        self.ledger.begin(f"{name} {start} {target} {part.ids[0]}")
        meter = Meter(net, on_pass=self.ledger.add, deadline=deadline)
        began = time.perf_counter()
        try:
            adv, info = attack(meter, x, y, seed=seed, ids=ids, return_info=True)
        except TargetError as error:
            self._discard(self.ledger.count, f"{name} {start} {target}")
            if isinstance(error.__cause__, OutOfTime):
                return False
            raise
        except KeyboardInterrupt:
            self._discard(self.ledger.count, f"{name} {start} {target}")
            raise
        queries = info.queries
        assert queries is not None  # noqa: S101 - every attack here counts
        if int(queries.sum()) != meter.seen:
            raise AssertionError(f"{name} counted {int(queries.sum())} queries, its target {meter.seen}")
        with torch.no_grad():
            saved = net(to_8_bits(adv)).argmax(1) != y if len(ids) else y.bool()
        seconds = round((time.perf_counter() - began) / max(1, len(ids)), 4)
        facts = zip(ids, info.success.tolist(), queries.tolist(), saved.tolist(), strict=True)
        found = {
            image: {"counts": True, "success": success, "queries": count, "saved_success": still, "seconds": seconds}
            for image, success, count, still in facts
        }
        labels = {"attack": name, "start": start, "target": target}
        records = [
            {**labels, "id": image, **found.get(image, {"counts": False})} for image in part.ids if image not in known
        ]
        self._append(records)
        known.update({record["id"]: record for record in records})
        self.ledger.finish()
        return True

    @torch.no_grad()
    def _recognised(self, net: nn.Module, target: str, part: Images) -> Tensor:
        """(B,) bool: which clean images the target gets right. Asked once a block, outside any budget."""
        key = (target, tuple(part.ids))
        if key not in self.clean:
            self.clean[key] = torch.cat([net(x).argmax(1) for x in part.x.split(64)]) == part.y
        return self.clean[key]
