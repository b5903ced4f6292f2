"""Writes that put exported jobs back."""

from __future__ import annotations

from collections.abc import Sequence

from dayjob.store.op import Arg, Op


def restore(source: str, entries: Sequence[tuple[float, bytes]]) -> Op[int]:
    """Add entries, each a score and a payload, to scheduled, retry or dead; the answer is how many are new."""
    flat: list[Arg] = []
    for score, payload in entries:
        flat += (repr(score), payload)
    return Op("ZADD", (source,), flat, int)


def claim(key: str, job_id: str, seconds: int) -> Op[bool]:
    """Make a job the owner of a unique key for so many seconds; false if another job owns the key."""
    return Op("SET", (key,), (job_id, "NX", "EX", seconds), lambda reply: reply is not None)
