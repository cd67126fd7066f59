"""The commands by name, each with its line in ``whorl --help``, and where a command lives.

A command's module is imported when the command is run, or its own help is shown. Most of them import torch, which
takes seconds, and neither ``whorl --help`` nor a press of Tab should wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "demo": "Attack sample photographs, rotate and scale them, evaluate three networks, and write a report.",
    "gate": "Attack a network, evaluate it on rotated and scaled images, and pass or fail it by limits; for CI.",
    "attack": "Craft adversarial images and save them as 8-bit PNG files, with a manifest of how they were made.",
    "evaluate": "Evaluate networks on rotated, scaled and translated images, clean and adversarial: success rates.",
    "run": "Run the experiment that a TOML file declares; the same command resumes it, or updates it after a change.",
    "merge": "Merge the shards of an experiment into the folder, table and report that one run would have made.",
    "paper": "Run tables and figures of the paper, and show our figures beside the printed ones.",
    "harden": "Train a defended version of a network on a folder of images, and show the gain.",
    "physical": "Print images, photograph them, score the photographs.",
    "ui": "Open a page in the browser to attack an image, rotate, scale and translate it. Needs the extra ui.",
    "attacks": "List the attacks: what each does, and its settings.",
    "models": "List the networks that have a name: input size, where the weights come from, and whether they are here.",
    "defenses": "List the defences that can stand before a network, with their settings.",
    "analyze": "Measure the estimator's approximations, or choose its kernel for a network.",
    "bench": "Time attacks and the estimator beside other libraries' on the same network, in alternating rounds.",
    "doctor": "Show what is installed and cached, what is missing, and how to fix it.",
}
"""What a command does in one line: the first of its docstring."""

_LISTINGS = ("attacks", "models", "defenses")


def module_of(command: str) -> str:
    """The module that a command lives in.

    >>> module_of("run"), module_of("models")
    ('whorl.cli.run', 'whorl.cli.listings')
    """
    return f"whorl.cli.{'listings' if command in _LISTINGS else command}"
