"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

import typer

from whorl.errors import WhorlError

Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda or cuda:N.")]
Seed = Annotated[int, typer.Option(help="All randomness follows from it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

# Checked before they are worked out: Fraction takes 1e999999999, underscores, and the digits of any script.
_NUMBER = re.compile(r"([0-9]{1,9}(\.[0-9]{0,20})?|\.[0-9]{1,20})(e-?[0-9]{1,2})?")
# The rest of a list of numbers inside an address, as in mean=0.5,0.5,0.5&std=...
_CONTINUED = re.compile(r"[-+.0-9][-+.0-9e]*(&.*)?")


def parse_eps(text: str, *, norm: str = "linf") -> float:
    """Read the bound of a perturbation.

    Args:
        text: a fraction or a decimal, in units of the [0, 1] range.
        norm: for "linf" it is at most 1; an L2 ball may well be larger.

    >>> parse_eps("16/255") == 16 / 255
    True
    """
    parts = [part.strip().lower() for part in text.split("/")]
    if len(parts) > 2 or not all(_NUMBER.fullmatch(part) for part in parts) or (parts[1:] and not Fraction(parts[1])):
        raise WhorlError(f"eps must be a fraction or a decimal, such as 16/255 or 0.06; got {text!r}.")
    value = Fraction(parts[0]) / Fraction(parts[-1] if parts[1:] else 1)
    if norm == "linf" and value > 1:
        levels = f"{parts[0]}/255" if value <= 255 and len(parts) == 1 else "16/255"
        raise WhorlError(f"eps must lie in [0, 1], the range of a pixel; got {text}. Did you mean {levels}?")
    return float(value)


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
