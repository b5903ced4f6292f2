"""Unique jobs: at most one that never started waits per key, and no key outlives its job's wait."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from dayjob import Dead, Discard, Job
from server import wait_until


@pytest.fixture
def owner(keys, call):
    """Read who holds a unique key: owner(name, rest)."""

    def read(name, rest):
        value = call("GET", keys.unique(name, rest))
        return None if value is None else value.decode()

    return read


def test_a_duplicate_is_not_stored_and_returns_none(new_pool, look, owner):
    pool = new_pool()
    ran = []

    @pool.job
    def note(user: int):
        ran.append(user)

    first = note.enqueue_unique(user=1)
    assert first is not None
    assert note.enqueue_unique(user=1) is None
    assert pool.enqueuer.enqueue_unique("note", user=1) is None
    assert note.enqueue_unique(user=2) is not None
    assert note.enqueue(user=1) is not None
    assert owner("note", '{"user":1}\n') == first.id
    assert len(look.queue("note")) == 3
    with pool:
        assert pool.drain(60)
        assert sorted(ran) == [1, 1, 2]
        assert owner("note", '{"user":1}\n') is None
        assert note.enqueue_unique(user=1) is not None
        assert pool.drain(60)
    assert sorted(ran) == [1, 1, 1, 2]


def test_a_unique_job_has_the_options_of_the_using_by_which_it_was_enqueued(new_pool):
    pool = new_pool()

    @pool.job
    def note(user: int):
        pass

    assert note.enqueue_unique(user=1).source is None
    assert note.using(source="import").enqueue_unique(user=2).source == "import"
    assert note.using(source="import").using(unique_key="own").enqueue_unique(user=3).source == "import"
    assert note.using(unique_key="own").enqueue_unique(user=4) is None
    assert note.enqueue_unique(user=5).source is None
    assert note.enqueue(user=1).unique_key is None


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_the_key_is_released_before_the_job_starts_so_that_the_next_can_wait(new_pool, colour):
    # One slot, so that the next does not start before it is asked for again.
    pool = new_pool(concurrency=1)
    answers = []

    @pool.job
    def plain(user: int):
        if len(answers) < 2:
            answers.append(pool.enqueuer.enqueue_unique("plain", user=user))
            answers.append(pool.enqueuer.enqueue_unique("plain", user=user))

    @pool.job
    async def coloured(user: int):
        if len(answers) < 2:
            answers.append(pool.enqueuer.enqueue_unique("coloured", user=user))
            answers.append(pool.enqueuer.enqueue_unique("coloured", user=user))

    with pool:
        pool.enqueuer.enqueue_unique(colour, user=1)
        assert pool.drain(60)
    assert isinstance(answers[0], Job)
    assert answers[1] is None


@pytest.mark.parametrize("quick", [False, True], ids=["unknown", "known to be quick"])
def test_a_job_that_waits_for_a_worker_keeps_its_key(new_pool, look, keys, call, quick):
    pool = new_pool(concurrency=1)
    gate, started = threading.Event(), []

    @pool.job
    def note(user: int):
        if user >= 0:
            started.append(user)
            gate.wait(60)

    with pool:
        if quick:
            # So that a pool would fetch some ahead.
            pool.enqueuer.enqueue_many("note", [{"user": -1}] * 200)
            assert pool.drain(60)
        call("SET", keys.paused("note"), "1")
        for user in range(5):
            assert note.enqueue_unique(user=user) is not None
        call("DEL", keys.paused("note"))
        wait_until(lambda: started)
        # Longer than a pool keeps what no worker takes.
        assert not gate.wait(0.2)
        again = [user for user in range(5) if note.enqueue_unique(user=user) is not None]
        assert again == started == [0]
        gate.set()
        assert pool.drain(60)
    assert sorted(started) == [0, 0, 1, 2, 3, 4]


def test_until_done_the_key_is_kept_while_the_job_runs_and_through_its_retries(new_pool, owner, look):
    pool = new_pool()
    gate, runs = threading.Event(), []

    @pool.job(unique_until="done", backoff=0)
    def whole(job: Job, user: int):
        runs.append(whole.enqueue_unique(user=user))
        if job.fails == 0:
            raise ValueError("no")
        gate.wait(60)

    with pool:
        first = whole.enqueue_unique(user=1)
        wait_until(lambda: len(runs) == 2)
        assert runs == [None, None]
        assert owner("whole", '{"user":1}\n') == first.id
        gate.set()
        wait_until(lambda: look.total("done:whole"))
        assert owner("whole", '{"user":1}\n') is None
        assert whole.enqueue_unique(user=1) is not None


@pytest.mark.parametrize("end", ["discarded", "dead", "failed", "expired"])
@pytest.mark.parametrize("until", ["start", "done"])
def test_the_key_is_gone_when_its_job_has_ended_badly(new_pool, owner, look, until, end):
    pool = new_pool()

    @pool.job(unique_until=until, max_fails=1)
    def ends(kind: str):
        raise {"discarded": Discard, "dead": Dead, "failed": ValueError}[kind]("no")

    if end == "expired":
        assert ends.using(expires=0.001).enqueue_unique(kind=end) is not None
        wait_until(lambda at=look.now(): look.now() > at + 0.02)
    else:
        assert ends.enqueue_unique(kind=end) is not None
    with pool:
        assert pool.drain(60)
        assert owner("ends", f'{{"kind":"{end}"}}\n') is None
        assert ends.enqueue_unique(kind=end) is not None
        assert pool.drain(60)
    assert look.total("discarded:ends") + look.total("dead:ends") == 2


def test_unique_for_holds_for_its_time_whatever_becomes_of_the_job(new_pool, look):
    pool = new_pool()
    ran = []

    @pool.job
    def note(user: int):
        ran.append(user)

    rarely = note.using(unique_for=0.5)
    with pool:
        before = look.now()
        assert rarely.enqueue_unique(user=1) is not None
        wait_until(lambda: look.total("done:note") == 1)
        stored = wait_until(lambda: rarely.enqueue_unique(user=1))
        assert look.now() - before >= 0.5
        assert isinstance(stored, Job)
        assert pool.drain(60)
    assert ran == [1, 1]


def test_a_key_of_ones_own_may_be_a_string_or_a_part_of_the_arguments(new_pool, owner):
    pool = new_pool()

    @pool.job
    def note(user: int, text: str):
        pass

    by_word = note.using(unique_key="everyone")
    first = by_word.enqueue_unique(user=1, text="a")
    assert by_word.enqueue_unique(user=2, text="b") is None
    assert owner("note", "everyone") == first.id
    by_user = note.using(unique_key={"user": 1})
    second = by_user.enqueue_unique(user=1, text="a")
    assert by_user.enqueue_unique(user=1, text="b") is None
    assert owner("note", '{"user":1}\n') == second.id
    assert note.using(unique_key={"user": 2}).enqueue_unique(user=2, text="a") is not None
    with pool:
        assert pool.drain(60)
        assert owner("note", "everyone") is None
        assert owner("note", '{"user":1}\n') is None


def test_a_scheduled_unique_job_holds_its_key_until_it_runs(new_pool, owner, keys, call, look):
    pool = new_pool()
    ran = []

    @pool.job
    def note(user: int):
        ran.append(user)

    first = note.enqueue_unique_in(0.3, user=1)
    assert note.enqueue_unique(user=1) is None
    assert note.enqueue_unique_at(datetime.now(UTC) + timedelta(hours=1), user=1) is None
    assert owner("note", '{"user":1}\n') == first.id
    with pool:
        wait_until(lambda: ran)
        assert pool.drain(60)
        assert owner("note", '{"user":1}\n') is None
    far = note.enqueue_unique_at(datetime.now(UTC) + timedelta(days=100), user=1)
    assert far is not None
    # Thirty days after it is due, should everything be forgotten.
    left = call("PTTL", keys.unique("note", '{"user":1}\n')) / 86_400_000
    assert 129.9 < left < 130.001
    assert len(look.members(keys.scheduled)) == 1


@pytest.mark.parametrize("until", ["start", "done"])
def test_a_key_is_never_released_by_another_job(new_pool, owner, keys, call, until):
    pool = new_pool()
    ran = []

    @pool.job(unique_until=until)
    def note(user: int):
        ran.append(user)

    note.enqueue_unique(user=1)
    call("SET", keys.unique("note", '{"user":1}\n'), "somebody-else")
    with pool:
        assert pool.drain(60)
    assert ran == [1]
    assert owner("note", '{"user":1}\n') == "somebody-else"


def test_a_retried_job_does_not_release_the_key_of_the_one_that_waits_since(new_pool, owner, look):
    pool = new_pool()
    second = []

    @pool.job(backoff=0, max_fails=3)
    def note(job: Job, user: int):
        if not second:
            second.append(note.enqueue_unique_in(3600, user=user))
        if job.fails < 2:
            raise ValueError("no")

    with pool:
        assert note.enqueue_unique(user=1) is not None
        wait_until(lambda: look.total("done:note"))
    assert owner("note", '{"user":1}\n') == second[0].id


def test_a_payload_that_names_a_key_outside_the_unique_ones_is_not_obeyed(new_pool, look, keys, call):
    pool = new_pool()
    ran = []
    pool.register("note", lambda: ran.append(1))
    victim = keys.prefix + "precious"
    call("SET", victim, "n")
    call("LPUSH", keys.queue("note"), look.payload("note", "n", unique=True, unique_key=victim))
    with pool:
        wait_until(lambda: ran)
        assert pool.drain(60)
    assert call("GET", victim) == b"n"


def test_what_go_enqueuers_write_as_the_value_of_a_key_is_released_too(new_pool, look, keys, call):
    pool = new_pool()
    ran = []

    @pool.job
    def note(user: int):
        ran.append(user)

    key = keys.unique("note", '{"user":1}\n')

    def payload(job_id, user):
        return look.payload("note", job_id, args={"user": user}, unique=True, unique_key=key)

    with pool:
        call("SET", key, "1")
        call("LPUSH", keys.queue("note"), payload("a", 1))
        wait_until(lambda: ran == [1])
        assert pool.drain(60)
        assert call("EXISTS", key) == 0
        # The newest arguments are in the key, and are the ones to run.
        call("SET", key, payload("b", 2))
        call("LPUSH", keys.queue("note"), payload("b", 1))
        wait_until(lambda: ran == [1, 2])
        assert pool.drain(60)
        assert call("EXISTS", key) == 0
