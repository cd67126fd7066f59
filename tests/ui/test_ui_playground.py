"""What is on offer, nothing that is not on the list; and who is here: one job each, forgotten when they leave."""

from __future__ import annotations

import threading

import pytest

from ui.ui_toys import toy
from whorl import Classifier
from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.models import model_names
from whorl.runs.catalog import model_catalog
from whorl.ui import playground as subject
from whorl.ui.pair import PairSettings, craft, predict
from whorl.ui.playground import Offer, Playground, Visit, Visits, offers


def test_networks_at_hand_come_first() -> None:
    offered = offers(["python:my.module:net", "resnet18"])
    names = [offer.name for offer in offered]
    assert names[:2] == ["python:my.module:net", "resnet18"]
    assert sorted(names[1:]) == sorted(entry.name for entry in model_catalog())
    here = [offer.here for offer in offered]
    assert here == sorted(here, reverse=True)
    assert set(model_names()) <= set(names)


def test_only_what_is_offered_is_loaded() -> None:
    loaded: list[str] = []

    def load(name: str) -> Classifier:
        loaded.append(name)
        return toy()

    playground = Playground([Offer(name=name, here=True) for name in "abcd"], load=load)
    with pytest.raises(WhorlError, match="expected a network from the list, got 'python:os:getcwd'"):
        playground.network("python:os:getcwd")
    assert loaded == []
    first = playground.network("a")
    assert playground.network("a") is first
    for name in "bcd":
        playground.network(name)
    assert loaded == ["a", "b", "c", "d"]
    playground.network("a")  # pushed out by the others
    assert loaded == ["a", "b", "c", "d", "a"]


def test_fetching_one_network_does_not_keep_others_waiting() -> None:
    asked, arrived = threading.Event(), threading.Event()

    def load(name: str) -> Classifier:
        if name == "far":
            asked.set()
            assert arrived.wait(10)
        return toy()

    playground = Playground([Offer(name="far", here=False), Offer(name="near", here=True)], load=load)
    got: list[Classifier] = []
    threads = [threading.Thread(target=lambda: got.append(playground.network("far"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert asked.wait(10)
    assert playground.network("near") is playground.network("near")
    assert got == []
    arrived.set()
    for thread in threads:
        thread.join()
    assert got[0] is got[1]  # loaded once, though asked for twice


def test_a_page_needs_a_network() -> None:
    with pytest.raises(WhorlError, match="at least one network"):
        Playground([])


def test_without_samples_the_page_still_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here() -> None:
        raise WhorlError("the photographs cannot be fetched.")

    monkeypatch.setattr(subject, "list_samples", none_here)
    playground = Playground([Offer(name="toy", here=True)])
    assert playground.samples == ()
    assert playground.trouble == "the photographs cannot be fetched."


def test_a_real_network_on_a_bundled_photograph() -> None:
    playground = Playground(offers(["mobilenet_v2"]))
    chosen = next(image for image in playground.samples if image.label == 990)
    settings = PairSettings(attack="pgd", eps=16 / 255, steps=2)
    made = craft(playground.network("mobilenet_v2"), chosen, settings)
    answers = predict(made, Pose()).answers
    assert [answer.right for answer in answers.values()] == [True, False, False]
    assert answers["clean"].name == "buckeye"


def test_only_the_latest_job_is_wanted() -> None:
    visit = Visit()
    first = visit.order()
    assert visit.wants(first)
    second = visit.order()
    assert not visit.wants(first)
    assert visit.wants(second)


def test_stopping_wants_nothing_until_the_next_job() -> None:
    visit = Visit()
    job = visit.order()
    visit.stop()
    assert visit.stopped
    assert not visit.wants(job)
    assert visit.wants(visit.order())
    assert not visit.stopped


def test_leaving_stops_and_forgets() -> None:
    visits = Visits()
    visit = visits.of("a")
    job = visit.order()
    visits.leave("a")
    visits.leave("a")  # a browser may say so twice
    assert not visit.wants(job)
    assert len(visits) == 0
    assert visits.of("a") is not visit


def test_too_many_visits_push_out_the_longest_unused() -> None:
    visits = Visits(most=2)
    first, second = visits.of("a"), visits.of("b")
    job = second.order()
    assert visits.of("a") is first
    visits.of("c")
    assert not second.wants(job)
    assert visits.of("a") is first
    assert len(visits) == 2
