"""The parent of `dayjob worker` and its children, as real processes with real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

import pytest

from dayjob import Enqueuer
from server import running, sooner_than, wait_until
from workers import JOBS, PATIENT_PARENT, WorkerCommand, is_gone


@pytest.fixture
def worker(tmp_path, redis_url, namespace):
    command = WorkerCommand(tmp_path, redis_url, namespace)
    yield command
    command.close()


@pytest.fixture
def enqueue(redis_url, namespace):
    enqueuer = Enqueuer(namespace, redis=redis_url)
    return enqueuer.enqueue


@pytest.fixture
def total(call, keys):
    """The exact total of a counter over some job name."""
    return lambda counter, name: int(call("HGET", keys.totals, f"{counter}:{name}") or 0)


def test_a_job_whose_process_is_killed_starts_again_at_once_and_its_death_is_counted(worker, enqueue, total):
    # With a lease that would let the test fail.
    worker.write(JOBS.replace("lease=4.0, beat=0.3", "lease=60"))
    (child,) = worker.started()
    enqueue("hold", n=1)
    worker.wait_for("begin")
    os.kill(child, signal.SIGKILL)
    first, second = worker.wait_for("begin", 2)
    assert first[2] == str(child)
    assert second[2] != str(child)
    assert second[3] == "1"
    worker.open_gate()
    wait_until(lambda: total("done", "hold") == 1)
    assert total("reaped", "hold") == 1
    assert "was killed by SIGKILL (out of memory?)" in worker.log


def test_a_suspended_child_loses_its_lease_and_goes_on_under_a_new_id(worker, enqueue, total, call, keys):
    pids = worker.started(processes=2)
    ids = set(call("ZRANGE", keys.pools, 0, -1))
    enqueue("hold", n=1)
    ((_, _, first, _),) = worker.wait_for("begin")
    os.kill(int(first), signal.SIGSTOP)
    try:
        _, (_, _, second, deaths) = worker.wait_for("begin", 2)
        assert int(second) in pids
        assert second != first
        assert deaths == "1"
    finally:
        os.kill(int(first), signal.SIGCONT)
    wait_until(lambda: len(set(call("ZRANGE", keys.pools, 0, -1)) - ids) == 1)
    assert set(worker.children()) == set(pids)
    worker.open_gate()
    worker.wait_for("end", 2)
    wait_until(lambda: total("done", "hold") == 1)
    for n in range(20):
        enqueue("quick", n=n)
    wait_until(lambda: total("done", "quick") == 20)
    assert total("done", "hold") == 1
    assert len(worker.said("begin")) == 2


def test_children_whose_parent_is_killed_stop_and_give_back(worker, enqueue, total, call, keys):
    pids = worker.started("--timeout", "0.5", processes=2, **worker.patiently())
    enqueue("hold", n=1)
    worker.wait_for("begin")
    earlier = total("given_back", "hold")
    worker.signal(signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, pids)))
    assert total("given_back", "hold") == earlier + 1
    assert call("LLEN", keys.queue("hold")) == 1
    assert call("ZCARD", keys.pools) == 0
    assert call("ZCARD", keys.condemned) == 0


@pytest.mark.parametrize("code", [0, 1])
def test_a_job_that_ends_its_process_is_dead_after_the_third_time_and_takes_nobody_with_it(
    worker, enqueue, total, call, keys, code
):
    worker.started()
    for n in range(3):
        enqueue("hold_once", n=n)
    worker.wait_for("begin", 3)
    enqueue("poison", code=code)
    (member,) = wait_until(lambda: call("ZRANGE", keys.dead, 0, -1))
    dead = json.loads(member)
    assert dead["name"] == "poison"
    assert dead["deaths"] == 3
    assert "died 3 times" in dead["err"]
    assert len(worker.said("poison")) == 3
    wait_until(lambda: total("done", "hold_once") == 3)
    # Held by the same processes, at most twice: after that the poison ran alone.
    assert {words[3] for words in worker.said("end")} <= {"1", "2"}
    assert call("ZCARD", keys.dead) == 1


def test_a_call_that_holds_the_gil_longer_than_the_lease_keeps_it(worker, enqueue, total):
    worker.started(processes=2)
    enqueue("hold_gil", microseconds=7_000_000)
    worker.wait_for("end")
    wait_until(lambda: total("done", "hold_gil") == 1)
    assert len(worker.said("begin")) == 1
    assert total("reaped", "hold_gil") == 0


@pytest.mark.parametrize("name", ["overrun_with_gil", "overrun_without_gil"])
def test_a_job_past_its_timeout_and_grace_fails_and_its_process_is_killed_at_no_cost_to_its_neighbours(
    worker, enqueue, total, call, keys, name
):
    (child,) = worker.started()
    enqueue("hold", n=1)
    worker.wait_for("begin")
    enqueue(name)
    _, (_, _, second, deaths) = worker.wait_for("begin", 2)
    assert second != str(child)
    assert deaths == "0"
    (member,) = wait_until(lambda: call("ZRANGE", keys.retry, 0, -1))
    culprit = json.loads(member)
    assert culprit["name"] == name
    assert culprit["fails"] == 1
    assert "deaths" not in culprit
    assert "time" in culprit["err"]
    worker.open_gate()
    wait_until(lambda: total("done", "hold") == 1)
    assert total("failed", name) == 1
    assert len(worker.said("overrun")) == 1


def test_term_lets_jobs_end_within_the_timeout(worker, enqueue, total, call, keys):
    worker.started(processes=2)
    enqueue("hold", n=1)
    worker.wait_for("begin")
    worker.signal(signal.SIGTERM)
    worker.wait_for_log("stopping within 25 s")
    worker.open_gate()
    assert worker.wait() == 0
    assert total("done", "hold") == 1
    assert call("ZCARD", keys.pools) == 0


def test_term_gives_back_what_does_not_end_within_the_timeout(worker, enqueue, total, call, keys):
    worker.started("--timeout", "0.5", processes=2, **worker.patiently())
    enqueue("hold", n=1)
    worker.wait_for("begin")
    earlier = total("given_back", "hold")
    started = time.monotonic()
    with sooner_than(20):
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
    assert time.monotonic() - started > 0.4
    assert total("given_back", "hold") == earlier + 1
    assert call("LLEN", keys.queue("hold")) == 1


def test_a_second_term_gives_back_now(worker, enqueue, total, call, keys):
    worker.started(**worker.patiently())
    enqueue("hold", n=1)
    worker.wait_for("begin")
    earlier = total("given_back", "hold")
    worker.signal(signal.SIGTERM)
    worker.wait_for_log("stopping within 25 s")
    with sooner_than(20):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert total("given_back", "hold") == earlier + 1
    assert call("LLEN", keys.queue("hold")) == 1


def test_a_term_to_all_processes_at_once_is_one_stop_and_no_haste(worker, enqueue, total):
    """As service managers do it, some of them more than once."""
    pids = worker.started(processes=2)
    enqueue("hold", n=1)
    worker.wait_for("begin")
    running = int(worker.said("begin")[0][2])
    for pid in (worker.process.pid, *pids):
        # The parent asks the idle child to stop, which may have ended before its own signal comes.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def stopping() -> set[int]:
        return {record["pid"] for record in worker.records() if "stopping within 25 s" in record["message"]}

    wait_until(lambda: {worker.process.pid, running} <= stopping())
    os.kill(running, signal.SIGTERM)
    worker.open_gate()
    assert worker.wait() == 0
    assert total("done", "hold") == 1


def test_a_child_that_cannot_end_is_killed_in_time_and_counts_no_death(worker, enqueue, call, keys):
    """The handler is in a C call that no exception ends, and the interpreter waits for a thread of the user's."""
    worker.write(JOBS + "\nthreading.Thread(target=lambda: ctypes.CDLL(None).usleep(60_000_000)).start()\n")
    (child,) = worker.started("--timeout", "0.5", **worker.patiently(PATIENT_PARENT))
    enqueue("deaf", n=1)
    worker.wait_for("begin")
    with sooner_than(20):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    wait_until(lambda: is_gone(child))
    (payload,) = call("LRANGE", keys.queue("deaf"), 0, -1)
    assert "deaths" not in json.loads(payload)


def test_hup_replaces_the_children_one_by_one_and_loses_nothing(worker, enqueue, total):
    before = set(worker.started(processes=2))
    sent = 0
    worker.signal(signal.SIGHUP)

    def replaced():
        nonlocal sent
        enqueue("quick", n=sent)
        sent += 1
        now = set(worker.children())
        return len(now) == 2 and not now & before

    wait_until(replaced)
    wait_until(lambda: total("done", "quick") == sent)
    assert sorted(int(n) for _, n, _ in worker.said("quick")) == list(range(sent))
    pools = [one["message"].split() for one in worker.records() if one["message"].startswith("pool=")]
    steps = [word.rstrip(":") for _, word, *_ in pools if word in ("started:", "stopped")]
    assert steps == ["started", "started", *["started", "stopped"] * 2]


def test_hup_runs_the_code_as_it_is_then(worker, enqueue):
    worker.started()
    worker.write(JOBS.replace('say("quick"', 'say("quicker"'))
    worker.signal(signal.SIGHUP)
    worker.wait_for_log("started:", 2)
    worker.wait_for_log(" stopped")
    enqueue("quick", n=1)
    worker.wait_for("quicker")
    assert worker.said("quick") == []


def test_hup_with_code_that_cannot_be_imported_leaves_the_old_processes_running(worker, enqueue):
    pids = worker.started(processes=2)
    worker.write("def broken(:\n")
    worker.signal(signal.SIGHUP)
    worker.wait_for_log("a new process cannot start")
    enqueue("quick", n=1)
    worker.wait_for("quick")
    assert set(worker.children()) == set(pids)
    assert worker.log.count("cannot import jobs") == 1


def test_usr1_stops_fetching_and_a_hup_begins_again(worker, enqueue, call, keys):
    worker.started()
    worker.signal(signal.SIGUSR1)
    wait_until(lambda: any(json.loads(status)["quiet"] for status in _statuses(call, keys)))
    enqueue("quick", n=1)
    worker.signal(signal.SIGHUP)
    worker.wait_for_log("started:", 2)
    worker.wait_for("quick")
    assert worker.log.index("started:", worker.log.index("HUP")) > 0


def test_a_process_is_recycled_after_so_many_jobs(worker, enqueue, total):
    (first,) = worker.started("--max-jobs", "10")
    for n in range(12):
        enqueue("quick", n=n)
    wait_until(lambda: is_gone(first))
    enqueue("quick", n=12)
    wait_until(lambda: total("done", "quick") == 13)
    assert sorted(int(n) for _, n, _ in worker.said("quick")) == list(range(13))
    assert "jobs: recycling it" in worker.log
    assert worker.children() != [first]


def test_a_process_is_recycled_when_it_uses_too_much_memory(worker, enqueue):
    (first,) = worker.started("--max-memory", "200")
    enqueue("quick", n=1)
    worker.wait_for("quick")
    enqueue("grow", megabytes=250)
    wait_until(lambda: is_gone(first))
    wait_until(lambda: len(worker.children()) == 1 and worker.children() != [first])
    assert "MB: recycling it" in worker.log


def test_a_child_that_keeps_crashing_is_started_again_with_growing_pauses(worker):
    worker.write("import os\nos._exit(3)\n")
    worker.start()
    worker.wait_for_log("starting another in 0.8 s")
    for pause in ("0.1", "0.2", "0.4"):
        assert f"exited with code 3; starting another in {pause} s" in worker.log
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_child_that_worked_for_a_while_before_it_crashed_is_started_again_at_once(worker, enqueue, total):
    (child,) = worker.started()
    os.kill(child, signal.SIGKILL)
    worker.wait_for_log("started:", 2)
    (child,) = worker.children()
    # More than ten times as long as its pause, also if the parent is slow to notice that it has started.
    worked = time.monotonic()
    wait_until(lambda: time.monotonic() - worked > 3, step=0.05)
    os.kill(child, signal.SIGKILL)
    worker.wait_for_log("started:", 3)
    enqueue("quick", n=1)
    wait_until(lambda: total("done", "quick") == 1)
    assert worker.log.count("starting another in 0.1 s") == worker.log.count("starting another in") == 2


@pytest.fixture
def own(tmp_path_factory):
    """A server that a test may take away."""
    with running(tmp_path_factory.mktemp("own")) as server:
        yield server


def test_an_outage_is_one_line_when_it_begins_and_one_when_it_ends(tmp_path, own, namespace):
    worker = WorkerCommand(tmp_path, own.url, namespace)
    try:
        pids = worker.started(processes=2)
        own.kill()
        worker.wait_for_log("Redis is unreachable")
        os.kill(pids[0], signal.SIGKILL)
        worker.wait_for_log("was killed by SIGKILL")
        wait_until(lambda: len(worker.children()) == 2)
        own.start()
        worker.wait_for_log("Redis is reachable again after")
        worker.wait_for_log("started:", 3)
        Enqueuer(namespace, redis=own.url).enqueue("quick", n=1)
        worker.wait_for("quick")
        assert worker.log.count("Redis is unreachable") == 1
        assert ".. " not in worker.log
        assert worker.log.count("Redis is reachable again") == 1
        assert pids[1] in worker.children()
    finally:
        worker.close()


def test_a_stop_while_redis_is_away_keeps_its_deadline(tmp_path, own, namespace):
    worker = WorkerCommand(tmp_path, own.url, namespace)
    try:
        worker.started("--timeout", "0.5", processes=2)
        own.kill()
        worker.wait_for_log("Redis is unreachable")
        with sooner_than(20):
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
    finally:
        worker.close()


def _statuses(call, keys) -> list[bytes]:
    found = [call("GET", keys.pool(pool_id.decode())) for pool_id in call("ZRANGE", keys.pools, 0, -1)]
    return [status for status in found if status is not None]


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="there are no real-time signals")
def test_a_child_that_a_signal_without_a_name_killed_is_replaced(worker, enqueue):
    (child,) = worker.started()
    os.kill(child, signal.SIGRTMIN + 1)
    worker.wait_for_log("started:", 2)
    enqueue("quick", n=1)
    worker.wait_for("quick")
    assert f"process {child} was killed by signal {signal.SIGRTMIN + 1}" in worker.log
