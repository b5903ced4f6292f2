"""Doctor: looks at the server and one namespace for anything that could lose, stop or strand jobs.

A look only: nothing is changed but the server's cache of scripts. No KEYS, no SCAN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from dayjob import text
from dayjob.admin.batch_health import check_batches
from dayjob.admin.findings import Finding, Level, error, ok, unsure, warning
from dayjob.errors import Full, Rejected
from dayjob.explain.obstacles import Fleet
from dayjob.store import scripts
from dayjob.store.keys import Keys
from dayjob.store.ops import health, inspect, job_types, maintain, pools
from dayjob.store.ops.health import Health
from dayjob.store.ops.outbox import MAX_SILENCE_SECONDS, MAX_UNSENT_SECONDS, outbox_status
from dayjob.store.steps import Steps, ask, ask_all

#: Seconds that a clock may be wrong before times on a page mislead.
MAX_CLOCK_OFFSET_SECONDS = 2.0
#: Seconds a dead pool may stay condemned, and a due job may wait to be moved, before something is wrong.
MAX_CONDEMNED_SECONDS = 60.0
MAX_OVERDUE_SECONDS = 10.0

_LOG_ON = "CONFIG SET appendonly yes, and the same in its configuration file"


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


# The server.


def check_version(info: dict[str, str]) -> Finding:
    """Whether the server is Redis or Valkey, and new enough."""
    name = info.get("server_name", "redis").capitalize()
    version = info.get(f"{name.lower()}_version") or info.get("redis_version", "")
    if info.get("dragonfly_version"):
        name, version = "Dragonfly", info["dragonfly_version"]
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not numbers:
        return unsure("server", "the server does not report its version", "use Redis 7.0 or newer, or Valkey")
    what = f"{name} {version}"
    if name == "Redis" and numbers < (7, 0):
        return error("server", f"{what} is too old", "use Redis 7.0 or newer, or Valkey")
    if name not in ("Redis", "Valkey"):
        return warning(
            "server",
            f"{what}: dayjob is tested on Redis and Valkey",
            "try it well, or use Redis or Valkey",
        )
    return ok("server", what)


def check_persistence(server: Health) -> list[Finding]:
    """Which jobs a restart of the server or a power loss would lose."""
    info, config = server.info, server.config
    found: list[Finding] = []
    for field, what in (
        ("aof_last_write_status", "write its log"),
        ("rdb_last_bgsave_status", "save a snapshot"),
    ):
        if info.get(field, "ok") != "ok":
            todo = "look into its log: the disk may be full or read-only"
            found.append(error("persistence", f"the server last failed to {what}", todo))
    logged = info.get("aof_enabled") == "1" if config is None else config.get("appendonly") == "yes"
    if logged:
        found.append(_log_finding(config))
    elif config is None:
        what = "no append-only log; whether snapshots are made could not be checked"
        found.append(
            warning("persistence", what, "ask the host of the server to turn on its append-only log")
        )
    elif config.get("save"):
        what = f"snapshots only (save {config['save']}): a crash loses the jobs since the last one"
        found.append(warning("persistence", what, _LOG_ON))
    else:
        what = "nothing is written to disk: a restart of the server loses every job"
        found.append(error("persistence", what, _LOG_ON))
    return found


def _log_finding(config: dict[str, str] | None) -> Finding:
    sync = None if config is None else config.get("appendfsync")
    if sync is None:
        return ok("persistence", "append-only log (how often it is synced could not be checked)")
    if sync == "no":
        what = "append-only file, synced by the operating system: a power loss may cost half a minute"
        return warning("persistence", what, "CONFIG SET appendfsync everysec")
    cost = (
        "a loss of power may cost the last second or two"
        if sync == "everysec"
        else "nothing is lost with power"
    )
    return ok("persistence", f"append-only log, synced {sync}: {cost}")


def eviction_of(server: Health) -> str:
    """The maxmemory-policy of the server; "" if it is not known."""
    return (server.config or {}).get("maxmemory-policy") or server.info.get("maxmemory_policy", "")


def memory_limit(server: Health) -> int:
    """The maxmemory of the server in bytes; 0 if it has none, or if it is not known."""
    return _int((server.config or {}).get("maxmemory") or server.info.get("maxmemory")) or 0


def memory_only(server: Health) -> bool:
    """Whether the server certainly writes nothing to disk, neither an AOF nor snapshots."""
    return (
        server.config is not None
        and server.config.get("appendonly") == "no"
        and not server.config.get("save", "?")
    )


def check_eviction(server: Health) -> Finding:
    """Whether a full server deletes jobs instead of refusing new ones."""
    policy = eviction_of(server)
    if not policy:
        return unsure(
            "eviction", "the server does not show its maxmemory-policy", "make sure that it is noeviction"
        )
    if policy == "noeviction":
        return ok("eviction", "noeviction: a full server refuses new jobs and keeps the others")
    what = f"maxmemory-policy is {policy}: a full server deletes jobs and leases, without a word"
    return error(
        "eviction", what, "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file"
    )


def check_role(info: dict[str, str]) -> Finding:
    """Whether this is the master, and the state of its replicas."""
    role = info.get("role")
    if role is None:
        return unsure("role", "the server does not show its role", "make sure that it is a master")
    if role != "master":
        master = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        link = info.get("master_link_status", "unknown")
        what = f"this is a replica of {master} (link {link}): it takes no jobs"
        return error("role", what, "connect to the master, or by redis+sentinel://")
    replicas = [_fields(value) for name, value in sorted(info.items()) if re.fullmatch(r"slave\d+", name)]
    away = [one for one in replicas if one.get("state") != "online"]
    if away:
        where = ", ".join(
            f"{one.get('ip', '?')}:{one.get('port', '?')} is {one.get('state', '?')}" for one in away
        )
        what = f"master with {text.counted(len(replicas), 'replica')}, not all in step: {where}"
        return warning("role", what, "a failover now could lose jobs: look after the replica")
    if replicas:
        lag = max(int(one.get("lag", "0")) for one in replicas)
        return ok("role", f"master with {text.counted(len(replicas), 'replica')} in step (lag {lag} s)")
    return ok("role", "master, no replicas")


def _fields(value: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in value.split(","))
    return {name: rest for name, _, rest in pairs}


def check_clock(offset: float) -> Finding:
    """How far this machine's clock is from the server's, by which all times are decided."""
    if abs(offset) <= MAX_CLOCK_OFFSET_SECONDS:
        return ok("clock", f"{abs(offset):.3f} s from this machine's")
    side = "ahead of" if offset > 0 else "behind"
    what = f"the server's clock is {text.span(abs(offset))} {side} this machine's"
    return warning("clock", what, "run NTP on both: jobs follow the server's clock, people read this one")


def check_memory(server: Health) -> Finding:
    """How much memory is used."""
    used = _int(server.info.get("used_memory"))
    if used is None:
        return unsure("memory", "the server does not show its memory", "watch it by other means")
    most = memory_limit(server)
    if not most:
        total = _int(server.info.get("total_system_memory"))
        of = f" of {_bytes(total)} in the machine" if total else ""
        return ok("memory", f"{_bytes(used)} used{of}, no maxmemory")
    share = used / most
    what = f"{_bytes(used)} of {_bytes(most)} used ({share:.0%})"
    todo = "raise maxmemory, or add workers: a full server refuses new jobs"
    level: Level = "error" if share >= 0.95 else "warning" if share >= 0.8 else "ok"
    return Finding(level, "memory", what, "" if level == "ok" else todo)


def check_clients(server: Health) -> Finding:
    """How many connections are open, and the limit."""
    used = _int(server.info.get("connected_clients"))
    most = _int((server.config or {}).get("maxclients") or server.info.get("maxclients"))
    if used is None or not most:
        return unsure("clients", "the server does not show its connections", "watch them by other means")
    what = f"{used:,} of {most:,} connections"
    if used < 0.8 * most:
        return ok("clients", what)
    return warning("clients", what, "raise maxclients, or find out who opens so many (CLIENT LIST)")


def check_cluster(info: dict[str, str], keys: Keys) -> Finding:
    """Whether the keys of this namespace work in a cluster."""
    if info.get("cluster_enabled") != "1":
        return ok("cluster", "no cluster")
    if re.search(r"\{[^}]+\}", keys.prefix):
        return ok("cluster", f"cluster; the namespace {keys.namespace!r} has a hash tag")
    what = f"this is a cluster, and the namespace {keys.namespace!r} has no hash tag: its keys are spread over nodes"
    return error("cluster", what, f"use the namespace {{{keys.namespace}}}, in braces")


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
    what = _some(wrong)
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
        what = "pools disagree about the arguments of " + _some(split)
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
        what = "no live pool has " + _some(
            f"{queue.name} ({text.counted(queue.size, 'job')})" for queue in stray
        )
        return [warning("queues", what, "start a pool that has these jobs, or look for a misspelt name")]
    paused = [queue.name for queue in waiting if queue.paused]
    note = f", paused: {_some(paused)}" if paused else ""
    return [ok("queues", f"{text.counted(sum(queue.size for queue in waiting), 'job')} waiting{note}")]


def _due(keys: Keys, now: float) -> Steps[list[Finding]]:
    late: list[str] = []
    for source in (keys.scheduled, keys.retry):
        oldest = yield from ask(inspect.page(source, size=1))
        if oldest.entries and now - (oldest.entries[0].at or now) > MAX_OVERDUE_SECONDS:
            late.append(f"{source} by {text.span(now - (oldest.entries[0].at or now))}")
    if not late:
        return [ok("due", "no scheduled or retried job is overdue")]
    what = f"jobs are overdue in {_some(late)}"
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
    seen = yield from ask(inspect.broken(keys, size=1))
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


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _bytes(number: int) -> str:
    if number < 1 << 30:
        return f"{number / (1 << 20):.1f} MiB"
    return f"{number / (1 << 30):.1f} GiB"


def _some(texts: Iterable[str]) -> str:
    listed: Sequence[str] = list(texts)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
