"""Doctor: checks the server and one namespace for anything that could lose, stop or strand jobs.

It only reads, except that it loads scripts into the cache of the server. It uses neither KEYS nor SCAN.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from dayjob import text
from dayjob.admin.batch_health import check_batches
from dayjob.admin.findings import Finding, error, ok, unsure, warning
from dayjob.admin.gocraft_health import check_gocraft
from dayjob.admin.server_checks import (
    check_clients,
    check_clock,
    check_cluster,
    check_eviction,
    check_memory,
    check_persistence,
    check_role,
    check_version,
)
from dayjob.errors import Full, Rejected
from dayjob.explain.obstacles import Fleet
from dayjob.store import scripts
from dayjob.store.keys import Keys
from dayjob.store.ops import broken, health, inspect, job_types, maintain, pools
from dayjob.store.ops.health import Health
from dayjob.store.ops.outbox import MAX_SILENCE_SECONDS, MAX_UNSENT_SECONDS, outbox_status
from dayjob.store.steps import Steps, ask, ask_all

#: Seconds a dead pool may stay condemned, and a due job may wait to be moved, before something is wrong.
MAX_CONDEMNED_SECONDS = 60.0
MAX_OVERDUE_SECONDS = 10.0


def examine(keys: Keys, clock: Callable[[], float]) -> Steps[list[Finding]]:
    """Make all checks. Raises StoreError only when the server cannot be reached at all."""
    before = clock()
    now = yield from ask(inspect.now())
    offset = now - (before + clock()) / 2
    found = yield from _server(keys, offset)
    for look in (
        _scripts,
        _keys,
        _namespace,
        _pools,
        _queues,
        _due,
        _failed,
        _broken,
        check_outbox,
        check_batches,
        check_gocraft,
    ):
        found += yield from _safely(look, keys, now)
    return found


def _server(keys: Keys, offset: float) -> Steps[list[Finding]]:
    try:
        server = yield from health.health()
    except Rejected as refusal:
        return [*(yield from _without_info(refusal)), check_clock(offset)]
    return [
        check_version(server.info),
        *check_persistence(server),
        check_eviction(server),
        check_role(server.info),
        check_clock(offset),
        check_memory(server),
        check_clients(server),
        check_cluster(server.info, keys),
    ]


def _without_info(refusal: Rejected) -> Steps[list[Finding]]:
    """The findings for a server that refuses INFO."""
    what = f"INFO is refused ({refusal}): version, role, memory, clients and cluster were not checked"
    found = [unsure("server", what, "allow it: ACL SETUSER <user> +info")]
    try:
        settings = yield from ask(health.config())
    except Rejected as also:
        what = f"CONFIG GET is refused ({also})"
        todo = "allow it: ACL SETUSER <user> +config|get"
        return [*found, unsure("persistence", what, todo), unsure("eviction", what, todo)]
    server = Health({}, settings, None)
    return [*found, *check_persistence(server), check_eviction(server)]


Look = Callable[[Keys, float], Generator[Any, Any, list[Finding]]]


def _safely(look: Look, keys: Keys, now: float) -> Steps[list[Finding]]:
    """Make one check. If the server refuses it, that is a finding, and the other checks go on."""
    topic = look.__name__.removeprefix("check").strip("_")
    try:
        return (yield from look(keys, now))
    except Rejected as refusal:
        return [
            unsure(topic, str(refusal), "allow this user the commands and keys of dayjob, and look again")
        ]


# The namespace.


def _scripts(keys: Keys, now: float) -> Steps[list[Finding]]:  # noqa: ARG001 - one shape for all looks
    names = scripts.all_names()
    for name in names:
        try:
            yield from ask(health.load_script(name))
        except Full:
            what = "the server is out of memory and takes no scripts"
            return [error("scripts", what, "raise maxmemory, or let workers drain it")]
        except Rejected as refusal:
            what = f"the script {name} cannot be loaded: {refusal}"
            return [error("scripts", what, "allow this user EVAL, EVALSHA and SCRIPT LOAD")]
    return [ok("scripts", f"all {len(names)} load")]


def _keys(keys: Keys, now: float) -> Steps[list[Finding]]:  # noqa: ARG001 - one shape for all looks
    expected = _expected_types(keys)
    if (yield from ask(health.type_of(keys.known_jobs))) in ("set", "none"):
        for name in (yield from ask(maintain.known_jobs(keys))):
            queue, _, held, bell = keys.of_name(name)
            expected |= {queue: "list", held: "set", bell: "zset"}
            expected |= dict.fromkeys((keys.turns(name), keys.blocked(name), keys.debts(name)), "zset")
            expected[keys.key_settings(name)] = "hash"
    wrong: list[str] = []
    wanted = list(expected)
    for first in range(0, len(wanted), 600):
        batch = wanted[first : first + 600]
        kinds = yield from ask_all([health.type_of(key) for key in batch])
        wrong += [
            f"{key} is a {kind}, not a {expected[key]}"
            for key, kind in zip(batch, kinds, strict=True)
            if kind not in ("none", expected[key])
        ]
    if not wrong:
        return [ok("keys", f"{text.counted(len(wanted), 'key')} checked, all of the right type")]
    what = text.listed(wrong)
    return [
        error("keys", what, "another program writes here: give each a namespace, then RENAME or DEL the key")
    ]


def _expected_types(keys: Keys) -> dict[str, str]:
    return {
        keys.known_jobs: "set", keys.scheduled: "zset", keys.retry: "zset", keys.dead: "zset", keys.done: "zset",
        keys.pools: "zset", keys.condemned: "zset", keys.watch: "hash", keys.limits: "hash", keys.periodic: "hash",
        keys.totals: "hash", keys.due: "zset", keys.leader: "string", keys.broken: "list",
        keys.audit: "list", keys.job_types: "hash",
    }  # fmt: skip


def _pools(keys: Keys, now: float) -> Steps[list[Finding]]:
    registered = yield from pools.pools(keys)
    condemned = yield from pools.condemned(keys)
    leader = yield from ask(pools.leader(keys))
    live = [pool for pool in registered if pool.lease > 0]
    found: list[Finding] = []
    if not live:
        found.append(
            warning("pools", "no pool is running: jobs wait", "start one: dayjob worker app.jobs:pool")
        )
    else:
        workers = sum(pool.status.concurrency for pool in live if pool.status)
        found.append(ok("pools", f"{len(live)} running, {text.counted(workers, 'worker')}"))
        todo = "if this stays so for five seconds, look into the logs of the pools"
        good = ok("leader", f"pool {leader} does the chores")
        found.append(good if leader else warning("leader", "no pool does the chores at this moment", todo))
    versions = sorted({pool.status.version for pool in live if pool.status and pool.status.version})
    if len(versions) > 1:
        what = f"pools of several versions: {', '.join(versions)}"
        found.append(warning("versions", what, "fine while a deploy is under way, else restart the older"))
    found += _workers(live, now)
    stale = [one for one in condemned if now - one.since > MAX_CONDEMNED_SECONDS]
    if stale:
        what = f"{text.counted(len(stale), 'dead pool')} not swept for {text.span(now - stale[0].since)}, with {text.counted(sum(one.held for one in stale), 'attempt')}"
        found.append(
            error("condemned", what, "start a pool of the same jobs: their attempts are rescued by it")
        )
    return found


def _workers(live: Sequence[pools.Pool], now: float) -> list[Finding]:
    """Stuck workers, and pools whose settings contradict each other."""
    found: list[Finding] = []
    statuses = [pool.status for pool in live if pool.status]
    stuck = [status for status in statuses if status.stuck]
    if stuck:
        what = f"{text.counted(sum(status.stuck for status in stuck), 'worker')} stuck past the timeout"
        todo = f"dayjob pools stacks {stuck[0].id} shows where; restarting that process frees its workers"
        found.append(warning("workers", what, todo))
    for status in statuses:
        if status.loop_blocked is not None:
            block = status.loop_blocked
            what = f"the event loop of {status.host}/{status.pid} has been blocked for {text.span(now - block.since)}"
            what += f" by {block.name} (id {block.id})" if block.name else ""
            found.append(
                warning("event loop", what, "await what takes long there, or make it a plain function")
            )
    split = pools.contradictions(live)
    if split:
        what = "pools disagree about the arguments of " + text.listed(list(split))
        todo = "fine while a deploy is under way; else give each program a namespace, or bring both to the same code"
        found.append(warning("arguments", what, todo))
    return found


def _queues(keys: Keys, now: float) -> Steps[list[Finding]]:  # noqa: ARG001 - one shape for all looks
    overview = yield from inspect.all_queues(keys)
    fleet = Fleet((yield from pools.pools(keys)))
    waiting = [queue for queue in overview.queues if queue.size]
    if not fleet.pools:
        total = sum(queue.size for queue in waiting)
        return [
            ok(
                "queues",
                f"{text.counted(total, 'job')} waiting in {text.counted(len(waiting), 'queue')}",
            )
        ]
    if fleet.unreported:
        return [unsure("queues", "a pool has not reported its jobs yet", "look again in five seconds")]
    stray = [queue for queue in waiting if not fleet.having(queue.name)]
    if stray:
        what = "no live pool has " + text.listed(
            [f"{queue.name} ({text.counted(queue.size, 'job')})" for queue in stray]
        )
        return [warning("queues", what, "start a pool that has these jobs, or look for a misspelt name")]
    paused = [queue.name for queue in waiting if queue.paused]
    note = f", paused: {text.listed(paused)}" if paused else ""
    return [ok("queues", f"{text.counted(sum(queue.size for queue in waiting), 'job')} waiting{note}")]


def _due(keys: Keys, now: float) -> Steps[list[Finding]]:
    late: list[str] = []
    for source in (keys.scheduled, keys.retry):
        oldest = yield from ask(inspect.page(source, size=1))
        if oldest.entries and now - (oldest.entries[0].at or now) > MAX_OVERDUE_SECONDS:
            late.append(f"{source} by {text.span(now - (oldest.entries[0].at or now))}")
    if not late:
        return [ok("due", "no scheduled or retried job is overdue")]
    what = f"jobs are overdue in {text.listed(late)}"
    return [error("due", what, "start a pool, or look into the log of the leader")]


def _namespace(keys: Keys, now: float) -> Steps[list[Finding]]:  # noqa: ARG001 - one shape for all looks
    names = yield from ask(maintain.known_jobs(keys))
    announced = yield from ask(job_types.names(keys))
    live = yield from ask(pools.leases(keys))
    if not names and not announced and not live:
        what = (
            f"the namespace {keys.namespace!r} is unused: no pool has started, and nothing was ever enqueued"
        )
        return [warning("namespace", what, "check --namespace and --redis, if that is a surprise")]
    types = text.counted(len(announced), "job type")
    return [ok("namespace", f"{text.counted(len(names), 'job name')} known, {types} announced by pools")]


def _failed(keys: Keys, now: float) -> Steps[list[Finding]]:  # noqa: ARG001 - one shape for all looks
    sizes = yield from inspect.sizes(keys)
    what = f"{max(sizes.retry, 0):,} in retry, {max(sizes.dead, 0):,} dead"
    if sizes.dead <= 0:
        return [ok("failures", what)]
    todo = "dayjob dead groups shows why; then dayjob dead retry-all or delete-all"
    return [warning("failures", what, todo)]


def _broken(keys: Keys, now: float) -> Steps[list[Finding]]:  # noqa: ARG001 - one shape for all looks
    seen = yield from ask(broken.page(keys, size=1))
    if not seen.total:
        return [ok("broken", "no entry that could not be read")]
    what = f"{seen.total:,} {'entry' if seen.total == 1 else 'entries'} could not be read, the oldest: {seen.entries[0].why[:100] or 'unknown'}"
    return [
        warning(
            "broken",
            what,
            f"`dayjob jobs ls --state broken{_named(keys)}` shows them; find out who writes such jobs",
        )
    ]


# Words.


def check_outbox(keys: Keys, now: float) -> Steps[list[Finding]]:  # noqa: ARG001 - one shape for all looks
    """What the relays of an outbox reported; nothing without one."""
    status = yield from outbox_status(keys)
    if status is None:
        return []
    if status.silence > MAX_SILENCE_SECONDS:
        what = f"no relay has read the outbox for {text.span(status.silence)}; rows may wait to be sent"
        return [
            error("outbox", what, "start a pool that reaches its database, or dayjob relay app.jobs:pool")
        ]
    if status.age > MAX_UNSENT_SECONDS:
        what = f"{text.counted(status.unsent, 'row')} not sent, the oldest for {text.span(status.age)}"
        return [
            error("outbox", what, "read the log of the relay, in a pool or of dayjob relay app.jobs:pool")
        ]
    return [ok("outbox", f"{text.counted(status.unsent, 'row')} not sent yet, and a relay runs")]


def _named(keys: Keys) -> str:
    """The option that names the namespace to a command; "" for the default one."""
    return "" if keys.namespace == "dayjob" else f" --namespace {keys.namespace}"
