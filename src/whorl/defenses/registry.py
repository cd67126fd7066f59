"""Defences by name."""

from __future__ import annotations

import pkgutil
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any

from torch import nn

from whorl.defenses.defended import Defended
from whorl.errors import unknown_name
from whorl.records import Registry

DEFENSES: Registry[type[Any]] = Registry("defense")
"""Every defence by name, entered where it is defined: all modules of this package are looked through."""


@cache
def _known() -> Registry[type[Any]]:
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        import_module(module.name)
    return DEFENSES


def defense_names() -> tuple[str, ...]:
    """Name every defence that ``load_defense`` knows.

    >>> defense_names()
    ('bitdepth', 'jpeg', 'randmix', 'resize-pad')
    """
    return tuple(_known())


def load_defense(name: str, clf: nn.Module, **settings: Any) -> Defended:
    """Put a classifier behind a defence, with the settings of the paper's evaluation by default.

    ======================  =====================================================================
    name                    settings
    ======================  =====================================================================
    ``jpeg``                ``quality=75``
    ``bitdepth``            ``levels=4``
    ``resize-pad``          ``min_scale=0.875, samples=1``
    ``randmix``             ``colors=5, pixels=100, sigma=0, alpha=10, noise=32/255, samples=10``
    ======================  =====================================================================

    Args:
        name: one of ``defense_names()``, in any case.
        clf: a Classifier, an Ensemble, or an already defended one.
        settings: as above, and ``seed`` (0), which every defence takes, so that one can be passed to all alike.

    Returns:
        Defended, to be called like ``clf``.

    Raises:
        WhorlError: the name or a setting is unknown, a setting is out of range, or ``clf`` is no classifier.

    >>> import torch
    >>> from whorl.models import Classifier
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> clf = Classifier.from_module(net, size=(8, 8), mean=(0.5,) * 3, std=(0.5,) * 3, name="mine")
    >>> load_defense("resize-pad", load_defense("jpeg", clf, quality=50), samples=4, seed=1).name
    'mine+jpeg+resize-pad'
    """
    key = name.lower()
    if key not in _known():
        raise unknown_name("defense", name, _known(), hint="`whorl defenses` lists all.")
    make = DEFENSES[key]
    samples = getattr(make, "samples", None)  # the random ones average draws; the others have nothing to average
    draws = {"seed": 0} | ({} if samples is None else {"samples": samples})
    known = [field.name for field in fields(make)] + list(draws)
    for setting in settings:
        if setting not in known:
            raise unknown_name("setting", setting, known, hint=f"{key} takes: {', '.join(known)}.")
    own = {setting: value for setting, value in settings.items() if setting not in draws}
    return Defended(clf, make(**own), **(draws | {k: v for k, v in settings.items() if k in draws}))
