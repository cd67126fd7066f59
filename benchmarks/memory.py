"""How much memory a run over many images takes above the loaded networks.

    python benchmarks/memory.py --data FOLDER_OF_5000 --device cuda

Runs an experiment (one attack, one target, one pose: more of them change nothing here) over the images in chunks.
Reads the process's peak resident memory before and after, and after a tenth of the images: what does not grow is
streamed.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from measure import headline, metadata, parser, save, settle, table
from whorl import runs
from whorl.bench.clock import significant
from whorl.runs.networks import Networks

SOURCE, TARGETS, ATTACK = "mobilenet_v2", ("mobilenet_v2",), "ai-fgsm"
POSES = ({"angles": [30]},)
_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_bytes() -> int:
    """The most memory that this process ever held at once, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def warmed_up(device: torch.device) -> int:
    """Load the networks and let each do one small pass, so that libraries are loaded too; give the peak after that."""
    networks = Networks(device)
    for name in TARGETS:
        net = networks.model(name)
        x = torch.rand(1, 3, 224, 224, device=device, requires_grad=True)
        net(x).sum().backward()
    return peak_bytes()


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    made = parser(__doc__)
    made.add_argument("--data", default=None, help="labelled images; the bundled samples without it")
    made.add_argument("--limit", type=int, default=5000, help="first images only")
    made.add_argument("--size", type=int, default=224, help="side in pixels")
    options = settle(made, argv, "memory")
    limit = 2 if options.quick else options.limit
    before = warmed_up(options.device)
    course: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        declared = runs.declare(
            name="memory",
            sources=[SOURCE],
            attacks=[ATTACK],
            targets=TARGETS,
            poses=POSES,
            data={"folder": options.data or "samples", "limit": limit, "size": options.size},
        )
        done = runs.run(
            declared,
            folder,
            device=options.device.type,
            progress=lambda _, seen, total: course.append((seen, peak_bytes())) if total > 1 else None,
        )
    total = course[-1][0]
    early = next(peak for seen, peak in course if seen * 10 >= total)
    figures = {
        "images": len(done.ids),
        "above_networks_mb": significant((peak_bytes() - before) / 1e6),
        "above_networks_after_a_tenth_mb": significant((early - before) / 1e6),
        "networks_and_libraries_mb": significant(before / 1e6),
        "seconds": significant(done.seconds),
    }
    about = metadata(
        options.device,
        quick=options.quick,
        repeats=1,
        data=Path(options.data).name if options.data else "samples",
        size=options.size,
        source=SOURCE,
        targets=TARGETS,
        attack=ATTACK,
        poses=1,
    )
    print(headline(about))
    print(table(["what", "value"], [[name.replace("_", " "), f"{value:g}"] for name, value in figures.items()]))
    if options.json:
        save({"metadata": about, "results": figures}, options.json)


if __name__ == "__main__":
    main()
