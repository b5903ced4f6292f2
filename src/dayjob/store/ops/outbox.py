"""What the relay of an outbox asks Redis: which server this is; and what it publishes for operators."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import msgspec

from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain

#: Seconds that a row may wait before operators are warned.
MAX_UNSENT_SECONDS = 60.0
#: Seconds after which what a relay published counts no more.
PUBLISHED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """What the last relay saw: rows that were not sent, and the age of the oldest, in seconds."""

    unsent: int
    age: float
    at: float


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
    value = msgspec.json.encode(OutboxStatus(unsent, age, time.time()))
    return plain("SET", keys.outbox, value, "EX", PUBLISHED_SECONDS)


def outbox_status(keys: Keys) -> Op[OutboxStatus | None]:
    """What a relay published in the last minute; None if none did."""
    return Op("GET", (), (keys.outbox,), _status)


def _status(reply: Any) -> OutboxStatus | None:
    if reply is None:
        return None
    try:
        return msgspec.json.decode(reply, type=OutboxStatus)
    except (msgspec.MsgspecError, ValueError):
        return None
