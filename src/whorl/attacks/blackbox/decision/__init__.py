"""Decision-based attacks: small perturbations from a target's labels alone, one loop for all of them."""

from whorl.attacks.blackbox.decision.loop import DecisionAttack
from whorl.attacks.blackbox.decision.walks import BoundaryWalk, EvolutionaryWalk, Walk

__all__ = ["BoundaryWalk", "DecisionAttack", "EvolutionaryWalk", "Walk"]
