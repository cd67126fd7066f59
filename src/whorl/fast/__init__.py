"""Fast ways to do what the plain code does: fused estimators, and attacks replayed from a recorded graph.

Estimators and transforms choose their way by themselves. An attack takes the fast way with ``fast=None`` or
``fast=True``.
"""
