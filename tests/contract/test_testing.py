"""What happens to jobs in a testing block is what happens to them on a server."""

from __future__ import annotations

import pytest

from dayjob import Dead, Discard, Job, Retry, Snooze, WorkerPool
from dayjob.errors import JobFailed, NotReady, ResultTimeout
from dayjob.store import codec
from dayjob.testing import testing
from server import wait_until


def program(redis: str, namespace: str) -> tuple[WorkerPool, list]:
    """Jobs that end in every way there is, and the log that they write."""
    pool = WorkerPool(namespace=namespace, redis=redis, concurrency=1)
    log: list = []

    @pool.middleware
    def trace(job: Job):
        log.append(("attempt", job.name, job.args, job.attempt, job.fails, job.snoozes, job.source))
        yield

    @pool.job(max_fails=3, backoff=0, on_dead=lambda job, error: log.append(("dead", job.name, job.error)))
    def fails(pair: list[int]) -> None:
        raise ValueError(f"no {pair}")

    @pool.job(max_fails=2)
    def signals(number: int) -> None:
        raise (Dead("now"), Discard("done with"), Retry("again", after=0))[number]

    @pool.job
    def snoozes(job: Job) -> None:
        if job.snoozes < 2:
            raise Snooze("later", after=0)

    @pool.job(keep=60)
    async def adds(a: int, b: int) -> tuple[int, int]:
        child.enqueue()
        return (a, b)

    @pool.job
    def child() -> None: ...

    @pool.job(unique_until="done")
    def alone(n: int) -> None:
        log.append(("taken", alone.enqueue_unique(n=n)))

    @pool.job
    def free(job: Job) -> None:
        if job.source is None:
            log.append(("not taken", free.using(source="second").enqueue_unique() is not None))

    return pool, log


def enqueue_all(pool: WorkerPool) -> list:
    """Enqueue the same each time; what the enqueues answered."""
    put = pool.enqueuer
    return [
        put.enqueue("fails", pair=(1, 2)).args,
        *[put.enqueue("signals", number=number).args for number in range(3)],
        put.enqueue("snoozes").args,
        put.using(source="acme", id="sum").enqueue("adds", a=1, b=2).id,
        essence(put.using(source="other", id="sum").enqueue_in("adds", 60, a=5, b=6)),
        put.enqueue_unique("alone", n=1) is None,
        put.enqueue_unique("alone", n=1) is None,
        put.enqueue_unique("free") is None,
        put.using(expires=3600).enqueue_in("child", 3600).fails,
    ]


def essence(job: Job) -> tuple:
    return (job.name, job.args, job.fails, job.snoozes, job.source, job.error, job.attempt)


def by_text(items) -> list:
    return sorted(items, key=repr)


def test_jobs_end_in_a_testing_block_as_they_do_on_a_server(redis_url, namespace, keys, call):
    fake, expected = program("redis://127.0.0.1:1", namespace)
    with testing(fake) as jobs:
        answers = enqueue_all(fake)
        jobs.drain(reraise=False)
        result = fake.enqueuer.result("sum")
    assert len(expected) > 15

    pool, log = program(redis_url, namespace)
    assert enqueue_all(pool) == answers
    with pool:
        wait_until(lambda: len(log) >= len(expected))
        assert pool.drain(60)
        assert pool.enqueuer.result("sum", timeout=60) == result
    pool.enqueuer.close()
    assert by_text(log) == by_text(expected)
    assert held(call, keys.dead) == by_text(map(essence, jobs.dead))
    assert held(call, keys.scheduled) == by_text(map(essence, jobs.scheduled))
    assert held(call, keys.retry) == by_text(map(essence, jobs.retry)) == []


def held(call, key: str) -> list:
    return by_text(essence(codec.job_of(codec.read(raw))) for raw in call("ZRANGE", key, 0, -1))


def test_a_pool_that_is_started_is_refused(redis_url, namespace):
    pool, _ = program(redis_url, namespace)
    with pool, pytest.raises(NotReady, match="stop\\(\\) it before"), testing(pool):
        pass
    with testing(pool) as jobs:
        assert jobs.enqueued() == []


# Streams.


def talking(redis: str, namespace: str) -> WorkerPool:
    """Jobs that emit and end in several ways."""
    pool = WorkerPool(namespace=namespace, redis=redis, concurrency=1)

    @pool.job(max_fails=2, backoff=0)
    def talk(job: Job) -> None:
        job.emit({"n": job.attempt})
        job.emit("two")
        if job.attempt == 1:
            raise ValueError

    @pool.job
    def ends(job: Job, how: str) -> None:
        job.emit(how)
        raise {"dead": Dead, "discarded": Discard}[how]("why")

    pool.register("silent", lambda: None)
    return pool


def streams_of(pool: WorkerPool, finish) -> list:
    """What readers get of each job after its end."""
    put = pool.enqueuer
    jobs = [
        put.enqueue("talk"),
        put.enqueue("ends", how="dead"),
        put.enqueue("ends", how="discarded"),
        put.enqueue("silent"),
    ]
    finish()
    # A pool on a server may be drained while a job waits for its retry. A reader waits until the job has ended.
    for job in jobs:
        stream_of(pool, job)
    first = next(put.stream(jobs[0]))
    return [
        *(stream_of(pool, job) for job in jobs),
        stream_of(pool, jobs[0], first.id),
        stream_of(pool, jobs[0], "1-0.0"),
        stream_of(pool, "nothing"),
    ]


def stream_of(pool: WorkerPool, job: Job | str, after: str = "") -> list:
    found: list = []
    try:
        for one in pool.enqueuer.stream(job, after=after, timeout=60):
            found.append((one.value, one.attempt, one.restarted))
    except JobFailed as error:
        found.append(str(error).partition(": ")[2])
    return found


def test_readers_of_streams_get_in_a_testing_block_what_they_get_on_a_server(redis_url, namespace):
    fake = talking("redis://127.0.0.1:1", namespace)
    with testing(fake) as jobs:
        job = fake.enqueuer.enqueue("talk")
        with pytest.raises(ResultTimeout, match="call drain"):
            list(fake.enqueuer.stream(job))
        expected = streams_of(fake, lambda: jobs.drain(reraise=False))
    pool = talking(redis_url, namespace)
    with pool:
        assert streams_of(pool, lambda: pool.drain(60)) == expected
    pool.enqueuer.close()
    assert expected[0] == [({"n": 2}, 2, False), ("two", 2, False)]
    assert expected[1] == [("dead", 1, False), "Dead: why"]
    assert expected[5] == [({"n": 2}, 2, True), ("two", 2, False)]


# Workflows.


def flowing(redis: str, namespace: str, bad: set[int]) -> WorkerPool:
    """Steps that die while they are `bad`."""
    pool = WorkerPool(namespace=namespace, redis=redis, concurrency=1)

    @pool.job(max_fails=1)
    def step(n: int, before: list[int | None]) -> int:
        if n in bad:
            raise Dead("not yet")
        return n + sum(one or 0 for one in before)

    pool.register("alarm", lambda: 100)
    return pool


def acted_on(pool: WorkerPool, bad: set[int], settle, retry, skip, cancel) -> list:
    """What retries, skips and cancels make of a workflow: the states and results after each."""
    found: list = []
    step, alarm = pool.find("step"), pool.find("alarm")
    flow = pool.workflow("contract")
    a = flow.add(step, n=1, before=[])
    b = flow.add(step, n=2, before=[a.result])
    c = flow.add(step, n=3, before=[a.result, b.result])
    flow.add(alarm, on_failure_of=[b])
    d = flow.add(step, n=4, before=[], after=[c])
    flow.start()

    def note():
        settle(flow)
        read = flow.progress()
        found.append(
            (read.state, read.completed, read.dead, read.left, [flow.result(node) for node in (a, b, c, d)])
        )

    bad.add(2)
    note()
    bad.clear()
    found.append(retry(flow, None))
    note()
    found.append(retry(flow, 1))
    note()
    bad.add(3)
    found.append(retry(flow, 2))
    note()
    skip(flow, 2)
    note()
    found.append(retry(flow, 0))
    note()
    # The last node waits for one that is dead, so that nothing runs meanwhile.
    cancel(flow, 4)
    note()
    found.append(retry(flow, 4))
    note()
    return found


def test_retries_skips_and_cancels_of_nodes_are_in_a_testing_block_as_on_a_server(
    redis_url, namespace, admin
):
    bad: set[int] = set()
    fake = flowing("redis://127.0.0.1:1", namespace, bad)
    with testing(fake) as jobs:
        expected = acted_on(
            fake, bad, lambda _: jobs.drain(reraise=False), lambda flow, n: jobs.retry_workflow(flow, node=n),
            lambda flow, n: jobs.skip_node(flow, node=n), lambda flow, n: jobs.cancel_workflow(flow, node=n),
        )  # fmt: skip
    bad.clear()
    pool = flowing(redis_url, namespace, bad)

    def changed(outcome) -> int:
        assert outcome.done, outcome
        return int(outcome.message.split()[0])

    def settle(flow) -> None:
        open_states = {"released", "running", "failed"}
        wait_until(lambda: open_states.isdisjoint(node.state for node in admin.workflow(flow.id).nodes))

    with pool:
        seen = acted_on(
            pool, bad, settle, lambda flow, n: changed(admin.retry_workflow(flow.id, node=n)),
            lambda flow, n: changed(admin.skip_node(flow.id, node=n)), lambda flow, n: admin.cancel_workflow(flow.id, node=n),
        )  # fmt: skip
    pool.enqueuer.close()
    assert seen == expected
