"""Kernels to choose among: by the σ of translations, of scalings and rotations, and the size; or by degrees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from whorl.errors import WhorlError, unknown_name
from whorl.estimators import AffineInvariant, RotationInvariant
from whorl.geometry.kernels import Sigma
from whorl.runs.declaration import AttackSpec

DEFAULT_GRID = "translation=0,0.5,0.8,1.2,2;polar=0,0.5,0.8,1.2,2;size=15"
BASELINES: Mapping[str, Mapping[str, Any] | None] = {
    "plain": None,
    "ti": {"type": "TranslationInvariant"},
    "reference": {"type": "AffineInvariant", "sigma": "reference"},
    "printed": {"type": "AffineInvariant", "sigma": "printed"},
}
"""What a choice is held against: no estimator, TI's, the kernel of the authors' code and that of the paper's text."""
_AXES = ("translation", "polar", "scaling", "rotation", "size", "degrees")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A kernel by name.

    Attributes:
        label: as in ``t0.5-p0.8-k15``, ``t0.5-s0.8-r0.3-k15`` or ``d32-1.6``, or a baseline's name.
        estimator: as a declaration takes it; None for none.
        baseline: whether it only serves to compare with.
    """

    label: str
    estimator: Mapping[str, Any] | None
    baseline: bool = False

    def spec(self, attack: str, settings: Mapping[str, Any]) -> AttackSpec:
        """The attack with this kernel, for a declaration."""
        estimator = {"type": "AffineInvariant", **_OFF} if self.estimator is None else dict(self.estimator)
        return AttackSpec(name=attack, label=self.label, settings={**settings, "estimator": estimator})


_OFF = {"translation": False, "rotation": False, "scaling": False}


def candidates(grid: str = DEFAULT_GRID) -> list[Candidate]:
    """Read a grid and list its kernels, baselines first.

    Args:
        grid: lists of numbers by name, as in ``translation=0.5,1;polar=0,0.5;size=7,15``: σ in pixels, σ in cells of
            the polar grid, and the odd size of both kernels. A σ of 0 switches that part off. ``scaling`` and
            ``rotation`` in place of ``polar`` are σ along the radius and around the circle. ``degrees``, beside those
            or alone, is for :class:`whorl.RotationInvariant`: a number, or that of the first step and of the last.

    >>> [one.label for one in candidates("translation=0.5;polar=0,0.5;size=15")]
    ['plain', 'ti', 'reference', 'printed', 't0.5-p0-k15', 't0.5-p0.5-k15']
    >>> candidates("translation=0;scaling=0.8;rotation=0.3")[-1].label
    't0-s0.8-r0.3-k15'
    >>> [one.label for one in candidates("degrees=5,32-1.6")][-2:]
    ['d5', 'd32-1.6']
    """
    axes, narrowings = _axes(grid)
    found = [Candidate(label=name, estimator=value, baseline=True) for name, value in BASELINES.items()]
    together = [(f"p{polar:g}", polar, polar) for polar in axes.get("polar", ())]
    apart = product(axes.get("scaling", ()), axes.get("rotation", ()))
    polars = together or [(f"s{scaling:g}-r{rotation:g}", scaling, rotation) for scaling, rotation in apart]
    for translation, (label, scaling, rotation), size in product(axes.get("translation", ()), polars, axes["size"]):
        if translation or scaling or rotation:  # without any it is the plain attack, a baseline
            estimator = kernel_of_widths(translation, scaling, rotation, int(size))
            found.append(Candidate(label=f"t{translation:g}-{label}-k{int(size)}", estimator=estimator))
    for rotations in narrowings:
        widths = rotations.degrees if isinstance(rotations.degrees, tuple) else (rotations.degrees,)
        label = f"d{'-'.join(f'{width:g}' for width in widths)}"
        degrees = list(widths) if len(widths) == 2 else widths[0]
        found.append(Candidate(label=label, estimator={"type": "RotationInvariant", "degrees": degrees}))
    if all(one.baseline for one in found):
        raise WhorlError(f"a grid must hold a kernel that averages over something; got {grid!r}.")
    return found


def kernel_of_widths(translation: float, scaling: float, rotation: float, size: int = 15) -> dict[str, Any]:
    """A kernel by its three σ, in pixels and in cells of the polar grid, as a declaration takes it; 0 is none.

    >>> kernel_of_widths(0.5, 0.8, 0)
    {'type': 'AffineInvariant', 'kernel_size': 15, 'sigma': 0.5, 'polar_sigma': 0.8, 'rotation': False}
    """
    made: dict[str, Any] = {"type": "AffineInvariant", "kernel_size": size}
    made |= {"sigma": translation} if translation else {"translation": False, "sigma": scaling or rotation}
    widths = [width for width in dict.fromkeys((scaling, rotation)) if width]
    made |= {"polar_sigma": widths if len(widths) == 2 else widths[0]} if widths else {}
    made |= {} if rotation else {"rotation": False}
    return made | ({} if scaling else {"scaling": False})


def narrowing(text: str) -> RotationInvariant:
    """Read rotations by their width in degrees, or by that of the first step and of the last.

    >>> narrowing("5"), narrowing("20-2")
    (RotationInvariant(degrees=5.0), RotationInvariant(degrees=(20.0, 2.0)))
    """
    first, *last = map(float, text.split("-"))
    return RotationInvariant(degrees=(first, *last) if last else first)  # type: ignore[arg-type]  # it refuses three


def read_kernel(text: str) -> AffineInvariant:
    """Read a kernel as a command takes it: its σ, and its size after an @.

    Args:
        text: pixels, ``reference``, ``printed`` or ``uniform``; 15 pixels wide if it does not say.

    >>> read_kernel("0.7@7"), read_kernel("uniform")
    (AffineInvariant(kernel_size=7, sigma=0.7), AffineInvariant(sigma='reference', kind='uniform'))
    """
    name, _, side = text.strip().lower().partition("@")
    wanted = "a σ in pixels, reference, printed or uniform, and a size after an @ if it is not 15, as in 0.7@7"
    if side and not side.isdecimal():
        raise WhorlError(f"a kernel must be {wanted}; got {text!r}.")
    size = int(side) if side else 15
    if name == "uniform":
        return AffineInvariant(kernel_size=size, kind="uniform")
    named: dict[str, Sigma] = {"reference": "reference", "printed": "printed"}
    if name in named:
        return AffineInvariant(kernel_size=size, sigma=named[name])
    try:
        return AffineInvariant(kernel_size=size, sigma=float(name))
    except ValueError as error:
        raise WhorlError(f"a kernel must be {wanted}; got {text!r}.") from error


def _axes(grid: str) -> tuple[dict[str, list[float]], list[RotationInvariant]]:
    """The lists of a grid by name, and rotations by their width in degrees."""
    axes: dict[str, list[float]] = {}
    narrowings: list[RotationInvariant] = []
    for part in filter(None, (piece.strip() for piece in grid.split(";"))):
        name, _, values = part.partition("=")
        if name.strip() not in _AXES:
            raise unknown_name("part of a grid", name.strip(), _AXES, hint=f"A grid is as in {DEFAULT_GRID!r}.")
        try:
            if name.strip() == "degrees":
                narrowings = list(dict.fromkeys(narrowing(value) for value in values.split(",")))
            else:
                axes[name.strip()] = list(dict.fromkeys(float(value) for value in values.split(",")))
        except WhorlError:  # which says better what is wrong with it
            raise
        except ValueError as error:
            raise WhorlError(f"a grid is lists of numbers, as in {DEFAULT_GRID!r}; got {part!r}.") from error
    if narrowings and not axes:
        return {"size": []}, narrowings
    axes = {"size": [15.0], **axes}
    if "translation" not in axes or set(axes) - {"translation", "size"} not in ({"polar"}, {"scaling", "rotation"}):
        raise WhorlError(
            f"a grid must say translation, and polar (or both scaling and rotation), as in {DEFAULT_GRID!r}, or "
            f"degrees; got {grid!r}."
        )
    if any(value < 0 for values in axes.values() for value in values):
        raise WhorlError(f"a grid holds numbers from 0; got {grid!r}.")
    if any(size != int(size) or int(size) % 2 == 0 for size in axes["size"]):
        raise WhorlError(f"sizes must be odd whole numbers (a kernel has a centre); got {axes['size']}.")
    return axes, narrowings
