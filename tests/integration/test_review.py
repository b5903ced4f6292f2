"""Faults that a hostile reading of the worker found: each test is one way in which a promise was broken."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from dayjob import Job, Retry
from dayjob.worker import shutdown
from monitor import monitor
from server import running, wait_until


def pass_time(seconds: float) -> float:
    """Let the clock run while pools do what they do. Returns how many seconds passed: on a busy machine, more."""
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began >= seconds)
    return time.monotonic() - began


def runtime_of(pool):
    return pool._runtime


@pytest.mark.parametrize("said", [Path("row"), "\ud800"], ids=["object", "surrogate"])
def test_a_checkin_that_cannot_be_written_does_not_end_the_pool(new_pool, look, said):
    pool, go = new_pool(concurrency=1), threading.Event()

    @pool.job
    def speak(job: Job) -> None:
        job.checkin(said)
        go.wait(60)

    with pool:
        speak.enqueue()
        try:
            wait_until(lambda: look.workers() or runtime_of(pool).failure)
            assert runtime_of(pool).failure is None
        finally:
            go.set()


def test_a_suspect_that_was_given_back_before_it_started_does_not_keep_the_next_from_running(
    new_pool, look, call, keys
):
    """An async job that blocks the loop is enough for that."""
    pool, ran = new_pool(concurrency=2), []
    blocked, go = threading.Event(), threading.Event()

    @pool.job
    async def block() -> None:
        blocked.set()
        go.wait(60)

    @pool.job
    async def suspect(n: int) -> None:
        ran.append(n)

    with pool:
        block.enqueue()
        assert blocked.wait(60)
        call("LPUSH", keys.queue("suspect"), look.payload("suspect", "s-1", deaths=2, args={"n": 1}))
        call("ZADD", keys.bell("suspect"), 0, "1")
        try:
            wait_until(lambda: look.total("given_back:suspect"))
        finally:
            go.set()
        wait_until(lambda: ran == [1])


def test_an_attempt_that_was_lost_before_it_started_is_not_started(new_pool, look, call, keys):
    pool, ran, go = new_pool(concurrency=2), [], threading.Event()

    @pool.job
    def suspect(n: int) -> None:
        ran.append(n)
        if n == 1:
            go.wait(60)

    @pool.job
    def other() -> None: ...

    for n in (1, 2):
        call("LPUSH", keys.queue("suspect"), look.payload("suspect", f"s-{n}", deaths=2, args={"n": n}))
    with pool:
        try:
            wait_until(lambda: look.held() == 2 and ran == [1])
            # As after a restore of Redis: the job is in its queue again, and not held.
            held = keys.held(look.pools()[0])
            found = call("HGETALL", held)
            ((token, raw),) = [
                (token, raw) for token, raw in zip(found[::2], found[1::2], strict=True) if b"s-2" in raw
            ]
            call("LPUSH", keys.queue("suspect"), raw)
            call("HDEL", held, token)
            other.enqueue()
            wait_until(lambda: look.total("done:other"))
        finally:
            go.set()
        assert pool.drain(60)
    assert ran == [1, 2]


def test_an_outcome_that_cannot_be_stored_is_not_tried_without_a_pause(new_pool, call, keys, look):
    pool = new_pool(concurrency=1)

    @pool.job
    def fail() -> None:
        raise Retry("later", after=1)

    call("SET", keys.retry, "not a sorted set")
    pool.start()
    fail.enqueue()
    runtime = runtime_of(pool)
    wait_until(lambda: runtime.state.fetched == 1 and not runtime.threads.running())
    before = runtime.state.exchanges
    assert 30 * pass_time(1.0) > runtime.state.exchanges - before


def test_outcomes_that_cannot_be_stored_do_not_stop_those_that_can(new_pool, call, keys, look):
    pool = new_pool(concurrency=8)

    @pool.job
    def fail() -> None:
        raise Retry("later", after=1)

    @pool.job
    def fine() -> None: ...

    call("SET", keys.retry, "not a sorted set")
    pool.start()
    pool.enqueuer.enqueue_many("fail", [{}] * 600)
    wait_until(lambda: runtime_of(pool).state.fetched >= 600)
    fine.enqueue()
    wait_until(lambda: look.total("done:fine"))


def test_a_queue_of_a_wrong_type_is_reported_once_in_a_while(new_pool, call, keys, look, caplog):
    pool = new_pool(concurrency=1)

    @pool.job
    def bad() -> None: ...

    @pool.job
    def good() -> None: ...

    call("SET", keys.queue("bad"), "not a list")
    end = threading.Event()
    with pool:

        def feed() -> None:
            while not end.is_set():
                good.enqueue()

        def lines() -> int:
            return len([one for one in list(caplog.records) if "wrong type" in one.getMessage()])

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            wait_until(lines)
            # Each of these costs at least one exchange, which meets the wrong type again.
            done = look.total("done:good") + 200
            wait_until(lambda: look.total("done:good") >= done)
        finally:
            end.set()
            feeder.join()
    assert lines() <= 3


def test_sys_exit_in_a_task_of_a_handler_does_not_end_the_loop(new_pool, look):
    pool, ran = new_pool(concurrency=2), []

    @pool.job
    async def careless() -> None:
        asyncio.get_running_loop().call_soon(sys.exit)
        await asyncio.sleep(0.01)

    @pool.job
    async def other() -> None:
        ran.append(1)

    with pool:
        careless.enqueue()
        other.enqueue()
        wait_until(lambda: ran == [1])
        wait_until(lambda: not look.held())


def _in_child(work) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_that_stops_the_pool_leaves_its_parent_alone(new_pool, look):
    pool, go, begun = new_pool(concurrency=1), threading.Event(), threading.Event()

    @pool.job
    def hold() -> None:
        begun.set()
        go.wait(60)

    with pool:
        hold.enqueue()
        assert begun.wait(60)
        before = look.pools()
        os.waitpid(_in_child(lambda: pool.stop(timeout=0)), 0)
        try:
            assert look.pools() == before
        finally:
            go.set()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_pool_can_be_started_in_a_forked_child_of_a_program_that_runs_it(new_pool, look):
    pool = new_pool(concurrency=1)

    @pool.job
    def any_job() -> None: ...

    def child() -> None:
        pool.start()
        pool._runtime.ended.wait(0.1)

    with pool:
        pid = _in_child(child)
        try:
            wait_until(lambda: len(look.pools()) == 2)
        finally:
            os.waitpid(pid, 0)


def test_a_job_that_stops_its_own_pool_does_not_leave_half_of_it_running(new_pool, look, monkeypatch):
    # So that a server that is paused for a moment does not keep the pool from giving back.
    monkeypatch.setattr(shutdown, "SETTLE_SECONDS", 3.0)
    pool = new_pool(concurrency=1)

    @pool.job
    def stop() -> None:
        pool.stop(timeout=0.1)

    pool.start()
    stop.enqueue()
    wait_until(lambda: look.total("done:stop") or look.total("given_back:stop") or look.retry())
    pool.stop(timeout=0)
    wait_until(lambda: not look.pools())


def test_a_pool_that_cannot_run_leaves_nothing_running(new_pool, look):
    """Signals belong to the main thread."""
    pool, problems = new_pool(concurrency=1), []

    @pool.job
    def any_job() -> None: ...

    def run() -> None:
        try:
            pool.run()
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert problems
    wait_until(lambda: not look.pools())


@pytest.mark.parametrize("damage", ["wrong type", "no token"])
def test_a_dead_pool_whose_keys_are_damaged_does_not_keep_others_from_being_rescued(
    new_pool, new_ghost, look, call, keys, damage
):
    pool, ran = new_pool(concurrency=1, beat=0.3), []

    @pool.job
    def work() -> None:
        ran.append(1)

    call("ZADD", keys.condemned, 1, "damaged")
    if damage == "wrong type":
        call("SET", keys.held("damaged"), "not a hash")
    else:
        call("HSET", keys.held("damaged"), "no token", "no payload")
    work.enqueue()
    ghost = new_ghost()
    assert ghost.take("work")
    with pool:
        wait_until(lambda: ran == [1])
        assert runtime_of(pool).failure is None


def test_scheduled_of_a_wrong_type_does_not_keep_retries_from_running(new_pool, look, call, keys):
    pool, ran = new_pool(concurrency=1), []

    @pool.job
    def work() -> None:
        ran.append(1)

    call("SET", keys.scheduled, "not a sorted set")
    call("ZADD", keys.retry, 1, look.payload("work", "w-1"))
    with pool:
        wait_until(lambda: ran == [1])


def test_a_tick_that_finds_memory_full_does_not_stop_the_other_chores(tmp_path, namespace):
    from dayjob import WorkerPool
    from dayjob.store import addresses
    from dayjob.store.keys import Keys
    from dayjob.store.link import Link
    from dayjob.store.op import plain

    keys = Keys(namespace)
    with running(tmp_path) as server:
        link = Link(addresses.parse_url(server.url), tag=keys.known_jobs)
        pool = WorkerPool(namespace=namespace, redis=server.url, concurrency=1)
        ran = []

        @pool.job
        def work() -> None:
            ran.append(1)

        @pool.job
        def tick() -> None: ...

        pool.periodic("* * * * * *", tick)
        with pool:
            wait_until(lambda: link.run(plain("HLEN", keys.periodic)))
            work.enqueue_in(1)
            link.run(plain("CONFIG", "SET", "maxmemory", "1"))
            wait_until(lambda: ran == [1])
        link.close()


def test_a_bell_of_a_wrong_type_does_not_make_the_pool_deaf(new_pool, call, keys):
    pool, ran = new_pool(concurrency=1), []
    names = [f"job{n}" for n in range(12)]
    for name in names:
        pool.register(name, lambda name=name: ran.append(name))
    with pool:
        pool.drain(60)
        call("SET", keys.bell("job0"), "not a sorted set")
        # A wait that is under way does not notice.
        pool.enqueuer.enqueue("job1")
        wait_until(lambda: ran == ["job1"])
        call("SET", keys.bell("job0"), "not a sorted set")
        for name in names[1:]:
            pool.enqueuer.enqueue(name)
            wait_until(lambda name=name: name in ran[1:])


def test_what_is_settled_in_one_exchange_is_bounded_in_bytes(new_pool, server, link, look):
    pool, begun, go = new_pool(concurrency=40), [], threading.Event()

    @pool.job
    def fail(text: str) -> None:
        begun.append(1)
        go.wait(60)
        raise Retry("later", after=60)

    for _ in range(40):
        fail.enqueue(text="x" * 200_000)
    pool.start()
    wait_until(lambda: len(begun) == 40)
    with monitor(server.port, link) as heard:
        go.set()
        wait_until(lambda: look.total("retried:fail") == 40)
    assert max(sum(map(len, words)) for words in heard.by_clients) < 3 << 20


def test_a_clock_that_jumps_ahead_does_not_make_idle_pools_ask_for_ticks_all_the_time(
    new_pool, server, link, keys, monkeypatch
):
    def tick() -> None: ...

    for _ in range(2):
        pool = new_pool(concurrency=1)
        pool.periodic("0 0 1 1 *", pool.register("tick", tick))
        pool.start()
        assert pool.drain(60)
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + 2 * 366 * 86400)
    pass_time(1.0)
    with monitor(server.port, link) as heard:
        passed = pass_time(1.0)
    # Ticks only: as a minute begins, the leader sends hundreds of requests to roll up figures.
    assert len([words for words in heard.by_clients if keys.periodic.encode() in words]) < 60 * passed


def test_the_time_of_redis_is_learnt_anew_by_an_idle_pool(new_pool, monkeypatch):
    pool = new_pool(concurrency=1, beat=0.2)

    @pool.job
    def any_job() -> None: ...

    pool.start()
    assert pool.drain(60)
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() - 3600)
    wait_until(lambda: abs(runtime_of(pool).state.clock.now() - true_time()) < 1)


def test_a_unique_job_that_is_given_back_before_it_started_has_its_key_again(new_pool, look):
    pool, blocked, go = new_pool(concurrency=2), threading.Event(), threading.Event()

    @pool.job
    async def block() -> None:
        blocked.set()
        go.wait(60)

    @pool.job
    async def only() -> None: ...

    pool.start()
    block.enqueue()
    assert blocked.wait(60)
    try:
        assert only.enqueue_unique() is not None
        wait_until(lambda: look.total("given_back:only"))
        runtime_of(pool).quiet()
        wait_until(lambda: look.queue("only"))
        assert only.enqueue_unique() is None
    finally:
        go.set()


def test_a_blocked_event_loop_does_not_make_the_pool_fetch_and_give_back_all_the_time(new_pool, look):
    pool, blocked, go = new_pool(concurrency=50), threading.Event(), threading.Event()

    @pool.job
    async def block() -> None:
        blocked.set()
        go.wait(60)

    @pool.job
    async def other() -> None: ...

    pool.start()
    block.enqueue()
    assert blocked.wait(60)
    try:
        pool.enqueuer.enqueue_many("other", [{}] * 200)
        passed = pass_time(1.0)
        assert look.total("given_back:other") <= 100 * passed
    finally:
        go.set()


def test_a_thread_survives_an_exception_that_comes_between_its_handler_and_its_end():
    """The board is cleared just there."""
    from dayjob.worker.running.runner import TimedOut
    from dayjob.worker.running.threads import ThreadExecutor

    finished = threading.Event()

    class LateBoard:
        def post(self, worker, token, deadline): ...

        def clear(self, worker):
            attempt = executor.workers[worker].current
            attempt.timed_out = True
            executor.interrupt(attempt, TimedOut)

    executor = ThreadExecutor(
        lambda attempt: None,
        lambda attempt, error: None,
        lambda attempt, settlement: finished.set(),
        limit=1,
        on_room=lambda: None,
        board=LateBoard(),
    )
    executor.give([timed_attempt()])
    assert finished.wait(60)
    executor.close()


def timed_attempt():
    from dayjob import WorkerPool
    from dayjob.store import codec
    from dayjob.worker.pool_job_type import PoolJobType
    from dayjob.worker.running.attempt import Attempt
    from dayjob.worker.state import PoolState

    pool = WorkerPool()
    job_type = pool.register("timed", lambda: None, timeout=5)
    return Attempt(
        "1:timed", "timed", b"{}", codec.Wire("timed"), PoolJobType(job_type, lambda c, j: None, PoolState())
    )


def test_the_hooks_of_an_attempt_that_was_given_up_run_once(new_pool, look):
    pool, fails, go = new_pool(concurrency=1, grace=0.1), [], threading.Event()
    ended = threading.Event()

    @pool.job(timeout=0.1, max_fails=2, backoff=3600, on_fail=lambda job, error: fails.append(str(error)))
    def deaf() -> None:
        while not ended.is_set():
            # Nothing is outside of it: an interrupt may come at any moment.
            try:
                go.wait(60)
                ended.set()
            except BaseException:  # noqa: S112 - deaf on purpose
                continue
        raise ValueError("late")

    @pool.job
    def other() -> None: ...

    pool.start()
    deaf.enqueue()
    wait_until(look.retry)
    go.set()
    assert ended.wait(60)
    other.enqueue()
    assert pool.drain(60)
    assert len(fails) == 1


@pytest.mark.parametrize("form", ["cut", "quoted", "nested"])
def test_no_form_of_a_redacted_argument_is_stored_with_an_error(new_pool, look, form):
    pool = new_pool(concurrency=1)
    secret = "s3cr3t-v4lu3-'4111111111111111'"  # noqa: S105 - of this test

    @pool.job(redact=("card",), max_fails=1)
    def pay(card: dict[str, str] | str) -> None:
        if form == "cut":
            raise ValueError("x" * 4055 + str(card) + "x" * 8000)
        if form == "quoted":
            raise KeyError(card + "\n")
        raise ValueError(f"bad number {card['number']}")

    pool.start()
    pay.enqueue(card={"number": secret} if form == "nested" else secret + ("\n" if form == "quoted" else ""))
    (dead,) = wait_until(look.dead)
    assert "s3cr3t" not in dead["err"]
    assert "s3cr3t" not in dead["trace"]


def test_suspects_that_wait_for_their_turn_cost_nothing(new_pool, look, call, keys):
    pool, go = new_pool(concurrency=2), threading.Event()

    @pool.job
    def suspect() -> None:
        go.wait(60)

    for n in range(3):
        call("LPUSH", keys.queue("suspect"), look.payload("suspect", f"s-{n}", deaths=2))
    pool.start()
    wait_until(lambda: look.held() == 3)
    fetcher = runtime_of(pool).fetcher
    looks, true_due = [], fetcher._due
    fetcher._due = lambda: looks.append(1) or true_due()
    try:
        assert 50 * pass_time(1.0) > len(looks)
    finally:
        go.set()


def test_few_threads_do_not_cost_async_jobs_a_round_trip_each(new_pool):
    pool = new_pool(concurrency=50, threads=1)

    @pool.job
    def sync() -> None: ...

    @pool.job
    async def quick() -> None: ...

    pool.enqueuer.enqueue_many("quick", [{}] * 2000)
    pool.start()
    assert pool.drain(60)
    assert runtime_of(pool).state.exchanges < 500


def test_a_status_is_small_however_large_the_arguments_are(new_pool, look, call, keys):
    pool, go = new_pool(concurrency=10), threading.Event()

    @pool.job
    def hold(rows: list[list[str]]) -> None:
        go.wait(60)

    for _ in range(10):
        hold.enqueue(rows=[["x" * 900] * 10] * 100)
    pool.start()
    try:
        wait_until(lambda: len(look.workers()) == 10)
        assert call("STRLEN", keys.pool(look.pools()[0])) < 200_000
    finally:
        go.set()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_a_handler_forked_ends_when_it_exits(new_pool, look):
    pool, children = new_pool(concurrency=1), []

    @pool.job
    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        children.append(pid)
        os.waitpid(pid, 0)

    pool.start()
    fork.enqueue()
    wait_until(lambda: children)
    try:
        wait_until(lambda: look.total("done:fork"))
    finally:
        # As it was before: a copy of the pool that waits for ever.
        if not look.total("done:fork"):
            os.kill(children[0], signal.SIGKILL)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_in_a_thread_that_has_the_ident_of_an_ended_event_loop_is_left_alone(new_pool):
    """The system gives the ident of a thread that has ended to a new one."""
    ended, pool, codes = new_pool(concurrency=1), new_pool(concurrency=1), []

    @ended.job
    async def wait() -> None: ...

    with ended:
        loop = runtime_of(ended)._executors._loop

    @pool.job
    def fork() -> None:
        loop._thread._ident = threading.get_ident()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if sys.getprofile() is None else 3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    with pool:
        fork.enqueue()
        wait_until(lambda: codes)
    assert codes == [0]
