"""ReplyHandler: applies the answer to an exchange: forgets settled attempts, and starts new ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from dayjob.outcome import Done, Recharge, Rewound, StartRequest, Unreadable
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.ops import consume, maintain, membership
from dayjob.store.ops.consume import Entry, Reply, Request
from dayjob.store.ops.rates import Charge, Spent
from dayjob.worker.fetching.history import HistoryRecorder
from dayjob.worker.fetching.keys_with_jobs import KeysWithJobs
from dayjob.worker.fetching.names import NamesWithJobs
from dayjob.worker.fetching.outbox import OutcomeOutbox
from dayjob.worker.fetching.requests import RequestSequence
from dayjob.worker.fetching.rules import RuleBook
from dayjob.worker.fetching.start_gate import StartGate
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.executors import Executors
from dayjob.worker.state import PoolState

logger = SafeLogger("dayjob.worker.fetching.fetcher")


class ReplyHandler:
    """Applies the replies of one pool, in the order of its requests."""

    def __init__(
        self,
        keys: Keys,
        link: Link,
        job_types: Mapping[str, PoolJobType],
        state: PoolState,
        *,
        requests: RequestSequence,
        names: NamesWithJobs,
        outbox: OutcomeOutbox,
        rules: RuleBook,
        keys_with_jobs: KeysWithJobs,
        start_gate: StartGate,
        executors: Executors,
        history: HistoryRecorder,
    ) -> None:
        self._keys = keys
        self._link = link
        self._job_types = job_types
        self._state = state
        self._requests = requests
        self._names = names
        self._outbox = outbox
        self._rules = rules
        self._keys_with_jobs = keys_with_jobs
        self._start_gate = start_gate
        self._executors = executors
        self._history = history
        #: Job name to the monotonic time when a wrong type of its keys was last logged.
        self._wrong_type_logged_at: dict[str, float] = {}

    def apply(self, request: Request, reply: Reply) -> None:
        """Apply the reply to `request`. Raises StoreError if Redis must be asked again and cannot be reached."""
        held = self._state.held
        stuck = set(reply.stuck)
        for name, tokens in request.done.items():
            for token in tokens:
                if token not in stuck:
                    held.pop(token, None)
                else:
                    self._outbox.stick(Entry(name, token, Done()))
        for group in request.members:
            for tokens in group.tokens.values():
                for token in tokens:
                    held.pop(token, None)
        for entry in request.entries:
            if isinstance(entry.outcome, StartRequest):
                continue
            if entry.token in stuck:
                self._outbox.stick(entry)
            elif entry.token in reply.cancelled:
                self._end_cancelled(entry.token, killed=reply.cancelled[entry.token])
            else:
                held.pop(entry.token, None)
        if reply.late:
            logger.warning(
                "%d outcomes came too late and were discarded: another pool had already put their jobs back",
                reply.late,
            )
        self._log_wrong_types(reply.wrong)
        self._names.answered([want.name for want in request.wants], reply.live)
        if reply.unknown and self._rules.read_again(reply.unknown):
            self._names.rung.update(reply.unknown)
        self._names.rung.update(self._keys_with_jobs.learn(reply.next_keys, reply.counted))
        self._take_jobs(request, reply)
        for name in reply.unsorted:
            key = self._rules.key(name)
            if key is not None and self._keys_with_jobs.sort(name, key.by):
                self._names.rung.add(name)
        self._start_released(request, reply)
        if reply.status == "rewound" or reply.held != len(held):
            self._reconcile()

    def lose(self, attempt: Attempt) -> None:
        """Mark an attempt that Redis no longer has. Its handler learns of it at the next check-in."""
        attempt.lost = True
        self._start_gate.ended(attempt)
        self._state.held.pop(attempt.token, None)

    def _charge_again(self, attempt: Attempt) -> None:
        """Charge the limits for an attempt that Redis lost. Its handler runs on, and Redis has forgotten its start."""
        charge = attempt.charge
        if charge is not None:
            spent = Spent(charge.cost, dict.fromkeys(charge.marks, ""))
            self._outbox.entries.append(Entry(attempt.name, attempt.token, Recharge(), spent=spent))

    def _end_cancelled(self, token: str, *, killed: bool) -> None:
        """End a cancelled job with the next exchange. Redis did not apply its outcome because of the cancellation."""
        attempt = self._state.held.get(token)
        if attempt is None:
            return
        attempt.killed, attempt.cancelled = killed, True
        if not attempt.payload:
            # Only Redis had this attempt, after a rollback. Its payload is needed for the unique key.
            (payload,) = self._link.run(maintain.read_held(self._keys, self._state.pool_id, [token]))
            attempt.payload = payload or b""
            with contextlib.suppress(codec.Broken):
                attempt.wire = codec.read(attempt.payload, attempt.name)
        entry = attempt.cancellation(self._keys.unique_prefix, self._state.clock.now())
        self._outbox.entries.append(self._history.with_record(attempt, entry))

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

    def _take_jobs(self, request: Request, reply: Reply) -> None:
        """Sort the fetched jobs: unreadable ones, those that the start gate holds back, and those that can start."""
        batches = [batch for batch in reply.batches if batch.tokens]
        if not batches:
            return
        self._requests.first_token = consume.number_in(batches[-1].tokens[-1]) + 1
        ready: list[Attempt] = []
        held, read = self._state.held, codec.read
        for name, tokens, payloads in batches:
            job_type = self._job_types[name]
            price = None
            charges: dict[str | None, Charge | None] = {}
            if request.keyed and name in request.keyed:
                rule = self._rules.key(name)
                price = request.keyed[name].price if rule is not None and rule.by_time else None
            for token, payload in zip(tokens, payloads, strict=True):
                try:
                    wire = read(payload, name)
                except codec.Broken as why:
                    self._break(token, name, payload, str(why), job_type)
                    continue
                held[token] = attempt = Attempt(token, name, payload, wire, job_type)
                if job_type.rated:
                    key = consume.key_in(token)
                    if key not in charges:
                        charges[key] = self._rules.charge(name, reply.marks, reply.now, key)
                    attempt.charge = charges[key]
                if price is not None:
                    attempt.price = price
                if (wire.deaths or wire.unique or wire.unique_key) and self._start_gate.stops(attempt):
                    continue
                ready.append(attempt)
            self._state.fetched += len(tokens)
            job_type.taken += len(tokens)
        self._executors.give(ready)

    def _break(self, token: str, name: str, payload: bytes, why: str, job_type: PoolJobType) -> None:
        """Move a job that cannot be read to broken, with the next exchange."""
        logger.error("job=%s: an entry of this queue cannot be read and was moved to broken: %s", name, why)
        now, where = self._state.clock.now(), self._keys.queue(name)
        entry = codec.broken_entry(payload, at=now, where=where, why=why)
        self._state.held[token] = attempt = Attempt(token, name, payload, codec.Wire(name), job_type)
        self._outbox.entries.append(
            self._history.with_record(attempt, Entry(name, token, Unreadable(), entry))
        )

    def _start_released(self, request: Request, reply: Reply) -> None:
        """Start the attempts whose request to the start gate was answered."""
        through, failed = self._start_gate.answered(request.entries, reply)
        for attempt, payload in failed:
            if payload is None:
                self.lose(attempt)
            else:
                why = "its unique key does not contain a readable job"
                self._break(attempt.token, attempt.name, payload, why, attempt.job_type)
        self._executors.give(through)

    def _reconcile(self) -> None:
        """Make the held attempts of this pool and of Redis the same.

        They differ if Redis lost an exchange that it had answered, or if an operator changed keys by hand.
        """
        # All names are asked for in the next exchange, so that a difference is found again if this answer is lost.
        self._names.rung.update(self._job_types)
        held = self._state.held
        found = self._link.run(membership.held_tokens(self._keys, self._state.pool_id))
        tokens = set(found)
        strange = tokens - held.keys()
        gone = held.keys() - tokens
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
                held[token] = Attempt(token, name, b"", codec.Wire(name), job_type)
                self._outbox.entries.append(Entry(name, token, Rewound()))
        for token in gone:
            self._charge_again(held[token])
            self.lose(held[token])
        highest = max(map(consume.number_in, tokens), default=0)
        self._requests.first_token = max(self._requests.first_token, highest + 1)
