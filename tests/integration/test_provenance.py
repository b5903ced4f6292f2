"""Where a job came from: the job inside which it was enqueued, or the machine and process."""

from __future__ import annotations

import json
import os
import platform

import pytest
from click.testing import CliRunner

from dayjob import Enqueuer
from dayjob.cli import cli
from dayjob.errors import BadOption
from server import wait_until


def family(pool):
    """A job that enqueues two others, one of which fails at first."""

    @pool.job
    def parent() -> None:
        child.enqueue(n=1)
        child.using(expires=3600).enqueue(n=2)

    @pool.job(backoff=0.0)
    def child(n: int) -> None:
        if n == 1 and not failed:
            failed.append(n)
            raise ValueError(n)

    failed: list[int] = []
    return parent


def test_a_job_knows_the_job_that_enqueued_it_and_the_other_way_round(new_pool, admin, redis_url, namespace):
    pool = new_pool(concurrency=1)
    job = family(pool).enqueue()
    with pool:
        wait_until(lambda: len(admin.history("child", outcome="completed").records) == 2)
    children = admin.children(job.id)
    assert {(one.name, one.parent, one.outcome) for one in children} == {
        ("child", f"parent/{job.id}", "completed")
    }
    assert len(children) == 2
    found = admin.job(children[0].id)
    assert (found.job.state, found.job.parent) == ("finished", f"parent/{job.id}")
    assert admin.children(children[0].id) == ()
    target = ["--redis", redis_url, "--namespace", namespace]
    assert f"parent/{job.id}" in CliRunner().invoke(cli, ["jobs", "show", children[0].id, *target]).output
    shown = CliRunner().invoke(cli, ["jobs", "show", job.id, *target]).output
    assert "Enqueued these:" in shown
    assert children[1].id in shown


def test_of_two_attempts_that_ended_in_one_millisecond_the_later_is_shown(new_pool, admin, keys, call):
    pool = new_pool(concurrency=1)
    job = family(pool).enqueue()
    with pool:
        wait_until(lambda: len(admin.history("child", outcome="completed").records) == 2)
    ((failed_at, (field, failed)),) = call("XRANGE", keys.history_other("child"), "-", "+")
    first = json.loads(failed)
    completed = [one.id for one in admin.history("child", outcome="completed").records]
    assert first[0] in completed
    # As if both attempts of the first child had ended with the same exchange of a fast machine.
    first[1], first[6] = "completed", 2
    call("DEL", keys.history("child"))
    call("XADD", keys.history("child"), failed_at, field, json.dumps(first))
    (child,) = admin.children(job.id)
    assert (child.id, child.outcome, child.attempt) == (first[0], "completed", 2)


def test_a_stored_job_has_its_parent_in_the_payload_and_keeps_it_through_a_retry(new_pool, admin, look):
    pool = new_pool(concurrency=1)

    @pool.job
    def parent() -> None:
        fails.using(expires=3600).enqueue()

    @pool.job(backoff=3600.0)
    def fails() -> None:
        raise ValueError("no")

    job = parent.enqueue()
    with pool:
        wait_until(look.retry)
    (stored,) = look.retry()
    assert stored["parent"] == f"parent/{job.id}"
    assert "producer" not in stored
    assert stored["expires"] > look.now() * 1000
    assert admin.job(stored["id"]).job.parent == f"parent/{job.id}"


@pytest.mark.parametrize(
    ("provenance", "fields"),
    [("off", {}), ("parent", {}), ("full", {"producer": f"{platform.node()[:100]}/{os.getpid()}"})],
)
def test_outside_of_jobs_the_machine_and_process_are_recorded_if_asked_for(
    namespace, redis_url, look, admin, provenance, fields
):
    job = Enqueuer(namespace, redis=redis_url, provenance=provenance).using(expires=60).enqueue("a", n=1)
    (stored,) = look.queue("a")
    assert {key: stored[key] for key in ("parent", "producer") if key in stored} == fields
    assert list(stored)[-2:] == ["expires", "at"]
    assert admin.job(job.id).job.producer == fields.get("producer", "")


def test_it_can_be_turned_off_inside_of_jobs(new_pool, admin, look):
    pool = new_pool(provenance="off")
    job = family(pool).enqueue()
    with pool:
        wait_until(lambda: len(admin.history("child", outcome="completed").records) == 2)
    assert admin.children(job.id) == ()
    with pytest.raises(BadOption, match="provenance"):
        new_pool(provenance=True)
    with pytest.raises(BadOption, match="provenance"):
        Enqueuer(provenance="yes")


def test_fields_of_the_same_name_that_another_program_wrote_break_nothing(new_pool, admin, look, call, keys):
    pool = new_pool()
    ran = []
    pool.register("a", lambda: ran.append(1))
    for number, other in enumerate(({"x": 1}, 7, "no slash", None, "x" * 5000)):
        payload = look.payload("a", f"id{number}", parent=other, producer=other)
        call("LPUSH", keys.queue("a"), payload)
    call("SADD", keys.known_jobs, "a")
    assert admin.job("id0").job.parent == ""
    with pool:
        wait_until(lambda: len(admin.history("a").records) == 5)
    assert len(ran) == 5
    assert {len(one.parent) for one in admin.history("a").records} == {0, 8, 401}
