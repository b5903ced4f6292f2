"""Batches: each callback is enqueued once for the state of the members, whatever ends them."""

from __future__ import annotations

import asyncio
import threading

import pytest

import dayjob
from dayjob import Job
from dayjob.admin.client import Admin
from dayjob.errors import BadArguments, BadOption, NotReady
from dayjob.store.link import walk
from dayjob.store.ops import batches
from server import wait_until

EVENTS = ("success", "complete", "dead")


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="test") as found:
        yield found


class Program:
    """A pool whose members do what the test asks of them, and whose callbacks note that they ran."""

    def __init__(self, pool):
        self.pool = pool
        self.called = []
        self.ran = []
        self.acts = {}
        self.lock = threading.Lock()

        @pool.job(max_fails=1)
        def member(job: Job, n: int) -> None:
            with self.lock:
                self.ran.append(n)
            act = self.acts.get(n)
            if act is not None:
                act(job)

        def note(event):
            def callback(job: Job, month: int = 0) -> None:
                progress = job.batch.progress()
                with self.lock:
                    self.called.append((event, month, job.batch_id, progress.left))

            return callback

        self.member = member
        self.callbacks = {f"on_{event}": pool.register(f"batch.{event}", note(event)) for event in EVENTS}

    def batch(self, **options):
        return self.pool.batch(**{**self.callbacks, **options})

    def events(self):
        with self.lock:
            return sorted(event for event, *_ in self.called)


@pytest.fixture
def program(new_pool):
    return Program(new_pool(concurrency=4, beat=0.2))


def fail(job):
    raise dayjob.Dead("no")


def test_success_and_complete_come_once_when_every_member_has_completed(program, look, link, keys):
    with program.batch(args={"month": 11}, description="November mails") as batch:
        for n in range(5):
            program.member.enqueue(n=n)
        program.member.enqueue_many([{"n": n} for n in range(5, 1200)])
        program.member.enqueue_in(0, n=1200)
    assert batch.progress().total == batch.progress().left == 1201
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "success"])
        assert program.pool.drain(60)
    assert sorted(program.ran) == list(range(1201))
    assert sorted(program.called) == [("complete", 11, batch.id, 0), ("success", 11, batch.id, 0)]
    progress = batch.progress()
    assert (progress.total, progress.completed, progress.failed, progress.dead, progress.left) == (
        1201,
        1201,
        0,
        0,
        0,
    )
    assert progress.eta == 0.0
    stored = walk(link, batches.read(keys, batch.id))
    assert (stored.state, stored.description) == ("succeeded", "November mails")
    assert set(stored.sent) == {"success", "complete"}
    assert 604_000 < look.call("TTL", keys.batch(batch.id)) <= 604_800


def test_a_death_is_called_at_once_and_a_retry_of_the_member_still_brings_success(program, admin, look):
    program.acts[1] = fail
    gate = threading.Event()
    program.acts[2] = lambda job: gate.wait(60)
    with program.batch() as batch:
        for n in range(3):
            program.member.enqueue(n=n)
    with program.pool:
        wait_until(lambda: program.events() == ["dead"])
        gate.set()
        wait_until(lambda: program.events() == ["complete", "dead"])
        assert (batch.progress().dead, batch.progress().completed, batch.progress().left) == (1, 2, 0)
        del program.acts[1]
        (dead,) = look.dead()
        admin.retry(dead["id"])
        wait_until(lambda: program.events() == ["complete", "dead", "success"])
        assert program.pool.drain(60)
    assert (batch.progress().dead, batch.progress().completed) == (0, 3)
    assert len(program.called) == 3


def test_a_member_that_fails_and_runs_again_is_not_ended(new_pool, look):
    pool = new_pool(concurrency=1)
    called = []
    pool.register("called", lambda: called.append(1))
    callback = pool.registry.get("called")

    @pool.job(backoff=3600.0)
    def fails() -> None:
        raise ValueError

    with pool.batch(on_complete=callback) as batch:
        fails.enqueue()
    with pool:
        wait_until(look.retry)
        progress = batch.progress()
        assert (progress.failed, progress.left, progress.dead) == (1, 1, 0)
    assert called == []


def test_an_empty_batch_succeeds(program):
    with program.batch() as batch:
        pass
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "success"])
    assert batch.progress() == type(batch.progress())(0, 0, 0, 0, 0, 0.0)


def test_members_add_members_and_the_batch_waits_for_them(program):
    def add(job):
        with job.batch:
            program.member.enqueue(n=10)
            program.member.enqueue(n=11)

    program.acts[0] = add
    program.acts[10] = lambda job: gate.wait(60)
    gate = threading.Event()
    with program.batch() as batch:
        program.member.enqueue(n=0)
    with program.pool:
        wait_until(lambda: {10, 11} <= set(program.ran))
        wait_until(lambda: batch.progress().completed == 2)
        assert program.events() == []
        gate.set()
        wait_until(lambda: program.events() == ["complete", "success"])
    assert batch.progress().total == 3


def test_an_atomic_member_adds_members_in_the_step_that_completes_it(new_pool, look):
    pool = new_pool(concurrency=2)
    called, ran = [], []

    @pool.job(atomic=True, backoff=0.0)
    def parent(job: Job) -> None:
        with job.batch:
            child.enqueue_many([{"n": n} for n in range(3)])
        child.enqueue(n=99)
        if job.attempt == 1:
            raise ValueError

    @pool.job
    def child(job: Job, n: int) -> None:
        ran.append((n, job.batch_id))

    @pool.job
    def report(job: Job) -> None:
        called.append(job.batch.progress())

    with pool.batch(on_success=report) as batch:
        parent.enqueue()
    with pool:
        wait_until(lambda: called)
        assert pool.drain(60)
    assert sorted(ran, key=str) == sorted([(n, batch.id) for n in range(3)] + [(99, None)], key=str)
    assert [(one.total, one.completed) for one in called] == [(4, 4)]


def test_an_atomic_job_cannot_start_a_batch_and_learns_it_in_words(new_pool, look):
    pool = new_pool()

    @pool.job(atomic=True, max_fails=1)
    def parent() -> None:
        with pool.batch():
            parent.enqueue()

    parent.enqueue()
    with pool:
        wait_until(look.dead)
    assert "an atomic job cannot start a batch" in look.dead()[0]["err"]


def test_a_batch_in_a_batch_is_a_member_of_it(program, admin, look):
    program.acts[2] = fail
    outer = program.batch(args={"month": 1})
    with outer:
        program.member.enqueue(n=0)
        with program.batch(args={"month": 2}):
            program.member.enqueue(n=1)
            program.member.enqueue(n=2)
        with program.batch(args={"month": 3}):
            pass
        program.member.enqueue(n=3)
    assert outer.progress().total == 4
    with program.pool:
        wait_until(lambda: len(program.called) == 6)
        assert sorted(one[:2] for one in program.called) == [
            ("complete", 1), ("complete", 2), ("complete", 3), ("dead", 1), ("dead", 2), ("success", 3),
        ]  # fmt: skip
        del program.acts[2]
        admin.retry(look.dead()[0]["id"])
        wait_until(lambda: len(program.called) == 8)
        assert program.pool.drain(60)
    assert sorted(one[:2] for one in program.called if one[0] == "success") == [
        ("success", 1), ("success", 2), ("success", 3),
    ]  # fmt: skip
    assert (outer.progress().completed, outer.progress().dead) == (4, 0)


# What ends a member.


def test_discarded_expired_deleted_and_purged_members_have_ended(program, admin, call, keys):
    def discard(job):
        raise dayjob.Discard("not needed")

    program.acts[0] = discard
    with program.batch() as batch:
        program.member.enqueue(n=0)
        program.member.using(expires=0.001).enqueue(n=1)
        later = program.member.enqueue_in(3600, n=2)
        gone = program.member.enqueue(n=3)
    admin.delete(later.id)
    admin.delete(gone.id)
    assert batch.progress().left == 2
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "success"])
    assert program.ran == [0]

    with program.batch() as purged:
        program.member.enqueue_many([{"n": n} for n in range(4, 10)])
    admin.purge("member")
    assert purged.progress().left == 0


def test_an_undo_reopens_the_batch(program, admin):
    with program.batch() as batch:
        job = program.member.enqueue(n=0)
    admin.delete(job.id)
    assert batch.progress().left == 0
    (deletion,) = admin.bin()
    admin.undo(deletion.id)
    assert batch.progress().left == 1


def test_a_killed_member_is_dead_and_an_unreadable_one_has_ended(program, admin, call, keys, look):
    with program.batch() as batch:
        killed = program.member.enqueue_in(3600, n=0)
        spoiled = program.member.enqueue(n=1)
    admin.kill(killed.id)
    assert batch.progress().dead == 1
    (raw,) = call("LRANGE", keys.queue("member"), 0, -1)
    call("LSET", keys.queue("member"), 0, raw.replace(b'"name":"member"', b'"name":"other"'))
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "dead"])
    assert (batch.progress().dead, batch.progress().left) == (2, 0)
    assert spoiled.id


def test_a_member_that_is_unreadable_when_it_falls_due_has_ended(program, call, keys):
    with program.batch() as batch:
        program.member.enqueue_in(3600, n=0)
    (raw,) = call("ZRANGE", keys.scheduled, 0, -1)
    call("DEL", keys.scheduled)
    call("ZADD", keys.scheduled, 1, raw.replace(b'"name":"member"', b'"name":7'))
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "dead"])
    assert (batch.progress().dead, batch.progress().left) == (1, 0)
    assert call("LLEN", keys.broken) == 1


def test_a_member_whose_process_crashes_three_times_ends_in_the_sweep(program, new_ghost, look, call, keys):
    with program.batch() as batch:
        program.member.enqueue(n=0)
    raw = call("RPOP", keys.queue("member"))
    call("LPUSH", keys.queue("member"), raw.replace(b'{"name"', b'{"deaths":2,"name"'))
    ghost = new_ghost()
    ((token, _),) = ghost.take("member")
    ghost.suspect(token)
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "dead"])
    assert batch.progress().dead == 1


def test_a_cancelled_batch_ends_its_members_and_never_succeeds(program, look, call, keys):
    started, go = threading.Event(), threading.Event()

    def hold(job):
        started.set()
        while not (job.checkin() or go.is_set()):
            go.wait(0.005)

    program.acts[0] = hold
    with program.pool:
        with program.batch() as batch:
            program.member.enqueue(n=0)
            for n in range(1, 50):
                program.member.enqueue_in(3600, n=n)
        assert started.wait(60)
        assert batch.cancel()
        assert not batch.cancel()
        # The pool learns it with its next heartbeat, and ends the member that runs. Then the others fall due.
        wait_until(lambda: batch.progress().left == 49)
        for member in call("ZRANGE", keys.scheduled, 0, -1):
            call("ZADD", keys.scheduled, 1, member)
        wait_until(lambda: batch.progress().left == 0)
        wait_until(lambda: program.events() == ["complete"])
    assert program.ran == [0]
    assert look.total("cancelled:member") == 50


def test_a_block_that_raises_stores_nothing_more_and_cancels_what_it_stored(program, look, link, keys):
    with pytest.raises(ZeroDivisionError), program.batch() as small:
        program.member.enqueue(n=0)
        raise ZeroDivisionError
    with pytest.raises(NotReady, match="there is no batch"):
        small.progress()
    with pytest.raises(ZeroDivisionError), program.batch() as large:
        for n in range(700):
            program.member.enqueue(n=n)
        raise ZeroDivisionError
    assert large.progress().total == 500
    assert walk(link, batches.read(keys, large.id)).state == "cancelled"
    with program.pool:
        wait_until(lambda: program.events() == ["complete"])


def test_duplicates_of_unique_jobs_are_not_members(program, look):
    with program.batch() as batch:
        program.member.enqueue_unique(n=0)
        program.member.enqueue_unique(n=0)
        program.member.using(id="one").enqueue(n=1)
        program.member.using(id="one").enqueue(n=1)
        program.member.using(now=True).enqueue(n=2)
    assert batch.progress().total == 2
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "success"])
    assert sorted(program.ran) == [0, 1, 2]


def test_a_batch_is_found_by_id_and_takes_members_until_it_has_ended(program):
    gate = threading.Event()
    program.acts[0] = lambda job: gate.wait(60)
    with program.batch() as batch:
        program.member.enqueue(n=0)
    with program.pool:
        wait_until(lambda: program.ran == [0])
        again = program.pool.enqueuer.batch(batch.id)
        with again:
            program.member.enqueue(n=1)
        gate.set()
        wait_until(lambda: program.events() == ["complete", "success"])
        assert again.progress().total == 2
        with pytest.raises(BadOption, match="has ended"), again:
            program.member.enqueue(n=2)
    with pytest.raises(NotReady, match="there is no batch"):
        program.pool.enqueuer.batch("none").progress()


def test_async_code_has_the_same(program):
    async def main():
        async with program.batch() as batch:
            for n in range(600):
                await program.member.aenqueue(n=n)
            await program.member.aenqueue_many([{"n": 600}])
        progress = await batch.aprogress()
        await program.pool.async_enqueuer.close()
        return batch, progress

    batch, progress = asyncio.run(main())
    assert progress.total == 601
    with program.pool:
        wait_until(lambda: program.events() == ["complete", "success"])
    assert batch.progress().completed == 601


def test_what_cannot_be_called_back_is_refused_at_once(program):
    with pytest.raises(BadArguments):
        program.batch(args={"year": 1})
    with pytest.raises(NotReady, match="in no batch"):
        Job("a").batch  # noqa: B018 - it raises
    with pytest.raises(BadOption, match="cannot share one id"):
        program.member.using(id="x").enqueue_many([{"n": 1}])


def test_a_member_costs_little_memory(program, call, keys):
    with program.batch() as batch:
        program.member.enqueue(n=0)
    call("SETBIT", keys.batch_ended(batch.id), 1_000_000, 1)
    call("SETBIT", keys.batch_dead(batch.id), 1_000_000, 1)
    call("SETBIT", keys.batch_failed(batch.id), 1_000_000, 1)
    sizes = [call("MEMORY", "USAGE", key) for key in batches.above_keys(keys, [batch.id])]
    assert sum(sizes) < 1 << 20
