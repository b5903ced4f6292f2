"""The history of real pools: a record of every attempt that ended, however it ended."""

from __future__ import annotations

import os
import signal
import time

import pytest

from dayjob import Dead, Discard, Enqueuer, Job, Snooze
from dayjob.store.ops import history
from records import all_records
from server import wait_until
from workers import PATIENT_JOBS, WorkerCommand


@pytest.fixture
def recorded(keys, link):
    """The records of a name, oldest first."""

    def found(name, *, completed):
        kept = all_records(link, history.stream(keys, name, completed=completed))
        return [one.record for one in reversed(kept)]

    return found


def test_every_way_to_end_leaves_a_record(new_pool, recorded):
    pool = new_pool(concurrency=1)

    @pool.job(max_fails=2, backoff=0.0)
    def work(job: Job, how: str) -> None:
        if how == "fail":
            raise ValueError("secret")
        if how == "snooze" and not job.snoozes:
            raise Snooze("later", after=0)
        if how == "discard":
            raise Discard("no")
        if how == "die":
            raise Dead("no")

    jobs = {
        how: work.using(source="acme").enqueue(how=how).id
        for how in ("ok", "fail", "snooze", "discard", "die")
    }
    with pool:
        wait_until(lambda: len(recorded("work", completed=True)) == 2)
        wait_until(lambda: len(recorded("work", completed=False)) == 5)
    names = {job_id: how for how, job_id in jobs.items()}
    other = recorded("work", completed=False)
    assert sorted((names[one.id], one.attempt, one.ending, one.error) for one in other) == [
        ("die", 1, "dead", "Dead"),
        ("discard", 1, "discarded", "Discard"),
        ("fail", 1, "retried", "ValueError"),
        ("fail", 2, "dead", "ValueError"),
        ("snooze", 1, "snoozed", "Snooze"),
    ]
    completed = recorded("work", completed=True)
    assert sorted((names[one.id], one.attempt) for one in completed) == [("ok", 1), ("snooze", 2)]
    for one in other + completed:
        assert one.source == "acme"
        assert len(one.pool) == 24
        assert min(one.waited, one.ran, one.age) >= 0


def test_records_survive_the_stop_of_their_pool_and_are_sent_before_it_ends(new_pool, recorded):
    pool = new_pool(concurrency=4)
    pool.register("work", lambda: None)
    pool.enqueuer.enqueue_many("work", [{}] * 300)
    with pool:
        assert pool.drain(60)
    assert sum(one.weight for one in recorded("work", completed=True)) == pytest.approx(300, rel=0.01)


def test_kept_results_and_unique_jobs_are_completed_too(new_pool, recorded):
    pool = new_pool()
    pool.register("kept", lambda: 7, keep=60)
    pool.register("once", lambda: None, unique_until="done")
    with pool:
        pool.enqueuer.enqueue("kept")
        pool.enqueuer.enqueue_unique("once")
        wait_until(lambda: recorded("kept", completed=True) and recorded("once", completed=True))
    assert not recorded("kept", completed=False) + recorded("once", completed=False)


def test_a_job_type_or_a_pool_can_turn_the_history_off(new_pool, call, keys):
    pool = new_pool(history_count=0)
    ran = []
    pool.register("off", lambda: ran.append(1))
    pool.register("on", lambda: ran.append(2), history_count=10)
    with pool:
        pool.enqueuer.enqueue("off")
        pool.enqueuer.enqueue("on")
        wait_until(lambda: call("EXISTS", keys.history("on")))
        wait_until(lambda: len(ran) == 2)
    assert call("EXISTS", keys.history("off"), keys.history_other("off")) == 0


def test_the_attempts_of_a_dead_pool_are_recorded_as_crashed(new_pool, new_ghost, recorded):
    pool = new_pool(beat=0.3)
    pool.register("work", lambda: None)
    job = pool.enqueuer.enqueue("work")
    ghost = new_ghost()
    ghost.take("work", room=1)
    with pool:
        wait_until(lambda: recorded("work", completed=True))
    (crashed,) = recorded("work", completed=False)
    assert (crashed.id, crashed.ending, crashed.pool, crashed.attempt) == (job.id, "crashed", ghost.id, 1)
    (completed,) = recorded("work", completed=True)
    assert (completed.id, completed.attempt) == (job.id, 2)


def test_a_job_whose_process_is_killed_has_a_crash_and_a_completion(tmp_path, redis_url, namespace, recorded):
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    worker.write(PATIENT_JOBS)
    try:
        (child,) = worker.started()
        job = Enqueuer(namespace, redis=redis_url).enqueue("hold_once", n=1)
        worker.wait_for("begin")
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: recorded("hold_once", completed=True))
    finally:
        worker.close()
    (crashed,), (completed,) = (recorded("hold_once", completed=done) for done in (False, True))
    assert [(one.id, one.ending, one.attempt) for one in (crashed, completed)] == [
        (job.id, "crashed", 1),
        (job.id, "completed", 2),
    ]
    assert crashed.pool != completed.pool


def test_a_late_outcome_is_not_recorded(new_pool, recorded, call, keys, look):
    pool = new_pool()
    go = []

    @pool.job
    def slow() -> None:
        while not go:
            time.sleep(0.01)

    slow.enqueue()
    with pool:
        wait_until(look.held)
        (pool_id,) = look.pools()
        # Another hand settled it meanwhile.
        call("DEL", keys.held(pool_id))
        go.append(1)
        # Late, or lost where the pool learned before that Redis does not have it any more.
        wait_until(lambda: look.total("late:slow") or not pool._runtime.state.held)
    assert recorded("slow", completed=True) == []
