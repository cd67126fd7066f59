"""Whether networks have the same classes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn

from whorl import Classifier, Ensemble, WhorlError
from whorl.models.architectures import imagenet_labels
from whorl.models.labels import shared_labels


def net(*labels: str) -> SimpleNamespace:
    return SimpleNamespace(labels=labels)


def test_names_are_shared_with_networks_that_have_none() -> None:
    assert shared_labels({"a": net("0", "1"), "b": net("ant", "bee"), "c": net("Ant", "BEE")}) == ("ant", "bee")
    assert shared_labels({"a": net("0", "1")}) == ("0", "1")
    assert shared_labels({"a function": len}) is None
    assert shared_labels({}) is None


def test_other_words_for_some_classes_are_no_other_classes() -> None:
    first = imagenet_labels()
    other = ("tench, Tinca tinca", *first[1:])
    assert shared_labels({"torchvision's": net(*first), "mine": net(*other)}) == first


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (net("ant", "bee"), net("0", "1", "2"), r"a has 2 \('ant', 'bee'\) and b has 3 .*by queries"),
        (net("ant", "bee", "crab"), net("bee", "ant", "crab"), "'ant' is class 0 and 1"),
        (net("ant", "bee"), net("crab", "duck"), "no name in common"),
    ],
)
def test_other_classes_are_refused(first: SimpleNamespace, second: SimpleNamespace, says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        shared_labels({"a": first, "b": second})


def test_an_ensemble_has_one_order_of_classes() -> None:
    def member(*labels: str) -> Classifier:
        flat = nn.Sequential(nn.Flatten(), nn.Linear(12, len(labels)))
        return Classifier.from_module(flat, size=2, mean=(0.5,) * 3, std=(0.5,) * 3, labels=labels)

    assert Ensemble([member("0", "1"), member("ant", "bee")]).labels == ("ant", "bee")
    with pytest.raises(WhorlError, match="same order"):
        Ensemble([member("ant", "bee"), member("bee", "ant")])
