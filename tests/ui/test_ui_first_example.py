"""The example that the page opens with: made once, in the background, and no reason to keep a server that ends."""

from __future__ import annotations

from ui.ui_toys import Sleep, playground, slow, toy
from whorl import Classifier
from whorl.errors import WhorlError
from whorl.ui.first_example import OpeningExample
from whorl.ui.playground import Offer, Playground


def offering(**networks: Classifier) -> Playground:
    return Playground([Offer(name=name, here=True) for name in networks], load=networks.__getitem__)


def test_it_is_crafted_and_evaluated_on_both_networks() -> None:
    offered = playground()
    opening = OpeningExample(offered)
    opening.prepare()
    assert opening.done.is_set()
    assert not opening.job.busy
    assert opening.pair is not None
    assert opening.map is not None
    assert (opening.pair.image, opening.pair.other) == (offered.example, offered.network("other"))
    assert opening.map.complete
    assert len(opening.map.other) == opening.map.total
    assert offered.pace["toy"] > 0


def test_a_second_network_of_other_classes_is_left_out() -> None:
    opening = OpeningExample(offering(toy=toy(), strange=toy(labels=tuple("tuvwxyz"))))
    opening.prepare()
    assert opening.pair is not None
    assert opening.pair.other is None


def test_what_went_wrong_is_kept_for_whoever_opens_the_page() -> None:
    def load(name: str) -> Classifier:
        raise WhorlError(f"the weights of {name} are on the moon.")

    opening = OpeningExample(Playground([Offer(name="lost", here=True)], load=load))
    opening.prepare()
    assert (opening.pair, opening.trouble) == (None, "the weights of lost are on the moon.")
    assert opening.done.is_set()


def test_it_ends_with_the_server() -> None:
    opening, before = OpeningExample(offering(slow=slow())), Sleep.calls
    with opening.prepared():
        while Sleep.calls == before:
            opening.done.wait(0.01)
    assert opening.done.is_set()
    assert opening.pair is None
    assert Sleep.calls - before < 15  # of more than twenty gradients and 35 poses
