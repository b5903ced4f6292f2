"""Bytes that are no jobs, in every place where a job can be: the good ones beside them run, and nothing is lost or executed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from dayjob import Admin, Job, WorkerPool
from dayjob.errors import DayjobError
from dayjob.options import PoolOptions
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.worker.chores.trimmer import Trimmer
from faults.mutator import NASTY, SEED, TIMES, hostile, job
from server import wait_until

GOOD = 30

# Thousands of entries, one by one: a busy machine needs minutes for them.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def nothing_is_executed():
    trap = Path("/tmp/dayjob-fuzz-executed")
    trap.unlink(missing_ok=True)
    yield
    assert not trap.exists(), "something in a payload was executed"


class Shop:
    """A pool whose jobs note which ones ran."""

    def __init__(self, namespace: str, url: str) -> None:
        self.ran: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.pool = WorkerPool(namespace=namespace, redis=url, concurrency=4, lease=10.0, beat=0.5)
        for name in ("a", "b"):
            self.pool.job(name)(self._work)

    def _work(self, job: Job) -> None:
        with self._lock:
            self.ran[job.id] += 1

    def good(self, count: int = GOOD) -> list[str]:
        return [self.pool.enqueuer.enqueue(("a", "b")[n % 2], n=n).id for n in range(count)]


@pytest.fixture
def shop(namespace, redis_url):
    found = Shop(namespace, redis_url)
    yield found
    found.pool.stop(timeout=5)
    found.pool.enqueuer.close()


def readable(entry: bytes, name: str | None = None) -> bool:
    try:
        wire = codec.read(entry, name)
    except codec.Broken:
        return False
    return bool(wire.name)


def broken(call, keys: Keys) -> Counter[bytes]:
    """What is in broken, as it was found."""
    return Counter(entry.partition(b"\n")[2] for entry in call("LRANGE", keys.broken, 0, -1))


def inputs(place: str, count: int, name: str = "a") -> list[bytes]:
    """Different inputs for one place: what has broken others, then what chance brings."""
    chance = random.Random(f"{SEED} {place}")
    sample = job(name, "x" * 24)
    found = dict.fromkeys(NASTY)
    while len(found) < count * TIMES:
        found[hostile(chance, sample.replace(b"x" * 24, new_id(chance).encode()[:24]))] = None
    return list(found)


def new_id(chance: random.Random) -> str:
    return f"{chance.getrandbits(96):024x}"


def settled(shop: Shop, call, keys: Keys, expected: Counter[bytes], ids: list[str]) -> None:
    """Wait until the good ones ran and all that cannot be read is in broken."""
    wait_until(lambda: all(shop.ran[one] for one in ids), 60 * TIMES)
    wait_until(lambda: broken(call, keys) >= expected, 60 * TIMES, step=0.05)
    assert {one: shop.ran[one] for one in ids} == dict.fromkeys(ids, 1)
    assert shop.pool._running, "a loop ended"


def test_whatever_is_in_a_queue_the_jobs_beside_it_run(shop, call, keys):
    entries = inputs("queue", 2000)
    bad = Counter(entry for entry in entries if not readable(entry, "a"))
    assert len(bad) > 200, "the mutator makes nothing that is bad"
    assert len(bad) < len(entries) - 50, "the mutator makes nothing that is good"
    ids = []
    for number, entry in enumerate(entries):
        call("LPUSH", keys.queue("a"), entry)
        if number % 40 == 0:
            ids += shop.good(1)
    shop.pool.start()
    settled(shop, call, keys, bad, ids)
    assert shop.pool.drain(60 * TIMES)
    assert broken(call, keys) == bad
    wait_until(
        lambda: not any(call("HLEN", keys.held(pool.decode())) for pool in call("ZRANGE", keys.pools, 0, -1))
    )


@pytest.mark.parametrize("place", ["scheduled", "retry"])
def test_whatever_is_due_the_jobs_beside_it_run(shop, call, keys, place):
    entries = inputs(place, 1000)
    key = getattr(keys, place)
    good = [job("b", f"good-{n}") for n in range(GOOD)]
    for number, entry in enumerate([*entries, *good]):
        call("ZADD", key, number % 7, entry)
    # A job of any name waits in its queue, be it a strange one; what no name can be found in is broken.
    bad = Counter(entry for entry in entries if not readable(entry))
    shop.pool.start()
    settled(shop, call, keys, bad, [f"good-{n}" for n in range(GOOD)])
    wait_until(lambda: call("ZCARD", key) == 0 or not _due(call, key))


def _due(call, key: str) -> int:
    return call("ZCOUNT", key, "-inf", 1000)


def test_whatever_a_dead_pool_held_the_jobs_beside_it_are_rescued(shop, call, keys):
    entries = inputs("held", 1000)
    good = [job("b", f"good-{n}") for n in range(GOOD)]
    dead = "ghost" + "0" * 19
    call("ZADD", keys.pools, 1, dead)
    for number, entry in enumerate(entries, 1):
        call("HSET", keys.held(dead), f"{number}:a", entry)
    for number, entry in enumerate(good, 10_000):
        call("HSET", keys.held(dead), f"{number}:b", entry)
    shop.pool.start()
    wait_until(
        lambda: all(shop.ran[f"good-{n}"] for n in range(GOOD)) and not call("EXISTS", keys.held(dead))
    )
    bad = Counter(entry for entry in entries if not readable(entry, "a"))
    settled(shop, call, keys, bad, [f"good-{n}" for n in range(GOOD)])


@pytest.mark.parametrize(
    "token", ["", "x", "7", ":a", "7:", "a:7", "-1:a", "1e3:a", "7:a:b", "\x00", "9" * 400 + ":a", "7:é"]
)
def test_a_token_that_is_none_keeps_no_other_attempt_from_being_rescued(shop, call, keys, token):
    dead = "ghost" + "0" * 19
    call("ZADD", keys.pools, 1, dead)
    call(
        "HSET", keys.held(dead), token, job("a", "odd"), "5:a", job("a", "good-0"), "6:b", job("b", "good-1")
    )
    shop.pool.start()
    wait_until(lambda: shop.ran["good-0"] and shop.ran["good-1"])
    # Nothing is lost: it ran, or it is kept where somebody can look at it.
    wait_until(lambda: shop.ran["odd"] or broken(call, keys) or call("HEXISTS", keys.held(dead), token))
    assert shop.pool._running


#: Places that hold no jobs: the key, how garbage gets into it, and by which field.
PRIVATE = {
    "status of a pool": lambda keys, bad: ("SET", keys.pool("p" * 24), bad),
    "state of a pool": lambda keys, bad: ("HSET", keys.state("p" * 24), "last", bad, "suspect", bad, bad, bad),
    "a pool's lease": lambda keys, bad: ("ZADD", keys.pools, 1, bad),
    "a condemned pool": lambda keys, bad: ("ZADD", keys.condemned, 1, bad),
    "limits of others": lambda keys, bad: ("HSET", keys.limits, b"c" + bad, bad, "b|by", bad, bad, bad),
    "members of a limit": lambda keys, bad: ("SADD", keys.held_of("c"), bad),
    "a schedule": lambda keys, bad: ("HSET", keys.periodic, "tick", bad, "tick|is", bad, "tick|off", bad, bad, bad),
    "totals": lambda keys, bad: ("HSET", keys.totals, "processed:a", bad, bad, bad),
    "figures of a minute": lambda keys, bad: ("HSET", keys.minute(1), bad, bad),
    "names": lambda keys, bad: ("SADD", keys.known_jobs, bad),
    "the leader": lambda keys, bad: ("SET", keys.leader, bad, "PX", 500),
    "what reaper and leases remember": lambda keys, bad: ("HSET", keys.watch, "last", bad, "quiet", bad),
    "job types": lambda keys, bad: ("HSET", keys.job_types, "a", bad, "a|at", bad, bad, bad),
    "audit": lambda keys, bad: ("LPUSH", keys.audit, bad),
    "bells": lambda keys, bad: ("ZADD", keys.bell("a"), 1, bad),
    "due": lambda keys, bad: ("ZADD", keys.due, 1, bad),
    "dead": lambda keys, bad: ("ZADD", keys.dead, 4e9, bad),
    "done": lambda keys, bad: ("ZADD", keys.done, 4e9, bad),
    "broken": lambda keys, bad: ("LPUSH", keys.broken, bad),
}  # fmt: skip


def looks(admin: Admin) -> None:
    """Everything that an operator can look at; a refusal in words is an answer."""
    for look in (
        admin.queues, admin.pools, admin.busy, admin.broken, admin.periodic, admin.failures, admin.redis, admin.audit,
        admin.job_types, admin.metrics, admin.scrape, admin.verdict,
    ):  # fmt: skip
        try:
            look()
        except DayjobError:
            pass
    for state in ("scheduled", "retry", "dead", "done", "running"):
        try:
            admin.jobs(state)
        except DayjobError:
            pass


@pytest.mark.parametrize("place", PRIVATE)
def test_whatever_is_in_a_private_key_jobs_run_and_operators_can_look(
    shop, call, keys, namespace, redis_url, place
):
    chance = random.Random(f"{SEED} {place}")
    with Admin(namespace, redis=redis_url) as admin:
        shop.pool.start()
        for _ in range(3 * TIMES):
            for bad in (*chance.sample(NASTY, 6), *(hostile(chance, job("a", "x")) for _ in range(4))):
                call(*PRIVATE[place](keys, bad[:400]))
            ids = shop.good(10)
            wait_until(lambda: all(shop.ran[one] for one in ids))
            looks(admin)
        assert shop.pool._running, "a loop ended"


@pytest.mark.parametrize("bad", [b"", b"x", b"\xff", b"{", b"-1"])
def test_a_limit_that_is_none_holds_up_its_own_jobs_until_it_is_set_right(
    shop, call, keys, namespace, redis_url, bad
):
    """Better too few at once than too many: nobody can tell how many were meant."""
    call("HSET", keys.limits, "a", bad, "b|by", bad)
    held_up = [shop.pool.enqueuer.enqueue("a").id for _ in range(3)]
    others = [shop.pool.enqueuer.enqueue("b").id for _ in range(3)]
    shop.pool.start()
    wait_until(lambda: all(shop.ran[one] for one in others))
    assert not any(shop.ran[one] for one in held_up)
    with Admin(namespace, redis=redis_url) as admin:
        looks(admin)
        admin.limit("a", 2)
    wait_until(lambda: all(shop.ran[one] for one in held_up))
    assert shop.pool._running


def test_what_is_no_attempt_does_not_take_up_a_limit_for_ever(shop, call, keys, link):
    for bad in (b"\xff\xfe", b"", b"x", b"/", b"p/1:a", b"\x00/\xff"):
        call("SADD", keys.held_of("a"), bad)
    call("HSET", keys.limits, "a", 2)
    ids = shop.good(6)
    trimmer = Trimmer(keys, link, PoolOptions())
    assert trimmer.repair_limits() == 6
    shop.pool.start()
    wait_until(lambda: all(shop.ran[one] for one in ids))


def test_a_job_named_like_a_key_of_another_pauses_nobody(shop, call, keys):
    names = ["a:paused", "b:lock", "", "a:1:inprogress"]
    for place in (keys.scheduled, keys.retry):
        for name in names:
            call("ZADD", place, 1, job(name, f"{place} {name}"))
    shop.pool.start()
    wait_until(lambda: broken(call, keys).total() == 2 * len(names))
    assert not call("EXISTS", keys.paused("a"))
    ids = shop.good(6)
    wait_until(lambda: all(shop.ran[one] for one in ids))


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"1", b"{", b'{"name":"b"}', b'{"id":', b"{" * 3000, b"x" * 5000]
)
def test_whatever_a_unique_key_holds_nobody_is_blocked_for_ever_or_run_twice(shop, call, keys, value):
    key = keys.unique("a", '{"n":1}\n')
    call("SET", key, value)
    assert shop.pool.enqueuer.enqueue_unique("a", n=1) is None
    call("LPUSH", keys.queue("a"), job("a", "owner", unique=True, unique_key=key))
    ids = shop.good(6)
    shop.pool.start()
    wait_until(lambda: shop.ran["owner"] and all(shop.ran[one] for one in ids))
    assert shop.ran["owner"] == 1


def test_operators_can_retry_and_delete_beside_what_cannot_be_read(shop, call, keys, namespace, redis_url):
    entries = inputs("dead", 500)
    moment = time.time() - 1000
    good = [f"good-{n}" for n in range(GOOD)]
    for number, entry in enumerate([*entries, *(job("b", one, err="no", fails=4) for one in good)]):
        call("ZADD", keys.dead, moment + number / 1000, entry)
    shop.pool.start()
    with Admin(namespace, redis=redis_url) as admin:
        admin.apply("retry", "dead", where="name~b error~no")
        wait_until(lambda: all(shop.ran[one] for one in good))
        looks(admin)
        assert call("ZCARD", keys.dead) == len(set(entries))
        admin.apply("delete", "dead")
        assert call("ZCARD", keys.dead) == 0
