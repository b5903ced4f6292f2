"""Settler: turns the outcome of an attempt into the entry that settles it, and writes the payload that Redis stores."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, assert_never

from dayjob.outcome import (
    Died,
    Done,
    Dropped,
    ErrorOutcome,
    GivenBack,
    HeldBack,
    Kept,
    Retried,
    Snoozed,
    Unreadable,
)
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.children import Children
from dayjob.store.ops.consume import Entry
from dayjob.worker.running.attempt import Attempt, Settlement
from dayjob.worker.running.failure import Failure


class Settler:
    """Settles the attempts that one pool ran."""

    def __init__(self, keys: Keys, pool_id: Callable[[], str], redis_now: Callable[[], float]) -> None:
        self._keys = keys
        self._pool_id = pool_id
        self._now = redis_now

    def settle(
        self,
        attempt: Attempt,
        outcome: Done | Kept | ErrorOutcome,
        failure: Failure | None = None,
        result: bytes = b"",
    ) -> Entry:
        """The entry for an outcome. Raises codec.Broken if the payload cannot be rewritten."""
        wire = attempt.wire
        if isinstance(outcome, Died | Dropped):
            result = attempt.ended_result(outcome, "" if failure is None else failure.message)
        releases = ""
        if wire.unique_key and not isinstance(outcome, Retried | Snoozed | GivenBack | HeldBack):
            releases = attempt.own_key(self._keys.unique_prefix)
        payload = self._payload(attempt, outcome, failure)
        error = "" if failure is None else type(failure.error).__name__
        return Entry(
            attempt.name,
            attempt.token,
            outcome,
            payload,
            wire.id,
            result,
            releases,
            error,
            spent=attempt.spent(),
            children=self._children(attempt, outcome),
        )

    def _children(self, attempt: Attempt, outcome: Done | Kept | ErrorOutcome) -> Children | None:
        """The jobs to store with an attempt that completed."""
        if attempt.children is None or not isinstance(outcome, Done | Kept):
            return None
        children = attempt.take_children()
        if children is not None:
            children.date(self._now())
        return children

    def settle_completion(self, attempt: Attempt) -> Settlement:
        """A completion whose result is not kept.

        None, unless it releases a unique key, corrects a charge, ends a member of a batch, or has log lines, children or a stream.
        """
        if (
            attempt.log is not None
            or attempt.children is not None
            or attempt.wire.membership is not codec.NULL
            or attempt.stream is not None
        ):
            return self.settle(attempt, Done())
        until = attempt.wire.unique_until, attempt.job_type.options.unique_until
        if ("done" in until and attempt.own_key(self._keys.unique_prefix)) or attempt.spent() is not None:
            return self.settle(attempt, Done())
        return None

    def settle_unreadable(self, attempt: Attempt, why: codec.Broken) -> Entry:
        """The entry for a payload that cannot be rewritten."""
        where = self._keys.queue(attempt.name)
        entry = codec.broken_entry(attempt.payload, at=self._now(), where=where, why=str(why))
        return Entry(attempt.name, attempt.token, Unreadable(), entry)

    def settle_cancelled(self, attempt: Attempt) -> Entry:
        """The entry that ends a cancelled or killed job."""
        return attempt.cancellation(self._keys.unique_prefix, self._now())

    def _payload(
        self, attempt: Attempt, outcome: Done | Kept | ErrorOutcome, failure: Failure | None
    ) -> bytes:
        """The job as the outcome stores it."""
        wire = attempt.wire
        match outcome:
            case Kept():
                fields = self._kept_fields(attempt)
            case Retried():
                fields = self._moved_fields(attempt) | self._error_fields(attempt, failure)
                fields["fails"] = wire.fails + 1
            case Snoozed():
                fields = self._moved_fields(attempt)
                fields["snoozes"] = wire.snoozes + 1
            case Died(counts_failure=counts):
                fields = self._moved_fields(attempt) | self._error_fields(attempt, failure)
                if counts:
                    fields["fails"] = wire.fails + 1
            case Done() | Dropped() | GivenBack() | HeldBack():
                return b""
            case _ as unknown:
                assert_never(unknown)
        return codec.rewrite(attempt.payload, fields)

    def _kept_fields(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "attempt": self._place(attempt),
            "done_at": int(self._now() * 1000),
            "ran": round(time.monotonic() - attempt.started_at, 6),
        }

    def _moved_fields(self, attempt: Attempt) -> dict[str, Any]:
        """Fields of every payload that goes to retry, scheduled or dead.

        They make the payload unique: two jobs with the same bytes would be one member of a sorted set.
        """
        wire = attempt.wire
        fields: dict[str, Any] = {"attempt": self._place(attempt), "at": int(self._now() * 1000)}
        fields |= codec.first_enqueued_field(wire)
        if wire.unique_key and not wire.unique_until and attempt.job_type.options.unique_until == "done":
            fields["unique_until"] = "done"
        return fields

    def _error_fields(self, attempt: Attempt, failure: Failure | None) -> dict[str, Any]:
        if failure is None:
            return {}
        # Not 0, which would mean that the start of the attempt is unknown.
        now, ran = self._now(), max(0.001, time.monotonic() - attempt.started_at)
        past = codec.remember(attempt.wire, attempt=attempt.attempt, at=now, ran=ran, error=failure.message)
        return {"err": failure.message, "failed_at": int(now), "trace": failure.trace, "past": past}

    def _place(self, attempt: Attempt) -> str:
        return f"{self._pool_id()}/{attempt.token}"
