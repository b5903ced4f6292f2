"""Worker pools of Go's gocraft/work that share the namespace, as they publish themselves. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.steps import Steps, ask, ask_all

#: How many pools are read: enough to name some.
MAX_POOLS = 20
#: They write a heartbeat every 5 seconds, by the clock of their host, which may differ from that of Redis.
ALIVE_SECONDS = 60.0

_FIELDS = ("heartbeat_at", "host", "pid", "job_names")


@dataclass(frozen=True, slots=True)
class GocraftPool:
    """One live worker pool of gocraft/work."""

    #: `<host>/<process>`.
    place: str
    names: tuple[str, ...]


def gocraft_pools(keys: Keys, now: float) -> Steps[list[GocraftPool]]:
    """The live pools of gocraft/work, by place; 20 at most. `now` is the time of Redis."""
    ids: list[bytes] = yield from ask(
        Op("SRANDMEMBER", (keys.gocraft_pools,), (MAX_POOLS,), lambda reply: list(reply or ()))
    )
    if not ids:
        return []
    rows: list[list[bytes | None]] = yield from ask_all([_heartbeat(keys, one) for one in ids])
    found = (_read(row, now) for row in rows)
    return sorted((one for one in found if one is not None), key=lambda one: one.place)


def _heartbeat(keys: Keys, pool_id: bytes) -> Op[Any]:
    key = keys.gocraft_pool(pool_id.decode("utf-8", "replace"))
    return Op("HMGET", (key,), _FIELDS, lambda reply: reply)


def _read(row: list[bytes | None], now: float) -> GocraftPool | None:
    """A pool; None if its last heartbeat is too old, or is not a time."""
    beat, host, pid, names = ((one or b"").decode("utf-8", "replace") for one in row)
    if not beat.isdecimal() or abs(now - int(beat)) > ALIVE_SECONDS:
        return None
    return GocraftPool(f"{host or 'unknown host'}/{pid}", tuple(filter(None, names.split(","))))
