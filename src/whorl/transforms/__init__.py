"""Random input transforms used inside attacks: what the network sees instead of the image itself."""

from whorl.transforms.inputs import DiverseInput, InputTransform, Plain, RandomAffine, plain

__all__ = ["DiverseInput", "InputTransform", "Plain", "RandomAffine", "plain"]
