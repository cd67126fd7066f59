"""Which changes of the backward pass a source wants: one table, by what its graph shows and not by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from whorl.models.backward import Backward, BackwardRule
from whorl.models.branches import Structure

Family = Literal["rectified residuals", "linear residuals", "concatenations", "attention", "plain"]

FAMILIES: Mapping[Family, Backward] = {
    # ResNet, RegNet: the sum of branch and shortcut is rectified.
    "rectified residuals": Backward(skip=0.65, rectifier=0.7, relative=True),
    # MobileNetV2, EfficientNet, ConvNeXt: it is not.
    "linear residuals": Backward(skip=0.5, rectifier=0.7, relative=True),
    # Inception.
    "concatenations": Backward(rectifier=0.5, relative=True, join=0.8, pool=0.5),
    "attention": Backward(skip=0.65),
    # VGG, DenseNet.
    "plain": Backward(rectifier=0.7, relative=True),
}
"""What each family of networks wants. Chosen by ``benchmarks/strength_search.py`` where a source of the family was
there (resnet18, efficientnet_lite0, inception_v3); docs/frontier/ai-best.md says what it gave."""


def family_of(shown: Structure) -> Family:
    """The family of a network.

    >>> family_of(Structure())
    'plain'
    """
    if shown.attention:
        return "attention"
    if shown.residual:
        return "rectified residuals" if 2 * shown.rectified >= len(shown.residual) else "linear residuals"
    return "concatenations" if any(branch.deeper for branch in shown.joined) else "plain"


@dataclass(frozen=True, kw_only=True, repr=False)
class ByFamily(BackwardRule):
    """The changes that the source's own family wants (:data:`FAMILIES`), of an ensemble each member its own.

    >>> ByFamily()
    ByFamily()
    """

    def of(self, shown: Structure) -> Backward:
        """The row of the table."""
        return FAMILIES[family_of(shown)]
