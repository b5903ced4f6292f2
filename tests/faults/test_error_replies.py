"""Every error with which a server says "not now" or "not you": at every operation, once, three times and for long.

An enqueuer tries again or raises a typed error, and never stores two jobs or loses one in silence; a pool survives, and
works again within 5 s after the errors end. DAYJOB_PROOF=full tries each error at each operation by itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections import Counter

import pytest

import dayjob.enqueue.sender
from dayjob import AsyncEnqueuer, Enqueuer, Job, WorkerPool
from dayjob.errors import Full, Rejected, StoreError, Unavailable
from dayjob.store.ops import membership
from dayjob.store.scripts import all_names, load
from driver import Driver
from pools import Pool
from pools import fill as fill_queue
from proxy import PASS, Fault, Proxy, error, proxied
from scenarios import job as payload_of
from server import Server, sooner_than, wait_until

FULL = os.environ.get("DAYJOB_PROOF") == "full"
#: Seconds to wait until a pool works again. It promises 5; a loaded machine may need more.
RESUME = 60.0

#: Error replies as servers write them, by their code.
ERRORS = {
    "READONLY": "READONLY You can't write against a read only replica.",
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "UNBLOCKED": "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "NOSCRIPT": "NOSCRIPT No matching script. Please use EVAL",
    "NOAUTH": "NOAUTH Authentication required.",
    "NOPERM": "NOPERM User default has no permissions to run the 'evalsha' command",
}
#: Those that nobody gets better by trying again at once, and what an enqueuer raises for them.
FINAL = {"OOM": Full, "NOAUTH": Rejected, "NOPERM": Rejected}
#: A script that is not known is sent whole, so that an error for both is needed to see one.
NOSCRIPT_TWICE = Rejected

METHODS = {
    "enqueue": lambda enqueuer, n: enqueuer.enqueue("a", n=n),
    "enqueue_in": lambda enqueuer, n: enqueuer.enqueue_in("a", 600, n=n),
    "enqueue_unique": lambda enqueuer, n: enqueuer.enqueue_unique("a", n=n),
    "enqueue_many": lambda enqueuer, n: enqueuer.enqueue_many("a", [{"n": n}, {"n": -n}]),
    "chosen id": lambda enqueuer, n: enqueuer.using(id=f"id-{n}").enqueue("a", n=n),
}


@pytest.fixture
def proxy(server: Server) -> Proxy:
    with proxied(server.port) as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def enqueuer(request, namespace, proxy, monkeypatch):
    """An enqueuer of either colour behind the proxy, which waits a fraction of a second between its tries."""
    monkeypatch.setattr(
        dayjob.enqueue.sender,
        "RETRY_SECONDS",
        tuple(wait and wait / 50 for wait in dayjob.enqueue.sender.RETRY_SECONDS),
    )
    runner = asyncio.Runner() if request.param == "async" else None
    kind = Enqueuer if runner is None else AsyncEnqueuer
    driver = Driver(kind(namespace, redis=proxy.url, timeout=30.0), runner)
    yield driver
    driver.close()
    if runner is not None:
        runner.close()


@pytest.fixture
def stored(call, keys):
    """The ids of all jobs, in the queue and in scheduled."""

    def read() -> list[str]:
        waiting = call("LRANGE", keys.queue("a"), 0, -1) + call("ZRANGE", keys.scheduled, 0, -1)
        return sorted(json.loads(raw)["id"] for raw in waiting)

    return read


def ids(answer) -> list[str]:
    return [job.id for job in (answer if isinstance(answer, list) else [answer])]


# Enqueuers.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("code", ERRORS)
def test_an_enqueue_that_meets_an_error_is_stored_once_or_says_that_it_is_not(
    code, method, enqueuer, proxy, stored
):
    send, fault = METHODS[method], error(ERRORS[code])
    known = ids(send(enqueuer, 1))
    for n, times in enumerate((1, 3), 2):
        proxy.next(*[fault] * times)
        if code in FINAL:
            with pytest.raises(FINAL[code]):
                send(enqueuer, n)
            proxy.clear()
        elif code == "NOSCRIPT" and times > 1:
            with pytest.raises(NOSCRIPT_TWICE):
                send(enqueuer, n)
            proxy.clear()
        else:
            known += ids(send(enqueuer, n))
            assert proxy.pending == 0
        assert stored() == sorted(known)
    proxy.always(fault)
    with pytest.raises(FINAL.get(code, NOSCRIPT_TWICE if code == "NOSCRIPT" else Unavailable)) as caught:
        send(enqueuer, 9)
    # Nothing was stored, and the error says which server refused it and why.
    assert stored() == sorted(known)
    assert ("out of memory" if code == "OOM" else ERRORS[code].partition(" ")[2]) in str(caught.value)
    proxy.clear()
    known += ids(send(enqueuer, 9))
    assert stored() == sorted(known)


# Pools.

#: What a pool asks of Redis: scripts by name, plain commands as they are.
OPERATIONS = (
    "exchange", "beat", "ring", "lead", "sweep", "HKEYS", "read_due", "requeue", "HMGET", "BZPOPMIN", "SMEMBERS", "status",
)  # fmt: skip
#: A pool may never ask for these: the leader's round itself rings for the names it knows, and a beat carries the status
#: unless a long job runs.
OCCASIONAL = {"ring", "status"}
_NAMES = {load(name).sha.encode(): name for name in all_names()}


def asked(words: list[bytes]) -> str:
    """Which operation a request is."""
    command = words[0].upper()
    if command == b"EVALSHA":
        return _NAMES[words[1]]
    return "EVAL" if command == b"EVAL" else command.decode()


class Refusals:
    """Answers with an error: the first so many requests of each operation, or all of them until lifted."""

    def __init__(self, text: str, times: int | None, only: tuple[str, ...] = OPERATIONS) -> None:
        self._fault, self._times, self._only = error(text), times, only
        self.met: Counter[str] = Counter()
        self.lifted = False

    def __call__(self, words: list[bytes]) -> Fault:
        name = asked(words)
        if self.lifted or name not in self._only:
            return PASS
        if self._times is not None and self.met[name] >= self._times:
            return PASS
        self.met[name] += 1
        return self._fault


class Work:
    """A pool behind the proxy with work of every kind, and a count of what ran."""

    def __init__(self, proxy: Proxy, namespace: str) -> None:
        self.runs: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()
        self.pool = WorkerPool(namespace=namespace, redis=proxy.url, concurrency=4, lease=10.0, beat=0.5)
        self.pool.register("a", self.note)

        @self.pool.job(max_fails=2, backoff=0.01)
        def fails(job: Job) -> None:
            self.note(job)
            if not job.fails:
                raise ValueError("once")

    def note(self, job: Job) -> None:
        with self._lock:
            self.runs[job.id, job.attempt] += 1


@pytest.fixture
def work(proxy, namespace):
    logging.getLogger("dayjob.job").setLevel(logging.CRITICAL)
    found = Work(proxy, namespace)
    yield found
    proxy.clear()
    found.pool.stop(timeout=0)
    logging.getLogger("dayjob.job").setLevel(logging.NOTSET)


@pytest.fixture
def plant(keys, link, redis_url, namespace):
    """Put in work of every kind past the proxy; the answer is how many jobs that is."""
    enqueuer = Enqueuer(namespace, redis=redis_url)

    def put() -> int:
        ghost = Pool(keys, link)
        fill_queue(keys, link, "a", payload_of(f"held-{ghost.id}"))
        ghost.fetch("a")
        link.run(membership.beat(keys, ghost.id, lease=-1.0))
        enqueuer.enqueue_many("a", [{}, {}, {}])
        enqueuer.enqueue_in("a", 0.05)
        enqueuer.enqueue("fails")
        return 6

    yield put
    enqueuer.close()


@pytest.fixture
def finished(call, keys):
    """How many jobs are done, and that none took a wrong way."""

    def read() -> int:
        raw = call("HGETALL", keys.totals)
        totals = {label.decode(): int(n) for label, n in zip(raw[::2], raw[1::2], strict=True)}
        wrong = {label for label in totals if label.startswith(("late", "rewound", "dead", "broken"))}
        assert not wrong, totals
        return totals.get("done:a", 0) + totals.get("done:fails", 0)

    return read


def check(work: Work, done: int, finished) -> None:
    """Every attempt ran once, and the pool lives."""
    assert finished() == done
    assert set(work.runs.values()) == {1}
    runtime = work.pool._runtime
    assert runtime is not None
    assert runtime.failure is None
    assert not runtime.ended.is_set()


@pytest.mark.parametrize("code", ERRORS)
def test_a_pool_whose_operations_each_meet_an_error_goes_on(code, work, plant, proxy, finished):
    """Once each, whichever comes first; and those that come often three times.

    A chore that is refused is done again with the next pass, so that all of them for all errors would take minutes.
    """
    work.pool.start()
    third = OPERATIONS[list(ERRORS).index(code) % 3 :: 3]
    refusals = Refusals(ERRORS[code], 1, OPERATIONS if FULL else third)
    proxy.each(refusals)
    total = plant()
    certain = set(third) - OCCASIONAL
    wait_until(lambda: finished() == total and refusals.met.keys() >= certain)
    often = Refusals(ERRORS[code], 3, ("exchange", "beat", "BZPOPMIN"))
    proxy.each(often)
    total += plant()
    wait_until(lambda: finished() == total)
    # It listens again once all is done, which may be a moment later.
    wait_until(lambda: often.met.keys() >= {"exchange", "BZPOPMIN"})
    check(work, total, finished)


@pytest.mark.parametrize("code", ERRORS)
def test_a_pool_that_meets_nothing_but_an_error_for_a_while_resumes_in_time(
    code, work, plant, proxy, finished
):
    work.pool.start()
    refusals = Refusals(ERRORS[code], None, (*OPERATIONS, "EVAL"))
    proxy.each(refusals)
    total = plant()
    # Long enough for the loops to have come to their longer waits.
    wait_until(lambda: refusals.met["exchange"] >= 4)
    assert finished() == 0
    refusals.lifted = True
    wait_until(lambda: len(work.runs) > 0, RESUME)
    wait_until(lambda: finished() == total)
    check(work, total, finished)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("code", ERRORS if FULL else ["READONLY", "NOAUTH"])
def test_an_operation_that_is_refused_for_long_by_itself_costs_no_job(
    code, operation, work, plant, proxy, finished
):
    """The others go on meanwhile; what needs this one happens after."""
    work.pool.start()
    refusals = Refusals(ERRORS[code], None, (operation,))
    proxy.each(refusals)
    total = plant()
    # What does not depend on it is done, or it has been refused a few times.
    wait_until(lambda: refusals.met[operation] >= 3 or finished() == total)
    refusals.lifted = True
    wait_until(lambda: finished() == total)
    check(work, total, finished)


@pytest.mark.parametrize("code", ERRORS)
def test_a_start_that_is_refused_says_so_and_can_be_tried_again(code, work, plant, proxy, finished):
    others = set(threading.enumerate())
    refusals = Refusals(ERRORS[code], None, ("join", "EVAL"))
    proxy.each(refusals)
    with pytest.raises(StoreError):
        work.pool.start()
    wait_until(lambda: set(threading.enumerate()) <= others)
    refusals.lifted = True
    work.pool.start()
    total = plant()
    wait_until(lambda: finished() == total)
    check(work, total, finished)


@pytest.mark.parametrize("code", ERRORS)
def test_a_stop_that_is_refused_keeps_its_deadline_and_loses_nothing(code, work, plant, proxy, keys, link):
    """It cannot say that it leaves: its lease ends, and nobody holds what it had not begun."""
    work.pool.start()
    refusals = Refusals(ERRORS[code], None, ("leave", "EVAL"))
    proxy.each(refusals)
    with sooner_than(20):
        work.pool.stop(timeout=1)
    assert refusals.met
    for pool_id in link.run(membership.pool_ids(keys)):
        assert link.run(membership.held_tokens(keys, pool_id)) == []
