"""Fetcher: gets jobs from Redis and reports finished attempts, in one exchange at a time.

It is the only caller of consume.exchange. Attempts that finish during one exchange are reported with the next.
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
from dayjob.outcome import Rewound, StartRequest, Unreadable
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

#: Seconds after which an exchange of a busy pool asks for all names, not only for those known to have jobs.
ALL_NAMES_INTERVAL_SECONDS = 0.1
#: If more names than this have jobs, each exchange asks for a random sample of them, by priority.
MAX_NAMES = 12
#: Seconds between checks that handed-over attempts have started.
HANDOVER_CHECK_SECONDS = 0.004
#: Seconds of leadership that a pool takes when it joins and no other pool leads.
LEADER_TERM_SECONDS = 3.0


class Fetcher:
    """Makes the exchanges of one pool, and keeps track of the attempts that the pool holds."""

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
        #: Makes the listener wait for the bells of these names.
        self._arm = arm
        #: Sends the pool's id to the parent process before the pool registers in Redis.
        self._publish = publish
        #: Writes the pool's limits and announcements again if Redis lost them.
        self._restore = restore
        self.capacity = Capacity(job_types, options)
        self._start_gate = StartGate(keys)
        self.figures = MinuteCounts()
        # The state that this pool and Redis share.
        self.pool_id = ""
        self._number = 0
        self._token = 1
        self.held: dict[str, Attempt] = {}
        self._request: Request | None = None
        self._op: Op[Reply] | None = None
        #: The request that an idle pool sends when a bell rings, prepared in advance to save time.
        self._spare: tuple[Request, Op[Reply]] | None = None
        # Reported with the next exchange.
        self._outbox = Outbox(self._start_gate)
        #: Job name to the monotonic time when a wrong type of its keys was last logged.
        self._wrong_type_logged_at: dict[str, float] = {}
        # Names that may have jobs: their bell rang, or the last exchange left jobs in their queues.
        self._belled: set[str] = set()
        self._live: set[str] = set(job_types)
        self._all_at = 0.0
        # Set by other threads.
        self._event = threading.Event()
        self._sleeping = False
        #: Held by the thread that makes an exchange: the fetcher's own, or the listener's while the fetcher sleeps.
        self._turn = threading.Lock()
        self._refused = False
        self._closing = False
        self._flushing = False
        self.fetching = True
        self.leads = False
        self._redis_offset = 0.0
        #: Shown in the pool's status: exchanges made, jobs fetched.
        self.exchanges = 0
        self.fetched = 0
        self._fetched_at = 0

    # Called from other threads.

    def finish(self, attempt: Attempt, settlement: Settlement) -> None:
        """Report how an attempt ended; called by the executors. A second outcome of an attempt is ignored."""
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
        """Note that a bell rang; called by the listener.

        If the fetcher's loop sleeps, the listener's thread makes the exchange itself. That saves a thread switch
        before the handler starts.
        """
        self._belled.add(name)
        if self._sleeping and self._turn.acquire(blocking=False):
            try:
                self._once()
                # Release the GIL, so that the worker that was just woken starts before the rest of this method.
                time.sleep(0)
                if not (self._due() or self.capacity.ready > 1 or self._start_gate.waiting):
                    self._listen()
                    return
            except StoreError:
                # The request is kept. The fetcher's loop sends it again, with a backoff.
                pass
            finally:
                self._turn.release()
        self._event.set()

    def refuse(self) -> None:
        """Note that Redis refused a heartbeat: this pool was condemned, for example while the machine slept."""
        self._refused = True
        self._event.set()

    def wake(self) -> None:
        """Make the loop check now whether an exchange is needed."""
        self._event.set()

    def flush(self) -> None:
        """Send the pending figures with the next exchange, even before they are due."""
        self._flushing = True
        self._event.set()

    @property
    def told(self) -> bool:
        """Whether every outcome and every figure of this pool has reached Redis."""
        return not (self.held or self.unsettled or self.figures.pending(self._job_types.values()))

    def close(self) -> None:
        """End the wait of the loop. The service ends the loop after this step."""
        self._closing = True
        self._event.set()

    def look_everywhere(self) -> None:
        """Make an exchange now that asks for all names."""
        self._all_at = 0.0
        self._belled.update(self._job_types)
        self._event.set()

    @property
    def busy(self) -> bool:
        """Whether attempts are held or unsettled, or queues may have more jobs."""
        return bool(self.held or self.unsettled or self._belled or (self._live and self.fetching))

    def empty_since(self, exchange: int) -> bool:
        """Whether no exchange after number `exchange` fetched a job."""
        return self._fetched_at <= exchange

    def note_time(self, now: float) -> None:
        """Set the pool's Redis clock from a time that Redis has just answered."""
        self._redis_offset = now - time.time()

    def redis_now(self) -> float:
        """Redis time, computed from the last answer and the local clock."""
        return time.time() + self._redis_offset

    @property
    def unsettled(self) -> int:
        """How many outcomes Redis has not confirmed; a request under way counts as one."""
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
            # The answer to a first try was lost. An id can be registered only once.
            raise Unavailable(
                "join: this pool id is already registered; the pool tries again with another id"
            )
        self.note_time(answer.now)
        self.leads = answer.leads
        self._number, self._token = 0, 1
        self._request = self._op = None
        self._live = set(self._job_types)
        self._all_at = 0.0

    def step(self) -> float:
        """Wait until an exchange is needed, and make it."""
        self._wait()
        with self._turn:
            if self._refused:
                self._start_again()
            else:
                self._once()
        return 0.0

    def _once(self) -> None:
        """Make one exchange, if one is needed. The caller holds `_turn`."""
        if self._refused:
            return
        if self._op is None:
            self._prepare()
        if self._op is not None:
            self._exchange()

    def _listen(self) -> None:
        """Make the listener wait for the bells of all names that can run, and prepare the request for a bell."""
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
        """Sleep until an exchange is needed. Other threads set `_event` when that may be so."""
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
                    # Only figures, stuck outcomes or delayed outcomes wait: send what is due.
                    break
                self.capacity.nudge()
        self._sleeping = False

    def _due(self) -> bool:
        """Whether an exchange is needed now."""
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
        # Prefetch only when the batch before is nearly used up, so that each round trip brings many jobs.
        more = (
            space.extra > 0 and not space.fast.isdisjoint(live) and self.capacity.ready <= consume.MAX_FETCHED
        )
        return space.free > 0 or more

    def _room(self) -> budget.FetchBudget:
        return self.capacity.room(self._live, self._start_gate.coming)

    def _prepare(self) -> None:
        """Put outcomes, requests of the start gate, wanted names and figures into one request."""
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
        """The next request, with the next number, and the op that sends it."""
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
        """Make this the current request. It stays current until Redis answers it."""
        self._request, self._op = prepared
        self._number = self._request.number

    def _fits(self, spare: tuple[Request, Op[Reply]]) -> bool:
        """Whether the request prepared while idle is still the right one to send."""
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
        """Add entries that return attempts which no worker started in time. Returns their job names.

        The newest is returned first, so that the oldest ends up at the head of its queue.
        """
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
        """The names of an exchange with their weights. Names that are only settled, or whose bell rang, have 0."""
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
        # After an error the same bytes are sent again, until Redis answers: the script detects a repeated number.
        reply = self._link.run(op)
        self.figures.trip(time.perf_counter() - started)
        self.exchanges += 1
        self._request = self._op = None
        self.note_time(reply.now)
        if reply.status in ("refused", "late"):
            # This pool was condemned, or another process used its numbers: only a new id is safe.
            self._refused = True
        else:
            self._apply(request, reply)

    def _apply(self, request: Request, reply: Reply) -> None:
        stuck = set(reply.stuck)
        for tokens in request.done.values():
            for token in tokens:
                self.held.pop(token, None)
        for entry in request.entries:
            if isinstance(entry.outcome, StartRequest):
                continue
            if entry.token in stuck:
                self._outbox.stick(entry)
            elif entry.token in reply.cancelled:
                self._end_cancelled(entry.token, killed=reply.cancelled[entry.token])
            else:
                self.held.pop(entry.token, None)
        if reply.late:
            logger.warning(
                "%d outcomes came too late and were discarded: another pool had already put their jobs back",
                reply.late,
            )
        self._log_wrong_types(reply.wrong)
        asked = {want.name for want in request.wants}
        self._live = (self._live - asked) | set(reply.live)
        self._take(reply)
        self._let_through(request, reply)
        if reply.status == "rewound" or reply.held != len(self.held):
            self._reconcile()

    def _end_cancelled(self, token: str, *, killed: bool) -> None:
        """End a cancelled job with the next exchange. Redis did not apply its outcome because of the cancellation."""
        attempt = self.held.get(token)
        if attempt is None:
            return
        attempt.killed, attempt.cancelled = killed, True
        if not attempt.payload:
            # Only Redis had this attempt, after a rollback. Its payload is needed for the unique key.
            (payload,) = self._link.run(maintain.read_held(self._keys, self.pool_id, [token]))
            attempt.payload = payload or b""
            with contextlib.suppress(codec.Broken):
                attempt.wire = codec.read(attempt.payload, attempt.name)
        self._outbox.entries.append(attempt.cancellation(self._keys.unique_prefix, self.redis_now()))

    def _log_wrong_types(self, names: list[str]) -> None:
        now = time.monotonic()
        for name in names:
            if now - self._wrong_type_logged_at.get(name, -60.0) >= 60.0:
                self._wrong_type_logged_at[name] = now
                logger.error(
                    "job=%s: a Redis key of this queue has a wrong type. "
                    "Its jobs do not run until an operator repairs the key.",
                    name,
                )

    def _take(self, reply: Reply) -> None:
        """Sort the fetched jobs: unreadable ones, those that the start gate holds back, and those that can start."""
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
        logger.error("job=%s: an entry of this queue cannot be read and was moved to broken: %s", name, why)
        entry = codec.broken_entry(payload, at=self.redis_now(), where=self._keys.queue(name), why=why)
        self.held[token] = Attempt(token, name, payload, codec.Wire(name), job_type)
        self._outbox.entries.append(Entry(name, token, Unreadable(), entry))

    def _let_through(self, request: Request, reply: Reply) -> None:
        """Start the attempts whose request to the start gate was answered."""
        through, failed = self._start_gate.answered(request.entries, reply)
        for attempt, payload in failed:
            if payload is None:
                self._lose(attempt)
            else:
                self._break(
                    attempt.token,
                    attempt.name,
                    payload,
                    "its unique key does not contain a readable job",
                    attempt.job_type,
                )
        self.capacity.give(through)

    def _reconcile(self) -> None:
        """Make the held attempts of this pool and of Redis the same.

        They differ if Redis lost an exchange that it had answered, or if an operator changed keys by hand.
        """
        # All names are asked for in the next exchange, so that a difference is found again if this answer is lost.
        self._belled.update(self._job_types)
        found = self._link.run(consume.held_tokens(self._keys, self.pool_id))
        tokens = set(found)
        ours = set(self.held)
        strange = tokens - ours
        gone = ours - tokens
        if not strange and not gone:
            return
        logger.warning(
            "Redis lost recent writes (a restore or a failover): %d attempts given back, %d lost",
            len(strange),
            len(gone),
        )
        for token in sorted(strange, key=consume.number_in, reverse=True):
            name = consume.name_in(token)
            job_type = self._job_types.get(name)
            if job_type is not None:
                self.held[token] = Attempt(token, name, b"", codec.Wire(name), job_type)
                self._outbox.entries.append(Entry(name, token, Rewound()))
        for token in gone:
            self._lose(self.held[token])
        self._token = max([self._token, *(consume.number_in(token) + 1 for token in tokens)])

    def _lose(self, attempt: Attempt) -> None:
        """Mark an attempt that Redis no longer has. Its handler learns of it at the next check-in."""
        attempt.lost = True
        self._start_gate.ended(attempt)
        self.held.pop(attempt.token, None)

    def _start_again(self) -> None:
        """Drop the condemned pool id and its attempts, and join again with a new id."""
        logger.warning(
            "pool=%s lost its lease and was reaped while it was silent. It continues under a new id.",
            self.pool_id,
        )
        # Redis may have lost the id without condemning it (a restore, a flush). Then no pool would sweep it.
        self._link.run(
            maintain.condemn(self._keys, lease=self._options.lease, proven=[self.pool_id], judge=False)
        )
        for attempt in list(self.held.values()):
            self._lose(attempt)
        self.capacity.take_back(time.monotonic())
        self._outbox.clear()
        self._start_gate.clear()
        self.join()
        # If Redis lost the id, it may have lost the limits too. The pool fetches nothing until they are restored:
        # if this raises, `_refused` stays set and the next step tries again with another id.
        self._restore(self._link, self.redis_now())
        self._refused = False

    def running(self) -> list[Attempt]:
        """The attempts that run now."""
        return self.capacity.running()
