"""Every error of dayjob, in one tree, and the signals a handler may raise.

DayjobError
├── UsageError              a mistake in the program; says what to write instead
│   ├── BadOption           an option out of range, unknown, or in conflict (also ValueError)
│   │   └── UnknownQueue    a queue that does not exist in the namespace
│   ├── BadSignature        a handler or middleware that cannot be called (also TypeError)
│   ├── BadArguments        arguments that do not fit the handler (also TypeError)
│   ├── BadSchedule         a cron expression that cannot be read (also ValueError)
│   ├── UnknownJob          a job name this pool does not have (also LookupError)
│   ├── TooLarge            a payload or a result above the limit (also ValueError)
│   └── NotReady            a pool that has nothing to run, or a result that is never kept
├── StoreError              Redis did not do what was asked
│   ├── Unavailable         no answer: refused, cut, timed out, loading, failing over
│   ├── Full                the server is out of memory; nothing was stored
│   ├── Rejected            the server refused: wrong type, no permission, wrong database
│   └── Unknown             the answer was lost; `repeat()` is safe
├── ServerError             the embedded server cannot be found or started
│   └── UntrustedFolder     its data folder was not made by this user's dayjob
├── ResultTimeout           no result within the time given (also TimeoutError)
├── JobFailed               the job whose result was asked for is dead
└── JobTimeout              the attempt ran longer than its job type allows (also TimeoutError)

Retry, Snooze, GiveBack, Discard and Dead are signals, not errors: a handler raises them to say how its attempt ends.
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
        #: What `force` is for; "" where it does not help.
        self.forced = forced
        super().__init__(f"{problem}\n    {self.advice('force=True')}")

    def advice(self, force: str) -> str:
        """What to do next; `force` is how the caller can insist."""
        return f"{self.near} Use {force} to {self.forced}." if self.forced else self.near


class BadSignature(UsageError, TypeError):
    """A handler or middleware whose parameters cannot be satisfied."""


class BadArguments(UsageError, TypeError):
    """Arguments that do not fit the handler's signature, or that JSON cannot carry."""


class BadSchedule(UsageError, ValueError):
    """A cron expression that cannot be read."""


class UnknownJob(UsageError, LookupError):
    """A job name that this pool does not have."""


class TooLarge(UsageError, ValueError):
    """A payload or a result above the limit."""


class NotReady(UsageError):
    """Something asked of a pool or job that it cannot do as it is set up."""


class StoreError(DayjobError):
    """Redis did not do what was asked."""

    #: How many jobs of an `enqueue_many` are stored for certain: the first ones, in the order they were given.
    stored: int = 0


class Unavailable(StoreError):
    """No answer that can be used now; the same request may work later."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        #: Whether the request may have reached the server, so that it may have been done.
        self.sent = sent


class Full(StoreError):
    """The server is out of memory. Nothing was stored."""


class Rejected(StoreError):
    """The server refused the request, and will again until something is changed."""


class Unknown(StoreError):
    """The answer to an enqueue was lost: the job may or may not be stored. Or it is, but not as safely as was asked.

    Or only the first jobs of an `enqueue_many` are: `stored` is how many.

    `repeat()` sends the same request again on the same slot and number, so that the job is stored once
    whatever happened; it is safe for an hour. On an `AsyncEnqueuer`, await it.
    """

    #: Set by the enqueuer that raises it.
    again: Callable[[], Any]

    def repeat(self) -> Any:
        """Send the request again and return what the first call would have returned."""
        return self.again()


class ServerError(DayjobError):
    """The embedded server cannot be found or started."""


class UntrustedFolder(ServerError):
    """The data folder of the embedded server was not made by this user's dayjob. Nothing was started."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class ResultTimeout(DayjobError, TimeoutError):
    """No result within the time given; the job may still finish."""


class JobFailed(DayjobError):
    """The job whose result was asked for is dead; its last error is the message."""


class JobTimeout(DayjobError, TimeoutError):
    """The attempt ran longer than its job type's `timeout`. What hooks, logs and the stored job see of a timeout."""


class Signal(Exception):
    """Root of what a handler may raise to say how its attempt ends."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Retry(Signal):
    """Run it again, and count a fail. `after` seconds from now, or by the job type's backoff."""

    def __init__(self, why: str = "", *, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Snooze(Signal):
    """Run it again `after` seconds, without counting a fail."""

    def __init__(self, why: str = "", *, after: float) -> None:
        super().__init__(why)
        self.after = after


class GiveBack(Signal):
    """Put the job back at the head of its queue, counting nothing; for a job that winds up because its pool stops."""


class Discard(Signal):
    """End the job here; nothing is kept but the count."""


class Dead(Signal):
    """Send the job to dead now, whatever fails it has left."""
