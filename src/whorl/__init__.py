"""Adversarial images that survive rotation, scaling and translation, and a way to measure how well they do.

    import whorl

    clf = whorl.load_model("resnet18")
    x, y, ids = whorl.load_samples(8)
    adv = whorl.attack("ai-dim")(clf, x, y, ids=ids)
    print(clf(whorl.affine(adv, angle=30)).argmax(1) == y)

Geometry, estimators and attacks need torch alone. What reads pictures or weights is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whorl.attacks import (
    Attack,
    AttackInfo,
    CarliniWagner,
    DeepFool,
    GradientAttack,
    attack,
    attack_names,
)
from whorl.errors import WhorlError
from whorl.estimators import AffineInvariant, Chain, Estimator, TranslationInvariant, identity
from whorl.geometry import affine, from_polar, to_polar
from whorl.transforms import DiverseInput, InputTransform, RandomAffine

if TYPE_CHECKING:
    from whorl.data import load_images, load_samples
    from whorl.defenses import defense_names, load_defense
    from whorl.hardening import harden
    from whorl.models import Classifier, Ensemble, load_model, model_names

__version__ = "0.1.0"

_LAZY = {
    "Classifier": "whorl.models",
    "Ensemble": "whorl.models",
    "load_model": "whorl.models",
    "model_names": "whorl.models",
    "load_defense": "whorl.defenses",
    "defense_names": "whorl.defenses",
    "harden": "whorl.hardening",
    "load_images": "whorl.data",
    "load_samples": "whorl.data",
}

__all__ = [
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
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'whorl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
