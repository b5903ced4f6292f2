"""Fetcher: gets jobs from Redis and reports finished attempts, in one exchange at a time.

The only caller of consume.exchange. Whatever finishes while one exchange is under way goes into the next.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from dayjob.errors import StoreError, Unavailable
from dayjob.job import new_id
from dayjob.options import PoolOptions
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import Op
from dayjob.store.ops import consume, maintain
from dayjob.store.ops.consume import Entry, Reply, Request, Want
from dayjob.worker.fetching import budget
from dayjob.worker.fetching.capacity import Capacity
from dayjob.worker.fetching.counts import MinuteCounts
from dayjob.worker.fetching.outbox import Outbox
from dayjob.worker.fetching.start_gate import StartGate
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt, Settlement

logger = SafeLogger("dayjob.worker.fetching.fetcher")

#: While busy, all names are asked for at least this often.
ALL_NAMES_INTERVAL_SECONDS = 0.1
#: With more names than this at work, each exchange asks for a fair sample of them.
MAX_NAMES = 12
#: How often it is looked whether what was handed over gets started.
HANDOVER_CHECK_SECONDS = 0.004
#: Seconds of leadership, taken at the start when nobody leads.
LEADER_TERM_SECONDS = 3.0


class Fetcher:
    """The pool's one line to its queues."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        job_types: Mapping[str, PoolJobType],
        options: PoolOptions,
        *,
        rng: random.Random,
        arm: Callable[[Collection[str]], None],
        publish: Callable[[str], None],
        restore: Callable[[Link, float], None],
    ) -> None:
        self._keys = keys
        self._link = link
        self._job_types = job_types
        self._options = options
        self._rng = rng
        #: Tells the listener that there is room, so that a bell is worth waiting for.
        self._arm = arm
        #: Tells the supervising parent our id before Redis hears it.
        self._publish = publish
        #: Restores the pool's limits and announcements where Redis lost them.
        self._restore = restore
        self.capacity = Capacity(job_types, options)
        self._start_gate = StartGate(keys)
        self.figures = MinuteCounts()
        # What Redis and we agree on.
        self.pool_id = ""
        self._number = 0
        self._token = 1
        self.held: dict[str, Attempt] = {}
        self._request: Request | None = None
        self._op: Op[Reply] | None = None
        #: What an idle pool will ask when a bell rings, made ready while there is time.
        self._spare: tuple[Request, Op[Reply]] | None = None
        # What waits for the next exchange.
        self._outbox = Outbox(self._start_gate)
        #: When people were last told of a name whose keys have a wrong type.
        self._told_wrong: dict[str, float] = {}
        # What there may be to fetch.
        self._belled: set[str] = set()
        self._live: set[str] = set(job_types)
        self._all_at = 0.0
        # What others ask of us.
        self._event = threading.Event()
        self._sleeping = False
        #: Held by the thread that makes an exchange: this loop's, or the listener's while this one sleeps.
        self._turn = threading.Lock()
        self._refused = False
        self._closing = False
        self._flushing = False
        self.fetching = True
        self.leads = False
        self._redis_offset = 0.0
        #: For people: exchanges made, jobs fetched.
        self.exchanges = 0
        self.fetched = 0
        self._fetched_at = 0

    # Called from other threads.

    def finish(self, attempt: Attempt, settlement: Settlement) -> None:
        """An executor reports how an attempt ended. A second outcome of the same attempt is not reported."""
        if attempt.settled:
            return
        attempt.settled = True
        attempt.settlement = settlement
        if settlement is not None and attempt.hold_until:
            self._outbox.later.append(attempt)
        else:
            self._outbox.finished.append(attempt)
        if self._sleeping:
            self._event.set()

    def ring(self, name: str) -> None:
        """The listener heard a bell. While this loop sleeps, its thread makes the exchange: one hop less to the handler."""
        self._belled.add(name)
        if self._sleeping and self._turn.acquire(blocking=False):
            try:
                self._once()
                # Let go of the interpreter: the worker that was just woken goes before what is left to do here.
                time.sleep(0)
                if not (self._due() or self.capacity.ready > 1 or self._start_gate.waiting):
                    self._listen()
                    return
            except StoreError:
                # The request is kept; the loop sends it again, with its own patience.
                pass
            finally:
                self._turn.release()
        self._event.set()

    def refuse(self) -> None:
        """A beat was refused: this pool was condemned while it slept."""
        self._refused = True
        self._event.set()

    def wake(self) -> None:
        """Look again now."""
        self._event.set()

    def flush(self) -> None:
        """Send the figures that wait, too."""
        self._flushing = True
        self._event.set()

    @property
    def told(self) -> bool:
        """Whether Redis knows all that there is to know of this pool."""
        return not (self.held or self.unsettled or self.figures.pending(self._job_types.values()))

    def close(self) -> None:
        """End the loop after this round."""
        self._closing = True
        self._event.set()

    def look_everywhere(self) -> None:
        """Ask for all names at the next exchange, which is now."""
        self._all_at = 0.0
        self._belled.update(self._job_types)
        self._event.set()

    @property
    def busy(self) -> bool:
        """Whether anything is held or waits to be settled, or more is there to fetch."""
        return bool(self.held or self.unsettled or self._belled or (self._live and self.fetching))

    def empty_since(self, exchange: int) -> bool:
        """Whether no exchange since that one fetched anything."""
        return self._fetched_at <= exchange

    def note_time(self, now: float) -> None:
        """Redis has just said what time it is."""
        self._redis_offset = now - time.time()

    def redis_now(self) -> float:
        """Redis time, by the last answer and our own clock."""
        return time.time() + self._redis_offset

    @property
    def unsettled(self) -> int:
        """Outcomes that Redis has not confirmed."""
        return len(self._outbox) + (0 if self._op is None else 1)

    # The loop.

    def join(self) -> None:
        """Register under a new id. Raises StoreError."""
        self.pool_id = new_id()
        self._publish(self.pool_id)
        answer = self._link.run(
            consume.join(
                self._keys,
                self.pool_id,
                list(self._job_types),
                lease=self._options.lease,
                term=LEADER_TERM_SECONDS,
            )
        )
        if not answer.registered:
            # The answer to a first try was lost: that id is spent.
            raise Unavailable("join: this id was used before; taking another")
        self.note_time(answer.now)
        self.leads = answer.leads
        self._number, self._token = 0, 1
        self._request = self._op = None
        self._live = set(self._job_types)
        self._all_at = 0.0

    def step(self) -> float:
        """Wait until there is something to say or to ask, and make one exchange."""
        self._wait()
        with self._turn:
            if self._refused:
                self._start_again()
            else:
                self._once()
        return 0.0

    def _once(self) -> None:
        """Make one exchange, if there is anything to say. Whoever calls it has the turn."""
        if self._refused:
            return
        if self._op is None:
            self._prepare()
        if self._op is not None:
            self._exchange()

    def _listen(self) -> None:
        """Have the listener wait for the bells of all that there is room for, and have ready what a bell will ask."""
        if not self.fetching:
            return
        space = self._room()
        if space.free > 0:
            closed = self.capacity.closed()
            if not (self.held or closed):
                weights = {name: job_type.options.priority for name, job_type in self._job_types.items()}
                self._spare = self._request_for(weights, space)
            self._arm(self._job_types.keys() - closed)

    def _wait(self) -> None:
        """Sleep while there is nothing to do. Whoever changes that sets the event."""
        while not (self._due() or self._closing):
            self._event.clear()
            self._sleeping = True
            if self._due() or self._closing:
                break
            self._listen()
            handed = self.capacity.ready or self._start_gate.guarding
            timeout: float | None = None
            if handed:
                timeout = HANDOVER_CHECK_SECONDS
            elif self._outbox.stuck or self._outbox.later or self.figures.pending(self._job_types.values()):
                timeout = 1.0
            if not self._event.wait(timeout):
                if not handed:
                    # Only the figures wait: they go now.
                    break
                self.capacity.nudge()
        self._sleeping = False

    def _due(self) -> bool:
        """Whether there is a reason to make an exchange now."""
        if self._op is not None or self._belled or self._refused or self._outbox.due:
            return True
        if self._flushing and self.figures.pending(self._job_types.values()):
            return True
        if not self.fetching:
            return bool(self.capacity.ready or self._start_gate.waiting)
        if self._start_gate.due(self.capacity.idle) or self.capacity.stale:
            return True
        live = self._live - self.capacity.closed()
        if not live:
            return False
        space = self._room()
        # Prefetching is worth a round trip when the batch before is being used up.
        more = (
            space.extra > 0 and not space.fast.isdisjoint(live) and self.capacity.ready <= consume.MAX_FETCHED
        )
        return space.free > 0 or more

    def _room(self) -> budget.FetchBudget:
        return self.capacity.room(self._live, self._start_gate.coming)

    def _prepare(self) -> None:
        """Gather what is to be said into one request."""
        spare, self._spare = self._spare, None
        if spare is not None and self._fits(spare):
            self._belled = set()
            self._all_at = time.monotonic()
            self._send(spare)
            return
        entries, done = self._outbox.take(self.redis_now() - time.monotonic())
        resting = self._return_stale(entries)
        space = budget.FetchBudget(0, 0)
        if self.fetching:
            entries += self._start_gate.ask(self.capacity.idle)
            space = self._room()
            resting |= space.closed
        names = self._names(entries, done, space)
        figures = self.figures.take(self._job_types.values()) if self.figures.due() or self._flushing else {}
        if names or figures:
            self._send(self._request_for(names, space, resting, entries, done, figures))

    def _request_for(
        self,
        weights: Mapping[str, int],
        space: budget.FetchBudget,
        resting: Collection[str] = (),
        entries: Sequence[Entry] = (),
        done: Mapping[str, Sequence[str]] = MappingProxyType({}),
        figures: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Request, Op[Reply]]:
        """The next request, under the next number, and how it is sent."""
        order = list(weights)
        self._rng.shuffle(order)
        wants = [
            Want(name, max(1, weights[name]), weights[name] > 0 and name not in resting, name in space.fast)
            for name in order
        ]
        request = Request(
            self.pool_id, self._number + 1, self._token, wants,
            room=space.free, extra=space.extra, entries=entries, done=done,
            minute=int(self.redis_now() // 60), figures=figures,
        )  # fmt: skip
        return request, consume.exchange(self._keys, request, lease=self._options.lease, u=self._rng.random())

    def _send(self, prepared: tuple[Request, Op[Reply]]) -> None:
        """Make this the request that is under way, until it is answered."""
        self._request, self._op = prepared
        self._number = self._request.number

    def _fits(self, spare: tuple[Request, Op[Reply]]) -> bool:
        """Whether there is still nothing else to say than what was made ready when the pool fell asleep."""
        request, _ = spare
        if (request.pool_id, request.number, request.first_token) != (
            self.pool_id,
            self._number + 1,
            self._token,
        ):
            return False
        if self.figures.due() and self.figures.pending(self._job_types.values()):
            return False
        return self.fetching and not (
            self.held or len(self._outbox) or self._outbox.stuck or self._flushing or self._start_gate.waiting
        )

    def _return_stale(self, entries: list[Entry]) -> set[str]:
        """Give back what no worker took in time, the newest first, so that the oldest is first in its queue again."""
        now = time.monotonic()
        returned = self.capacity.take_back(now - budget.GIVE_BACK_AFTER_SECONDS if self.fetching else now)
        returned += self._start_gate.turn_back(everything=not self.fetching)
        returned.sort(key=lambda attempt: consume.number_in(attempt.token), reverse=True)
        for attempt in returned:
            attempt.settled = True
            self._start_gate.ended(attempt)
            attempt.job_type.slow_until = now + budget.PREFETCH_PAUSE_SECONDS
            attempt.job_type.taken -= 1
            entries.append(attempt.back())
        return {attempt.name for attempt in returned}

    def _names(
        self, entries: list[Entry], done: Mapping[str, object], space: budget.FetchBudget
    ) -> dict[str, int]:
        """The names that an exchange passes, with their weights; 0 for those that are only settled or rung."""
        now = time.monotonic()
        belled, self._belled = self._belled, set()
        asked = belled
        if space.free or space.extra:
            if now - self._all_at >= ALL_NAMES_INTERVAL_SECONDS:
                self._all_at = now
                asked = belled | self._job_types.keys()
            else:
                asked = belled | self._live
        weights = {name: self._job_types[name].options.priority for name in asked}
        if len(weights) > MAX_NAMES and now != self._all_at:
            weights = budget.sample(weights, MAX_NAMES, self._rng)
        for name in (*(entry.name for entry in entries), *done, *belled):
            weights.setdefault(name, 0)
        return weights

    def _exchange(self) -> None:
        request, op = self._request, self._op
        if request is None or op is None:
            return
        started = time.perf_counter()
        # An error leaves the request as it is: it is sent again, byte for byte, until it is answered.
        reply = self._link.run(op)
        self.figures.trip(time.perf_counter() - started)
        self.exchanges += 1
        self._request = self._op = None
        self.note_time(reply.now)
        if reply.status in ("refused", "late"):
            # Condemned while it slept, or its numbers were used by somebody else: only a new id is safe.
            self._refused = True
        else:
            self._apply(request, reply)

    def _apply(self, request: Request, reply: Reply) -> None:
        stuck = set(reply.stuck)
        for tokens in request.done.values():
            for token in tokens:
                self.held.pop(token, None)
        for entry in request.entries:
            if entry.kind in ("free", "suspect"):
                continue
            if entry.token in stuck:
                self._outbox.stick(entry)
            elif entry.token in reply.cancelled:
                self._end_cancelled(entry.token, killed=reply.cancelled[entry.token])
            else:
                self.held.pop(entry.token, None)
        if reply.late:
            logger.warning(
                "%d outcomes came too late and were discarded: their attempts were reaped", reply.late
            )
        self._tell_wrong(reply.wrong)
        asked = {want.name for want in request.wants}
        self._live = (self._live - asked) | set(reply.live)
        self._take(reply)
        self._let_through(request, reply)
        if reply.status == "rewound" or reply.held != len(self.held):
            self._reconcile()

    def _end_cancelled(self, token: str, *, killed: bool) -> None:
        """Redis kept an outcome back, since an operator cancelled the job: end it with the next exchange."""
        attempt = self.held.get(token)
        if attempt is None:
            return
        attempt.killed, attempt.cancelled = killed, True
        if not attempt.payload:
            # Held by Redis alone, after it went back in time: the job says which unique key it has.
            (payload,) = self._link.run(maintain.read_held(self._keys, self.pool_id, [token]))
            attempt.payload = payload or b""
            with contextlib.suppress(codec.Broken):
                attempt.wire = codec.read(attempt.payload, attempt.name)
        self._outbox.entries.extend(attempt.cancellation(self._keys.unique_prefix, self.redis_now()))

    def _tell_wrong(self, names: list[str]) -> None:
        now = time.monotonic()
        for name in names:
            if now - self._told_wrong.get(name, -60.0) >= 60.0:
                self._told_wrong[name] = now
                logger.error(
                    "job=%s: a key of its queue has a wrong type; it is left alone until somebody mends it",
                    name,
                )

    def _take(self, reply: Reply) -> None:
        """Look at each new job once: broken, guarded, suspect, or ready to run."""
        batches = [batch for batch in reply.batches if batch.tokens]
        if not batches:
            return
        self._fetched_at = self.exchanges
        self._token = consume.number_in(batches[-1].tokens[-1]) + 1
        ready: list[Attempt] = []
        held, read = self.held, codec.read
        for name, tokens, payloads in batches:
            job_type = self._job_types[name]
            for token, payload in zip(tokens, payloads, strict=True):
                try:
                    wire = read(payload, name)
                except codec.Broken as why:
                    self._break(token, name, payload, str(why), job_type)
                    continue
                held[token] = attempt = Attempt(token, name, payload, wire, job_type)
                if (wire.deaths or wire.unique or wire.unique_key) and self._start_gate.stops(attempt):
                    continue
                ready.append(attempt)
            self.fetched += len(tokens)
            job_type.taken += len(tokens)
        self.capacity.give(ready)

    def _break(self, token: str, name: str, payload: bytes, why: str, job_type: PoolJobType) -> None:
        logger.error("job=%s: an entry of its queue cannot be read and is kept in broken: %s", name, why)
        entry = codec.broken_entry(payload, at=self.redis_now(), where=self._keys.queue(name), why=why)
        self.held[token] = Attempt(token, name, payload, codec.Wire(name), job_type)
        self._outbox.entries.append(Entry("broken", name, token, entry))

    def _let_through(self, request: Request, reply: Reply) -> None:
        """Start what was waiting for this answer."""
        through, failed = self._start_gate.answered(request.entries, reply)
        for attempt, payload in failed:
            if payload is None:
                self._lose(attempt)
            else:
                self._break(
                    attempt.token, attempt.name, payload, "no job in its unique key", attempt.job_type
                )
        self.capacity.give(through)

    def _reconcile(self) -> None:
        """Redis and we disagree about what is held: it lost an answered exchange, or somebody changed it by hand."""
        # Should this answer be lost, the next exchange asks again.
        self._belled.update(self._job_types)
        found = self._link.run(consume.held_tokens(self._keys, self.pool_id))
        tokens = set(found)
        ours = set(self.held)
        strange = tokens - ours
        gone = ours - tokens
        if not strange and not gone:
            return
        logger.warning("Redis went back in time: %d attempts given back, %d lost", len(strange), len(gone))
        for token in sorted(strange, key=consume.number_in, reverse=True):
            name = consume.name_in(token)
            job_type = self._job_types.get(name)
            if job_type is not None:
                self.held[token] = Attempt(token, name, b"", codec.Wire(name), job_type)
                self._outbox.entries.append(Entry("rewound", name, token))
        for token in gone:
            self._lose(self.held[token])
        self._token = max([self._token, *(consume.number_in(token) + 1 for token in tokens)])

    def _lose(self, attempt: Attempt) -> None:
        """Redis no longer counts on this attempt: its handler learns it at the next check-in."""
        attempt.lost = True
        self._start_gate.ended(attempt)
        self.held.pop(attempt.token, None)

    def _start_again(self) -> None:
        """Forget a condemned id and what it held, and go on under a new one."""
        logger.warning("pool=%s was reaped while it was silent; going on under a new id", self.pool_id)
        # Redis may have forgotten it without condemning it (a restore, a flush): then nobody would sweep it.
        self._link.run(
            maintain.condemn(self._keys, lease=self._options.lease, proven=[self.pool_id], judge=False)
        )
        for attempt in list(self.held.values()):
            self._lose(attempt)
        self.capacity.take_back(time.monotonic())
        self._outbox.clear()
        self._start_gate.clear()
        self.join()
        # A Redis that lost the id may have lost the limits as well. Until they are back, nothing is fetched: should
        # this fail, the next try takes another id.
        self._restore(self._link, self.redis_now())
        self._refused = False

    def running(self) -> list[Attempt]:
        """The attempts that run now."""
        return self.capacity.running()
