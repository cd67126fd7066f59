"""What became of each image of a table, packed to bits, with all that its rates, intervals and marks follow from."""

from __future__ import annotations

import base64
import json
from typing import Any

from whorl.paper.comparison import Compared
from whorl.paper.declaration import row_of
from whorl.runs.done import Done


def outcomes_text(compared: Compared, done: Done) -> str:
    """Write a table's outcomes as JSON of a few kilobytes, which can be kept with what is said of them.

    ``bits`` are (1 + rows, targets, poses, images), row-major, eight to a byte, the first the highest, as base64:
    whether the image is recognised, clean first, then each of ``rows``. ``columns`` say what stands in the table: a
    source, a target, the poses that are averaged, and by row what the paper printed. ``orderings`` are the pairs of
    rows that are held against each other in every column that is not ``extra``. ``benchmarks/recompute_paper.py``
    recomputes every figure of the table from it, and needs nothing of whorl.

    Args:
        compared: ours beside the paper's.
        done: the run that it came of.
    """
    declared, whole = done.declaration, done.whole
    labels = {row_of(spec.title): spec.title for spec in declared.attacks}
    place = {pose: index for index, pose in enumerate(whole.poses)}
    columns = [
        {
            "source": column.source[1],
            "target": column.target[1],
            "heading": column.heading,
            "poses": [place[pose] for pose in column.poses],
            "printed": _printed(compared, labels, column.source[0].role, column.target[0].role, column.place),
            "extra": column.extra,
        }
        for column in compared.columns
    ]
    held = [[labels[row] for row in pair] for pair in compared.item.orderings if labels.keys() >= set(pair)]
    known = {
        "item": compared.item.name,
        "profile": compared.profile,
        "kernel": compared.kernel,
        "seed": declared.seed,
        "attacks": {spec.title: repr(spec.build()) for spec in declared.attacks},
        "networks": dict(done.plan.targets),
        "rows": [[spec.title, source] for spec, source in declared.versions()],
        "targets": whole.targets,
        "poses": [{"angle": pose.angle, "scale": pose.scale, "shift": pose.shift} for pose in whole.poses],
        "columns": columns,
        "orderings": held,
        "ids": whole.ids,
        "bits": base64.b64encode(whole.to_bits()).decode(),
    }
    # A line a key: a change of the file shows what changed.
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in known.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _printed(compared: Compared, labels: dict[str, str], source: str, target: str, place: int | None) -> dict[str, Any]:
    found = {label: compared.item.printed_value(source, row, target, place) for row, label in labels.items()}
    return {label: value for label, value in found.items() if value is not None}
