"""The limits of the client library: redis-py alone, with bytes that are ready. Also a bare wake-up by BLPOP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import msgspec
import redis
import redis.asyncio

from contract import CONFIG, COUNT, FIRST, LONG, NAMES, PATH, URL, aenqueue, enqueue, name_of, record
from dayjob.job import new_id
from dayjob.store import codec


def payloads() -> dict[int, bytes]:
    """What dayjob would have written for the same jobs."""
    more = {"text": LONG} if PATH == "payload" else {}
    return {
        i: codec.write(codec.quoted(name_of(i)), new_id(), 1.7e9, msgspec.json.encode({"i": i, **more}))
        for i in range(FIRST, FIRST + COUNT)
    }


def send() -> None:
    client = redis.Redis.from_url(URL)
    ready = payloads()

    def many(name: str, batch: list[int]) -> None:
        pipeline = client.pipeline(transaction=False)
        for i in batch:
            pipeline.lpush(name, ready[i])
        pipeline.execute()

    enqueue(lambda name, i: client.lpush(name, ready[i]), many)


async def asend() -> None:
    client = redis.asyncio.Redis.from_url(URL)
    ready = payloads()

    async def many(name: str, batch: list[int]) -> None:
        pipeline = client.pipeline(transaction=False)
        for i in batch:
            pipeline.lpush(name, ready[i])
        await pipeline.execute()

    await aenqueue(lambda name, i: client.lpush(name, ready[i]), many)
    await client.aclose()


def work() -> None:
    client = redis.Redis.from_url(URL, socket_timeout=None)
    read: Callable[[bytes], codec.Wire] = codec.read
    while True:
        found = client.blpop(NAMES)
        record(msgspec.json.decode(read(found[1]).args)["i"])


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work()
    elif CONFIG == "async":
        asyncio.run(asend())
    else:
        send()
