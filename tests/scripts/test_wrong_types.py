"""Each key of each script set to each wrong type: nothing is done by halves, and neighbours go on.

A script's effects are not undone by an error in it, so there are four ways to be right:

error    it raises, and every key is as it was before
ignored  it does all of its work but what that key is for, and leaves the key alone
repaired   it does all of its work, and the key is right again or gone
elsewhere  it has a test of its own
spared   it leaves the key and what depends on it alone; the neighbours named here are as without the fault
"""

from __future__ import annotations

import re

import pytest

from census import dump
from dayjob.errors import Rejected
from dayjob.store.keys import Keys
from dayjob.store.op import plain
from dayjob.store.scripts import load
from scenarios import ALL

WRONG = {
    "string": ("SET", "wrong"),
    "list": ("RPUSH", "wrong"),
    "set": ("SADD", "wrong"),
    "zset": ("ZADD", "1", "wrong"),
    "hash": ("HSET", "wrong", "1"),
}

#: By scenario and key. What is spared is written with a plus for each neighbour.
EXPECTED: dict[str, dict[str, str]] = {
    "enqueue": {"sent:s": "error", "jobs:a": "error", "known_jobs": "error", "bell:a": "ignored"},
    "look_for_result": {"result:id1": "error"},
    "schedule": {"sent:s": "error", "scheduled": "error", "known_jobs": "error", "due": "ignored"},
    # A key that is taken, by whatever, means a duplicate or a repeat: nothing is stored.
    "admit now": {
        "sent:s": "error", "jobs:a": "error", "known_jobs": "error", "bell:a": "ignored",
        "unique:a:u": "spared", "id:id2": "spared",
    },
    "admit later": {
        "sent:s": "error", "scheduled": "error", "known_jobs": "error", "due": "ignored",
        "unique:a:u": "spared", "id:id2": "spared",
    },
    "join": {
        "pools": "error", "condemned": "error", "pool:p2:state": "error", "known_jobs": "error",
        "leader": "spared+pools+pool:p2:state+known_jobs+members+events:started", "members": "ignored",
        "events:started": "elsewhere", "events:leader": "elsewhere",
    },
    "beat": {
        "pools": "error", "pool:p1:state": "error", "pool:p1:held": "ignored", "leader": "ignored", "events:leader": "elsewhere",
        "pool:p1": "ignored",
    },
    "set_cause": {"pool:p1:state": "error", "pool:p1:held": "error"},
    "lead": {
        "leader": "repaired", "events:leader": "elsewhere", "pools": "error", "condemned": "error", "watch": "elsewhere",
        "members": "ignored", "events:died": "elsewhere", "scheduled": "ignored", "retry": "ignored", "parked": "elsewhere",
        "dead": "ignored", "done": "ignored", "known_jobs": "ignored", "released": "ignored", "limits": "spared",
        "jobs:a": "spared", "jobs:a:paused": "spared", "held:a": "ignored", "bell:a": "repaired", "turns:a": "ignored",
        "blocked:a": "ignored",
    },
    "status": {"pools": "error", "pool:p1": "repaired"},
    "leave with nothing": {
        "pools": "error", "condemned": "error", "pool:p1:state": "repaired", "pool:p1:held": "error",
        "pool:p1": "repaired", "leader": "ignored", "members": "ignored", "events:stopped": "elsewhere",
    },
    "leave with attempts": {
        "pools": "error", "condemned": "error", "pool:p1:state": "ignored", "pool:p1:held": "error",
        "pool:p1": "ignored", "leader": "ignored", "members": "ignored", "events:stopped": "elsewhere",
    },
    "condemn": {
        "pools": "error", "condemned": "error", "watch": "elsewhere", "leader": "ignored", "members": "ignored",
        "events:died": "elsewhere",
    },
    "condemn the proven": {
        "pools": "error", "condemned": "error", "watch": "ignored", "leader": "ignored", "members": "ignored",
        "events:died": "elsewhere",
    },
    "sweep": {
        "condemned": "error", "pool:p1:held": "error", "pool:p1:state": "repaired", "pool:p1": "repaired",
        "dead": "spared+jobs:a+jobs:b+retry+broken", "retry": "spared+jobs:a+jobs:b+dead+broken",
        "broken": "spared+jobs:a+jobs:b+dead+retry", "stats:totals": "ignored", "due": "ignored",
        "jobs:a": "spared+jobs:b+dead+retry+broken", "jobs:b": "spared+jobs:a+dead+retry+broken",
        "held:a": "ignored", "held:b": "ignored", "bell:a": "repaired", "bell:b": "repaired", "unique:a:u": "ignored",
        "events:rescued": "elsewhere",
        # Only attempts with a key use these.
        "turns:a": "ignored", "turns:b": "ignored", "blocked:a": "ignored", "blocked:b": "ignored", "debts:a": "ignored",
        "debts:b": "ignored",
    },
    "enqueue_by_key": {
        "sent:s": "error", "jobs:a": "error", "known_jobs": "error", "bell:a": "ignored", "limits": "error", "turns:a": "error",
        "blocked:a": "error", "debts:a": "error", "partition:a|x": "error", "partition:a|y": "error",
    },
    "admit by key": {
        "sent:s": "error", "jobs:a": "error", "known_jobs": "error", "bell:a": "ignored", "limits": "error", "turns:a": "error",
        "blocked:a": "error", "debts:a": "error", "partition:a|x": "error", "unique:a:u": "spared", "id:id2": "spared",
    },
    "sort_jobs": {
        "limits": "error", "jobs:a": "error", "turns:a": "error", "blocked:a": "error", "debts:a": "error", "bell:a": "repaired",
        "partition:a|x": "error", "partition:a|y": "error",
    },
    "key_states": dict.fromkeys(
        ("blocked:a", "key_settings:a", "partition:a|x", "held:a|x", "partition:a|y", "held:a|y"), "ignored"
    ),
    "missing_rollups": dict.fromkeys(
        ("stats:counts:1:100", "stats:minute:100", "stats:counts:1:101", "stats:minute:101"), "ignored"
    ),
    "partition_sizes": {"partition:a|x": "ignored", "partition:a|y": "ignored"},
    "change_key_rate": {
        "limits": "error", "turns:a": "error", "blocked:a": "error", "debts:a": "error", "partition:a|x": "error", "bell:a": "repaired",
        **dict.fromkeys(("overrides:r", "rate:r|x", "window:r|x", "hold:r|x"), "elsewhere"),
    },
    "set_key": {
        "key_settings:a": "error", "turns:a": "error", "blocked:a": "error", "debts:a": "error", "partition:a|x": "error",
        "bell:a": "repaired",
    },
    # test_keys.py has the sorted sets of keys, which it repairs.
    "heal_keys": {
        "turns:a": "elsewhere", "blocked:a": "elsewhere", "debts:a": "elsewhere", "key_settings:a": "ignored", "bell:a": "repaired",
        "parked": "spared+turns:a", "due": "ignored", "partition:a|x": "spared", "held:a|x": "spared", "partition:a|y": "ignored",
        "held:a|y": "ignored",
    },
    # test_keys.py has the keys of keys, the scenario "sweep" has the others.
    "sweep by key": dict.fromkeys(
        (
            "condemned", "pool:p1:held", "pool:p1:state", "pool:p1", "dead", "retry", "broken", "stats:totals", "due",
            "events:rescued", "partition:a|x", "held:a|x", "bell:a", "held:a", "turns:a", "blocked:a", "debts:a",
        ), "elsewhere",
    ),
    "exchange by key": dict.fromkeys(
        (
            "pools", "pool:p1:state", "pool:p1:held", "limits", "stats:totals", "retry", "dead", "scheduled", "done",
            "broken", "due", "stats:minute:0", "parked", "jobs:a", "jobs:a:paused", "held:a", "bell:a", "overrides:r", "hold:r",
            "rate:r|x", "hold:r|x", "rate:r|y", "hold:r|y", "rate:r|z", "hold:r|z", "turns:a", "blocked:a", "debts:a",
            "key_settings:a", "partition:a|x", "held:a|x", "partition:a|y", "held:a|y", "partition:a|z", "held:a|z",
        ), "elsewhere",
    ),
    "log_action": {"audit": "error"},
    "lead_watch": {"watcher": "repaired"},
    "record_alert": {"alerts": "error", "undelivered:r1": "error", "undelivered:r2": "error"},
    "read_due": {"scheduled": "error"},
    "requeue": {
        "scheduled": "error", "known_jobs": "ignored", "broken": "spared+jobs:a+jobs:b+bell:a+bell:b",
        "stats:totals": "ignored", "jobs:a": "spared+jobs:b+broken+bell:b", "jobs:b": "spared+jobs:a+broken+bell:a",
        "bell:a": "repaired", "bell:b": "repaired", "due": "ignored",
    },
    # Without the limits nobody knows what may run; what finished is settled all the same.
    "ring": {
        "limits": "spared", "parked": "elsewhere", "jobs:a": "spared+bell:b", "jobs:b": "spared+bell:a", "jobs:c": "ignored",
        "jobs:a:paused": "spared+bell:b", "jobs:b:paused": "spared+bell:a", "jobs:c:paused": "ignored",
        "held:a": "spared+bell:b", "held:b": "ignored", "held:c": "ignored",
        "bell:a": "repaired", "bell:b": "repaired", "bell:c": "ignored",
        "turns:a": "ignored", "turns:b": "ignored", "turns:c": "ignored",
        "blocked:a": "ignored", "blocked:b": "ignored", "blocked:c": "ignored",
    },
    "tick": {
        "periodic": "error", "jobs:a": "error", "known_jobs": "error", "bell:a": "repaired", "stats:totals": "ignored",
        "ticks:sched": "elsewhere",
    },
    "move trim": {"dead": "error", "known_jobs": "ignored", "stats:totals": "ignored", "unique:a:u": "ignored"},
    "change_limit lifted": {"limits": "error", "held:a": "repaired", "bell:a": "repaired", "events:limit": "elsewhere"},
    "forget_names": {
        "known_jobs": "error", "limits": "spared", "job_types": "spared", "jobs:a": "spared", "jobs:b": "ignored",
        "jobs:a:paused": "spared", "jobs:b:paused": "ignored",
        "turns:a": "spared", "turns:b": "ignored", "blocked:a": "spared", "blocked:b": "ignored",
    },
    "change_limit begun": {"limits": "error", "held:a": "repaired", "bell:a": "ignored", "events:limit": "elsewhere"},
    "change_limit finished": {"limits": "error", "held:a": "ignored", "bell:a": "repaired", "events:limit": "elsewhere"},
    "change_limit abandoned": {"limits": "error", "held:a": "repaired", "bell:a": "ignored", "events:limit": "elsewhere"},
    # A pool whose attempts cannot be read keeps its places; those of others are freed.
    "recount": {
        "limits": "error", "held:a": "error", "bell:a": "repaired", "pool:p1:held": "spared+bell:a", "pool:gone:held": "spared+bell:a",
    },
    "exchange": {
        "pools": "error", "pool:p1:state": "error", "pool:p1:held": "error",
        "limits": "spared+retry+dead+scheduled+done+broken", "stats:totals": "ignored", "due": "ignored", "stats:minute:77": "ignored", "unique:a:u": "ignored",
        "retry": "spared+dead+scheduled+done+broken+jobs:a+jobs:b+bell:a+bell:b",
        "dead": "spared+retry+scheduled+done+broken+jobs:a+jobs:b+bell:a+bell:b",
        "scheduled": "spared+retry+dead+done+broken+jobs:a+jobs:b+bell:a+bell:b",
        "done": "spared+retry+dead+scheduled+broken+jobs:a+jobs:b+bell:a+bell:b",
        "broken": "spared+retry+dead+scheduled+done+jobs:a+jobs:b+bell:a+bell:b",
        "jobs:a": "spared+retry+dead+scheduled+done+broken", "jobs:b": "spared+retry+dead+scheduled+done+broken",
        "jobs:a:paused": "spared+retry+dead+scheduled+done+broken",
        "jobs:b:paused": "spared+retry+dead+scheduled+done+broken",
        "held:a": "spared+retry+dead+scheduled+done+broken", "held:b": "ignored",
        "bell:a": "repaired", "bell:b": "repaired", "result:id4": "repaired", "parked": "elsewhere",
    },
    # test_rates.py has the keys of rate limits, the scenario before this one has the others.
    "exchange with rate limits": dict.fromkeys(
        (
            "pools", "pool:*:state", "pool:*:held", "limits", "stats:totals", "retry", "dead", "scheduled", "done",
            "broken", "due", "stats:minute:0", "parked", "jobs:a", "jobs:a:paused", "held:a", "bell:a", "rate:r",
            "hold:r", "window:w", "hold:w",
        ), "elsewhere",
    ),
    # The scenario "exchange" has the other keys. If one job cannot be stored, none is, and the attempt stays held.
    "exchange of an atomic job": {
        **dict.fromkeys(
            (
                "pools", "pool:p1:state", "pool:p1:held", "limits", "stats:totals", "retry", "dead", "done", "broken",
                "stats:minute:0", "parked", "jobs:a:paused", "held:a", "bell:a",
            ), "elsewhere",
        ),
        "jobs:a": "spared", "jobs:b": "spared", "jobs:c": "spared", "scheduled": "spared", "bell:b": "ignored",
        "bell:c": "ignored", "due": "ignored", "known_jobs": "ignored", "unique:b:u": "spared+jobs:c",
        "unique:c:u": "spared+jobs:b+jobs:c", "id:chosen": "spared+jobs:b+jobs:c",
    },
    "exchange of a job that emits": {
        **dict.fromkeys(
            (
                "pools", "pool:p1:state", "pool:p1:held", "limits", "stats:totals", "retry", "dead", "scheduled", "done", "broken",
                "due", "stats:minute:0", "parked", "jobs:a", "jobs:a:paused", "held:a", "bell:a",
            ), "elsewhere",
        ),
        "stream:1": "ignored", "stream:2": "ignored",
    },
    "exchange that stages": {
        **dict.fromkeys(
            (
                "pools", "pool:p1:state", "pool:p1:held", "limits", "stats:totals", "retry", "dead", "done", "broken",
                "stats:minute:0", "parked", "jobs:a", "jobs:a:paused", "held:a", "bell:a", "scheduled", "bell:b",
                "jobs:b", "bell:c", "jobs:c", "known_jobs", "unique:b:u", "unique:c:u", "id:chosen",
            ), "elsewhere",
        ),
        "due": "ignored", "released": "spared", "staged:p1/1:a:0": "spared", "staged:p1/1:a:1": "spared",
        "staged:p1/1:a:2": "spared", "staged:p1/2:a:0": "repaired",
    },
    "add_members": {
        "sent:s": "error", "batch:inner": "error", "batches": "error", "scheduled": "error", "jobs:a": "error", "due": "ignored",
        "bell:a": "ignored", "known_jobs": "ignored", "batch:outer": "error",
        **dict.fromkeys(
            ("batch:inner:ended", "batch:inner:dead", "batch:outer:ended", "batch:outer:dead", "batch:outer:failed"), "elsewhere",
        ),
    },
    "change_batch": {
        "batch:inner": "error", "batch:inner:ended": "error", "batch:inner:dead": "error", "batch:inner:failed": "elsewhere",
        "cancelled_batches": "error", "scheduled": "spared", "due": "ignored", "batch:outer": "elsewhere",
        **dict.fromkeys(("batch:outer:ended", "batch:outer:dead", "batch:outer:failed"), "elsewhere"),
    },
    "start_workflow": {
        "sent:s": "error", "scheduled": "error", "workflows": "error", "due": "ignored",
        **dict.fromkeys(("workflow:w1", "workflow:w1:states", "workflow:w1:results", "workflow:w1:nodes"), "elsewhere"),
    },
    "change_workflow": {
        "cancelled_batches": "error", "scheduled": "error", "dead": "error", "due": "ignored",
        **dict.fromkeys(("workflow:w1", "workflow:w1:states", "workflow:w1:results", "workflow:w1:nodes"), "elsewhere"),
    },
    "release": {
        "released": "error", "staged:p1/1:a:0": "error", "jobs:b": "error", "bell:b": "ignored", "known_jobs": "ignored",
    },
    "release later": {
        "released": "error", "staged:p1/1:a:0": "error", "scheduled": "error", "due": "ignored", "known_jobs": "ignored",
    },
    "change_rule": {"limits": "error", "held:a": "ignored", "bell:a": "repaired", "parked": "elsewhere"},
    **{
        f"change_rate {what}": {
            "limits": "error", **dict.fromkeys(("rate:r", "window:r", "hold:r", "parked", "bell:a"), "elsewhere")
        }
        for what in ("set", "reset", "held")
    },
    "restore_starts": {"limits": "error", "rate:r": "elsewhere", "window:w": "elsewhere"},
    "limit_states": dict.fromkeys(
        ("limits", "rate:r", "hold:r", "overrides:r", "window:w", "hold:w", "overrides:w"), "elsewhere"
    ),
    "move kill": {"scheduled": "error", "known_jobs": "ignored", "dead": "error", "stats:totals": "ignored", "unique:a:u": "ignored"},
    "ask_pool to cancel": {
        "pools": "error", "pool:p1:held": "error", "pool:p1:state": "error", "pool:p1:stacks": "ignored",
    },
    "ask_pool for stacks": {
        "pools": "error", "pool:p1:state": "error", "pool:p1:held": "ignored", "pool:p1:stacks": "repaired",
    },
    "stacks": {"pools": "error", "pool:p1:state": "error", "pool:p1:stacks": "repaired"},
    # What consoles offer and check is no reason for a pool not to start.
    "announce": {"job_types": "spared", "versions": "ignored", "events:deploy": "elsewhere"},
    "forget": {"job_types": "error", "versions": "ignored"},
    "sample": {"stats:minute:77": "ignored", "jobs:a": "spared+jobs:b", "jobs:b": "spared+jobs:a"},
    "move repair": {
        "broken": "error", "jobs:a": "error", "known_jobs": "error", "bell:a": "repaired", "stats:totals": "ignored",
    },
    "move delete_broken": {"broken": "error", "known_jobs": "ignored", "stats:totals": "ignored"},
    "queues": {
        "limits": "error", "jobs:a": "ignored", "jobs:b": "ignored", "jobs:a:paused": "ignored",
        "jobs:b:paused": "ignored", "held:a": "ignored", "held:b": "ignored", "bell:a": "ignored", "bell:b": "ignored",
    },
    "watch_queues": {
        "starved": "elsewhere", "events:starved": "elsewhere", "jobs:a": "spared+jobs:b", "jobs:b": "ignored",
        "jobs:a:paused": "spared+jobs:a+jobs:b", "jobs:b:paused": "spared+jobs:a+jobs:b",
        "held:a": "ignored", "held:b": "ignored",
    },
    "record_first_seen": {"first_seen": "repaired", **dict.fromkeys(("scheduled", "retry", "dead", "done", "broken"), "elsewhere")},
    "check_server": {"watch": "spared", "events:redis": "elsewhere"},
    "page of a set": {"dead": "error"},
    "page of a list": {"jobs:a": "error"},
    "move purge": {"jobs:a": "error", "known_jobs": "ignored", "stats:totals": "ignored", "unique:a:u": "ignored"},
    # A unique key of a wrong type is taken, by whatever: the job stays dead.
    "move revive": {
        "dead": "error", "jobs:a": "error", "known_jobs": "error", "bell:a": "repaired", "stats:totals": "ignored",
        "unique:a:u": "spared", "result:id1": "repaired",
    },
    "to_bin": {"jobs:a": "error", "bin": "error", "bin:d1:0": "error", "stats:totals": "ignored", "unique:a:u": "spared"},
    # A unique key of a wrong type is taken, by whatever: the job stays in the bin.
    "undo": {
        "bin:d1:0": "error", "bin": "error", "jobs:a": "error", "bell:a": "mended", "known_jobs": "error",
        "stats:totals": "ignored", "unique:a:u": "spared+jobs:b",
    },
    "undo in scheduled": {
        "bin:d1:0": "error", "bin": "error", "scheduled": "error", "due": "mended", "known_jobs": "ignored",
        "stats:totals": "ignored",
    },
    "reschedule": {"scheduled": "error", "due": "mended", "unique:a:u": "ignored"},
    "seek": {"jobs:a": "ignored"},
    "pause schedule": {"periodic": "error", "events:pause": "elsewhere"},
    # A queue is paused by a key of any type.
    "pause": {"jobs:a:paused": "repaired", "events:pause": "elsewhere"},
    "scan": {"history:a": "ignored"},
    "move unqueue": {"jobs:a": "error", "known_jobs": "ignored", "dead": "error", "stats:totals": "ignored", "unique:a:u": "ignored"},
}  # fmt: skip

#: A pool under an id that was drawn.
DRAWN_POOL = re.compile(r"^pool:[0-9a-f]{24}:")

CASES = [(name, key) for name, keys in EXPECTED.items() for key, way in keys.items() if way != "elsewhere"]


def shape(found):
    """A dump without what depends on the time, the namespace or an id that was drawn."""
    out = {}
    for key, (kind, value) in found.items():
        kept = set(value) if kind == "zset" or key == "watch" else value
        if key == "pool:p1:state":
            kept = {field: text for field, text in value.items() if field != b"last"}
        if not DRAWN.fullmatch(key.removeprefix("sent:").encode()):
            out[key] = (kind, bare(kept))
    return out


DRAWN = re.compile(rb"[0-9a-f]{24}|t[0-9a-f]{12}-[a-z]+|\b1[0-9]{9}(?:[0-9]{3}(?:-[0-9]+)?)?\b")


def bare(value):
    if isinstance(value, bytes):
        return DRAWN.sub(b"*", value)
    if isinstance(value, dict):
        return {bare(field): bare(text) for field, text in value.items()}
    return sorted(map(bare, value)) if isinstance(value, set) else [bare(part) for part in value]


def outcome(scenario, keys, link, sabotage=None):
    """Run a scenario, with a key spoiled first: what was before and after, and whether it raised."""
    op = scenario.ready(keys, link)
    if sabotage is not None:
        key, (command, *rest) = sabotage
        link.run(plain("DEL", keys.prefix + key))
        link.run(plain(command, keys.prefix + key, *rest))
    before = dump(keys, link)
    try:
        link.run(op)
    except Rejected as error:
        return before, dump(keys, link), str(error)
    return before, dump(keys, link), ""


@pytest.mark.parametrize("name", ALL)
def test_every_key_of_every_scenario_has_its_line_here(name, keys, link):
    op = ALL[name].ready(keys, link)
    named = {key.decode() if isinstance(key, bytes) else str(key) for key in op.keys}
    assert {DRAWN_POOL.sub("pool:*:", key.removeprefix(keys.prefix)) for key in named} == set(EXPECTED[name])


@pytest.mark.parametrize("name", ALL)
def test_no_scenario_fails_by_itself(name, keys, link):
    before, after, raised = outcome(ALL[name], keys, link)
    assert not raised
    reads = "no-writes" in load(ALL[name].script).flags
    assert (after == before) == reads


@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_wrong_type_leaves_nothing_half_done(name, key, namespace, link):
    control = Keys(namespace + "-control")
    _, right, _ = outcome(ALL[name], control, link)
    way, *neighbours = EXPECTED[name][key].split("+")
    for kind in WRONG.keys() - {kind_of(key)}:
        keys = Keys(f"{namespace}-{kind}")
        before, after, raised = outcome(ALL[name], keys, link, (key, WRONG[kind]))
        says = f"{key} as a {kind}"
        assert ("WRONGTYPE" in raised) == (way == "error"), f"{says}: {raised}"
        if way == "error":
            assert after == before, says
        if way in ("ignored", "spared"):
            assert after.get(key) == before[key], says
        if way == "ignored":
            assert shape(without(after, key)) == shape(without(right, key)), says
        if way == "repaired":
            assert shape(after) == shape(right), says
        for neighbour in neighbours:
            assert shape(after).get(neighbour) == shape(right).get(neighbour), f"{says}: {neighbour}"


def without(found, key):
    return {name: value for name, value in found.items() if name != key}


#: The right types by the beginning of the key.
TYPES = {
    "history": "stream",
    "stream": "stream",
    "sent": "string", "jobs": "list", "known_jobs": "set", "bell": "zset", "scheduled": "zset", "due": "zset",
    "unique": "string", "id": "string", "pools": "zset", "condemned": "zset", "leader": "string", "watch": "hash",
    "dead": "zset", "retry": "zset", "done": "zset", "broken": "list", "stats": "hash", "held": "set",
    "limits": "hash", "periodic": "hash", "result": "string", "audit": "list", "job_types": "hash", "events": "list",
    "ticks": "list", "members": "hash", "versions": "hash", "starved": "hash", "first_seen": "hash",
    "partition": "list", "turns": "zset", "blocked": "zset", "debts": "zset", "key_settings": "hash", "parked": "zset",
    "batches": "zset", "workflows": "zset", "cancelled_batches": "zset", "staged": "list", "released": "zset", "alerts": "hash", "undelivered": "list",
    "watcher": "string",
}  # fmt: skip


def kind_of(key):
    place, _, rest = key.partition(":")
    if rest.endswith(":stacks"):
        return "list"
    if place == "workflow":
        return "string" if rest.endswith(":states") else "hash"
    if place == "batch":
        return "string" if ":" in rest else "hash"
    if place == "bin":
        return "list" if rest else "zset"
    if place == "pool":
        return "hash" if ":" in rest else "string"
    if rest.endswith(":paused"):
        return "string"
    return TYPES[place]
