"""Attacks: one loop for all gradient attacks, built from parts, and the ones that seek the smallest perturbation."""

from whorl.attacks.contract import Attack, AttackInfo
from whorl.attacks.cw import CarliniWagner
from whorl.attacks.deepfool import DeepFool
from whorl.attacks.gradient import GradientAttack
from whorl.attacks.presets import attack, attack_names, describe

__all__ = [
    "Attack",
    "AttackInfo",
    "CarliniWagner",
    "DeepFool",
    "GradientAttack",
    "attack",
    "attack_names",
    "describe",
]
