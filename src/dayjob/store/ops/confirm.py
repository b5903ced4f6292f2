"""Confirming: how far what a connection wrote has come, to replicas or to the disk.

Both commands speak of the last write of the connection they are sent on, and of nothing else.
"""

from __future__ import annotations

from typing import Any

from dayjob.errors import Rejected, Unavailable
from dayjob.options import Durability
from dayjob.store.op import Op, plain
from dayjob.store.steps import Steps, ask

#: Seconds that a server is given to show that it has the replicas.
REPLICA_CHECK_SECONDS = 0.25


def confirm(wanted: Durability, seconds: float) -> Op[int]:
    """Wait until the last write of this connection is as safe as wanted: how many replicas, or 1 for the disk, have it."""
    # 0 would mean for ever.
    patience = max(1, int(seconds * 1000))
    if wanted.disk:
        return Op("WAITAOF", (), (1, 0, patience), _read_disk)
    return Op("WAIT", (), (wanted.replicas, patience), int)


def enough(wanted: Durability, count: int) -> bool:
    """Whether so many are enough."""
    return count >= (1 if wanted.disk else wanted.replicas)


def shortfall(wanted: Durability, count: int, seconds: float) -> str:
    """What to say when a job is stored and was not confirmed in time."""
    if wanted.disk:
        return f"stored, but not known to be on the server's disk within {seconds:g} s"
    return f"stored, but confirmed by {count} of {wanted.replicas} replicas within {seconds:g} s"


def able(wanted: Durability) -> Steps[None]:
    """Make sure that the server can confirm at all, before the first job is stored. Raises Rejected and Unavailable."""
    try:
        count = yield from ask(confirm(wanted, 0.001 if wanted.disk else REPLICA_CHECK_SECONDS))
    except Unavailable as error:
        raise Unavailable(str(error)) from error  # nothing but the question was sent
    except Rejected as error:
        raise _refused(wanted, f"{error}. {_todo(str(error))}") from error
    if wanted.disk:
        yield from _check_disk(wanted)
    elif not enough(wanted, count):
        raise Unavailable(
            f"durability='{wanted}': the server has {count} replicas in reach; nothing was stored. "
            "Look after its replicas (`dayjob doctor` shows them), or ask for fewer."
        )


def _check_disk(wanted: Durability) -> Steps[None]:
    """Refuse a server whose word on its disk is worth nothing.

    Redis before 8.0, and Valkey to this day, let WAITAOF answer as soon as a log that is synced every second is
    written, before it is synced.
    """
    try:
        policy = (yield from ask(plain("CONFIG", "GET", "appendfsync")))[1].decode()
    except Rejected:
        policy = ""
    if policy == "always":
        return  # synced before any answer
    if policy == "no":
        raise _refused(wanted, "It never says when its log is synced (appendfsync no): set it to always")
    told = dict(
        line.partition(":")[::2] for line in (yield from ask(plain("INFO", "server"))).decode().split("\r\n")
    )
    if told.get("server_name", "redis") == "redis" and int(told["redis_version"].partition(".")[0]) >= 8:
        return
    if not policy:
        raise _refused(wanted, "How it syncs its log cannot be told: let this user CONFIG GET appendfsync")
    raise _refused(
        wanted,
        f"With appendfsync {policy} only Redis 8.0 and newer can be believed when it says that its disk has something: set it to always",
    )


def _todo(text: str) -> str:
    if "unknown command" in text:
        return "It has no WAITAOF: use Redis 7.2 or newer or Valkey, or 'replicas:1'"
    if "appendonly is disabled" in text:
        return "It keeps no append-only file: set appendonly yes, or use 'replicas:1'"
    return "Make sure that this user may use WAIT and WAITAOF"


def _refused(wanted: Durability, why: str) -> Rejected:
    return Rejected(f"durability='{wanted}': nothing was stored. {why}.")


def _read_disk(reply: Any) -> int:
    local: int = reply[0]
    return local
