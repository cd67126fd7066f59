"""Random input transforms used inside attacks: what the network sees instead of the image itself."""

from whorl.transforms.inputs import TRANSFORMS, DiverseInput, InputTransform, Plain, RandomAffine, plain
from whorl.transforms.mixed import Gain, InputChain, Mirror
from whorl.transforms.spread import Planned, SpreadAffine

__all__ = [
    "TRANSFORMS",
    "DiverseInput",
    "Gain",
    "InputChain",
    "InputTransform",
    "Mirror",
    "Plain",
    "Planned",
    "RandomAffine",
    "SpreadAffine",
    "plain",
]
