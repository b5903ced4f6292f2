"""Pools and figures: what is counted, and what is not."""

from __future__ import annotations

import os
import re
import signal

import msgspec
import psutil
import pytest

from server import wait_until
from workers import WorkerCommand

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)


def test_jobs_that_were_trimmed_make_no_job_of_the_name_of_their_set(faces, admin, new_pool, look):
    pool = new_pool(done_count=1, dead_count=1)

    @pool.job(keep=60)
    def mail() -> None: ...

    @pool.job(max_fails=1)
    def charge() -> None:
        raise ValueError("no bank")

    for _ in range(3):
        mail.enqueue()
        charge.enqueue()
    with pool:
        wait_until(lambda: look.total("trimmed:done") == 2 and look.total("trimmed:dead") == 2)
    assert admin.metrics().names == ("charge", "mail")
    assert faces.api("/metrics")["names"] == ["charge", "mail"]
    assert [line.split()[0] for line in faces.run("metrics").splitlines()] == ["JOB", "charge", "mail"]
    assert "trimmed" not in admin.queue("mail").totals
    screen = faces.top("metrics")
    screen.wait_for("mail", "charge")
    assert not any(line.lstrip("> ").startswith(("done", "dead")) for line in screen.lines)


def test_the_workers_of_a_pool_whose_lease_is_over_are_not_counted_as_busy(
    faces, admin, tmp_path, redis_url, namespace
):
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    try:
        (child,) = worker.started()
        admin.enqueue("hold", {"n": 1})
        wait_until(admin.busy)
        assert not admin.busy()[0].stale
        # Nobody is left to renew the lease, or to condemn the pool.
        assert worker.process is not None
        os.kill(worker.process.pid, signal.SIGSTOP)
        psutil.Process(child).suspend()
        wait_until(lambda: admin.pools().pools[0].lease <= 0)
        (busy,) = admin.busy()
        assert busy.stale
        assert faces.api("/busy")[0]["stale"]
        assert "0 live pools with 0 workers, 0 of them busy." in faces.page("/worker_pools")
        assert "no heartbeat from its pool" in faces.page("/busy_workers")
        assert "no heartbeat from its pool" in faces.run("jobs", "ls", "--state", "running")
        faces.top("pools").wait_for("0 of 0 workers busy", "no heartbeat")
        faces.top("busy").wait_for("no heartbeat from its pool")
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)
        worker.close()


def test_how_the_times_of_a_job_are_spread_is_the_same_everywhere(faces, admin, new_pool, look):
    pool = new_pool()

    @pool.job
    def mail() -> None: ...

    for _ in range(3):
        mail.enqueue()
    with pool:
        wait_until(lambda: admin.spread("mail").all_runs.count == 3)
    found = admin.spread("mail")
    assert sum(one.count for one in found.runs) == sum(one.count for one in found.waits) == 3
    assert sum(faces.api("/spread", name="mail")["all_runs"]["buckets"].values()) == 3
    assert sum(faces.run_json("metrics", "--job", "mail")["all_waits"]["buckets"].values()) == 3
    assert "ran in the last 1 h: 3" in faces.run("metrics", "--job", "mail")
    page = faces.page("/metrics", name="mail")
    for title in (
        "Run time by minute, last hour",
        "Wait by minute, last hour",
        "Run time, last hour",
        "Wait, last hour",
    ):
        assert title in page
    assert sum(faces.api("/spread", name="mail", hours=72)["all_runs"]["buckets"].values()) == 3


def test_memory_and_round_trips_over_time_are_the_same_everywhere(faces, admin, new_pool, look):
    pool = new_pool(concurrency=3)
    pool.register("work", lambda: None)
    with pool:
        wait_until(lambda: any(admin.vitals().memory))
    found = admin.vitals()
    place = next(n for n, value in enumerate(found.memory) if value)
    assert found.workers[place] in (0, 3)
    # At another place if a minute has ended meanwhile.
    assert found.memory[place] in faces.api("/vitals")["memory"]
    assert found.memory[place] in faces.run_json("redis", "--steps")["memory"]
    assert "MEMORY CLIENTS COMMANDS/S" in faces.run("redis", "--steps")
    assert "memory" in faces.run("redis")
    assert "Round trip of an exchange" in faces.page("/redis", hours=24)
    faces.top("redis").wait_for("last hour", "memory")


def test_each_note_of_the_verdict_has_since_when_where_that_is_known(
    faces, admin, new_pool, look, call, keys
):
    now = int(look.now())
    for ago in (500, 3600):
        call(
            "ZADD", keys.dead, now - ago, look.payload("mail", f"d{ago}", err="ValueError: no", failed_at=now)
        )
    head = msgspec.json.encode({"at": (now - 700) * 1000, "where": "queue mail", "why": "it is not JSON"})
    call("RPUSH", keys.broken, head + b"\n{")
    call("LPUSH", keys.queue("stray"), look.payload("stray", "s1", t=now - 900))
    call("SADD", keys.known_jobs, "stray", "mail", "odd")
    for key in (keys.queue("odd"), keys.scheduled):
        call("SET", key, "wrong")
    minute = now // 60
    call("HSET", keys.minute(minute), "mail|f", 6, "mail|r10", 6, "mail|o", 6)
    pool = new_pool(beat=0.2)
    pool.register("mail", lambda: None)
    with pool:
        since = {"dead": now - 3600, "broken": now - 700, "no_worker": now - 900, "failing": minute * 60}
        wait_until(lambda: set(since) <= {one.kind for one in admin.verdict().notes})
        found = {one.kind: one.since for one in admin.verdict().notes if one.kind in since}
        assert found == pytest.approx(since, abs=2)
        assert re.search(r"2 jobs are dead\. Began \d+ min ago", faces.page("/"))
        wait_until(lambda: call("HLEN", keys.first_seen) >= 2)
        odd = {one.subject: one for one in admin.verdict().notes if one.kind == "wrong_type"}
        assert odd.keys() == {"odd", "scheduled"}
        assert all(one.or_earlier and now <= one.since <= look.now() for one in odd.values())
        assert re.search(r'key of queue "odd" has a wrong type\. Began .{1,20} or earlier\.', faces.page("/"))
        shown = {one["kind"]: one["since"] for one in faces.api("/verdict")["notes"] if one["kind"] in since}
        assert shown == pytest.approx(since, abs=2)
    stopped = next(one.since for one in admin.verdict().notes if one.kind == "no_pool")
    assert now <= stopped <= look.now()


@pytest.fixture
def failing_since(call, keys, look) -> int:
    """Jobs that fail for some time, in the figures before the console reads them; the minute under way."""
    minute = int(look.now()) // 60
    failures = {"mail": (0, 9, 18, 40), "charge": range(58), "scan": (0, 5, 10)}
    for name, ago in failures.items():
        for one in ago:
            call("HSET", keys.minute(minute - one), f"{name}|f", 6, f"{name}|r10", 6, f"{name}|o", 6)
    return minute


def test_a_job_fails_since_its_first_failure_after_ten_minutes_without_one(failing_since, faces, admin):
    found = {one.subject: one for one in admin.verdict().notes if one.kind == "failing"}
    began = {name: (failing_since - one.since // 60, one.or_earlier) for name, one in found.items()}
    assert began == {"mail": (18, False), "charge": (57, True), "scan": (10, False)}
    assert re.search(r'100% of "charge" fail\. Began 5\d min ago or earlier\.', faces.page("/"))
    assert re.search(r'100% of "charge" fail \(for 5\d min or longer\)', faces.run("stats"))
    assert re.search(r'100% of "mail" fail \(for 1\d min\)', faces.run("stats"))
