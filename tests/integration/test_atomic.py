"""Atomic jobs: what they enqueue exists exactly if they completed."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

import dayjob
from dayjob import Enqueuer, Job
from dayjob.admin.client import Admin
from dayjob.errors import BadOption, TooLarge
from dayjob.store.op import plain
from dayjob.store.ops import children
from server import wait_until


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="test") as found:
        yield found


def numbers(jobs):
    """The argument `n` of stored jobs, in order."""
    return [job["args"]["n"] for job in jobs]


@pytest.fixture
def family(new_pool):
    """A pool whose atomic job calls a function of the test; its children stay in their queue, which no pool serves."""

    def make(act, *, is_async=False, served=False, options=None, **pool_options):
        pool = new_pool(concurrency=2, **pool_options)
        other = new_pool()
        child = (pool if served else other).register("child", lambda n: None)
        if is_async:

            async def parent(job: Job) -> None:
                await act(job, child)
        else:

            def parent(job: Job) -> None:
                act(job, child)

        handle = pool.register("parent", parent, **{"atomic": True, "backoff": 0.0, **(options or {})})
        return pool, handle, child

    return make


# When they are stored.


@pytest.mark.parametrize("is_async", [False, True])
def test_children_are_stored_when_the_job_completes_and_not_before(family, look, is_async):
    seen = []

    def enqueue(job, child):
        for n in range(3):
            child.enqueue(n=n)
        seen.append(numbers(look.queue("child")))

    async def aenqueue(job, child):
        for n in range(3):
            await child.aenqueue(n=n)
        seen.append(numbers(look.queue("child")))

    pool, parent, _ = family(aenqueue if is_async else enqueue, is_async=is_async)
    parent.enqueue()
    with pool:
        assert pool.drain(60)
    assert seen == [[]]
    assert numbers(look.queue("child")) == [0, 1, 2]
    assert look.totals() == {"done:parent": 1}


def test_every_kind_of_enqueue_is_kept_and_the_caller_gets_the_job_at_once(family, look, keys, call):
    later = datetime.now(UTC) + timedelta(hours=2)
    found = {}

    def act(job, child):
        by_name = Enqueuer(child._pool.namespace, redis=child._pool.redis)
        found["plain"] = child.enqueue(n=0)
        found["in"] = child.enqueue_in(3600, n=1)
        found["at"] = child.enqueue_at(later, n=2)
        found["unique"] = child.enqueue_unique(n=3)
        found["again"] = child.enqueue_unique(n=3)
        found["id"] = child.using(id="chosen").enqueue(n=4)
        found["expires"] = child.using(expires=60, source=7).enqueue(n=5)
        found["many"] = child._pool.enqueuer.enqueue_many("child", [{"n": 6}, {"n": 7}])
        found["name"] = by_name.enqueue("child", n=8)
        found["unique in"] = child.enqueue_unique_in(3600, n=9)
        found["state"] = child._pool.enqueuer.state(found["plain"])
        found["stored"] = look.queue("child") + look.members(look.keys.scheduled)
        by_name.close()

    pool, parent, child = family(act)
    parent.enqueue()
    with pool:
        assert pool.drain(60)
        assert pool.enqueuer.state(found["plain"]) == "waiting"
    assert found["stored"] == []
    assert found["state"] == "pending"
    assert numbers(look.queue("child")) == [0, 3, 4, 5, 6, 7, 8]
    assert sorted(numbers(look.members(look.keys.scheduled))) == [1, 2, 9]
    assert {job["id"] for job in look.queue("child")} == {
        found[kind].id for kind in ("plain", "unique", "id", "expires", "name")
    } | {job.id for job in found["many"]}
    assert call("GET", found["unique"].unique_key) == found["unique"].id.encode()
    assert child.using(id="chosen").enqueue(n=99).existed
    (expiring,) = [job for job in look.queue("child") if job["args"]["n"] == 5]
    assert expiring["source"] == 7
    assert 0 < expiring["expires"] / 1000 - look.now() <= 60
    assert b"child" in call("SMEMBERS", keys.known_jobs)


def test_a_child_runs_in_the_pool_of_its_parent_and_in_another(family, new_pool):
    ran = []
    pool, parent, _ = family(lambda job, child: (child.enqueue(n=1), elsewhere.enqueue(n=2)), served=True)
    other = new_pool()

    @other.job
    def elsewhere(n: int) -> None:
        ran.append(n)

    parent.enqueue()
    with pool, other:
        wait_until(lambda: ran == [2])
        assert pool.drain(60)


def test_a_chain_of_atomic_jobs_takes_one_exchange_for_each(new_pool, look):
    pool = new_pool(concurrency=1)

    @pool.job(atomic=True)
    def hop(n: int) -> None:
        if n:
            hop.enqueue(n=n - 1)

    hop.enqueue(n=100)
    with pool:
        assert pool.drain(60)
        exchanges = pool._runtime.state.exchanges
    assert look.totals() == {"done:hop": 101}
    # With one more exchange for each, there would be more than 200.
    assert exchanges < 190


def test_now_another_namespace_and_jobs_that_are_not_atomic_are_sent_at_once(
    family, look, redis_url, namespace
):
    seen = []
    elsewhere = Enqueuer(namespace + "x", redis=redis_url)

    def act(job, child):
        child.using(now=True).enqueue(n=1)
        elsewhere.enqueue("child", n=2)
        seen.append((numbers(look.queue("child")), elsewhere.state(job.id)))
        raise dayjob.Dead("enough")

    pool, parent, _ = family(act)
    parent.enqueue()
    with pool:
        assert pool.drain(60)
    assert seen == [([1], None)]
    assert look.call("LLEN", f"{namespace}x:jobs:child") == 1
    elsewhere.close()

    pool, parent, _ = family(act, options={"atomic": False})
    parent.enqueue()
    with pool:
        assert pool.drain(60)
    assert seen[1] == ([1, 1], None)


def test_the_pool_has_a_default_that_a_job_type_overrides(new_pool):
    pool = new_pool(atomic=True)
    assert pool.register("one", lambda: None).options.atomic
    assert not pool.register("two", lambda: None, atomic=False).options.atomic
    assert not new_pool().register("three", lambda: None).options.atomic
    with pytest.raises(BadOption, match="atomic=1: write True or False"):
        new_pool(atomic=1)
    with pytest.raises(BadOption, match="now='yes': write True or False"):
        pool.enqueuer.using(now="yes")


# Attempts that do not complete.

ENDINGS = {
    "error": ValueError("no"),
    "retry": dayjob.Retry("later", after=0),
    "snooze": dayjob.Snooze("later", after=0),
    "discard": dayjob.Discard("never"),
    "dead": dayjob.Dead("never"),
    "give back": dayjob.GiveBack("elsewhere"),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_attempt_that_does_not_complete_leaves_no_children(family, look, ending, is_async):
    attempts = []

    def act(job, child):
        attempts.append(job.attempt)
        child.enqueue(n=len(attempts))
        if len(attempts) == 1:
            raise ENDINGS[ending]

    async def aact(job, child):
        attempts.append(job.attempt)
        await child.aenqueue(n=len(attempts))
        if len(attempts) == 1:
            raise ENDINGS[ending]

    pool, parent, _ = family(aact if is_async else act, is_async=is_async)
    parent.enqueue()
    again = ending not in ("discard", "dead")
    with pool:
        wait_until(lambda: len(attempts) == 1 + again)
        wait_until(lambda: not look.retry() and not look.members(look.keys.scheduled))
        assert pool.drain(60)
    assert numbers(look.queue("child")) == ([2] if again else [])


def test_an_attempt_whose_result_cannot_be_kept_leaves_no_children(new_pool, look):
    pool = new_pool()
    child = new_pool().register("child", lambda n: None)

    @pool.job(atomic=True, keep=60, max_fails=1)
    def parent():
        child.enqueue(n=1)
        return object()

    @pool.job(atomic=True, keep=60)
    def sound() -> int:
        child.enqueue(n=2)
        return 7

    parent.enqueue()
    job = sound.enqueue()
    with pool:
        assert sound.result(job, 60) == 7
        assert pool.drain(60)
    assert numbers(look.queue("child")) == [2]


def test_a_cancelled_job_and_one_past_its_timeout_leave_no_children(family, look, admin):
    started, go = threading.Event(), threading.Event()

    def act(job, child):
        child.enqueue(n=1)
        started.set()
        while not (job.checkin() or go.is_set()):
            go.wait(0.01)

    pool, parent, _ = family(act, beat=0.2)
    job = parent.enqueue()
    with pool:
        assert started.wait(60)
        admin.cancel(job.id)
        wait_until(lambda: look.total("cancelled:parent") == 1)
    assert look.queue("child") == []

    started.clear()
    pool, parent, _ = family(act, options={"timeout": 0.05, "max_fails": 1})
    parent.enqueue()
    with pool:
        wait_until(look.dead)
    go.set()
    assert look.queue("child") == []


def test_hooks_send_at_once_whatever_the_colour(new_pool, look):
    pool = new_pool()
    child = new_pool().register("child", lambda n: None)

    def alarm(job, error):
        child.enqueue(n=1)

    @pool.job(atomic=True, max_fails=1, on_dead=alarm)
    async def fails() -> None:
        await child.aenqueue(n=2)
        raise ValueError

    @pool.job(atomic=True, max_fails=1, on_dead=alarm)
    def fails_too() -> None:
        child.enqueue(n=3)
        raise ValueError

    fails.enqueue()
    fails_too.enqueue()
    with pool:
        wait_until(lambda: len(look.dead()) == 2)
    assert numbers(look.queue("child")) == [1, 1]


def test_threads_and_tasks_of_the_handler_are_part_of_the_job(family, look):
    def act(job, child):
        context = contextvars.copy_context()
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(lambda n=n: child.enqueue(n=n),))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        context.run(child.enqueue, n=20)
        late.append(context)
        if job.attempt == 1:
            raise ValueError

    async def gather(job, child):
        await asyncio.gather(
            *(child.aenqueue(n=n) for n in range(20)), asyncio.to_thread(child.enqueue, n=20)
        )
        if job.attempt == 1:
            raise ValueError

    late = []
    for is_async, handler in ((False, act), (True, gather)):
        pool, parent, child = family(handler, is_async=is_async)
        parent.enqueue()
        with pool:
            wait_until(lambda: len(look.queue("child")) == 21)
            assert pool.drain(60)
        assert sorted(numbers(look.queue("child"))) == list(range(21))
        look.call("DEL", look.keys.queue("child"))
    # The job has ended, so it keeps nothing more.
    late[0].run(child.enqueue, n=99)
    assert numbers(look.queue("child")) == [99]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_process_that_the_handler_forks_sends_at_once(family, look):
    def act(job, child):
        child.enqueue(n=1)
        pid = os.fork()
        if pid == 0:
            child.enqueue(n=2)
            os._exit(0)
        os.waitpid(pid, 0)
        raise dayjob.Dead("enough")

    pool, parent, _ = family(act)
    parent.enqueue()
    with pool:
        assert pool.drain(60)
    assert numbers(look.queue("child")) == [2]


def test_a_commit_inside_the_job_keeps_the_children_and_a_rollback_drops_them(
    family, look, redis_url, namespace
):
    commits = []

    def act(job, child):
        committed = child.using(on_commit=commits.append)
        committed.enqueue(n=1)
        commits.pop()()
        committed.enqueue(n=2)
        seen.append(look.queue("child"))

    seen = []
    pool, parent, _ = family(act)
    parent.enqueue()
    with pool:
        assert pool.drain(60)
    assert seen == [[]]
    assert numbers(look.queue("child")) == [1]


# Many children.


def many(child, count=2300):
    """Plain, later and unique jobs, of two names."""
    for n in range(count):
        child.enqueue(n=n)
    for n in range(700):
        child.enqueue_in(3600, n=n)
    child.enqueue_unique(n=-1)
    child._pool.enqueuer.enqueue_many("other", [{"n": n} for n in range(10)])


def test_thousands_of_children_are_staged_and_keep_their_order(family, look, call, keys):
    seen = []

    def act(job, child):
        if child._pool.registry.names() == ["child"]:
            child._pool.register("other", lambda n: None)
        many(child)
        seen.append(child._pool.enqueuer.run(plain("LLEN", keys.queue("child"))))
        if job.attempt == 1:
            raise ValueError

    pool, parent, _ = family(act)
    parent.enqueue()
    with pool:
        wait_until(lambda: call("LLEN", keys.queue("child")) == 2301)
        wait_until(lambda: call("ZCARD", keys.released) == 0)
    assert seen == [0, 0]
    # The unique one is stored in the step that completes the job, the staged ones a moment later.
    assert [n for n in numbers(look.queue("child")) if n >= 0] == list(range(2300))
    assert numbers(look.queue("other")) == list(range(10))
    assert sorted(numbers(look.members(look.keys.scheduled))) == list(range(700))
    assert all(3000 < score - look.now() <= 3600 for score in look.scores(keys.scheduled))
    assert call("KEYS", f"{keys.prefix}staged:*") == []
    assert look.total("done:parent") == 1


def test_a_large_attempt_that_loses_what_it_staged_stages_it_again(family, look, call, keys, monkeypatch):
    lost = []
    next_part = children.Children.next_part

    def lossy(self):
        part = next_part(self)
        if part is None and not lost:
            # All is staged, and the next exchange completes the job: Redis has forgotten one list by then.
            lost.append(pool.enqueuer.run(plain("KEYS", f"{keys.prefix}staged:*")))
            pool.enqueuer.run(plain("DEL", lost[0][0]))
        return part

    monkeypatch.setattr(children.Children, "next_part", lossy)
    pool, parent, _ = family(lambda job, child: [child.enqueue(n=n) for n in range(1200)])
    parent.enqueue()
    with pool:
        wait_until(lambda: call("LLEN", keys.queue("child")) == 1200)
        assert pool.drain(60)
    assert lost[0]
    assert numbers(look.queue("child")) == list(range(1200))
    assert look.total("done:parent") == 1


def test_too_many_jobs_with_unique_keys_are_refused_in_words(family, look):
    errors = []

    def act(job, child):
        try:
            for n in range(501):
                child.enqueue_unique(n=n)
        except TooLarge as error:
            errors.append(str(error))
            raise

    pool, parent, _ = family(act, options={"max_fails": 1})
    parent.enqueue()
    with pool:
        wait_until(look.dead)
    assert "at most 500 jobs with a unique key" in errors[0]
    assert look.queue("child") == []


def test_a_queue_of_a_wrong_type_keeps_the_job_held_until_it_is_repaired(family, look, call, keys):
    call("SET", keys.queue("child"), "wrong")
    pool, parent, _ = family(lambda job, child: child.enqueue(n=1))
    parent.enqueue()
    with pool:
        wait_until(lambda: pool._runtime.fetcher._outbox.stuck)
        assert look.totals() == {}
        call("DEL", keys.queue("child"))
        wait_until(lambda: look.total("done:parent") == 1)
    assert numbers(look.queue("child")) == [1]


def test_children_wait_since_their_job_completed(family, look, monkeypatch):
    monkeypatch.setattr(children, "MAX_AGE_SECONDS", 0.0)
    built = []

    def act(job, child):
        built.append(child.using(expires=60).enqueue(n=1).enqueued_at)

    pool, parent, _ = family(act)
    parent.enqueue()
    with pool:
        assert pool.drain(60)
    (job,) = look.queue("child")
    assert built[0] * 1000 - 1 <= job["at"]
    assert job["expires"] / 1000 - look.now() <= 60
    assert list(job)[-2:] == ["expires", "at"]
