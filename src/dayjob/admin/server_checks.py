"""Checks of the server as a whole: version, persistence, eviction, role, clock, memory, connections, cluster.

They judge what was read before, and read nothing themselves.
"""

from __future__ import annotations

import re

from dayjob import text
from dayjob.admin.findings import Finding, FindingLevel, error, ok, unsure, warning
from dayjob.store.keys import Keys
from dayjob.store.ops.health import Health

#: Seconds that a clock may be wrong before times on a page mislead.
MAX_CLOCK_OFFSET_SECONDS = 2.0

_LOG_ON = "CONFIG SET appendonly yes, and the same in its configuration file"


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
    level: FindingLevel = "error" if share >= 0.95 else "warning" if share >= 0.8 else "ok"
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


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _bytes(number: int) -> str:
    if number < 1 << 30:
        return f"{number / (1 << 20):.1f} MiB"
    return f"{number / (1 << 30):.1f} GiB"
