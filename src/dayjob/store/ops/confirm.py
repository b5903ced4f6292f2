"""Durability: waits until what a connection wrote has reached replicas or the server's disk.

WAIT and WAITAOF only cover writes of the connection they are sent on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from dayjob.errors import Rejected, StoreError, Unavailable, Unknown
from dayjob.option_checks import Durability
from dayjob.store.op import Op, plain
from dayjob.store.ops.produce import Stored
from dayjob.store.steps import Steps, ask

if TYPE_CHECKING:
    from dayjob.store.async_link import AsyncLink
    from dayjob.store.link import Link

#: Seconds within which enough replicas must respond before the first job is stored.
REPLICA_CHECK_SECONDS = 0.25


class Confirmed(msgspec.Struct, frozen=True):
    """A step that sends an op, and waits on the same connection until what it wrote is safe."""

    op: Op[Stored]
    proof: Op[int]
    patience: float

    def run(self, link: Link) -> tuple[Stored, int | StoreError]:
        """Run it over a link."""
        return link.run_confirmed(self.op, self.proof, self.patience)

    async def arun(self, link: AsyncLink) -> tuple[Stored, int | StoreError]:
        """Run it over an async link."""
        return await link.run_confirmed(self.op, self.proof, self.patience)


def store_durably(
    op: Op[Stored], wanted: Durability, known: set[Durability], deadline: float, timeout: float
) -> Steps[Stored]:
    """Send a request that stores jobs, and wait until `deadline` for them to have the wanted durability.

    `known` are the durabilities that the server can confirm, as far as they were checked. Raises Unknown if this one was
    not confirmed within `timeout`, and Unavailable if a resend may confirm it.
    """
    if wanted not in known:
        yield from _check_able(wanted)
        known.add(wanted)
    left = max(deadline - time.monotonic(), 0.001)
    stored: Stored
    stored, answer = yield Confirmed(op, confirm(wanted, left), left)
    if isinstance(answer, StoreError):
        known.discard(wanted)
    if not stored.stored:
        return stored  # a duplicate: this call wrote no job that could be lost
    if isinstance(answer, Unavailable):
        raise Unavailable(str(answer), sent=True)
    if isinstance(answer, StoreError):
        raise Unknown(f"stored, but not confirmed: {answer} (repeat() is safe)")
    if not _enough(wanted, answer):
        raise Unknown(f"{_shortfall(wanted, answer, timeout)} (repeat() waits again and is safe)")
    return stored


def confirm(wanted: Durability, seconds: float) -> Op[int]:
    """Wait until the last write of this connection has the wanted durability.

    Returns the number of replicas that have it, or for the disk 1 or 0.
    """
    # A timeout of 0 would wait for ever.
    patience = max(1, int(seconds * 1000))
    if wanted.disk:
        return Op("WAITAOF", (), (1, 0, patience), _read_disk)
    return Op("WAIT", (), (wanted.replicas, patience), int)


def _enough(wanted: Durability, count: int) -> bool:
    """Whether the answer of `confirm` reaches the wanted durability."""
    return count >= (1 if wanted.disk else wanted.replicas)


def _shortfall(wanted: Durability, count: int, seconds: float) -> str:
    """The message for a job that is stored but was not confirmed in time."""
    if wanted.disk:
        return f"stored, but not known to be on the server's disk within {seconds:g} s"
    return f"stored, but confirmed by {count} of {wanted.replicas} replicas within {seconds:g} s"


def _check_able(wanted: Durability) -> Steps[None]:
    """Check that the server can confirm this durability, before the first job is stored. Raises Rejected and Unavailable."""
    try:
        count = yield from ask(confirm(wanted, 0.001 if wanted.disk else REPLICA_CHECK_SECONDS))
    except Unavailable as error:
        raise Unavailable(str(error)) from error  # sent=False, because no job was sent yet
    except Rejected as error:
        raise _refused(wanted, f"{error}. {_todo(str(error))}") from error
    if wanted.disk:
        yield from _check_disk(wanted)
    elif not _enough(wanted, count):
        raise Unavailable(
            f"durability='{wanted}': {count} replicas of the server respond; nothing was stored. "
            "Check the replicas (`dayjob doctor` shows them), or ask for fewer."
        )


def _check_disk(wanted: Durability) -> Steps[None]:
    """Refuse a server whose answer to WAITAOF does not prove that the data is on disk.

    With `appendfsync everysec`, Redis before 8.0 and all versions of Valkey answer once the log is written, before it is
    synced.
    """
    try:
        policy = (yield from ask(plain("CONFIG", "GET", "appendfsync")))[1].decode()
    except Rejected:
        policy = ""
    if policy == "always":
        return  # the server syncs its log before it answers a write
    if policy == "no":
        raise _refused(
            wanted, "The server leaves syncing its log to the system (appendfsync no): set it to always"
        )
    info = dict(
        line.partition(":")[::2] for line in (yield from ask(plain("INFO", "server"))).decode().split("\r\n")
    )
    if info.get("server_name", "redis") == "redis" and int(info["redis_version"].partition(".")[0]) >= 8:
        return
    if not policy:
        raise _refused(
            wanted, "dayjob cannot read how the server syncs its log: let this user CONFIG GET appendfsync"
        )
    raise _refused(
        wanted,
        f"With appendfsync {policy}, only Redis 8.0 and newer confirm that data is on disk: set it to always",
    )


def _todo(text: str) -> str:
    if "unknown command" in text:
        return "The server has no WAITAOF: use Redis 7.2 or newer or Valkey, or 'replicas:1'"
    if "appendonly is disabled" in text:
        return "The server keeps no append-only file: set appendonly yes, or use 'replicas:1'"
    return "Make sure that this user may use WAIT and WAITAOF"


def _refused(wanted: Durability, why: str) -> Rejected:
    return Rejected(f"durability='{wanted}': nothing was stored. {why}.")


def _read_disk(reply: Any) -> int:
    local: int = reply[0]
    return local
