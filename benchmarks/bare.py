"""The ceiling: one process that does nothing but the exchange script, decode and call. No pool, no leases kept.

It runs the jobs of one answer while the next exchange is under way, as a pool does, on a single thread.
"""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Any

import msgspec

from contract import NAMES, URL, record
from dayjob.job import new_id
from dayjob.store import addresses, codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link, words
from dayjob.store.ops import consume, membership
from dayjob.store.ops.consume import Request, Want

#: Long enough for any measurement: nobody renews it.
LEASE = 3600.0


class Arguments(msgspec.Struct):
    i: int


def main() -> None:
    keys, pool_id = Keys("bench"), new_id()
    link = Link(addresses.parse_url(URL), tag=keys.known_jobs, name="bare")
    link.run(membership.join(keys, pool_id, NAMES, lease=LEASE, term=0.001))
    wants = [Want(name, 1, fetch=True) for name in NAMES]
    arguments = msgspec.json.Decoder(Arguments).decode
    handlers = dict.fromkeys(NAMES, record)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    number, token = 0, 1
    jobs: list[tuple[str, str, bytes]] = []
    done: dict[str, list[str]] = {}
    connection: Any = None
    while True:
        number += 1
        request = Request(pool_id, number, token, wants, room=consume.MAX_FETCHED, done=done)
        op = consume.exchange(keys, request, lease=LEASE, u=0.5)
        if connection is None:
            # The first exchange goes the long way: it teaches the server the script.
            reply = link.run(op)
            connection, done = link._open(), {}
        else:
            connection.send_command(*words(op), check_health=False)
            done = {}
            for name_token, name, payload in jobs:
                wire = codec.read(payload)
                handlers[name](arguments(wire.args).i)
                done.setdefault(name, []).append(name_token)
            reply = op.read(connection.read_response())
        jobs = [
            (name_token, batch.name, payload)
            for batch in reply.batches
            for name_token, payload in zip(batch.tokens, batch.payloads, strict=True)
        ]
        token += len(jobs)
        if not jobs and not done:
            time.sleep(0.002)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
