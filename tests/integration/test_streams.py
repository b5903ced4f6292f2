"""Jobs that emit values while they run, and those who read them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from dayjob import AsyncEnqueuer, Dead, Discard, GiveBack, Job, NotReady, WorkerPool
from dayjob.cli import cli
from dayjob.errors import BadArguments, BadOption, JobFailed, ResultTimeout
from dayjob.worker.running import attempt_stream
from server import running, wait_until

#: Seconds that nothing takes unless something is broken.
LONG = 60


@dataclass
class Point:
    x: int


def read(pool, job, **more):
    return [(one.value, one.attempt) for one in pool.enqueuer.stream(job, **{"timeout": LONG, **more})]


def test_values_arrive_while_the_job_runs_and_the_reader_stops_at_its_end(new_pool):
    pool = new_pool()
    seen = threading.Event()

    @pool.job
    def talk(job: Job) -> None:
        job.emit("first")
        assert seen.wait(LONG)
        job.emit({"n": 2})
        job.emit(Point(3))

    with pool:
        stream = pool.enqueuer.stream(talk.enqueue(), timeout=LONG)
        assert next(stream).value == "first"
        seen.set()
        assert [one.value for one in stream] == [{"n": 2}, {"x": 3}]


def test_async_jobs_and_async_readers(new_pool, namespace, redis_url):
    pool = new_pool()

    @pool.job
    async def talk(job: Job) -> None:
        for n in range(5):
            job.emit(n)
            await asyncio.sleep(0)

    async def main():
        enqueuer = AsyncEnqueuer(namespace, redis=redis_url)
        job = await enqueuer.enqueue("talk")
        found = [one.value async for one in enqueuer.stream(job, timeout=LONG)]
        await enqueuer.close()
        return found

    with pool:
        assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_a_reader_goes_on_behind_any_value(new_pool):
    pool = new_pool()

    @pool.job
    def talk(job: Job) -> None:
        for n in range(10):
            job.emit(n)

    with pool:
        job = talk.enqueue()
        parts = list(pool.enqueuer.stream(job, timeout=LONG))
        for n, one in enumerate(parts):
            again = list(pool.enqueuer.stream(job.id, after=one.id, timeout=LONG))
            assert [other.value for other in again] == list(range(n + 1, 10))
            assert not any(other.restarted for other in again)
        for place in ("yesterday", "99999999999999999999-1"):
            with pytest.raises(BadOption, match="no place in a stream"):
                list(pool.enqueuer.stream(job, after=place))


def test_a_retry_begins_anew_and_readers_see_it(new_pool):
    pool = new_pool()

    @pool.job(max_fails=3, backoff=0)
    def flaky(job: Job) -> None:
        job.emit("a")
        job.emit(job.attempt)
        if job.attempt < 3:
            raise ValueError("not yet")

    with pool:
        job = flaky.enqueue()
        found = [(one.value, one.attempt, one.restarted) for one in pool.enqueuer.stream(job, timeout=LONG)]
        late = [(one.value, one.restarted) for one in pool.enqueuer.stream(job, timeout=LONG)]
    # A reader that is slower than the retries misses attempts whose values do not count any more.
    assert found[-2:] in ([("a", 3, True), (3, 3, False)], [("a", 3, False), (3, 3, False)])
    assert [one for one in found if one[2]] == [("a", n, True) for n in sorted({one[1] for one in found})[1:]]
    assert late == [("a", False), (3, False)]


def test_a_job_that_was_given_back_begins_anew(new_pool):
    first = new_pool(concurrency=1)
    going = threading.Event()

    def talk(job: Job) -> None:
        job.emit("half")
        if not going.is_set():
            while not job.checkin():
                pass
            raise GiveBack
        job.emit("whole")

    job_type = first.register("talk", talk)
    first.start()
    job = job_type.enqueue()
    stream = first.enqueuer.stream(job, timeout=LONG)
    assert next(stream).value == "half"
    first.stop()
    going.set()
    second = new_pool(concurrency=1)
    second.register("talk", talk)
    with second:
        assert [(one.value, one.attempt, one.restarted) for one in stream] == [
            ("half", 1, True), ("whole", 1, False),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "words"), [(Dead("no use"), "no use"), (Discard("not wanted"), "not wanted")]
)
def test_a_reader_of_a_job_that_fails_gets_its_values_and_then_the_error(new_pool, error, words):
    pool = new_pool()

    @pool.job
    def talk(job: Job) -> None:
        job.emit(1)
        raise error

    with pool:
        stream = pool.enqueuer.stream(talk.enqueue(), timeout=LONG)
        assert next(stream).value == 1
        with pytest.raises(JobFailed, match=words):
            next(stream)


def test_a_dead_job_that_an_operator_retries_is_waited_for(new_pool, admin):
    pool = new_pool()
    alive = threading.Event()

    @pool.job
    def talk(job: Job) -> None:
        job.emit(alive.is_set())
        if not alive.is_set():
            raise Dead("not yet")

    with pool:
        job = talk.enqueue()
        with pytest.raises(JobFailed):
            read(pool, job)
        pool.stop()
        alive.set()
        assert admin.retry(job.id).done
        stream = pool.enqueuer.stream(job, timeout=LONG)
        assert next(stream).value is False
        again = new_pool()
        again.register("talk", talk.fn)
        with again:
            assert [(one.value, one.restarted) for one in stream] == [(True, True)]


def test_a_reader_learns_that_an_attempt_ended_whose_pool_died(new_pool, new_ghost):
    pool = new_pool()

    @pool.job
    def talk(job: Job) -> None:
        job.emit(job.deaths)

    job = talk.enqueue()
    ghost = new_ghost(lease=LONG)
    (taken,) = ghost.take("talk")
    ghost.emit(taken[0], job.id, b'"half"')
    stream = pool.enqueuer.stream(job, timeout=LONG)
    assert next(stream).value == "half"
    ghost.die()
    with pool:
        assert [(one.value, one.attempt, one.restarted) for one in stream] == [(1, 2, True)]


def test_a_job_that_was_deleted_while_its_stream_is_read(new_pool, new_ghost, call, keys):
    pool = new_pool()
    talk = pool.register("talk", lambda: None)
    job = talk.enqueue()
    ghost = new_ghost(lease=LONG)
    (taken,) = ghost.take("talk")
    ghost.emit(taken[0], job.id, b"1")
    stream = pool.enqueuer.stream(job, timeout=LONG)
    assert next(stream).value == 1
    call("DEL", keys.held(ghost.id))
    with pytest.raises(JobFailed, match="left no end"):
        next(stream)


def test_readers_of_jobs_that_emit_nothing(new_pool):
    pool = new_pool()
    silent = pool.register("silent", lambda: None)
    with pool:
        job = silent.enqueue()
        assert read(pool, job) == []
        assert pool.drain(LONG)
        assert read(pool, job) == []
        with pytest.raises(JobFailed, match="was not found"):
            read(pool, "0123456789")
    with pytest.raises(ResultTimeout, match="did not end within 0.1 s"):
        read(pool, silent.enqueue_in(3600), timeout=0.1)
    with pytest.raises(BadOption):
        read(pool, job, timeout=0)


def test_a_reader_goes_on_after_a_restart_of_the_server(tmp_path, namespace):
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as own:
        _read_through_a_restart(own, WorkerPool(namespace=namespace, redis=own.url))


def _read_through_a_restart(own, pool):
    going = threading.Event()

    @pool.job
    def talk(job: Job) -> None:
        job.emit(1)
        assert going.wait(LONG)
        job.emit(2)

    with pool:
        stream = pool.enqueuer.stream(talk.enqueue(), timeout=LONG)
        assert next(stream).value == 1
        own.kill()
        own.start()
        going.set()
        assert [one.value for one in stream] == [2]
    pool.enqueuer.close()


def test_limits_of_what_a_job_emits(new_pool, monkeypatch):
    pool = new_pool()
    monkeypatch.setattr(attempt_stream, "MAX_VALUES", 3)
    caught: list[str] = []

    @pool.job
    def many(job: Job) -> None:
        for n in range(4):
            job.emit(n)

    @pool.job
    def large(job: Job) -> None:
        try:
            job.emit("x" * 70_000)
        except ValueError as error:
            caught.append(str(error))
        job.emit("y" * 60_000)

    @pool.job
    def odd(job: Job) -> None:
        try:
            job.emit([float("nan")])
        except BadArguments as error:
            caught.append(str(error))
        job.emit(object())

    with pool:
        with pytest.raises(ResultTimeout, match="an attempt can emit 3 values"):
            read(pool, many.using(id="m").enqueue(), timeout=1)
        assert read(pool, large.enqueue()) == [("y" * 60_000, 1)]
        assert "the limit is 65,536. Emit it in parts." in caught[0]
        with pytest.raises(ResultTimeout, match="cannot be written as JSON"):
            read(pool, odd.enqueue(), timeout=1)
        assert "emit: the value cannot be written as JSON: it has nan" in caught[1]


def test_what_may_not_emit(new_pool):
    pool = new_pool()
    found: list[str] = []
    kept: list[Job] = []

    @pool.job(on_done=kept.append)
    def talk(job: Job) -> None:
        child = os.fork()
        if child == 0:
            try:
                job.emit(1)
            except NotReady:
                os._exit(7)
            os._exit(0)
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        job.emit("own")

    with pool:
        assert read(pool, talk.enqueue()) == [("own", 1)]
        assert found == [7]
        with pytest.raises(NotReady, match="has ended"):
            kept[0].emit("late")
    alone = Job("x")
    assert alone.emit("kept") is False
    assert alone.emitted == ["kept"]


def test_threads_of_a_handler_emit_and_every_value_arrives_once(new_pool):
    pool = new_pool()

    @pool.job
    def talk(job: Job) -> None:
        threads = [
            threading.Thread(target=lambda n=n: [job.emit([n, i]) for i in range(200)]) for n in range(4)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    with pool:
        found = [value for value, _ in read(pool, talk.enqueue())]
    assert len(found) == 800
    for n in range(4):
        assert [i for one, i in found if one == n] == list(range(200))


def test_a_job_may_not_read_the_stream_of_a_job_of_its_own_pool(new_pool):
    pool = new_pool()
    caught: list[BaseException] = []

    @pool.job
    def inner(job: Job) -> None:
        job.emit(1)

    @pool.job
    def outer() -> None:
        try:
            list(pool.enqueuer.stream(inner.enqueue_in(3600)))
        except NotReady as error:
            caught.append(error)

    with pool:
        outer.enqueue()
        wait_until(lambda: caught)


def test_jobs_that_emit_nothing_have_no_stream_and_emit_by_exchange_only(new_pool, call, keys):
    pool = new_pool()
    quiet = pool.register("quiet", lambda: None)

    @pool.job
    def talk(job: Job) -> None:
        job.emit(1)

    with pool:
        job, other = quiet.enqueue(), talk.enqueue()
        assert read(pool, other) == [(1, 1)]
        assert pool.drain(LONG)
    assert call("EXISTS", keys.stream(job.id)) == 0
    assert call("XLEN", keys.stream(other.id)) == 2


def test_operators_see_values_without_secrets(new_pool, admin):
    pool = new_pool()

    @pool.job(redact=["card"])
    def pay(job: Job, card: str) -> None:
        job.emit(f"pays with {card}")
        job.emit({"token": "abc", "n": 1})

    with pool:
        job = pay.enqueue(card="4111222233334444")
        clear = [value for value, _ in read(pool, job)]
        assert clear == ["pays with 4111222233334444", {"token": "abc", "n": 1}]
        shown = ["pays with [redacted]", {"token": "[redacted]", "n": 1}]
        assert [one.value for one in admin.stream(job.id)] == shown
        view = admin.emitted(job.id)
    assert (list(view.values), view.attempt, view.end, view.more) == (shown, 1, "completed", False)
    assert admin.emitted("nothing") is None


def test_the_command_prints_what_a_job_emits_until_its_end(new_pool, redis_url, namespace):
    pool = new_pool()

    @pool.job(max_fails=2, backoff=0)
    def talk(job: Job, how: str) -> None:
        job.emit("Once ")
        job.emit("upon\x1b[2J")
        job.emit({"n": 1})
        if how == "dead":
            raise Dead("no use")

    def run(job_id, *more):
        words = ["jobs", "stream", job_id, "--redis", redis_url, "--namespace", namespace, *more]
        return CliRunner().invoke(cli, words)

    with pool:
        good, bad = talk.enqueue(how="well"), talk.enqueue(how="dead")
        answer = run(good.id)
        assert (answer.exit_code, answer.stdout) == (0, 'Once upon\\x1b[2J\n{"n":1}\n')
        lines = [json.loads(line) for line in run(good.id, "--json").stdout.splitlines()]
        assert [one["value"] for one in lines] == ["Once ", "upon\x1b[2J", {"n": 1}]
        assert run(good.id, "--after", lines[1]["id"]).stdout == '{"n":1}\n'
        answer = run(bad.id)
        assert answer.exit_code == 1
        assert "no use" in answer.stderr
