"""dayjob and the real gocraft/work in one namespace of a real server: jobs, keys and operators of either kind."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from dayjob import Admin, Enqueuer, Job, Rate, Snooze, WorkerPool
from dayjob.admin import doctor
from dayjob.store.link import walk
from dayjob.store.ops import membership
from gocraft import Gocraft, GoError, build
from server import Server, free_port, wait_until
from web.conftest import running_console

#: The first test of a process may have to build the program.
pytestmark = pytest.mark.timeout(900)

#: What Go's encoder escapes, and what may not fit into its floats.
ARGS = {"n": 7, "s": "<é & \u2028>", "deep": {"z": [1, {"a": None}], "f": 1.5}, "yes": True}


# The real thing, and ours beside it.


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """The program with the later version of the library, whose enqueuers know unique jobs by key."""
    return build(tmp_path_factory.mktemp("gocraft"))


@pytest.fixture(scope="session")
def released_program(tmp_path_factory) -> Path:
    """The program with the last release, v0.5.1."""
    return build(tmp_path_factory.mktemp("gocraft"), released=True)


@pytest.fixture
def run_program(server: Server, namespace: str, tmp_path: Path) -> Iterator[Callable[[Path], Gocraft]]:
    started: list[Gocraft] = []

    def run(program: Path) -> Gocraft:
        go = Gocraft(program, f"127.0.0.1:{server.port}", namespace, tmp_path / "gocraft.log")
        started.append(go)
        return go

    yield run
    for go in started:
        go.kill()


@pytest.fixture
def go(program: Path, run_program) -> Gocraft:
    return run_program(program)


@pytest.fixture
def released(released_program: Path, run_program) -> Gocraft:
    return run_program(released_program)


@pytest.fixture
def new_pool(namespace: str, redis_url: str) -> Iterator[Callable[..., WorkerPool[Any]]]:
    made: list[WorkerPool[Any]] = []

    def make(**options: Any) -> WorkerPool[Any]:
        pool: WorkerPool[Any] = WorkerPool(namespace=namespace, redis=redis_url, **options)
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.stop(timeout=0)
        pool.enqueuer.close()


class Seen:
    """A handler that notes the jobs it was given."""

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
def pool(new_pool, seen: Seen) -> WorkerPool[Any]:
    """A pool that knows the name `a`."""
    pool = new_pool(concurrency=2)
    pool.register("a", seen)
    return pool


@pytest.fixture
def enqueuer(namespace: str, redis_url: str) -> Iterator[Enqueuer]:
    found = Enqueuer(namespace, redis=redis_url)
    yield found
    found.close()


@pytest.fixture
def admin(namespace: str, redis_url: str) -> Iterator[Admin]:
    with Admin(namespace, redis=redis_url, actor="ada") as found:
        yield found


@pytest.fixture
def failing(new_pool) -> Callable[..., WorkerPool[Any]]:
    """A pool whose job `a` always fails."""

    def make(**options: Any) -> WorkerPool[Any]:
        pool = new_pool()

        @pool.job("a", **options)
        def a(job: Job) -> None:
            raise ValueError("python said no <&>")

        return pool

    return make


def members(call, key: str) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in call("ZRANGE", key, 0, -1)]


def make_due(call, key: str) -> None:
    """Let the only job of a side set be due now."""
    [member] = call("ZRANGE", key, 0, -1)
    call("ZADD", key, "XX", 1, member)


def pool_of_go(call, keys) -> str:
    """The id of the only Go pool, when it has given its first sign of life."""
    known = f"{keys.prefix}worker_pools"
    wait_until(lambda: call("SCARD", known) == 1)
    [found] = [raw.decode() for raw in call("SMEMBERS", known)]
    wait_until(lambda: call("HGET", f"{known}:{found}", "job_names"))
    return found


def in_an_hour() -> datetime:
    """A whole second, which Go's pages want."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


def gate(call, keys, name: str) -> None:
    """Keep Go's pools from fetching a name: its lock is above any limit. dayjob does not look at it."""
    call("INCRBY", f"{keys.queue(name)}:lock", 1_000_000)


#: Registered in Go with a limit that never matters, so that the gate can be closed.
GATED = {"does": "run", "max_concurrency": 1000}


# Go enqueues, dayjob works.


@pytest.mark.parametrize("args", [ARGS, {}, None, {"big": 12345678901234567890, "list": []}], ids=repr)
def test_a_job_that_go_enqueues_runs_here_with_its_arguments(go, pool, seen, args):
    sent = go.ask("enqueue", name="a", args=args)
    with pool:
        [job] = seen.wait()
        assert pool.drain(60)
    assert (job.id, job.args, job.enqueued_at) == (sent["id"], args or {}, sent["t"])


def test_a_job_that_go_enqueues_while_the_pool_sleeps_is_noticed(go, pool, seen):
    with pool:
        assert pool.drain(60)
        go.ask("enqueue", name="a", args={"n": 1})
        seen.wait()


def test_a_job_that_go_schedules_runs_here_and_never_early(go, pool, seen, call):
    sent = go.ask("enqueue_in", name="a", seconds=1, args=ARGS)
    with pool:
        [job] = seen.wait()
    seconds, micros = call("TIME")
    assert int(seconds) + int(micros) / 1e6 >= sent["run_at"]
    assert (job.id, job.args) == (sent["id"], ARGS)


@pytest.mark.parametrize("do", ["enqueue_unique", "enqueue_unique_in"])
def test_a_unique_job_of_go_frees_its_key_when_it_runs_here(go, pool, seen, enqueuer, do):
    first = go.ask(do, name="a", seconds=1, args=ARGS)
    assert go.ask(do, name="a", seconds=1, args=ARGS) is None
    assert enqueuer.enqueue_unique("a", **ARGS) is None
    with pool:
        [job] = seen.wait()
        assert job.id == first["id"]
        assert go.ask("enqueue_unique", name="a", args=ARGS) is not None
        seen.wait(2)


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_unique_job_by_key_runs_here_with_the_newest_arguments(go, pool, seen, call, keys, seconds):
    key = {"user": 7, "html": "<b>"}
    go.ask("enqueue_unique_by_key", name="a", seconds=seconds, args={"v": 1}, key=key)
    assert go.ask("enqueue_unique_by_key", name="a", seconds=seconds, args={"v": 2}, key=key) is None
    with pool:
        [job] = seen.wait()
        assert pool.drain(60)
        assert job.args == {"v": 2}
        assert go.ask("enqueue_unique_by_key", name="a", args={"v": 3}, key=key) is not None
        seen.wait(2)
    assert [job.args["v"] for job in seen.jobs] == [2, 3]
    assert call("EXISTS", seen.jobs[0].unique_key) == 0


def test_ticks_that_a_go_pool_wrote_run_here_after_it_is_gone(go, pool, seen, call, keys):
    go.start(other="run", periodic={"a": "* * * * * *"})
    wait_until(lambda: call("ZCARD", keys.scheduled) > 100)
    go.ask("stop")
    with pool:
        jobs = seen.wait(2)
    for job in jobs[:2]:
        assert job.id.startswith("periodic:a:* * * * * *:")
        assert job.args == {}


# dayjob enqueues, Go works.


def test_jobs_enqueued_here_run_in_go_with_their_arguments(go, enqueuer):
    jobs = [enqueuer.enqueue("a", **ARGS), *enqueuer.enqueue_many("a", [{"n": 1}, {}])]
    jobs.append(enqueuer.using(source=42, expires=60, id="chosen").enqueue("a", n=2))
    go.start(a="run")
    wait_until(lambda: len(go.ran()) == 4)
    ran = {run["id"]: run["args"] for run in go.ran()}
    assert ran == {job.id: job.args for job in jobs}


def test_a_job_scheduled_here_is_moved_and_run_by_go(go, enqueuer, call, keys):
    job = enqueuer.enqueue_in("a", 0.5, **ARGS)
    go.start(a="run")
    wait_until(go.ran)
    [run] = go.ran()
    assert (run["id"], run["args"]) == (job.id, ARGS)
    assert call("ZCARD", keys.scheduled) == 0


@pytest.mark.parametrize("delay", [None, 0.5])
def test_a_unique_job_of_ours_frees_its_key_when_go_runs_it(go, enqueuer, call, delay):
    if delay is None:
        job = enqueuer.enqueue_unique("a", **ARGS)
    else:
        job = enqueuer.enqueue_unique_in("a", delay, **ARGS)
    assert go.ask("enqueue_unique", name="a", args=ARGS) is None
    assert enqueuer.enqueue_unique("a", **ARGS) is None
    go.start(a="run")
    wait_until(lambda: [run for run in go.ran() if run["ended"]])
    assert [run["id"] for run in go.ran()] == [job.id]
    assert call("EXISTS", job.unique_key) == 0
    assert enqueuer.enqueue_unique("a", **ARGS) is not None
    wait_until(lambda: len(go.ran()) == 2)


def test_a_key_of_ones_own_is_the_same_on_both_sides(go, enqueuer, call):
    key = {"user": 7, "html": "<b>"}
    ours = enqueuer.using(unique_key=key)
    job = ours.enqueue_unique("a", v=1)
    assert go.ask("enqueue_unique_by_key", name="a", args={"v": 2}, key=key) is None
    assert ours.enqueue_unique("a", v=3) is None
    go.start(a="run")
    wait_until(go.ran)
    assert [run["args"] for run in go.ran()] == [{"v": 2}]
    wait_until(lambda: call("EXISTS", job.unique_key) == 0)


def test_a_key_of_ours_that_go_wrote_over_is_still_released_here(go, pool, seen, enqueuer, call):
    job = enqueuer.enqueue_unique("a", **ARGS)
    assert go.ask("enqueue_unique", name="a", args=ARGS) is None
    assert call("GET", job.unique_key) == b"1"
    with pool:
        seen.wait()
        assert pool.drain(60)
    assert [one.id for one in seen.jobs] == [job.id]
    assert call("EXISTS", job.unique_key) == 0


# What failed or waits there.


def test_a_job_that_failed_in_go_is_shown_and_run_again_here(go, pool, seen, admin, call, keys):
    sent = go.ask("enqueue", name="a", args=ARGS)
    go.start(a={"does": "fail", "max_fails": 3, "backoff": 3600})
    wait_until(lambda: admin.jobs("retry").jobs)
    go.ask("stop")
    [shown] = admin.jobs("retry").jobs
    assert (shown.id, shown.name, shown.fails, shown.error) == (sent["id"], "a", 1, "go said no <&>")
    make_due(call, keys.retry)
    with pool:
        [job] = seen.wait()
    assert (job.id, job.args, job.fails, job.error) == (sent["id"], ARGS, 1, "go said no <&>")


def test_a_job_that_died_in_go_is_shown_retried_and_deleted_here(go, pool, seen, admin):
    ids = [go.ask("enqueue", name="a", args={"n": n})["id"] for n in range(2)]
    go.start(a={"does": "fail", "max_fails": 1})
    wait_until(lambda: admin.count("dead").matched == 2)
    go.ask("stop")
    shown = {job.id: job for job in admin.jobs("dead").jobs}
    assert set(shown) == set(ids)
    assert admin.retry(shown[ids[0]].seen).done
    assert admin.delete(shown[ids[1]].seen).done
    assert admin.count("dead").matched == 0
    with pool:
        [job] = seen.wait()
        assert pool.drain(60)
    assert (job.id, job.fails, job.args) == (ids[0], 0, {"n": 0})


def test_a_job_that_go_scheduled_is_shown_run_at_once_and_deleted_here(go, pool, seen, admin):
    now, never = (go.ask("enqueue_in", name="a", seconds=3600, args={"n": n}) for n in range(2))
    shown = {job.id: job for job in admin.jobs("scheduled").jobs}
    assert {job.at for job in shown.values()} == {now["run_at"], never["run_at"]}
    assert admin.run_now(shown[now["id"]].seen).done
    assert admin.delete(shown[never["id"]].seen).done
    with pool:
        [job] = seen.wait()
    assert job.id == now["id"]
    assert admin.count("scheduled").matched == 0


def test_a_waiting_job_of_go_is_shown_and_deleted_here(go, admin):
    first, second = (go.ask("enqueue", name="a", args={"n": n}) for n in range(2))
    assert [job.id for job in admin.jobs("waiting", name="a").jobs] == [first["id"], second["id"]]
    assert admin.delete(first["id"]).done
    assert [queue["count"] for queue in go.ask("queues")] == [1]


def test_a_job_that_failed_here_is_shown_and_deleted_by_go(go, failing, call, keys):
    pool = failing(max_fails=2, backoff=60)
    with pool:
        pool.enqueuer.enqueue("a", n=1)
        wait_until(lambda: call("ZCARD", keys.retry) == 1)
    listing = go.ask("retry")
    [job] = listing["jobs"]
    assert (listing["count"], job["name"], job["fails"]) == (1, "a", 1)
    assert job["err"] == "ValueError: python said no <&>"
    go.ask("delete_retry", at=job["retry_at"], id=job["id"])
    assert call("ZCARD", keys.retry) == 0


def test_a_job_that_failed_here_is_run_again_by_go(go, failing, call, keys):
    pool = failing(max_fails=3, backoff=3600)
    with pool:
        job = pool.enqueuer.enqueue("a", **ARGS)
        wait_until(lambda: call("ZCARD", keys.retry) == 1)
    make_due(call, keys.retry)
    go.start(a="run")
    wait_until(go.ran)
    [run] = go.ran()
    assert (run["id"], run["args"], run["fails"]) == (job.id, ARGS, 1)
    assert run["err"] == "ValueError: python said no <&>"


def test_a_job_that_died_here_is_shown_retried_and_deleted_by_go(go, failing, call, keys):
    pool = failing(max_fails=1)
    with pool:
        pool.enqueuer.enqueue_many("a", [{"n": n} for n in range(4)])
        wait_until(lambda: call("ZCARD", keys.dead) == 4)
    listing = go.ask("dead")
    assert listing["count"] == 4
    first, second, *_ = listing["jobs"]
    assert first["err"] == "ValueError: python said no <&>"
    go.ask("delete_dead", at=first["died_at"], id=first["id"])
    go.ask("retry_dead", at=second["died_at"], id=second["id"])
    assert call("ZCARD", keys.dead) == 2
    go.ask("retry_all_dead")
    assert call("ZCARD", keys.dead) == 0
    go.start(a="run")
    wait_until(lambda: len(go.ran()) == 3)
    ran = go.ran()
    assert first["id"] not in {run["id"] for run in ran}
    assert all("fails" not in run and "err" not in run for run in ran)


def test_a_dead_job_that_go_retries_runs_here_as_if_it_had_never_failed(go, new_pool, call, keys):
    pool = new_pool()
    runs: list[tuple[str, int, dict[str, Any]]] = []

    @pool.job("a", max_fails=1)
    def a(job: Job) -> None:
        runs.append((job.id, job.fails, job.args))
        if len(runs) == 1:
            raise ValueError("no")

    with pool:
        pool.enqueuer.enqueue("a", **ARGS)
        wait_until(lambda: call("ZCARD", keys.dead) == 1)
        [dead] = go.ask("dead")["jobs"]
        go.ask("retry_dead", at=dead["died_at"], id=dead["id"])
        wait_until(lambda: len(runs) == 2)
    assert runs == [(dead["id"], 0, ARGS)] * 2


def test_all_dead_jobs_of_ours_are_deleted_by_go(go, failing, call, keys):
    pool = failing(max_fails=1)
    with pool:
        pool.enqueuer.enqueue("a")
        wait_until(lambda: call("ZCARD", keys.dead) == 1)
    go.ask("delete_all_dead")
    assert call("EXISTS", keys.dead) == 0


def test_a_job_that_was_killed_here_is_shown_by_go(go, enqueuer, admin):
    waiting = enqueuer.enqueue("a", n=1)
    scheduled = enqueuer.enqueue_in("a", 60, n=2)
    assert admin.kill(waiting.id).done
    assert admin.kill(scheduled.id).done
    assert {job["id"] for job in go.ask("dead")["jobs"]} == {waiting.id, scheduled.id}


def test_a_job_scheduled_here_for_a_whole_second_is_shown_and_deleted_by_go(go, enqueuer, call, keys):
    when = in_an_hour()
    job = enqueuer.enqueue_unique_at("a", when, **ARGS)
    [shown] = go.ask("scheduled")["jobs"]
    assert (shown["id"], shown["run_at"], shown["args"]) == (job.id, int(when.timestamp()), ARGS)
    go.ask("delete_scheduled", at=shown["run_at"], id=job.id)
    assert call("EXISTS", keys.scheduled, job.unique_key) == 0


def test_a_job_snoozed_here_is_shown_by_go(go, new_pool, call, keys):
    pool = new_pool()

    @pool.job("a")
    def a() -> None:
        raise Snooze("later", after=60)

    with pool:
        job = pool.enqueuer.enqueue("a")
        wait_until(lambda: call("ZCARD", keys.scheduled) == 1)
    assert [shown["id"] for shown in go.ask("scheduled")["jobs"]] == [job.id]


# Bytes that went through its cjson.


def test_what_gos_requeuer_made_of_a_job_of_ours_still_fits_its_handler(go, new_pool, enqueuer, call, keys):
    """Empty lists have become objects, and whole numbers may have exponents; the moment is when it was due."""
    gate(call, keys, "a")
    job = enqueuer.using(source="acme").enqueue_in("a", 0.5, n=10**15, items=[], path="a/b", f=2.0)
    go.start(a=GATED)
    wait_until(lambda: call("LLEN", keys.queue("a")) == 1)
    [raw] = call("LRANGE", keys.queue("a"), 0, -1)
    assert b'"items":{}' in raw
    assert b"a\\/b" in raw
    pool = new_pool()
    got: list[Any] = []

    @pool.job("a")
    def a(job: Job, n: int, items: list[int], path: str, f: float) -> None:
        got.append((job, n, items, path, f))

    with pool:
        wait_until(lambda: got)
    [(ran, *args)] = got
    assert args == [10**15, [], "a/b", 2.0]
    assert (ran.id, ran.source) == (job.id, "acme")
    assert ran.enqueued_at == json.loads(raw)["t"]


# Pausing and limits.


def test_a_queue_paused_by_our_operator_waits_in_go_too(go, enqueuer, admin):
    admin.pause("a", force=True)
    enqueuer.enqueue("a")
    enqueuer.enqueue("other")
    go.start(a="run", other="run", concurrency=1)
    wait_until(lambda: go.ran("other"))
    enqueuer.enqueue("other")
    wait_until(lambda: len(go.ran("other")) == 2)
    assert go.ran("a") == []
    admin.resume("a")
    wait_until(lambda: go.ran("a"))


def test_each_side_keeps_its_own_limit_and_together_they_are_the_sum(go, new_pool, enqueuer, call, keys):
    """A hazard: what runs in Go does not count here, nor the other way round."""
    enqueuer.enqueue_many("a", [{} for _ in range(6)])
    go.start(a={"does": "hold", "max_concurrency": 1}, concurrency=3)
    wait_until(go.ran)
    pool = new_pool(concurrency=3)
    running, most = [], []
    release = threading.Event()

    @pool.job("a", max_concurrency=1)
    def a(job: Job) -> None:
        running.append(job)
        most.append(len(running))
        release.wait(60)
        running.remove(job)

    with pool:
        wait_until(lambda: most)
        assert call("LLEN", keys.queue("a")) == 4
        assert len([run for run in go.ran() if not run["ended"]]) == 1
        release.set()
        go.ask("release")
        assert pool.drain(60)
        wait_until(lambda: len(most) + len([run for run in go.ran() if run["ended"]]) == 6)
    assert set(most) == {1}


# Moving one name at a time.


def test_a_name_is_handed_over_without_a_stop_and_handed_back(go, pool, seen, enqueuer, call, keys):
    """With its lock above its limit Go fetches no more of a name, but still knows it when it requeues."""
    go.start(a=GATED)
    enqueuer.enqueue("a", n=1)
    wait_until(lambda: len(go.ran("a")) == 1)
    gate(call, keys, "a")
    enqueuer.enqueue("a", n=2)
    enqueuer.enqueue_in("a", 0.5, n=3)
    wait_until(lambda: call("LLEN", keys.queue("a")) == 2)
    with pool:
        assert {job.args["n"] for job in seen.wait(2)} == {2, 3}
        assert pool.drain(60)
    assert len(go.ran("a")) == 1
    assert call("ZCARD", keys.dead) == 0
    call("DECRBY", f"{keys.queue('a')}:lock", 1_000_000)
    enqueuer.enqueue("a", n=4)
    wait_until(lambda: len(go.ran("a")) == 2)


def test_the_gate_holds_when_a_go_pool_starts_again(go, run_program, program, enqueuer, call, keys):
    go.start(a=GATED)
    gate(call, keys, "a")
    go.ask("stop")
    enqueuer.enqueue("a")
    again = run_program(program)
    again.start(a=GATED, other="run", concurrency=1)
    enqueuer.enqueue_many("other", [{}, {}, {}])
    wait_until(lambda: len(again.ran("other")) == 3)
    assert again.ran("a") == []


# What operators see of Go's pools.


def test_the_doctor_and_a_starting_pool_name_go_pools_that_obey_no_limit(
    go, new_pool, link, call, keys, caplog
):
    go.start(a="hold")
    pool_of_go(call, keys)
    pool = new_pool(concurrency=1)
    pool.register("a", lambda n=0: None, limits=[Rate(1, per=60, by="n")])
    pool.register("ours", lambda: None)
    with pool:
        pass
    (warned,) = [one.getMessage() for one in caplog.records if "gocraft" in one.getMessage()]
    assert re.fullmatch(
        r"a worker pool of gocraft/work \(\S+/\d+\) runs a too\. It obeys no limit and no key of dayjob\.",
        warned,
    )
    limits, unknown = [one for one in walk(link, doctor.examine(keys, time.time)) if one.topic == "gocraft"]
    assert limits.what.endswith("it obeys no limit and no key of dayjob, and runs a")
    assert unknown.what.endswith("it kills scheduled jobs and retries of names that it does not have: ours")
    assert limits.level == unknown.level == "warning"


# Reapers.


def test_gos_reaper_rescues_its_own_and_leaves_ours_alone(
    go, run_program, program, new_pool, enqueuer, call, keys
):
    enqueuer.enqueue("a", n=1)
    go.start(a="hold")
    wait_until(go.ran)
    crashed = pool_of_go(call, keys)
    go.kill()
    # As if it had been silent for longer than Go waits.
    call("HSET", f"{keys.prefix}worker_pools:{crashed}", "heartbeat_at", 1)

    pool = new_pool(concurrency=2)
    runs: list[Job] = []
    release = threading.Event()

    @pool.job("ours")
    def ours(job: Job) -> None:
        runs.append(job)
        release.wait(60)

    rescued = Seen()
    pool.register("a", rescued)
    with pool:
        held = enqueuer.enqueue("ours")
        wait_until(lambda: runs)
        other = run_program(program)
        gate(call, keys, "a")
        other.start(a=GATED)
        # Its first pass is ten seconds after its start.
        wait_until(lambda: call("SISMEMBER", f"{keys.prefix}worker_pools", crashed) == 0)
        rescued.wait()
        release.set()
        assert pool.drain(60)
    assert [job.args for job in rescued.jobs] == [{"n": 1}]
    assert [job.id for job in runs] == [held.id]
    assert call("ZCARD", keys.dead) == 0


def test_our_reaper_leaves_what_runs_in_go_alone(go, pool, seen, enqueuer, call, keys, link):
    job = enqueuer.enqueue("a", n=1)
    go.start(a="hold", concurrency=1)
    wait_until(go.ran)
    gos = pool_of_go(call, keys)
    # A pool of ours that was never heard of again, for the reaper to have work.
    assert link.run(membership.join(keys, "ghost", [], lease=0.1, term=0.0)).registered
    with pool:
        wait_until(lambda: call("ZSCORE", keys.pools, "ghost") is None)
        assert call("LLEN", f"{keys.queue('a')}:{gos}:inprogress") == 1
        go.ask("release")
        wait_until(lambda: go.ran()[0]["ended"])
        wait_until(lambda: call("LLEN", f"{keys.queue('a')}:{gos}:inprogress") == 0)
    assert [run["id"] for run in go.ran()] == [job.id]
    assert seen.jobs == []


def test_what_the_last_go_pool_left_in_progress_is_moved_by_hand(go, pool, seen, enqueuer, call, keys):
    """A hazard: only a Go pool looks for the jobs of a dead Go pool."""
    job = enqueuer.enqueue("a", n=1)
    go.start(a="hold")
    wait_until(go.ran)
    crashed = pool_of_go(call, keys)
    go.kill()
    assert call("HGET", f"{keys.prefix}worker_pools:{crashed}", "job_names") == b"a"
    with pool:
        assert pool.drain(60)
        assert seen.jobs == []
        call("LMOVE", f"{keys.queue('a')}:{crashed}:inprogress", keys.queue("a"), "RIGHT", "RIGHT")
        seen.wait()
    assert [one.id for one in seen.jobs] == [job.id]


# Its web page.


class Page:
    """The library's own web page, as a browser asks it."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()

    def post(self, path: str) -> Any:
        return self.client.post(path).raise_for_status().json()

    def answers(self) -> bool:
        try:
            self.client.get("queues")
        except httpx.TransportError:
            return False
        return True


@pytest.fixture
def page(go: Gocraft) -> Iterator[Page]:
    address = f"127.0.0.1:{free_port()}"
    go.ask("serve", address=address)
    with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        found = Page(client)
        wait_until(found.answers)
        yield found


def test_its_web_page_lists_our_queues(page, enqueuer):
    enqueuer.enqueue_many("a", [{}, {}])
    enqueuer.enqueue("b.c-d", n=1)
    listed = {queue["job_name"]: queue for queue in page.get("queues")}
    assert {name: queue["count"] for name, queue in listed.items()} == {"a": 2, "b.c-d": 1}
    assert 0 <= listed["a"]["latency"] < 60


def test_its_web_page_lists_and_retries_our_failures(page, failing, pool, seen, call, keys):
    broken = failing(max_fails=1)
    with broken:
        job = broken.enqueuer.enqueue("a", **ARGS)
        wait_until(lambda: call("ZCARD", keys.dead) == 1)
    [dead] = page.get("dead_jobs")["jobs"]
    assert (dead["id"], dead["err"]) == (job.id, "ValueError: python said no <&>")
    assert page.post(f"retry_dead_job/{dead['died_at']}/{dead['id']}") == {"status": "ok"}
    with pool:
        assert seen.wait()[0].id == job.id


def test_its_web_page_knows_pools_of_its_own_only(page, go, pool, admin, call, keys):
    """A hazard: who looks for all pools has to look at both consoles."""
    go.start(a="run")
    gos = pool_of_go(call, keys)
    with pool:
        assert [found["worker_pool_id"] for found in page.get("worker_pools")] == [gos]
        assert len(admin.pools().pools) == 1


def shape(value: Any) -> Any:
    """Names in their order, and types: what a client that was written for one of them relies on."""
    if isinstance(value, dict):
        return [(key, shape(one)) for key, one in value.items()]
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    return type(value).__name__


def test_our_console_answers_what_its_web_page_does(
    page, go, failing, enqueuer, call, keys, redis_url, namespace
):
    enqueuer.enqueue_many("waits", [{}, {"n": 1}])
    go.ask("enqueue", name="waits", args=ARGS)
    go.ask("enqueue_in", name="later", seconds=3600, args=ARGS)
    with failing(max_fails=1) as ours:
        ours.enqueuer.enqueue("a", **ARGS)
        wait_until(lambda: call("ZCARD", keys.dead) == 1)
    go.ask("enqueue", name="a", args=ARGS)
    with failing(max_fails=4, backoff=3600) as again:
        again.enqueuer.enqueue("a", n=2)
        wait_until(lambda: call("ZCARD", keys.retry) == 2)
    with running_console(redis_url, namespace) as console:
        for path in ("retry_jobs", "scheduled_jobs", "dead_jobs", "dead_jobs?page=2", "retry_jobs?page=1"):
            assert console.get(f"/{path}").json() == page.get(path), path
        theirs, own = page.get("queues"), console.get("/queues").json()
        for queue in (*theirs, *own):
            # A second may pass between the two looks.
            assert 0 <= queue.pop("latency") < 60
        assert sorted(own, key=str) == sorted(theirs, key=str)
        assert shape(console.get("/queues").json()) == shape(page.get("queues"))


def test_our_console_shows_our_pools_as_its_web_page_shows_its_own(
    page, go, pool, new_pool, enqueuer, redis_url, namespace
):
    go.start(a="hold", concurrency=1)
    enqueuer.enqueue("a", **ARGS)
    wait_until(go.ran)
    wait_until(lambda: page.get("busy_workers"))
    theirs = {path: shape(page.get(path)) for path in ("worker_pools", "busy_workers")}
    go.ask("release")
    ours, hold = new_pool(concurrency=1), threading.Event()

    @ours.job("ours")
    def holds(job: Job) -> None:
        job.checkin("half of it")
        hold.wait(60)

    with running_console(redis_url, namespace) as console, ours:
        enqueuer.enqueue("ours", **ARGS)
        wait_until(lambda: console.get("/busy_workers").json())
        own = {path: shape(console.get(f"/{path}").json()) for path in theirs}
        hold.set()
    assert own == theirs


# What stays different: each of these is in the guide.


def test_a_go_pool_kills_due_jobs_whose_name_it_does_not_know(go, pool, seen, enqueuer, admin):
    """A hazard of Go's requeuer, for its own pools as for ours; they can be brought back here."""
    job = enqueuer.enqueue_in("a", 0.1, **ARGS)
    go.start(other="run")
    wait_until(lambda: admin.count("dead").matched == 1)
    [dead] = admin.jobs("dead").jobs
    assert (dead.id, dead.error) == (job.id, "unknown job when requeueing")
    go.ask("stop")
    assert admin.retry(dead.seen).done
    with pool:
        assert seen.wait()[0].args == ARGS


def test_our_requeuer_leaves_jobs_whose_name_it_does_not_know_in_their_queue(go, pool, call, keys):
    sent = go.ask("enqueue_in", name="gos", seconds=0, args={"n": 1})
    with pool:
        wait_until(lambda: call("LLEN", keys.queue("gos")) == 1)
    go.start(gos="run")
    wait_until(go.ran)
    assert [run["id"] for run in go.ran()] == [sent["id"]]


def test_what_only_dayjob_writes_is_lost_when_a_job_fails_in_go(go, enqueuer, call, keys):
    enqueuer.using(source="acme", expires=600).enqueue("a", n=1)
    go.start(a={"does": "fail", "max_fails": 2, "backoff": 60})
    wait_until(lambda: call("ZCARD", keys.retry) == 1)
    [job] = members(call, keys.retry)
    assert set(job) == {"name", "id", "t", "args", "fails", "err", "failed_at"}


def test_a_long_number_is_rounded_on_its_way_through_gos_requeuer(go, pool, seen, enqueuer, call, keys):
    gate(call, keys, "a")
    enqueuer.enqueue_in("a", 0.1, n=12345678901234567, s="12345678901234567")
    go.start(a=GATED)
    wait_until(lambda: call("LLEN", keys.queue("a")) == 1)
    with pool:
        [job] = seen.wait()
    assert job.args == {"n": 12345678901235000, "s": "12345678901234567"}


@pytest.mark.parametrize("verb", ["delete", "kill", "cancel", "purge"])
def test_the_key_of_a_unique_job_of_go_goes_with_it_when_an_operator_ends_it_here(go, admin, call, verb):
    sent = go.ask("enqueue_unique", name="a", args={"n": 1})
    if verb == "purge":
        admin.purge("a")
    else:
        assert getattr(admin, verb)(sent["id"]).done
    assert call("EXISTS", sent["unique_key"]) == 0
    assert go.ask("enqueue_unique", name="a", args={"n": 1}) is not None


def test_go_runs_what_has_expired(go, enqueuer, call):
    job = enqueuer.using(expires=0.05).enqueue("a", n=1)

    def expired() -> bool:
        seconds, micros = call("TIME")
        return int(seconds) + int(micros) / 1e6 > job.enqueued_at + 0.1

    wait_until(expired)
    go.start(a="run")
    wait_until(go.ran)


@pytest.mark.parametrize("state", ["scheduled", "retry"])
def test_a_fraction_of_a_second_keeps_go_from_showing_a_page_but_not_from_working(
    go, enqueuer, call, keys, state
):
    """Go reads scores as whole seconds only."""
    job = enqueuer.enqueue_in("a", 3600, n=1)
    [payload] = call("ZRANGE", keys.scheduled, 0, -1)
    call("DEL", keys.scheduled)
    call("ZADD", getattr(keys, state), 1.5, payload)
    with pytest.raises(GoError, match="ParseInt"):
        go.ask(state)
    go.start(a="run")
    wait_until(go.ran)
    assert [run["id"] for run in go.ran()] == [job.id]


def test_dead_jobs_of_go_fall_under_the_cap_of_our_pools(go, new_pool, seen, call, keys):
    for n in range(8):
        go.ask("enqueue", name="b", args={"n": n})
    go.start(b={"does": "fail", "max_fails": 1})
    wait_until(lambda: call("ZCARD", keys.dead) == 8)
    pool = new_pool(dead_count=5)
    pool.register("a", seen)
    with pool:
        wait_until(lambda: call("ZCARD", keys.dead) == 5)


# The last release, which most programs require.


def test_a_unique_job_of_the_last_release_frees_its_key_here(released, pool, seen, enqueuer):
    first = released.ask("enqueue_unique", name="a", args=ARGS)
    assert enqueuer.enqueue_unique("a", **ARGS) is None
    with pool:
        assert seen.wait()[0].id == first["id"]
        assert released.ask("enqueue_unique", name="a", args=ARGS) is not None
        seen.wait(2)


def test_the_last_release_runs_our_jobs_and_frees_our_keys(released, enqueuer, call):
    plain = enqueuer.enqueue("a", **ARGS)
    unique = enqueuer.enqueue_unique("a", **ARGS)
    later = enqueuer.enqueue_in("a", 0.1, **ARGS)
    assert released.ask("enqueue_unique", name="a", args=ARGS) is None
    released.start(a="run")
    wait_until(lambda: len(released.ran()) == 3)
    assert {run["id"] for run in released.ran()} == {plain.id, unique.id, later.id}
    assert all(run["args"] == ARGS for run in released.ran())
    wait_until(lambda: call("EXISTS", unique.unique_key) == 0)


def test_the_last_release_and_dayjob_share_what_failed(released, pool, seen, enqueuer, admin):
    job = enqueuer.enqueue("a", **ARGS)
    released.start(a={"does": "fail", "max_fails": 1})
    wait_until(lambda: admin.count("dead").matched == 1)
    released.ask("stop")
    [dead] = admin.jobs("dead").jobs
    assert (dead.id, dead.error) == (job.id, "go said no <&>")
    assert admin.retry(dead.seen).done
    with pool:
        assert seen.wait()[0].args == ARGS
