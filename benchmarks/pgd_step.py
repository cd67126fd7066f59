"""Whether plain PGD's rates on Inception-v3 depend on its random start or on its step: outcomes of the first images.

    python benchmarks/pgd_step.py NIPS17 --out benchmarks/results/paper/pgd-step-outcomes.json

Ten seconds an image and setting on a CPU core. Interrupted, it goes on after the last setting that was finished. The
file is of the form that ``whorl paper`` writes, so that ``recompute_paper.py`` reads it.
"""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whorl
from recompute_paper import read, unpacked
from whorl import paper
from whorl.evaluation import Pose

SOURCE, EPS, STEPS, BATCH = "inception_v3", 16 / 255, 10, 6
SETTINGS = {
    f"{'random start' if start else 'no start'}, {times}ε/T": {"random_start": start, "alpha": times * EPS / STEPS}
    for start, times in ((True, 5), (False, 5), (False, 2), (True, 1), (False, 1))
}
ROTATED = [Pose(angle=angle) for angle in (-30, -15, 15, 30)]
SCALED = [Pose(angle=30, scale=scale, shift=(20, 20)) for scale in (0.7, 1.0, 1.3)]
COLUMNS = {
    "four rotations": (("table1", (0, 1, 3, 4)), [0, 1, 2, 3]),
    "three scales": (("table2", (1, 2, 3)), [4, 5, 6]),
}


def recognised(network: whorl.Classifier, images: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    """(poses, n) bool."""
    rounded = (255 * images).round() / 255
    found = []
    for pose in ROTATED + SCALED:
        posed = whorl.affine(rounded, angle=pose.angle, scale=pose.scale, shift=pose.shift)
        with torch.no_grad():
            found.append(torch.cat([network(some).argmax(1) for some in posed.split(BATCH)]) == labels)
    return torch.stack(found).numpy()


def crafted(
    network: whorl.Classifier, images: torch.Tensor, labels: torch.Tensor, ids: Any, settings: Any
) -> torch.Tensor:
    """Adversarial images, seed 0."""
    attack = whorl.attack("pgd", eps=EPS, steps=STEPS).with_(**settings)
    places = [slice(i, i + BATCH) for i in range(0, len(images), BATCH)]
    return torch.cat([attack(network, images[at], labels[at], seed=0, ids=ids[at]) for at in places])


def printed(item: str, places: tuple[int, ...]) -> float:
    """The paper's mean over some poses, of PGD on the attacked network."""
    values = [paper.load(item).printed_value("white", "pgd", "white", place) for place in places]
    return float(np.mean([value for value in values if value is not None]))


def write(path: Path, ids: Any, rows: dict[str, np.ndarray]) -> None:
    """``rows``: clean first."""
    attacks = [name for name in rows if name != "clean"]
    columns = [
        {"source": SOURCE, "target": SOURCE, "heading": heading, "poses": poses, "extra": True}
        | {"printed": dict.fromkeys(attacks, printed(*where))}
        for heading, (where, poses) in COLUMNS.items()
    ]
    known = {
        "attacks": {name: repr(whorl.attack("pgd", eps=EPS, steps=STEPS).with_(**SETTINGS[name])) for name in attacks},
        "seed": 0,
        "torch": torch.__version__,
        "rows": [[name, SOURCE] for name in attacks],
        "targets": [SOURCE],
        "poses": [{"angle": p.angle, "scale": p.scale, "shift": p.shift} for p in ROTATED + SCALED],
        "columns": columns,
        "orderings": [],
        "ids": list(ids),
        "bits": base64.b64encode(np.packbits(np.stack(list(rows.values()))).tobytes()).decode(),
    }
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in known.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Craft, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="NIPS17 images")
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    network = whorl.load_model(SOURCE)
    images, labels, ids = whorl.load_images(options.data, limit=options.limit, size=299)
    rows: dict[str, np.ndarray] = {}
    if options.out.is_file():
        data = read(options.out)
        rows = dict(zip(["clean", *(name for name, _ in data["rows"])], unpacked(data)[:, 0], strict=True))
    else:
        rows["clean"] = recognised(network, images, labels)
    for name, settings in SETTINGS.items():
        if name not in rows:
            rows[name] = recognised(network, crafted(network, images, labels, ids, settings), labels)
            write(options.out, ids, rows)
            print(name, rows[name].sum(1).tolist(), flush=True)


if __name__ == "__main__":
    main()
