"""Networks to attack and to evaluate: the classifier wrapper, ensembles, and the zoo.

Importing this package needs torch only; timm, torchvision and the rest are imported by the models that use them.
"""

from whorl.models.classifier import Classifier
from whorl.models.ensemble import Ensemble
from whorl.models.zoo import load_model, model_names

__all__ = ["Classifier", "Ensemble", "load_model", "model_names"]
