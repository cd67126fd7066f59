"""How often attacks succeed when the picture is rotated, scaled and moved."""

from whorl.evaluation.compare import Comparison, Outcomes, compare
from whorl.evaluation.distance import Distance
from whorl.evaluation.grid import evaluate, success_rates, to_8_bits
from whorl.evaluation.pose import PAPER_POSES, Pose, poses
from whorl.evaluation.success import SuccessRate
from whorl.evaluation.tally import Batch, Evaluation

__all__ = [
    "PAPER_POSES",
    "Batch",
    "Comparison",
    "Distance",
    "Evaluation",
    "Outcomes",
    "Pose",
    "SuccessRate",
    "compare",
    "evaluate",
    "poses",
    "success_rates",
    "to_8_bits",
]
