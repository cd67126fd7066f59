"""Table 7 of the paper: what a transfer attack as a start saves score-based attacks, target by target.

What is counted. An image counts for a target if the target, defence and all, classifies the clean image correctly;
that is asked beforehand, outside the budget. Success: within the budget the target was shown an image inside the ball
that it answered wrongly. Every image that a target is shown during an attack is a query, the check of the start
included, so a start that succeeds by itself costs one.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import whorl
from whorl.artifacts import atomic_write
from whorl.attacks import Attack, TargetError
from whorl.attacks.score.noise import NoiseSearch
from whorl.attacks.starts import FolderStart
from whorl.data import Images
from whorl.defenses import load_defense
from whorl.errors import WhorlError
from whorl.evaluation.grid import to_8_bits
from whorl.models import Classifier, Ensemble, load_model, model_names
from whorl.runs.crafting import craft
from whorl.runs.folder import environment, folder_name
from whorl.runs.pictures import Loaded
from whorl.runs.progress import Report, silent
from whorl.runs.query_meter import Ledger, Meter, OutOfTime
from whorl.runs.targets import split_target

ATTACKS = ("nes", "spsa", "nattack")
STARTS = ("none", "pgd", "ti-dim", "ai-dim")
SURROGATES = ("resnet18", "mobilenet_v2", "efficientnet_lite1")
DEFENDED = tuple(f"efficientnet_lite0+{name}" for name in ("jpeg", "bitdepth", "resize-pad", "randmix"))
NOISE = "noise"
"""A row of its own, beside the attacks: sign noise at the ball's corners. It has no start."""


@dataclass(frozen=True, kw_only=True)
class QueryRow:
    """One attack from one start on one target.

    Attributes:
        attack: its name.
        start: what it started from, or "none".
        target: name of the target, defence included.
        n_images: images that were looked at.
        n: those of them that count: the target classifies the clean image correctly.
        n_success: those of the counted that the attack brought to a wrong answer within the budget.
        asr: n_success / n; None where nothing counts.
        mean_queries: over the successes, as in the paper; None where there are none.
        mean_queries_all: over all that count, failures at what they spent.
        median_queries_all: likewise.
        n_start_success: successes that cost one query, because the start was enough.
        n_saved_success: images answered wrongly still after rounding to 8 bits (asked afterwards, outside the budget).
        queries: all of them together.
        seconds: time spent.
    """

    attack: str
    start: str
    target: str
    n_images: int
    n: int
    n_success: int
    asr: float | None
    mean_queries: float | None
    mean_queries_all: float | None
    median_queries_all: float | None
    n_start_success: int
    n_saved_success: int
    queries: int
    seconds: float

    @property
    def label(self) -> str:
        """As the paper writes it: ``nes``, ``nes-ai-dim``."""
        return self.attack if self.start == "none" else f"{self.attack}-{self.start}"


@dataclass(frozen=True, kw_only=True)
class Table7:
    """The whole table.

    Attributes:
        rows: one for each attack, start and target that has any result yet.
        findings: for each attack and target with results for every start, on the images that all of them share: mean
            queries by start, which start needs fewest, and what it saves against no start.
        complete: whether every image was attacked everywhere; False if time ran out.
        discarded_queries: queries that went into work which was cut short and is not in the rows.
        folder: where all this lies: ``table7.csv``, ``table7.json``, and ``images.jsonl`` with one line an image.
    """

    rows: list[QueryRow]
    findings: list[dict[str, Any]]
    complete: bool
    discarded_queries: int
    folder: Path


def default_targets() -> tuple[str, ...]:
    """EfficientNet-Lite0 behind each input defence, and every adversarially trained model that there is."""
    trained = tuple(name for name in model_names() if name.endswith((".ens-at", ".alp")))
    return (*trained, *DEFENDED)


def table7(
    images: Images,
    out: str | Path,
    *,
    attacks: Sequence[str] = ATTACKS,
    starts: Sequence[str] = STARTS,
    start_settings: Mapping[str, Mapping[str, Any]] | None = None,
    targets: Sequence[str] | Mapping[str, nn.Module] | None = None,
    surrogates: Sequence[str] | Classifier | Ensemble = SURROGATES,
    eps: float = 16 / 255,
    budget: int = 10_000,
    seed: int = 0,
    block: int = 25,
    limits: Mapping[str, int] | None = None,
    device: str | torch.device = "cpu",
    time_limit: float | None = None,
    report: Report = silent,
) -> Table7:
    """Run table 7, going on where an earlier call with the same settings stopped.

    Images are worked through in blocks; each block meets every target, attack and start before the next one begins.
    So whenever it ends, by the limit, by Ctrl-C or by force, what is there is a table over fewer images. A block that
    was cut is done again from scratch, and its queries are reported as discarded.

    Args:
        images: (N, 3, H, W) pictures in [0, 1], labels, and ids.
        out: folder for results, and for the starts as 8-bit pictures (``starts/``).
        attacks: names of score-based attacks, and "noise" for the baseline, which runs without a start.
        starts: "none", or names of gradient attacks, crafted on the surrogates with the same ``eps``.
        start_settings: by start, settings of its attack other than ``eps``; its defaults where none are given.
        targets: names such as ``efficientnet_lite0+jpeg``, or networks by name; None is :func:`default_targets`.
        surrogates: names of the ensemble's members (mean logits), or a loaded one.
        eps: L∞ radius of starts and attacks.
        budget: most queries for each image.
        seed: of all randomness, the defences' included.
        block: images that are attacked together.
        limits: by target, the most images to use; for targets that are dear to ask.
        device: where to load networks given by name, and to compute.
        time_limit: seconds after which to stop; None is no limit.
        report: told of each attack that is done.

    Returns:
        Table7, which is also written to ``out`` whenever a block is done.

    Raises:
        WhorlError: an unknown name, settings that differ from those of what ``out`` already holds, or a target that
            fails (what was finished is kept).
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    folder, where = Path(out), torch.device(device)
    named = default_targets() if targets is None else targets
    nets = dict(named) if isinstance(named, Mapping) else {name: load_target(name, where, seed) for name in named}
    cells = _cells(attacks, starts)
    work = _Work(
        folder=folder,
        identity={
            "eps": eps,
            "budget": budget,
            "seed": seed,
            "block": block,
            "size": list(images.x.shape[-2:]),
            "attacks": {name: repr(_attack(name, eps=eps, budget=budget)) for name, _ in cells},
            "whorl_version": whorl.__version__,
        },
    )
    chosen = {start: {**(start_settings or {}).get(start, {}), "eps": eps} for start in starts if start != "none"}
    folders = _craft_starts(images, folder / "starts", chosen, surrogates, where, seed=seed, report=report)
    stopped = False
    jobs = [
        (begin, target, name, start)
        for begin in range(0, len(images.ids), block)
        for target in nets
        for name, start in cells
        if begin < (limits or {}).get(target, len(images.ids))
    ]
    try:
        for done, (begin, target, name, start) in enumerate(jobs):
            report("table 7", done, len(jobs))
            end = min(begin + block, (limits or {}).get(target, len(images.ids)))
            part = Images(images.x[begin:end].to(where), images.y[begin:end].to(where), images.ids[begin:end])
            attack = _attack(name, eps=eps, budget=budget)
            if start != "none":
                attack = attack.with_(init=FolderStart(folders[start]))
            if not work.run(nets[target], part, attack, (name, start, target), seed=seed, deadline=deadline):
                stopped = True
                break
        else:
            report("table 7", len(jobs), len(jobs))
    finally:
        table = work.table(cells, list(nets), complete=not stopped)
        work.write(table, environment(where))
    return table


def load_target(name: str, device: torch.device, seed: int = 0) -> nn.Module:
    """Load a network by a name such as ``efficientnet_lite0+jpeg``, its defences before it."""
    model, layers = split_target(name)
    net: nn.Module = load_model(model, device=device)
    for layer in layers:
        net = load_defense(layer, net, seed=seed)
    return net


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


def _craft_starts(
    images: Images,
    out: Path,
    starts: Mapping[str, Mapping[str, Any]],
    surrogates: Sequence[str] | Classifier | Ensemble,
    device: torch.device,
    *,
    seed: int,
    report: Report,
) -> dict[str, Path]:
    """Craft every start, with its settings, on the surrogates, as 8-bit pictures: folders by start."""
    if not starts:
        return {}
    ensemble = (
        surrogates
        if isinstance(surrogates, Classifier | Ensemble)
        else Ensemble([load_model(name, device=device) for name in surrogates])
    )
    for start, settings in starts.items():
        craft(start, ensemble, Loaded(images), out, settings=settings, seed=seed, report=report)
    return {start: out / "adv" / start / folder_name(ensemble.name) for start in starts}


Key = tuple[str, str, str]
"""Attack, start, target."""


@dataclass
class _Work:
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

    def table(self, cells: Sequence[tuple[str, str]], targets: Sequence[str], *, complete: bool) -> Table7:
        """Count what is there."""
        keys = [(name, start, target) for target in targets for name, start in cells]
        rows = [summarise(key, self.done[key].values()) for key in keys if self.done.get(key)]
        findings = [
            finding
            for target in targets
            for name in dict.fromkeys(name for name, _ in cells)
            if (finding := self._compare(name, [start for n, start in cells if n == name], target))
        ]
        return Table7(
            rows=rows, findings=findings, complete=complete, discarded_queries=self.discarded, folder=self.folder
        )

    def _compare(self, name: str, starts: Sequence[str], target: str) -> dict[str, Any] | None:
        by_start = {start: self.done.get((name, start, target), {}) for start in starts}
        shared = set.intersection(*(set(found) for found in by_start.values())) if by_start else set()
        if len(by_start) < 2 or not shared:
            return None
        rows = {
            start: summarise((name, start, target), [record for image, record in found.items() if image in shared])
            for start, found in by_start.items()
        }
        finding: dict[str, Any] = {"attack": name, "target": target, "n": next(iter(rows.values())).n}
        for measure in ("mean_queries", "mean_queries_all"):
            means = {start: getattr(row, measure) for start, row in rows.items()}
            known = {start: mean for start, mean in means.items() if mean is not None}
            finding[measure] = means
            finding[f"fewest_{measure}"] = min(known, key=lambda start: known[start]) if known else None
            if means.get("none"):
                savings = {start: 1 - mean / means["none"] for start, mean in known.items() if start != "none"}
                finding[f"saving_{measure}"] = {start: round(saving, 4) for start, saving in savings.items()}
        return finding

    def write(self, table: Table7, about: dict[str, Any]) -> None:
        """Write the table as CSV and JSON, whole or not at all."""
        text = io.StringIO()
        fields = list(QueryRow.__dataclass_fields__)
        writer = csv.DictWriter(text, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in table.rows)
        with atomic_write(self.folder / "table7.csv") as file:
            file.write(text.getvalue().encode())
        content = {
            "settings": self.identity,
            **about,
            "complete": table.complete,
            "discarded_queries": table.discarded_queries,
            "rows": [asdict(row) for row in table.rows],
            "findings": table.findings,
        }
        with atomic_write(self.folder / "table7.json") as file:
            file.write(json.dumps(content, indent=1).encode() + b"\n")


def summarise(key: Key, records: Any) -> QueryRow:
    """Make a row of the records of its images."""
    looked = list(records)
    counted = [record for record in looked if record["counts"]]
    spent = torch.tensor([record["queries"] for record in counted], dtype=torch.float64)
    won = torch.tensor([record["success"] for record in counted], dtype=torch.bool)
    name, start, target = key
    return QueryRow(
        attack=name,
        start=start,
        target=target,
        n_images=len(looked),
        n=len(counted),
        n_success=int(won.sum()),
        asr=float(won.double().mean()) if len(counted) else None,
        mean_queries=float(spent[won].mean()) if bool(won.any()) else None,
        mean_queries_all=float(spent.mean()) if len(counted) else None,
        median_queries_all=float(spent.quantile(0.5)) if len(counted) else None,
        n_start_success=int((won & (spent == 1)).sum()),
        n_saved_success=sum(record["saved_success"] for record in counted),
        queries=int(spent.sum()),
        seconds=round(sum(record["seconds"] for record in counted), 3),
    )
