"""A pool behind a bad network: nothing is lost, nothing runs twice, and work goes on within 5 s after the network does."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter

import pytest

from dayjob import Enqueuer, Job, WorkerPool
from dayjob.errors import Unavailable
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.scripts import load
from proxy import AFTER, BEFORE, KEEP, PASS, SWALLOW, Fault, Proxy, proxied, reply
from server import Server, running, sooner_than, wait_until

#: Seconds to wait until a pool works again. It promises 5; a loaded machine may need more.
RESUME = 60.0


@pytest.fixture
def proxy(server: Server) -> Proxy:
    with proxied(server.port) as found:
        yield found


@pytest.fixture
def enqueuer(redis_url, namespace) -> Enqueuer:
    """Enqueues past the proxy."""
    found = Enqueuer(namespace, redis=redis_url)
    yield found
    found.close()


class Runs:
    """Counts every start of every attempt."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def note(self, job: Job) -> None:
        with self._lock:
            self.counts[job.id, job.attempt] += 1

    def __len__(self) -> int:
        return len(self.counts)


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def pool(proxy, namespace, runs):
    """A pool behind the proxy; it is stopped after the test."""
    pool = WorkerPool(namespace=namespace, redis=proxy.url, concurrency=8)
    pool.register("a", runs.note)
    yield pool
    proxy.clear()
    pool.stop(timeout=0)


@pytest.fixture
def totals(call, keys):
    def read() -> dict[str, int]:
        raw = call("HGETALL", keys.totals)
        return {name.decode(): int(count) for name, count in zip(raw[::2], raw[1::2], strict=True)}

    return read


def lines(caplog, what: str) -> list[str]:
    return [record.message for record in caplog.records if record.message.startswith(what)]


def is_exchange(words: list[bytes]) -> bool:
    return words[0] == b"EVAL" or (words[0] == b"EVALSHA" and words[1] == load("exchange").sha.encode())


def random_cuts(seed: int, rate: float, *, others: float = 0.06):
    """Cut exchanges at one rate and everything else at another, which is lower: a chore is several requests."""
    rng = random.Random(seed)

    def choose(words: list[bytes]) -> Fault:
        if rng.random() >= (rate if is_exchange(words) else others):
            return PASS
        return rng.choice((BEFORE, AFTER, reply(rng.choice((0, 1, 5, 20, 60, 150, 400)))))

    return choose


# Cut.


@pytest.mark.parametrize(("seed", "others"), [(1, 0.0), (2, 0.25)])
def test_each_job_runs_once_though_exchanges_are_cut_at_random(
    proxy, pool, runs, enqueuer, totals, seed, others
):
    pool.start()
    proxy.each(random_cuts(seed, 0.25, others=others))
    jobs = enqueuer.enqueue_many("a", [{"n": n} for n in range(3000)])
    for _ in range(50):
        jobs.append(enqueuer.enqueue("a", n=-1))
    wait_until(lambda: len(runs) == len(jobs))
    proxy.clear()
    wait_until(lambda: totals().get("done:a") == len(jobs))
    assert set(runs.counts) == {(job.id, 1) for job in jobs}
    assert set(runs.counts.values()) == {1}
    found = totals()
    assert not {name for name in found if name.startswith(("late", "rewound", "failed", "broken"))}, found


def test_each_attempt_of_failing_and_unique_and_limited_jobs_runs_once(
    proxy, namespace, enqueuer, runs, totals, keys, call
):
    pool = WorkerPool(namespace=namespace, redis=proxy.url, concurrency=8)
    at_once: Counter[str] = Counter()
    most: Counter[str] = Counter()
    lock = threading.Lock()

    @pool.job(max_fails=3, backoff=0.01)
    def flaky(job: Job) -> None:
        runs.note(job)
        if job.fails < 2:
            raise ValueError("again")

    @pool.job
    def single(job: Job) -> None:
        runs.note(job)

    @pool.job(max_concurrency=1)
    def alone(job: Job) -> None:
        with lock:
            at_once["alone"] += 1
            most["alone"] = max(most["alone"], at_once["alone"])
        runs.note(job)
        with lock:
            at_once["alone"] -= 1

    @pool.job(max_fails=1)
    async def deadly(job: Job) -> None:
        runs.note(job)
        raise ValueError("dead")

    wanted = set()
    for n in range(60):
        job = enqueuer.enqueue("flaky", n=n)
        wanted |= {(job.id, 1), (job.id, 2), (job.id, 3)}
        wanted |= {(enqueuer.enqueue_unique("single", n=n).id, 1)}
        wanted |= {(enqueuer.enqueue(name, n=n).id, 1) for name in ("alone", "deadly")}
    logging.getLogger("dayjob.job").setLevel(logging.CRITICAL)
    try:
        pool.start()
        proxy.each(random_cuts(3, 0.2))
        wait_until(lambda: len(runs) == len(wanted))
        proxy.clear()
        wait_until(lambda: totals().get("done:alone") == 60 and totals().get("dead:deadly") == 60)
        wait_until(lambda: totals().get("done:flaky") == 60 and totals().get("done:single") == 60)
    finally:
        pool.stop(timeout=0)
        logging.getLogger("dayjob.job").setLevel(logging.NOTSET)
    assert set(runs.counts) == wanted
    assert set(runs.counts.values()) == {1}
    assert most["alone"] == 1
    found = totals()
    assert (found["failed:flaky"], found["retried:flaky"], found["failed:deadly"]) == (120, 120, 60)
    assert call("ZCARD", keys.dead) == 60
    assert call("KEYS", f"{keys.prefix}unique:*") == []
    assert call("EXISTS", keys.held_of("alone")) == 0


def test_late_copies_of_exchanges_change_nothing(proxy, pool, runs, enqueuer, totals):
    """They settle nothing again, and they take no jobs, though there are some to take."""
    pool.start()
    rng = random.Random(4)
    proxy.each(lambda words: KEEP if is_exchange(words) and rng.random() < 0.3 else PASS)
    jobs = []
    delivered = 0
    for _ in range(20):
        jobs += enqueuer.enqueue_many("a", [{"n": n} for n in range(100)])
        delivered += len(proxy.late())
        wait_until(lambda: len(runs) == len(jobs))
    proxy.clear()
    wait_until(lambda: totals().get("done:a") == len(jobs))
    assert delivered > 10
    assert set(runs.counts) == {(job.id, 1) for job in jobs}
    assert set(runs.counts.values()) == {1}
    assert not {name for name in totals() if name.startswith(("late", "rewound"))}, totals()


def test_scripts_that_the_server_forgets_all_the_time_are_sent_whole(
    pool, runs, enqueuer, call, totals, caplog
):
    pool.start()
    done = threading.Event()
    failures: list[BaseException] = []

    def flush() -> None:
        link = Link(addresses.parse_url(pool.redis), tag="")
        try:
            while not done.wait(0.01):
                link.run(plain("SCRIPT", "FLUSH"))
        except BaseException as error:
            failures.append(error)
        finally:
            link.close()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        jobs = [enqueuer.enqueue("a", n=n) for n in range(500)]
        wait_until(lambda: totals().get("done:a") == 500)
    finally:
        done.set()
        thread.join()
    assert not failures
    assert set(runs.counts.values()) == {1}
    assert len(runs) == len(jobs)
    assert not lines(caplog, "Redis is")


# Away for a while.


def test_a_black_hole_ends_and_the_pool_goes_on(proxy, pool, runs, enqueuer, totals, caplog):
    """What runs meanwhile is settled once, what was enqueued meanwhile runs, and two lines tell the story."""
    release = threading.Event()
    started = threading.Event()

    def slow(job: Job) -> None:
        started.set()
        release.wait(60)
        runs.note(job)

    pool.register("slow", slow)
    pool.start()
    enqueuer.enqueue("slow")
    assert started.wait(60)
    proxy.black_hole()
    release.set()
    for n in range(20):
        enqueuer.enqueue("a", n=n)
    wait_until(lambda: lines(caplog, "Redis is unreachable"))
    # The worst moment to end: new connections have just been taken in silence as well.
    connections = proxy.connections
    wait_until(lambda: proxy.connections > connections)
    proxy.resume()
    wait_until(lambda: totals().get("done:a") == 20 and totals().get("done:slow") == 1, RESUME)
    assert set(runs.counts.values()) == {1}
    wait_until(lambda: lines(caplog, "Redis is reachable again"))
    # Longer than a beat: no loop tells it again.
    quiet(6)
    assert len(lines(caplog, "Redis is unreachable")) == 1, caplog.text
    assert len(lines(caplog, "Redis is reachable again")) == 1, caplog.text


def quiet(seconds: float) -> None:
    """Let time pass, to see that nothing happens."""
    threading.Event().wait(seconds)


def test_a_pool_whose_idle_connections_died_in_silence_gets_its_next_job_in_time(proxy, pool, runs, enqueuer):
    """Half-open: the peer is gone and says nothing. New connections work."""
    pool.start()
    assert pool.drain(60)
    quiet(0.2)
    proxy.black_hole()
    proxy.resume()
    enqueuer.enqueue("a", n=1)
    wait_until(lambda: len(runs) == 1, RESUME)


def test_refused_connections_make_one_warning_and_one_recovery_line(
    proxy, pool, runs, enqueuer, totals, caplog
):
    pool.start()
    enqueuer.enqueue_many("a", [{"n": n} for n in range(50)])
    wait_until(lambda: totals().get("done:a") == 50)
    proxy.refuse()
    wait_until(lambda: lines(caplog, "Redis is unreachable"))
    enqueuer.enqueue_many("a", [{"n": n} for n in range(50)])
    quiet(3)
    assert totals()["done:a"] == 50
    proxy.accept()
    wait_until(lambda: totals().get("done:a") == 100, RESUME)
    wait_until(lambda: lines(caplog, "Redis is reachable again"))
    quiet(2)
    away, back = lines(caplog, "Redis is unreachable"), lines(caplog, "Redis is reachable again")
    assert len(away) == 1, caplog.text
    assert len(back) == 1, caplog.text
    assert f"127.0.0.1:{proxy.port}" in away[0]
    assert float(back[0].split()[-2]) >= 2.5
    assert set(runs.counts.values()) == {1}


def test_an_idle_pool_tells_an_outage_too(proxy, pool, runs, enqueuer, caplog):
    pool.start()
    assert pool.drain(60)
    proxy.refuse()
    wait_until(lambda: lines(caplog, "Redis is unreachable"))
    quiet(1.5)
    proxy.accept()
    enqueuer.enqueue("a", n=1)
    wait_until(lambda: len(runs) == 1, RESUME)
    wait_until(lambda: lines(caplog, "Redis is reachable again"))
    assert len(lines(caplog, "Redis is unreachable")) == 1, caplog.text
    assert len(lines(caplog, "Redis is reachable again")) == 1, caplog.text


def test_a_slow_network_costs_time_and_nothing_else(proxy, pool, runs, enqueuer, totals, caplog):
    proxy.each(lambda words: Fault("delay", 0.05))
    pool.start()
    jobs = enqueuer.enqueue_many("a", [{"n": n} for n in range(300)])
    wait_until(lambda: totals().get("done:a") == 300)
    assert set(runs.counts) == {(job.id, 1) for job in jobs}
    assert set(runs.counts.values()) == {1}
    assert not caplog.records


# Starting and stopping.


def test_a_pool_that_cannot_reach_redis_says_so_at_start_and_can_start_later(proxy, pool, runs, enqueuer):
    proxy.refuse()
    before = set(threading.enumerate())
    for _ in range(3):
        with pytest.raises(Unavailable, match=r"Redis at redis://127.0.0.1:\d+/0"):
            pool.start()
    wait_until(lambda: set(threading.enumerate()) <= before)
    proxy.accept()
    pool.start()
    enqueuer.enqueue("a", n=1)
    wait_until(lambda: len(runs) == 1)


@pytest.mark.parametrize(
    "fault", [BEFORE, AFTER, reply(0), reply(9)], ids=lambda fault: f"{fault.kind}{fault.amount}"
)
def test_a_start_that_is_cut_can_be_tried_again(proxy, pool, runs, enqueuer, fault):
    proxy.next(fault)
    try:
        pool.start()
    except Unavailable:
        pool.start()
    enqueuer.enqueue("a", n=1)
    wait_until(lambda: len(runs) == 1)


@pytest.mark.parametrize("away", ["black hole", "refused", "swallowed"])
@pytest.mark.parametrize("noticed", [False, True])
def test_stop_returns_in_time_when_redis_is_away(proxy, namespace, enqueuer, runs, caplog, away, noticed):
    others = set(threading.enumerate())
    pool = WorkerPool(namespace=namespace, redis=proxy.url, concurrency=4)
    pool.register("a", runs.note)
    pool.start()
    enqueuer.enqueue("a", n=1)
    wait_until(lambda: len(runs) == 1)
    if away == "refused":
        proxy.refuse()
    elif away == "black hole":
        proxy.black_hole()
    else:
        proxy.each(lambda words: SWALLOW)
    if noticed:
        enqueuer.enqueue("a", n=2)
        wait_until(lambda: lines(caplog, "Redis is unreachable"))
    with sooner_than(20):
        pool.stop(timeout=1)
    left = set(threading.enumerate()) - others
    wait_until(lambda: not any(thread.is_alive() for thread in left))


def test_stop_returns_in_time_when_the_last_word_needs_a_connection_that_takes_long(pool, monkeypatch):
    """A new connection is several waits in a row, so that a limit on each does not bound them all."""
    pool.start()
    link, release, waited_out = pool._runtime.links.exchange, threading.Event(), []
    hasten = link.hasten

    def slowly():
        waited_out.append(not release.wait(60))
        raise ConnectionError("no server")

    def cut(seconds: float) -> None:
        hasten(seconds)
        link.close()
        monkeypatch.setattr(link, "_dial", slowly)

    monkeypatch.setattr(link, "hasten", cut)
    pool.stop(timeout=0)
    release.set()
    # It was not waited out: the stop had returned by then.
    wait_until(lambda: waited_out)
    assert not any(waited_out)


def test_what_a_pool_could_not_give_back_is_rescued_by_the_next(proxy, namespace, enqueuer, runs, redis_url):
    """It stopped while Redis was away: its lease ends, and its attempt runs again, once."""
    options = {"lease": 2.0, "beat": 0.5}
    first = WorkerPool(namespace=namespace, redis=proxy.url, concurrency=2, **options)
    started = threading.Event()

    def hang(job: Job) -> None:
        started.set()
        while not job.stopping:
            quiet(0.01)
        raise RuntimeError("stopped")

    first.register("a", hang)
    first.start()
    job = enqueuer.enqueue("a", n=1)
    assert started.wait(60)
    proxy.black_hole()
    first.stop(timeout=0.2)
    second = WorkerPool(namespace=namespace, redis=redis_url, concurrency=2, **options)
    second.register("a", runs.note)
    with second:
        wait_until(lambda: len(runs) == 1)
    assert [job_id for job_id, _ in runs.counts] == [job.id]


# The server itself.


def test_a_server_that_is_killed_and_comes_back_loses_nothing(tmp_path, namespace, runs, caplog):
    """With `everysec` it may: while it syncs in the background it answers before it writes."""
    keys = Keys(namespace)
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        enqueuer = Enqueuer(namespace, redis=server.url)
        pool = WorkerPool(namespace=namespace, redis=server.url, concurrency=8)
        pool.register("a", runs.note)
        pool.start()
        known = []
        for _ in range(4):
            known += enqueuer.enqueue_many("a", [{"n": n} for n in range(300)])
            server.kill()
            server.start()
            wait_until(lambda: len(runs) == len(known), RESUME)
        link = Link(addresses.parse_url(server.url), tag="")
        wait_until(lambda: int(link.run(plain("HGET", keys.totals, "done:a")) or 0) == len(known))
        link.close()
        pool.stop(timeout=5)
        enqueuer.close()
    assert set(runs.counts) == {(job.id, 1) for job in known}
    assert set(runs.counts.values()) == {1}


@pytest.mark.parametrize(
    ("on", "off"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
    ],
    ids=["READONLY", "NOREPLICAS"],
)
def test_a_server_that_refuses_writes_for_a_while(tmp_path, namespace, runs, caplog, on, off):
    with running(tmp_path) as server:
        link = Link(addresses.parse_url(server.url), tag="")
        enqueuer = Enqueuer(namespace, redis=server.url)
        pool = WorkerPool(namespace=namespace, redis=server.url, concurrency=4)
        hold = threading.Event()

        def held(job: Job) -> None:
            hold.wait(60)
            runs.note(job)

        pool.register("a", held)
        pool.start()
        known = [enqueuer.enqueue("a", n=n) for n in range(20)]
        wait_until(lambda: pool._runtime.state.held)
        link.run(plain(*on))
        hold.set()
        wait_until(lambda: lines(caplog, "Redis is unreachable"))
        quiet(1)
        link.run(plain(*off))
        wait_until(lambda: int(link.run(plain("HGET", Keys(namespace).totals, "done:a")) or 0) == 20, RESUME)
        wait_until(lambda: lines(caplog, "Redis is reachable again"), RESUME)
        pool.stop(timeout=5)
        link.close()
        enqueuer.close()
    assert set(runs.counts) == {(job.id, 1) for job in known}
    assert set(runs.counts.values()) == {1}
    assert len(lines(caplog, "Redis is unreachable")) == 1, caplog.text
    assert len(lines(caplog, "Redis is reachable again")) == 1, caplog.text


def test_a_large_result_gets_through_a_slow_connection(server, namespace, enqueuer):
    # So slow that it takes longer than the answer to a small request may.
    with proxied(server.port, bytes_per_second=1_500_000) as proxy:
        pool = WorkerPool(namespace=namespace, redis=proxy.url, max_result=16 << 20)

        @pool.job(keep=60)
        def large():
            return "x" * 10_000_000

        with pool:
            assert len(enqueuer.result(enqueuer.enqueue("large"), 60)) == 10_000_000
