"""Table 5: recognition of pictures that were printed and photographed, with a simulated printer and camera."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whorl.evaluation import SuccessRate
from whorl.paper.casting import Cast, Profile, cast
from whorl.paper.compared import Block, Compared, Line, Value
from whorl.paper.declaring import chosen_rows, quicker
from whorl.paper.item import Item
from whorl.paper.verdicts import MARKS, Ordering, difference, judge
from whorl.runs.crafting import craft
from whorl.runs.declaration import AttackSpec
from whorl.runs.pictures import Pictures
from whorl.runs.progress import Report, silent
from whorl.runs.setup import find_device, load_source
from whorl.runs.targets import load_targets

if TYPE_CHECKING:
    from whorl.physical.sheet import Print
    from whorl.physical.table5 import Table5


def reproduce_photographs(
    item: Item,
    out: Path,
    profile: Profile,
    *,
    data: str | Path | None = None,
    limit: int | None = None,
    size: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    attacks: Sequence[str] = (),
    without: Sequence[str] = (),
    quick: bool = False,
    device: str = "auto",
    workers: int | None = None,
    command: Sequence[str] = (),
    report: Report = silent,
) -> Compared:
    """Craft table 5's pictures, print and photograph them in effect, and put recognition beside what the paper printed.

    Args:
        item: table 5.
        out: run folder of its pictures; crafting goes on where an earlier run stopped.
        profile: who stands for the paper's networks.
        data: folder of labelled pictures, or a CSV list; the bundled samples if None.
        limit: take only the first so many.
        size: side in pixels to resize to; the profile's if None.
        seed: of all randomness.
        batch_size: pictures at a time.
        attacks: rows to run; all if empty.
        without: rows to leave out.
        quick: whether EOT takes 100 gradients a picture instead of 2,500.
        device: "auto", "cpu", "cuda" or "cuda:1".
        workers: processes that photograph; one if None.
        command: what the user typed, for the manifest.
        report: told of each batch and of each page.
    """
    from whorl.physical import Layout, arrange, collect, table5

    who, where = cast(item, profile), find_device(device)
    [(_, source)] = who.sources
    specs = [quicker(spec) if quick else spec for spec in chosen_rows(item, attacks, without)]
    folder = None if data is None else Path(data)
    pictures = Pictures(folder=folder, limit=limit, size=size or profile.size)
    # An address, such as that of a file, may hold a "+" of its own.
    model = load_source([source] if ":" in source else source.split("+"), where)
    common: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "command": command, "report": report}
    for spec in specs:
        # A folder for each row: two rows may share an attack's name.
        craft(spec.name, model, pictures, out / spec.title, settings=spec.settings, **common)
    groups = [collect(out / spec.title, clean=folder, limit=limit) for spec in specs]
    sheet = arrange([_versions(rows, specs) for rows in zip(*groups, strict=True)], Layout())
    names = tuple(dict.fromkeys(name for _, name in who.targets))
    targets = load_targets(names, device=where, seed=seed)
    done = table5(sheet, targets, device=where, seed=seed, workers=workers or 1, report=report)
    return compare_photographs(item, done, [spec.title for spec in specs], who, profile.name)


def compare_photographs(item: Item, done: Table5, rows: Sequence[str], who: Cast, profile: str) -> Compared:
    """Put recognition accuracy beside the paper's: lower is better for an attack."""
    from whorl.physical.sheet import CLEAN
    from whorl.physical.table5 import SETTINGS, SIMULATED

    [(part, source)] = who.sources
    versions = {row: f"{row} on {source}" for row in rows}
    orderings = tuple(_orderings(item, done, versions, who))
    marks: dict[tuple[str, str], str] = {}
    for one in orderings:
        marks[one.first, one.where] = marks.get((one.first, one.where), "") + MARKS[one.verdict]
    printed = item.printed[part.role]
    blocks = []
    for target_part, target in who.targets:

        def value(row: str, place: int, target: str = target) -> Value:
            setting = SETTINGS[place]
            counts = done.counts(setting, versions.get(row, row), target)
            return Value(
                ours=100 * counts.accuracy,
                printed=printed[row][place][0] if row in printed else None,
                interval=_accuracy_interval(counts),
                n=counts.n,
                marks=marks.get((row, f"{item.poses[place].label}, {target}"), ""),
            )

        blocks.append(
            Block(
                title=f"recognition accuracy, %: {part.heading} → {source}, asked of {target_part.heading} → {target}",
                source=source,
                targets=(target,) * len(SETTINGS),
                columns=tuple(pose.label for pose in item.poses),
                lines=tuple(
                    Line(attack=row, values=tuple(value(row, place) for place in range(len(SETTINGS))))
                    for row in (CLEAN, *rows)
                ),
            )
        )
    found = min(done.identified(setting) for setting in SETTINGS)
    missing = [row for row in item.rows if row not in rows]
    notes = [SIMULATED, *who.notes, f"Of the prints, {found:.1%} or more were identified in each setting."]
    notes += ["Rows are held against each other by accuracy, lower being better: +1 is a point lower."]
    notes += [f"Not run: {', '.join(missing)}."] if missing else []
    return Compared(
        item=item,
        profile=profile,
        pictures=done.counts(SETTINGS[0], CLEAN, who.targets[0][1]).n,
        players=tuple(who.lines()),
        blocks=tuple(blocks),
        orderings=orderings,
        costs=(),
        notes=tuple(notes),
    )


def _versions(rows: Sequence[Sequence[Print]], specs: Sequence[AttackSpec]) -> list[Print]:
    """One clean picture, and each row's version of it under the row's name."""
    attacked = [replace(group[1], attack=spec.title) for group, spec in zip(rows, specs, strict=True)]
    return [rows[0][0], *attacked]


def _orderings(item: Item, done: Table5, versions: dict[str, str], who: Cast) -> Iterator[Ordering]:
    from whorl.physical.table5 import SETTINGS

    printed = item.printed[who.sources[0][0].role]
    for _, target in who.targets:
        for first, second in item.orderings:
            if first not in versions or second not in versions:
                continue
            for place, setting in enumerate(SETTINGS):
                counts = [done.counts(setting, versions[row], target) for row in (first, second)]
                comparison = done.compared(setting, versions[first], versions[second], target)
                said = [printed[row][place][0] if row in printed else None for row in (first, second)]
                gap = difference(said[1], said[0])
                yield Ordering(
                    first=first,
                    second=second,
                    where=f"{item.poses[place].label}, {target}",
                    ours=difference(100 * counts[1].accuracy, 100 * counts[0].accuracy),
                    printed=gap,
                    comparison=comparison if comparison.n else None,
                    verdict=judge(gap, comparison),
                )


def _accuracy_interval(counts: SuccessRate) -> tuple[float, float] | None:
    """Wilson's interval of the accuracy, in percent: that of a rate whose trials are all pictures."""
    if not counts.n:
        return None
    low, high = SuccessRate(counts.n, counts.n, counts.n_adversarial_correct).interval()
    return 100 * low, 100 * high
