"""Attacks of our own, built on the common loop: what makes a gradient hold on networks that were never seen."""

from whorl.attacks.variants.shaping import CompressedGradient, SharedChannels
from whorl.attacks.variants.transfer import TransferAttack

__all__ = ["CompressedGradient", "SharedChannels", "TransferAttack"]
