"""Rows 0 to 4 run where nothing but torch and numpy is installed, as on a bare GPU machine with ``PYTHONPATH=src``."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

PROGRAM = """
import sys

import torch
from torch import nn
import whorl

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x):
        return x + self.act(self.norm(self.conv(x)))

torch.manual_seed(0)
stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
net = nn.Sequential(stem, Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
clf = whorl.Classifier.from_module(net, size=(32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
x = torch.rand(3, 3, 32, 32)
y = clf(x).argmax(1)
for name in sys.argv[1:]:
    settings = {"budget": 40, "samples": 10} if name == "nes" else {} if name == "deepfool" else {"steps": 3}
    adv = whorl.attack(name, **settings)(clf, x, y)
    assert adv.shape == x.shape and not torch.equal(adv, x), name
est = whorl.AffineInvariant()
wrapped = est.wrap(clf)
wrapped(x.requires_grad_()).sum().backward()
assert x.grad.isfinite().all()
print("ran without", sorted({"timm", "torchvision", "PIL", "rich", "safetensors", "triton"} & set(sys.modules)))
"""


def requirements(*packages: str) -> set[str]:
    """Some packages and everything that they require."""
    found: set[str] = set()
    waiting = list(packages)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for requirement in distribution(name).requires or ():
            if "extra ==" not in requirement and "platform" not in requirement:
                bare = requirement.partition(";")[0]
                waiting.append("".join(c if c.isalnum() or c in "-_." else " " for c in bare).split()[0])
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds torch, numpy and what they require, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    for name in requirements("torch", "numpy"):
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            (folder / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder


@pytest.mark.parametrize("names", [("ai-dim", "ai-best", "pgd", "ti-mim", "ram"), ("deepfool", "nes")], ids=str)
def test_attacks_run_with_torch_and_numpy_alone(names: tuple[str, ...], installed: Path) -> None:
    # -S: without the folder where everything else is installed.
    command = [sys.executable, "-S", "-W", "ignore", "-c", PROGRAM, *names]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), str(installed))), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ran without []"
