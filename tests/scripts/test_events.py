"""Events: each is written by the script that makes it true, once, and rare kinds are not displaced by frequent ones."""

from __future__ import annotations

import pytest

from dayjob.handlers.describe import Described
from dayjob.outcome import Died, Reaped
from dayjob.store.link import walk
from dayjob.store.ops import events, job_types, maintain, membership, operate, produce
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.events import RescuedJob
from pools import set_limit

ABOUT = b'{"host":"web-3","pid":4711,"tag":"v42","dayjob":"1","python":"3"}'


@pytest.fixture
def logged(keys, link):
    """The events of a kind, oldest first."""
    return lambda kind: [event for _, event in reversed(walk(link, events.read(keys, [kind]))[0])]


@pytest.fixture
def ticks(keys, link):
    """The runs of ticks of a schedule, oldest first."""

    def found(schedule="sched"):
        (lines,) = walk(link, events.tick_lines(keys, [schedule]))
        runs = [run for raw in lines if (run := events.ticks_of(schedule, raw)) is not None]
        return [(run.what, run.count, run.first, run.last) for run in reversed(runs)]

    return found


@pytest.fixture
def join(keys, link):
    return lambda pool_id: link.run(membership.join(keys, pool_id, ["a"], lease=15.0, term=60.0, about=ABOUT))


def condemn(keys, link, *ids, judge=False):
    return link.run(maintain.condemn(keys, lease=15.0, proven=ids, judge=judge))


def test_a_start_is_logged_with_who_started_and_a_resend_is_not(join, logged, now, keys, link):
    before = now()
    assert join("p1").registered
    assert not join("p1").registered
    (event,) = logged("started")
    assert event.pool == "p1"
    assert (event.about.host, event.about.pid, event.about.tag) == ("web-3", 4711, "v42")
    ((at, _),) = walk(link, events.read(keys, ["started"]))[0]
    assert before - 0.001 <= at <= now()


def test_a_stop_is_logged_once_with_what_was_still_held(join, logged, put, pool, keys, link):
    put("a", "1", "2")
    pool.fetch("a", room=2)
    link.run(membership.leave(keys, "p1"))
    link.run(membership.leave(keys, "p1"))
    assert [(event.pool, event.held) for event in logged("stopped")] == [("p1", 2)]
    assert not logged("died")


def test_a_death_is_logged_with_its_reason_and_who_died(join, logged, keys, link, call):
    for pool_id in ("p1", "p2"):
        join(pool_id)
    condemn(keys, link, judge=True)
    link.run(membership.beat(keys, "p1", lease=-1.0))
    condemn(keys, link, "p2", judge=True)
    condemn(keys, link, "p1", "p2", judge=True)
    assert {(event.pool, event.why, event.about.host) for event in logged("died")} == {
        ("p1", "lease", "web-3"), ("p2", "exit", "web-3"),
    }  # fmt: skip
    assert len(logged("died")) == 2
    assert call("EXISTS", keys.members) == 0


def test_a_pool_that_left_did_not_die(join, logged, keys, link):
    join("p1")
    link.run(membership.leave(keys, "p1"))
    condemn(keys, link, "p1")
    assert not logged("died")


def test_what_became_of_each_job_of_a_dead_pool_is_logged_once(pool, put, logged, keys, link):
    put("a", "1", "2")
    pool.fetch("a", room=2)
    link.run(membership.set_cause(keys, "p1", "", 'it used "too much"\nmemory'))
    condemn(keys, link, "p1")
    moves = [
        Entry("a", "2:a", Reaped(), b"2", 'id "2"'), Entry("a", "1:a", Died(counts_failure=False), b"1", "id1"),
    ]  # fmt: skip
    link.run(maintain.sweep(keys, "p1", moves))
    link.run(maintain.sweep(keys, "p1", moves))
    (event,) = logged("rescued")
    assert event.pool == "p1"
    assert event.cause == 'it used "too much"\nmemory'
    assert event.jobs == (RescuedJob('id "2"', "a", "reaped"), RescuedJob("id1", "a", "died"))


def test_an_attempt_that_was_gone_already_is_not_in_the_event(pool, put, logged, keys, link):
    put("a", "1")
    pool.fetch("a")
    condemn(keys, link, "p1")
    link.run(maintain.sweep(keys, "p1", [Entry("a", "9:a", Reaped(), b"9", "id9")]))
    assert not logged("rescued")


@pytest.mark.parametrize("taken_by", ["join", "beat", "lead"])
def test_a_new_leader_is_logged_and_a_renewal_is_not(taken_by, join, logged, keys, link, call):
    join("p1")
    if taken_by != "join":
        join("p2")
    call("DEL", keys.leader)
    for _ in range(2):
        if taken_by == "join":
            join("p2")
        elif taken_by == "beat":
            link.run(membership.beat(keys, "p2", lease=15.0, term=60.0))
        else:
            link.run(membership.lead(keys, "p2", term=60.0))
    assert [(event.pool, event.before) for event in logged("leader")] == [("p1", ""), ("p2", "p1")]


def test_a_leader_that_takes_its_own_leadership_again_is_no_change(join, logged, keys, link, call):
    join("p1")
    call("DEL", keys.leader)
    assert link.run(membership.lead(keys, "p1", term=60.0)).leads
    assert len(logged("leader")) == 1


def test_a_change_of_a_limit_is_logged_and_the_same_limit_is_not(logged, keys, link):
    for limit in (5, 5, 2, None, None):
        walk(link, operate.set_concurrency_limit(keys, "a", limit, actor="ada"))
    set_limit(keys, link, "b", 1)
    assert [(one.name, one.before, one.after, one.actor) for one in logged("limit")] == [
        ("a", "", "5", "ada"), ("a", "5", "2", "ada"), ("a", "2", "", "ada"), ("b", "", "1", ""),
    ]  # fmt: skip


def test_a_pause_and_a_resume_are_logged_once_with_who(logged, keys, link, call):
    for _ in range(2):
        link.run(operate.pause(keys, "a", note="1 ada", actor="ada"))
    assert call("GET", keys.paused("a")) == b"1 ada"
    for _ in range(2):
        walk(link, operate.resume(keys, "a", actor='bob "\\"'))
    assert [(one.name, one.after, one.actor) for one in logged("pause")] == [
        ("a", "paused", "ada"), ("a", "resumed", 'bob "\\"'),
    ]  # fmt: skip


def test_a_resume_rings_though_the_server_has_forgotten_the_script(keys, link, call, put):
    put("a", "1")
    link.run(operate.pause(keys, "a"))
    call("DEL", keys.bell("a"))
    call("SCRIPT", "FLUSH")
    link.run(maintain.ring(keys, ["a"]))
    assert walk(link, operate.resume(keys, "a"))
    assert call("ZCARD", keys.bell("a")) == 1


def test_a_paused_schedule_is_logged_once_with_who(logged, keys, link, call):
    call("HSET", keys.periodic, "sched", 100)
    for _ in range(2):
        link.run(operate.pause_schedule(keys, "sched", actor="ada"))
    link.run(operate.resume_schedule(keys, "sched", actor="bob"))
    link.run(operate.pause_schedule(keys, "other", actor="ada"))
    assert [(one.schedule, one.after, one.actor) for one in logged("pause")] == [
        ("sched", "paused", "ada"), ("sched", "resumed", "bob"),
    ]  # fmt: skip


def announce(keys, link, tag, *described, pool_id="p1"):
    link.run(job_types.announce(keys, described, pool_id=pool_id, tag=tag))


def test_a_deploy_is_logged_with_what_it_changed_and_a_restart_is_not(logged, keys, link):
    announce(keys, link, "v1", Described("a"), Described("b"))
    announce(keys, link, "v1", Described("a"), Described("b"), pool_id="p2")
    announce(keys, link, "v2", Described("a"), Described("b", doc="new"), Described("c"), pool_id="p3")
    announce(keys, link, "v2", Described("a"), Described("b", doc="new"), Described("c"), pool_id="p4")
    announce(keys, link, "v3", Described("a"), pool_id="p5")
    found = [(one.pool, one.before, one.after, one.added, one.changed) for one in logged("deploy")]
    assert found == [
        ("p1", "v1", "v1", ("a", "b"), ()), ("p3", "v1", "v2", ("c",), ("b",)), ("p5", "v2", "v3", (), ()),
    ]  # fmt: skip


def test_programs_with_other_job_types_do_not_count_as_each_others_versions(logged, keys, link):
    announce(keys, link, "v1", Described("a"))
    announce(keys, link, "2026-11", Described("b"))
    announce(keys, link, "v1", Described("a"))
    assert [one.after for one in logged("deploy")] == ["v1", "2026-11"]


def test_what_is_restored_is_no_deploy(logged, keys, link, call):
    announce(keys, link, "v1", Described("a"))
    call("DEL", keys.job_types)
    link.run(job_types.announce(keys, [Described("a")]))
    assert len(logged("deploy")) == 1


def tick(keys, link, seen, newest, *moments, missed=0):
    jobs = [(moment, b"x") for moment in moments]
    return link.run(produce.tick(keys, "sched", "a", seen=seen, newest=newest, missed=missed, jobs=jobs))


def test_ticks_in_a_row_are_one_entry_for_an_hour(ticks, keys, link, call):
    call("HSET", keys.periodic, "sched", 1000)
    for moment in range(1001, 1011):
        tick(keys, link, moment - 1, moment, moment)
        tick(keys, link, moment - 1, moment, moment)
    assert ticks() == [("fired", 10, 1001, 1010)]
    tick(keys, link, 1010, 4600, 4600)
    assert ticks() == [("fired", 11, 1001, 4600)]
    tick(keys, link, 4600, 4601, 4601)
    assert ticks() == [("fired", 11, 1001, 4600), ("fired", 1, 4601, 4601)]


def test_missed_and_paused_ticks_end_a_row(ticks, keys, link, call):
    call("HSET", keys.periodic, "sched", 1000)
    tick(keys, link, 1000, 1001, 1001)
    tick(keys, link, 1001, 1010, 1010, missed=8)
    call("HSET", keys.periodic, "sched|off", "1")
    tick(keys, link, 1010, 1011, 1011)
    tick(keys, link, 1011, 1012, 1012)
    assert ticks() == [
        ("fired", 2, 1001, 1010), ("missed", 8, 1001, 1010), ("paused", 2, 1010, 1012),
    ]  # fmt: skip


def test_the_ticks_of_a_schedule_are_bounded(ticks, keys, link, call):
    call("HSET", keys.periodic, "sched", 1000)
    for hour in range(1, 120):
        tick(keys, link, 1000 + (hour - 1) * 3600, 1000 + hour * 3600, 1000 + hour * 3600)
    assert len(ticks()) == events.MAX_TICKS
    assert 0 < call("TTL", keys.ticks("sched")) <= 90 * 86_400


def test_each_kind_keeps_so_many_so_that_pauses_do_not_displace_deaths(join, logged, keys, link, call):
    join("p1")
    condemn(keys, link, "p1")
    for _ in range(events.MAX_EVENTS):
        link.run(operate.pause(keys, "a"))
        walk(link, operate.resume(keys, "a"))
    assert len(logged("pause")) == events.MAX_EVENTS
    assert len(logged("died")) == 1
    assert 0 < call("TTL", keys.events("pause")) <= 90 * 86_400


def test_a_key_of_a_wrong_type_is_replaced(join, logged, ticks, keys, link, call):
    for key in (keys.events("started"), keys.events("leader"), keys.ticks("sched")):
        call("SET", key, "wrong")
    assert join("p1").leads
    call("HSET", keys.periodic, "sched", 1000)
    tick(keys, link, 1000, 1001, 1001)
    assert len(logged("started")) == len(logged("leader")) == len(ticks()) == 1


def test_an_entry_that_cannot_be_read_is_left_out(join, logged, keys, call):
    join("p1")
    call("LPUSH", keys.events("started"), "junk", '1 {"pool":7}', "x {}")
    assert [event.pool for event in logged("started")] == ["p1"]
