"""Adversarial images that survive rotation, scaling and translation, and a way to measure how well they do.

    import whorl

    clf = whorl.load_model("resnet18")
    x, y, ids = whorl.load_samples(8)
    adv = whorl.attack("ai-dim")(clf, x, y, ids=ids)
    print(clf(whorl.affine(adv, angle=30)).argmax(1) == y)

Geometry, estimators and attacks need torch alone. Everything is imported when it is first used, torch included.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.attacks import (
        Attack,
        AttackInfo,
        CarliniWagner,
        DeepFool,
        GradientAttack,
        attack,
        attack_names,
    )
    from whorl.data import load_images, load_samples
    from whorl.defenses import defense_names, load_defense
    from whorl.errors import WhorlError
    from whorl.estimators import AffineInvariant, Chain, Estimator, RotationInvariant, TranslationInvariant, identity
    from whorl.evaluation import worst_pose
    from whorl.geometry import affine, from_polar, to_polar
    from whorl.hardening import harden
    from whorl.models import Classifier, Ensemble, load_model, model_names
    from whorl.transforms import DiverseInput, InputTransform, RandomAffine

__version__ = "0.1.0"

_ROOMS = {
    "whorl.attacks": (
        "Attack",
        "AttackInfo",
        "CarliniWagner",
        "DeepFool",
        "GradientAttack",
        "attack",
        "attack_names",
    ),
    "whorl.data": ("load_images", "load_samples"),
    "whorl.defenses": ("defense_names", "load_defense"),
    "whorl.errors": ("WhorlError",),
    "whorl.estimators": (
        "AffineInvariant",
        "Chain",
        "Estimator",
        "RotationInvariant",
        "TranslationInvariant",
        "identity",
    ),
    "whorl.evaluation": ("worst_pose",),
    "whorl.geometry": ("affine", "from_polar", "to_polar"),
    "whorl.hardening": ("harden",),
    "whorl.models": ("Classifier", "Ensemble", "load_model", "model_names"),
    "whorl.transforms": ("DiverseInput", "InputTransform", "RandomAffine"),
}
_LAZY = {name: room for room, names in _ROOMS.items() for name in names}
# Rooms that `import whorl` alone gives access to, as in whorl.interop.peer(...).
_SUBMODULES = {
    "attacks",
    "data",
    "defenses",
    "errors",
    "estimators",
    "evaluation",
    "geometry",
    "hardening",
    "interop",
    "models",
    "paper",
    "physical",
    "report",
    "runs",
    "transforms",
    "ui",
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


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = globals()[name] = getattr(import_module(_LAZY[name]), name)  # so that this is called once a name
        return value
    if name in _SUBMODULES:
        return import_module(f"whorl.{name}")
    raise AttributeError(f"module 'whorl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
