"""Score-based attacks: gradients from a target's scores, one loop for all of them."""

from whorl.attacks.blackbox.score.gradients import FiniteDifferences, GaussianSearch, PriorGuided, QueryGradient
from whorl.attacks.blackbox.score.loop import ScoreAttack
from whorl.attacks.spaces import Pixels, Space, Tanh

__all__ = [
    "FiniteDifferences",
    "GaussianSearch",
    "Pixels",
    "PriorGuided",
    "QueryGradient",
    "ScoreAttack",
    "Space",
    "Tanh",
]
