"""Retry in waves, with real pools: it goes on while jobs complete, and stops by itself when most fail again."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time

import pytest

from dayjob.admin import waves
from dayjob.errors import BadOption
from dayjob.store.ops import membership
from server import wait_until


@pytest.fixture
def bury(call, keys):
    """Put jobs into dead, the oldest first."""

    def put(count: int, name: str = "mail") -> None:
        for n in range(count):
            job = {
                "name": name,
                "id": f"{name}-{n}",
                "t": 1,
                "args": {"n": n},
                "fails": 4,
                "err": "Timeout: no",
            }
            # Old ones would be trimmed.
            call("ZADD", keys.dead, int(time.time()) - 3600 + n, json.dumps(job))

    return put


@pytest.fixture
def mailer(new_pool):
    """A pool whose job fails for the numbers in `bad`, and notes what it ran."""
    pool = new_pool(concurrency=8)
    pool.ran, pool.bad = [], set()

    @pool.job(max_fails=1)
    def mail(n: int) -> None:
        pool.ran.append(n)
        if n in pool.bad:
            raise ValueError("again")

    pool.start()
    return pool


def test_waves_double_until_all_dead_jobs_have_completed(admin, bury, mailer):
    bury(20)
    heard = []
    tally = admin.retry_in_waves(progress=lambda one: heard.append(one.message))
    assert tally.message == "20 jobs retried in 5 waves: 20 completed, 0 failed again."
    assert sorted(mailer.ran) == list(range(20))
    begun = [len(list(some)) for _, some in itertools.groupby(heard, key=lambda words: words.split(":")[0])]
    assert len(begun) == 5
    assert [line.action for line in admin.audit()] == ["retry in waves"] * 2


def test_waves_stop_when_most_fail_again_and_the_rest_stays_dead(admin, bury, mailer):
    bury(40)
    mailer.bad = set(range(3, 40))
    tally = admin.retry_in_waves()
    assert tally.message == (
        "Stopped, because more than 20% failed again. 7 jobs retried in 3 waves: 3 completed, 4 failed again, 33 stay dead."
    )
    assert (tally.changed, sorted(mailer.ran)) == (7, list(range(7)))
    assert admin.count("dead").matched == 37


def test_the_share_that_stops_and_the_size_of_a_wave_are_given(admin, bury, mailer):
    bury(12)
    mailer.bad = {0, 5}
    tally = admin.retry_in_waves(size=4, stop_above=0.5)
    assert tally.message == "12 jobs retried in 3 waves: 10 completed, 2 failed again."
    with pytest.raises(BadOption, match="1 to 500"):
        admin.retry_in_waves(size=501)


def test_a_job_that_goes_to_retry_has_failed_again(admin, bury, new_pool):
    bury(5, "slow")
    pool = new_pool()

    @pool.job(max_fails=5, backoff=3600)
    def slow(n: int) -> None:
        raise ValueError("again")

    pool.start()
    assert admin.retry_in_waves().message.startswith(
        "Stopped, because more than 20% failed again. 1 job retried"
    )
    assert (admin.count("retry").matched, admin.count("dead").matched) == (1, 4)


def test_only_jobs_that_match_are_retried(admin, bury, mailer):
    bury(3)
    bury(2, "other")
    assert admin.retry_in_waves(where="name=mail").changed == 3
    assert admin.count("dead").matched == 2


def test_a_wave_waits_for_jobs_that_run_and_for_a_queue_that_is_paused(admin, bury, mailer):
    bury(3)
    admin.pause("mail")
    looks = []

    def report(progress) -> bool:
        looks.append(progress.message)
        if len(looks) == 4:
            assert mailer.ran == []
            admin.resume("mail")
        return True

    assert (
        admin.retry_in_waves(progress=report).message
        == "3 jobs retried in 2 waves: 3 completed, 0 failed again."
    )
    assert looks[0] == "Wave 1: 1 job still to end. 0 of 0 failed again."


def test_the_caller_stops_it_and_what_was_not_retried_stays_dead(admin, bury, mailer):
    bury(9)
    admin.pause("mail")
    tally = admin.retry_in_waves(size=2, progress=lambda _: False)
    assert (
        tally.message
        == "Stopped. 2 jobs retried in 1 wave: 0 completed, 0 failed again, 2 not ended yet, 7 stay dead."
    )


def test_a_job_whose_unique_key_is_taken_stays_dead_and_the_waves_go_on(admin, bury, call, keys, mailer):
    key = keys.unique("mail", "u")
    call("SET", key, "other")
    job = {"name": "mail", "id": "u1", "t": 1, "args": {"n": 77}, "unique": True, "unique_key": key}
    call("ZADD", keys.dead, int(time.time()) - 4000, json.dumps(job))
    bury(3)
    tally = admin.retry_in_waves()
    assert tally.message == "3 jobs retried in 3 waves: 3 completed, 0 failed again, 1 stay dead."
    assert 77 not in mailer.ran


def test_in_a_queue_too_long_to_read_a_job_counts_as_waiting(admin, bury, enqueuer, monkeypatch):
    monkeypatch.setattr(waves, "MAX_READ", 2)
    monkeypatch.setattr(waves.inspect, "MAX_ENTRIES", 2)
    bury(1)
    looks = itertools.count()

    def report(_) -> bool:
        # Newer jobs hide the retried one from the looks.
        enqueuer.enqueue_many("mail", [{"n": 1}] * 3)
        return next(looks) < 3

    assert "1 not ended yet" in admin.retry_in_waves(progress=report).message


def test_ctrl_c_stops_the_command_and_what_was_not_retried_stays_dead(admin, bury, call, keys, redis_url):
    bury(4)
    words = ["dead", "retry", "--waves", "--redis", redis_url, "--namespace", keys.namespace]
    process = subprocess.Popen([sys.executable, "-m", "dayjob", *words], stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: call("LLEN", keys.queue("mail")) == 1)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert (
        printed
        == "Stopped. 1 job retried in 1 wave: 0 completed, 0 failed again, 1 not ended yet, 3 stay dead.\n"
    )
    assert admin.count("dead").matched == 3


def test_held_jobs_have_not_ended(admin, bury, link, keys, call):
    bury(1)
    assert link.run(membership.join(keys, "p1", [], lease=60.0, term=1.0)).registered

    def report(_) -> bool:
        raw = call("RPOP", keys.queue("mail"))
        if raw:
            call("HSET", keys.held("p1"), "1:mail", raw)
            return True
        return False

    assert "1 not ended yet" in admin.retry_in_waves(progress=report).message


def test_a_job_that_moves_during_a_look_has_not_ended(admin, bury, call, keys):
    """The first look finds it nowhere; the next one in its queue again."""
    bury(1)
    gone: list[bytes] = []

    def report(progress) -> bool:
        if not gone:
            gone.append(call("RPOP", keys.queue("mail")))
            return True
        if progress.message.startswith("Wave 1: 1 job") and len(gone) == 1:
            gone.append(b"")
            call("RPUSH", keys.queue("mail"), gone[0])
            return True
        return False

    assert "0 completed, 0 failed again, 1 not ended yet" in admin.retry_in_waves(progress=report).message
