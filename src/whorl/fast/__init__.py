"""Fast ways to do what the plain code does: fused estimators, and attacks replayed from a recorded graph.

Estimators, transforms and attacks choose their way by themselves; an attack with ``fast=False`` does not.
"""
