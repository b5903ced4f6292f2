"""Services and outages: loops that are started, woken and stopped, and what is logged while Redis is away."""

from __future__ import annotations

import logging
import random
import threading
import time

import pytest

from dayjob.errors import Rejected, StoreError, Unavailable
from dayjob.store import addresses
from dayjob.store.connection_options import connection_options
from dayjob.store.keys import Keys
from dayjob.worker import service
from dayjob.worker.pool_links import PoolLinks
from dayjob.worker.service import (
    BACKOFF_SECONDS,
    OUTAGE_AFTER_SECONDS,
    Outage,
    Service,
    backoff,
)
from server import wait_until

FAR = 3600.0
#: Promise 12: seconds after Redis answers again within which every loop of a pool has made its next try.
RESUME_SECONDS = 5.0


def died_unexpectedly(name, error):
    raise AssertionError(f"{name} died: {error!r}")


def end(one: Service) -> None:
    one.stop()
    assert one.join(time.monotonic() + 60)


class Wake(threading.Event):
    """The event on which a service waits; it returns at once, and keeps how long the service meant to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return True


def test_a_service_repeats_its_step_until_it_is_stopped():
    rounds: list[int] = []
    one = Service("test", lambda: rounds.append(1) or 0.0, died=died_unexpectedly)
    one.start()
    wait_until(lambda: len(rounds) >= 3)
    assert not one.stopping
    end(one)
    assert one.stopping
    count = len(rounds)
    assert one.join(time.monotonic())
    assert len(rounds) == count


@pytest.mark.parametrize("wait", [None, FAR])
def test_a_service_that_waits_ends_when_it_is_stopped(wait):
    stepped = threading.Event()

    def step():
        stepped.set()
        return wait

    one = Service("test", step, died=died_unexpectedly)
    one.start()
    assert stepped.wait(60)
    end(one)


def test_a_service_that_was_stopped_before_it_started_makes_no_round():
    rounds: list[int] = []
    one = Service("test", lambda: rounds.append(1), died=died_unexpectedly)
    one.stop()
    one.start()
    assert one.join(time.monotonic() + 60)
    assert rounds == []


def test_a_service_that_never_started_has_ended():
    assert Service("test", lambda: None, died=died_unexpectedly).join(time.monotonic())


def test_a_service_can_be_joined_while_it_is_being_started(monkeypatch):
    """A pool stops while it starts if one of its first loops dies."""
    one, joined, start = Service("test", lambda: FAR, died=died_unexpectedly), [], threading.Thread.start

    def join_and_start(thread):
        joined.append(one.join(time.monotonic()))
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", join_and_start)
    one.start()
    assert joined == [True]
    end(one)


def test_joining_a_service_whose_step_is_under_way_ends_at_the_deadline():
    entered, go = threading.Event(), threading.Event()

    def step():
        entered.set()
        go.wait(60)

    one = Service("test", step, died=died_unexpectedly)
    one.start()
    assert entered.wait(60)
    one.stop()
    assert not one.join(time.monotonic())
    go.set()
    assert one.join(time.monotonic() + 60)


def test_a_service_can_stop_and_join_itself():
    joined: list[bool] = []

    def step():
        one.stop()
        joined.append(one.join(time.monotonic() + FAR))

    one = Service("test", step, died=died_unexpectedly)
    one.start()
    assert one.join(time.monotonic() + 60)
    assert joined == [True]


def test_a_step_that_redis_refuses_is_repeated_after_longer_and_longer_waits():
    """After a round that succeeds the waits begin anew."""
    failing = [True] * 7 + [False] + [True]
    rounds: list[int] = []

    def step():
        rounds.append(1)
        if len(rounds) > len(failing):
            one.stop()
        elif failing[len(rounds) - 1]:
            raise Unavailable("away")
        return 5.0

    one = Service("test", step, died=died_unexpectedly)
    one._wake = wake = Wake()
    one.start()
    assert one.join(time.monotonic() + 60)
    longest = BACKOFF_SECONDS[-1]
    assert wake.waits == [*BACKOFF_SECONDS, longest, longest, 5.0, BACKOFF_SECONDS[0], 5.0]


def test_every_loop_tries_again_within_the_promised_time_after_redis_answers():
    """At worst a try began just before Redis answered again: it ends at its timeout, and one wait follows."""
    longest_wait = max(map(backoff, range(1000)))
    links = PoolLinks(addresses.parse_url("redis://127.0.0.1:6379"), Keys("test"), Outage())
    for link in links._all:
        options = connection_options(link._address, link._timeout, "test")
        longest_try = max(options["socket_timeout"], options["socket_connect_timeout"])
        assert longest_try + longest_wait <= RESUME_SECONDS


def test_a_service_ends_at_once_when_redis_fails_while_it_is_stopped(caplog):
    def step():
        one.stop()
        raise Rejected("no")

    one = Service("test", step, died=died_unexpectedly)
    one.start()
    assert one.join(time.monotonic() + 60)
    assert caplog.records == []


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), SystemExit(1)])
def test_any_other_error_of_a_step_ends_the_service_and_is_reported_once(error):
    deaths: list[tuple[str, BaseException]] = []

    def step():
        raise error

    one = Service("test", step, died=lambda name, why: deaths.append((name, why)))
    one.start()
    assert one.join(time.monotonic() + 60)
    assert deaths == [("test", error)]


@pytest.mark.parametrize(("error", "lines"), [(Rejected("no such command"), 1), (Unavailable("away"), 0)])
def test_a_refusal_is_logged_once_a_minute_and_an_outage_is_left_to_the_outage(caplog, error, lines):
    rounds: list[int] = []

    def step():
        rounds.append(1)
        if len(rounds) == 5:
            one.stop()
        raise error

    one = Service("test", step, died=died_unexpectedly)
    one._wake = Wake()
    with caplog.at_level(logging.WARNING, "dayjob.worker"):
        one.start()
        assert one.join(time.monotonic() + 60)
    assert len(caplog.records) == lines


def test_the_time_of_the_last_round_is_kept():
    before = time.monotonic()
    one = Service("test", lambda: None, died=died_unexpectedly)
    one.beaten_at = 0.0
    one.start()
    wait_until(lambda: one.beaten_at >= before)
    end(one)


def test_services_started_and_stopped_by_many_threads_all_end():
    """Steps complete, fail, wait and die while other threads stop the same services, some before they have begun."""
    deaths: list[str] = []
    begin = threading.Barrier(8)
    services: list[Service] = []

    def new_step(rng: random.Random):
        def step():
            kind = rng.randrange(12)
            if kind == 0:
                raise ValueError("broken")
            if kind < 4:
                raise StoreError("refused")
            return (0.0, 0.0001, FAR, None)[kind % 4]

        return step

    def start_and_stop(seed: int) -> None:
        rng = random.Random(seed)
        begin.wait(60)
        for number in range(25):
            one = Service(f"{seed}/{number}", new_step(rng), died=lambda name, _error: deaths.append(name))
            services.append(one)
            stoppers = [threading.Thread(target=one.stop) for _ in range(2)]
            if rng.random() < 0.2:
                stoppers[0].start()
                one.start()
            else:
                one.start()
                stoppers[0].start()
            stoppers[1].start()
            for stopper in stoppers:
                stopper.join(60)

    logging.disable(logging.ERROR)
    try:
        threads = [threading.Thread(target=start_and_stop, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(services) == 8 * 25
        deadline = time.monotonic() + 60
        assert [one.name for one in services if not one.join(deadline)] == []
    finally:
        logging.disable(logging.NOTSET)
    assert len(deaths) == len(set(deaths)), "a service died twice"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(service, "time", clock)
    return clock


def test_a_short_outage_is_not_logged(clock, caplog):
    outage = Outage()
    outage.failed(Unavailable("cut"))
    clock.now += OUTAGE_AFTER_SECONDS / 2
    outage.failed(Unavailable("cut"))
    assert outage.away == pytest.approx(OUTAGE_AFTER_SECONDS / 2)
    outage.succeeded()
    assert outage.away == 0.0
    assert caplog.records == []


def test_an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_ends(clock, caplog):
    outage = Outage()
    counts = []
    for later in (0, 1, 1, 58, 1, 59, 1):
        clock.now += later
        outage.failed(Unavailable("refused"))
        counts.append(len(caplog.records))
    assert counts == [0, 1, 1, 1, 2, 2, 3]
    outage.succeeded()
    outage.succeeded()
    assert len(caplog.records) == 4


def test_a_second_outage_is_logged_like_the_first(clock, caplog):
    outage = Outage()
    for expected in (2, 4):
        outage.failed(Unavailable("refused"))
        clock.now += 1
        outage.failed(Unavailable("refused"))
        outage.succeeded()
        assert len(caplog.records) == expected


def test_only_a_request_that_was_sent_makes_other_connections_suspect(clock):
    outage = Outage()
    outage.failed(Unavailable("refused", sent=False))
    outage.failed(Rejected("no"))
    assert outage.failed_at == 0.0
    outage.failed(Unavailable("cut", sent=True))
    assert outage.failed_at == clock.now


def test_redis_is_away_from_the_first_failure_on(clock):
    outage = Outage()
    assert outage.away == 0.0
    outage.failed(Unavailable("refused"))
    assert outage.away > 0.0
    clock.now += 5
    assert outage.away == 5.0
