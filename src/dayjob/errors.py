"""All errors that dayjob raises, in one tree, and the signals that a handler may raise.

DayjobError
├── UsageError              a mistake in the program; the message suggests a fix
│   ├── BadOption           an option out of range, unknown, or in conflict (also ValueError)
│   │   ├── UnknownQueue    a queue that does not exist in the namespace
│   │   ├── NothingToUndo   a deletion that is not in the bin
│   │   ├── UnknownPool     a pool that does not exist in the namespace
│   │   └── UnknownSchedule a schedule that does not exist in the namespace
│   ├── BadSignature        a handler or middleware that cannot be called (also TypeError)
│   ├── BadArguments        arguments that do not fit the handler (also TypeError)
│   ├── BadSchedule         a cron expression that cannot be parsed (also ValueError)
│   ├── UnknownJob          a job name this pool does not have (also LookupError)
│   ├── TooLarge            a payload or a result above the size limit (also ValueError)
│   └── NotReady            the pool or job cannot do this as it is set up, such as a pool without jobs
├── StoreError              a request to Redis failed
│   ├── Unavailable         no usable answer: refused, disconnected, timed out, loading, failing over
│   ├── Full                the server is out of memory; nothing was stored
│   ├── Rejected            the server refused the request: wrong type, no permission, wrong database
│   └── Unknown             the answer was lost, so the job may or may not be stored; `repeat()` is safe
├── ServerError             the embedded server cannot be found or started
│   ├── SilentServer        it runs, but does not answer yet or any more
│   └── UntrustedFolder     this user's dayjob did not create its data folder
├── ResultTimeout           the job has no result within the timeout (also TimeoutError)
├── JobFailed               the job ended without a result: it is dead, discarded, cancelled or expired
└── JobTimeout              the attempt ran longer than its job type allows (also TimeoutError)

Retry, Snooze, Throttled, GiveBack, Discard and Dead are signals, not errors: a handler raises one to choose how its attempt ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


class DayjobError(Exception):
    """Root of every error that dayjob raises."""


class UsageError(DayjobError):
    """A mistake in the program that uses dayjob."""


class BadOption(UsageError, ValueError):
    """An option that is unknown, out of range, or in conflict with another."""


class UnknownQueue(BadOption):
    """An operator named a queue that does not exist in the namespace."""

    def __init__(self, problem: str, near: str, forced: str = "") -> None:
        self.problem = problem
        self.near = near
        #: What `force` would do; "" where the action has no `force`.
        self.forced = forced
        super().__init__(f"{problem}\n    {self.advice('force=True')}")

    def advice(self, force: str) -> str:
        """What to do next. `force` is how the caller's interface spells that option."""
        return f"{self.near} Use {force} to {self.forced}." if self.forced else self.near


class UnknownPool(BadOption):
    """An operator named a pool that does not exist in the namespace."""


class UnknownSchedule(BadOption):
    """An operator named a schedule that does not exist in the namespace."""


class NothingToUndo(BadOption):
    """No such deletion is in the bin."""


class BadSignature(UsageError, TypeError):
    """A handler or middleware whose parameters cannot be satisfied."""


class BadArguments(UsageError, TypeError):
    """Arguments that do not fit the handler's signature, or that cannot be written as JSON."""


class BadSchedule(UsageError, ValueError):
    """A cron expression that cannot be parsed."""


class UnknownJob(UsageError, LookupError):
    """A job name that this pool does not have."""


class TooLarge(UsageError, ValueError):
    """A payload or a result above the size limit."""


class NotReady(UsageError):
    """The pool or job cannot do this as it is set up."""


class StoreError(DayjobError):
    """A request to Redis failed."""

    #: How many jobs of an `enqueue_many` are certainly stored: the first ones, in the order they were passed.
    stored: int = 0


class Unavailable(StoreError):
    """Redis gave no usable answer; the same request may succeed later."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        #: Whether the request may have reached the server, which may then have executed it.
        self.sent = sent


class Full(StoreError):
    """The server is out of memory. Nothing was stored."""


class Rejected(StoreError):
    """The server refused the request. It will refuse it again until the request or the server's settings change."""


class Unknown(StoreError):
    """The outcome of an enqueue is not known, because the answer was lost: the job may or may not be stored.

    Also raised when the job is stored but `durability` was not confirmed, and when only the first jobs of an
    `enqueue_many` are stored; `stored` is how many.

    `repeat()` sends the same request again, under the same number, so that the job is stored once in any case. It is
    safe for an hour. On an `AsyncEnqueuer`, await it.
    """

    #: Set by the enqueuer that raises the error.
    again: Callable[[], Any]

    def repeat(self) -> Any:
        """Send the request again and return what the first call would have returned."""
        return self.again()


class ServerError(DayjobError):
    """The embedded server cannot be found or started."""


class SilentServer(ServerError):
    """The embedded server runs, but does not answer: it is still loading its data, or it is stopped or stuck."""


class UntrustedFolder(ServerError):
    """The data folder of the embedded server was not created by this user's dayjob, so no server was started."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class ResultTimeout(DayjobError, TimeoutError):
    """The job has no result within the timeout. It may still complete."""


class JobFailed(DayjobError):
    """The job ended without a result: it is dead, was discarded or cancelled, or expired. The message is its last error."""


class JobTimeout(DayjobError, TimeoutError):
    """The attempt ran longer than its job type's `timeout`. Hooks, logs and the stored job show this error."""


class Signal(Exception):
    """Root of the signals: a handler raises one to choose how its attempt ends."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Retry(Signal):
    """Count a failure and retry the job, `after` seconds from now or after the job type's backoff."""

    def __init__(self, why: str = "", *, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Snooze(Signal):
    """Run the job again after `after` seconds, without counting a failure."""

    def __init__(self, why: str = "", *, after: float) -> None:
        super().__init__(why)
        self.after = after


class Throttled(Signal):
    """Put the job back at the head of its queue, and let no job start under `limit` for `after` seconds, in any pool.

    For an API that answered "too many requests". Counts no failure. `limit` is one of the job type's limits, or its name;
    without it, all rate limits of the job type are held.
    """

    def __init__(self, why: str = "", *, after: float, limit: Any = None) -> None:
        super().__init__(why)
        self.after = after
        self.limit = limit


class GiveBack(Signal):
    """Put the job back at the head of its queue without counting a failure. For jobs that end early because the pool stops."""


class Discard(Signal):
    """End the job without a retry. It is counted as discarded and not kept."""


class Dead(Signal):
    """Move the job to dead now, even if it has retries left."""
