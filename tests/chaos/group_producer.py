"""A producer of jobs that belong together: atomic jobs, batches, workflows; and of jobs with keys, by code that knows them.

It takes the orders of the other producers. Each kind has a thread of its own.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from chaos import families
from chaos.jobs import TENANTS, digest, pool, tenant_call, tenant_visit, tenant_work
from chaos.producer import DATA, Producer, is_refusal
from dayjob.enqueue.batches import Batch
from dayjob.enqueue.sender import Sender
from dayjob.errors import StoreError, Unknown
from faults.ledger import NodePlan

#: How many of each are asked for in a second while the producer goes.
BATCHES, WORKFLOWS, PARENTS, KEYED = 15.0, 4.5, 9.0, 10.0
EVENTS = ("success", "complete", "dead")
#: Few members fail for good, so that most batches succeed.
PLANS = ("ok",) * 30 + ("fail 1", "fail 2", "snooze 1", "discard", "fail 4", "dead", "mortal")
SIZES = (0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 30)
#: Jobs of one tenant at once: at times more than its limits let start.
BURSTS = (1, 1, 1, 1, 8)
CHILDREN = (0, 1, 1, 3, 3, 20, 60, 200, 450, 520, 1400)
DEPTH = 3


class GaveUp(Exception):
    """The producer never learnt whether a batch or workflow was stored."""


class Patience(threading.local):
    """Whether this thread may give up on a request whose answer was lost."""

    may_give_up = False


patience = Patience()


def _insist(send: Callable[[Sender, Any], None]) -> Callable[[Sender, Any], None]:
    """Send until it is stored: what was not is sent anew, and what is unknown is repeated."""

    def insisting(sender: Sender, chunk: Any) -> None:
        again: Callable[[], Any] = lambda: send(sender, chunk)  # noqa: E731 - replaced below
        while True:
            try:
                again()
                return
            except Unknown as error:
                if patience.may_give_up and random.random() < 0.1:
                    raise GaveUp from None
                again = error.repeat
            except StoreError as error:
                if not is_refusal(error):
                    raise
            time.sleep(0.2)

    return insisting


class GroupProducer(Producer):
    """Asks for jobs that belong together."""

    def __init__(self, number: int, seed: int, url: str, namespace: str, rate: float) -> None:
        super().__init__(number, seed, url, namespace, rate)
        self._lock = threading.Lock()
        self._busy = 0

    def run(self) -> None:
        kinds: list[tuple[Callable[[random.Random], None], float]] = [
            (self._batch, BATCHES), (self._workflow, WORKFLOWS), (self._parent, PARENTS), (self._keyed, KEYED),
        ]  # fmt: skip
        for at, (make, rate) in enumerate(kinds):
            rng = random.Random(f"{self.rng.random()}/{at}")
            threading.Thread(target=self._loop, args=(make, rate * self.rate, rng), daemon=True).start()
        while not self.orders.quitting:
            with self._lock:
                idle = self.orders.pausing and not self._busy
            if idle:
                self.orders.pausing = False
                self.say("paused")
            time.sleep(0.02)

    def _loop(self, make: Callable[[random.Random], None], rate: float, rng: random.Random) -> None:
        while not self.orders.quitting:
            with self._lock:
                going = self.orders.going.is_set()
                self._busy += going
            if not going:
                time.sleep(0.02)
                continue
            try:
                make(rng)
            finally:
                with self._lock:
                    self._busy -= 1
            time.sleep(rng.expovariate(rate))

    def _serial(self) -> str:
        with self._lock:
            self.count += 1
            return f"{self.number}/{self.count}"

    # Single jobs.

    def _send(self, serial: str, enqueue: Callable[[], Any]) -> None:
        """Enqueue one job that was asked for, and note the answer."""
        try:
            try:
                job = enqueue()
            except Unknown as error:
                job = self._insist(error.repeat)
        except StoreError as error:
            self.ledger.write("refused" if is_refusal(error) else "unknown", serial=serial)
        else:
            self.ledger.write("stored", serial=serial, job=job.id)

    def _insist(self, repeat: Callable[[], Any]) -> Any:
        while True:
            try:
                return repeat()
            except StoreError:
                time.sleep(0.2)

    def _parent(self, rng: random.Random) -> None:
        serial, data, count = self._serial(), rng.choice(DATA), rng.choice(CHILDREN)
        plan = rng.choice(("ok", "ok", "ok", "ok", "fail 1", "fail 4", "snooze 1", "discard", "dead"))
        self.ledger.write("asked", serial=serial, name="parent", plan=plan, digest=digest(data), count=count)
        self._send(serial, lambda: families.parent.enqueue(serial=serial, count=count, plan=plan, data=data))

    def _keyed(self, rng: random.Random) -> None:
        handle, tenant = rng.choice((tenant_work, tenant_call, tenant_visit)), rng.choice(TENANTS)
        for _ in range(rng.choice(BURSTS)):
            serial = self._serial()
            more = {} if handle is tenant_call else {"seconds": rng.choice((0.0, 0.02, 0.1))}
            self.ledger.write("asked", serial=serial, name=handle.name, plan="ok", digest=digest(None))
            self._send(
                serial, lambda one=serial, more=more: handle.enqueue(serial=one, tenant=tenant, **more)
            )

    # Batches.

    def _batch(self, rng: random.Random) -> None:
        nested = rng.random() < 0.2
        # Of several requests one may be stored and the next not: such a batch stays open.
        patience.may_give_up = not nested
        try:
            self._one_batch(rng, "", DEPTH if nested else 1)
        finally:
            patience.may_give_up = False

    def _one_batch(self, rng: random.Random, above: str, depth: int) -> None:
        events = [event for event in EVENTS if rng.random() < 0.9]
        callbacks: dict[str, Any] = {f"on_{event}": families.called for event in events}
        batch = pool.batch(**callbacks)
        self.ledger.write("group", job=batch.id, how=" ".join(events), above=above)
        for event in events:
            self.ledger.write(
                "pending", serial=f"{batch.id}-{event}", name="called", digest=digest(None), group=batch.id
            )
        serials: list[tuple[str, str]] = []
        answer = "stored"
        try:
            with batch:
                self._members(rng, batch, serials)
                if depth > 1:
                    for _ in range(rng.choice((1, 1, 2))):
                        self._one_batch(rng, batch.id, depth - rng.choice((1, 2)))
                    self._members(rng, batch, serials)
        except GaveUp:
            answer = "unknown"
        for serial, job_id in serials:
            self.ledger.write(answer, serial=serial, **({"job": job_id} if answer == "stored" else {}))
        self.ledger.write("grouped", job=batch.id, how=answer)

    def _members(self, rng: random.Random, batch: Batch, serials: list[tuple[str, str]]) -> None:
        for _ in range(rng.choice(SIZES)):
            serial, plan, data = self._serial(), rng.choice(PLANS), rng.choice(DATA)
            handle: Any = rng.choice(
                (families.member, families.member, families.amember, families.atomic_member)
            )
            more: dict[str, Any] = {"serial": serial, "plan": plan, "data": data}
            if handle is families.member:
                more["seconds"] = rng.choice((0.0, 0.0, 0.0, 0.05, 0.2))
            if handle is not families.amember:
                more["adds"] = rng.choice((0, 0, 0, 0, 0, 2))
            self.ledger.write(
                "asked", serial=serial, name=handle.name, plan=plan, digest=digest(data), group=batch.id
            )
            if rng.random() < 0.2:
                job = handle.enqueue_in(rng.uniform(0.1, 1.0), **more)
            else:
                job = handle.enqueue(**more)
            serials.append((serial, job.id))

    # Workflows.

    def _workflow(self, rng: random.Random) -> None:
        flow, nodes, plans, graph = pool.workflow("chaos"), [], [], []
        #: One kind of trouble for each, so that all of its dead nodes can be retried or none.
        policies = rng.choice((("stop",), ("continue", "skip", "stop")))
        trouble = ("dead", "mortal", "mortal") if policies == ("stop",) else ("dead",)
        for needs, watches in _shape(rng):
            plan = (
                rng.choice(trouble)
                if rng.random() < 0.05
                # A retry of the workflow lets a node that was skipped run again, and to it a watcher that discards
                # itself is one.
                else rng.choice(("ok",) * 12 + (("fail 1",) if watches else ("fail 1", "discard")))
            )
            policy = "stop" if watches else rng.choice(policies)
            serial, data = self._serial(), rng.choice(DATA)
            handle: Any = rng.choice((families.node, families.anode))
            more: dict[str, Any] = {"serial": serial, "plan": plan, "data": data}
            if handle is families.node:
                more["adds"] = rng.choice((0, 0, 0, 0, 0, 2))
            inputs = [nodes[n].result for n in needs]
            watched = [nodes[n] for n in watches]
            nodes.append(flow.add(handle, **more, inputs=inputs, on_failure_of=watched, on_failure=policy))
            graph.append(NodePlan(serial, list(needs), list(watches), policy))
            plans.append((serial, handle.name, plan, digest(data)))
        self.ledger.write("group", job=flow.id, graph=graph)
        for serial, name, plan, fingerprint in plans:
            self.ledger.write(
                "pending", serial=serial, name=name, plan=plan, digest=fingerprint, group=flow.id
            )
        patience.may_give_up = True
        try:
            flow.start()
            answer = "stored"
        except GaveUp:
            answer = "unknown"
        finally:
            patience.may_give_up = False
        self.ledger.write("grouped", job=flow.id, how=answer)


def _shape(rng: random.Random) -> list[tuple[list[int], list[int]]]:
    """The nodes of a workflow: the numbers of those that each needs, and of those whose failure it waits for."""
    kind = rng.choice(("chain", "fan", "fan", "diamonds"))
    if kind == "chain":
        return [([n - 1] if n else [], []) for n in range(rng.randrange(2, 6))]
    if kind == "fan":
        width = rng.randrange(2, 9)
        parts = list(range(1, width + 1))
        return [([], []), *[([0], []) for _ in parts], (parts, []), ([], [0, *parts])]
    shape: list[tuple[list[int], list[int]]] = [([], [])]
    for _ in range(rng.randrange(1, 4)):
        top = len(shape) - 1
        shape += [([top], []), ([top], []), ([top + 1, top + 2], [])]
    return shape


def main(arguments: list[str]) -> None:
    number, seed, url, namespace, rate = arguments
    Sender.send_chunk = _insist(Sender.send_chunk)  # type: ignore[method-assign]
    GroupProducer(int(number), int(seed), url, namespace, float(rate)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
