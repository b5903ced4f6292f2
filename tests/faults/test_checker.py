"""The checker is checked: it finds nothing in a good ledger, and every way to spoil one is found."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import look
from faults.checker import CHECKS, ROLLING_RESTART, check, limits, poison_is_bounded, rate_limits, stops
from faults.ledger import Census, Event, Item, Ledger, NodePlan, Torn, read
from faults.story import Rules, Story
from faults.tales import FIRST, HARNESS, PRODUCER, RULES, SECOND, good, number

replace = msgspec.structs.replace


@pytest.mark.parametrize("seed", range(20))
def test_a_good_ledger_breaks_no_promise(seed):
    report = check(good(seed), RULES)
    assert report.violations == []
    assert report.unexplained == report.lost == 0
    assert report.doubled > 0
    assert report.repeats["fail"] > 0


# Lines that were lost, doubled, moved or re-timed: the numbers of each process show it.


@st.composite
def torn_ledgers(draw):
    events = good(draw(st.integers(0, 50)))
    how = draw(st.sampled_from(["delete", "double", "swap", "earlier"]))
    last = {event.pid: event.seq for event in events}
    # The last line of a process that was killed may be missing: nobody can tell.
    candidates = [i for i, event in enumerate(events) if event.seq < last[event.pid]]
    at = draw(st.sampled_from(candidates))
    event = events[at]
    follower = next(
        i for i, other in enumerate(events) if other.pid == event.pid and other.seq == event.seq + 1
    )
    if how == "delete":
        del events[at]
    elif how == "double":
        events.insert(at, copy.copy(event))
    elif how == "swap":
        events[at], events[follower] = (
            replace(events[follower], at=event.at),
            replace(event, at=events[follower].at),
        )
    else:
        events[follower] = replace(events[follower], at=event.at - 0.5)
    return events


@settings(max_examples=300, deadline=None)
@given(torn_ledgers())
def test_a_ledger_with_a_line_missing_doubled_swapped_or_moved_in_time_is_not_whole(events):
    assert any(problem.startswith("L1:") for problem in check(events, RULES).violations)


# Ledgers as a system would write them that breaks a promise: whole, and wrong.


def forgeries(events: list[Event]) -> list[tuple[str, Callable[[], list[Event]]]]:
    """Every forgery that fits this ledger: its name, and what makes it."""
    found: list[tuple[str, Callable[[], list[Event]]]] = []
    gone = {event.target for event in events if event.kind == "gone"}
    down = {event.pid for event in events if event.kind == "down"}
    ended = {(event.pool, event.token) for event in events if event.kind == "end"}
    reaped = {event.pool for event in events if event.kind == "reaped"}
    started = {event.serial for event in events if event.kind == "start"}
    for i, event in enumerate(events):
        alive = event.pid not in gone | down and event.pool not in reaped
        name = f"{event.kind} {event.serial or event.target}"
        if event.kind in (
            "asked",
            "stored",
            "duplicate",
            "refused",
            "unknown",
            "stop",
            "stopped",
            "injected",
            "reaped",
            "gone",
            "group",
            "grouped",
            "revived",
        ):
            found.append((f"delete {name}", _without(events, i)))
        if event.kind == "pending" and event.serial in started:
            found.append((f"delete {name}", _without(events, i)))
        if event.kind in ("start", "end") and alive and (event.pool, event.token) in ended:
            found.append((f"delete {name}", _without(events, i)))
        if event.kind in ("asked", "stored", "duplicate", "refused", "unknown", "start", "end", "injected"):
            found.append((f"double {name}", _with(events, i, i + 1, at=event.at + 1e-6)))
        if event.kind == "start":
            found += [
                (f"{name}: one more fail", _changed(events, i, fails=event.fails + 1)),
                (f"{name}: one more snooze", _changed(events, i, snoozes=event.snoozes + 1)),
                (f"{name}: another job", _changed(events, i, job="other")),
                (f"{name}: another serial", _changed(events, i, serial="9/9")),
                (f"{name}: before the beginning", _changed(events, i, at=91.0)),
            ]
            if not event.name == "tick":
                found += [
                    (f"{name}: other arguments", _changed(events, i, digest="other")),
                    (f"{name}: another name", _changed(events, i, name="other")),
                ]
            if event.after:
                found.append((f"{name}: after somebody else", _changed(events, i, after="pool12/999:note")))
        if event.kind == "end":
            found.append((f"{name}: before its start", _changed(events, i, at=92.0)))
            found.append((f"{name}: of another attempt", _changed(events, i, token="999:note")))
            if event.how != "abandoned":
                wrong = "ok" if event.how != "ok" else "fail"
                found.append((f"{name}: ended {wrong}", _changed(events, i, how=wrong)))
        if event.kind == "stopped":
            found.append((f"{name}: five seconds late", _changed(events, i, at=event.at + 5)))
        if event.kind == "stored":
            found.append((f"{name}: as another job", _changed(events, i, job="other")))
            found.append((f"{name}: due next year", _changed(events, i, due=1e9)))
        if event.kind == "duplicate":
            found.append((f"{name}: stored after all", _changed(events, i, kind="stored", job="second")))
        if event.kind in ("stored", "unknown"):
            found.append((f"{name}: refused", _changed(events, i, kind="refused")))
    found += _census_forgeries(events)
    return found


def _census_forgeries(events: list[Event]) -> list[tuple[str, Callable[[], list[Event]]]]:
    last = events[-1].census
    assert last is not None

    def changed(**facts) -> Callable[[], list[Event]]:
        return lambda: [*events[:-1], replace(events[-1], census=replace(last, **facts))]

    found = [
        ("census: a job twice", changed(places={**last.places, "queue": last.places["dead"][:1]})),
        ("census: a dead job gone", changed(places={**last.places, "dead": last.places["dead"][1:]})),
        (
            "census: something left in a queue",
            changed(places={**last.places, "queue": [Item("1/1", "job1", "note")]}),
        ),
        ("census: jobs wait", changed(waiting={"note": 3})),
        ("census: held by nobody", changed(held={"nobody": ["1:note"]})),
        ("census: condemned", changed(condemned=["pool99"])),
        ("census: live and condemned", changed(condemned=["pool11"])),
        ("census: above the limit", changed(held={"pool11": ["1:narrow", "2:narrow", "3:narrow"]})),
        ("census: a place of a limit leaked", changed(members={"narrow": ["pool11/1:narrow"]})),
        ("census: a unique key left behind", changed(unique={"key": "nobody"})),
        ("census: a tick not accounted for", changed(periodic={"tick": last.periodic["tick"] + 1})),
        ("census: an unreadable entry lost", changed(broken=last.broken[1:])),
        ("census: an unreadable entry changed", changed(broken=["00", *last.broken[1:]])),
        ("census: not at rest", changed(rest=False)),
        ("census: none", lambda: [event for event in events if event.kind != "census"]),
    ]
    for batch, seen in last.batches.items():
        for field in ("total", "ended", "dead", "failed"):
            for change in (1, -1):
                spoilt = replace(seen, **{field: getattr(seen, field) + change})
                found.append(
                    (f"census: {batch} {field} {change:+}", changed(batches={**last.batches, batch: spoilt}))
                )
        others = {one: about for one, about in last.batches.items() if one != batch}
        found += [
            (
                f"census: {batch} is open",
                changed(batches={**last.batches, batch: replace(seen, closed=False)}),
            ),
            (
                f"census: {batch} called nobody",
                changed(batches={**last.batches, batch: replace(seen, sent=[])}),
            ),
            (f"census: {batch} is gone", changed(batches=others)),
            ("census: a batch too many", changed(batches={**last.batches, "strange": seen})),
        ]
    for flow, letters in last.workflows.items():
        for at, letter in enumerate(letters):
            for other in "wrfcdnksx":
                if other != letter and not (at >= 7 and other not in "rfx"):
                    spoilt = letters[:at] + other + letters[at + 1 :]
                    found.append(
                        (f"census: {flow} {spoilt}", changed(workflows={**last.workflows, flow: spoilt}))
                    )
        found += [
            (f"census: {flow} lacks a node", changed(workflows={**last.workflows, flow: letters[:-1]})),
            (
                f"census: {flow} is gone",
                changed(workflows={one: two for one, two in last.workflows.items() if one != flow}),
            ),
            ("census: a workflow too many", changed(workflows={**last.workflows, "strange": letters})),
        ]
    for label in last.totals:
        if label.partition(":")[0] in ("done", "dead", "discarded", "failed", "ticked", "missed"):
            for change in (1, -1):
                totals = {**last.totals, label: last.totals[label] + change}
                found.append((f"census: {label} {change:+}", changed(totals=totals)))
    return found


def _without(events: list[Event], i: int) -> Callable[[], list[Event]]:
    return lambda: number(events[:i] + events[i + 1 :])


def _with(events: list[Event], i: int, to: int, **facts) -> Callable[[], list[Event]]:
    return lambda: number([*events[:to], replace(events[i], **facts), *events[to:]])


def _changed(events: list[Event], i: int, **facts) -> Callable[[], list[Event]]:
    return lambda: number([*events[:i], replace(events[i], **facts), *events[i + 1 :]])


def caught(events: list[Event]) -> bool:
    return bool(check(events, RULES).violations)


def test_every_forgery_of_one_ledger_is_caught():
    missed = [name for name, forge in forgeries(good(1)) if not caught(forge())]
    assert missed == []


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 6), st.randoms(use_true_random=False))
def test_a_random_forgery_of_a_random_ledger_is_caught(seed, extra, rng):
    name, forge = rng.choice(forgeries(good(seed, extra=extra)))
    assert caught(forge()), name


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_two_jobs_that_swap_events_are_caught(seed, rng):
    events = good(seed)
    kind = rng.choice(["start", "end", "stored"])
    among = [i for i, event in enumerate(events) if event.kind == kind and event.name != "tick"]
    one, other = rng.sample(among, 2)
    if events[one].serial == events[other].serial:
        return
    swapped = list(events)
    swapped[one] = replace(events[one], serial=events[other].serial)
    swapped[other] = replace(events[other], serial=events[one].serial)
    assert caught(swapped)


# Each invariant by itself: it says nothing of a good ledger, and something of one that breaks it.


def job(events: list[Event], plan: str = "ok", kind: str = "start", name: str = "note") -> list[int]:
    """Where the events of that kind are, of all jobs with that plan."""
    serials = {
        event.serial
        for event in events
        if event.kind == "asked" and event.plan == plan and event.name == name
    }
    return [i for i, event in enumerate(events) if event.kind == kind and event.serial in serials]


def _third_at_once(events: list[Event]) -> list[Event]:
    starts = job(events, name="narrow")
    return _changed(events, starts[2], at=events[starts[1]].at + 0.01)()


def _second_while_one_waits(events: list[Event]) -> list[Event]:
    (at,) = [i for i, event in enumerate(events) if event.kind == "duplicate"][:1]
    return _changed(events, at, kind="stored", job="second")()


def _census(events: list[Event], **facts) -> list[Event]:
    last = events[-1].census
    assert last is not None
    return [*events[:-1], replace(events[-1], census=replace(last, **facts))]


def _dead(events: list[Event]) -> list[Item]:
    last = events[-1].census
    assert last is not None
    return last.places["dead"]


def _silent_after_the_outage(events: list[Event]) -> list[Event]:
    """Nothing for seven seconds after the server is back, from the next event on."""
    at, healed = next((i, event) for i, event in enumerate(events) if event.kind == "healed")
    later = [replace(event, at=event.at + 7) for event in events[at + 1 :]]
    return number([*events[:at], healed, *later])


def _first_attempt_stored_too(events: list[Event]) -> list[Event]:
    """A job runs that an attempt enqueued which failed."""
    pending = next(event for event in events if event.kind == "pending" and event.parent)
    start = Event(
        "start",
        events[-1].at - 0.1,
        SECOND,
        0,
        serial=pending.serial,
        name="note",
        job="late",
        digest=pending.digest,
        pool="pool12",
        token="998:note",
    )
    end = replace(start, kind="end", at=events[-1].at - 0.05, how="ok")
    return number([*events, start, end])


BROKEN: dict[str, Callable[[list[Event]], list[Event]]] = {
    "L1": lambda events: events[:10] + events[11:],
    "L2": lambda events: _without(events, job(events, kind="stored")[0])(),
    "I1": lambda events: number(
        [event for event in events if event.kind != "end" or event.serial != events[job(events)[0]].serial]
    ),
    "I2": lambda events: _census(events, totals={**events[-1].census.totals, "done:note": 1}),
    "I3": lambda events: _changed(events, job(events)[0], digest="other")(),
    "I4": lambda events: _changed(events, job(events, kind="stored")[0], job="other")(),
    "I5": lambda events: _without(
        events, next(i for i, event in enumerate(events) if event.kind == "gone")
    )(),
    "I6": lambda events: _changed(events, job(events, "fail 2", "end")[0], how="ok")(),
    "I7": lambda events: _changed(events, job(events, "discard", "end")[0], how="ok")(),
    "I8": lambda events: _census(
        events, places={"dead": [replace(item, fails=0, deaths=0) for item in _dead(events)]}
    ),
    "I9": lambda events: _changed(
        events, job(events, "snooze 1")[1], at=events[job(events, "snooze 1", "end")[0]].at + 0.1
    )(),
    "I10": lambda events: _census(events, periodic={"tick": 1_001_000}),
    "I11": _second_while_one_waits,
    "I12": _third_at_once,
    "I13": lambda events: [
        replace(event, at=event.at + 2) if event.kind == "stopped" else event for event in events
    ],
    "I15": _silent_after_the_outage,
    "I16": lambda events: _census(
        events, places={"dead": [item for item in _dead(events) if item.deaths < 3]}
    ),
    "I17": lambda events: _census(events, broken=[]),
    "I18": lambda events: _census(events, places={"dead": _dead(events) * 2}),
    "I20": lambda events: [replace(event, units=None) for event in events],
    "I21": _first_attempt_stored_too,
    "I22": lambda events: _census(
        events,
        batches={one: replace(seen, ended=seen.ended - 1) for one, seen in events[-1].census.batches.items()},
    ),
    "I23": lambda events: _census(
        events,
        workflows={
            one: letters[:3] + "w" + letters[4:] for one, letters in events[-1].census.workflows.items()
        },
    ),
}


def _stored_by_key(events: list[Event], name: str) -> list[Event]:
    """All jobs of a name with the key of the first."""
    return [
        replace(event, token=event.token.replace("|b", "|a")) if event.name == name else event
        for event in events
    ]


def test_a_limit_by_key_is_checked_for_each_key():
    events = good(3, extra=0)
    assert list(limits(Story(events, RULES))) == []
    assert list(limits(Story(_stored_by_key(events, "tenant_work"), RULES))) != []
    assert list(rate_limits(Story(_stored_by_key(events, "tenant_call"), RULES))) != []


@pytest.mark.parametrize(
    ("held", "members", "fine"),
    [(["1:tenant_work|a"], ["pool11/1:tenant_work|a"], True), (["1:tenant_work|a"], [], False), ([], ["pool11/1:tenant_work|a"], False),
     (["1:tenant_work|a", "2:tenant_work|a"], ["pool11/1:tenant_work|a", "pool11/2:tenant_work|a"], False),
     (["1:tenant_work|a", "2:tenant_work|b"], ["pool11/1:tenant_work|a"], False)],
)  # fmt: skip
def test_what_a_limit_by_key_counts_is_what_pools_hold(held, members, fine):
    census = Census(held={"pool11": held}, key_members={"tenant_work|a": members})
    story = Story([Event("census", 1.0, HARNESS, 1, census=census)], RULES)
    assert (list(limits(story)) == []) is fine


@pytest.mark.parametrize(("stopped", "fine"), [(9.1, True), (11.9, True), (12.1, False)])
def test_a_stop_counts_from_when_a_process_without_a_parent_could_hear_it(stopped, fine):
    told = [
        Event("start", 1.0, 5, 1, serial="1/1", name="deaf", pool="p", token="1:deaf"),
        Event("stop", 2.0, 9, 1, target=5, seconds=2.0),
        Event("end", 9.0, 5, 2, serial="1/1", name="deaf", pool="p", token="1:deaf", how="ok"),
        Event("stopped", stopped, 5, 3, target=5),
    ]
    found = list(stops(Story(told, Rules(deafening=frozenset({"deaf"})))))
    assert (found == []) is fine
    assert list(stops(Story(told, Rules())))


@pytest.mark.parametrize(
    ("healed", "gone", "by", "over"),
    [
        (20.0, True, 13.2, True),
        (20.0, True, 12.8, False),
        (11.0, True, 17.2, False),
        (20.0, False, 13.2, False),
    ],
    ids=["unheard for a lease", "for less", "heard again", "it would know"],
)
def test_a_pool_that_nobody_heard_for_a_lease_and_that_was_then_killed_is_over(healed, gone, by, over):
    told = [
        Event("up", 1.0, 5, 1, how="far"),
        Event("start", 2.0, 5, 2, serial="1/1", name="note", pool="p", token="1:note"),
        Event("fault", 9.0, 9, 1, name="near", how="net: black hole"),
        Event("fault", 10.0, 9, 2, name="far", how="net: black hole"),
        Event("healed", healed, 9, 3, name="far", how="net: black hole"),
        Event("said", 21.0, 5, 3, how="Redis is unreachable"),
    ]
    if gone:
        told.append(Event("gone", 22.0, 9, 4, target=5))
    told.sort(key=lambda event: event.at)
    assert Story(told, Rules(lease=3.0)).pool_over("p", 5, by) is over


@pytest.mark.parametrize(
    ("seconds", "gone", "by", "over"),
    [
        (4.0, True, 13.2, True),
        (4.0, True, 12.8, False),
        (2.0, True, 13.2, False),
        (4.0, False, 13.2, False),
    ],
    ids=["suspended for a lease", "not yet", "for less", "it would know"],
)
def test_a_pool_that_was_suspended_for_a_lease_and_then_killed_is_over(seconds, gone, by, over):
    told = [
        Event("up", 1.0, 5, 1, how="embedded"),
        Event("start", 2.0, 5, 2, serial="1/1", name="note", pool="p", token="1:note"),
        Event("fault", 10.0, 9, 1, name="embedded", how="SIGSTOP", seconds=seconds, target=5),
        Event("end", 14.1, 5, 3, serial="1/1", name="note", pool="p", token="1:note", how="ok"),
    ]
    if gone:
        told.append(Event("gone", 15.0, 9, 2, target=5))
    assert Story(told, Rules(lease=3.0)).pool_over("p", 5, by) is over


@pytest.mark.parametrize(
    ("by", "gone", "over"),
    [(9.1, True, True), (8.9, True, False), (12.5, True, False), (9.1, False, False)],
    ids=["silent for a lease", "for less", "heard again", "it would know"],
)
def test_a_pool_that_a_busy_machine_held_up_for_a_lease_and_that_was_then_killed_is_over(by, gone, over):
    told = [
        Event("up", 1.0, 5, 1, how="embedded"),
        Event("start", 2.0, 5, 2, serial="1/1", name="note", pool="p", token="1:note"),
        *(Event("heard", at, 5, number) for number, at in enumerate((3.0, 6.0, 12.0, 14.0), 3)),
    ]
    if gone:
        told.append(Event("gone", 15.0, 9, 1, target=5))
    assert Story(told, Rules(lease=3.0)).pool_over("p", 5, by) is over


@pytest.mark.parametrize(("by", "over"), [(5.2, True), (4.8, False), (9.2, False)])
def test_a_pool_whose_handler_kept_the_interpreter_for_a_lease_is_over_though_it_never_found_out(by, over):
    told = [
        Event("up", 1.0, 5, 1, how="embedded"),
        Event("start", 2.0, 5, 2, serial="1/1", name="deaf", pool="p", token="1:deaf"),
        Event("end", 9.0, 5, 3, serial="1/1", name="deaf", pool="p", token="1:deaf", how="ok"),
        Event("down", 20.0, 5, 4, how="embedded"),
    ]
    story = Story(told, Rules(lease=3.0, deafening=frozenset({"deaf"})))
    assert story.pool_over("p", 5, by) is over


@pytest.mark.parametrize(("start", "fine"), [(2.5, True), (4.0, False)])
def test_a_unique_job_that_had_started_may_wait_beside_another_one(start, fine):
    """It let its key go when it started, and came back without a count, because its pool was stopped."""
    both = [Item("1/1", "a", "once", unique="key"), Item("1/2", "b", "once", unique="key")]
    told = [
        Event("start", start, 5, 1, serial="1/1", name="once", job="a", pool="p", token="1:once"),
        Event("census", 3.0, 9, 1, census=Census(places={"queue": both})),
    ]
    told.sort(key=lambda event: event.at)
    assert (list(CHECKS["I11"](Story(told, RULES))) == []) is fine


@pytest.mark.parametrize(("letters", "fine"), [("cs", True), ("cc", False), ("cw", False)])
def test_a_dead_node_that_is_retried_may_be_skipped(letters, fine):
    """It waits for the failure of a node that was retried with it, and completed."""
    graph = [NodePlan("1/1"), NodePlan("1/2", watches=[0])]
    told = [
        Event("group", 1.0, 3, 1, job="w1", graph=graph),
        Event("grouped", 1.1, 3, 2, job="w1", how="stored"),
    ]
    for n, (serial, plan, ends) in enumerate((("1/1", "mortal", ("dead", "ok")), ("1/2", "dead", ("dead",)))):
        told.append(Event("pending", 0.5, 3, n, serial=serial, name="node", plan=plan, group="w1"))
        told.append(Event("revived", 4.0, 9, n, serial=serial, fails=1))
        for at, how in zip((2.0 + n / 2, 5.0), ends, strict=False):
            facts = {"serial": serial, "name": "node", "job": serial, "pool": "p", "token": f"{n}{at}:node"}
            told += [Event("start", at, 5, 1, **facts), Event("end", at + 0.1, 5, 2, **facts, how=how)]
    totals = {"done:node": 1, "dead:node": 2, "failed:node": 2}
    told.append(
        Event("census", 9.0, 9, 9, census=Census(totals=totals, workflows={"w1": letters}, rest=True))
    )
    story = Story(sorted(told, key=lambda event: event.at), RULES)
    found = [problem for name in ("I1", "I2", "I5", "I7", "I8", "I23") for problem in CHECKS[name](story)]
    assert (found == []) is fine


@pytest.mark.parametrize(("place", "fine"), [("held", True), ("queue", False)])
def test_a_second_unique_job_may_be_stored_while_the_first_is_held_and_its_answer_is_lost(place, fine):
    """The key of a held job is released before it starts. A network that swallows the answer delays only the start."""
    told = [
        Event("asked", 1.0, 3, 1, serial="1/1", name="once", unique="key"),
        Event("stored", 1.1, 3, 2, serial="1/1", job="a"),
        Event("census", 2.0, 9, 1, census=Census(places={place: [Item("1/1", "a", "once")]})),
        Event("asked", 3.0, 3, 3, serial="1/2", name="once", unique="key"),
        Event("stored", 3.1, 3, 4, serial="1/2", job="b"),
        Event("start", 40.0, 5, 1, serial="1/1", name="once", job="a", pool="p", token="1:once"),
        Event("start", 41.0, 5, 2, serial="1/2", name="once", job="b", pool="p", token="2:once"),
    ]
    assert (list(CHECKS["I11"](Story(told, RULES))) == []) is fine


def _poisoned(*, ending: Event | None = None) -> list[Event]:
    """A poison job that ended four processes, though it died three times by what was counted."""
    events = [Event("asked", 0.5, 9, 1, serial="1/1", name="poison", plan="poison 3")]
    for number_, deaths in enumerate((0, 0, 1, 2), start=1):
        pid, at = 10 + number_, 10.0 * number_
        events += [
            Event("up", at, pid, 1, how="near"),
            Event(
                "start", at + 1, pid, 2, serial="1/1", name="poison", pool=f"p{pid}", token="1:poison", deaths=deaths
            ),
            Event("gone", at + 2, 9, 1 + number_, target=pid),
        ]  # fmt: skip
    if ending is not None:
        events.append(ending)
    dead = Item("1/1", "j1", "poison", deaths=3)
    events.append(Event("census", 99.0, 9, 9, census=Census(places={"dead": [dead]}, rest=True)))
    return sorted(events, key=lambda event: event.at)


@pytest.mark.parametrize(
    ("ending", "fine"),
    [
        (None, False),
        (Event("stop", 20.5, 9, 8, name="near", target=8, seconds=2.0), True),
        (Event("fault", 20.5, 9, 8, name="near", how=ROLLING_RESTART), True),
        (Event("stop", 20.5, 9, 8, name="far", target=8, seconds=2.0), False),
        (Event("stop", 45.0, 9, 8, name="near", target=8, seconds=2.0), False),
        (Event("start", 20.5, 12, 3, serial="1/2", name="overrun", pool="p12", token="2:overrun"), True),
        (Event("start", 20.5, 99, 3, serial="1/2", name="overrun", pool="p99", token="2:overrun"), False),
    ],
    ids=["no reason", "stopped", "replaced", "another stopped", "stopped later", "killed for another job", "elsewhere"],
)  # fmt: skip
def test_a_job_may_end_a_fourth_process_only_if_that_one_was_ending(ending, fine):
    events = _poisoned(ending=ending)
    events.insert(0, Event("asked", 0.4, 9, 0, serial="1/2", name="overrun", plan="overrun 1"))
    assert (list(poison_is_bounded(Story(events, Rules()))) == []) is fine


@pytest.mark.parametrize(("last", "fine"), [(2.5, True), (4.0, False)])
def test_an_attempt_counts_against_a_limit_until_the_last_line_of_its_process(last, fine):
    """Another job ended the process. When exactly is not known, but it wrote nothing afterwards."""
    events = [
        Event("start", 2.0, 5, 1, serial="1/1", name="narrow", pool="p", token="1:narrow"),
        Event("start", last, 5, 2, serial="1/2", name="poison", pool="p", token="2:poison"),
        Event("start", 3.0, 6, 1, serial="1/3", name="narrow", pool="q", token="1:narrow"),
        Event("end", 9.0, 6, 2, serial="1/3", name="narrow", pool="q", token="1:narrow", how="ok"),
        Event("gone", 20.0, 9, 1, target=5),
    ]
    events.sort(key=lambda event: event.at)
    assert (list(limits(Story(events, Rules(limits={"narrow": 1})))) == []) is fine


@pytest.mark.parametrize(("soonest", "rest"), [(None, True), (1000.0, False), (1061.0, True)])
def test_a_system_is_not_at_rest_while_a_job_is_due_soon(soonest, rest):
    assert look.is_at_rest(Census(soonest=soonest), 1000.0) is rest


def test_every_invariant_has_its_case():
    assert set(BROKEN) == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_an_invariant_notices_when_it_is_broken_and_only_then(name):
    events = good(3, extra=0)
    assert list(CHECKS[name](Story(events, RULES))) == []
    broken = sorted(BROKEN[name](events), key=lambda event: (event.at, event.pid, event.seq))
    assert list(CHECKS[name](Story(broken, RULES))) != []


@pytest.mark.parametrize("seed", range(5))
def test_the_figures_tell_a_lost_job_and_a_doubled_one(seed):
    events = good(seed)
    starts = Counter(event.serial for event in events if event.kind == "start")
    stored = {event.serial for event in events if event.kind == "stored"}
    serial = next(
        events[i].serial for i in job(events) if starts[events[i].serial] == 1 and events[i].serial in stored
    )
    lost = number(
        [event for event in events if not (event.kind in ("start", "end") and event.serial == serial)]
    )
    assert check(lost, RULES).lost == 1
    start, end = (
        next(e for e in events if e.kind == kind and e.serial == serial) for kind in ("start", "end")
    )
    pool = f"pool{SECOND}"
    again = [
        replace(start, at=end.at + 1, pid=SECOND, pool=pool, token="900:note"),
        replace(end, at=end.at + 1.001, pid=SECOND, pool=pool, token="900:note"),
    ]
    assert check(number([*events, *again]), RULES).unexplained == 1


# The files.


def test_what_is_written_is_read_in_order(tmp_path):
    ledger = Ledger(tmp_path, "worker")
    for n in range(50):
        ledger.write("said", how=str(n))
    ledger.write("clock")
    ledger.close()
    events = read(tmp_path)
    assert [event.how for event in events[:50]] == [str(n) for n in range(50)]
    assert events[50].seconds > 1e9


def test_half_a_line_at_the_end_is_what_a_killed_process_leaves(tmp_path):
    ledger = Ledger(tmp_path, "worker")
    ledger.write("up")
    ledger.write("down")
    ledger.close()
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[:-5])
    assert [event.kind for event in read(tmp_path)] == ["up"]


@pytest.mark.parametrize("spoil", ["first line", "middle", "order", "bytes"])
def test_a_file_that_is_not_what_its_process_wrote_is_refused(tmp_path, spoil):
    ledger = Ledger(tmp_path, "worker")
    for n in range(5):
        ledger.write("said", how=str(n))
    ledger.close()
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    if spoil == "first line":
        del lines[0]
    elif spoil == "middle":
        del lines[2]
    elif spoil == "order":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        lines[2] = b"{\n"
    ledger.path.write_bytes(b"".join(lines))
    with pytest.raises(Torn):
        read(tmp_path)


def test_a_process_id_that_was_used_again_is_another_process(tmp_path):
    for _ in range(2):
        ledger = Ledger(tmp_path, "worker")
        ledger.write("up")
        ledger.close()
    first, second = read(tmp_path)
    assert first.pid != second.pid


def test_the_story_knows_which_processes_took_part():
    story = Story(good(0), RULES)
    assert {PRODUCER, HARNESS, FIRST, SECOND} <= set(story.processes)
    assert story.rest is not None
    assert not story.stray_ends
