"""Scenarios: for every script a namespace made ready so that one call touches all of its keys, and that call.

They say nothing of what is right; they are for tests that hold for every script alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.handlers.describe import Described
from dayjob.job import Job
from dayjob.limits import Rate, Window
from dayjob.outcome import (
    Died,
    Done,
    Dropped,
    Emit,
    GivenBack,
    HeldBack,
    Kept,
    NameSuspect,
    Reaped,
    Release,
    Retried,
    Snoozed,
    Unreadable,
)
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.op import Op, plain
from dayjob.store.ops import (
    alerts,
    audit,
    batches,
    bin,
    broken,
    children,
    concurrency,
    find,
    history,
    inspect,
    job_types,
    maintain,
    membership,
    operate,
    partitions,
    produce,
    rates,
    results,
    rollups,
    workflows,
)
from dayjob.store.ops.consume import Entry, Want
from dayjob.store.ops.maintain import Move
from dayjob.store.ops.move import JobMove
from dayjob.store.ops.produce import Slot, When
from dayjob.store.ops.rates import RateRule, Spent
from dayjob.store.ops.streams import StreamPart
from dayjob.store.scripts import Script
from keyed import BY, KeyedPool, fill_keys, key_name
from pools import TERM, Pool, fill, set_limit
from rates import RatedPool, limit_name

#: Far in the future, and the second after it.
LATER = 4_000_000_000


@dataclass(frozen=True)
class Scenario:
    """`ready` prepares a namespace and returns the call to make in it."""

    name: str
    ready: Callable[[Keys, Link], Op[Any]]

    @property
    def script(self) -> str:
        return self.name.partition(" ")[0]


ALL: dict[str, Scenario] = {}


def scenario(name: str) -> Callable[[Callable[[Keys, Link], Op[Any]]], Callable[[Keys, Link], Op[Any]]]:
    """Register a scenario; its name begins with that of its script."""

    def register(ready: Callable[[Keys, Link], Op[Any]]) -> Callable[[Keys, Link], Op[Any]]:
        ALL[name] = Scenario(name, ready)
        return ready

    return register


def script_of(op: Op[Any]) -> str:
    """The name of the script that an op calls."""
    assert isinstance(op.command, Script)
    return op.command.name


def _do(link: Link, *words: Any) -> None:
    link.run(plain(*words))


def _pool(keys: Keys, link: Link, *, held: int = 0, name: str = "a") -> Pool:
    """Pool p1, which holds jobs 1 to `held` of `name`."""
    pool = Pool(keys, link, pool_id="p1", names=["a", "b"])
    fill(keys, link, name, *(str(i) for i in range(1, held + 1)))
    if held:
        pool.fetch(name)
    return pool


@scenario("enqueue")
def _enqueue(keys: Keys, link: Link) -> Op[Any]:
    link.run(produce.enqueue(keys, Slot("s", 1), "a", [b"1"], introduce=True))
    return produce.enqueue(keys, Slot("s", 2), "a", [b"2"], introduce=True)


@scenario("look_for_result")
def _look_for_result(keys: Keys, link: Link) -> Op[Any]:
    link.run(results.look_for_result(keys, "id1", keys.mailbox("m1")))
    return results.look_for_result(keys, "id1", keys.mailbox("m2"))


@scenario("schedule")
def _schedule(keys: Keys, link: Link) -> Op[Any]:
    when = When("at", (LATER + 1) * 1000)
    link.run(produce.schedule(keys, Slot("s", 1), "a", [b"1"], when, introduce=True))
    return produce.schedule(keys, Slot("s", 2), "a", [b"2"], When("at", LATER * 1000), introduce=True)


def _admit(keys: Keys, number: int, when: When) -> Op[Any]:
    return produce.admit(
        keys, Slot("s", number), "a", b"%d" % number, when,
        job_id=f"id{number}", chosen=True, unique_key=keys.unique("a", "u"), unique_for=None, introduce=True,
    )  # fmt: skip


@scenario("admit now")
def _admit_now(keys: Keys, link: Link) -> Op[Any]:
    link.run(produce.enqueue(keys, Slot("s", 1), "a", [b"1"], introduce=True))
    return _admit(keys, 2, When())


@scenario("admit later")
def _admit_later(keys: Keys, link: Link) -> Op[Any]:
    when = When("at", (LATER + 1) * 1000)
    link.run(produce.schedule(keys, Slot("s", 1), "a", [b"1"], when, introduce=True))
    return _admit(keys, 2, When("at", LATER * 1000))


@scenario("join")
def _join(keys: Keys, link: Link) -> Op[Any]:
    Pool(keys, link, pool_id="p1")
    _do(link, "DEL", keys.leader)
    _do(link, "ZADD", keys.condemned, 1, "p0")
    return membership.join(keys, "p2", ["a", "b"], lease=15.0, term=TERM)


@scenario("beat")
def _beat(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link, held=1)
    _do(link, "DEL", keys.leader)
    _do(link, "HSET", keys.state("p1"), "cancel:1:a", "1")
    return membership.beat(keys, "p1", lease=15.0, term=TERM)


@scenario("set_cause")
def _set_cause(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link, held=2)
    return membership.set_cause(keys, "p1", "1:a", "it ran too long")


@scenario("lead")
def _lead(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link)
    _do(link, "DEL", keys.leader)
    _do(link, "LPUSH", keys.queue("a"), "x")
    return membership.lead(keys, "p1", term=TERM, names=["a"])


@scenario("status")
def _status(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link)
    link.run(membership.status(keys, "p1", b"{}"))
    return membership.status(keys, "p1", b'{"new":1}')


@scenario("leave with nothing")
def _leave(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link)
    link.run(membership.status(keys, "p1", b"{}"))
    return membership.leave(keys, "p1")


@scenario("leave with attempts")
def _leave_held(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link, held=2)
    link.run(membership.status(keys, "p1", b"{}"))
    return membership.leave(keys, "p1")


@scenario("condemn")
def _condemn(keys: Keys, link: Link) -> Op[Any]:
    for pool_id in ("over", "proven", "fine"):
        Pool(keys, link, pool_id=pool_id)
    _do(link, "ZADD", keys.pools, 1, "over")
    _do(link, "ZADD", keys.condemned, 1, "before")
    link.run(maintain.condemn(keys, lease=15.0, judge=True, proven=["earlier"]))
    _do(link, "ZADD", keys.pools, 1, "over")
    return maintain.condemn(keys, lease=15.0, proven=["proven"])


@scenario("condemn the proven")
def _condemn_proven(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link, held=1)
    _do(link, "ZADD", keys.condemned, 1, "before")
    return maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False)


@scenario("sweep")
def _sweep(keys: Keys, link: Link) -> Op[Any]:
    set_limit(keys, link, "a", 100)
    pool = _pool(keys, link, held=5)
    fill(keys, link, "b", "6")
    pool.fetch("b")
    fill(keys, link, "a", "new")
    link.run(membership.status(keys, "p1", b"{}"))
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    for place in (keys.dead, keys.retry):
        _do(link, "ZADD", place, 1, "old")
    _do(link, "RPUSH", keys.broken, "old")
    _do(link, "SET", keys.unique("a", "u"), "id1")
    return maintain.sweep(
        keys,
        "p1",
        [
            Entry("b", "6:b", Reaped(), b"6"),
            Entry("a", "5:a", Reaped(), b"5"),
            Entry("a", "4:a", Retried(1), b"4r"),
            Entry("a", "3:a", Unreadable(), b"3b"),
            Entry("a", "2:a", Dropped(counts_failure=False)),
            Entry("a", "1:a", Died(counts_failure=False), b"1d", "id1", releases=keys.unique("a", "u")),
        ],
    )


@scenario("read_due")
def _read_due(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "ZADD", keys.scheduled, 1, "x", LATER, "y")
    return maintain.read_due(keys.scheduled)


@scenario("requeue")
def _requeue(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "ZADD", keys.scheduled, 1, "x", 2, "y", 3, "z", LATER, "later")
    _do(link, "RPUSH", keys.broken, "old")
    fill(keys, link, "a", "1")
    fill(keys, link, "b", "2")
    moves = [Move("a", b"x", b"X"), Move("b", b"y", b"Y"), Move(None, b"z", b"Z"), Move("a", b"later", b"L")]
    return maintain.requeue(keys, keys.scheduled, moves)


@scenario("ring")
def _ring(keys: Keys, link: Link) -> Op[Any]:
    set_limit(keys, link, "a", 5)
    _pool(keys, link, held=1)
    for name in ("a", "b"):
        fill(keys, link, name, "x")
        _do(link, "DEL", keys.bell(name))
    return maintain.ring(keys, ["a", "b", "c"])


@scenario("tick")
def _tick(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "HSET", keys.periodic, "sched", 100)
    fill(keys, link, "a", "1")
    return produce.tick(keys, "sched", "a", seen=100, newest=300, missed=1, jobs=[(200, b"2"), (300, b"3")])


@scenario("move trim")
def _trim(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "ZADD", keys.dead, 1, "x", 2, "y", 3, "z")
    _do(link, "SET", keys.unique("a", "u"), "id1")
    return maintain.trim(
        keys, keys.dead, "trimmed:dead", [(b"x", keys.unique("a", "u"), "id1"), (b"y", "", "")]
    )


def _limited(keys: Keys, link: Link) -> None:
    set_limit(keys, link, "a", 5)
    _pool(keys, link, held=2)


@scenario("change_rule")
def _(keys: Keys, link: Link) -> Op[Any]:
    fill(keys, link, "a", "1")
    return rates.change_rule(keys, "a", RateRule(1, ("r",)))


@scenario("change_rate set")
def _(keys: Keys, link: Link) -> Op[Any]:
    rated_pool(keys, link).start("a", room=1)
    return rates.set_limit(keys, "r", Rate(3, per=60), ["a"])


@scenario("change_rate reset")
def _(keys: Keys, link: Link) -> Op[Any]:
    rated_pool(keys, link).start("a", room=1)
    return rates.reset(keys, "r", ["a"])


@scenario("change_rate held")
def _(keys: Keys, link: Link) -> Op[Any]:
    rated_pool(keys, link)
    return rates.hold(keys, "r", 30.0, ["a"])


@scenario("restore_starts")
def _(keys: Keys, link: Link) -> Op[Any]:
    rated_pool(keys, link).start("a", room=1)
    link.run(plain("DEL", keys.rate("r"), keys.window("w")))
    start = [rates.HeldStart("1:a", link.run(inspect.now()), 1)]
    return rates.restore_starts(keys, "p1", {"r": ("rate", "", start), "w": ("window", "", start)})


@scenario("limit_states")
def _(keys: Keys, link: Link) -> Op[Any]:
    rated_pool(keys, link).start("a", room=1)
    return rates.limit_states(keys, {"r": "rate", "w": "window"}, cost=1)


@scenario("exchange with rate limits")
def _(keys: Keys, link: Link) -> Op[Any]:
    pool = rated_pool(keys, link)
    first, second = pool.start("a", room=2)
    spent = Spent(-1, pool.charges[first].marks, undone=True)
    entries = [
        Entry("a", first, GivenBack(), spent=spent),
        Entry("a", second, HeldBack(("w",), 30.0)),
    ]
    return pool.prepare("a", room=5, entries=entries)


@scenario("exchange by key")
def _(keys: Keys, link: Link) -> Op[Any]:
    rule = key_name(keys, link, "a", places=2, kinds={"r": Rate(2, per=60)})
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"), ("x", "3"), ("y", "4"), ("y", "5"), ("z", "6"))
    pool = KeyedPool(keys, link, rule, pool_id="p1")
    first, second, *_ = pool.tokens(room=3)
    link.run(partitions.set_key(keys, "a", "z", partitions.KeyChange(paused=True)))
    pool.next = ["x", "y", "z"]
    return pool.prepare("a", room=5, entries=[Entry("a", first, GivenBack())], done={"a": [second]})


@scenario("enqueue_by_key")
def _(keys: Keys, link: Link) -> Op[Any]:
    key_name(keys, link, "a")
    link.run(plain("ZADD", keys.debts("a"), 5, "x"))
    fill_keys(keys, link, "a", ("y", "1"))
    return produce.enqueue_by_key(
        keys, Slot("s", 2), "a", [b"2", b"3"], produce.Keyed(BY, ("x", "y")), introduce=True
    )


@scenario("admit by key")
def _(keys: Keys, link: Link) -> Op[Any]:
    key_name(keys, link, "a")
    fill_keys(keys, link, "a", ("y", "1"))
    return produce.admit(
        keys, Slot("s", 2), "a", b"2", When(), job_id="id2", chosen=True, unique_key=keys.unique("a", "u"),
        unique_for=None, introduce=True, keyed=produce.Keyed(BY, ("x",)),
    )  # fmt: skip


@scenario("sort_jobs")
def _(keys: Keys, link: Link) -> Op[Any]:
    key_name(keys, link, "a")
    fill_keys(keys, link, "a", ("y", "0"))
    fill(keys, link, "a", "1", "2")
    return partitions.sort_jobs(keys, "a", BY, [("x", b"1"), ("y", b"2")])


@scenario("key_states")
def _(keys: Keys, link: Link) -> Op[Any]:
    blocked_key(keys, link)
    return partitions.key_states(keys, "a", ["x", "y"])


@scenario("partition_sizes")
def _(keys: Keys, link: Link) -> Op[Any]:
    key_name(keys, link, "a")
    fill_keys(keys, link, "a", ("x", job("1").decode()), ("y", job("2").decode()))
    return partitions.partition_sizes(keys, "a", ["x", "y"])


@scenario("missing_rollups")
def _(keys: Keys, link: Link) -> Op[Any]:
    link.run(plain("SET", keys.counts(1, 100), b"{}"))
    link.run(plain("HSET", keys.minute(101), "a:done", 1))
    return rollups.missing_rollups(keys, 1, [100, 101])


@scenario("set_key")
def _(keys: Keys, link: Link) -> Op[Any]:
    blocked_key(keys, link)
    return partitions.set_key(keys, "a", "x", partitions.KeyChange(weight=3, limit=5))


@scenario("change_key_rate")
def _(keys: Keys, link: Link) -> Op[Any]:
    key_name(keys, link, "a", kinds={"r": Rate(1, per=3600)})
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"))
    link.run(plain("ZADD", keys.debts("a"), 5, "x"))
    return rates.change_key_rate(keys, "r", "x", "set", ["a"], value=Rate(5, per=3600).definition())


@scenario("heal_keys")
def _(keys: Keys, link: Link) -> Op[Any]:
    blocked_key(keys, link)
    link.run(plain("ZADD", keys.blocked("a"), 4_000_000_000_000, "y"))
    link.run(plain("DEL", keys.held_of("a|x")))
    return partitions.heal_keys(keys, "a", ["x", "y"], places=1)


@scenario("sweep by key")
def _(keys: Keys, link: Link) -> Op[Any]:
    pool = blocked_key(keys, link)
    link.run(maintain.condemn(keys, lease=15.0, proven=[pool.id], judge=False))
    return maintain.sweep(keys, pool.id, [Entry("a", "1:a|x", Reaped(), b"1")])


def blocked_key(keys: Keys, link: Link) -> KeyedPool:
    """A pool that holds job 1 of key x, whose other job waits for its place."""
    rule = key_name(keys, link, "a", places=1)
    link.run(partitions.set_key(keys, "a", "x", partitions.KeyChange(weight=2)))
    fill_keys(keys, link, "a", ("x", "1"), ("x", "2"))
    pool = KeyedPool(keys, link, rule, pool_id="p1")
    assert pool.tokens() == ["1:a|x"]
    fill_keys(keys, link, "a", ("y", "3"))
    return pool


def rated_pool(keys: Keys, link: Link) -> RatedPool:
    """A pool with jobs of a name that has a rate and a window."""
    fill(keys, link, "a", "1", "2", "3", "4")
    kinds = {"r": Rate(2, per=60), "w": Window(2, per=60)}
    return RatedPool(keys, link, {"a": limit_name(keys, link, "a", kinds)})


@scenario("change_limit lifted")
def _limit_lifted(keys: Keys, link: Link) -> Op[Any]:
    _limited(keys, link)
    return concurrency.lift_limit(keys, "a", by="operator")


@scenario("change_limit begun")
def _limit_begun(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "SADD", keys.held_of("a"), "gone/1:a")
    return concurrency.begin_limit(keys, "a", "m1")


@scenario("change_limit finished")
def _limit_finished(keys: Keys, link: Link) -> Op[Any]:
    link.run(concurrency.begin_limit(keys, "a", "m1"))
    return concurrency.finish_limit(keys, "a", 7, by="operator", mark="m1")


@scenario("change_limit abandoned")
def _limit_abandoned(keys: Keys, link: Link) -> Op[Any]:
    link.run(concurrency.begin_limit(keys, "a", "m1"))
    _do(link, "SADD", keys.held_of("a"), "p1/1:a")
    return concurrency.abandon_limit(keys, "a", "m1")


@scenario("forget_names")
def _forget_names(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "SADD", keys.known_jobs, "a", "b")
    fill(keys, link, "b", "1")
    return maintain.forget_names(keys, ["a", "b"], remove=True)


@scenario("recount")
def _recount(keys: Keys, link: Link) -> Op[Any]:
    _limited(keys, link)
    _do(link, "SREM", keys.held_of("a"), "p1/1:a")
    _do(link, "SADD", keys.held_of("a"), "p1/9:a", "gone/1:a")
    return maintain.recount(keys, "a", ["p1/9:a", "p1/1:a", "gone/1:a", "p1/2:a"])


@scenario("exchange")
def _exchange(keys: Keys, link: Link) -> Op[Any]:
    set_limit(keys, link, "a", 100)
    pool = _pool(keys, link, held=9)
    pool.settle(Entry("a", "1:a", NameSuspect()))
    fill(keys, link, "a", "new", "newer")
    fill(keys, link, "b", "6", "7")
    for place in (keys.dead, keys.retry, keys.scheduled, keys.done):
        _do(link, "ZADD", place, 1, "old")
    _do(link, "RPUSH", keys.broken, "old")
    _do(link, "SET", keys.unique("a", "u"), "id9")
    return pool.prepare(
        Want("a", 1, fetch=True),
        Want("b", 1, fetch=True),
        room=3,
        entries=[
            Entry("a", "1:a", Retried(1), b"1r"),
            Entry("a", "2:a", Died(counts_failure=True), b"2d"),
            Entry("a", "3:a", Snoozed(1), b"3s"),
            Entry("a", "4:a", Kept(60), b"4k", "id4", b"{}"),
            Entry("a", "5:a", Unreadable(), b"5b"),
            Entry("a", "6:a", Dropped(counts_failure=False)),
            Entry("a", "7:a", GivenBack()),
            Entry("a", "9:a", Release(keys.unique("a", "u"), first_run=True), job_id="id9"),
        ],
        done={"a": ["8:a"]},
        figures={"a|r1": 1},
        minute=77,
    )


# What operators see and do.


def job(job_id: str, name: str = "a", **fields: str) -> bytes:
    """A payload that can be read, with a unique key where one is given."""
    rest = "".join(f',"{field}":"{value}"' for field, value in fields.items())
    return f'{{"name":"{name}","id":"{job_id}","t":1,"args":{{}}{rest}}}'.encode()


def _unique_job(keys: Keys, link: Link, job_id: str = "id1") -> bytes:
    _do(link, "SET", keys.unique("a", "u"), job_id)
    return job(job_id, unique_key=keys.unique("a", "u"))


@scenario("move kill")
def _kill(keys: Keys, link: Link) -> Op[Any]:
    member = _unique_job(keys, link)
    _do(link, "ZADD", keys.scheduled, 1, member, 2, "other")
    _do(link, "ZADD", keys.dead, 1, "old")
    return operate.kill(keys, keys.scheduled, member, now=5.0)


@scenario("ask_pool to cancel")
def _cancel(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link, held=2)
    return operate.cancel(keys, "p1", "1:a")


@scenario("ask_pool for stacks")
def _ask_pool(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link)
    link.run(membership.stacks(keys, "p1", b"{}"))
    return operate.ask_pool(keys, "p1", "stacks")


@scenario("stacks")
def _stacks(keys: Keys, link: Link) -> Op[Any]:
    _pool(keys, link)
    link.run(membership.stacks(keys, "p1", b"{}"))
    link.run(operate.ask_pool(keys, "p1", "quiet"))
    return membership.stacks(keys, "p1", b'{"new":1}')


@scenario("announce")
def _announce(keys: Keys, link: Link) -> Op[Any]:
    link.run(job_types.announce(keys, [Described("a"), Described("b")]))
    new = [Described("a", doc="new"), Described("b"), Described("c")]
    return job_types.announce(keys, new, pool_id="p1", tag="v2")


@scenario("forget")
def _forget(keys: Keys, link: Link) -> Op[Any]:
    link.run(job_types.announce(keys, [Described("a"), Described("b")]))
    _do(link, "HSET", keys.job_types, "a|at", 1)
    return job_types.forget(keys, ["a", "b", "c"])


@scenario("sample")
def _sample(keys: Keys, link: Link) -> Op[Any]:
    fill(keys, link, "a", "1")
    fill(keys, link, "b", "1", "2")
    _do(link, "HSET", keys.minute(77), "a|r3", 5)
    return maintain.sample(keys, 77, ["a", "b"], last=True)


@scenario("move repair")
def _repair(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "RPUSH", keys.broken, "header\none", "header\ntwo")
    fill(keys, link, "a", "1")
    entry = link.run(broken.page(keys)).entries[0]
    return operate.repair(keys, entry, job("id1"))


@scenario("move delete_broken")
def _drop_broken(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "RPUSH", keys.broken, "header\none", "header\ntwo")
    return operate.delete_broken(keys, link.run(broken.page(keys)).entries[0])


@scenario("log_action")
def _log_action(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "LPUSH", keys.audit, "1 {}")
    return audit.log_action(keys, actor="ada", action="purge", subject="a", result="3 jobs deleted")


@scenario("queues")
def _queues(keys: Keys, link: Link) -> Op[Any]:
    _limited(keys, link)
    fill(keys, link, "b", "1")
    return inspect.queues(keys, ["a", "b"])


@scenario("page of a set")
def _page(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "ZADD", keys.dead, 1, "x", 2, "y")
    return inspect.page(keys.dead)


@scenario("page of a list")
def _peek(keys: Keys, link: Link) -> Op[Any]:
    fill(keys, link, "a", "1", "2")
    return inspect.peek(keys, "a")


@scenario("move purge")
def _purge(keys: Keys, link: Link) -> Op[Any]:
    fill(keys, link, "a", _unique_job(keys, link), job("id2"), job("id3"))
    steps = operate.purge(keys, "a", most=2)
    found = next(steps)
    while True:
        assert isinstance(found, Op)
        if isinstance(found.command, Script) and found.command.name == "move":
            return found
        found = steps.send(link.run(found))


@scenario("move revive")
def _revive(keys: Keys, link: Link) -> Op[Any]:
    member = _unique_job(keys, link)
    _do(link, "ZADD", keys.dead, 1, member, 2, "other")
    fill(keys, link, "a", "1")
    return operate.revive(keys, member, now=5.0)


@scenario("seek")
def _seek(keys: Keys, link: Link) -> Op[Any]:
    fill(keys, link, "a", job("id1"), job("id2"))
    return find.seek(keys.queue("a"), [b'"id2"'])


@scenario("watch_queues")
def _watch_queues(keys: Keys, link: Link) -> Op[Any]:
    fill(keys, link, "a", job("id1"))
    _do(link, "HSET", keys.starved, "b", 1)
    return maintain.watch_queues(keys, ["a", "b"], most=60)


@scenario("record_first_seen")
def _record_first_seen(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "HSET", keys.first_seen, keys.queue("b"), 1)
    return maintain.record_first_seen(keys, ["memory_only", keys.queue("a")])


@scenario("check_server")
def _check_server(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "HSET", keys.watch, "run", "0123abc")
    return maintain.check_server(keys, "")


@scenario("pause")
def _pause(keys: Keys, link: Link) -> Op[Any]:
    link.run(operate.pause(keys, "a", actor="ada"))
    found = next(operate.resume(keys, "a", actor="ada"))
    assert isinstance(found, Op)
    return found


@scenario("scan")
def _scan(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "XADD", keys.history("a"), "5-0", "r", '["id1","completed",4,1,2]')
    return history.scan([history.Scan(keys.history("a"))], texts=[b'"id1"'])


@scenario("pause schedule")
def _pause_schedule(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "HSET", keys.periodic, "sched", 100)
    return operate.pause_schedule(keys, "sched", actor="ada")


@scenario("move unqueue")
def _unqueue(keys: Keys, link: Link) -> Op[Any]:
    member = _unique_job(keys, link)
    fill(keys, link, "a", job("id0"), member, job("id2"))
    _do(link, "ZADD", keys.dead, 1, "old")
    return operate.unqueue(keys, "a", member, 1, now=5.0, kill=True)


PART = bin.DeletionPart("d1", 0, "ada", "delete", "a")


def _to_bin(keys: Keys, member: bytes) -> Op[Any]:
    moves = [JobMove(member, place=1, unique_key=keys.unique("a", "u"), job_id="id1")]
    return bin.to_bin(keys, keys.queue("a"), moves, part=PART, total="deleted:a", source_is="queue")


@scenario("to_bin")
def _delete_to_bin(keys: Keys, link: Link) -> Op[Any]:
    member = _unique_job(keys, link)
    fill(keys, link, "a", job("id0"), member, job("id2"))
    other = [JobMove(job("id2"), place=1)]
    link.run(bin.to_bin(keys, keys.queue("a"), other, part=PART, total="deleted:a", source_is="queue"))
    return _to_bin(keys, member)


@scenario("undo")
def _undo(keys: Keys, link: Link) -> Op[Any]:
    member = _unique_job(keys, link)
    fill(keys, link, "a", job("id0"), member, job("id2"))
    link.run(_to_bin(keys, member))
    return bin.undo(keys, PART, link.run(bin.read_part(keys, PART, skip=0, size=10)))


@scenario("undo in scheduled")
def _undo_scheduled(keys: Keys, link: Link) -> Op[Any]:
    _do(link, "ZADD", keys.scheduled, LATER, "later", 1, job("id1"))
    link.run(bin.to_bin(keys, keys.scheduled, [JobMove(job("id1"))], part=PART, total="deleted:a"))
    return bin.undo(keys, PART, link.run(bin.read_part(keys, PART, skip=0, size=10)))


@scenario("reschedule")
def _reschedule(keys: Keys, link: Link) -> Op[Any]:
    member = _unique_job(keys, link)
    _do(link, "ZADD", keys.scheduled, LATER, member, LATER + 1, "other")
    return operate.reschedule(keys, keys.scheduled, member, "at", LATER - 1)


@scenario("lead_watch")
def _lead_watch(keys: Keys, link: Link) -> Op[Any]:
    return alerts.lead_watch(keys, "w1", term=TERM)


@scenario("record_alert")
def _record_alert(keys: Keys, link: Link) -> Op[Any]:
    return alerts.record_alert(keys, ["r1", "r2"], "late|a|", before=b"", after=b"{}", message=b"{}")


@scenario("release")
def _release(keys: Keys, link: Link) -> Op[Any]:
    staged = children.StagedList(keys.staged("p1", "1:a", 0), "b", "now", 0, 0)
    record = msgspec.json.encode(staged)
    _do(link, "RPUSH", staged.key, "1", "2")
    _do(link, "ZADD", keys.released, 1, record)
    return children.release(keys, record)


@scenario("release later")
def _release_later(keys: Keys, link: Link) -> Op[Any]:
    staged = children.StagedList(keys.staged("p1", "1:a", 0), "b", "in", 5000, 60_000)
    record = msgspec.json.encode(staged)
    _do(link, "RPUSH", staged.key, "1", "2")
    _do(link, "ZADD", keys.released, 1, record)
    return children.release(keys, record)


def _children(keys: Keys) -> children.Children:
    """Jobs of a name of the pool and of another, now, later, unique, and with a chosen id."""
    found = children.Children()
    unique = keys.unique("b", "u")
    for name, when, job in (
        ("a", When(), Job("a", id="c1")),
        ("c", When(), Job("c", id="c2")),
        ("c", When("in", 5000), Job("c", id="c3")),
        ("b", When(), Job("b", id="c4", unique_key=unique)),
        ("c", When("at", LATER * 1000), Job("c", id="chosen", unique_key=keys.unique("c", "u"))),
    ):
        payload = f'{{"name":"{name}","id":"{job.id}"}}'.encode()
        found.add([produce.NewJob(job, payload, when, job.id == "chosen", None)])
    return found


@scenario("exchange of an atomic job")
def _exchange_atomic(keys: Keys, link: Link) -> Op[Any]:
    pool = _pool(keys, link, held=1)
    return pool.prepare("a", entries=[Entry("a", "1:a", Done(), children=_children(keys))])


@scenario("exchange of a job that emits")
def _exchange_emits(keys: Keys, link: Link) -> Op[Any]:
    pool = _pool(keys, link, held=2)
    first = StreamPart("1", "a", 1, b"1", begins=True)
    pool.settle(Entry("a", "1:a", Emit(), stream=first))
    return pool.prepare(
        "a",
        entries=[
            Entry("a", "1:a", Done(), stream=StreamPart("1", "a", 1, b"2")),
            Entry("a", "2:a", Emit(), stream=StreamPart("2", "a", 1, b"1", begins=True)),
        ],
    )


@scenario("exchange that stages")
def _exchange_stages(keys: Keys, link: Link) -> Op[Any]:
    pool = _pool(keys, link, held=2)
    one, two = _children(keys), _children(keys)
    while (part := one.next_part()) is not None:
        pool.settle(Entry("a", "1:a", part, children=one))
    return pool.prepare(
        "a",
        entries=[Entry("a", "1:a", Done(), children=one), Entry("a", "2:a", two.next_part(), children=two)],
    )


def _members(keys: Keys, link: Link, slot: int = 1, **chunk: Any) -> batches.MemberChunk:
    """Two jobs of a batch inside another one; the batch is new, and has callbacks."""
    callback = b'{"name":"a","id":"called"}'
    new = batches.NewBatch(
        "what", {"success": callback, "complete": callback + b" ", "dead": callback + b"  "}
    )
    found = [
        produce.NewJob(Job("a", id="m1"), _member_payload("m1"), When(), False, None, None, "inner"),
        produce.NewJob(
            Job("a", id="m2"), _member_payload("m2"), When("in", 5000), False, None, None, "inner"
        ),
    ]
    return batches.MemberChunk(found, ("inner", "outer"), new, **chunk)


def _member_payload(job_id: str) -> bytes:
    return b'{"name":"a","id":"%b","membership":["inner",0],"at":1}' % job_id.encode()


def _outer(keys: Keys, link: Link) -> None:
    outer = batches.MemberChunk(
        [], ("outer",), batches.NewBatch("outer", {"success": b'{"name":"a","id":"out"}'})
    )
    link.run(batches.add_members(keys, Slot("o", 1), outer))


@scenario("add_members")
def _add_members(keys: Keys, link: Link) -> Op[Any]:
    _outer(keys, link)
    return batches.add_members(keys, Slot("s", 1), _members(keys, link, closes=True))


@scenario("change_batch")
def _change_batch(keys: Keys, link: Link) -> Op[Any]:
    _outer(keys, link)
    link.run(batches.add_members(keys, Slot("s", 1), _members(keys, link, closes=True)))
    about = walk(link, batches.read(keys, "inner"))
    assert about is not None
    link.run(batches.change_batch(keys, about, "completed", [0]))
    return batches.change_batch(keys, about, "completed", [1])


def _workflow(keys: Keys, link: Link, slot: int = 1) -> workflows.WorkflowChunk:
    """Three nodes in a row."""
    nodes = workflows.NodeList()
    for n in range(3):
        payload = b'{"name":"a","id":"n%d","membership":["w1",%d],"at":1}' % (n, n)
        job = produce.NewJob(Job("a", id=f"n{n}"), payload, When(), False, None, None, None, "w1")
        nodes.add(workflows.NewNode(job, (n - 1,) if n else ()))
    return workflows.WorkflowChunk("w1", "what", nodes)


@scenario("start_workflow")
def _start_workflow(keys: Keys, link: Link) -> Op[Any]:
    return workflows.start_workflow(keys, Slot("s", 1), _workflow(keys, link))


@scenario("change_workflow")
def _change_workflow(keys: Keys, link: Link) -> Op[Any]:
    link.run(workflows.start_workflow(keys, Slot("s", 1), _workflow(keys, link)))
    link.run(workflows.change_workflow(keys, "w1", "cancel"))
    return workflows.change_workflow(keys, "w1", "retry", 0, dead=[(0, b"dead")])
