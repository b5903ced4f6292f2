"""One job: when it was enqueued, what became of each attempt, and how many there were."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from dayjob import Job, Snooze
from dayjob.text import took
from server import wait_until
from workers import WorkerCommand

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    found = WorkerCommand(tmp_path, redis_url, namespace)
    yield found
    found.close()


@pytest.fixture
def told(admin):
    """The timeline of a job without starts and actions, and each event without what differs from run to run."""

    def timeline(job_id):
        found = admin.job(job_id).timeline
        texts = [event.text for event in found if event.kind not in ("started", "action")]
        return [text.partition(" after ")[0] for text in texts]

    return timeline


def in_state(admin, job_id, state):
    found = admin.job(job_id)
    return found if found is not None and found.job.state == state else None


def test_a_job_that_ran_once_and_is_dead_shows_one_enqueue_and_one_attempt(faces, admin, new_pool, told):
    pool = new_pool()

    @pool.job(max_fails=1, keep=60)
    def charge(order: int) -> None:
        raise ValueError("no such order")

    job = charge.enqueue(order=7)
    pool.start()
    dead = wait_until(lambda: in_state(admin, job.id, "dead")).job
    assert told(job.id) == ["enqueued", "attempt 1 failed", "moved to dead"]
    assert (dead.attempts, dead.result, dead.error) == (1, None, "ValueError: no such order")
    answer = faces.api("/job", id=job.id)["job"]
    assert (answer["attempts"], answer["result"]) == (1, None)
    page = faces.page("/job", id=job.id)
    assert "Attempts 1 Fails 1" in page
    assert "due again" not in page
    (ended,) = wait_until(lambda: admin.job(job.id).attempts)
    assert f"attempt 1 failed after {took(ended.ran)}: ValueError" in faces.page("/job", id=job.id)
    assert "Result" not in page
    shown = faces.run("jobs", "show", job.id)
    assert "attempts 1\n" in shown
    assert "result" not in shown.partition("Traceback")[0]
    assert "due again" not in shown
    screen = faces.top("dead")
    screen.wait_for("no such order")
    screen.press("enter")
    screen.wait_for("attempts 1", "attempt 1 failed", "moved to dead")
    assert "due again" not in screen.text
    assert "result" not in screen.text.partition("Traceback")[0]


def test_a_job_keeps_the_time_of_its_first_enqueue_through_retries_and_a_retry_from_dead(
    faces, admin, new_pool, told
):
    pool = new_pool()

    @pool.job(max_fails=3, backoff=1.0)
    def charge(order: int) -> None:
        raise ValueError("no such order")

    job = charge.enqueue(order=7)
    enqueued = int(job.enqueued_at * 1000) / 1000
    with pool:
        dead = wait_until(lambda: in_state(admin, job.id, "dead")).job
    assert (dead.enqueued_at, dead.attempts) == (enqueued, 3)
    assert dead.due_at >= int(enqueued) + 2
    assert told(job.id) == [
        "enqueued", "attempt 1 failed", "attempt 2 failed", "due again", "attempt 3 failed", "moved to dead",
    ]  # fmt: skip
    assert faces.api("/job", id=job.id)["job"]["enqueued_at"] == enqueued
    assert "attempts 3\n" in faces.run("jobs", "show", job.id)
    admin.retry(dead)
    again = in_state(admin, job.id, "waiting").job
    assert (again.enqueued_at, again.attempt, again.attempts) == (enqueued, 1, 0)
    assert told(job.id)[0] == "enqueued"
    assert told(job.id)[-1] == "due again"


def test_a_job_that_failed_shows_how_many_attempts_it_made_and_not_the_next(faces, admin, new_pool):
    pool = new_pool()

    @pool.job(max_fails=3, backoff=3600.0)
    def charge(order: int) -> None:
        raise ValueError("no such order")

    job = charge.enqueue(order=7)
    with pool:
        found = wait_until(lambda: in_state(admin, job.id, "retry")).job
    assert (found.attempt, found.attempts) == (2, 1)
    assert "attempts 1\n" in faces.run("jobs", "show", job.id)
    assert "Attempts 1 Fails 1" in faces.page("/job", id=job.id)
    screen = faces.top("retry")
    screen.wait_for("no such order")
    screen.press("enter")
    screen.wait_for("attempts 1", "next attempt")


def test_a_job_that_was_scheduled_keeps_when_it_was_enqueued_beside_when_it_was_due(
    admin, new_pool, enqueuer, told
):
    chores = new_pool()
    chores.register("other", lambda: None)
    job = enqueuer.enqueue_in("elsewhere", 1.2)
    with chores:
        waiting = wait_until(lambda: in_state(admin, job.id, "waiting")).job
    assert waiting.enqueued_at == int(job.enqueued_at * 1000) / 1000
    assert waiting.due_at >= waiting.enqueued_at + 1
    assert told(job.id) == ["enqueued", "due"]


def test_a_snoozed_job_keeps_when_it_was_enqueued(admin, new_pool, told):
    pool = new_pool()

    @pool.job(keep=60)
    def sleepy(job: Job) -> None:
        if job.snoozes < 2:
            raise Snooze("not yet", after=0.6)

    job = sleepy.enqueue()
    with pool:
        done = wait_until(lambda: in_state(admin, job.id, "done")).job
    assert done.enqueued_at == int(job.enqueued_at * 1000) / 1000
    assert (done.attempts, done.snoozes) == (3, 2)


def test_the_death_of_a_process_is_in_the_story_with_its_time_and_pool(faces, admin, worker, look, told):
    worker.started()
    enqueued = look.now()
    job = admin.enqueue("poison", {"code": 1}).subject.split()[1]
    dead = wait_until(lambda: in_state(admin, job, "dead")).job
    assert [(one.attempt, one.error, one.ran) for one in dead.past] == [
        (number, "its process died", 0.0) for number in (1, 2, 3)
    ]
    pools = [one.died_in for one in dead.past]
    assert len(set(pools)) == 3
    assert all(enqueued - 1 <= one.at <= look.now() for one in dead.past)
    assert told(job) == [
        "enqueued", *(f"attempt {n}: its process died (pool {pool})" for n, pool in enumerate(pools, 1)), "moved to dead",
    ]  # fmt: skip
    assert dead.attempts == 3
    assert f"attempt 3: its process died (pool {pools[2]})" in faces.page("/job", id=job)
    assert f"attempt 3: its process died (pool {pools[2]})" in faces.run("jobs", "show", job)
    assert faces.api("/job", id=job)["job"]["past"][0]["died_in"] == pools[0]
    screen = faces.top("dead")
    screen.wait_for("poison")
    screen.press("enter")
    screen.wait_for(f"attempt 1: its process died (pool {pools[0]})", "attempts 3")


def test_a_job_whose_process_was_killed_for_its_timeout_has_that_attempt_in_its_story(admin, worker, told):
    worker.started()
    job = admin.enqueue("overrun_with_gil", {}).subject.split()[1]
    found = wait_until(lambda: in_state(admin, job, "retry")).job
    (attempt,) = found.past
    assert (attempt.attempt, attempt.died_in) == (1, "")
    assert attempt.error == "timed out after 2 s and was killed"
    assert int(attempt.at) == found.failed_at
    assert told(job)[0] == "enqueued"
    assert told(job)[1].startswith("attempt 1 failed")


def test_a_job_that_an_operator_killed_while_it_ran_shows_where_that_attempt_ran(faces, admin, new_pool):
    """That attempt does not count, so the payload has none; the history has it."""
    pool = new_pool(beat=0.2)

    @pool.job
    def pack(job: Job) -> None:
        while not job.checkin("packing"):
            time.sleep(0.01)

    job = pack.enqueue()
    pool.start()
    wait_until(lambda: in_state(admin, job.id, "running"))
    assert admin.kill(job.id, state="running").done
    wait_until(lambda: in_state(admin, job.id, "dead"))
    (ended,) = wait_until(lambda: admin.job(job.id).attempts)
    assert (ended.attempt, ended.outcome) == (1, "dead")
    assert f"attempt 1 started on {socket.gethostname()}/{os.getpid()}" in faces.page("/job", id=job.id)
    assert f"attempt 1 started on {socket.gethostname()}/{os.getpid()}" in faces.run("jobs", "show", job.id)


def test_a_job_that_an_operator_killed_before_it_ran_shows_no_attempt(admin, told):
    job = admin.enqueue("mail", {}, delay=3600).subject.split()[1]
    admin.kill(admin.job(job).job)
    dead = admin.job(job).job
    assert (dead.state, dead.attempts) == ("dead", 0)
    assert told(job) == ["enqueued", "killed by test", "moved to dead"]


def test_a_job_that_a_go_worker_retried_does_not_claim_to_know_when_it_was_enqueued(
    faces, admin, look, call, keys
):
    # Go renews `t` with every requeue and drops fields that it does not know.
    now = int(look.now())
    payload = look.payload("mail", "go-1", t=now - 30, fails=2, err="no", failed_at=now - 60)
    call("LPUSH", keys.queue("mail"), payload)
    call("SADD", keys.known_jobs, "mail")
    found = admin.job("go-1")
    assert (found.job.enqueued_at, found.job.due_at) == (None, now - 30)
    assert [event.text for event in found.timeline] == ["attempt 2 failed: no", "queued"]
    assert "Enqueued not known" in faces.page("/job", id="go-1")


def test_a_job_that_was_due_again_within_a_second_shows_its_attempts_in_order(admin, new_pool, told):
    pool = new_pool()

    @pool.job(max_fails=4, backoff=0)
    def charge() -> None:
        raise ValueError("no such order")

    jobs = [charge.enqueue() for _ in range(5)]
    with pool:
        for job in jobs:
            wait_until(lambda job=job: in_state(admin, job.id, "dead"))
    for job in jobs:
        story = told(job.id)
        assert story[0] == "enqueued"
        assert story[-1] == "moved to dead"
        attempts = [text for text in story if text.startswith("attempt")]
        assert attempts == [f"attempt {number} failed" for number in (1, 2, 3, 4)]
        # Its moment is known to the second: it may be left out, and is never before the attempt that failed.
        assert [place for place, text in enumerate(story) if text == "due again"] in ([], [4])


def test_the_story_has_where_each_attempt_started_and_what_operators_did(faces, admin, new_pool):
    pool = new_pool(tag="v41")

    @pool.job(max_fails=2, backoff=3600.0)
    def charge(order: int) -> None:
        raise ValueError("no such order")

    job = charge.enqueue(order=7)
    with pool:
        wait_until(lambda: in_state(admin, job.id, "retry"))
        admin.acting("ada").run_now(admin.jobs("retry").jobs[0])
        wait_until(lambda: in_state(admin, job.id, "dead"))
        status = admin.pools().pools[0].status
    where = f"{status.host}/{status.pid} (v41)"
    found = admin.job(job.id).timeline
    first, second = (f"attempt {number} started on {where}" for number in (1, 2))
    texts = [event.text.partition(" after ")[0] for event in found]
    assert texts[:3] == ["enqueued", first, "attempt 1 failed"]
    # An action is noted when it is done, which may be after the job has started.
    (action,) = [event.text for event in found if event.kind == "action"]
    assert action.startswith("ada: run_now: ")
    assert [text for text in texts if text != action][-3:] == [second, "attempt 2 failed", "moved to dead"]
    assert [event["text"] for event in faces.api("/job", id=job.id)["timeline"]] == [
        event.text for event in found
    ]
    page, printed = faces.page("/job", id=job.id), faces.run("jobs", "show", job.id)
    for text in (first, action, second):
        assert text in page
        assert text in printed


def test_the_story_of_a_running_job_has_where_its_attempt_started(faces, admin, new_pool):
    pool = new_pool(tag="v41", beat=0.2)
    gate = threading.Event()
    pool.register("charge", lambda: gate.wait(300))
    job = pool.enqueuer.enqueue("charge")
    with pool:
        try:
            started = f"attempt 1 started on {socket.gethostname()}/{os.getpid()} (v41)"
            wait_until(lambda: started in [event.text for event in admin.job(job.id).timeline])
            assert [event.kind for event in admin.job(job.id).timeline] == ["enqueued", "started"]
            assert started in faces.page("/job", id=job.id)
            assert started in faces.run("jobs", "show", job.id)
        finally:
            gate.set()
