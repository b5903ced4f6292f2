"""Fetcher: exchanges finished attempts for new jobs, in one exchange at a time.

It is the only caller of consume.exchange. Attempts that finish during one exchange are reported with the next.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping

from dayjob.errors import StoreError
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import consume
from dayjob.store.ops.consume import Entry
from dayjob.worker.fetching.budget import PREFETCH_PAUSE_SECONDS, FetchBudget, Pace, fetch_budget
from dayjob.worker.fetching.counts import MinuteCounts
from dayjob.worker.fetching.history import HistoryRecorder
from dayjob.worker.fetching.keys_with_jobs import KeysWithJobs
from dayjob.worker.fetching.names import NamesWithJobs
from dayjob.worker.fetching.outbox import OutcomeOutbox
from dayjob.worker.fetching.replies import ReplyHandler
from dayjob.worker.fetching.requests import RequestSequence
from dayjob.worker.fetching.rules import RuleBook
from dayjob.worker.fetching.start_gate import StartGate
from dayjob.worker.membership import Membership
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.executors import Executors
from dayjob.worker.state import PoolState

logger = SafeLogger("dayjob.worker.fetching.fetcher")

#: Seconds between checks that handed-over attempts have started.
HANDOVER_CHECK_SECONDS = 0.004
#: Seconds after which figures, stuck outcomes and delayed outcomes are sent if nothing else causes an exchange.
FLUSH_SECONDS = 1.0
#: How many outcomes are gathered at most for one exchange while the workers have attempts to start.
MAX_GATHERED = 64


class Fetcher:
    """Makes the exchanges of one pool."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        job_types: Mapping[str, PoolJobType],
        state: PoolState,
        *,
        executors: Executors,
        membership: Membership,
        lease: float,
        rng: random.Random,
        arm: Callable[[Collection[str]], None],
    ) -> None:
        self._link = link
        self._job_types = job_types
        self._state = state
        self._executors = executors
        self._membership = membership
        #: Makes the listener wait for the bells of these names.
        self._arm = arm
        # The content of the next request, and what becomes of its reply.
        self._names = NamesWithJobs({name: one.options.priority for name, one in job_types.items()}, rng)
        self._start_gate = StartGate(keys, executors.clock)
        self._history = HistoryRecorder(state)
        self._outbox = OutcomeOutbox(self._start_gate, self._history, state.emits)
        self._pace = Pace()
        self._counts = MinuteCounts(list(job_types.values()))
        self._rules = RuleBook(keys, link, job_types)
        keys_with_jobs = KeysWithJobs(keys, link, job_types)
        self._requests = RequestSequence(keys, state, self._rules, keys_with_jobs, lease=lease, rng=rng)
        self._replies = ReplyHandler(
            keys, link, job_types, state, requests=self._requests, names=self._names, outbox=self._outbox,
            rules=self._rules, keys_with_jobs=keys_with_jobs, start_gate=self._start_gate, executors=executors, history=self._history,
        )  # fmt: skip
        #: Set by other threads when an exchange may be needed.
        self._event = threading.Event()
        state.emits.wake = self._event.set
        self._sleeping = False
        #: How many outcomes may wait for more of them.
        self._gathered = 0
        #: Held by the thread that makes an exchange: the fetcher's own, or the listener's while the fetcher sleeps.
        self._turn = threading.Lock()
        self._refused = False
        self._closing = False
        self._flushing = False

    # The loop.

    def join(self) -> None:
        """Register the pool under a new id, and begin to number its requests. Raises StoreError."""
        self._membership.join()
        self._start_over()

    def step(self) -> float:
        """Wait until an exchange is needed, and make it."""
        self.wait_for_work()
        with self._turn:
            if self._refused:
                self._rejoin()
            else:
                self.exchange_once()
        return 0.0

    def wait_for_work(self) -> None:
        """Sleep until an exchange is needed. Other threads set `_event` when that may be so."""
        while not (self._due() or self._closing):
            self._event.clear()
            self._sleeping = True
            if self._due() or self._closing:
                break
            self._listen()
            handed = self._executors.ready or self._start_gate.guarding or self._gathered
            timeout = self._outbox.emits.wait
            if handed:
                timeout = HANDOVER_CHECK_SECONDS
            elif timeout is None and (self._outbox.stuck or self._outbox.later or self._counts.pending()):
                timeout = FLUSH_SECONDS
            if not self._event.wait(timeout):
                if handed:
                    self._executors.nudge()
                if not handed or self._outbox.finished:
                    # What waits has waited long enough: figures, emitted values, gathered, stuck or delayed outcomes.
                    break
        self._sleeping = False

    def exchange_once(self) -> None:
        """Build the request, send it and apply the reply, if there is something to send. The caller holds `_turn`.

        If this raises StoreError, the request stays current, and the next call sends the same bytes again.
        """
        if self._refused:
            return
        if self._requests.current is None:
            self._next_request()
        current = self._requests.current
        if current is None:
            return
        started = time.perf_counter()
        reply = self._link.run(current.op)
        self._counts.trip(time.perf_counter() - started)
        self._pace.answered(time.monotonic())
        try:
            self._state.exchanges += 1
            self._state.clock.note(reply.now)
            if reply.status in ("refused", "late"):
                # This pool was condemned, or another process used its numbers: only a new id is safe.
                self._refused = True
                self._history.answered(applied=False)
            else:
                self._history.answered(applied=not reply.late)
                self._replies.apply(current.request, reply)
        finally:
            # Last, because `busy` must not become false before the fetched jobs are held.
            self._requests.answered()

    def _due(self) -> bool:
        """Whether an exchange is needed now."""
        if self._requests.current is not None or self._names.rung or self._refused or self._outcomes_due():
            return True
        if self._flushing and self._counts.pending():
            return True
        executors = self._executors
        if self._state.quiet:
            return bool(executors.ready or self._start_gate.waiting)
        idle = executors.idle
        if self._start_gate.due(idle) or executors.stale:
            return True
        live = self._names.live - executors.closed()
        if not live:
            return False
        if idle > self._start_gate.coming:
            return True
        # Prefetch only when the batch before is nearly used up, so that each round trip brings many jobs.
        if executors.ready > consume.MAX_FETCHED:
            return False
        budget = self._budget()
        return budget.extra > 0 and budget.extra >= executors.ready and not budget.fast.isdisjoint(live)

    def _outcomes_due(self) -> bool:
        """Whether outcomes should be sent now.

        While the workers have attempts to start, outcomes are gathered, so that each exchange settles many. The workers need the
        next jobs only later.
        """
        ready = 0 if self._state.quiet else self._executors.ready
        self._gathered = min(MAX_GATHERED, ready // 2)
        return self._outbox.due(self._gathered)

    def _budget(self) -> FetchBudget:
        """The budget of the next exchange, computed when its request is built.

        Only if all workers are busy is it computed before, to check whether a prefetch is due.
        """
        return fetch_budget(
            self._executors, self._job_types, self._names.live, self._start_gate.coming, self._pace.seconds
        )

    def _listen(self) -> None:
        """Make the listener wait for the bells of all names that can run, and prepare the request for a bell."""
        if self._state.quiet or self._executors.idle <= self._start_gate.coming:
            return
        closed = self._executors.closed()
        if not (self._state.held or closed):
            self._requests.prepare_idle(self._names.all_weights(), self._budget())
        self._arm(self._job_types.keys() - closed)

    # The request.

    def _next_request(self) -> None:
        """Put outcomes, requests of the start gate, wanted names and figures into one request, if there are any."""
        now = time.monotonic()
        idle_request = self._requests.take_idle()
        if idle_request is not None and self._only_fetches():
            self._pace.sent(0, 0, now)
            self._names.sent_all()
            self._requests.send(idle_request)
            return
        waiting = len(self._outbox.finished)
        entries, done = self._outbox.take(self._state.clock.now() - now)
        self._pace.sent(waiting - len(self._outbox.finished), self._executors.ready, now)
        members = self._outbox.take_members()
        self._state.has_batches = self._state.has_batches or bool(members)
        if self._outbox.born:
            # The request that stores these jobs can fetch them too.
            self._names.rung |= self._outbox.born & self._job_types.keys()
            self._outbox.born = set()
        resting = self._return_stale(entries)
        budget = FetchBudget()
        if not self._state.quiet:
            entries += self._start_gate.ask(self._executors.idle)
            budget = self._budget()
            resting |= budget.closed
        weights = self._names.weights(
            fetches=bool(budget.free or budget.extra),
            settled=(
                *(entry.name for entry in entries),
                *done,
                *(name for group in members for name in group.tokens),
                *self._rules.freed_by(entries),
            ),
        )
        flush = self._counts.due() or self._flushing
        figures = self._counts.take() if flush else {}
        # Every attempt that ran is in the figures, so records never wait where no figures do.
        records = self._history.take() if flush else []
        if weights or figures:
            self._requests.send(
                self._requests.build(weights, budget, resting, entries, done, figures, records, members)
            )

    def _only_fetches(self) -> bool:
        """Whether the next request only fetches jobs for an idle pool, as the one that was prepared while idle does."""
        if self._counts.due() and self._counts.pending():
            return False
        return not (
            self._state.quiet
            or self._state.held
            or len(self._outbox)
            or self._outbox.stuck
            or self._flushing
            or self._start_gate.waiting
        )

    def _return_stale(self, entries: list[Entry]) -> set[str]:
        """Add entries that return attempts which no worker started in time. Returns their job names.

        The newest is returned first, so that the oldest ends up at the head of its queue.
        """
        now, quiet = time.monotonic(), self._state.quiet
        returned = self._executors.take_back(everything=quiet)
        returned += self._start_gate.turn_back(everything=quiet)
        returned.sort(key=lambda attempt: consume.number_in(attempt.token), reverse=True)
        for attempt in returned:
            attempt.settled = True
            self._start_gate.ended(attempt)
            attempt.job_type.slow_until = now + PREFETCH_PAUSE_SECONDS
            attempt.job_type.taken -= 1
            entries.append(attempt.back())
        return {attempt.name for attempt in returned}

    # Called from other threads.

    def finish(self, attempt: Attempt, settlement: Settlement) -> None:
        """Report how an attempt ended; called by the executors. A second outcome of an attempt is ignored."""
        if not attempt.settled:
            attempt.settled = True
            attempt.settlement = settlement
            # The job and its attempt refer to each other, so that only the garbage collector could free them.
            attempt.job = None
            if settlement is not None and attempt.hold_until:
                self._outbox.later.append(attempt)
            else:
                self._outbox.finished.append(attempt)
        # Also after a second outcome, because the slot of the attempt is free only now.
        if self._sleeping and (not self._gathered or len(self._outbox.finished) > self._gathered):
            self._event.set()

    def ring(self, name: str) -> None:
        """Make an exchange because a bell rang; called by the listener."""
        self._names.rung.add(name)
        if not self._exchange_for_sleeping_loop():
            self._event.set()

    def _exchange_for_sleeping_loop(self) -> bool:
        """The listener's shortcut: make the exchange on the listener's thread while the fetcher's loop sleeps.

        In an idle pool this saves one thread switch between the bell and the start of the handler. Only one thread at
        a time makes an exchange, the one that holds `_turn`. Returns False if the loop must wake up: it was not asleep,
        Redis could not be reached (the loop sends the same request again, with a backoff), or there is more to do.
        """
        if not (self._sleeping and self._turn.acquire(blocking=False)):
            return False
        try:
            self.exchange_once()
            # Release the GIL, so that the worker that was just woken starts before the rest of this method.
            time.sleep(0)
            if self._due() or self._executors.ready > 1 or self._start_gate.waiting:
                return False
            self._listen()
        except StoreError:
            return False
        else:
            return True
        finally:
            self._turn.release()

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

    def ask_for_all(self) -> None:
        """Make an exchange now that asks for all names."""
        self._names.ring_all()
        self._event.set()

    def close(self) -> None:
        """End the wait of the loop. The service ends the loop after this step."""
        self._closing = True
        self._event.set()

    @property
    def unsettled(self) -> int:
        """How many outcomes Redis has not confirmed; a request under way counts as one."""
        return len(self._outbox) + (0 if self._requests.current is None else 1)

    @property
    def busy(self) -> bool:
        """Whether attempts are held or unsettled, or queues may have more jobs."""
        state, names = self._state, self._names
        return bool(state.held or self.unsettled or names.rung or (names.live and not state.quiet))

    @property
    def all_reported(self) -> bool:
        """Whether every outcome and every figure of this pool has reached Redis."""
        return not (self._state.held or self.unsettled or self._counts.pending())

    # A condemned pool.

    def _rejoin(self) -> None:
        """Drop the condemned pool id and its attempts, and continue under a new id."""
        logger.warning(
            "pool=%s is no longer registered: its lease ended while it was silent, or Redis lost its data. It continues under a new id.",
            self._state.pool_id,
        )
        self._membership.condemn()
        for attempt in list(self._state.held.values()):
            self._replies.lose(attempt)
        self._executors.take_back(everything=True)
        self._outbox.clear()
        self._start_gate.clear()
        # If this raises, `_refused` stays set and the next step tries again with another id.
        self._membership.rejoin()
        self._start_over()
        self._refused = False

    def _start_over(self) -> None:
        self._requests.start_over()
        self._names.start_over()
