"""How often attacks succeed when the image is rotated, scaled and moved."""

from whorl.evaluation.compare import Comparison, Outcomes, compare
from whorl.evaluation.distance import Distance
from whorl.evaluation.grid import evaluate, success_rates, to_8_bits
from whorl.evaluation.success import SuccessRate
from whorl.evaluation.tally import Batch, Evaluation
from whorl.geometry.pose import PAPER_POSES, Pose, poses

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
