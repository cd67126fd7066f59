"""The commands by name, each with its line in ``whorl --help``, and where a command lives.

A command's module is imported when the command is run, or its own help is shown. Most of them import torch, which
takes seconds, and neither ``whorl --help`` nor a press of Tab should wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "demo": "Attack a network with and without the affine-invariant gradient, rotate and scale images, see who errs.",
    "gate": "Check a network, attack it, rotate and scale what comes out, and pass or fail it by limits; for CI.",
    "attack": "Craft adversarial images and save them as 8-bit PNG files, with a manifest of how they were made.",
    "evaluate": "Rotate, scale and translate clean and adversarial images alike, and count how often networks err.",
    "run": "Craft, transform, evaluate and count what a file declares; run it again to go on, or after a change.",
    "merge": "Put the shards of an experiment together: the folder, table and report that one run would have made.",
    "paper": "Run tables and figures of the paper, and show our figures beside the printed ones.",
    "harden": "Train a defended version of a network on a folder of images, and show the gain.",
    "physical": "Print images, photograph them, score the photographs.",
    "ui": "Craft images on a page, rotate, scale and translate them, and see what fools a network. Needs the extra ui.",
    "attacks": "List the attacks: what each does, and which settings make it what it is.",
    "models": "List the networks that have a name: input size, where the weights come from, and whether they are here.",
    "defenses": "List the defences that can stand before a network, with their settings.",
    "analyze": "Measure the estimator's approximations, or choose its kernel for a network.",
    "bench": "Time attacks and the estimator beside other libraries' attacks on the same network, in turns.",
    "doctor": "Say what is installed, what the cache holds, and how to put right what is missing.",
}
"""What a command does in one line: the first of its docstring."""

_LISTINGS = ("attacks", "models", "defenses")


def module_of(command: str) -> str:
    """The module that a command lives in.

    >>> module_of("run"), module_of("models")
    ('whorl.cli.run', 'whorl.cli.listings')
    """
    return f"whorl.cli.{'listings' if command in _LISTINGS else command}"
