"""The public surface is small and pinned: a new name is a decision, not an accident."""

from __future__ import annotations

import subprocess
import sys

import pytest

import whorl

PUBLIC = [
    "AffineInvariant",
    "Attack",
    "AttackInfo",
    "CarliniWagner",
    "Chain",
    "Classifier",
    "DeepFool",
    "DiverseInput",
    "Ensemble",
    "Estimator",
    "GradientAttack",
    "InputTransform",
    "RandomAffine",
    "RotationInvariant",
    "TranslationInvariant",
    "WhorlError",
    "affine",
    "attack",
    "attack_names",
    "defense_names",
    "from_polar",
    "harden",
    "identity",
    "load_defense",
    "load_images",
    "load_model",
    "load_samples",
    "model_names",
    "to_polar",
    "worst_pose",
]


def test_public_names_are_pinned() -> None:
    assert sorted(whorl.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(whorl, name) is not None
    assert name in dir(whorl)


def test_the_core_imports_nothing_but_torch_and_numpy() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['timm', 'torchvision', 'PIL', 'rich', 'typer', 'safetensors']));"
        "import torch, whorl;"
        "whorl.attack('ai-dim', steps=1)(torch.nn.Flatten(), torch.rand(1, 1, 4, 4), torch.tensor([0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = whorl.nothing
