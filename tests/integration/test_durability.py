"""What an enqueue waits for: memory, replicas or the disk. Its three answers stay three, and a repeat never stores twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from datetime import UTC, datetime

import pytest

import dayjob.enqueue.sender
from dayjob import AsyncEnqueuer, Enqueuer, WorkerPool
from dayjob.errors import BadOption, Rejected, Unavailable, Unknown
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from driver import Driver
from proxy import BEFORE, proxied
from server import Server, running, wait_until


def tell(server: Server, *words):
    """Send one command to a server."""
    link = Link(addresses.parse_url(server.url), tag="", timeout=20)
    try:
        return link.run(plain(*words))
    finally:
        link.close()


@pytest.fixture(scope="module")
def primary(tmp_path_factory):
    with running(
        tmp_path_factory.mktemp("primary"), "--repl-diskless-sync-delay", "0", "--repl-timeout", "600"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def replica(primary, tmp_path_factory):
    with running(tmp_path_factory.mktemp("replica"), "--replicaof", "127.0.0.1", str(primary.port)) as found:
        wait_until(lambda: b"state=online" in tell(primary, "INFO", "replication"))
        yield found


@contextlib.contextmanager
def paused(server: Server):
    """A server that does nothing for the length of a block."""
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def logging_server(tmp_path_factory):
    """A server with an append-only file that is synced before it answers."""
    with running(tmp_path_factory.mktemp("aof"), "--appendonly", "yes", "--appendfsync", "always") as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def make(request, namespace, monkeypatch):
    """Make an enqueuer of either colour that talks to a URL."""
    monkeypatch.setattr(
        dayjob.enqueue.sender,
        "RETRY_SECONDS",
        tuple(wait and wait / 50 for wait in dayjob.enqueue.sender.RETRY_SECONDS),
    )
    made = []
    runner = asyncio.Runner() if request.param == "async" else None

    def build(url: str, **options) -> Driver:
        kind = Enqueuer if runner is None else AsyncEnqueuer
        made.append(Driver(kind(namespace, redis=url, timeout=20, **options), runner))
        return made[-1]

    yield build
    for driver in made:
        driver.close()
    if runner is not None:
        runner.close()


def hurry(enqueuer: Driver) -> None:
    """Wait a moment for a confirmation from now on. For any other answer it waits long, for the machine may be busy."""
    enqueuer.enqueue("warm", n=0)  # connected, the scripts known, and what can confirm has shown that it can
    enqueuer.enqueuer.sender._timeout = 0.4


def confirmed(enqueuer: Driver, unknown: Unknown):
    """The answer of a repeat, once the confirmation comes in time: the machine may be busy."""
    while True:
        try:
            return enqueuer.wait(unknown.repeat())
        except Unknown as error:
            unknown = error


def stored(server: Server, namespace: str) -> list[str]:
    """The ids of the jobs named a that wait or are scheduled."""
    keys = Keys(namespace)
    raw = [*tell(server, "LRANGE", keys.queue("a"), 0, -1), *tell(server, "ZRANGE", keys.scheduled, 0, -1)]
    return [json.loads(one)["id"] for one in raw]


#: Every script that stores, and both ways through the one for ids and keys.
WAYS = {
    "enqueue": lambda enqueuer: enqueuer.enqueue("a", n=1),
    "schedule": lambda enqueuer: enqueuer.enqueue_in("a", 600, n=1),
    "unique": lambda enqueuer: enqueuer.enqueue_unique("a", n=1),
    "unique at": lambda enqueuer: enqueuer.enqueue_unique_at("a", datetime(2090, 1, 1, tzinfo=UTC), n=1),
    "chosen id": lambda enqueuer: enqueuer.using(id="mine").enqueue("a", n=1),
}


# Replicas.


def test_what_was_enqueued_for_a_replica_is_there_when_the_call_returns(make, primary, replica, namespace):
    enqueuer = make(primary.url, durability="replicas:1")
    for n in range(20):
        job = enqueuer.enqueue("a", n=n)
        assert stored(replica, namespace)[0] == job.id


def test_many_jobs_are_confirmed_request_by_request(make, primary, replica, namespace):
    jobs = make(primary.url, durability="replicas:1").enqueue_many("a", [{"n": n} for n in range(1200)])
    assert len(jobs) == 1200
    assert sorted(stored(replica, namespace)) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("way", WAYS)
def test_a_replica_that_says_nothing_makes_the_answer_unknown_and_a_repeat_waits_again(
    make, primary, replica, namespace, way
):
    enqueuer = make(primary.url, durability="replicas:1")
    hurry(enqueuer)
    with paused(replica):
        with pytest.raises(Unknown, match="stored, but confirmed by 0 of 1 replicas within 0.4 s") as first:
            WAYS[way](enqueuer)
        assert len(stored(primary, namespace)) == 1
        with pytest.raises(Unknown, match="0 of 1"):
            enqueuer.wait(first.value.repeat())
        # A new connection has written nothing yet: a proof that forgot that would be had for the asking.
        enqueuer.close()
        with pytest.raises(Unknown, match="0 of 1"):
            enqueuer.wait(first.value.repeat())
    job = confirmed(enqueuer, first.value)
    assert stored(primary, namespace) == [job.id]
    assert stored(replica, namespace) == [job.id]


def test_an_id_that_was_stored_before_is_confirmed_too(make, primary, replica, namespace):
    make(primary.url).using(id="mine").enqueue("a", n=1)
    enqueuer = make(primary.url, durability="replicas:1")
    hurry(enqueuer)
    with paused(replica), pytest.raises(Unknown, match="0 of 1"):
        enqueuer.using(id="mine").enqueue("a", n=1)
    assert stored(primary, namespace) == ["mine"]


def test_a_duplicate_waits_for_nobodys_word(make, primary, replica, namespace):
    enqueuer = make(primary.url, durability="replicas:1")
    assert enqueuer.enqueue_unique("a", n=1)
    hurry(enqueuer)
    with paused(replica):
        assert enqueuer.enqueue_unique("a", n=1) is None


def test_scripts_that_were_flushed_do_not_make_a_false_proof(make, primary, replica, namespace):
    enqueuer = make(primary.url, durability="replicas:1")
    hurry(enqueuer)
    with paused(replica):
        tell(primary, "SCRIPT", "FLUSH")
        with pytest.raises(Unknown, match="0 of 1"):
            enqueuer.enqueue("a", n=1)
    assert len(stored(primary, namespace)) == 1


def test_with_too_few_replicas_nothing_is_stored(make, primary, replica, namespace):
    enqueuer = make(primary.url, durability="replicas:2")
    with pytest.raises(
        Unavailable, match="replicas:2': 1 replicas of the server respond; nothing was stored"
    ):
        enqueuer.enqueue("a", n=1)
    assert stored(primary, namespace) == []


def test_replicas_that_went_away_leave_the_job_stored_and_the_answer_unknown(make, namespace, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with running(tmp_path / "one", "--repl-diskless-sync-delay", "0") as one:
        with running(tmp_path / "two", "--replicaof", "127.0.0.1", str(one.port)) as two:
            wait_until(lambda: b"state=online" in tell(one, "INFO", "replication"))
            wait_until(lambda: tell(one, "WAIT", 1, 100) == 1)
            enqueuer = make(one.url, durability="replicas:1")
            hurry(enqueuer)
            two.kill()
            with pytest.raises(Unknown, match="0 of 1"):
                enqueuer.enqueue("a", n=1)
            assert len(stored(one, namespace)) == 1


@pytest.mark.parametrize("place", [b"EVAL", b"WAIT"])
def test_a_connection_cut_at_either_command_stores_once_and_confirms(
    make, primary, replica, namespace, place
):
    with proxied(primary.port) as proxy:
        enqueuer = make(proxy.url, durability="replicas:1")
        enqueuer.enqueue("warm", n=0)
        proxy.next(BEFORE, only=place)
        job = enqueuer.enqueue("a", n=1)
        assert proxy.pending == 0
        assert stored(replica, namespace) == [job.id]


def test_a_failover_while_it_waits_is_asked_again_elsewhere(make, primary, replica, namespace):
    """A server that turns replica wakes those who wait with an error: the job is stored there, so nothing is certain."""
    with proxied(primary.port) as proxy:
        enqueuer = make(proxy.url, durability="replicas:1")
        enqueuer.enqueue("warm", n=0)
        proxy.next(proxy_error("UNBLOCKED force unblock from blocking operation"), only=b"WAIT")
        job = enqueuer.enqueue("a", n=1)
        assert stored(replica, namespace) == [job.id]
        assert stored(primary, namespace) == [job.id]


def proxy_error(text: str):
    from proxy import error

    return error(text)


# The disk.


def test_what_was_enqueued_for_the_disk_was_synced(make, logging_server, namespace):
    job = make(logging_server.url, durability="disk").enqueue("a", n=1)
    assert stored(logging_server, namespace) == [job.id]


def test_a_log_that_is_synced_every_second_is_waited_for_or_refused(make, namespace, tmp_path):
    """Some servers say that their log is synced when it is not: an answer from those is worth nothing."""
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec") as server:
        enqueuer = make(server.url, durability="disk")
        began = time.monotonic()
        refusal = None
        try:
            for n in range(3):
                enqueuer.enqueue("a", n=n)
        except Rejected as error:
            refusal = str(error)
        if refusal is not None:
            assert (
                "nothing was stored. With appendfsync everysec, only Redis 8.0 and newer confirm that data is on disk"
                in refusal
            )
            assert stored(server, namespace) == []
            tell(server, "CONFIG", "SET", "appendfsync", "always")
            enqueuer.enqueue("a", n=1)
            assert len(stored(server, namespace)) == 1
        else:
            # Synced at most once a second: three that waited for it took longer than two of its seconds.
            assert time.monotonic() - began > 1.8
            assert len(stored(server, namespace)) == 3


def test_a_disk_that_is_too_slow_makes_the_answer_unknown(make, logging_server, namespace):
    enqueuer = make(logging_server.url, durability="disk")
    hurry(enqueuer)
    tell(logging_server, "CONFIG", "SET", "appendfsync", "no")
    try:
        with pytest.raises(
            Unknown, match="stored, but not known to be on the server's disk within 0.4 s"
        ) as first:
            enqueuer.enqueue("a", n=1)
        assert len(stored(logging_server, namespace)) == 1
    finally:
        tell(logging_server, "CONFIG", "SET", "appendfsync", "always")
    job = confirmed(enqueuer, first.value)
    assert stored(logging_server, namespace) == [job.id]


def test_a_server_that_leaves_syncing_to_the_system_is_refused(make, namespace, tmp_path):
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "no") as server:
        with pytest.raises(Rejected, match=r"nothing was stored.*appendfsync no"):
            make(server.url, durability="disk").enqueue("a", n=1)
        assert stored(server, namespace) == []


def test_a_server_that_does_not_tell_how_it_syncs_is_refused_unless_its_word_counts(
    make, logging_server, namespace
):
    tell(logging_server, "ACL", "SETUSER", "shut", "on", ">pw", "~*", "+@all", "-config")
    url = logging_server.url.replace("redis://", "redis://shut:pw@")
    enqueuer = make(url, durability="disk")
    if b"redis_version:8" in tell(logging_server, "INFO", "server"):
        enqueuer.enqueue("a", n=1)
        assert len(stored(logging_server, namespace)) == 1
    else:
        with pytest.raises(Rejected, match=r"nothing was stored.*let this user CONFIG GET appendfsync"):
            enqueuer.enqueue("a", n=1)
        assert stored(logging_server, namespace) == []


def test_a_server_without_a_log_is_refused_before_anything_is_stored(make, primary, namespace):
    enqueuer = make(primary.url, durability="disk")
    with pytest.raises(Rejected, match=r"nothing was stored.*keeps no append-only file: set appendonly yes"):
        enqueuer.enqueue("a", n=1)
    assert stored(primary, namespace) == []


def test_a_server_that_cannot_be_asked_is_refused_before_anything_is_stored(make, namespace, tmp_path):
    with running(
        tmp_path, "--appendonly", "yes", "--appendfsync", "always", "--rename-command", "WAITAOF", ""
    ) as old:
        enqueuer = make(old.url, durability="disk")
        with pytest.raises(
            Rejected, match=r"nothing was stored.*no WAITAOF: use Redis 7.2 or newer or Valkey"
        ):
            enqueuer.enqueue("a", n=1)
        assert stored(old, namespace) == []
        make(old.url).enqueue("a", n=1)
        assert len(stored(old, namespace)) == 1


def test_a_log_that_is_turned_off_under_way_is_said_and_then_refused(make, namespace, tmp_path):
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        enqueuer = make(server.url, durability="disk")
        enqueuer.enqueue("warm", n=0)
        tell(server, "CONFIG", "SET", "appendonly", "no")
        with pytest.raises(Unknown, match="stored, but not confirmed.*appendonly is disabled") as first:
            enqueuer.enqueue("a", n=1)
        with pytest.raises(Rejected, match="nothing was stored"):
            enqueuer.enqueue("a", n=2)
        assert len(stored(server, namespace)) == 1
        tell(server, "CONFIG", "SET", "appendonly", "yes")
        job = enqueuer.wait(first.value.repeat())
        assert stored(server, namespace) == [job.id]


# What is asked for, and where.


def test_without_it_nothing_more_is_sent_than_before(make, primary, replica, namespace):
    with proxied(primary.port) as proxy:
        make(proxy.url).enqueue("a", n=1)
        make(proxy.url, durability="memory").enqueue("a", n=1)
        make(proxy.url, durability="replicas:1").using(durability="memory").enqueue("a", n=1)
        assert not [words for words in proxy.requests if words[0].startswith(b"WAIT")]


def test_the_proof_follows_its_request_at_once_and_the_server_is_looked_at_once(make, primary, replica):
    with proxied(primary.port) as proxy:
        enqueuer = make(proxy.url, durability="replicas:1")
        enqueuer.enqueue("a", n=1)
        proxy.requests.clear()
        enqueuer.enqueue("a", n=2)
        enqueuer.using(source=3).enqueue("a", n=2)
        assert [words[0] for words in proxy.requests] == [b"EVALSHA", b"WAIT", b"EVALSHA", b"WAIT"]


def test_one_job_may_ask_for_more_than_the_others(make, primary, replica, namespace):
    enqueuer = make(primary.url)
    careful = enqueuer.using(durability="replicas:1")
    hurry(careful)
    with paused(replica):
        enqueuer.enqueue("a", n=1)
        with pytest.raises(Unknown):
            careful.enqueue("a", n=1)


def test_a_pool_and_its_job_types_have_it_too(primary, replica, namespace):
    pool = WorkerPool(namespace=namespace, redis=primary.url, durability="replicas:1")

    @pool.job
    def a(n: int) -> None: ...

    plain_pool = WorkerPool(namespace=namespace, redis=primary.url)

    @plain_pool.job("a")
    def b(n: int) -> None: ...

    async def both() -> None:
        with pytest.raises(Unknown, match="0 of 1"):
            await a.aenqueue(n=1)
        await a.using(durability="memory").aenqueue(n=1)
        await pool.async_enqueuer.close()

    pool.enqueuer.enqueue("a", n=0)
    b.using(durability="replicas:1").enqueue(n=0)
    for enqueuer in (pool.enqueuer, plain_pool.enqueuer, pool.async_enqueuer):
        enqueuer.sender._timeout = 1.5
    with paused(replica):
        for send in (
            a.enqueue,
            b.using(durability="replicas:1").enqueue,
            b.using(durability="replicas:1").enqueue_unique,
        ):
            with pytest.raises(Unknown, match="0 of 1"):
                send(n=1)
        b.enqueue(n=1)
        a.using(durability="memory").enqueue(n=1)
        asyncio.run(both())
    pool.enqueuer.close()
    plain_pool.enqueuer.close()


def test_members_of_a_batch_are_stored_as_durably_as_its_pool_asks(primary, replica, namespace):
    pool = WorkerPool(namespace=namespace, redis=primary.url, durability="replicas:1")

    @pool.job
    def a(n: int) -> None: ...

    async def doubtful() -> None:
        with pytest.raises(Unknown, match="0 of 1"):
            async with pool.batch():
                await a.aenqueue(n=1)
        await pool.async_enqueuer.close()

    with pool.batch() as batch:
        jobs = a.enqueue_many([{"n": n} for n in range(1200)])
    assert sorted(stored(replica, namespace)) == sorted(job.id for job in jobs)
    assert tell(replica, "HGET", Keys(namespace).batch(batch.id), "closed") is not None
    for enqueuer in (pool.enqueuer, pool.async_enqueuer):
        enqueuer.sender._timeout = 1.5
    with paused(replica):
        with pytest.raises(Unknown, match="0 of 1"), pool.batch():
            a.enqueue(n=1)
        asyncio.run(doubtful())
    pool.enqueuer.close()


def test_a_member_of_a_batch_has_no_durability_of_its_own(primary, namespace):
    """Members are stored together: what one of them asks for would be ignored."""
    pool = WorkerPool(namespace=namespace, redis=primary.url)

    @pool.job
    def a(n: int) -> None: ...

    with pool.batch():
        with pytest.raises(BadOption, match="members of a batch are stored together"):
            a.using(durability="replicas:1").enqueue(n=1)
        apart = a.using(durability="memory", now=True).enqueue(n=2)
    assert stored(primary, namespace) == [apart.id]
    pool.enqueuer.close()


@pytest.mark.parametrize(
    "value", ["", "Disk", "replicas", "replicas:0", "replicas:100", "replicas:-1", "replica:2", 2, None]
)
def test_what_is_none_of_the_words_is_refused_with_them(value):
    for build in (
        lambda: Enqueuer("n", durability=value),
        lambda: AsyncEnqueuer("n", durability=value),
        lambda: WorkerPool(namespace="n", durability=value),
        lambda: Enqueuer("n").using(durability=value),
    ):
        with pytest.raises(BadOption, match="durability=.*write 'memory', 'disk', or 'replicas:2'"):
            build()
