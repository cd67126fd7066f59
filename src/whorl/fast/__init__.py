"""Fast ways to do what the plain code does: fused estimators, and attacks replayed from a recorded graph.

On a CPU nothing has to be asked for. The GPU's ways were checked in Triton's interpreter and on a CPU, and wait for
their measurement on a GPU; until then they are taken only where they are asked for: ``fast=None`` or ``fast=True`` for
an attack, and ``WHORL_FUSED=1`` in the environment for the estimators' kernels.
"""
