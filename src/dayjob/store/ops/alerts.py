"""Alerts: which watcher leads, what was posted, and messages that receivers have not accepted yet."""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.scripts import load

#: Messages that are kept for a receiver, newest first, and seconds for which they are kept after the last one.
MAX_MESSAGES = 100
KEPT_SECONDS = 86_400


def lead_watch(keys: Keys, watcher: str, *, term: float) -> Op[bool]:
    """Take or renew the lease of the watcher that posts; with a term of 0, give it up."""
    return Op(load("lead_watch"), (keys.watcher,), (watcher, int(term * 1000)), bool)


def states(keys: Keys) -> Op[dict[str, bytes]]:
    """The state of every alert that was posted, as it is stored."""
    return Op("HGETALL", (keys.alerts,), (), _read_states)


def _read_states(reply: list[bytes]) -> dict[str, bytes]:
    return {name.decode("utf-8", "replace"): raw for name, raw in zip(reply[::2], reply[1::2], strict=True)}


def record_alert(
    keys: Keys, receivers: Sequence[str], alert: str, *, before: bytes, after: bytes, message: bytes
) -> Op[bool]:
    """Change the state of an alert and keep its message for every receiver; False if its state is not `before` any more."""
    undelivered = [keys.undelivered(receiver) for receiver in receivers]
    args = (alert, before, after, message, MAX_MESSAGES, KEPT_SECONDS)
    return Op(load("record_alert"), (keys.alerts, *undelivered), args, bool)


def next_message(keys: Keys, receiver: str) -> Op[bytes | None]:
    """The oldest message that a receiver has not accepted yet."""
    return Op("LINDEX", (keys.undelivered(receiver),), (-1,), lambda reply: reply)


def drop_message(keys: Keys, receiver: str, message: bytes) -> Op[int]:
    """Remove a message that was accepted or given up."""
    return Op("LREM", (keys.undelivered(receiver),), (-1, message), int)
