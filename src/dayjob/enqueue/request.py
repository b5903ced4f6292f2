"""One enqueue request, from its options to its outcome: build the jobs, send them, resend after a lost reply, confirm.

An enqueue has three outcomes: stored (the call returns), not stored (it raises an error), or unknown (it raises
`Unknown`, and repeating it is safe). Every request has a slot and a number. Redis recognises a resend by them, so that
its jobs are not stored twice.

From top to bottom: `Builder` makes jobs and requests, `EnqueueRequest.steps` yields what to send, and `Sender` and
`AsyncSender` send it. Only these two wait.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from operator import attrgetter, itemgetter
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from dayjob.enqueue.connections import AsyncLinks, Links, LoopLinks
from dayjob.errors import BadOption, StoreError, TooLarge, Unavailable, Unknown
from dayjob.handlers.arguments import encode_unchecked
from dayjob.job import Job, new_id, running
from dayjob.options import Commit, Durability, EnqueueOptions, JobOptions, check_name
from dayjob.store import addresses, codec
from dayjob.store.async_link import AsyncLink
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import Op
from dayjob.store.ops import confirm, produce
from dayjob.store.ops.produce import FirstJob, Slot, Stored, When

L = TypeVar("L")
A = TypeVar("A")

#: Seconds to wait after each failed try of a request; None for the last try.
TRIES = (0.05, 0.25, 0.7, None)
#: Seconds between two requests on a slot that ask for Redis time and extend the slot's expiry.
TIME_REFRESH_SECONDS = 10.0
#: An enqueuer adds a name to known_jobs again after this many seconds, in case Redis was emptied.
KNOWN_JOBS_REFRESH_SECONDS = 300.0

#: Larger payloads are not kept under a chosen id, only their digest.
MAX_KEPT_PAYLOAD_BYTES = 16 << 10

_NOW = When()
_payload_of = attrgetter("payload")
_job_of = attrgetter("job")
_first: Callable[[list[Job | None]], Job | None] = itemgetter(0)


class Checked(Protocol):
    """The part of a job type that an enqueuer uses: its options, and how to check and encode its arguments."""

    @property
    def options(self) -> JobOptions: ...

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes: ...


Find = Callable[[str], Checked]


class NewJob(msgspec.Struct, frozen=True):
    """A job that is ready to be sent."""

    job: Job
    payload: bytes
    when: When
    #: Whether the caller chose its id.
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
    """Builds jobs from names, arguments and options, and requests from jobs."""

    def __init__(self, namespace: str, max_payload: int, find: Find | None) -> None:
        self.keys = Keys(namespace)
        self._max_payload = max_payload
        self._find = find
        #: When each name was last added to known_jobs, in monotonic time.
        self._introduced: dict[str, float] = {}
        #: Redis time minus this machine's time, from the last answer that had it.
        self.offset = 0.0
        #: Stores the jobs instead of Redis. It is here because copies made by `using()` share their builder.
        self.sink: Sink | None = None

    def encode(
        self, name: str, args: Mapping[str, Any], options: EnqueueOptions
    ) -> tuple[bytes, EnqueueOptions]:
        """Encode the arguments as JSON. Checks them against the job type if the enqueuer has one."""
        if self._find is None:
            return encode_unchecked(check_name(name), args), options
        job_type = self._find(name)
        if options.unique and job_type.options.unique_until != options.unique_until:
            options = replace(options, unique_until=job_type.options.unique_until)
        return job_type.encode((), args), options

    def new_job(self, name: str, args: bytes, options: EnqueueOptions) -> NewJob:
        """Build a new job from a checked name and encoded arguments. Raises TooLarge or BadOption."""
        now = time.time() + self.offset if self.sink is None else self.sink.now()
        source = options.source
        if source is None and options.inherit:
            outer = running.get()
            source = None if outer is None else outer.source
        when, due = _NOW, None
        if options.delay is not None:
            when, due = When("in", round(options.delay * 1000)), now + options.delay
        elif options.at is not None:
            when, due = When("at", round(options.at * 1000)), options.at
        unique_key = self._unique_key(name, args, options) if options.unique else None
        expires = options.expires
        job = Job(
            name, id=options.id, source=source, enqueued_at=now, scheduled_at=due, unique_key=unique_key,
            expires_at=None if expires is None else now + expires, raw_args=args,
        )  # fmt: skip
        extras = b""
        if source is not None or unique_key is not None or expires is not None:
            extras = _extras(job, options)
        milliseconds = int(now * 1000)
        payload = codec.template(name) % (
            codec.quoted(job.id), milliseconds // 1000, args, extras, milliseconds,
        )  # fmt: skip
        if len(payload) > self._max_payload:
            raise TooLarge(
                f"{name}: the job has {len(payload):,} bytes, the limit is {self._max_payload:,}. "
                "Store the data elsewhere and pass a reference, or raise max_payload."
            )
        return NewJob(job, payload, when, options.id is not None, options.unique_for, expires)

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

    def op(self, new_jobs: Sequence[NewJob], slot: Slot) -> Op[Stored]:
        """The request that stores jobs of one name and one time. A job with a unique key or a chosen id must be alone."""
        first = new_jobs[0]
        job, when, expires = first.job, first.when, first.expires
        known_at = self._introduced.get(job.name)
        introduce = known_at is None or time.monotonic() - known_at >= KNOWN_JOBS_REFRESH_SECONDS
        if first.chosen or job.unique_key is not None:
            return produce.admit(
                self.keys, slot, job.name, first.payload, when,
                job_id=job.id, chosen=first.chosen, unique_key=job.unique_key, unique_for=first.unique_for,
                introduce=introduce, expires=expires, digest=digest_to_keep(first),
            )  # fmt: skip
        payloads = list(map(_payload_of, new_jobs))
        if when.mode == "now":
            return produce.enqueue(self.keys, slot, job.name, payloads, introduce=introduce, expires=expires)
        return produce.schedule(
            self.keys, slot, job.name, payloads, when, introduce=introduce, expires=expires
        )

    def accept(self, new_jobs: Sequence[NewJob], stored: Stored) -> list[Job | None]:
        """The jobs to return to the caller, with the times of the answer; None for a duplicate. Raises BadOption."""
        first = new_jobs[0]
        self._introduced[first.job.name] = time.monotonic()
        if stored.now:
            self.offset = stored.now - time.time()
        if not stored.stored:
            return [None]
        if stored.existed:
            return [existing_job(first, stored.first)]
        if stored.due is not None and first.when.mode != "now":
            for new_job in new_jobs:
                new_job.job.scheduled_at = stored.due
        if stored.now:
            for new_job in new_jobs:
                if new_job.expires is not None:
                    new_job.job.expires_at = stored.now + new_job.expires
        return list(map(_job_of, new_jobs))

    def _unique_key(self, name: str, args: bytes, options: EnqueueOptions) -> str:
        if isinstance(options.unique_key, str):
            return self.keys.unique(name, options.unique_key)
        chosen = codec.json_value(args) if options.unique_key is None else dict(options.unique_key)
        return self.keys.unique(name, codec.go_json(chosen) + "\n")


def digest_to_keep(new_job: NewJob) -> bytes:
    """The digest to keep under the chosen id of a job whose payload is too large for that; empty for other jobs."""
    too_large = new_job.chosen and len(new_job.payload) > MAX_KEPT_PAYLOAD_BYTES
    return _digest(new_job.job) if too_large else b""


def _digest(job: Job) -> bytes:
    # The order of the arguments does not matter, as in unique keys.
    return b"sha256:" + sha256(f"{job.name}\n{codec.go_json(job.args)}".encode()).hexdigest().encode()


def existing_job(asked: NewJob, first: FirstJob | None) -> Job:
    """The job that is stored under a chosen id. Raises BadOption if all that is known is that it has other arguments."""
    job = asked.job
    if first is not None and first.kept.startswith(b"sha256:"):
        if first.kept != _digest(job):
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
    if job.expires_at is not None:
        # Must be the last field: the script looks for it there, to replace it by a value computed from Redis time.
        extras["expires"] = int(job.expires_at * 1000)
    return codec.more_fields(extras)


class NumberedLink(Generic[L]):
    """A link with its own slot, which numbers its requests."""

    def __init__(self, link: L) -> None:
        self.link = link
        self.renew()

    def renew(self) -> None:
        """Take a new slot, because the old one has an unanswered request that the caller may still repeat."""
        self.slot_id = new_id()
        self.number = 0
        self._fresh_at = -TIME_REFRESH_SECONDS

    def next(self) -> Slot:
        """The slot with the next number."""
        self.number += 1
        now = time.monotonic()
        fresh = now - self._fresh_at >= TIME_REFRESH_SECONDS
        if fresh:
            self._fresh_at = now
        return Slot(self.slot_id, self.number, fresh)


class Confirmed(msgspec.Struct, frozen=True):
    """A call of `run_confirmed`: an op, and the command that waits until what it wrote is safe."""

    #: A Link or an AsyncLink.
    link: Any
    op: Op[Stored]
    proof: Op[int]
    patience: float


class Pause(msgspec.Struct, frozen=True):
    """A wait between two tries."""

    seconds: float


#: What the steps of a request ask an enqueuer to do.
Command = Op[Any] | list[Op[Any]] | Confirmed | Pause
Commands = Generator[Command, Any, A]


class EnqueueRequest(msgspec.Struct, Generic[A]):
    """The jobs of one enqueue call on their way to Redis.

    After `Unknown`, the steps can be run again: they continue where they stopped, and return the result of the whole
    call.
    """

    builder: Builder
    #: The jobs of each request to Redis.
    batches: Sequence[Sequence[NewJob]]
    #: Turns the stored jobs, with None for each duplicate, into the return value of the call.
    read: Callable[[list[Job | None]], A]
    #: The durability that each request must reach, if any, within `timeout` seconds.
    wanted: Durability | None
    timeout: float
    #: The jobs of the requests that were answered, and how many requests that are.
    jobs: list[Job | None] = msgspec.field(default_factory=list)
    answered: int = 0
    #: The request that was sent last, until it is answered. A resend must be the same byte for byte.
    op: Op[Stored] | None = None
    #: Whether the server may have executed it.
    doubtful: bool = False

    def planned(self) -> A:
        """The return value of a call that will be sent at a commit."""
        return self.read([new_job.job for batch in self.batches for new_job in batch])

    def steps(
        self,
        numbered_link: NumberedLink[Any],
        able: set[Durability],
        again: Callable[[EnqueueRequest[A]], Any],
    ) -> Commands[A]:
        """Send the requests in order, each until it is answered. Raises StoreError.

        `able` are the durabilities that the server is known to be able to confirm; `again` repeats this after Unknown.
        """
        try:
            while self.answered < len(self.batches):
                batch = self.batches[self.answered]
                if self.op is None:
                    self.op = self.builder.op(batch, numbered_link.next())
                deadline = time.monotonic() + self.timeout if self.wanted else math.inf
                for pause in TRIES:
                    try:
                        if not self.wanted:
                            stored = yield self.op
                        else:
                            stored = yield from self._confirm(
                                numbered_link.link, self.op, self.wanted, able, deadline
                            )
                        break
                    except StoreError as error:
                        raised = self._judge(error, last=pause is None or time.monotonic() > deadline)
                        if raised is not None:
                            raise raised from error
                    yield Pause(pause or 0.0)
                self.jobs += self.builder.accept(batch, stored)
                self.answered += 1
                self.op = None
                self.doubtful = False
        except BaseException as error:
            # The unanswered request may be stored, also if this call is cancelled or interrupted, which closes the
            # generator. Another request on its slot would make repeat() unsafe.
            numbered_link.renew()
            if isinstance(error, Unknown):
                error.again = partial(again, self)
            raise
        return self.read(self.jobs)

    def _confirm(
        self, link: Any, op: Op[Stored], wanted: Durability, able: set[Durability], deadline: float
    ) -> Commands[Stored]:
        """Send one request and wait until it has the wanted durability.

        Raises Unknown if that was not confirmed, and Unavailable if a resend may confirm it.
        """
        if wanted not in able:
            yield from confirm.able(wanted)
            able.add(wanted)
        left = max(deadline - time.monotonic(), 0.001)
        stored: Stored
        stored, answer = yield Confirmed(link, op, confirm.confirm(wanted, left), left)
        if isinstance(answer, StoreError):
            able.discard(wanted)
        if not stored.stored:
            return stored  # a duplicate: this call wrote no job that could be lost
        if isinstance(answer, Unavailable):
            raise Unavailable(str(answer), sent=True)
        if isinstance(answer, StoreError):
            raise Unknown(f"stored, but not confirmed: {answer} (repeat() is safe)")
        if not confirm.enough(wanted, answer):
            raise Unknown(
                f"{confirm.shortfall(wanted, answer, self.timeout)} (repeat() waits again and is safe)"
            )
        return stored

    def _judge(self, error: StoreError, *, last: bool) -> StoreError | None:
        """The error to raise to the caller, or None to try again."""
        if isinstance(error, Unknown):
            self.doubtful = True
            return error
        if isinstance(error, Unavailable):
            self.doubtful = self.doubtful or error.sent
            if not last:
                return None
        if not self.doubtful and not self.jobs:
            self.op = None
            return error
        unknown = Unknown(self._progress(error))
        unknown.stored = sum(job is not None for job in self.jobs)
        return unknown

    def _progress(self, error: StoreError) -> str:
        """How much of the call is stored, and what stopped it."""
        total = sum(map(len, self.batches))
        unanswered = len(self.batches[self.answered])
        if not self.jobs and total == unanswered:
            return f"{error}; it may be stored, in part or whole (repeat() is safe)"
        stored = sum(job is not None for job in self.jobs)
        others = f", {stored:,} of them new" if stored < len(self.jobs) else ""
        doubt = f"the next {unanswered:,} may be" if self.doubtful else "the others are not"
        # "nothing was stored" is true of the request that failed, but not of the whole call.
        cause = str(error).replace("; nothing was stored", "")
        return (
            f"the first {len(self.jobs):,} of {total:,} jobs are stored{others}, {doubt} "
            f"(repeat() is safe and stores the rest). The cause: {cause}"
        )


class _SenderBase:
    """What both senders share: the builder, the default options and where to connect."""

    def __init__(
        self, builder: Builder, defaults: EnqueueOptions, *, redis: str | None, timeout: float
    ) -> None:
        self.builder = builder
        self._redis = redis
        #: Seconds to wait for answers, divided among the tries. The waits between the tries are not included.
        self._timeout = timeout
        self._answer_seconds = timeout / len(TRIES)
        #: The enqueuer's own `on_commit` and `durability`, for calls that choose neither; None if it has neither.
        self._defaults = defaults if defaults.on_commit or defaults.durability else None

    def _request(self, name: str, args: bytes, options: EnqueueOptions) -> EnqueueRequest[Job | None]:
        new_job = self.builder.new_job(name, args, options)
        return EnqueueRequest(self.builder, [[new_job]], _first, options.durability, self._timeout)

    def _request_many(self, new_jobs: Iterable[NewJob], options: EnqueueOptions) -> EnqueueRequest[list[Job]]:
        batches = self.builder.batches(new_jobs)
        return EnqueueRequest(self.builder, batches, _stored, options.durability, self._timeout)

    def _resolve(self) -> addresses.Address:
        return addresses.parse_url(addresses.connect_target(addresses.resolve(self._redis)))

    def _link_options(self) -> dict[str, Any]:
        return {
            "tag": self.builder.keys.known_jobs,
            "name": "dayjob:enqueuer",
            "timeout": self._answer_seconds,
        }


def _with_defaults(options: EnqueueOptions, defaults: EnqueueOptions) -> EnqueueOptions:
    return replace(
        options,
        on_commit=options.on_commit if options.commit_given else defaults.on_commit,
        durability=defaults.durability if options.durability is None else options.durability,
    )


def _stored(jobs: list[Job | None]) -> list[Job]:
    return [job for job in jobs if job is not None]


class Sender(_SenderBase):
    """Sends requests from sync code. An enqueuer, its using() copies and the job types of a pool share one."""

    def __init__(
        self, builder: Builder, defaults: EnqueueOptions, *, redis: str | None, timeout: float
    ) -> None:
        super().__init__(builder, defaults, redis=redis, timeout=timeout)
        self.links = Links()

    def submit(self, name: str, args: bytes, options: EnqueueOptions) -> Job | None:
        """Enqueue one job whose name is checked and whose arguments are encoded; None for a duplicate."""
        if self._defaults is not None:
            options = _with_defaults(options, self._defaults)
        return self.send(self._request(name, args, options), options.on_commit)

    def submit_many(self, new_jobs: Iterable[NewJob], options: EnqueueOptions) -> list[Job]:
        """Enqueue many jobs of one name. Duplicates are left out of the answer."""
        return self.send(self._request_many(new_jobs, options), options.on_commit)

    def send(
        self, request: EnqueueRequest[A], on_commit: Commit | None = None, sink: Sink | None = None
    ) -> A:
        """Send a request now, or have `on_commit` send it."""
        # A job built inside a testing block must not reach Redis, even if the commit comes after the block.
        sink = sink or self.builder.sink
        if on_commit is not None:
            on_commit(lambda: self.send(request, sink=sink))
            return request.planned()
        if sink is not None:
            return request.read(sink.store(request.batches))
        return self.drive(request)

    def drive(self, request: EnqueueRequest[A]) -> A:
        """Send a request to Redis on one link."""
        links = self.links
        try:
            numbered_link = links.idle.pop()
        except IndexError:
            numbered_link = links.wait(self._connect)
        steps = request.steps(numbered_link, links.able, self.drive)
        try:
            return _run(numbered_link.link, steps)
        finally:
            steps.close()
            links.idle.append(numbered_link)
            if links.waiting:
                links.notify()

    def walk(self, steps: Commands[A]) -> A:
        """Run steps other than an enqueue. Each request takes a link of its own, so that a pause holds none."""
        return _run(self, steps)

    def run(self, op: Op[A]) -> A:
        """Run one op, other than an enqueue, on one of the links."""
        numbered_link = self.links.take(self._connect)
        try:
            # Unlike an enqueue, this is not sent again.
            numbered_link.link.freshen()
            return numbered_link.link.run(op)
        finally:
            self.links.give(numbered_link)

    def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops in one round trip, on one of the links."""
        numbered_link = self.links.take(self._connect)
        try:
            numbered_link.link.freshen()
            return numbered_link.link.run_many(ops)
        finally:
            self.links.give(numbered_link)

    def close(self) -> None:
        """Close idle connections. The next call opens new ones."""
        self.links.close()

    def _connect(self) -> NumberedLink[Link]:
        with self.links.lock:
            if self.links.address is None:
                self.links.address = self._resolve()
        return NumberedLink(Link(self.links.address, **self._link_options()))


def _run(link: Link | Sender, steps: Commands[A]) -> A:
    """Run the steps over a link and return their result."""
    try:
        command = next(steps)
        while True:
            try:
                answer = link.run(command) if isinstance(command, Op) else _execute(link, command)
            except StoreError as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration as end:
        result: A = end.value
        return result


def _execute(link: Link | Sender, command: list[Op[Any]] | Confirmed | Pause) -> Any:
    if isinstance(command, Pause):
        return threading.Event().wait(command.seconds)
    if isinstance(command, list):
        return link.run_many(command)
    return command.link.run_confirmed(command.op, command.proof, command.patience)


class AsyncSender(_SenderBase):
    """Sends requests from async code. The counterpart of Sender."""

    def __init__(
        self, builder: Builder, defaults: EnqueueOptions, *, redis: str | None, timeout: float
    ) -> None:
        super().__init__(builder, defaults, redis=redis, timeout=timeout)
        self.links = AsyncLinks()
        #: Sends jobs at commit, because a commit hook is a plain function and may run in any thread.
        self._at_commit = Sender(builder, defaults, redis=redis, timeout=timeout)

    async def submit(self, name: str, args: bytes, options: EnqueueOptions) -> Job | None:
        """Enqueue one job whose name is checked and whose arguments are encoded; None for a duplicate."""
        if self._defaults is not None:
            options = _with_defaults(options, self._defaults)
        return await self.send(self._request(name, args, options), options.on_commit)

    async def submit_many(self, new_jobs: Iterable[NewJob], options: EnqueueOptions) -> list[Job]:
        """Enqueue many jobs of one name. Duplicates are left out of the answer."""
        return await self.send(self._request_many(new_jobs, options), options.on_commit)

    async def send(self, request: EnqueueRequest[A], on_commit: Commit | None = None) -> A:
        """Send a request now, or have `on_commit` send it."""
        sink = self.builder.sink
        if on_commit is not None:
            answer = _register(on_commit, lambda: self._at_commit.send(request, sink=sink))
            if inspect.isawaitable(answer):
                await answer
            return request.planned()
        if sink is not None:
            return request.read(await sink.astore(request.batches))
        return await self.drive(request)

    async def drive(self, request: EnqueueRequest[A]) -> A:
        """Send a request to Redis on one link."""
        here = self.links.here()
        async with here.places:
            numbered_link = await self._take(here)
            steps = request.steps(numbered_link, self.links.able, self.drive)
            try:
                return await _arun(numbered_link.link, steps)
            finally:
                steps.close()
                here.idle.append(numbered_link)

    async def walk(self, steps: Commands[A]) -> A:
        """Run steps other than an enqueue. Each request takes a link of its own, so that a pause holds none."""
        return await _arun(self, steps)

    async def run(self, op: Op[A]) -> A:
        """Run one op, other than an enqueue, on one of the links."""
        here = self.links.here()
        async with here.places:
            numbered_link = await self._take(here)
            try:
                # Unlike an enqueue, this is not sent again.
                await numbered_link.link.freshen()
                return await numbered_link.link.run(op)
            finally:
                here.idle.append(numbered_link)

    async def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops in one round trip, on one of the links."""
        here = self.links.here()
        async with here.places:
            numbered_link = await self._take(here)
            try:
                await numbered_link.link.freshen()
                return await numbered_link.link.run_many(ops)
            finally:
                here.idle.append(numbered_link)

    async def close(self) -> None:
        """Close the idle connections of this event loop. The next call opens new ones."""
        self._at_commit.close()
        idle = self.links.here().idle
        while idle:
            await idle.pop().link.close()

    async def _take(self, here: LoopLinks[AsyncLink]) -> NumberedLink[AsyncLink]:
        if here.idle:
            return here.idle.pop()
        if self.links.address is None:
            # In a thread, because it may start the embedded server, which would block the event loop.
            self.links.address = await asyncio.to_thread(self._resolve)
        return NumberedLink(AsyncLink(self.links.address, **self._link_options()))


async def _arun(link: AsyncLink | AsyncSender, steps: Commands[A]) -> A:
    """Like `_run`, over an async link."""
    try:
        command = next(steps)
        while True:
            try:
                answer = await (link.run(command) if isinstance(command, Op) else _aexecute(link, command))
            except StoreError as error:
                command = steps.throw(error)
            else:
                command = steps.send(answer)
    except StopIteration as end:
        result: A = end.value
        return result


async def _aexecute(link: AsyncLink | AsyncSender, command: list[Op[Any]] | Confirmed | Pause) -> Any:
    if isinstance(command, Pause):
        return await asyncio.sleep(command.seconds)
    if isinstance(command, list):
        return await link.run_many(command)
    return await command.link.run_confirmed(command.op, command.proof, command.patience)


def _register(on_commit: Commit, send: Callable[[], Any]) -> Any:
    """Pass `send` to `on_commit` from async code. Returns what `on_commit` returns, which may be awaitable."""
    try:
        return on_commit(send)
    except Exception as error:
        asgiref = sys.modules.get("asgiref.sync")
        if asgiref is None or type(error).__name__ != "SynchronousOnlyOperation":
            raise
        # Django's transactions belong to the thread that runs its sync code; asgiref runs a function in that thread.
        return asgiref.sync_to_async(on_commit, thread_sensitive=True)(send)
