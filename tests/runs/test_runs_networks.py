"""Networks by name: ensembles, defences, and exactly which one it was."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import whorl
from cli.toy_networks import classifier
from conftest import small_net
from runs.declaring import OTHER, SMALL
from whorl import WhorlError
from whorl.models import Ensemble
from whorl.models.classifier import name_of
from whorl.models.weights import state_dict_sha256
from whorl.runs.networks import Networks, behind, device_of, identify, load_source, load_targets

CPU = torch.device("cpu")


def test_a_network_behind_defences_is_the_same_however_it_is_named() -> None:
    x = torch.rand(2, 3, 18, 18)
    by_name = Networks(CPU, seed=3).target(f"{SMALL}+jpeg+resize-pad")
    [listed] = load_targets([SMALL], ["jpeg+resize-pad"], device=CPU, seed=3)
    [whole] = load_targets([f"{SMALL}+jpeg"], ["resize-pad"], device=CPU, seed=3)
    assert (whole.name, whole.defense) == (listed.name, listed.defense)
    assert torch.equal(whole.net(x), listed.net(x))
    attacked = Networks(CPU, seed=3).source(f"{SMALL}+jpeg+resize-pad")
    assert torch.equal(attacked(x), listed.net(x))
    mine = behind(classifier(small_net(), "small"), ("jpeg", "resize-pad"), seed=3)
    assert by_name.name == listed.name == mine.name == "small+jpeg+resize-pad"
    assert identify(by_name) == identify(listed.net)
    # A network that is given is known by its weights, one that is named by its code too.
    assert identify(by_name)[1:] == identify(mine)[1:]
    assert identify(by_name)[0].keys() - identify(mine)[0].keys() == {"code_sha256"}
    assert torch.equal(by_name(x), mine(x))
    assert torch.equal(listed.net(x), mine(x))


def test_networks_that_are_given_are_not_loaded() -> None:
    net = classifier(small_net(), "mine")
    networks = Networks(CPU, given={"mine": net, "no+such+network": net})
    assert networks.source("no+such+network") is networks.target("mine") is net
    assert networks.model(SMALL) is networks.model(SMALL)
    assert networks.source(f"{SMALL}").name == "small"


def test_identities_tell_networks_apart() -> None:
    net = classifier(small_net(), "net")
    same, other = classifier(small_net(), "net"), classifier(small_net(seed=3), "net")
    wider = whorl.Classifier.from_module(small_net(), size=20, mean=(0.5,) * 3, std=(0.5,) * 3, name="net")
    assert identify(net) == identify(same)
    seen = [net, other, wider, behind(net, ("jpeg",)), behind(net, ("randmix",)), behind(net, ("randmix",), seed=1)]
    seen += [
        Ensemble([net, other]),
        Ensemble([net, other], fuse="probabilities"),
        Ensemble([net, other], weights=[2, 1]),
    ]
    found = [repr(identify(one)) for one in seen]
    assert len(set(found)) == len(found)


def test_weights_that_changed_since_they_were_loaded_are_others() -> None:
    def loaded() -> whorl.Classifier:
        net = small_net()
        return whorl.Classifier(net, size=18, mean=(0.5,) * 3, std=(0.5,) * 3, num_classes=7, weights_sha256="file")

    one, other = loaded(), loaded()
    assert identify(one) == identify(other) == identify(deepcopy(one))
    assert identify(one)[0]["weights_sha256"] == "file"
    next(other.net.parameters()).data.add_(1e-3)
    assert identify(other)[0]["weights_sha256"] == state_dict_sha256(other.net)
    assert identify(one.half()) != identify(loaded())


def test_anything_that_answers_has_a_name() -> None:
    def remote(x: Tensor) -> Tensor:
        return x.mean((2, 3))

    assert identify(remote) == [{"name": "remote", "weights_sha256": None}]
    assert name_of(nn.Flatten()) == "Flatten"
    assert (device_of(remote), device_of(nn.Flatten())) == (CPU, CPU)


def test_sources() -> None:
    both = load_source([SMALL, OTHER], CPU)
    assert (both.name, len(identify(both))) == ("small+other", 2)
    for names in ([], [""], ["resnet18", ""]):
        with pytest.raises(WhorlError, match="expected the name of a model"):
            load_source(names, CPU)


def test_two_targets_of_one_name_are_refused() -> None:
    with pytest.raises(WhorlError, match="two targets are called 'small'"):
        load_targets([SMALL, SMALL], device=CPU)
    with pytest.raises(WhorlError, match="unknown defense 'jpg'"):
        load_targets([SMALL], ["jpg"], device=CPU)
