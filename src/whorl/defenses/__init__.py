"""Defences that change the image before a classifier sees it; each is a function, a record of settings, a wrapper."""

from whorl.defenses.bit_depth import BitDepth, reduce_bits
from whorl.defenses.defended import Defended, Defense
from whorl.defenses.jpeg import Jpeg, jpeg
from whorl.defenses.randmix import RandMix, randmix
from whorl.defenses.registry import DEFENSES, defense_names, load_defense
from whorl.defenses.resize_pad import ResizePad, resize_pad

__all__ = [
    "DEFENSES",
    "BitDepth",
    "Defended",
    "Defense",
    "Jpeg",
    "RandMix",
    "ResizePad",
    "defense_names",
    "jpeg",
    "load_defense",
    "randmix",
    "reduce_bits",
    "resize_pad",
]
