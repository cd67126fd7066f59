"""Hardened versions of the zoo's networks, whose weights come with the package.

Each file holds, as plain fp16 safetensors, the tensors that training changed; the rest is the original's. The manifest
says how each was trained and what it measured. :mod:`whorl.hardening` makes such files.
"""

from whorl.models.defended.entries import Shipped, load, overlay, pack, shipped, unpack

__all__ = ["Shipped", "load", "overlay", "pack", "shipped", "unpack"]
