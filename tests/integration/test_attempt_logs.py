"""Attempts that keep what they logged: in threads and tasks, completed or failed, bounded and redacted."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from click.testing import CliRunner

from dayjob.cli import cli
from dayjob.errors import BadOption
from server import wait_until

log = logging.getLogger("shop.orders")


def texts(admin, job):
    """The messages of each attempt, without times."""
    return {
        one.attempt: [line.partition(": ")[2] for line in one.text.splitlines()] for one in admin.logs(job.id)
    }


def test_completed_and_failed_attempts_keep_their_own_lines(new_pool, admin):
    pool = new_pool(concurrency=4)

    @pool.job(keep_logs="4KB", backoff=0.0)
    def sync(n: int) -> None:
        log.warning("sync %d", n)
        if len(admin.logs(jobs[n].id)) == 0 and n == 1:
            raise ValueError("again")

    @pool.job(keep_logs=4096)
    async def task(n: int) -> None:
        log.error("task %d begins", n)
        await asyncio.sleep(0.01)
        await asyncio.create_task(inner(n))

    async def inner(n: int) -> None:
        log.error("task %d ends", n)

    @pool.job
    def silent() -> None:
        log.error("not kept")

    jobs = {n: sync.enqueue(n=n) for n in range(3)}
    tasks = [task.enqueue(n=n) for n in range(5)]
    none = silent.enqueue()
    with pool:
        wait_until(lambda: len(admin.history(outcome="completed").records) == 9)
    assert texts(admin, jobs[0]) == {1: ["sync 0"]}
    assert texts(admin, jobs[1]) == {1: ["sync 1"], 2: ["sync 1"]}
    for n, job in enumerate(tasks):
        assert texts(admin, job) == {1: [f"task {n} begins", f"task {n} ends"]}
    assert admin.logs(none.id) == ()
    # The handler is gone with its pool.
    assert not [one for one in logging.getLogger().handlers if "AttemptLog" in type(one).__name__]


def test_only_the_last_lines_within_the_bound_are_kept(new_pool, admin, call, keys):
    pool = new_pool()

    @pool.job(keep_logs="1KB")
    def talks() -> None:
        for n in range(1000):
            log.warning("line %d %s", n, "é" * 20)
        log.warning("x" * 100_000)
        log.warning("the last")

    job = talks.enqueue()
    with pool:
        wait_until(lambda: admin.logs(job.id))
    (kept,) = admin.logs(job.id)
    assert kept.text.startswith("... (earlier lines were dropped)")
    assert kept.text.endswith("the last\n")
    assert len(call("HGET", keys.logs(job.id), 1)) <= 1024
    assert 0 < call("PTTL", keys.logs(job.id)) <= 86_400_000


def test_redacted_arguments_are_removed_from_the_lines(new_pool, admin, call, keys):
    pool = new_pool()

    @pool.job(keep_logs="4KB", redact=["card"])
    def pay(card: str, password: str) -> None:
        log.warning("card %s, password %s", card, password)

    job = pay.enqueue(card="4111222233334444", password="hunter22")
    with pool:
        wait_until(lambda: admin.logs(job.id))
    stored = call("HGET", keys.logs(job.id), 1)
    assert b"4111" not in stored
    assert b"hunter22" not in stored
    assert b"[redacted]" in stored


def test_a_record_that_cannot_be_formatted_harms_no_job(new_pool, admin, monkeypatch):
    # Without the handlers of pytest, which raise such an error into the job.
    monkeypatch.setattr(logging.root, "handlers", [])
    pool = new_pool()

    @pool.job(keep_logs="4KB")
    def odd() -> None:
        log.warning("%d", "not a number")
        log.warning("after")

    job = odd.enqueue()
    with pool:
        wait_until(lambda: admin.logs(job.id))
    assert texts(admin, job) == {1: ["after"]}


def test_the_command_and_the_json_show_the_lines(new_pool, admin, redis_url, namespace):
    pool = new_pool()

    @pool.job(keep_logs="4KB")
    def says() -> None:
        log.warning("hello\x1b[31m")

    job = says.enqueue()
    with pool:
        wait_until(lambda: admin.logs(job.id))
    target = ["--redis", redis_url, "--namespace", namespace]
    shown = CliRunner().invoke(cli, ["jobs", "logs", job.id, *target]).output
    assert "attempt 1" in shown
    assert "shop.orders: hello" in shown
    assert "\x1b" not in shown
    listed = json.loads(CliRunner().invoke(cli, ["jobs", "logs", job.id, "--json", *target]).output)
    assert [one["attempt"] for one in listed] == [1]
    missing = CliRunner().invoke(cli, ["jobs", "logs", "nothing", *target])
    assert missing.exit_code == 1


@pytest.mark.parametrize("value", ["", "64", "2MB", "64TB", -1, 1.5, True, "KB"])
def test_a_size_that_makes_no_sense_is_refused(new_pool, value):
    with pytest.raises(BadOption, match="keep_logs"):
        new_pool().register("x", print, keep_logs=value)
