"""The conformance vectors of docs/wire.md, run by dayjob itself: its enqueuers write what they say, its workers do.

Every call and every payload of `vectors/` goes through the public API, a real pool and a real server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dayjob import AsyncEnqueuer, BadArguments, BadOption, Enqueuer, Job, WorkerPool
from dayjob.errors import NotReady, Rejected, TooLarge
from dayjob.handlers.job_keys import key_text
from dayjob.store import codec
from server import wait_until

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def load(file: str, section: str) -> list[Any]:
    """The rows of one section, each under its own words."""
    found = json.loads((VECTORS / f"{file}.json").read_text("utf-8"))
    assert found["version"] == 1
    return [pytest.param(row, id=row["what"]) for row in found[section]]


def filled(value: Any, namespace: str, ids: tuple[str, ...] = ()) -> Any:
    """`value` with namespace, ids and tagged values put in."""
    if isinstance(value, str):
        value = value.replace("%ns%", namespace)
        return re.sub(r"%(\d+)%", lambda found: ids[int(found[1]) - 1], value)
    if isinstance(value, list):
        return [filled(one, namespace, ids) for one in value]
    if not isinstance(value, dict):
        return value
    if "$int" in value:
        return int(value["$int"])
    if "$float" in value:
        return float(value["$float"])
    if "$repeat" in value:
        return value["$repeat"][0] * value["$repeat"][1]
    if "$count" in value:
        return [{"n": number} for number in range(value["$count"])]
    return {filled(key, namespace, ids): filled(one, namespace, ids) for key, one in value.items()}


# Canonical JSON.


@pytest.mark.parametrize("row", load("canonical", "rows"))
def test_canonical_json_is_what_the_vector_says(row):
    assert codec.go_json(filled(row["value"], "")) == row["json"]


@pytest.mark.parametrize("row", load("canonical", "refused"))
def test_what_has_no_canonical_json_is_refused(row):
    with pytest.raises(ValueError, match="is not JSON"):
        codec.go_json(filled(row["value"], ""))


# Enqueueing.


class Calls:
    """Makes the calls of a vector and keeps what is needed to compare."""

    def __init__(self, enqueuer: Enqueuer, namespace: str) -> None:
        self._enqueuer = enqueuer
        self._namespace = namespace
        self.jobs: list[Job] = []

    def make(self, call: dict[str, Any]) -> str | int:
        call = filled(call, self._namespace)
        try:
            answer = self._send(self._enqueuer.using(**call.get("using", {})), call)
        except (BadArguments, BadOption, TooLarge):
            return "invalid"
        except Rejected:
            return "error"
        except NotReady:
            return "duplicate"
        if isinstance(answer, list):
            self.jobs += answer
            return len(answer)
        if answer is None:
            return "duplicate"
        self.jobs.append(answer)
        return "stored"

    @staticmethod
    def _send(enqueuer: Enqueuer, call: dict[str, Any]) -> Any:
        name, method = call["name"], getattr(enqueuer, call["method"])
        if "items" in call:
            return method(name, call["items"])
        if "seconds" in call:
            return method(name, call["seconds"], **call["args"])
        if "at" in call:
            return method(name, datetime.fromtimestamp(call["at"] / 1000, UTC), **call["args"])
        return method(name, **call["args"])


class Awaited(Calls):
    """The same calls, awaited on one loop."""

    def __init__(self, enqueuer: AsyncEnqueuer, namespace: str, run: Any) -> None:
        super().__init__(enqueuer, namespace)
        self._run = run

    def _send(self, enqueuer: Any, call: dict[str, Any]) -> Any:
        return self._run(Calls._send(enqueuer, call))


def timeless(payload: str | bytes) -> tuple[dict[str, Any], int | None]:
    """The fields of a payload without its moments, and the millisecond when it expires."""
    fields = json.loads(payload)
    at = fields.pop("at")
    assert fields.pop("t") == at // 1000
    return fields, fields.pop("expires", None)


def same_payload(found: bytes, wanted: str, now: float) -> bool:
    """Whether two payloads are the same job, enqueued at any time; it expires by Redis time, which is `now`."""
    if not wanted.startswith("{"):
        return found.decode() == wanted
    (mine, expires), (its, its_expires) = timeless(found), timeless(wanted)
    if expires is None or its_expires is None:
        return mine == its and expires is its_expires
    stored = expires - (its_expires - json.loads(wanted)["at"])
    return mine == its and now - 60 <= stored / 1000 <= now


def check_key(call, key: str, wanted: dict[str, Any] | None, now: float) -> None:
    """Compare what a key holds with what a vector says."""
    if wanted is None:
        assert call("EXISTS", key) == 0, key
    elif "list" in wanted:
        found = call("LRANGE", key, 0, -1)[::-1]
        assert len(found) == len(wanted["list"])
        assert all(map(partial(same_payload, now=now), found, wanted["list"])), (found, wanted)
    elif "length" in wanted:
        assert call("LLEN", key) == wanted["length"]
    elif "set" in wanted:
        assert sorted(one.decode() for one in call("SMEMBERS", key)) == sorted(wanted["set"])
    elif "has" in wanted:
        assert all(call("SISMEMBER", key, one) for one in wanted["has"])
    elif "zset" in wanted:
        check_zset(call("ZRANGE", key, 0, -1, "WITHSCORES"), wanted["zset"], now)
    else:
        check_string(call, key, wanted)


def check_zset(found: list[bytes], wanted: list[list[Any]], now: float) -> None:
    assert len(found) == 2 * len(wanted)
    for member, score, (wanted_member, wanted_score) in zip(found[::2], found[1::2], wanted, strict=True):
        assert same_payload(member, wanted_member, now), (member, wanted_member)
        if isinstance(wanted_score, dict):
            # By Redis time, which has gone on a little since.
            assert now - 60 <= float(score) - wanted_score["in"] <= now
        else:
            assert float(score) == wanted_score


def check_string(call, key: str, wanted: dict[str, Any]) -> None:
    found = call("GET", key).decode()
    _, is_id, job_id = key.partition(":id:")
    if is_id:
        # The wire allows any value. Small clients write the mark of the vector; dayjob keeps the job.
        assert json.loads(found.partition(" ")[2])["id"] == job_id
    else:
        assert found == wanted["string"]
    if "ttl" in wanted:
        assert wanted["ttl"] - 60 <= call("TTL", key) <= wanted["ttl"]


def redis_now(call) -> float:
    seconds, micros = call("TIME")
    return int(seconds) + int(micros) / 1e6


def run_case(case: dict[str, Any], calls: Calls, call, namespace: str) -> None:
    for command in filled(case["given"], namespace):
        call(*command)
    assert [calls.make(one) for one in case["calls"]] == case["answers"]
    now = redis_now(call)
    ids = tuple(job.id for job in calls.jobs)
    for key, wanted in filled(case["keys"], namespace, ids).items():
        check_key(call, key, wanted, now)


@pytest.mark.parametrize("case", load("enqueue", "cases"))
def test_an_enqueuer_does_what_the_vector_says(case, redis_url, namespace, call):
    enqueuer = Enqueuer(filled(case["namespace"], namespace), redis=redis_url)
    try:
        run_case(case, Calls(enqueuer, namespace), call, namespace)
    finally:
        enqueuer.close()


@pytest.mark.parametrize("case", load("enqueue", "cases"))
def test_an_async_enqueuer_does_what_the_vector_says(case, redis_url, namespace, call):
    with asyncio.Runner() as runner:
        enqueuer = AsyncEnqueuer(filled(case["namespace"], namespace), redis=redis_url)
        try:
            run_case(case, Awaited(enqueuer, namespace, runner.run), call, namespace)
        finally:
            runner.run(enqueuer.close())


# Working.


class Seen:
    """A handler that keeps the jobs it is given."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, job: Job) -> None:
        self.jobs.append(job)


@pytest.fixture
def pool(namespace, redis_url):
    found: WorkerPool[Any] = WorkerPool(namespace=namespace, redis=redis_url, concurrency=2)
    yield found
    found.stop(timeout=0)
    found.enqueuer.close()


@pytest.fixture
def push(call, keys):
    """Enqueue with the two plain commands that any language has."""

    def two_commands(payload: str | bytes) -> None:
        call("SADD", keys.known_jobs, "a")
        call("LPUSH", keys.queue("a"), payload)

    return two_commands


@pytest.mark.parametrize("row", load("work", "reads"))
def test_a_payload_that_must_be_read_runs(row, pool, push, call, keys):
    seen = Seen()
    pool.register("a", seen)
    push(row["payload"])
    with pool:
        wait_until(lambda: seen.jobs or call("LLEN", keys.broken))
        [job] = seen.jobs
        assert job.args == filled(row["args"], "")
        assert pool.drain(60)
    assert call("EXISTS", keys.broken) == 0
    wire = codec.read(row["payload"].encode(), "a")
    assert {key: getattr(wire, key) for key in row["fields"]} == row["fields"]


def test_payloads_that_are_no_jobs_are_kept_and_do_not_stop_the_one_behind(pool, push, call, keys):
    rows = [param.values[0] for param in load("work", "broken")]
    wanted = [base64.b64decode(row["base64"]) if "base64" in row else row["payload"].encode() for row in rows]
    assert len(set(wanted)) == len(wanted) > 30
    seen = Seen()
    pool.register("a", seen)
    for payload in wanted:
        push(payload)
    push('{"name":"a","id":"last"}')
    with pool:
        wait_until(lambda: seen.jobs and call("LLEN", keys.broken) == len(wanted))
        assert pool.drain(60)
    assert [job.id for job in seen.jobs] == ["last"]
    kept = [entry.partition(b"\n") for entry in call("LRANGE", keys.broken, 0, -1)]
    assert sorted(payload for _, _, payload in kept) == sorted(wanted)
    assert all(json.loads(header)["where"] == keys.queue("a") for header, _, _ in kept)


#: The types that vectors name.
TYPES: dict[str, Any] = {
    "int": int, "float": float, "list of int": list[int], "object": dict[str, Any], "int or null": int | None,
}  # fmt: skip


def typed_handler(kind: str, take: Any) -> Any:
    def handler(v) -> None:
        take(v)

    handler.__annotations__["v"] = TYPES[kind]
    return handler


@pytest.mark.parametrize("row", load("work", "converts"))
def test_arguments_as_other_languages_write_them_fit_their_types(row, pool, push):
    got: list[Any] = []
    pool.register("a", typed_handler(row["type"], got.append))
    push(f'{{"name":"a","id":"1","t":1,"args":{row["args"]}}}')
    with pool:
        wait_until(lambda: got)
    wanted = filled(row["gets"], "")
    assert got == [wanted]
    if row["type"] == "int":
        assert type(got[0]) is int


@pytest.mark.parametrize("row", load("work", "misfits"))
def test_arguments_that_do_not_fit_fail_the_job_and_keep_it(row, pool, push, call, keys):
    got: list[Any] = []
    pool.register("a", typed_handler(row["type"], got.append), max_fails=1)
    push(f'{{"name":"a","id":"1","t":1,"args":{row["args"]}}}')
    with pool:
        wait_until(lambda: call("ZCARD", keys.dead))
    assert not got
    [dead] = call("ZRANGE", keys.dead, 0, -1)
    assert f'"args":{row["args"]}'.encode() in dead
    assert msgspec.json.decode(dead)["err"].startswith("BadArguments: ")


@pytest.mark.parametrize("row", load("work", "keeps"))
def test_bytes_are_handed_on_through_retry_and_dead(row, pool, push, call, keys):
    fails = threading.Event()

    def handler(job: Job) -> None:
        if job.fails:
            fails.set()
        raise ValueError("no")

    pool.register("a", handler, max_fails=2, backoff=0.01)
    push(row["payload"])
    with pool:
        assert fails.wait(60)
        wait_until(lambda: call("ZCARD", keys.dead))
    [dead] = call("ZRANGE", keys.dead, 0, -1)
    for part in row["contains"]:
        assert part.encode() in dead
    assert msgspec.json.decode(dead)["fails"] == 2


@pytest.mark.parametrize("row", load("work", "unique"))
def test_a_unique_key_is_released_by_its_owner(row, pool, push, call, namespace):
    seen = Seen()
    pool.register("a", seen)
    for command in filled(row["given"], namespace):
        call(*command)
    push(filled(row["payload"], namespace))
    with pool:
        wait_until(lambda: seen.jobs)
        assert pool.drain(60)
    [job] = seen.jobs
    assert (job.id, job.args) == (row["runs"]["id"], row["runs"]["args"])
    for key, wanted in filled(row["keys"], namespace).items():
        check_key(call, key, wanted, 0)


@pytest.mark.parametrize("row", load("work", "due"))
@pytest.mark.parametrize("source", ["scheduled", "retry"])
def test_what_is_due_runs_or_is_kept(row, source, pool, call, keys):
    seen = Seen()
    pool.register("a", seen)
    call("ZADD", getattr(keys, source), row["score"], row["payload"])
    with pool:
        wait_until(lambda: seen.jobs or call("LLEN", keys.broken))
        assert pool.drain(60)
    assert len(seen.jobs) == int(row["runs"])
    assert call("LLEN", keys.broken) == int(not row["runs"])
    assert call("EXISTS", getattr(keys, source)) == 0


def test_what_one_command_schedules_runs_although_nobody_rang_due(pool, call, keys):
    seen = Seen()
    pool.register("a", seen)
    with pool:
        assert pool.drain(60)
        due_at = redis_now(call) + 0.3
        call("ZADD", keys.scheduled, f"{due_at:.3f}", '{"name":"a","id":"1","args":{}}')
        wait_until(lambda: seen.jobs)
        assert redis_now(call) >= due_at
    # `t` and `at` say when it became due; a job moved early would have an earlier moment.
    assert seen.jobs[0].enqueued_at == pytest.approx(due_at, abs=0.002)


# Keys.


@pytest.mark.parametrize("row", load("keys", "texts"))
def test_arguments_make_the_key_of_the_vector(row):
    assert key_text(filled(row["values"], "")) == row["key"]


@pytest.mark.parametrize("row", load("keys", "pushes"))
def test_a_push_by_key_leaves_what_the_vector_says(row, namespace, redis_url, call):
    pool = WorkerPool(namespace=namespace, redis=redis_url)
    pool.register("work", lambda account: None, fair_by=row["by"])
    for command in filled(row["given"], namespace):
        call(*command)
    pool.enqueuer.enqueue("work", **row["args"])
    pool.enqueuer.close()
    for key, holds in filled(row["keys"], namespace).items():
        check_key(call, key, holds, redis_now(call))


# The vectors themselves.


def test_every_section_of_every_file_is_run_here():
    text = Path(__file__).read_text("utf-8")
    for path in sorted(VECTORS.glob("*.json")):
        for section, rows in json.loads(path.read_text("utf-8")).items():
            if isinstance(rows, list):
                assert f'load("{path.stem}", "{section}")' in text


def test_a_comparison_fails_where_redis_holds_something_else(call, keys):
    """The checks above would be worth nothing if they could not fail."""
    call("LPUSH", keys.queue("a"), '{"name":"a","id":"1","t":1,"args":{},"at":1000}')
    call("LPUSH", keys.queue("b"), '{"name":"b","id":"1","t":1,"args":{},"expires":2000,"at":1000}')
    call("ZADD", keys.scheduled, 5, "x")
    call("SET", "s" + keys.dead, "x")
    wrong = [
        (keys.queue("a"), None),
        (keys.queue("a"), {"list": []}),
        (keys.queue("a"), {"list": ['{"name":"a","id":"2","t":1,"args":{},"at":1000}']}),
        (keys.queue("a"), {"list": ['{"name":"a","id":"1","t":1,"args":{},"expires":2000,"at":1000}']}),
        (keys.queue("b"), {"list": ['{"name":"b","id":"1","t":1,"args":{},"expires":2000,"at":1000}']}),
        (keys.queue("b"), {"list": ['{"name":"b","id":"1","t":1,"args":{},"at":1000}']}),
        (keys.queue("a"), {"length": 2}),
        (keys.known_jobs, {"set": ["a"]}),
        (keys.known_jobs, {"has": ["a"]}),
        (keys.scheduled, {"zset": []}),
        (keys.scheduled, {"zset": [["x", 6]]}),
        (keys.scheduled, {"zset": [["x", {"in": 5}]]}),
        ("s" + keys.dead, {"string": "y"}),
        ("s" + keys.dead, {"string": "x", "ttl": 100}),
    ]
    for key, wanted in wrong:
        with pytest.raises(AssertionError):
            check_key(call, key, wanted, redis_now(call))
