"""Networks for commands to load by address: ``python:cli.toy_networks:small``."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from torch import Tensor, nn

from conftest import CLASSES, small_net
from whorl import Classifier


def small() -> Classifier:
    return classifier(small_net(), "small")


def other() -> Classifier:
    return classifier(small_net(seed=5), "other")


def wide() -> Classifier:
    """As many classes as ImageNet, of which only the first few are ever predicted."""
    return classifier(nn.Sequential(small_net(), nn.ConstantPad1d((0, 1000 - CLASSES), -1e4)), "wide")


def oddly_named() -> Classifier:
    return classifier(small_net(), "../up/and away")


def slow() -> Classifier:
    return classifier(nn.Sequential(Sleep(), small_net()), "slow")


def mortal() -> Classifier:
    return classifier(nn.Sequential(KillOnce(), small_net()), "mortal")


def broken() -> Classifier:
    """A network that answers as WHORL_TEST_BROKEN says, one of ``Broken.KINDS``."""
    net = Broken(os.environ.get("WHORL_TEST_BROKEN", ""))
    return Classifier(net, size=18, mean=(0.5,) * 3, std=(0.5,) * 3, num_classes=CLASSES, name="broken")


class Broken(nn.Module):
    """A network whose answers no figure may rest on."""

    KINDS = ("NaN", "infinity", "shape", "changing classes")

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.calls, self.net = kind, 0, small_net()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.net(x)
        if self.kind in ("NaN", "infinity"):
            spoiled = logits.clone()
            spoiled[-1, -1] = float("nan") if self.kind == "NaN" else float("inf")
            return spoiled
        if self.kind == "shape":
            return logits[:, 0]
        return logits[:, :-1] if self.kind == "changing classes" and self.calls > 1 else logits


class KillOnce(nn.Module):
    """Kills the process that it runs in if the file that WHORL_TEST_KILL names is there, and removes the file first."""

    def forward(self, x: Tensor) -> Tensor:
        order = os.environ.get("WHORL_TEST_KILL")
        if order and Path(order).exists():
            Path(order).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return x


class Sleep(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.1)
        return x


def classifier(net: nn.Module, name: str) -> Classifier:
    return Classifier.from_module(net, size=18, mean=(0.5,) * 3, std=(0.5,) * 3, name=name)


def ends() -> Classifier:
    """Ends the process as it is made, as a script does that was never meant to be imported."""
    raise SystemExit(int(os.environ.get("WHORL_TEST_END", "0")))


class Ends(nn.Module):
    """Ends the process as it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()

    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(int(os.environ.get("WHORL_TEST_END", "0")))


def ends_later() -> Classifier:
    return classifier(Ends(), "ends")
