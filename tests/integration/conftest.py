"""What the tests of running pools share: pools that are stopped after the test, and a look at what Redis holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from dayjob import WorkerPool
from dayjob.handlers.describe import Described
from dayjob.job import new_id
from dayjob.outcome import Emit, NameSuspect
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.ops import consume, job_types, membership
from dayjob.store.ops.consume import Entry, Request, Want
from dayjob.store.ops.streams import StreamPart
from pools import jobs_of

#: For pools whose death, or long silence, is part of the test.
QUICK = {"lease": 1.0, "beat": 0.3}


@pytest.fixture
def new_pool(namespace: str, redis_url: str) -> Iterator[Callable[..., WorkerPool[Any]]]:
    """Make pools in the namespace of this test; they are stopped after it."""
    made: list[WorkerPool[Any]] = []

    def make(*context: type, **options: Any) -> WorkerPool[Any]:
        pool: WorkerPool[Any] = WorkerPool(*context, namespace=namespace, redis=redis_url, **options)
        made.append(pool)
        return pool

    yield make
    for pool in made:
        # Not 0: an exception in a thread that has just ended its job could be raised inside a callback of the interpreter.
        pool.stop(timeout=0.1)
        pool.enqueuer.close()


def payload(name: str, job_id: str, **fields: Any) -> bytes:
    """A job as a program without dayjob would write it: `fields` over a payload without arguments."""
    return msgspec.json.encode({"name": name, "id": job_id, "t": 1, "args": {}, **fields})


class Look:
    """Reads what Redis holds of one namespace."""

    #: Here because tests can ask for a fixture, but not import this file.
    payload = staticmethod(payload)

    def __init__(self, keys: Keys, call: Callable[..., Any]) -> None:
        self.keys = keys
        self.call = call

    def now(self) -> float:
        """Redis time."""
        seconds, micros = self.call("TIME")
        return int(seconds) + int(micros) / 1e6

    def within_a_minute(self, read: Callable[[int], Any]) -> tuple[Any, int]:
        """What `read(minute)` returns, and that minute, where no other minute began meanwhile.

        Otherwise its figures are deleted and it is called again.
        """
        while True:
            minute = int(self.now() // 60)
            found = read(minute)
            if int(self.now() // 60) == minute:
                return found, minute
            self.call("DEL", *self.call("KEYS", self.keys.minute(0).removesuffix("0") + "*"))

    def totals(self) -> dict[str, int]:
        """Every exact total, by `<counter>:<job name>`, but for what was given back.

        On a busy machine a pool gives back what no worker started in time, so that number can always be larger.
        """
        raw = self.call("HGETALL", self.keys.totals)
        found = {k.decode(): int(v) for k, v in zip(raw[::2], raw[1::2], strict=True)}
        return {label: count for label, count in found.items() if not label.startswith("given_back:")}

    def total(self, label: str) -> int:
        return int(self.call("HGET", self.keys.totals, label) or 0)

    def queue(self, name: str) -> list[dict[str, Any]]:
        """The jobs that wait under a name, the next one first."""
        return [
            msgspec.json.decode(raw) for raw in reversed(self.call("LRANGE", self.keys.queue(name), 0, -1))
        ]

    def members(self, key: str) -> list[dict[str, Any]]:
        """The jobs in one of the side sets, lowest score first."""
        return [msgspec.json.decode(raw) for raw in self.call("ZRANGE", key, 0, -1)]

    def scores(self, key: str) -> list[float]:
        return [float(score) for score in self.call("ZRANGE", key, 0, -1, "WITHSCORES")[1::2]]

    def dead(self) -> list[dict[str, Any]]:
        return self.members(self.keys.dead)

    def retry(self) -> list[dict[str, Any]]:
        return self.members(self.keys.retry)

    def pools(self) -> list[str]:
        """Ids of the pools on the register."""
        return [pool.decode() for pool in self.call("ZRANGE", self.keys.pools, 0, -1)]

    def held(self) -> int:
        """How many attempts the pools on the register hold."""
        return sum(self.call("HLEN", self.keys.held(pool)) for pool in self.pools())

    def status(self) -> list[dict[str, Any]]:
        """What the pools on the register say of themselves."""
        raw = [self.call("GET", self.keys.pool(pool)) for pool in self.pools()]
        return [msgspec.json.decode(text) for text in raw if text is not None]

    def workers(self) -> list[dict[str, Any]]:
        """The workers that statuses show one by one."""
        return [worker for status in self.status() for worker in status["workers"]]


@pytest.fixture
def look(keys: Keys, call: Callable[..., Any]) -> Look:
    return Look(keys, call)


@pytest.fixture
def announce(keys: Keys, link: Link) -> Callable[..., None]:
    """Announce job types without options, as a pool that has them does: their arguments are shown then."""

    def announce(*names: str) -> None:
        link.run(job_types.announce(keys, [Described(name) for name in names]))

    return announce


class Ghost:
    """A pool that joined and took jobs, and is never heard of again: what a crash leaves behind."""

    def __init__(self, keys: Keys, link: Link, lease: float) -> None:
        self._keys, self._link, self._lease = keys, link, lease
        self.id = new_id()
        self._number, self._token = 0, 1
        assert link.run(membership.join(keys, self.id, [], lease=lease, term=1.0)).registered
        # It must not lead: nobody would do the chores until its term is over.
        link.run(membership.lead(keys, self.id, term=0.0))

    def take(self, *names: str, room: int = 100) -> list[tuple[str, dict[str, Any]]]:
        """Fetch jobs; the answer is tokens and payloads."""
        jobs = self._exchange([Want(name, 1, fetch=True) for name in names], room=room)
        self._token += len(jobs)
        return [(token, msgspec.json.decode(payload)) for token, _, payload in jobs]

    def suspect(self, token: str) -> None:
        """Name the suspect that is about to run, as pools do."""
        name = consume.name_in(token)
        self._exchange([Want(name, 1, fetch=False)], entries=[Entry(name, token, NameSuspect())])

    def emit(self, token: str, job_id: str, values: bytes) -> None:
        """Emit values as the first attempt of a job."""
        name = consume.name_in(token)
        part = StreamPart(job_id, name, 1, values, begins=True)
        self._exchange([Want(name, 1, fetch=False)], entries=[Entry(name, token, Emit(), stream=part)])

    def die(self) -> None:
        """End its lease now. A ghost that others may find needs a long one until then: the test may be slow."""
        self._link.run(plain("ZADD", self._keys.pools, "XX", 1, self.id))

    def _exchange(self, wants: list[Want], **more: Any) -> list[tuple[str, str, bytes]]:
        self._number += 1
        request = Request(self.id, self._number, self._token, wants, **more)
        reply = self._link.run(consume.exchange(self._keys, request, lease=self._lease, u=0.5))
        assert reply.status == "ok"
        return jobs_of(reply)


@pytest.fixture
def new_ghost(keys: Keys, link: Link) -> Callable[..., Ghost]:
    return lambda lease=0.2: Ghost(keys, link, lease)
