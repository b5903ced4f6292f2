"""Jobs that wait for their time: scheduled, periodic, snoozed. Redis TIME is the clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from dayjob import Job, Snooze
from dayjob.cron import parse
from dayjob.store.op import plain
from dayjob.store.ops import produce
from server import wait_until

#: Leases stay long: a pool that is paused for a moment must not be taken for a dead one.
QUICK = {"beat": 0.3}


def redis_time(pool):
    """Redis time, for use inside handlers."""
    seconds, micros = pool.enqueuer.run(plain("TIME"))
    return int(seconds) + int(micros) / 1e6


def test_scheduled_jobs_all_run_and_never_early(new_pool, look, keys):
    pool = new_pool(concurrency=4)
    started = {}

    @pool.job
    def later(job: Job):
        started[job.id] = redis_time(pool)

    with pool:
        due = {}
        for i in range(20):
            job = later.enqueue_in(0.05 * i)
            due[job.id] = job.scheduled_at
            job = later.enqueue_at(datetime.now(UTC) + timedelta(milliseconds=37 * i))
            due[job.id] = job.scheduled_at
        wait_until(lambda: len(started) == 40)
        assert pool.drain(60)
    assert started.keys() == due.keys()
    assert [job_id for job_id in due if started[job_id] < due[job_id]] == []
    assert look.members(keys.scheduled) == []
    assert look.totals() == {"done:later": 40}


def test_a_time_that_has_passed_means_now(new_pool):
    pool = new_pool()
    ran = []
    pool.register("late", lambda: ran.append(1))
    with pool:
        pool.enqueuer.enqueue_at("late", datetime.now(UTC) - timedelta(days=400))
        wait_until(lambda: ran)


def test_a_job_that_is_due_sooner_wakes_the_leader_from_waiting_for_a_later_one(new_pool, look, keys):
    pool = new_pool()
    ran = []

    @pool.job
    def note(text: str):
        ran.append(text)

    with pool:
        note.enqueue_in(3600, text="in an hour")
        note.enqueue_in(0.05, text="soon")
        wait_until(lambda: ran)
        note.enqueue_in(0.05, text="soon again")
        wait_until(lambda: len(ran) == 2)
    assert ran == ["soon", "soon again"]
    assert [job["args"]["text"] for job in look.members(keys.scheduled)] == ["in an hour"]


def test_a_requeued_job_keeps_its_bytes_and_waits_from_the_second_it_was_due(new_pool, keys, call, look):
    pool = new_pool()
    seen = []

    @pool.job
    def later(job: Job):
        seen.append((bytes(job.raw_args), job.enqueued_at))

    args = b'{"n":12345678901234567890123,"l":[],"f":1.0,"u":"\\u00e9"}'
    due = look.now() + 0.2
    call("ZADD", keys.scheduled, f"{due:.3f}", b'{"name":"later","id":"l","t":1,"args":' + args + b"}")
    with pool:
        wait_until(lambda: seen)
    assert seen[0][0] == args
    assert seen[0][1] == pytest.approx(due, abs=0.002)


def test_a_snoozed_job_returns_after_its_time_and_has_not_failed(new_pool, look):
    pool = new_pool()
    runs = []

    @pool.job
    def sleepy(job: Job):
        runs.append((job.snoozes, job.fails, job.attempt, redis_time(pool)))
        if len(runs) < 3:
            raise Snooze("not yet", after=0.15)

    with pool:
        sleepy.enqueue()
        wait_until(lambda: look.total("done:sleepy"))
    assert [run[:3] for run in runs] == [(0, 0, 1), (1, 0, 2), (2, 0, 3)]
    # Due times are in whole milliseconds.
    assert runs[1][3] - runs[0][3] >= 0.149
    assert runs[2][3] - runs[1][3] >= 0.149
    assert look.totals() == {"snoozed:sleepy": 2, "done:sleepy": 1}


# Periodic jobs.


def test_three_pools_enqueue_exactly_one_job_per_tick(new_pool, look):
    pools = [new_pool(**QUICK) for _ in range(3)]
    lock, ticks = threading.Lock(), []

    def tick(job: Job, label: str):
        with lock:
            ticks.append((job.enqueued_at, label))

    for pool in pools:
        pool.periodic("@every 1s", pool.register("tick", tick), {"label": "x"}, missed="all")
    with pools[0], pools[1], pools[2]:
        wait_until(lambda: len(ticks) >= 4)
    moments = sorted(moment for moment, _ in ticks)
    assert moments == [moments[0] + i for i in range(len(moments))]
    assert {label for _, label in ticks} == {"x"}
    assert look.total("ticked:tick") == len(ticks) + len(look.queue("tick"))
    assert look.total("missed:tick") == 0


def test_ticks_go_on_once_each_when_the_pool_that_leads_stops(new_pool, look, call, keys):
    pools = [new_pool(**QUICK) for _ in range(2)]
    lock, ticks = threading.Lock(), []

    def tick(job: Job):
        with lock:
            ticks.append(job.enqueued_at)

    for pool in pools:
        pool.periodic("@every 1s", pool.register("tick", tick), missed="all")
    pools[0].start()
    first = call("GET", keys.leader)
    pools[1].start()
    wait_until(lambda: len(ticks) >= 2)
    pools[0].stop()
    wait_until(lambda: len(ticks) >= 5)
    wait_until(lambda: call("GET", keys.leader) not in (first, None))
    pools[1].stop()
    moments = sorted(ticks)
    assert moments == [moments[0] + i for i in range(len(moments))]


@pytest.mark.parametrize(("policy", "enqueued", "missed"), [("skip", 0, 5), ("one", 1, 4), ("all", 5, 0)])
def test_ticks_that_passed_while_no_pool_ran_follow_their_policy_and_are_counted(
    new_pool, look, keys, call, policy, enqueued, missed
):
    pool = new_pool()
    ran = []

    @pool.job
    def tick(job: Job):
        ran.append(job.enqueued_at)

    now = look.now()
    # Once a day, twelve hours from now: no tick is near, whenever this runs.
    hour = (datetime.fromtimestamp(now, UTC).hour + 12) % 24
    spec = f"0 {hour} * * *"
    record = pool.periodic(spec, tick, timezone="UTC", missed=policy, name="daily")
    call("HSET", keys.periodic, record.name, int(now) - 5 * 86400)
    with pool:
        wait_until(lambda: look.total("ticked:tick") + look.total("missed:tick") == 5)
        assert pool.drain(60)
    schedule, moment, due = parse(spec, "UTC"), int(now) - 5 * 86400, []
    for _ in range(5):
        moment = schedule.next_after(moment)
        due.append(moment)
    assert look.total("ticked:tick") == enqueued
    assert look.total("missed:tick") == missed
    assert sorted(ran) == due[5 - enqueued :]
    assert int(call("HGET", keys.periodic, "daily")) == due[-1]


def test_at_most_a_hundred_missed_ticks_are_enqueued_and_the_others_are_counted(new_pool, look, keys, call):
    pool = new_pool(concurrency=1)
    ran = []

    @pool.job
    def tick(job: Job):
        ran.append(job.enqueued_at)

    pool.periodic("0 * * * *", tick, timezone="UTC", missed="all", name="hourly")
    last = int(look.now()) // 3600 * 3600 - 300 * 3600
    call("HSET", keys.periodic, "hourly", last)
    with pool:
        wait_until(lambda: look.total("ticked:tick"))
        assert pool.drain(60)
    newest = int(call("HGET", keys.periodic, "hourly"))
    assert sorted(ran)[-100:] == [newest - 3600 * i for i in reversed(range(100))]
    assert len(ran) + look.total("missed:tick") == (newest - last) // 3600


def test_of_two_schedulers_that_saw_the_same_last_tick_one_enqueues(look, keys, link):
    def tick(seen, newest, jobs):
        payload = b'{"name":"tick","id":"x","t":1,"args":{}}'
        return link.run(
            produce.tick(keys, "s", "tick", seen=seen, newest=newest, jobs=[(job, payload) for job in jobs])
        )

    seen = tick(None, None, [])
    assert seen.enqueued == 0
    assert abs(seen.last - look.now()) < 60
    early = tick(seen.last, seen.last + 60, [seen.last + 60])
    assert (early.enqueued, early.last) == (0, seen.last)
    link.run(plain("HSET", keys.periodic, "s", seen.last - 20))
    newest = seen.last - 10
    assert tick(seen.last - 20, newest, [newest]).enqueued == 1
    assert tick(seen.last - 20, newest, [newest]).enqueued == 0
    assert tick(newest, newest, [newest]).enqueued == 0
    assert len(look.queue("tick")) == 1


def test_the_first_sight_of_a_schedule_enqueues_nothing_that_was_before_it(new_pool, look, keys, call):
    pool = new_pool()
    pool.periodic("0 0 1 1 *", pool.register("yearly", lambda: None), missed="all")
    with pool:
        wait_until(lambda: call("HLEN", keys.periodic))
        assert pool.drain(60)
    assert look.totals() == {}


@pytest.mark.parametrize("value", ["junk", "in 30 days"])
def test_a_schedule_whose_last_tick_makes_no_sense_ticks_again_and_a_log_line_says_so(
    new_pool, call, keys, look, caplog, value
):
    pool = new_pool(concurrency=1)
    ran = threading.Event()
    pool.register("work", ran.set)
    pool.periodic("* * * * * *", "work", name="each second")
    with pool:
        assert ran.wait(60)
        last = "junk" if value == "junk" else int(look.now()) + 30 * 86_400
        call("HSET", keys.periodic, "each second", last)

        def lines() -> int:
            found = [one.getMessage() for one in list(caplog.records) if "each second" in one.getMessage()]
            return len([line for line in found if "It ticks again from now on" in line])

        wait_until(lines)
        ran.clear()
        assert ran.wait(60)
        assert runtime_failure(pool) is None
    assert lines() == 1


def test_a_schedule_with_a_last_tick_in_the_future_ticks_when_a_pool_starts(
    new_pool, call, keys, look, caplog
):
    pool = new_pool(concurrency=1)
    ran = threading.Event()
    pool.register("work", ran.set)
    pool.periodic("* * * * * *", "work", name="each second")
    call("HSET", keys.periodic, "each second", int(look.now()) + 30 * 86_400)
    with pool:
        assert ran.wait(60)


def runtime_failure(pool):
    return pool._runtime.failure
