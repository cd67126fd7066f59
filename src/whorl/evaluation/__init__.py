"""How often attacks succeed when the picture is rotated, scaled and moved."""

from whorl.evaluation.grid import PAPER_POSES, Pose, success_rates
from whorl.evaluation.success import SuccessRate

__all__ = ["PAPER_POSES", "Pose", "SuccessRate", "success_rates"]
