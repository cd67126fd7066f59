"""Gradient to invariant gradient: what makes any gradient attack hold under rotation, scaling and translation."""

from whorl.estimators.chain import Chain
from whorl.estimators.invariant import (
    ESTIMATORS,
    TI_SIGMA,
    AffineInvariant,
    Estimated,
    Identity,
    RotationInvariant,
    TranslationInvariant,
    identity,
)
from whorl.estimators.polar_grids import PolarGridInvariant
from whorl.estimators.steps import Estimator, as_estimator, at_step, following, for_eps
from whorl.estimators.values import CompressedGradient, SharedChannels

__all__ = [
    "ESTIMATORS",
    "TI_SIGMA",
    "AffineInvariant",
    "Chain",
    "CompressedGradient",
    "Estimated",
    "Estimator",
    "Identity",
    "PolarGridInvariant",
    "RotationInvariant",
    "SharedChannels",
    "TranslationInvariant",
    "as_estimator",
    "at_step",
    "following",
    "for_eps",
    "identity",
]
