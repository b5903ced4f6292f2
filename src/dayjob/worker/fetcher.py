"""Fetcher: gets jobs from Redis and reports finished attempts, in one exchange at a time.

The only caller of consume.exchange. Whatever finishes while one exchange is under way goes into the next.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from dayjob.errors import Unavailable
from dayjob.job import new_id
from dayjob.options import PoolOptions
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import consume, maintain
from dayjob.store.ops.consume import Entry, Reply, Request, Want
from dayjob.store.sync import Link
from dayjob.worker import room
from dayjob.worker.attempt import Attempt, Finished, Settlement
from dayjob.worker.figures import Figures
from dayjob.worker.lane import Lane

logger = logging.getLogger("dayjob.worker.fetcher")

#: While busy, all names are asked for at least this often.
ALL_NAMES = 0.1
#: How often it is looked whether what was handed over gets started.
LOOK = 0.004
#: Seconds of leadership, taken at the start when nobody leads.
TERM = 3.0
#: How many suspects may wait beside the free slots.
MOST_SUSPECTS = 200


class Executor(Protocol):
    """What the fetcher asks of both executors."""

    @property
    def ready(self) -> int: ...
    @property
    def oldest(self) -> float | None: ...
    def give(self, attempts: list[Attempt]) -> None: ...
    def nudge(self) -> None: ...
    def take_back(self, before: float) -> list[Attempt]: ...
    @property
    def busy(self) -> int: ...
    @property
    def limit(self) -> int: ...
    def running(self) -> list[Attempt]: ...


class Fetcher:
    """The pool's one line to its queues."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        lanes: Mapping[str, Lane],
        options: PoolOptions,
        *,
        rng: random.Random,
        arm: Callable[[Collection[str]], None],
        publish: Callable[[str], None],
    ) -> None:
        self._keys = keys
        self._link = link
        self._lanes = lanes
        self._options = options
        self._rng = rng
        #: Tells the listener that there is room, so that a bell is worth waiting for.
        self._arm = arm
        #: Tells the supervising parent our id before Redis hears it.
        self._publish = publish
        self.threads: Executor | None = None
        self.loop: Executor | None = None
        self.figures = Figures()
        # What Redis and we agree on.
        self.pool_id = ""
        self._number = 0
        self._token = 1
        self.held: dict[str, Attempt] = {}
        self._request: Request | None = None
        self._op: Op[Reply] | None = None
        # What waits for the next exchange.
        self._finished: deque[Finished] = deque()
        self._entries: deque[Entry] = deque()
        self._guarded: deque[Attempt] = deque()
        self._asked: dict[str, Attempt] = {}
        self._suspects: deque[Attempt] = deque()
        self._suspect: Attempt | None = None
        # What there may be to fetch.
        self._belled: set[str] = set()
        self._live: set[str] = set(lanes)
        self._all_at = 0.0
        # What others ask of us.
        self._event = threading.Event()
        self._sleeping = False
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
        self._finished.append((attempt, settlement))
        if self._sleeping:
            self._event.set()

    def ring(self, name: str) -> None:
        """The listener heard a bell."""
        self._belled.add(name)
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
        return not (self.held or self.unsettled or self.figures.pending(self._lanes.values()))

    def close(self) -> None:
        """End the loop after this round."""
        self._closing = True
        self._event.set()

    def look_everywhere(self) -> None:
        """Ask for all names at the next exchange, which is now."""
        self._all_at = 0.0
        self._belled.update(self._lanes)
        self._event.set()

    @property
    def busy(self) -> bool:
        """Whether anything is held or waits to be settled, or more is there to fetch."""
        return bool(self.held or self.unsettled or self._belled or (self._live and self.fetching))

    def empty_since(self, exchange: int) -> bool:
        """Whether no exchange since that one fetched anything."""
        return self._fetched_at <= exchange

    def redis_now(self) -> float:
        """Redis time, by the last answer and our own clock."""
        return time.time() + self._redis_offset

    @property
    def unsettled(self) -> int:
        """Outcomes that Redis has not confirmed."""
        return len(self._finished) + len(self._entries) + (0 if self._op is None else 1)

    # The loop.

    def join(self) -> None:
        """Register under a new id. Raises StoreError."""
        self.pool_id = new_id()
        self._publish(self.pool_id)
        answer = self._link.run(
            consume.join(self._keys, self.pool_id, list(self._lanes), lease=self._options.lease, term=TERM)
        )
        if not answer.registered:
            # The answer to a first try was lost: that id is spent.
            raise Unavailable("join: this id was used before; taking another")
        self._redis_offset = answer.now - time.time()
        self.leads = answer.leads
        self._number, self._token = 0, 1
        self._request = self._op = None
        self._refused = False
        self._live = set(self._lanes)
        self._all_at = 0.0

    def step(self) -> float:
        """Wait until there is something to say or to ask, and make one exchange."""
        if self._refused:
            self._start_again()
        self._wait()
        if self._refused:
            return 0.0
        if self._op is None:
            self._prepare()
        if self._op is not None:
            self._exchange()
        return 0.0

    def _wait(self) -> None:
        """Sleep while there is nothing to do. Whoever changes that sets the event."""
        while not (self._due() or self._closing):
            self._event.clear()
            self._sleeping = True
            if self._due() or self._closing:
                break
            if self.fetching and self._room().free > 0:
                self._arm(self._lanes.keys() - self._closed())
            ready = self._ready() or len(self._guarded)
            timeout: float | None = None
            if ready:
                timeout = LOOK
            elif self.figures.pending(self._lanes.values()):
                timeout = 1.0
            woken = self._event.wait(timeout)
            if not woken:
                if not ready:
                    break
                for executor in self._executors():
                    executor.nudge()
        self._sleeping = False

    def _due(self) -> bool:
        if (
            self._op is not None
            or self._finished
            or self._entries
            or self._guarded
            or self._belled
            or self._refused
        ):
            return True
        if self._flushing and self.figures.pending(self._lanes.values()):
            return True
        if not self.fetching:
            return bool(self._ready() or self._suspects or self._guarded)
        if self._suspects and self._suspect is None:
            return True
        oldest = self._oldest()
        if oldest is not None and time.monotonic() - oldest > room.PATIENCE:
            return True
        if not self._live:
            return False
        space = self._room()
        return space.free > 0 or (
            space.extra > 0 and not space.fast.isdisjoint(self._live) and self._wants_more()
        )

    def _wants_more(self) -> bool:
        """Whether prefetching now is worth a round trip: half of the last batch is used up."""
        return self._ready() < consume.MOST_FETCHED

    def _prepare(self) -> None:
        """Gather what is to be said into one request."""
        entries, done = self._settlements()
        resting = self._return_stale(entries)
        self._permits(entries)
        space = self._room() if self.fetching else room.Room(0, 0, frozenset())
        resting |= self._closed()
        names = self._names(entries, done, space)
        figures = self.figures.take(self._lanes.values()) if self.figures.due() or self._flushing else {}
        if not names and not figures:
            return
        self._rng.shuffle(names)
        wants = [
            Want(name, self._weight(name), name in self._lanes and name not in resting, name in space.fast)
            for name in names
        ]
        self._number += 1
        self._request = Request(
            self.pool_id, self._number, self._token, wants,
            room=space.free, extra=space.extra, entries=entries, done=done,
            minute=int(self.redis_now() // 60), figures=figures,
        )  # fmt: skip
        self._op = consume.exchange(
            self._keys, self._request, lease=self._options.lease, u=self._rng.random()
        )

    def _settlements(self) -> tuple[list[Entry], dict[str, list[str]]]:
        entries: list[Entry] = []
        done: dict[str, list[str]] = {}
        count = 0
        while self._entries and count < consume.MOST_SETTLED:
            entries.append(self._entries.popleft())
            count += 1
        while self._finished and count < consume.MOST_SETTLED:
            attempt, settlement = self._finished.popleft()
            if attempt.ran is not None:
                attempt.lane.learn(attempt.ran)
            if attempt is self._suspect:
                self._suspect = None
            if attempt.lost or attempt.token not in self.held:
                continue
            count += 1
            if settlement is None:
                tokens = done.get(attempt.name)
                if tokens is None:
                    done[attempt.name] = [attempt.token]
                else:
                    tokens.append(attempt.token)
            else:
                entries += settlement
        return entries, done

    def _return_stale(self, entries: list[Entry]) -> set[str]:
        """Give back what no worker took in time, the newest first, so that the oldest is first in its queue again."""
        resting: set[str] = set()
        now = time.monotonic()
        returned: list[Attempt] = []
        for executor in self._executors():
            before = now - room.PATIENCE if self.fetching else now
            oldest = executor.oldest
            if oldest is not None and oldest <= before:
                returned += executor.take_back(before)
        while self._guarded and (not self.fetching or now - self._guarded[0].given_at > room.PATIENCE):
            # Before its key is touched: it goes back as it came.
            returned.append(self._guarded.popleft())
        if not self.fetching:
            returned += self._suspects
            self._suspects.clear()
        returned.sort(key=lambda attempt: consume.number_in(attempt.token), reverse=True)
        for attempt in returned:
            attempt.settled = True
            attempt.lane.slow_until = now + room.PENANCE
            resting.add(attempt.name)
            entries.append(Entry("back", attempt.name, attempt.token))
        return resting

    def _permits(self, entries: list[Entry]) -> None:
        """Ask for what must be in Redis before a job starts: its unique key released, a suspect named."""
        for _ in range(min(self._permitted(), len(self._guarded), consume.MOST_SETTLED)):
            attempt = self._guarded.popleft()
            wire = attempt.wire
            first = int(wire.fails == 0 and wire.deaths == 0 and wire.snoozes == 0)
            self._asked[attempt.token] = attempt
            entries.append(
                Entry("free", attempt.name, attempt.token, number=first, key=wire.unique_key, value=wire.id)
            )
        if self._suspects and self._suspect is None and self.fetching:
            self._suspect = self._suspects.popleft()
            entries.append(Entry("suspect", self._suspect.name, self._suspect.token))

    def _names(self, entries: list[Entry], done: Mapping[str, object], space: room.Room) -> list[str]:
        now = time.monotonic()
        names = {entry.name for entry in entries} | set(done)
        belled, self._belled = self._belled, set()
        names |= belled
        if space.free or space.extra:
            if now - self._all_at >= ALL_NAMES:
                self._all_at = now
                names |= set(self._lanes)
            else:
                names |= self._live
        return list(names)

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
        self._redis_offset = reply.now - time.time()
        if reply.status == "refused":
            self._refused = True
            return
        if reply.status == "late":
            # We are ahead of ourselves: our own number was used by a copy. Only a new id is safe.
            self._refused = True
            return
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
                self._entries.append(entry)
            else:
                self.held.pop(entry.token, None)
        if reply.late:
            logger.warning(
                "%d outcomes came too late and were discarded: their attempts were reaped", reply.late
            )
        for name in reply.wrong:
            logger.error(
                "job=%s: a key of its queue has a wrong type; it is left alone until somebody mends it", name
            )
        asked = {want.name for want in request.wants}
        self._live = (self._live - asked) | set(reply.live)
        self._take(reply)
        self._allow(request, reply)
        if reply.status == "rewound" or reply.held != len(self.held):
            self._reconcile()

    def _take(self, reply: Reply) -> None:
        """Look at each new job once: broken, guarded, suspect, or ready to run."""
        jobs = reply.jobs
        if not jobs:
            return
        self._fetched_at = self.exchanges
        self._token = consume.number_in(jobs[-1][0]) + 1
        self.fetched += len(jobs)
        sync: list[Attempt] = []
        async_: list[Attempt] = []
        lanes, held, read = self._lanes, self.held, codec.read
        now = reply.now
        for token, name, payload in jobs:
            lane = lanes[name]
            try:
                wire = read(payload, name)
            except codec.Broken as why:
                self._break(token, name, payload, str(why), lane)
                continue
            if wire.unique and not wire.unique_key:
                self._name_key(wire)
            attempt = Attempt(token, name, payload, wire, lane)
            held[token] = attempt
            since = wire.at / 1000 if wire.at else wire.t
            if since:
                lane.waited(now - since)
            if wire.deaths or (wire.unique_key and self._must_release(wire, lane)):
                self._guard(attempt)
            elif lane.is_async:
                async_.append(attempt)
            else:
                sync.append(attempt)
        self._hand_over(sync, async_)

    def _hand_over(self, sync: list[Attempt], async_: list[Attempt]) -> None:
        if sync and self.threads is not None:
            self.threads.give(sync)
        if async_ and self.loop is not None:
            self.loop.give(async_)

    def _must_release(self, wire: codec.Wire, lane: Lane) -> bool:
        until = wire.unique_until or lane.options.unique_until
        return until != "done" and wire.unique_key.startswith(self._keys.unique_prefix)

    def _name_key(self, wire: codec.Wire) -> None:
        """Work out the unique key of a job whose enqueuer, of the ancestor's last release, did not write it down."""
        try:
            args = codec.json_value(wire.args)
            rest = "" if args is None else codec.go_json(args) + "\n"
        except (*codec.UNREADABLE, TypeError):
            return
        wire.unique_key = self._keys.unique(wire.name, rest)

    def _guard(self, attempt: Attempt) -> None:
        if attempt.wire.unique_key and self._must_release(attempt.wire, attempt.lane):
            attempt.given_at = time.monotonic()
            attempt.lane.unique = True
            self._guarded.append(attempt)
        else:
            self._suspects.append(attempt)

    def _break(self, token: str, name: str, payload: bytes, why: str, lane: Lane) -> None:
        logger.error("job=%s: an entry of its queue cannot be read and is kept in broken: %s", name, why)
        entry = codec.broken_entry(payload, at=self.redis_now(), where=self._keys.queue(name), why=why)
        self.held[token] = Attempt(token, name, payload, codec.Wire(name), lane)
        self._entries.append(Entry("broken", name, token, entry))

    def _allow(self, request: Request, reply: Reply) -> None:
        """Start what was waiting for this answer."""
        sync: list[Attempt] = []
        async_: list[Attempt] = []
        for token, payload in reply.released.items():
            attempt = self._asked.pop(token, None)
            if attempt is None:
                continue
            if payload is None:
                self._lose(attempt)
                continue
            if payload != attempt.payload:
                try:
                    attempt.wire, attempt.payload = codec.read(payload, attempt.name), payload
                except codec.Broken as why:
                    self._break(token, attempt.name, payload, str(why), attempt.lane)
                    continue
            if attempt.wire.deaths:
                self._suspects.append(attempt)
            else:
                (async_ if attempt.lane.is_async else sync).append(attempt)
        for entry in request.entries:
            if entry.kind == "suspect" and self._suspect is not None and self._suspect.token == entry.token:
                (async_ if self._suspect.lane.is_async else sync).append(self._suspect)
        self._hand_over(sync, async_)

    def _reconcile(self) -> None:
        """Redis and we disagree about what is held: it lost an answered exchange, or somebody changed it by hand."""
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
            lane = self._lanes.get(name)
            if lane is not None:
                self.held[token] = Attempt(token, name, b"", codec.Wire(name), lane)
                self._entries.append(Entry("rewound", name, token))
        for token in gone:
            self._lose(self.held[token])
        self._token = max([self._token, *(consume.number_in(token) + 1 for token in tokens)])

    def _lose(self, attempt: Attempt) -> None:
        """Redis no longer counts on this attempt: its handler learns it at the next check-in."""
        attempt.lost = True
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
        for executor in self._executors():
            executor.take_back(time.monotonic())
        self._entries.clear()
        self._guarded.clear()
        self._suspects.clear()
        self._asked.clear()
        self._suspect = None
        self.join()

    # What the pool is doing.

    def _executors(self) -> list[Executor]:
        return [executor for executor in (self.threads, self.loop) if executor is not None]

    def _ready(self) -> int:
        return sum(executor.ready for executor in self._executors())

    def _oldest(self) -> float | None:
        found = [oldest for executor in self._executors() if (oldest := executor.oldest) is not None]
        return min(found) if found else None

    def running(self) -> list[Attempt]:
        """The attempts that run now, those that were lost included: they keep their slots."""
        return [attempt for executor in self._executors() for attempt in executor.running()]

    def _room(self) -> room.Room:
        now = time.monotonic()
        executors = self._executors()
        fast = [
            (name, lane.estimate)
            for name, lane in self._lanes.items()
            if room.is_fast(lane.estimate) and lane.slow_until <= now and not lane.unique
        ]
        if not self._live.issubset(name for name, _ in fast):
            # A slow queue has work: it gets its share of slots as they come free, so nothing is prefetched past it.
            fast = []
        running = sum(executor.busy for executor in executors)
        # Slots that will not come free soon are no reason to prefetch.
        slow = sum(1 for attempt in self.running() if now - attempt.started_at > room.AHEAD) if fast else 0
        coming = len(self._guarded) + len(self._asked) + max(0, len(self._suspects) - MOST_SUSPECTS)
        if self._suspect is not None and not self._suspect.given_at:
            coming += 1
        threads = self._threads_free()
        if threads is not None and threads > 0:
            # Few threads: no more than they can take, and nothing ahead.
            return room.Room(
                max(0, min(threads, self._options.concurrency - running - self._ready() - coming)),
                0,
                frozenset(),
            )
        return room.reckon(
            concurrency=self._options.concurrency,
            running=running,
            slow=slow,
            ready=self._ready() + coming,
            fast=fast,
        )

    def _permitted(self) -> int:
        """For how many guarded attempts there is a worker, so that they may let go of their keys."""
        taken = sum(executor.busy + executor.ready for executor in self._executors()) + len(self._asked)
        return max(0, self._options.concurrency - taken)

    def _threads_free(self) -> int | None:
        """How many more sync jobs the threads can take; None where they are as many as the slots."""
        threads = self.threads
        if threads is None or threads.limit >= self._options.concurrency:
            return None
        return threads.limit - threads.busy - threads.ready

    def _closed(self) -> set[str]:
        """Names that are not fetched now because no thread could run them."""
        free = self._threads_free()
        if free is None or free > 0:
            return set()
        return {name for name, lane in self._lanes.items() if not lane.is_async}

    def _weight(self, name: str) -> int:
        lane = self._lanes.get(name)
        return 1 if lane is None else lane.options.priority
