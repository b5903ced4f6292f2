"""Job: the data that a handler receives, and its check-ins while it runs. No I/O."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

import msgspec

from dayjob.errors import BadArguments, BadOption, NotReady
from dayjob.handlers.redact import is_hidden, secrets_in, shown, without
from dayjob.limits import MAX_COST

if TYPE_CHECKING:
    from dayjob.options import JobOptions

if TYPE_CHECKING:
    from dayjob.enqueue.batches import Batch
    from dayjob.enqueue.workflows import RunningWorkflow

_decode_args = msgspec.json.Decoder(dict[str, Any] | None).decode
_decode_headers = msgspec.json.Decoder(dict[str, str] | None).decode


def new_id() -> str:
    """A random id of 24 hex digits, for jobs, pools and workers."""
    return os.urandom(12).hex()


#: Why a job should end early: its pool stops, an operator cancelled it, it passed its timeout, or its pool lost its
#: lease and the job was requeued.
StopReason = Literal["shutdown", "cancelled", "timeout", "lost"]


class CheckinSink(Protocol):
    """Connects a running job to its pool: takes its check-ins and reports whether it should stop."""

    def checkin(self, text: str, done: float | None, total: float | None) -> None: ...

    def emit(self, value: Any, /) -> None: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def stop_reason(self) -> StopReason | None: ...

    def batch(self, ids: tuple[str, ...], /) -> Any: ...

    def running_workflow(self, workflow_id: str, /) -> Any: ...


class Job:
    """One job: a name, an id and arguments. `Job("name")` creates one for unit tests."""

    __slots__ = (
        "_args",
        "_counted",
        "_headers",
        "deaths",
        "emitted",
        "enqueued_at",
        "error",
        "existed",
        "expires_at",
        "fails",
        "id",
        "last_checkin",
        "line",
        "max_fails",
        "membership",
        "name",
        "raw_args",
        "redact",
        "schedule",
        "scheduled_at",
        "snoozes",
        "source",
        "spent",
        "tick",
        "unique_key",
    )

    def __init__(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the attribute's name too
        source: str | int | None = None,
        enqueued_at: float = 0.0,
        scheduled_at: float | None = None,
        expires_at: float | None = None,
        unique_key: str | None = None,
        fails: int = 0,
        deaths: int = 0,
        snoozes: int = 0,
        error: str = "",
        raw_args: bytes | msgspec.Raw | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.id = new_id() if id is None else id
        #: Who the job is for (a tenant, a customer); jobs enqueued while it runs inherit it.
        self.source = source
        #: When it was enqueued, or became due, in seconds since the epoch; 0 when the payload has no such time.
        self.enqueued_at = enqueued_at
        #: When it will run, on the job that `enqueue_in` and `enqueue_at` return.
        self.scheduled_at = scheduled_at
        self.expires_at = expires_at
        #: True if a job with this id, chosen with `using(id=...)`, was stored before: this is that job, and none was stored.
        self.existed = False
        self.unique_key = unique_key
        #: How many of its attempts failed. In hooks of an attempt that failed, it is one of them (`_counted` is 1).
        self.fails, self._counted = fails, 0
        #: How many of its attempts ended because their process crashed.
        self.deaths = deaths
        self.snoozes = snoozes
        #: The message of the last failure, or "".
        self.error = error
        self.raw_args = raw_args
        self._headers: Mapping[str, str] | msgspec.Raw = headers or {}
        #: The schedule that enqueued the job, and the tick it was enqueued for, in seconds since the epoch; or None.
        self.schedule: str | None = None
        self.tick: float | None = None
        #: The `max_fails` of its job type; None while no pool runs the job.
        self.max_fails: int | None = None
        #: Arguments whose values error messages must not show; from the job type's `redact`.
        self.redact: Collection[str] = ()
        self._args = None if args is None and raw_args is not None else dict(args or {})
        self.line: CheckinSink | None = None
        #: The units that `spend` reported; None if it was not called.
        self.spent: float | None = None
        #: The ids of its batch and of those above, and its numbers in them; None if it is in no batch.
        self.membership: tuple[tuple[str, ...], tuple[int, ...]] | None = None
        #: The last check-in, (text, done, total), and what a job that no pool runs has emitted; or None.
        self.emitted: list[Any] | None = None
        self.last_checkin: tuple[str, float | None, float | None] | None = None

    @property
    def args(self) -> dict[str, Any]:
        """The arguments by name, as JSON values."""
        if self._args is None:
            raw = self.raw_args
            self._args = (_decode_args(raw) if raw is not None else None) or {}
        return self._args

    @property
    def headers(self) -> Mapping[str, str]:
        """Texts that travel with the job, from `using(headers=...)` and the enqueue hooks of the pool that enqueued it."""
        if isinstance(self._headers, msgspec.Raw):
            self._headers = _read_headers(self._headers)
        return self._headers

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. Attempts that were given back do not count."""
        return 1 + self.fails + self.deaths + self.snoozes - self._counted

    @property
    def batch_id(self) -> str | None:
        """The id of the batch that it is a member or a callback of; None if there is none."""
        if self.membership is None or self.membership[0][0].startswith("w"):
            return None
        return self.membership[0][0]

    @property
    def batch(self) -> Batch:
        """The batch that it is a member or a callback of. Raises NotReady if there is none, or no pool runs the job."""
        if self.membership is None or self.line is None or self.batch_id is None:
            raise NotReady(f"job {self.name!r} is in no batch, or no pool runs it")
        found: Batch = self.line.batch(self.membership[0])
        return found

    @property
    def workflow_id(self) -> str | None:
        """The id of the workflow that it is a node of; None if there is none."""
        return self.membership[0][0] if self.membership is not None and self.batch_id is None else None

    @property
    def workflow(self) -> RunningWorkflow:
        """The workflow that it is a node of, to add nodes to. Raises NotReady if there is none, or no pool runs the job."""
        if self.workflow_id is None or self.line is None:
            raise NotReady(f"job {self.name!r} is in no workflow, or no pool runs it")
        found: RunningWorkflow = self.line.running_workflow(self.workflow_id)
        return found

    @property
    def last_attempt(self) -> bool:
        """True if the job is not retried should this attempt fail. False for a job that no pool runs."""
        return self.max_fails is not None and self.fails + 1 - self._counted >= self.max_fails

    @property
    def stopping(self) -> bool:
        """True when the job should end early: its pool stops, or it was cancelled, timed out or requeued elsewhere."""
        return self.line is not None and self.line.stopping

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the job should end early: "shutdown", "cancelled", "timeout" or "lost"; None while it should continue."""
        return None if self.line is None else self.line.stop_reason

    def checkin(self, text: str = "", *, done: float | None = None, total: float | None = None) -> bool:
        """Report progress to the pool. Returns `stopping`. Never blocks and needs no await."""
        self.last_checkin = (text, done, total)
        if self.line is None:
            return False
        self.line.checkin(text, done, total)
        return self.line.stopping

    def emit(self, value: Any) -> bool:
        """Send a value to those who read the job's stream, such as a part of a text. Returns `stopping`. Never blocks.

        `enqueuer.stream(job)` reads it within about a tenth of a second. An attempt can emit 50,000 values and 1 MiB as JSON, one
        value 64 KiB. Raises TooLarge beyond that, BadArguments for a value that is not JSON, and NotReady after the handler
        has ended or in a process that it forked.
        """
        if self.line is None:
            self.emitted = [*(self.emitted or ()), value]
            return False
        self.line.emit(value)
        return self.line.stopping

    def spend(self, units: float) -> None:
        """Report how many units of its rate limits this attempt used, instead of the job type's `cost`.

        Several calls add up. The limits are corrected when the attempt ends: if it used more than its cost,
        later jobs wait longer; if it used less, they may start sooner. Raises BadOption for a negative or infinite
        number.
        """
        if isinstance(units, bool) or not isinstance(units, int | float) or not 0 <= units <= MAX_COST:
            raise BadOption(f"spend({units!r}): give a number from 0 to {MAX_COST:,}")
        self.spent = (self.spent or 0) + units

    def once(self, session: Any = None) -> None:
        """Let this job change one database only once: call it first in the transaction that makes the changes.

        It records the job's id in the transaction of `session` (a Session or Connection of SQLAlchemy, a connection of
        psycopg, or the alias of a database of Django). If an earlier attempt recorded it and was committed, it raises
        Discard. The records are in a table of the outbox.
        """
        from dayjob.outbox.sessions import once  # noqa: PLC0415 - jobs that use no database do not need it

        once(session, self.id)

    async def aonce(self, session: Any) -> None:
        """`once` with an AsyncSession or AsyncConnection of SQLAlchemy."""
        from dayjob.outbox.sessions import aonce  # noqa: PLC0415 - see above

        await aonce(session, self.id)

    def get_str(self, key: str) -> str:
        """The argument `key` as a string. Raises BadArguments when it is missing or not a string."""
        value = self._get(key)
        return value if isinstance(value, str) else self._wrong(key, value, "a string")

    def get_int(self, key: str) -> int:
        """The argument `key` as an integer; a float without a fraction is accepted. Raises BadArguments."""
        value = self._get(key)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return self._wrong(key, value, "an integer")

    def get_float(self, key: str) -> float:
        """The argument `key` as a float. Raises BadArguments."""
        value = self._get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return self._wrong(key, value, "a number")

    def get_bool(self, key: str) -> bool:
        """The argument `key` as a bool. Raises BadArguments."""
        value = self._get(key)
        return value if isinstance(value, bool) else self._wrong(key, value, "a boolean")

    def get_list(self, key: str) -> list[Any]:
        """The argument `key` as a list; `{}`, which Lua writes for an empty list, is accepted. Raises BadArguments."""
        value = self._get(key)
        if value == {}:
            return []
        return value if isinstance(value, list) else self._wrong(key, value, "a list")

    def get_dict(self, key: str) -> dict[str, Any]:
        """The argument `key` as a dict. Raises BadArguments."""
        value = self._get(key)
        return value if isinstance(value, dict) else self._wrong(key, value, "an object")

    def _get(self, key: str) -> Any:
        try:
            return self.args[key]
        except KeyError:
            has = ", ".join(map(repr, self.args)) or "none"
            raise BadArguments(f"{self.name}: no argument {key!r}; it has {has}") from None

    def _wrong(self, key: str, value: Any, wanted: str) -> NoReturn:
        kind = type(value).__name__
        if is_hidden(key, self.redact):
            raise BadArguments(f"{self.name}: argument {key!r} is a {kind}, not {wanted}")
        # Redact before cutting, because part of a secret would not be recognised as one.
        text = without(repr(shown(value, self.redact)), secrets_in(self.args, self.redact))
        if len(text) > 80:
            text = text[:77] + "..."
        raise BadArguments(f"{self.name}: argument {key!r} is {text} ({kind}), not {wanted}")

    def __repr__(self) -> str:
        return f"Job({self.name!r}, id={self.id!r})"


def require_stored(job: Job | None) -> Job:
    """Return the stored job. Raises NotReady for a duplicate, because a plain enqueue cannot return None."""
    if job is None:
        raise NotReady(
            "another job already holds this unique key; use enqueue_unique, which returns None in that case"
        )
    return job


def _read_headers(raw: msgspec.Raw) -> Mapping[str, str]:
    """The headers in a payload. Any program can write to Redis, and headers of a wrong form must not fail its job."""
    try:
        return _decode_headers(raw) or {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


class RunningJob(Protocol):
    """What the pool knows about a running job without decoding its arguments."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def source(self) -> str | int | None: ...
    @property
    def options(self) -> JobOptions: ...
    @property
    def stop_reason(self) -> StopReason | None: ...
    def open(self) -> Job: ...
    @property
    def atomic(self) -> bool: ...
    def collect(self, place: object, new_jobs: Iterable[Any], /) -> bool:
        """Keep jobs that an atomic job enqueues at `place` until it completes. False if they must be sent at once."""
        ...

    def runs(self, place: tuple[str, str], name: str, /) -> bool:
        """Whether its pool also runs the jobs of this name that are enqueued at `place`."""
        ...

    def has_pending(self, job_id: str, /) -> bool:
        """Whether an atomic job has enqueued the job with this id and has not completed yet."""
        ...


#: The job that this thread or task is running. Jobs that it enqueues inherit its source.
running: ContextVar[RunningJob | None] = ContextVar("dayjob_running", default=None)


def current_job() -> Job | None:
    """The job that this thread or task is running; None outside of jobs.

    Use it where a job cannot be passed, such as in a logging filter. Threads that a handler starts do not have it, unless
    they run in a copy of the handler's context (`contextvars.copy_context()`).
    """
    attempt = running.get()
    return None if attempt is None else attempt.open()
