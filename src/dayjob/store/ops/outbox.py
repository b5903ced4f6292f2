"""What the relay of an outbox asks Redis: which server this is; and what it publishes for operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain
from dayjob.store.steps import Steps, ask_all

#: Seconds that a row may wait before operators are warned.
MAX_UNSENT_SECONDS = 60.0
#: Seconds after the last report of a relay from which on operators are warned that none may run.
MAX_SILENCE_SECONDS = 60.0
#: Seconds that a report of a relay is kept. Long, so that the end of the last relay shows.
KEPT_SECONDS = 86_400


class OutboxReport(msgspec.Struct):
    """What a relay publishes: rows that were not sent, and the age of the oldest, in seconds."""

    unsent: int
    age: float


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """What the last relay found, and what follows from its silence."""

    #: Rows that were not sent, and the age of the oldest now, in seconds.
    unsent: int = 0
    age: float = 0.0
    #: Seconds since a relay last reported.
    silence: float = 0.0


def server_identity() -> Op[str]:
    """The run id of the server: a new one after a restart, and another one after a failover."""
    return Op("INFO", (), ("server",), _run_id)


def _run_id(reply: Any) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "run_id":
            return value.strip()
    return ""


def publish_outbox(keys: Keys, unsent: int, age: float) -> Op[Any]:
    """Publish how many rows of the outbox were not sent, and the age of the oldest."""
    value = msgspec.json.encode(OutboxReport(unsent, age))
    return plain("SET", keys.outbox, value, "EX", KEPT_SECONDS)


def outbox_status(keys: Keys) -> Steps[OutboxStatus | None]:
    """What the last relay of a day published; None if none did."""
    raw, left = yield from ask_all([plain("GET", keys.outbox), plain("PTTL", keys.outbox)])
    if raw is None:
        return None
    try:
        found = msgspec.json.decode(raw, type=OutboxReport)
    except (msgspec.MsgspecError, ValueError):
        return None
    # The rest of the key's life gives the age of the report by the clock of Redis.
    silence = max(0.0, KEPT_SECONDS - left / 1000)
    return OutboxStatus(found.unsent, found.age + silence if found.unsent else 0.0, silence)
