"""Who is looking: one job each, forgotten when they leave."""

from __future__ import annotations

from whorl.ui.visits import Visit, Visits


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
