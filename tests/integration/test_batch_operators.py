"""What operators see of batches, and do to one: the list, explain, retry, cancel, close, audit and repair."""

from __future__ import annotations

import json
import os
import socket
import threading
import time

import pytest
from click.testing import CliRunner

import dayjob
from dayjob import Admin, BadOption, Job
from dayjob.admin.doctor import examine
from dayjob.cli import cli
from dayjob.store.link import walk
from dayjob.store.ops import batches
from server import wait_until


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="ada") as admin:
        yield admin


class Program:
    """A pool whose member 1 is dead, whose member 2 fails and runs again, and whose member 3 waits for a gate."""

    def __init__(self, pool):
        self.pool = pool
        self.gate = threading.Event()
        self.kind = True
        self.called = []

        @pool.job(max_fails=2, backoff=3600.0)
        def member(n: int) -> None:
            if n == 1 and self.kind:
                raise dayjob.Dead("no")
            if n == 2 and self.kind:
                raise ValueError
            if n == 3:
                self.gate.wait(60)

        @pool.job
        def report(job: Job) -> None:
            self.called.append(job.batch_id)

        self.member, self.report = member, report

    def batch(self, numbers, **options):
        with self.pool.batch(on_success=self.report, description="November mails", **options) as batch:
            for n in numbers:
                self.member.enqueue(n=n)
        return batch


@pytest.fixture
def program(new_pool):
    return Program(new_pool(concurrency=2, beat=0.2))


@pytest.fixture
def command(namespace, redis_url):
    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, [*words, "--namespace", namespace, "--redis", redis_url])
        assert done.exit_code == code, done.output
        return done.output

    return run


def test_a_batch_names_what_it_waits_for_and_its_dead_members_are_retried(program, admin, command):
    batch = program.batch(range(4))
    with program.pool:
        words = f"Waits for 2 of 4 members: 1 in retry, 1 running on {socket.gethostname()}/{os.getpid()}."
        # A job that is not started at once is given back and fetched again.
        wait_until(lambda: admin.batch(batch.id).sentence == words)
        found = admin.batch(batch.id)
        assert admin.explain(f"{batch.id}-success") == words
        assert (found.running, found.retry, found.waiting, found.batch.dead) == (1, 1, 0, 1)
        assert words in command("batches", "show", batch.id)
        assert admin.audit_batch(batch.id).sound
        program.kind = False
        program.gate.set()
        assert admin.apply("retry", "retry", where=f"batch={batch.id}").changed == 1
        assert "1 job matched" in command("batches", "retry", batch.id)
        wait_until(lambda: program.called == [batch.id])
    found = admin.batch(batch.id)
    assert found.sentence == "All of its 4 members have ended: 4 completed."
    assert [(one.event, one.sent_at is not None) for one in found.batch.callbacks] == [("success", True)]
    assert admin.explain(f"{batch.id}-success").startswith("Completed")


def test_batches_are_listed_sorted_and_paged(program, admin, command, keys, call):
    ids = [program.batch(range(size)).id for size in (2, 5, 3)]
    for place, batch_id in enumerate(ids):
        # They may be of one millisecond.
        call("ZINCRBY", keys.batches, place * 10, batch_id)
    assert [one.id for one in admin.batches().batches] == ids[::-1]
    assert [one.total for one in admin.batches(sort="-members").batches] == [5, 3, 2]
    first = admin.batches(size=2)
    assert (first.total, first.next) == (3, 2)
    assert [one.id for one in admin.batches(size=2, offset=first.next).batches] == ids[:1]
    assert json.loads(command("batches", "ls", "--json"))["total"] == 3
    assert "November mails" in command("batches", "ls")
    with pytest.raises(BadOption, match="cannot be sorted"):
        admin.batches(sort="colour")
    with pytest.raises(BadOption, match="no batch 'nothing'"):
        admin.batch("nothing")


def test_a_cancelled_batch_ends_and_cannot_be_cancelled_twice(program, admin, command):
    program.kind = False
    batch = program.batch(range(3))
    assert "Cancelled" in command("batches", "cancel", batch.id, "--yes")
    assert admin.cancel_batch(batch.id).kind == "not_allowed"
    with program.pool:
        wait_until(lambda: batch.progress().left == 0)
    assert admin.batch(batch.id).batch.state == "cancelled"
    assert program.called == []


def test_an_open_batch_can_be_closed_when_its_program_is_gone(program, admin, command):
    batch = program.pool.batch(on_success=program.report)
    with batch:
        # As a program that died in its block leaves it.
        batch._closes = False
        program.member.enqueue(n=0)
    assert admin.batch(batch.id).batch.state == "open"
    assert "More may join" in admin.batch(batch.id).sentence
    with program.pool:
        wait_until(lambda: batch.progress().left == 0)
        assert program.called == []
        assert f"dayjob batches close {batch.id}" in admin.batch(batch.id).sentence
        assert "Closed" in command("batches", "close", batch.id)
        wait_until(lambda: program.called == [batch.id])
    assert admin.close_batch(batch.id).kind == "not_allowed"


def test_an_audit_finds_no_difference_in_a_batch_that_is_sound(program, admin, command):
    batch = program.batch(range(300))
    found = admin.audit_batch(batch.id)
    assert (found.sound, found.findings) == (True, ())
    assert "agree: 300 members" in command("batches", "audit", batch.id)


def test_members_that_another_program_deleted_are_found_and_end_on_request(
    program, admin, command, call, keys
):
    batch = program.batch(range(10))
    call("LTRIM", keys.queue("member"), 3, -1)
    found = admin.audit_batch(batch.id)
    assert [(one.kind, one.members, one.numbers) for one in found.findings] == [("lost", 3, (7, 8, 9))]
    assert not found.sound
    assert "disagree" in command("batches", "audit", batch.id, code=1)
    assert "Repaired: 3 differences" in command("batches", "audit", batch.id, "--repair")
    assert batch.progress().left == 7
    program.kind = False
    program.gate.set()
    with program.pool:
        wait_until(lambda: program.called == [batch.id])


def test_members_that_are_alive_or_dead_against_what_the_batch_believes_are_corrected(
    program, admin, link, keys, call
):
    batch = program.batch([0, 0, 0])
    about = walk(link, batches.read(keys, batch.id))
    # The batch believes that two have ended; one of these waits, and one is dead.
    for n in (0, 1):
        call("SETBIT", keys.batch_ended(batch.id), n, 1)
    moved = call("RPOP", keys.queue("member")), call("RPOP", keys.queue("member"))
    call("ZADD", keys.dead, 1, moved[1])
    call("RPUSH", keys.queue("member"), moved[0])
    found = admin.audit_batch(batch.id, repair=True)
    assert {(one.kind, one.numbers) for one in found.findings} == {("alive", (0,)), ("died", (1,))}
    assert (found.repaired, found.sound) == (2, True)
    now = walk(link, batches.read(keys, batch.id))
    assert (about.left, now.left, now.ended, now.dead) == (3, 2, 1, 1)


def test_a_batch_whose_members_have_ended_without_it_ends_on_request(program, admin, keys, call):
    batch = program.batch([0])
    call("DEL", keys.queue("member"))
    call("SETBIT", keys.batch_ended(batch.id), 0, 1)
    assert "audit" in admin.batch(batch.id).sentence
    assert [one.kind for one in admin.audit_batch(batch.id).findings] == ["not_ended"]
    assert admin.audit_batch(batch.id, repair=True).sound
    assert admin.batch(batch.id).batch.state == "succeeded"


def test_nested_batches_are_shown_audited_and_lead_to_each_other(program, admin):
    with program.pool.batch(on_success=program.report) as outer:
        program.member.enqueue(n=0)
        inner = program.batch([0, 0])
    assert [one.id for one in admin.batch(outer.id).nested] == [inner.id]
    assert admin.batch(inner.id).batch.above == (outer.id,)
    assert admin.audit_batch(outer.id).sound
    (job, *_) = admin.jobs("waiting", where=f"batch={inner.id}").jobs
    assert job.batch == inner.id
    assert len(admin.jobs("waiting", where=f"batch={outer.id}").jobs) == 3


def test_a_member_of_a_batch_that_is_gone_is_left_alone(program, admin, keys, call):
    batch = program.batch([0])
    call("DEL", keys.batch(batch.id))
    with pytest.raises(BadOption, match="no batch"):
        admin.audit_batch(batch.id)
    assert admin.batches().batches == ()


def test_the_doctor_names_batches_that_are_open_for_long(program, admin, keys, call, link):
    def doctor():
        return [one for one in walk(link, examine(keys, time.time)) if one.topic == "batches"]

    batch = program.pool.batch()
    with batch:
        batch._closes = False
        program.member.enqueue(n=0)
    assert [one.level for one in doctor()] == ["ok"]
    call("HSET", keys.batch(batch.id), "created", 1000)
    (found,) = doctor()
    assert (found.level, batch.id in found.what) == ("warning", True)
    assert [one.kind for one in admin.audit_batch(batch.id).findings] == ["open"]
