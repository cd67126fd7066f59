"""How often attacks succeed when the image is rotated, scaled and translated."""

from whorl.evaluation.distance import Distance
from whorl.evaluation.outcomes import AttackedImages, Outcomes, check_recognised, outcomes, success_rates, to_8_bits
from whorl.evaluation.prediction import Precision, Predictions, Predictor, predictions, recognised
from whorl.evaluation.statistics import Comparison, compare
from whorl.evaluation.success import SuccessRate, mean_rate
from whorl.geometry.pose import PAPER_POSES, Pose, poses

__all__ = [
    "PAPER_POSES",
    "AttackedImages",
    "Comparison",
    "Distance",
    "Outcomes",
    "Pose",
    "Precision",
    "Predictions",
    "Predictor",
    "SuccessRate",
    "check_recognised",
    "compare",
    "mean_rate",
    "outcomes",
    "poses",
    "predictions",
    "recognised",
    "success_rates",
    "to_8_bits",
]
