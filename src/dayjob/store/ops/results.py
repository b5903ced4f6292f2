"""The results of jobs: reading them, and waiting for them."""

from __future__ import annotations

from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain
from dayjob.store.scripts import load

#: How the value of a result key starts while callers wait for the result. A result is a JSON object.
WAITING = b"waiting "
#: Milliseconds for which a caller is noted. It looks again, and so renews the note, well before that.
NOTE_MS = 60_000


def look_for_result(keys: Keys, job_id: str, channel: str) -> Op[bytes | None]:
    """The result of a job; if there is none yet, it will also be published on `channel`."""
    return Op(load("look_for_result"), (keys.result(job_id),), (channel, NOTE_MS), _read)


def note_waiting(keys: Keys, job_id: str, channel: str) -> Op[Any]:
    """Have the result of a job that is not enqueued yet published on `channel`."""
    note = WAITING + channel.encode()
    return plain("SET", keys.result(job_id), note, "NX", "PX", NOTE_MS)


def read_result(keys: Keys, job_id: str) -> Op[bytes | None]:
    """The result of a job, or None."""
    return Op("GET", (keys.result(job_id),), (), _read)


def _read(reply: Any) -> bytes | None:
    return None if reply is None or reply.startswith(WAITING) else reply
