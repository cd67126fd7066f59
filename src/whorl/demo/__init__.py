"""The demo: craft on one network, evaluate on three, rotated and scaled; a table and a figure of what came out."""

from whorl.demo.story import Demo, demo

__all__ = ["Demo", "demo"]
