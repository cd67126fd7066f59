"""Table 5: recognition of images that were printed and photographed, with a simulated printer and camera."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whorl.evaluation import wilson
from whorl.models.zoo import find_device
from whorl.paper.cast import Cast, cast, load_profile
from whorl.paper.comparison import Compared, ComparedTable, Value
from whorl.paper.declaration import PaperOptions, not_run, row_of
from whorl.paper.export import heading, report_tables
from whorl.paper.item import Item, PaperNetwork
from whorl.paper.orderings import Ordering, corrected, marks_of
from whorl.progress import Progress, silent
from whorl.report.content import Content
from whorl.report.export import save_figures
from whorl.report.page import write_report
from whorl.report.result_table import in_percent
from whorl.runs.declaration import AttackSpec
from whorl.runs.folder import RunFolder
from whorl.runs.images import Data
from whorl.runs.networks import Target, load_source, load_targets, split_source
from whorl.runs.settings import read_settings
from whorl.runs.white_box import craft

if TYPE_CHECKING:
    from whorl.physical.rehearsal import Table5
    from whorl.physical.sheet import Print


def reproduce_photographs(
    item: Item,
    out: Path,
    options: PaperOptions,
    *,
    page: Path | None = None,
    figures: Path | None = None,
    progress: Progress = silent,
) -> Compared:
    """Craft table 5's images, print and photograph them in effect, and put recognition beside what the paper printed.

    Args:
        item: table 5.
        out: run folder of its images; crafting and photographing go on where an earlier run stopped.
        options: what to run; the workers are processes that photograph, one if None.
        page: HTML file for the report; None for no such file.
        figures: folder for the report's contact sheets as PNG and PDF; None for no such files.
        progress: called with each batch and of each page.
    """
    from whorl.physical import PageLayout, Rehearsal, arrange, collect, table5

    profile, where = load_profile(options.profile), find_device(options.device)
    who = cast(item, profile)
    [(_, source)] = who.sources
    specs = options.rows(item)
    folder = None if options.data is None else Path(options.data)
    images = Data.of(folder=folder, limit=options.limit, size=options.size or profile.size)
    model = load_source(split_source(source), where)
    common: dict[str, Any] = {"seed": options.seed, "batch_size": options.batch_size, "command": options.command}
    for spec in specs:
        # A folder for each row: two rows may share an attack's name.
        settings = read_settings(spec.settings)
        craft(spec.name, model, images, out / spec.title, settings=settings, progress=progress, **common)
    groups = [collect(out / spec.title, clean=folder, limit=options.limit) for spec in specs]
    sheet = arrange([_versions(rows, specs) for rows in zip(*groups, strict=True)], PageLayout())
    targets = load_targets(who.target_names, device=where, seed=options.seed)
    how = Rehearsal(seed=options.seed)
    done = table5(sheet, targets, how, workers=options.workers or 1, folder=out, progress=progress)
    compared = compare_photographs(item, done, [spec.title for spec in specs], who, profile.name)
    compared = replace(compared, kernel=options.kernel)
    if page is not None or figures is not None:
        crafted = {spec.title: RunFolder(out / spec.title).read()["crafted"] for spec in specs}
        content = photographs_content(compared, done, targets, crafted=crafted, command=options.command)
        if page is not None:
            write_report(page, content)
        if figures is not None:
            save_figures(figures, content)
    return compared


def photographs_content(
    compared: Compared,
    done: Table5,
    targets: Sequence[Target],
    *,
    crafted: Mapping[str, Mapping[str, Any]] | None = None,
    command: Sequence[str] = (),
) -> Content:
    """Gather what the report of table 5 shows.

    Args:
        compared: ours beside the paper's.
        done: the simulated photographs.
        targets: the networks that were evaluated.
        crafted: by row, what a manifest says of its images.
        command: what the user typed.
    """
    from whorl.physical.captures import together
    from whorl.physical.report import photographs, provenance
    from whorl.physical.simulation import SIMULATED

    scored = together(list(done.scored.values()))
    attacks = {
        row: {"settings": entry["repr"], "models": entry["models"], "device": entry["device"]}
        for row, entries in (crafted or {}).items()
        for entry in entries.values()
    }
    return Content(
        title=heading(compared),
        about=compared.item.about,
        command=tuple(command),
        paper=report_tables(compared),
        photographs=photographs(scored, targets, title="Simulated photographs of prints", about=[SIMULATED]),
        settings={"cameras": list(done.scored), **vars(scored.settings)},
        provenance={"attacks": attacks, **provenance(scored, targets)},
    )


def compare_photographs(item: Item, done: Table5, rows: Sequence[str], who: Cast, profile: str) -> Compared:
    """Put recognition accuracy beside the paper's: lower is better for an attack.

    Args:
        item: table 5.
        done: the simulated photographs.
        rows: labels of the attacks that were run.
        who: who stands for the paper's networks.
        profile: its name.
    """
    from whorl.physical.rehearsal import SETTINGS
    from whorl.report.gallery import CLEAN

    [(part, source)] = who.sources
    versions = {row: f"{row} on {source}" for row in rows}
    orderings = corrected(_orderings(item, done, versions, who))
    marks, printed = marks_of(orderings), item.printed[part.role]

    def value(row: str, place: int, target: str) -> Value:
        counts = done.counts(SETTINGS[place], versions.get(row, row), target)
        return Value(
            ours=100 * counts.accuracy,
            printed=printed[row_of(row)][place][0] if row_of(row) in printed else None,
            interval=in_percent(wilson(counts.n_adversarial_correct, counts.n)),
            n=counts.n,
            marks=marks.get((row, f"{item.poses[place].label}, {target}"), ""),
        )

    def table(network: PaperNetwork, target: str) -> ComparedTable:
        title = f"recognition accuracy, %: {part.heading} → {source}, evaluated on {network.heading} → {target}"
        columns = [(pose.label, target) for pose in item.poses]
        labels = {row: row for row in (CLEAN, *rows)}
        return ComparedTable.of(
            title, source, columns, labels, lambda row, place: value(row, place, target), ours=item.rows_beside
        )

    return Compared(
        item=item,
        profile=profile,
        images=done.counts(SETTINGS[0], CLEAN, who.targets[0][1]).n,
        players=tuple(who.lines()),
        blocks=tuple(table(*one) for one in who.targets),
        orderings=orderings,
        costs=(),
        notes=tuple(_notes(item, done, rows, who)),
    )


def _notes(item: Item, done: Table5, rows: Sequence[str], who: Cast) -> Iterator[str]:
    from whorl.physical.rehearsal import SETTINGS
    from whorl.physical.simulation import SIMULATED

    yield SIMULATED
    yield from who.notes
    found = min(done.identified(setting) for setting in SETTINGS)
    share = "All prints" if found == 1 else f"At least {found:.1%} of the prints"
    yield f"{share} were identified in each setting."
    yield "Rows are held against each other by accuracy, lower being better: +1 is a point lower."
    yield from not_run(item, rows)


def _versions(rows: Sequence[Sequence[Print]], specs: Sequence[AttackSpec]) -> list[Print]:
    """One clean image, and each row's version of it under the row's name."""
    attacked = [replace(group[1], attack=spec.title) for group, spec in zip(rows, specs, strict=True)]
    return [rows[0][0], *attacked]


def _orderings(item: Item, done: Table5, versions: dict[str, str], who: Cast) -> Iterator[Ordering]:
    from whorl.physical.rehearsal import SETTINGS

    printed, labels = item.printed[who.sources[0][0].role], {row_of(label): label for label in versions}
    for _, target in who.targets:
        for first, second in item.orderings:
            if first not in labels or second not in labels:
                continue
            one, other = versions[labels[first]], versions[labels[second]]
            for place, setting in enumerate(SETTINGS):
                accuracy = {version: 100 * done.counts(setting, version, target).accuracy for version in (one, other)}
                said = {row: printed[row][place][0] if row in printed else None for row in (first, second)}
                yield Ordering.of(
                    (labels[first], labels[second]),
                    f"{item.poses[place].label}, {target}",
                    # The lower the accuracy, the better the attack.
                    ours=(accuracy[other], accuracy[one]),
                    printed=(said[second], said[first]),
                    comparison=done.compared(setting, one, other, target),
                )
