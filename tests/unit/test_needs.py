"""Capacity in a sentence: which queues fall behind, what they need, and when that cannot be known."""

from __future__ import annotations

import pytest

from dayjob.admin.metrics import growth
from dayjob.admin.needs import QueueLoad, capacity_sentence, needs
from dayjob.admin.queues import _drain
from dayjob.admin.views import DrainTime, Pool, Queue, QueueView, Status
from dayjob.explain.obstacles import Fleet
from dayjob.store.ops.figures import Counts


def load(name="media", *, size=0, seconds=1.0, paused=False, limit=None, **more) -> QueueLoad:
    queue = Queue(name, size, 1.0 if size else None, paused, limit, 0, False)
    return QueueLoad(
        QueueView(queue, **{"running": 0, "workers": 8, "out": 0.0, "growth": 0.0, **more}), seconds
    )


def fleet(*pools: tuple[tuple[str, ...], int, int]) -> Fleet:
    """Pools as (names, workers, stuck)."""
    return Fleet(
        Pool(str(n), 9.0, Status(id=str(n), concurrency=workers, names=names, stuck=stuck))
        for n, (names, workers, stuck) in enumerate(pools)
    )


def sentence(loads, found) -> str:
    return capacity_sentence(loads, needs(loads, found), found)


def test_stuck_workers_and_a_growing_backlog_are_named():
    loads = [load(size=900, incoming=360.0, growth=277.0, stuck=6)]
    found = fleet((("media",), 8, 6))
    (need,) = needs(loads, found)
    assert (need.kind, need.queues, need.more) == ("more_workers", ("media",), 4)
    assert need.sentence == "media needs 4 more workers: 6 of 8 are stuck; the backlog grows by 277 jobs/min."
    assert sentence(loads, found) == need.sentence


def test_queues_that_share_workers_may_be_too_many_together():
    """Each of the three keeps 5 of 10 workers busy: each alone has enough, all together lack 5."""
    loads = [load(name, size=50, workers=10, incoming=300.0, growth=40.0) for name in ("a", "b", "c")]
    assert sentence(loads, fleet((("a", "b", "c"), 10, 0))) == (
        "a, b and 1 more need 5 more workers: the backlog grows by 120 jobs/min."
    )
    # With a pool for each, every one has enough.
    apart = fleet((("a",), 10, 0), (("b",), 10, 0), (("c",), 10, 0))
    assert needs(loads, apart) == ()


def test_one_queue_that_has_too_few_threads_is_named_alone():
    loads = [
        load("a", size=50, workers=2, incoming=300.0, growth=40.0),
        load("b", workers=40, incoming=60.0),
    ]
    (need,) = needs(loads, fleet((("a", "b"), 40, 0)))
    assert (need.queues, need.more) == (("a",), 3)


def test_a_backlog_that_shrinks_needs_nothing_and_has_its_end():
    loads = [load(size=600, incoming=100.0, growth=-300.0, drain=DrainTime("draining", seconds=120.0))]
    assert sentence(loads, fleet((("media",), 8, 0))) == (
        "There are enough workers: the jobs that come in keep about 1.7 of 8 busy. media will be empty in 2 min."
    )


def test_all_stuck_workers_are_a_need_even_if_nothing_ever_ran():
    (need,) = needs([load(size=5, seconds=None, growth=None, stuck=8)], fleet((("media",), 8, 8)))
    assert need.sentence == "media needs 1 more worker: 8 of 8 are stuck."


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (load(size=5, seconds=None), "none of its jobs ended in the last five minutes"),
        (load(size=5, growth=None), "pools have counted its jobs for less than a minute"),
    ],
)
def test_what_cannot_be_known_is_not_guessed(one, expected):
    (need,) = needs([one], fleet((("media",), 8, 0)))
    assert (need.kind, need.more) == ("unknown", None)
    assert need.sentence == f"Whether media has enough workers is not known: {expected}."


def test_a_limit_is_not_a_lack_of_workers():
    loads = [load(size=50, limit=2, incoming=300.0, growth=180.0, obstacle="at_limit")]
    assert sentence(loads, fleet((("media",), 8, 0))) == (
        "media is at its limit of 2 jobs at once, and grows by 180 jobs/min: more workers do not help."
    )


def test_nothing_is_asked_for_a_paused_queue():
    loads = [load(size=50, paused=True, incoming=300.0, growth=180.0, obstacle="paused")]
    assert needs(loads, fleet((("media",), 8, 8))) == ()


def test_without_a_worker_or_a_pool():
    stray = load(size=3, workers=0, obstacle="no_worker")
    assert sentence([stray], fleet((("other",), 8, 0))) == "media has no worker, and 3 jobs wait."
    assert sentence([load(size=3)], fleet()) == "No pool is running and 3 jobs wait."
    assert sentence([load()], fleet()) == "No pool is running, and no job waits."


def test_growth_is_measured_since_the_newest_count_that_is_old_enough():
    parts = [
        Counts(10, sizes={"a": 90}, counted_at=600),
        Counts(11, sizes={"a": 30}, counted_at=660),
        Counts(12, sizes={}, counted_at=720),
    ]
    assert growth(parts, "a", 20, 725.0) == pytest.approx(-10 * 60 / 65)
    assert growth(parts, "a", 20, 780.0) == 20.0
    assert growth(parts[2:], "a", 20, 725.0) is None
    assert growth([Counts(11)], "a", 20, 725.0) is None


@pytest.mark.parametrize(
    ("size", "grew", "obstacle", "text"),
    [
        (0, 5.0, None, "empty"),
        (100, -50.0, None, "in 2 min"),
        (100, -50.0, "busy", "in 2 min"),
        (100, 277.4, "busy", "grows by 277/min"),
        (100, 0.1, None, "does not shrink"),
        (100, -50.0, "paused", "paused"),
        (100, -50.0, "no_pool", "no worker"),
        (100, None, None, "not known"),
    ],
)
def test_how_long_until_a_queue_is_empty(size, grew, obstacle, text):
    assert _drain(size, grew, obstacle).text == text
