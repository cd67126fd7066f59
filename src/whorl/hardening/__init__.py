"""Harden a network against adversarial images: recipes, training, and what it gains.

from whorl.hardening import harden

done = harden("mobilenet_v2", "photos/", "ens-at", out="runs/hardened", seconds=600)
print(done.history[-1])
"""

from whorl.hardening.images import TrainingImages, load_training_images
from whorl.hardening.job import Hardened, harden
from whorl.hardening.recipes import CraftedExamples, Examples, Recipe, recipe, recipe_names
from whorl.hardening.settings import Setup, Training

__all__ = [
    "CraftedExamples",
    "Examples",
    "Hardened",
    "Recipe",
    "Setup",
    "Training",
    "TrainingImages",
    "harden",
    "load_training_images",
    "recipe",
    "recipe_names",
]
