"""Redis that comes back empty under live pools: limits hold and redacted arguments stay hidden, from the first job on."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from dayjob import WorkerPool
from dayjob.admin.client import Admin
from dayjob.handlers.redact import UNANNOUNCED
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import plain
from dayjob.store.ops import concurrency, inspect, job_types, operate
from dayjob.worker.chores import chores
from server import running, wait_until

SECRET = "4111111111111111"


class Room:
    """Counts how many handlers are inside at once. Each stays until there is one too many, or a moment has passed."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.lock = threading.Lock()
        self.inside = self.peak = self.passed = 0
        self.crowd = threading.Event()

    def stay(self) -> None:
        with self.lock:
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            if self.inside > self.most:
                self.crowd.set()
        self.crowd.wait(0.02)
        with self.lock:
            self.inside -= 1
            self.passed += 1


@pytest.fixture
def own_server(tmp_path):
    with running(tmp_path) as server:
        yield server


def test_limits_and_redaction_hold_after_a_restart_without_persistence(own_server, namespace, monkeypatch):
    room = Room(most=1)
    pools = [WorkerPool(namespace=namespace, redis=own_server.url, concurrency=10) for _ in range(2)]

    def work(card: str) -> None:
        room.stay()

    for pool in pools:
        pool.register("work", work, max_concurrency=1, redact=["card"])
        pool.periodic("0 0 1 1 *", "work", {"card": SECRET}, name="yearly")
    with pools[0], pools[1]:
        own_server.kill()
        own_server.start()
        pools[0].enqueuer.enqueue_many("work", [{"card": SECRET}] * 20)
        with Admin(namespace, redis=own_server.url) as admin:
            wait_until(lambda: admin.jobs("waiting", name="work").jobs or room.passed == 20)
            assert all(SECRET not in str(job.args) for job in admin.jobs("waiting", name="work").jobs)
            wait_until(lambda: room.passed == 20)
            # The pool that was idle takes a new id with its next beat.
            wait_until(lambda: len(admin.pools().pools) == 2)
            assert [one.name for one in admin.job_types()] == ["work"]
            wait_until(lambda: [one.job for one in admin.periodic()] == ["work"])
    assert room.peak == 1
    for pool in pools:
        pool.enqueuer.close()


def test_each_flush_takes_limits_away_only_until_a_pool_fetches_again(own_server, namespace):
    room = Room(most=2)
    pools = [
        WorkerPool(namespace=namespace, redis=own_server.url, concurrency=10, beat=0.3) for _ in range(2)
    ]
    pool = pools[0]
    for one in pools:
        one.register("work", room.stay, max_concurrency=2)
    keys = Keys(namespace)
    link = Link(addresses.parse_url(own_server.url), tag=keys.known_jobs)
    with pools[0], pools[1], contextlib.closing(link):
        for _ in range(5):
            # The lost attempts of a flush go on running; they are not held any more, so they are not counted.
            wait_until(lambda: room.inside == 0)
            link.run(plain("FLUSHALL"))
            before = room.passed
            pool.enqueuer.enqueue_many("work", [{}] * 10)
            wait_until(lambda before=before: room.passed >= before + 10)
            # Both have joined again, and announced what the flush took.
            wait_until(lambda: len(link.run(plain("ZRANGE", keys.pools, 0, -1))) == 2)
            assert link.run(concurrency.get_limits(keys)) == ({"work": 2}, set())
            assert [one.described.name for one in walk(link, job_types.every(keys))] == ["work"]
    assert room.peak == 2
    pool.enqueuer.close()


def test_an_idle_pool_that_redis_forgot_registers_again_without_a_job(new_pool, keys, call):
    """Nothing rings its bell, so only its heartbeat can tell."""
    pool = new_pool(beat=0.1)
    pool.register("mail", lambda: None)
    with pool:
        (first,) = call("ZRANGE", keys.pools, 0, -1)
        call("DEL", keys.pools)
        (second,) = wait_until(lambda: call("ZRANGE", keys.pools, 0, -1))
    assert second != first


def test_what_was_deleted_by_hand_is_restored_within_the_minute(
    new_pool, keys, call, link, look, monkeypatch
):
    monkeypatch.setattr(chores, "REPAIR_INTERVAL_SECONDS", 0.05)
    pool = new_pool()
    pool.register("limited", lambda: None, max_concurrency=3)
    pool.register("free", lambda: None)
    pool.periodic("0 0 1 1 *", "free", name="yearly")
    with pool:
        call("DEL", keys.limits)
        call("DEL", keys.job_types)
        call("HDEL", keys.periodic, "yearly|is")
        wait_until(lambda: link.run(concurrency.get_limits(keys)) == ({"limited": 3}, set()))
        wait_until(
            lambda: {one.described.name for one in walk(link, job_types.every(keys))} == {"limited", "free"}
        )
        wait_until(lambda: link.run(inspect.announced(keys, ["yearly"])) == [True])


def test_a_limit_that_an_operator_set_or_lifted_is_left_alone_by_the_minutes_repair(
    new_pool, keys, call, link, monkeypatch
):
    monkeypatch.setattr(chores, "REPAIR_INTERVAL_SECONDS", 0.05)
    pool = new_pool()
    for name in ("set", "lifted", "lost"):
        pool.register(name, lambda: None, max_concurrency=3)
    with pool:
        walk(link, operate.set_concurrency_limit(keys, "set", 7))
        walk(link, operate.set_concurrency_limit(keys, "lifted", None))
        call("HDEL", keys.limits, "lost", "lost|by")
        wait_until(lambda: link.run(concurrency.get_limits(keys))[0].get("lost") == 3)
        assert link.run(concurrency.get_limits(keys)) == ({"set": 7, "lost": 3}, {"set"})
    # A pool that starts declares what its code says, as before.
    with pool:
        assert link.run(concurrency.get_limits(keys)) == ({"set": 7, "lifted": 3, "lost": 3}, {"set"})


def test_pools_of_two_versions_do_not_change_a_limit_back_and_forth(new_pool, keys, call, link, monkeypatch):
    monkeypatch.setattr(chores, "REPAIR_INTERVAL_SECONDS", 0.02)
    old, new = new_pool(), new_pool()
    for pool, most in ((old, 2), (new, 5)):
        pool.register("work", lambda: None, max_concurrency=most)
        pool.register("lost", lambda: None, max_concurrency=1)
    with old, new:
        for _ in range(3):
            call("HDEL", keys.limits, "lost", "lost|by")
            wait_until(lambda: link.run(concurrency.get_limits(keys))[0].get("lost") == 1)
            assert link.run(concurrency.get_limits(keys))[0]["work"] == 5


def test_keys_of_a_wrong_type_do_not_stop_a_pool_that_takes_a_new_id(new_pool, keys, call, look, caplog):
    pool = new_pool(beat=0.3)
    ran = threading.Event()
    pool.register("work", ran.set)
    pool.periodic("0 0 1 1 *", "work", name="yearly")
    with pool:
        (first,) = look.pools()
        call("DEL", keys.job_types, keys.periodic)
        call("SET", keys.job_types, "x")
        call("SET", keys.periodic, "x")
        call("ZREM", keys.pools, first)
        wait_until(lambda: look.pools() not in ([], [first]))
        pool.enqueuer.enqueue("work")
        assert ran.wait(60)
    assert "cannot be announced" in caplog.text


def test_arguments_of_a_job_type_that_no_pool_announced_are_hidden(namespace, redis_url, keys, look, call):
    call("LPUSH", keys.queue("pay"), look.payload("pay", "1", args={"card": SECRET, "n": 7}))
    call("LPUSH", keys.queue("ping"), look.payload("ping", "2"))
    call("SADD", keys.known_jobs, "pay", "ping")
    dead = look.payload("pay", "3", args={"card": SECRET}, err=f"refused {SECRET}", fails=1)
    call("ZADD", keys.dead, look.now(), dead)
    with Admin(namespace, redis=redis_url) as admin:
        (job,) = admin.jobs("waiting", where="name=pay").jobs
        assert job.args == UNANNOUNCED
        # There is nothing to hide.
        assert admin.jobs("waiting", where="name=ping").jobs[0].args == {}
        (corpse,) = admin.jobs("dead").jobs
        assert corpse.args == UNANNOUNCED
        assert corpse.error == "refused [redacted]"
    with Admin(namespace, redis=redis_url, show_unannounced=True) as admin:
        (job,) = admin.jobs("waiting", where="name=pay").jobs
        assert job.args == {"card": SECRET, "n": 7}


def test_a_variable_shows_them_on_the_command_line(namespace, redis_url, keys, look, call, tmp_path):
    call("LPUSH", keys.queue("pay"), look.payload("pay", "1", args={"card": SECRET}))
    call("SADD", keys.known_jobs, "pay")
    words = ["jobs", "ls", "--state", "waiting", "--where", "name=pay"]

    def listed(**env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dayjob", *words, "--redis", redis_url, "--namespace", namespace],
            capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, **env}, check=True,
        )  # fmt: skip
        return done.stdout

    assert "no pool has announced this job type" in listed()
    assert SECRET not in listed()
    assert SECRET in listed(DAYJOB_SHOW_UNANNOUNCED="1")


def test_the_next_tick_of_a_schedule_is_enqueued_after_a_flush(own_server, namespace, caplog):
    ran = threading.Event()
    pool = WorkerPool(namespace=namespace, redis=own_server.url, beat=0.3)
    pool.register("work", ran.set)
    pool.periodic("* * * * * *", "work", name="each second")
    keys = Keys(namespace)
    link = Link(addresses.parse_url(own_server.url), tag=keys.known_jobs)
    with pool, contextlib.closing(link):
        assert ran.wait(60)
        link.run(plain("FLUSHALL"))
        ran.clear()
        assert ran.wait(60)
    pool.enqueuer.close()


def test_broken_entries_are_hidden_where_job_types_cannot_be_read(namespace, redis_url, keys, call):
    call("RPUSH", keys.broken, b'{"why":"x"}\n{"name":"pay","args":{"card":"' + SECRET.encode() + b'"}')
    call("SET", keys.job_types, "x")
    with Admin(namespace, redis=redis_url) as admin:
        (entry,) = admin.broken().entries
        assert SECRET.encode() not in entry.payload
