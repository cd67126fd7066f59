"""Clean accuracy of networks behind defences: top-1 (%) as a table, networks by defences.

Example:
    python benchmarks/accuracy.py --data DIR --device cuda --json accuracy.json

The JSON holds the counts and everything needed to repeat them. Without ``--data`` the bundled samples are used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from measure import metadata, save
from whorl.data import Images, iter_images, load_samples
from whorl.defenses import Defended, defense_names, load_defense
from whorl.errors import WhorlError
from whorl.evaluation import recognised
from whorl.models import load_model, model_names

NONE = "none"


def count_correct(model: nn.Module, batches: Iterator[Images], device: torch.device) -> tuple[int, int]:
    """Count the images that a model classifies correctly.

    Returns:
        (correct, all).
    """
    right = [recognised({"model": model}, x.to(device), y, ids=ids) for x, y, ids in batches]
    return sum(int(part.sum()) for part in right), sum(part.numel() for part in right)


def measure(
    models: Sequence[str],
    defenses: Sequence[str],
    batches: Callable[[], Iterator[Images]],
    *,
    device: torch.device,
    seed: int,
) -> list[dict[str, Any]]:
    """Measure every network behind every defence; one record a cell."""
    cells = []
    for name in models:
        clf = load_model(name, device=device)
        for defense in defenses:
            model = clf if defense == NONE else load_defense(defense, clf, seed=seed)
            start = time.perf_counter()
            correct, n = count_correct(model, batches(), device)
            cells.append(
                {
                    "model": name,
                    "weights_sha256": clf.weights_sha256,
                    "defense": defense,
                    "settings": dict(vars(model.defense)) if isinstance(model, Defended) else {},
                    "samples": model.samples if isinstance(model, Defended) else 1,
                    "n": n,
                    "correct": correct,
                    "top1": round(100 * correct / n, 2),
                    "seconds": round(time.perf_counter() - start, 2),
                }
            )
            Console(stderr=True).print(f"{name} {defense}: {correct} of {n}", highlight=False)
    return cells


def to_table(cells: Sequence[dict[str, Any]]) -> Table:
    """Lay the cells out, networks by defences."""
    defenses = list(dict.fromkeys(cell["defense"] for cell in cells))
    table = Table(title=f"top-1 (%), n = {cells[0]['n']}")
    table.add_column("network")
    for defense in defenses:
        table.add_column(defense, justify="right")
    for model in dict.fromkeys(cell["model"] for cell in cells):
        row = {cell["defense"]: f"{cell['top1']:.1f}" for cell in cells if cell["model"] == model}
        table.add_row(model, *(row[defense] for defense in defenses))
    return table


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of labelled images; the bundled samples without it")
    parser.add_argument("--models", default=",".join(model_names("offline")), help="names, joined by commas")
    parser.add_argument("--defenses", default=",".join((NONE, *defense_names())), help="names, joined by commas")
    parser.add_argument("--size", type=int, default=224, help="resize images to this side first (default: 224)")
    parser.add_argument("--limit", type=int, help="take the first so many images")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0, help="of the random defences")
    parser.add_argument("--json", type=Path, help="where to save the results")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    arguments = parse(argv)
    device = torch.device(arguments.device)

    def batches() -> Iterator[Images]:
        if not arguments.data:
            return iter([load_samples(arguments.limit, size=arguments.size)])
        settings = {"batch_size": arguments.batch_size, "limit": arguments.limit, "size": arguments.size}
        return iter_images(arguments.data, **settings)

    try:
        cells = measure(
            arguments.models.split(","), arguments.defenses.split(","), batches, device=device, seed=arguments.seed
        )
    except WhorlError as error:
        raise SystemExit(f"error: {error}") from error
    Console().print(to_table(cells))
    if arguments.json:
        # The data folder by name only, as its place means nothing elsewhere.
        data = Path(arguments.data).resolve().name if arguments.data else "samples"
        settings = {name: getattr(arguments, name) for name in ("size", "limit", "batch_size", "seed")}
        save({"metadata": metadata(device, data=data, **settings), "cells": cells}, arguments.json)


if __name__ == "__main__":
    main()
