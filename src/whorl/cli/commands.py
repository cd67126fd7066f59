"""The commands by name: where each lives, and its line in ``whorl --help``.

A command's module is imported when the command is run, or asked for its own help. Most of them import torch, which
takes seconds, and neither ``whorl --help`` nor a press of Tab should wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """Where a command lives, and what it does in one line: the first line of its docstring."""

    module: str
    help: str


COMMANDS: Mapping[str, Place] = {
    "demo": Place(
        "whorl.cli.demo",
        "Attack a network with and without the affine-invariant gradient, turn and scale the images, see who errs.",
    ),
    "attack": Place(
        "whorl.cli.attack",
        "Craft adversarial images and save them as 8-bit PNG files, with a manifest of how they were made.",
    ),
    "evaluate": Place(
        "whorl.cli.evaluate",
        "Turn, scale and move clean and adversarial images alike, and count how often networks are fooled.",
    ),
    "run": Place(
        "whorl.cli.run",
        "Craft, transform, ask and count what a file declares; run it again to go on, or after changing the file.",
    ),
    "paper": Place(
        "whorl.cli.paper",
        "Run tables and figures of the paper, and show our figures beside the printed ones.",
    ),
    "harden": Place(
        "whorl.cli.harden",
        "Train a defended version of a network on a folder of images, and show the gain.",
    ),
    "physical": Place(
        "whorl.cli.physical",
        "Print images, photograph them, score the photographs.",
    ),
    "ui": Place(
        "whorl.cli.ui",
        "Open a page to craft images, turn, scale and move them, and see what fools a network. Needs the extra ui.",
    ),
    "attacks": Place(
        "whorl.cli.listings",
        "List the attacks: what each does, and which settings make it what it is.",
    ),
    "models": Place(
        "whorl.cli.listings",
        "List the networks that have a name: input size, where the weights come from, and whether they are here.",
    ),
    "defenses": Place(
        "whorl.cli.listings",
        "List the defences that can stand before a network, with their settings.",
    ),
    "analyze": Place(
        "whorl.cli.analyze",
        "Measure the estimator's approximations, or choose its kernel for a network.",
    ),
    "bench": Place(
        "whorl.cli.bench",
        "Time attacks and the estimator beside other libraries' attacks on the same network, in turns.",
    ),
    "doctor": Place(
        "whorl.cli.doctor",
        "Say what is installed, what the cache holds, and how to put right what is missing.",
    ),
}
