"""NewJob and Builder: turn a name, arguments and options into a request. The part of both enqueuers without I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from dayjob.errors import TooLarge
from dayjob.handlers.arguments import encode_unchecked
from dayjob.job import Job, new_id, running
from dayjob.options import EnqueueOptions, JobOptions, check_name
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import produce
from dayjob.store.ops.produce import Slot, Stored, When

#: An enqueuer adds a name to known_jobs again after this many seconds, in case Redis was emptied.
KNOWN_JOBS_REFRESH_SECONDS = 300.0


class Checked(Protocol):
    """The part of a job type that an enqueuer uses: its options, and how to check and encode its arguments."""

    @property
    def options(self) -> JobOptions: ...

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes: ...


Find = Callable[[str], Checked]


class NewJob(msgspec.Struct, frozen=True):
    """A job that is ready to be sent."""

    job: Job
    name: str
    payload: bytes
    when: When
    chosen: bool
    unique_for: float | None
    expires: float | None = None


class Sink(Protocol):
    """Stores jobs in memory instead of Redis, inside a `dayjob.testing` block."""

    def now(self) -> float: ...

    def store(self, batches: Sequence[Sequence[NewJob]], /) -> list[Job | None]: ...

    async def astore(self, batches: Sequence[Sequence[NewJob]], /) -> list[Job | None]: ...

    def result(self, job_id: str, /) -> Any: ...


class Builder:
    """Builds jobs from names, arguments and options, and requests from jobs. Both enqueuers use it."""

    def __init__(self, namespace: str, max_payload: int, find: Find | None) -> None:
        self.keys = Keys(namespace)
        self._max_payload = max_payload
        self._find = find
        self._quoted: dict[str, bytes] = {}
        self._introduced: dict[str, float] = {}
        #: Redis time minus this machine's time, from the last answer that had it.
        self.offset = 0.0
        #: Stores the jobs instead of Redis. It is here because copies made by `using()` share their builder.
        self.sink: Sink | None = None

    def encode(self, name: str, args: Mapping[str, Any], how: EnqueueOptions) -> tuple[bytes, EnqueueOptions]:
        """Encode the arguments as JSON. Checks them against the job type if the enqueuer has one."""
        if self._find is None:
            return encode_unchecked(check_name(name), args), how
        job_type = self._find(name)
        if how.unique and job_type.options.unique_until != how.unique_until:
            how = replace(how, unique_until=job_type.options.unique_until)
        return job_type.encode((), args), how

    def new_job(self, name: str, args: bytes, how: EnqueueOptions) -> NewJob:
        """Build a new job. Raises TooLarge or BadOption."""
        sink = self.sink
        now = time.time() + self.offset if sink is None else sink.now()
        job_id = how.id if how.id is not None else new_id()
        source = how.source
        if source is None and how.inherit:
            outer = running.get()
            source = None if outer is None else outer.source
        when, at = self._when(how, now)
        unique_key = self._unique_key(name, args, how) if how.unique else None
        payload = codec.write(self._name(name), job_id, now, args, self._extras(how, source, unique_key, now))
        if len(payload) > self._max_payload:
            raise TooLarge(
                f"{name}: the job has {len(payload):,} bytes, the limit is {self._max_payload:,}. "
                "Store the data elsewhere and pass a reference, or raise max_payload."
            )
        job = Job(
            name, id=job_id, source=source, enqueued_at=now, scheduled_at=at, unique_key=unique_key, raw_args=args,
            expires_at=None if how.expires is None else now + how.expires,
        )  # fmt: skip
        return NewJob(job, name, payload, when, how.id is not None, how.unique_for, how.expires)

    def op(self, new_jobs: Sequence[NewJob], slot: Slot) -> Op[Stored]:
        """The request that stores jobs of one name and one time. A job with a unique key or a chosen id must be alone."""
        first = new_jobs[0]
        introduce = (
            time.monotonic() - self._introduced.get(first.name, -KNOWN_JOBS_REFRESH_SECONDS)
            >= KNOWN_JOBS_REFRESH_SECONDS
        )
        if first.chosen or first.job.unique_key is not None:
            return produce.admit(
                self.keys, slot, first.name, first.payload, first.when,
                job_id=first.job.id, chosen=first.chosen, unique_key=first.job.unique_key, unique_for=first.unique_for,
                introduce=introduce, expires=first.expires,
            )  # fmt: skip
        payloads = [new_job.payload for new_job in new_jobs]
        if first.when.mode == "now":
            return produce.enqueue(
                self.keys, slot, first.name, payloads, introduce=introduce, expires=first.expires
            )
        return produce.schedule(
            self.keys, slot, first.name, payloads, first.when, introduce=introduce, expires=first.expires
        )

    def accept(self, new_jobs: Sequence[NewJob], stored: Stored) -> list[Job | None]:
        """The jobs to return to the caller, updated with the times of the answer; None for a duplicate."""
        now = time.monotonic()
        self._introduced[new_jobs[0].name] = now
        if stored.now:
            self.offset = stored.now - time.time()
        if not stored.stored:
            return [None]
        if stored.existed:
            new_jobs[0].job.existed = True
        if stored.due is not None and new_jobs[0].when.mode != "now":
            for new_job in new_jobs:
                new_job.job.scheduled_at = stored.due
        if stored.now:
            for new_job in new_jobs:
                if new_job.expires is not None:
                    new_job.job.expires_at = stored.now + new_job.expires
        return [new_job.job for new_job in new_jobs]

    def batches(self, new_jobs: Iterable[NewJob]) -> list[list[NewJob]]:
        """Split jobs into requests of bounded size."""
        found: list[list[NewJob]] = []
        size = produce.MAX_BYTES + 1
        for new_job in new_jobs:
            alone = new_job.chosen or new_job.job.unique_key is not None
            if alone or size + len(new_job.payload) > produce.MAX_BYTES or len(found[-1]) >= produce.MAX_JOBS:
                found.append([])
                size = 0
            found[-1].append(new_job)
            size += produce.MAX_BYTES + 1 if alone else len(new_job.payload)
        return found

    def _name(self, name: str) -> bytes:
        quoted = self._quoted.get(name)
        if quoted is None:
            quoted = self._quoted[check_name(name)] = codec.quoted(name)
        return quoted

    @staticmethod
    def _when(how: EnqueueOptions, now: float) -> tuple[When, float | None]:
        if how.delay is not None:
            return When("in", round(how.delay * 1000)), now + how.delay
        if how.at is not None:
            return When("at", round(how.at * 1000)), how.at
        return When(), None

    def _unique_key(self, name: str, args: bytes, how: EnqueueOptions) -> str:
        if isinstance(how.unique_key, str):
            return self.keys.unique(name, how.unique_key)
        if how.unique_key is not None:
            return self.keys.unique(name, codec.go_json(dict(how.unique_key)) + "\n")
        return self.keys.unique(name, codec.go_json(codec.json_value(args)) + "\n")

    @staticmethod
    def _extras(
        how: EnqueueOptions, source: str | int | None, unique_key: str | None, now: float
    ) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if unique_key is not None and how.unique_for is None:
            extras["unique"] = True
            extras["unique_key"] = unique_key
            if how.unique_until != "start":
                extras["unique_until"] = how.unique_until
        if source is not None:
            extras["source"] = source
        if how.expires is not None:
            # Must be the last field: the script looks for it there, to replace it by a value computed from Redis time.
            extras["expires"] = int((now + how.expires) * 1000)
        return extras
