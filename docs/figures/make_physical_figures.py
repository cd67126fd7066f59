"""Draw the images of docs/physical.md: a sheet, a simulated photograph, what was found in it, and what was cut out.

Run from anywhere: python docs/figures/make_physical_figures.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import whorl
from whorl import runs
from whorl.physical import PRESETS, Scorer, print_sheet, render_pdf
from whorl.physical.photos import draw_overlay
from whorl.physical.report import draw_contact
from whorl.physical.simulation import shoot
from whorl.runs.networks import Target

HERE = Path(__file__).parent
HEIGHT = 720
COLOURS = 256  # keeps each file small, and shows what there is to see


def save_small(pixels: NDArray[np.uint8], name: str) -> None:
    """Save an image at a height that fits a page."""
    image = Image.fromarray(pixels)
    image.thumbnail((HEIGHT, HEIGHT), Image.Resampling.LANCZOS)
    image.quantize(COLOURS, dither=Image.Dither.FLOYDSTEINBERG).save(HERE / f"physical-{name}.png", optimize=True)


def main() -> None:
    """Craft a small run, print it, photograph it, score it."""
    net = whorl.load_model("resnet18")
    with tempfile.TemporaryDirectory() as folder:
        run, pdf = Path(folder) / "run", Path(folder) / "sheet.pdf"
        for attack in ("dim", "ai-dim"):
            runs.craft(attack, net, runs.Data(limit=6), run)
        done = print_sheet(run, pdf)
        save_small(next(render_pdf(pdf, dpi=150)), "sheet")
        camera = PRESETS["setting3"].with_(tilt=20.0, tilt_direction=300.0)
        [(name, _, shot)] = shoot(done.sheet, {"tilted": camera}, pages=[0])
        save_small(shot.photo, "photo")
        target = Target(model="resnet18", net=net)
        scorer = Scorer([done.sheet], [target])
        found = scorer.add(shot.photo, name)
        save_small(draw_overlay(shot.photo, found, side=2 * HEIGHT), "found")
        scorer.result.shown = dict(list(scorer.result.shown.items())[:2])
        contact = Path(folder) / "contact.png"
        draw_contact(scorer.result, contact, target)
        with Image.open(contact) as opened:
            opened.convert("RGB").quantize(COLOURS).save(HERE / "physical-cut.png", optimize=True)


if __name__ == "__main__":
    main()
