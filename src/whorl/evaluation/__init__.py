"""How often attacks succeed when the image is rotated, scaled and translated."""

from whorl.evaluation.attacked_images import AttackedImages, BatchEvaluator, outcomes, success_rates, to_8_bits
from whorl.evaluation.distance import Distance
from whorl.evaluation.image_counts import FEWEST, RESAMPLES, ImageCounts, Over, weighted_rates
from whorl.evaluation.outcomes import Outcomes, check_recognised
from whorl.evaluation.pose_search import WorstPoses, worst_pose
from whorl.evaluation.prediction import Precision, Predictions, Predictor, predictions, recognised
from whorl.evaluation.similarity import ssim
from whorl.evaluation.statistics import (
    Comparison,
    Rate,
    compare,
    for_headline,
    headline,
    holm,
    mean_interval,
    rate,
    wilson,
)
from whorl.evaluation.success import SuccessRate, mean_rate
from whorl.evaluation.verdict import AttackedRates, Rule, Verdict
from whorl.evaluation.visibility import bounded_by_ssim
from whorl.geometry.pose import PAPER_POSES, Pose, poses

__all__ = [
    "FEWEST",
    "PAPER_POSES",
    "RESAMPLES",
    "AttackedImages",
    "AttackedRates",
    "BatchEvaluator",
    "Comparison",
    "Distance",
    "ImageCounts",
    "Outcomes",
    "Over",
    "Pose",
    "Precision",
    "Predictions",
    "Predictor",
    "Rate",
    "Rule",
    "SuccessRate",
    "Verdict",
    "WorstPoses",
    "bounded_by_ssim",
    "check_recognised",
    "compare",
    "for_headline",
    "headline",
    "holm",
    "mean_interval",
    "mean_rate",
    "outcomes",
    "poses",
    "predictions",
    "rate",
    "recognised",
    "ssim",
    "success_rates",
    "to_8_bits",
    "weighted_rates",
    "wilson",
    "worst_pose",
]
