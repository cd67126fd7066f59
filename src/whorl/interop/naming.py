"""Names and words: which estimator "ai" is, and what another library calls a step size."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from torch import Tensor

from whorl.errors import WhorlError, unknown_name
from whorl.estimators import AffineInvariant, Estimator, TranslationInvariant, as_estimator, identity

ESTIMATORS: Mapping[str, Callable[..., Estimator]] = {
    "none": lambda: identity,
    "ti": TranslationInvariant,
    "ai": AffineInvariant,
}

_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{0,9})?|\.[0-9]{1,9}")

# Our word for a setting, and what peers call it. The first one that an attack takes is meant.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "eps": ("max_epsilon",),
    "steps": ("max_iter", "num_iter_set", "max_iterations", "n_iter"),
    "alpha": ("abs_stepsize", "eps_step"),
}


def find_estimator(value: str | Callable[[Tensor], Tensor]) -> Estimator:
    """Take an estimator, or one of the short names ``"none"``, ``"ti"`` and ``"ai"`` for one with default settings.

    After a colon may stand its ``sigma``: a number of pixels, or the name of a width.

    >>> find_estimator("ai"), find_estimator("ai:reference"), find_estimator("ti:0.7")
    (AffineInvariant(), AffineInvariant(sigma='reference'), TranslationInvariant(sigma=0.7))
    """
    if not isinstance(value, str):
        return as_estimator(value)
    name, _, width = value.lower().partition(":")
    made = ESTIMATORS.get(name)
    if made is None:
        raise unknown_name("estimator", value, ESTIMATORS, hint=f"Expected one of {', '.join(ESTIMATORS)}.")
    if not width:
        return made()
    if name == "none":
        raise WhorlError(f"no estimator has no sigma; got {value!r}. Expected none, or a name as in ai:reference.")
    return made(sigma=float(width) if _NUMBER.fullmatch(width) else width)


def find_ignoring_case(name: str, known: Mapping[str, object]) -> str | None:
    """The entry of ``known`` that is spelled like ``name`` but for upper and lower case.

    >>> find_ignoring_case("vmifgsm", {"VMIFGSM": 1})
    'VMIFGSM'
    """
    if name in known:
        return name
    return {entry.lower(): entry for entry in known}.get(name.lower())
