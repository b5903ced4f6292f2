"""Sharing a namespace with gocraft/work: its bytes run here, ours can run there, and nothing is rewritten on the way."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from dayjob import Enqueuer, Job
from dayjob.store import codec
from dayjob.store.ops import operate
from server import wait_until

GOLDEN = Path(__file__).parent.parent / "golden"
ID = "0123456789abcdef01234567"
#: What an encoder of ours would write otherwise: spaces, digits, escapes, an empty list.
ODD_ARGS = '{"big":12345678901234567890,"f":1.50,"list":[ ],"html":"\\u003cb>","deep":{"z":1,"a":[{}]}}'


def golden(*names: str) -> list[str]:
    found = []
    for name in names:
        for row in json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))["rows"]:
            found.append(row["payload"])
    return found


class Seen:
    """The jobs that ran."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, job: Job) -> None:
        self.jobs.append(job)

    def wait(self, count: int = 1) -> list[Job]:
        wait_until(lambda: len(self.jobs) >= count)
        return self.jobs


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def pool(new_pool, seen):
    pool = new_pool(concurrency=2)
    pool.register("a", seen)
    return pool


@pytest.fixture
def go_push(call, keys):
    """Enqueue as Go or redis-cli would: two plain commands, and no bell."""

    def push(payload: str, name: str = "a") -> None:
        call("LPUSH", keys.queue(name), payload)
        call("SADD", keys.known_jobs, name)

    return push


def go_job(args: str = '{"v":1}', **fields) -> str:
    """A payload in Go's order."""
    rest = "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in fields.items())
    return f'{{"name":"a","id":"{ID}","t":1794767036,"args":{args}{rest}}}'


# What Go enqueues.


def test_jobs_as_go_writes_them_run_here_in_their_order(pool, seen, go_push, look):
    payloads = golden("go_enqueued", "go_cjson")
    for payload in payloads:
        go_push(payload)
    with pool:
        jobs = seen.wait(len(payloads))
        wait_until(lambda: look.held() == 0)
    assert len(jobs) == len(payloads)
    wanted = {row: json.loads(row) for row in payloads}
    assert sorted((job.id, json.dumps(job.args, sort_keys=True)) for job in jobs) == sorted(
        (row["id"], json.dumps(row["args"] or {}, sort_keys=True)) for row in wanted.values()
    )
    assert look.totals()["done:a"] == len(payloads)


def test_a_job_pushed_while_the_pool_sleeps_runs_without_a_bell(pool, seen, call, keys):
    with pool:
        pool.drain(60)
        call("LPUSH", keys.queue("a"), go_job())
        wait_until(lambda: seen.jobs)
    assert seen.jobs[0].enqueued_at == 1794767036.0


def test_a_job_without_arguments_reaches_a_handler_that_takes_none(new_pool, go_push):
    pool = new_pool()
    ran = threading.Event()

    @pool.job("a")
    def a() -> None:
        ran.set()

    go_push(f'{{"name":"a","id":"{ID}","t":1794767036,"args":null}}')
    with pool:
        assert ran.wait(60)


def test_what_cjson_made_of_arguments_still_fits_their_types(new_pool, go_push):
    """Its integers may have a fraction of nothing or an exponent, and its empty lists are objects."""
    pool = new_pool()
    got = []

    @pool.job("a")
    def a(n: int, items: list[int]) -> None:
        got.append((n, items))

    go_push(f'{{"args":{{"n":1e+15,"items":{{}}}},"t":1794767036,"id":"{ID}","name":"a"}}')
    with pool:
        wait_until(lambda: got)
    assert got == [(10**15, [])]


# What we enqueue.


def test_our_jobs_have_gos_fields_in_gos_order_and_whole_numbers(redis_url, namespace, call, keys):
    with_extras = Enqueuer(namespace, redis=redis_url).using(source="s", expires=60)
    with_extras.enqueue_unique("a", b="<é>", a=[])
    raw = call("LRANGE", keys.queue("a"), 0, -1)[0]
    fields = json.loads(raw, object_pairs_hook=list)
    names = [name for name, _ in fields]
    assert names[:6] == ["name", "id", "t", "args", "unique", "unique_key"]
    values = dict(fields)
    assert type(values["t"]) is int
    assert len(values["id"]) == 24
    assert set(values["id"]) <= set("0123456789abcdef")
    assert b" " not in raw
    assert not raw.endswith(b"\n")
    with_extras.close()


def test_our_failed_jobs_are_what_go_reads(new_pool, redis_url, namespace, look, call, keys):
    """`fails` and `failed_at` are integers, `err` a string; Go refuses anything else."""
    pool = new_pool()

    @pool.job("a", max_fails=2, backoff=60)
    def a() -> None:
        raise ValueError("handler said no <&>")

    with pool:
        pool.enqueuer.enqueue("a")
        wait_until(look.retry)
    [job] = look.retry()
    assert (job["fails"], type(job["failed_at"]), type(job["t"])) == (1, int, int)
    assert job["err"] == "ValueError: handler said no <&>"
    assert job["args"] == {}


# Retry, scheduled and dead.


def test_a_retry_entry_of_go_is_run_and_its_argument_bytes_survive_the_next_failure(
    new_pool, call, keys, look
):
    pool = new_pool()
    fails = []

    @pool.job("a", max_fails=3, backoff=60)
    def a(job: Job) -> None:
        fails.append(job.fails)
        raise ValueError("again")

    call("ZADD", keys.retry, 1794767000, go_job(ODD_ARGS, fails=1, err="no", failed_at=1794766000))
    with pool:
        wait_until(lambda: fails)
        wait_until(lambda: look.retry() and look.held() == 0)
    assert fails == [1]
    [raw] = call("ZRANGE", keys.retry, 0, -1)
    assert f'"args":{ODD_ARGS}'.encode() in raw
    assert json.loads(raw)["fails"] == 2
    assert json.loads(raw)["id"] == ID


def test_the_argument_bytes_survive_all_the_way_to_dead_and_back(new_pool, link, call, keys, look, go_push):
    pool = new_pool()
    runs = []

    @pool.job("a", max_fails=2, backoff=0.01)
    def a(job: Job) -> None:
        runs.append(bytes(job.raw_args))
        if len(runs) <= 2:
            raise ValueError("again")

    go_push(go_job(ODD_ARGS, extra={"kept": []}))
    with pool:
        wait_until(look.dead)
        [raw] = call("ZRANGE", keys.dead, 0, -1)
        assert f'"args":{ODD_ARGS},"extra":{{"kept": []}}'.encode() in raw
        assert link.run(operate.revive(keys, raw, now=look.now())).fate == "moved"
        wait_until(lambda: len(runs) == 3)
    assert runs == [ODD_ARGS.encode()] * 3


@pytest.mark.parametrize("payload", golden("go_failed", "go_cjson"))
def test_a_dead_entry_of_go_can_be_retried(pool, seen, link, call, keys, look, payload):
    payload = payload.replace('"nobody"', '"a"').replace("w3:", keys.prefix)
    call("ZADD", keys.dead, 1794767000, payload)
    with pool:
        assert link.run(operate.revive(keys, payload.encode(), now=look.now())).fate == "moved"
        [job] = seen.wait()
    assert (job.id, job.fails, job.error) == (ID, 0, "")
    assert look.dead() == []


def test_scheduled_entries_of_go_run_when_due_whatever_their_name(pool, seen, call, keys, look):
    """A name that no pool here knows waits in its queue; it is not killed, as Go would."""
    call(
        "ZADD",
        keys.scheduled,
        1794767000,
        '{"name":"a","id":"periodic:a:* * * * *:1794767000","t":1794767000,"args":null}',
    )
    call("ZADD", keys.scheduled, 1794767000, go_job().replace('"a"', '"strange"'))
    call("ZADD", keys.scheduled, 99999999999, go_job('{"later":1}'))
    with pool:
        [job] = seen.wait()
        wait_until(lambda: call("LLEN", keys.queue("strange")) == 1)
    assert job.id == "periodic:a:* * * * *:1794767000"
    assert look.dead() == []
    assert call("ZCARD", keys.scheduled) == 1


def test_an_entry_that_is_no_job_is_kept_and_those_behind_it_go_on(pool, seen, call, keys, go_push, look):
    broken = [b"junk", b'{"args":null}', b'{"name":"a","args":[1]}', b'{"name":"b","args":{}}', b"\xff\x00"]
    for raw in broken:
        go_push(raw)
    go_push(go_job())
    call("ZADD", keys.scheduled, 1, b"not json", 2, b'{"id":"no name"}', 3, go_job('{"s":1}'))
    with pool:
        seen.wait(2)
        wait_until(lambda: call("LLEN", keys.broken) == len(broken) + 2)
    kept = {raw.partition(b"\n")[2] for raw in call("LRANGE", keys.broken, 0, -1)}
    assert kept == {*broken, b"not json", b'{"id":"no name"}'}
    for raw in call("LRANGE", keys.broken, 0, -1):
        assert json.loads(raw.partition(b"\n")[0])["why"]


def test_a_queue_that_was_paused_by_hand_waits(pool, seen, call, keys, go_push):
    call("SET", keys.paused("a"), "0")
    go_push(go_job())
    with pool:
        assert pool.drain(60)
        assert call("LLEN", keys.queue("a")) == 1
        call("DEL", keys.paused("a"))
        seen.wait()


# Unique keys of Go.


def unique_key(keys, args: str = '{"v":1}') -> str:
    return keys.unique("a", args + "\n")


@pytest.mark.parametrize("version", ["released", "master"])
def test_a_unique_job_of_go_blocks_ours_until_it_starts_here(
    pool, seen, go_push, call, keys, version, redis_url, namespace
):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    key = unique_key(keys)
    call("SET", key, "1", "EX", 86400)
    fields = {"unique": True} if version == "released" else {"unique": True, "unique_key": key}
    go_push(go_job(**fields))
    assert enqueuer.enqueue_unique("a", v=1) is None
    with pool:
        seen.wait()
        assert call("EXISTS", key) == 0
        assert enqueuer.enqueue_unique("a", v=1) is not None
        seen.wait(2)
    enqueuer.close()


def test_a_released_version_with_args_that_need_gos_escapes(pool, seen, go_push, call, keys):
    args = '{"f":0.00001,"html":"\\u003cb\\u003e","n":9007199254740993,"u":"\u20ac"}'
    call("SET", keys.unique("a", args + "\n"), "1", "EX", 86400)
    call("SET", keys.unique("a", ""), "1", "EX", 86400)
    go_push(go_job(args, unique=True))
    go_push(go_job("null", unique=True))
    with pool:
        seen.wait(2)
    assert call("EXISTS", keys.unique("a", args + "\n"), keys.unique("a", "")) == 0


def test_the_job_in_a_unique_key_replaces_the_one_that_waited(pool, seen, go_push, call, keys):
    """Go's ByKey calls: a second enqueue updates the arguments of the first, which is still in the queue."""
    key = keys.unique("a", '{"user":7}\n')
    newer = go_job('{"v":2}', unique=True, unique_key=key).replace(ID, "f" * 24)
    go_push(go_job('{"v":1}', unique=True, unique_key=key))
    call("SET", key, newer, "EX", 86400)
    with pool:
        [job] = seen.wait()
        assert pool.drain(60)
    assert (job.id, job.args) == ("f" * 24, {"v": 2})
    assert call("EXISTS", key) == 0
    assert len(seen.jobs) == 1


def test_the_same_job_in_its_unique_key_runs_as_it_is(pool, seen, go_push, call, keys):
    key = keys.unique("a", '{"user":7}\n')
    job = go_job('{"v":1}', unique=True, unique_key=key)
    go_push(job)
    call("SET", key, job, "EX", 86400)
    with pool:
        assert seen.wait()[0].id == ID
    assert call("EXISTS", key) == 0


def test_a_retry_of_a_unique_job_leaves_the_key_of_the_job_that_waits_since(pool, seen, call, keys):
    key = unique_key(keys)
    call("SET", key, "1", "EX", 86400)
    call("ZADD", keys.retry, 1, go_job(unique=True, unique_key=key, fails=1, err="no", failed_at=1))
    with pool:
        seen.wait()
    assert call("GET", key) == b"1"


def test_what_is_no_job_in_a_unique_key_does_not_take_the_place_of_the_job(pool, seen, go_push, call, keys):
    key = unique_key(keys)
    go_push(go_job(unique=True, unique_key=key))
    call("SET", key, '{"name":1}', "EX", 86400)
    with pool:
        assert seen.wait()[0].id == ID
        assert pool.drain(60)
    # Nobody knows whose it is: it stays where it is until it expires.
    assert call("GET", key) == b'{"name":1}'


def test_our_unique_key_is_gos_for_the_same_arguments(redis_url, namespace, keys):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    job = enqueuer.enqueue_unique("a", b="<x>", a=1)
    assert job.unique_key == f'{namespace}:unique:a:{{"a":1,"b":"\\u003cx\\u003e"}}\n'
    enqueuer.close()


def test_go_may_overwrite_our_key_and_it_is_still_released_here(pool, seen, redis_url, namespace, call):
    """Go's enqueuer writes "1" over the id when it finds a duplicate."""
    enqueuer = Enqueuer(namespace, redis=redis_url)
    job = enqueuer.enqueue_unique("a", v=1)
    call("SET", job.unique_key, "1", "EX", 86400)
    with pool:
        seen.wait()
    assert call("EXISTS", job.unique_key) == 0
    enqueuer.close()


def test_every_golden_payload_is_what_it_says():
    for payload in golden("go_enqueued", "go_failed", "go_cjson", "dayjob"):
        assert codec.read(payload.encode()).name
