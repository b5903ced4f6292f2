"""Another time for a job that is due later, and another name for jobs that wait."""

from __future__ import annotations

import json

import pytest

from dayjob import Admin
from dayjob.admin.views import Seen
from dayjob.errors import BadArguments, BadOption
from server import wait_until


@pytest.fixture
def announced(new_pool):
    """Starts a pool that has `mail(n: int)` and no other job, and is quiet about it."""
    pool = new_pool(concurrency=1)

    @pool.job
    def mail(n: int) -> None: ...

    return pool


def waiting(admin: Admin, name: str) -> list[str]:
    return [job.id for job in admin.jobs("waiting", name=name, size=500).jobs]


# Reschedule.


@pytest.mark.parametrize("state", ["scheduled", "retry"])
def test_a_job_is_due_at_another_time(admin, call, keys, state):
    raw = json.dumps({"name": "mail", "id": "id1", "t": 1, "args": {}})
    call("ZADD", getattr(keys, state), 4_000_000_000, raw)
    assert admin.reschedule("id1", at=3_999_999_999.5).message == "Due at another time now."
    assert call("ZSCORE", getattr(keys, state), raw) == b"3999999999.5"
    admin.reschedule(Seen("id1", state), delay=600)
    left = float(call("ZSCORE", getattr(keys, state), raw)) - admin.verdict().now
    assert 400 < left <= 600
    assert call("EXISTS", keys.due) == 1
    assert "reschedule" in [line.action for line in admin.audit()]


def test_a_job_that_is_made_due_now_runs(admin, enqueuer, new_pool):
    ran: list[int] = []
    pool = new_pool()

    @pool.job
    def mail(n: int) -> None:
        ran.append(n)

    job = enqueuer.enqueue_in("mail", 3600, n=7)
    pool.start()
    assert admin.reschedule(job.id, delay=0).done
    wait_until(lambda: ran == [7])


def test_the_unique_key_lives_as_long_as_the_job_waits(admin, enqueuer, call):
    job = enqueuer.enqueue_unique_in("mail", 60, n=1)
    month, year = 30 * 86400, 365 * 86400
    admin.reschedule(job.id, delay=year)
    assert call("TTL", job.unique_key) > year + month - 100
    admin.reschedule(job.id, delay=60)
    assert call("TTL", job.unique_key) > year + month - 100


def test_a_job_that_is_not_due_later_is_left_alone(admin, enqueuer):
    job = enqueuer.enqueue("mail", n=1)
    assert admin.reschedule(job.id, delay=60).kind == "not_allowed"
    assert admin.reschedule("nobody", delay=60).kind == "not_found"
    assert admin.reschedule(Seen(job.id, "scheduled"), delay=60).kind == "moved"
    for wrong in ({}, {"at": 1.0, "delay": 1.0}, {"delay": -1.0}, {"at": 1e13}, {"at": float("nan")}):
        with pytest.raises(BadOption):
            admin.reschedule(job.id, **wrong)


# Move.


def test_jobs_that_match_wait_under_another_name_in_their_order(admin, enqueuer):
    jobs = enqueuer.enqueue_many("mail", [{"n": n} for n in range(230)])
    enqueuer.enqueue("slow", n=1)
    tally = admin.move_all("slow", where="name=mail", most=220)
    assert tally.message == '220 jobs matched, 220 moved to "slow".'
    assert waiting(admin, "slow")[1:] == [job.id for job in jobs[:220]]
    assert waiting(admin, "mail") == [job.id for job in jobs[220:]]
    assert admin.queue("slow").totals["moved"] == 220


def test_jobs_whose_arguments_do_not_fit_stay(admin, enqueuer, announced):
    announced.start()
    wait_until(admin.job_types)
    announced.stop()
    fits, wrong = enqueuer.enqueue("other", n=1), enqueuer.enqueue("other", n="hunter2", x=1)
    tally = admin.move_all("mail", name="other")
    assert tally.message == '2 jobs matched, 1 moved to "mail". The arguments of 1 do not fit: they stay.'
    assert (waiting(admin, "mail"), waiting(admin, "other")) == ([fits.id], [wrong.id])
    with pytest.raises(BadArguments) as error:
        admin.move(wrong.id, "mail")
    assert "hunter2" not in str(error.value)
    assert admin.move(wrong.id, "mail", check=False).done


def test_a_moved_job_runs_as_the_other_once(admin, enqueuer, new_pool):
    ran: list[int] = []
    pool = new_pool()

    @pool.job
    def fast(n: int) -> None:
        ran.append(n)

    job = enqueuer.enqueue("mail", n=5)
    assert admin.move(job.id, "fast").message == 'In the queue "fast" now.'
    pool.start()
    wait_until(lambda: ran)
    pool.stop()
    assert ran == [5]


def test_a_unique_job_keeps_its_key(admin, enqueuer, call):
    job = enqueuer.enqueue_unique("mail", n=1)
    assert admin.move(job.id, "slow").done
    assert call("GET", job.unique_key) == job.id.encode()
    assert enqueuer.enqueue_unique("mail", n=1) is None
    admin.delete(job.id, undo=False)
    assert call("EXISTS", job.unique_key) == 0


def test_what_cannot_be_moved_is_said(admin, enqueuer):
    job = enqueuer.enqueue("mail", n=1)
    later = enqueuer.enqueue_in("mail", 60, n=1)
    assert admin.move(later.id, "slow").kind == "not_allowed"
    for wrong in (
        lambda: admin.move(job.id, "mail"),
        lambda: admin.move(job.id, "a b"),
        lambda: admin.move_all("mail", where="name=mail"),
        lambda: admin.move_all("slow"),
    ):
        with pytest.raises(BadOption):
            wrong()
