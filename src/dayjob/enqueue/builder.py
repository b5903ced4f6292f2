"""Building: checks names and arguments, and makes jobs and their payloads."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from dayjob.errors import BadOption, TooLarge, UnknownJob
from dayjob.handlers.arguments import encode_unchecked
from dayjob.handlers.job_keys import KeyReader
from dayjob.instruments import INSTRUMENTS, Instrument
from dayjob.job import Job, RunningJob, running
from dayjob.middleware import EnqueueHook
from dayjob.names import check_name
from dayjob.options import EnqueueOptions, JobOptions, Provenance
from dayjob.store import codec, fork
from dayjob.store.keys import Keys
from dayjob.store.ops import produce
from dayjob.store.ops.produce import FirstJob, NewJob, When, digest_of

#: Longest id of a parent, in characters.
MAX_PARENT_ID = 200

_NOW = When()


class Checked(Protocol):
    """The part of a job type that an enqueuer uses: its options, and how to check and encode its arguments."""

    @property
    def options(self) -> JobOptions: ...

    @property
    def keys(self) -> KeyReader: ...

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes: ...


Find = Callable[[str], Checked]


class Sink(Protocol):
    """Stores jobs in memory instead of Redis, inside a `dayjob.testing` block."""

    def now(self) -> float: ...

    def store(self, batches: Sequence[Sequence[NewJob]], /) -> list[Job | None]: ...

    async def astore(self, batches: Sequence[Sequence[NewJob]], /) -> list[Job | None]: ...

    def defer(self, batches: Sequence[Sequence[NewJob]], /) -> None: ...

    def result(self, job_id: str, /) -> Any: ...

    def call(self, job_id: str, /) -> bytes: ...

    async def acall(self, job_id: str, /) -> bytes: ...

    def state(self, job_id: str, /) -> Any: ...

    def job_progress(self, job_id: str, /) -> Any: ...

    def stream(self, job_id: str, after: str, /) -> Any: ...

    def progress(self, batch_id: str, /) -> Any: ...

    def cancel_batch(self, batch_id: str, /) -> bool: ...

    @property
    def workflows(self) -> Any: ...


class Builder:
    """Builds jobs from names, arguments and options."""

    def __init__(
        self,
        namespace: str,
        max_payload: int,
        find: Find | None,
        hooks: Sequence[EnqueueHook] = (),
        provenance: Provenance = "parent",
    ) -> None:
        self.keys = Keys(namespace)
        #: The hooks of the pool, without those of the process.
        self.pool_hooks = hooks
        self._instruments: tuple[Instrument, ...] = ()
        self._instrument_hooks: list[EnqueueHook] = []
        self._max_payload = max_payload
        self._find = find
        self._origins = JobOrigins(provenance)
        #: When each name was last added to known_jobs, in monotonic time.
        self.introduced: dict[str, float] = {}
        #: The job types of names that were enqueued, to compute their keys.
        self.types: dict[str, Checked] = {}
        #: Job names that have no key, or no job type here. Asked for every job, so without a call.
        self._keyless: set[str] = set()
        #: Redis time minus this machine's time, from the last answer that had it.
        self.offset = 0.0
        #: Stores the jobs instead of Redis. It is here because copies made by `using()` share their builder.
        self.sink: Sink | None = None

    @property
    def hooks(self) -> Sequence[EnqueueHook]:
        """Called around every enqueue call, the first outermost: those of the process, then those of the pool."""
        installed = INSTRUMENTS.installed
        if installed is not self._instruments:
            self._instrument_hooks = INSTRUMENTS.enqueue_hooks(self.keys.namespace)
            self._instruments = installed
        return [*self._instrument_hooks, *self.pool_hooks] if installed else self.pool_hooks

    def encode(
        self, name: str, args: Mapping[str, Any], options: EnqueueOptions
    ) -> tuple[bytes, EnqueueOptions]:
        """Encode the arguments as JSON. Checks them against the job type if the enqueuer has one."""
        if self._find is None:
            # A name that was stored before is valid.
            if name not in self.introduced:
                check_name(name)
            return encode_unchecked(name, args), options
        job_type = self._find(name)
        if options.unique and job_type.options.unique_until != options.unique_until:
            options = replace(options, unique_until=job_type.options.unique_until)
        return job_type.encode((), args), options

    def new_job(
        self,
        name: str,
        args: bytes,
        options: EnqueueOptions,
        batch: str = "",
        number: int = 0,
        takes: Sequence[Sequence[str | int]] = (),
    ) -> NewJob:
        """Build a new job from a checked name and encoded arguments. Raises TooLarge or BadOption.

        `batch` is the id of the batch that it joins. The script that stores it replaces `number`, unless that is -1, which
        makes it a callback. For a node, `batch` is the id of its workflow, and `takes` has the arguments that are results.
        """
        now = time.time() + self.offset if self.sink is None else self.sink.now()
        source = options.source
        outer = running.get()
        if source is None and options.inherit and outer is not None:
            source = outer.source
        when, due = _NOW, None
        if options.delay is not None:
            when, due = When("in", round(options.delay * 1000)), now + options.delay
        elif options.at is not None:
            when, due = When("at", round(options.at * 1000)), options.at
        unique_key = self._unique_key(name, args, options) if options.unique else None
        expires = options.expires
        job = Job(
            name, id=options.id, source=source, enqueued_at=now, scheduled_at=due, unique_key=unique_key,
            expires_at=None if expires is None else now + expires, raw_args=args, headers=options.headers,
        )  # fmt: skip
        extras = b""
        if source is not None or unique_key is not None or expires is not None or options.headers:
            extras = _extras(job, options)
        origin = self._origins.field(outer)
        if origin:
            # Not behind them: the script looks for the time of expiry at the end.
            extras = origin + extras
        if options.reply is not None:
            extras = codec.more_fields({"reply": options.reply.seconds}) + extras
        if batch:
            extras = codec.more_fields({"membership": [batch, number]}) + extras
        if takes:
            extras = codec.more_fields({"takes": takes}) + extras
        milliseconds = int(now * 1000)
        payload = codec.template(name) % (
            codec.quoted(job.id), milliseconds // 1000, args, extras, milliseconds,
        )  # fmt: skip
        if len(payload) > self._max_payload:
            raise TooLarge(
                f"{name}: the job has {len(payload):,} bytes, the limit is {self._max_payload:,}. "
                "Store the data elsewhere and pass a reference, or raise max_payload."
            )
        key = None if name in self._keyless else self._key_of(name, args, source)
        return NewJob(job, payload, when, options.id is not None, options.unique_for, expires, key, batch)

    def batches(self, new_jobs: Iterable[NewJob]) -> list[list[NewJob]]:
        """Split jobs into requests of bounded size."""
        found: list[list[NewJob]] = []
        size = produce.MAX_BYTES + 1
        for new_job in new_jobs:
            alone = new_job.alone
            if alone or size + len(new_job.payload) > produce.MAX_BYTES or len(found[-1]) >= produce.MAX_JOBS:
                found.append([])
                size = 0
            found[-1].append(new_job)
            size += produce.MAX_BYTES + 1 if alone else len(new_job.payload)
        return found

    def _key_of(self, name: str, args: bytes, source: str | int | None) -> str | None:
        """The key of a new job; None if its name has none, or this process does not know its job type."""
        job_type = self.types.get(name)
        if job_type is None:
            if self._find is None:
                self._keyless.add(name)
                return None
            try:
                job_type = self.types[name] = self._find(name)
            except UnknownJob:
                return None
        rule = job_type.options.fair_by
        if rule is None:
            self._keyless.add(name)
            return None
        return job_type.keys.of(rule.by, args, source)

    def _unique_key(self, name: str, args: bytes, options: EnqueueOptions) -> str:
        if isinstance(options.unique_key, str):
            return self.keys.unique(name, options.unique_key)
        chosen = codec.json_value(args) if options.unique_key is None else dict(options.unique_key)
        return self.keys.unique(name, codec.go_json(chosen) + "\n")


class JobOrigins:
    """Who enqueues: the field of the payload for the job that does, or for this machine and process."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._forks = -1
        self._producer = b""

    def field(self, outer: RunningJob | None) -> bytes:
        """The field for a job that is enqueued now, inside the job `outer` or outside of any."""
        if self._provenance == "off":
            return b""
        if outer is not None:
            return codec.more_fields({"parent": f"{outer.name}/{outer.id[:MAX_PARENT_ID]}"})
        if self._provenance == "parent":
            return b""
        if self._forks != fork.number:
            # Built once for each process.
            self._producer = codec.more_fields({"producer": f"{platform.node()[:100]}/{os.getpid()}"})
            self._forks = fork.number
        return self._producer


def existing_job(asked: NewJob, first: FirstJob | None) -> Job:
    """The job that is stored under a chosen id. Raises BadOption if all that is known is that it has other arguments."""
    job = asked.job
    if first is not None and first.kept.startswith(b"sha256:"):
        if first.kept != digest_of(job):
            raise BadOption(
                f"{job.name}: a job with id={job.id!r} and other arguments was stored within the last day. Nothing was "
                "stored now. Use another id, or the arguments of the first call"
            )
        job.scheduled_at = first.due
    elif first is not None:
        job = codec.job_of(codec.read(first.kept))
        job.scheduled_at = first.due
    job.existed = True
    return job


def _extras(job: Job, options: EnqueueOptions) -> bytes:
    """The fields of the payload that only some jobs have."""
    extras: dict[str, Any] = {}
    if job.unique_key is not None and options.unique_for is None:
        extras["unique"] = True
        extras["unique_key"] = job.unique_key
        if options.unique_until != "start":
            extras["unique_until"] = options.unique_until
    if job.source is not None:
        extras["source"] = job.source
    if job.headers:
        extras["headers"] = job.headers
    if job.expires_at is not None:
        # Must be the last field: the script looks for it there, to replace it by a value computed from Redis time.
        extras["expires"] = int(job.expires_at * 1000)
    return codec.more_fields(extras)
