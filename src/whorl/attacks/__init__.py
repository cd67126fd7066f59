"""Attacks: one loop for all gradient attacks, the ones that seek the smallest perturbation, and the black-box ones."""

from whorl.attacks.blackbox.decision import DecisionAttack
from whorl.attacks.blackbox.queries import TargetError
from whorl.attacks.blackbox.score import ScoreAttack
from whorl.attacks.contract import Attack, AttackInfo, Crafted, Trace
from whorl.attacks.cw import CarliniWagner
from whorl.attacks.deepfool import DeepFool
from whorl.attacks.gradient import Followed, GradientAttack
from whorl.attacks.loop import OnStep, Taken
from whorl.attacks.presets import attack, attack_names, describe

__all__ = [
    "Attack",
    "AttackInfo",
    "CarliniWagner",
    "Crafted",
    "DecisionAttack",
    "DeepFool",
    "Followed",
    "GradientAttack",
    "OnStep",
    "ScoreAttack",
    "Taken",
    "TargetError",
    "Trace",
    "attack",
    "attack_names",
    "describe",
]
