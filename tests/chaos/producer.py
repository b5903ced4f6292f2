"""A producer: one process that enqueues in every way there is, and writes down what it was told.

It takes orders on its standard input: go, pause (answered "paused" once nothing is in doubt), quit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chaos.jobs import CANARY, MAX_BULK, TENANTS, digest
from dayjob import AsyncEnqueuer, Enqueuer
from dayjob.errors import StoreError, Unavailable, Unknown
from faults.ledger import Ledger

#: Arguments that a careless encoder would change.
DATA = (
    None, [], {}, 9007199254740993, 2**63, -0.5, 1e-300, "é\u2028\U0001f980", {"a": [[], {}, ""], "b": None}, [1, 2.0, "3"],
    True, "", {"": ""}, -(2**53) - 1, [[[]]],
)  # fmt: skip
PLANS = ("ok",) * 10 + ("fail 1", "fail 2", "fail 4", "snooze 1", "discard", "dead")
#: How many jobs go in one bulk call, and how many may wait at most.
BATCH, BACKLOG = 5000, 100_000
#: Tasks of the asynchronous producer that enqueue at the same time.
TASKS = 4


class Orders:
    """What the harness says."""

    def __init__(self) -> None:
        self.going = threading.Event()
        #: A pause was asked for and has not been answered.
        self.pausing = False
        self.quitting = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            word = line.strip()
            if word == "go":
                self.going.set()
            elif word == "pause":
                self.going.clear()
                self.pausing = True
            elif word == "quit":
                break
        self.quitting = True
        self.going.set()


class Call:
    """One enqueue: a name, arguments, and how."""

    def __init__(self, rng: random.Random, serial: str) -> None:
        self.serial = serial
        data, plan = rng.choice(DATA), rng.choice(PLANS)
        self.unique = ""
        self.delay: float | None = None
        seconds = rng.choice((0.0, 0.0, 0.0, 0.01, 0.05, 0.3, 1.2))
        kinds = {
            "note": 30,
            "anote": 30,
            "narrow": 12,
            "metered": 10,
            "costly": 8,
            "windowed": 8,
            "tenant_work": 5,
            "tenant_call": 5,
            "tenant_visit": 5,
            "once": 20,
            "later": 20,
            "secret": 2,
            "heavy": 3,
            "spawn": 3,
        }
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        more: dict[str, Any] = {}
        if kind in ("note", "anote"):
            more["seconds"] = seconds
        elif kind == "heavy":
            more["size"] = rng.choice((0, 10_000, 150_000))
        elif kind == "spawn":
            plan = "ok"
        elif kind in ("narrow", "windowed", "tenant_work", "tenant_visit"):
            plan, more["seconds"] = "ok", rng.choice((0.0, 0.02, 0.1))
        elif kind in ("metered", "tenant_call"):
            plan = rng.choice(("ok", "ok", "ok", "fail 1", "fail 4"))
        elif kind == "costly":
            plan = "ok"
        elif kind in ("once", "later"):
            plan = rng.choice(("ok", "ok", "ok", "discard", "dead"))
            self.delay = rng.uniform(0.05, 3.0) if kind == "later" or rng.random() < 0.3 else None
            if kind == "once":
                self.unique = f"key{rng.randrange(12)}"
        else:
            plan, more["password"] = "fail 1", f"{CANARY}-{rng.randrange(10**6)}"
        if kind.startswith("tenant"):
            more["tenant"] = rng.choice(TENANTS)
        self.name, self.plan, self.data = kind, plan, data
        self.args = {"serial": serial, "plan": plan, "data": data, **more}

    def asked(self) -> dict[str, Any]:
        return {
            "serial": self.serial, "name": self.name, "plan": self.plan, "digest": digest(self.data), "unique": self.unique,
        }  # fmt: skip

    def send(self, enqueuer: Any, rng: random.Random) -> Any:
        """Call the method that does it; the answer, or what to await for it."""
        if self.unique:
            chosen = enqueuer.using(unique_key=self.unique)
            if self.delay is not None:
                return chosen.enqueue_unique_in(self.name, self.delay, **self.args)
            return chosen.enqueue_unique(self.name, **self.args)
        if self.delay is None:
            chosen = enqueuer.using(id=f"id-{self.serial}") if rng.random() < 0.1 else enqueuer
            return chosen.enqueue(self.name, **self.args)
        if rng.random() < 0.5:
            when = datetime.now(UTC) + timedelta(seconds=self.delay)
            return enqueuer.enqueue_at(self.name, when, **self.args)
        return enqueuer.enqueue_in(self.name, self.delay, **self.args)


def note_answer(ledger: Ledger, call: Call, job: Any) -> None:
    """Write down that it was stored, or a duplicate."""
    if job is None:
        ledger.write("duplicate", serial=call.serial)
    else:
        ledger.write("stored", serial=call.serial, job=job.id, due=job.scheduled_at or 0.0)


def is_refusal(error: StoreError) -> bool:
    """Whether nothing was stored, for certain."""
    return not isinstance(error, Unknown) and not (isinstance(error, Unavailable) and error.sent)


class Producer:
    """What both colours share."""

    def __init__(self, number: int, seed: int, url: str, namespace: str, rate: float) -> None:
        self.number, self.url, self.namespace, self.rate = number, url, namespace, rate
        self.rng = random.Random(f"{seed}/{number}")
        self.ledger = Ledger(Path(os.environ["CHAOS_FOLDER"]), f"producer{number}")
        self.orders = Orders()
        self.count = 0

    def next_call(self) -> Call:
        self.count += 1
        return Call(self.rng, f"{self.number}/{self.count}")

    def say(self, word: str) -> None:
        sys.stdout.write(word + "\n")
        sys.stdout.flush()


class SyncProducer(Producer):
    """One call after another; and in between ranges of thousands."""

    def __init__(self, *args: Any, bulk: int) -> None:
        super().__init__(*args)
        self.enqueuer = Enqueuer(self.namespace, redis=self.url, timeout=1.0)
        self.most = bulk
        self.sent = 0
        self._open: Callable[[], Any] | None = None

    def run(self) -> None:
        bulk = threading.Thread(target=self._bulk_loop, daemon=True) if self.most else None
        if bulk is not None:
            bulk.start()
        while not self.orders.quitting:
            if not self.orders.going.is_set():
                if self.orders.pausing and self._open is None:
                    self.orders.pausing = False
                    self.say("paused")
                self.orders.going.wait(0.05)
                continue
            self._one(self.next_call())
            time.sleep(self.rng.expovariate(self.rate))

    def _one(self, call: Call) -> None:
        self.ledger.write("asked", **call.asked())
        try:
            job = call.send(self.enqueuer, self.rng)
        except Unknown as error:
            if self.rng.random() < 0.1:
                self.ledger.write("unknown", serial=call.serial)
                return
            note_answer(self.ledger, call, self._insist(error.repeat))
        except StoreError as error:
            self.ledger.write("refused" if is_refusal(error) else "unknown", serial=call.serial)
        else:
            note_answer(self.ledger, call, job)

    def _insist(self, repeat: Callable[[], Any]) -> Any:
        """Repeat an unknown until it is answered: that is what repeat is for."""
        while True:
            try:
                return repeat()
            except StoreError:
                time.sleep(0.2)

    def _bulk_loop(self) -> None:
        """Keep a backlog of bulk jobs, and send each range until it is stored."""
        while not self.orders.quitting and self.sent < min(self.most, MAX_BULK):
            self.orders.going.wait(0.1)
            if not self.orders.going.is_set() or self._waiting() > BACKLOG:
                time.sleep(0.05)
                continue
            self._bulk_range(self.sent, min(self.sent + BATCH, MAX_BULK))

    def _waiting(self) -> int:
        from dayjob.store.op import plain

        try:
            return int(self.enqueuer.run(plain("LLEN", f"{self.namespace}:jobs:bulk")))
        except StoreError:
            return BACKLOG + 1

    def _bulk_range(self, first: int, last: int) -> None:
        serial, count = f"{first}-{last}", last - first
        self._open = lambda: None
        try:
            self.ledger.write("bulk", how="asked", serial=serial, count=count)
            try:
                self.enqueuer.enqueue_many("bulk", [{"n": n} for n in range(first, last)])
            except Unknown as error:
                self._insist(error.repeat)
            except StoreError:
                # Nothing of it was stored: it is asked for again, later.
                self.ledger.write("bulk", how="refused", serial=serial, count=count)
                return
            self.ledger.write("bulk", how="stored", serial=serial, count=count)
            self.sent = last
        finally:
            self._open = None


class AsyncProducer(Producer):
    """Several calls at once, on one event loop."""

    async def run(self) -> None:
        self.enqueuer = AsyncEnqueuer(self.namespace, redis=self.url, timeout=1.0)
        self.busy = 0
        tasks = [asyncio.ensure_future(self._work()) for _ in range(TASKS)]
        while not self.orders.quitting:
            await asyncio.sleep(0.02)
            if self.orders.pausing and not self.busy:
                self.orders.pausing = False
                self.say("paused")
        for task in tasks:
            task.cancel()
        with contextlib.suppress(StoreError):
            await self.enqueuer.close()

    async def _work(self) -> None:
        while True:
            if not self.orders.going.is_set():
                await asyncio.sleep(0.02)
                continue
            self.busy += 1
            try:
                await self._one(self.next_call())
            finally:
                self.busy -= 1
            await asyncio.sleep(self.rng.expovariate(self.rate / TASKS))

    async def _one(self, call: Call) -> None:
        self.ledger.write("asked", **call.asked())
        try:
            job = await call.send(self.enqueuer, self.rng)
        except Unknown as error:
            if self.rng.random() < 0.1:
                self.ledger.write("unknown", serial=call.serial)
                return
            note_answer(self.ledger, call, await self._insist(error.repeat))
        except StoreError as error:
            self.ledger.write("refused" if is_refusal(error) else "unknown", serial=call.serial)
        else:
            note_answer(self.ledger, call, job)

    async def _insist(self, repeat: Callable[[], Any]) -> Any:
        while True:
            try:
                return await repeat()
            except StoreError:
                await asyncio.sleep(0.2)


def main(arguments: list[str]) -> None:
    colour, number, seed, url, namespace, rate, bulk = arguments
    shared = (int(number), int(seed), url, namespace, float(rate))
    if colour == "sync":
        SyncProducer(*shared, bulk=int(bulk)).run()
    else:
        asyncio.run(AsyncProducer(*shared).run())


if __name__ == "__main__":
    main(sys.argv[1:])
