"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from whorl.errors import WhorlError

Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda or cuda:N.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
EngineName = Annotated[str, typer.Option("--engine", help="local (this process) or ray (a cluster).")]
Workers = Annotated[int | None, typer.Option(help="Workers of the engine ray; one on each CPU or GPU by default.")]
DataSet = Annotated[
    str | None,
    typer.Option(
        help="Labelled images: a folder, a CSV list, wds:SHARDS.tar, hf:NAME or python:MODULE:FACTORY; "
        "the bundled samples by default."
    ),
]
LABELLED = "Labelled images: a folder, a CSV list, wds:SHARDS.tar, hf:NAME, python:MODULE:FACTORY, or samples."
"""Help of images that a command does not go without."""
Limit = Annotated[int | None, typer.Option(help="Number of images to take, from the first; all by default.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per batch; 8 on a CPU and 64 on a GPU by default.")]
Targets = Annotated[str, typer.Option(help="Networks to evaluate, joined by commas.")]
Defenses = Annotated[str, typer.Option(help="Defences to put before each, joined by commas; a+b stands for both.")]
Figures = Annotated[bool, typer.Option("--figures", help="Write each figure as PNG and PDF too.")]
Intervals = Annotated[bool, typer.Option("--intervals", help="Write 95% intervals into LaTeX and Markdown too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

# The rest of a list of numbers inside an address, as in mean=0.5,0.5,0.5&std=...
_CONTINUED = re.compile(r"[-+.0-9][-+.0-9e]*(&.*)?")


def split_names(text: str | None) -> list[str]:
    """Split a list of names at its commas; none where there is no text.

    >>> split_names("jpeg, bitdepth,"), split_names(None)
    (['jpeg', 'bitdepth'], [])
    """
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def split_numbers(option: str, text: str) -> list[float]:
    """Split a list of numbers at its commas.

    Raises:
        WhorlError: one is no number.

    >>> split_numbers("angles", "0,30")
    [0.0, 30.0]
    """
    try:
        return [float(part) for part in split_names(text)]
    except ValueError as error:
        raise WhorlError(f"--{option} must be numbers joined by commas, such as 0,30; got {text!r}.") from error


def split_pairs(option: str, text: str) -> list[float | tuple[float, float]]:
    """Split a list at its commas whose parts are numbers, for both directions, or pairs (right, down) with a colon.

    Raises:
        WhorlError: one is neither.

    >>> split_pairs("tilts", "20:0,0:20,10")
    [(20.0, 0.0), (0.0, 20.0), 10.0]
    """
    made: list[float | tuple[float, float]] = []
    for part in split_names(text):
        try:
            first, *rest = (float(number) for number in part.split(":"))
        except ValueError:
            rest, first = [0.0, 0.0], 0.0
        if len(rest) > 1:
            raise WhorlError(
                f"--{option} must be numbers or pairs right:down, joined by commas, such as 20:0,10; got {text!r}."
            )
        made.append((first, rest[0]) if rest else first)
    return made


def split_models(text: str) -> list[str]:
    """Split a list of models at its commas, but not inside the numbers that an address may hold.

    >>> split_models("resnet18, onnx:net.onnx?mean=0.5,0.5,0.5&std=1,1,1,mobilenet_v2")
    ['resnet18', 'onnx:net.onnx?mean=0.5,0.5,0.5&std=1,1,1', 'mobilenet_v2']
    """
    names: list[str] = []
    for part in text.split(","):
        if names and _CONTINUED.fullmatch(part):
            names[-1] += f",{part}"
        else:
            names.append(part.strip())
    return [name for name in names if name]
