"""What fails: since when, and how often, also where a retry made it good."""

from __future__ import annotations

import pytest

from dayjob import Job
from server import wait_until

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)


def test_a_group_began_with_the_first_failure_of_its_kind_and_not_with_the_last(faces, admin, new_pool, look):
    pool = new_pool()

    @pool.job(max_fails=4, backoff=1.0)
    def charge(job: Job) -> None:
        raise (ValueError if job.attempt == 1 else ConnectionError)(f"no bank for attempt {job.attempt}")

    charge.enqueue()
    with pool:
        (dead,) = wait_until(look.dead)
    moments = [one[1] for one in dead["past"]]
    (group,) = admin.failures().groups
    # The first attempt failed in another way.
    assert (group.first_at, group.first_known) == (moments[1], True)
    assert group.last_at == int(moments[3])
    assert faces.api("/failures")["groups"][0]["first_at"] == moments[1]


def test_since_when_a_group_fails_is_the_same_everywhere(faces, look, call, keys):
    now = int(look.now())
    past = [[1, now - 7200, 5, "Timeout: slow"], [2, now - 60, 5, "Timeout: slow"]]
    dead = look.payload("mail", "d1", fails=2, err="Timeout: slow", failed_at=now - 60, past=past)
    call("ZADD", keys.dead, now - 60, dead)
    assert faces.api("/failures")["groups"][0]["first_at"] == now - 7200
    assert "2.0 h ago" in faces.page("/failures")
    assert " 2.0 h ago Timeout: slow" in faces.run("dead", "groups")
    faces.top("failures").wait_for("2.0 h", "Timeout: slow")


def test_a_group_of_jobs_that_died_began_with_the_first_death(admin, look, call, keys):
    now = int(look.now())
    past = [[n, now - 100 + n, 0, "its process died", f"pool{n}"] for n in (1, 2, 3)]
    error = "its process died 3 times while it ran, last in pool pool3"
    dead = look.payload("mail", "d1", deaths=3, err=error, failed_at=now - 97, past=past)
    call("ZADD", keys.dead, now - 97, dead)
    (group,) = admin.failures().groups
    assert (group.first_at, group.first_known) == (now - 99, True)


def test_a_group_says_so_when_its_first_failure_is_not_known(faces, admin, look, call, keys):
    # Go workers keep the last failure alone.
    now = int(look.now())
    dead = look.payload("mail", "d1", fails=4, err="Timeout: slow", failed_at=now - 7200)
    call("ZADD", keys.dead, now - 7200, dead)
    (group,) = admin.failures().groups
    assert (group.first_at, group.first_known) == (now - 7200, False)
    assert not faces.api("/failures")["groups"][0]["first_known"]
    assert "2.0 h ago or earlier" in faces.page("/failures")
    assert "2.0 h ago or earlier" in faces.run("dead", "groups")
    screen = faces.top("failures")
    screen.wait_for("2.0 h or more", "Timeout: slow")


def test_failures_that_a_retry_made_good_are_counted(faces, admin, new_pool, look):
    pool = new_pool()

    @pool.job(max_fails=4, backoff=0)
    def receipt(job: Job) -> None:
        if job.attempt < 3:
            raise ConnectionError("the printer is busy")

    for _ in range(5):
        receipt.enqueue()
    with pool:
        wait_until(lambda: look.total("done:receipt") == 5)
        (found,) = wait_until(lambda: [one for one in admin.failures().attempts if one.last_hour == 10])
    assert (found.name, admin.failures().groups) == ("receipt", ())
    assert faces.api("/failures")["attempts"] == [{"name": "receipt", "last_hour": 10}]
    page = faces.page("/failures")
    assert "No failed job is in retry or dead" in page
    assert "receipt 10 All failed attempts" in page
    listed = faces.run("dead", "groups")
    assert 'No job is in retry or dead for a failure.\n"receipt" failed 10 times in the last hour' in listed
    faces.top("failures").wait_for(
        'failed in the last hour, including attempts that succeeded on retry: "receipt" 10 times'
    )


def test_a_group_shows_how_often_its_job_failed_beside_how_many_jobs_it_has_now(faces, admin, new_pool, look):
    pool = new_pool()

    @pool.job(max_fails=3, backoff=0)
    def charge() -> None:
        raise ConnectionError("no bank")

    charge.enqueue()
    with pool:
        wait_until(look.dead)
        wait_until(lambda: [one for one in admin.failures().attempts if one.last_hour == 3])
    assert admin.failures().groups[0].count == 1
    assert "1 dead charge failed 3 times in the last hour, with any error 1 1 1 1" in faces.page("/failures")
    assert '"charge" failed 3 times in the last hour' in faces.run("dead", "groups")
