"""Enqueuer and AsyncEnqueuer: put jobs in, from anywhere. One set of builders, two thin drivers.

An enqueue has three answers: stored (it returns), not stored (an error), unknown (`Unknown`, whose repeat is safe).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, Self, Unpack

import msgspec

from dayjob import settings
from dayjob.arguments import encode_unchecked
from dayjob.errors import (
    BadOption,
    JobFailed,
    NotReady,
    ResultTimeout,
    StoreError,
    TooLarge,
    Unavailable,
    Unknown,
)
from dayjob.job import Job, new_id, running
from dayjob.options import Commit, How, JobOptions, Seconds, Using, check_name, how_of
from dayjob.registry import epoch, wait_of
from dayjob.store import codec
from dayjob.store.aio import AsyncLink
from dayjob.store.keys import Keys
from dayjob.store.op import Op, plain
from dayjob.store.ops import produce
from dayjob.store.ops.produce import Slot, Stored, When
from dayjob.store.sync import Link

#: Seconds to wait after each try of a request whose answer was lost or refused for now; None after the last.
TRIES = (0.05, 0.25, 0.7, None)
#: A name is added to known_jobs again after this many seconds, should somebody have emptied Redis.
KNOWN = 300.0
#: How many connections an enqueuer opens at most, one for each call under way.
MOST_LINKS = 16


class Checked(Protocol):
    """What an enqueuer knows of a job type: how to check and encode its arguments."""

    @property
    def options(self) -> JobOptions: ...

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes: ...


Find = Callable[[str], Checked]


@dataclass(frozen=True, slots=True)
class Draft:
    """A job ready to be sent: everything but the slot."""

    job: Job
    name: str
    payload: bytes
    when: When
    chosen: bool
    unique_for: float | None


class Sink(Protocol):
    """What stands in for Redis inside a `dayjob.testing` block."""

    def now(self) -> float: ...

    def store(self, batches: Sequence[Sequence[Draft]], /) -> list[Job | None]: ...

    async def astore(self, batches: Sequence[Sequence[Draft]], /) -> list[Job | None]: ...

    def result(self, job_id: str, /) -> Any: ...


class Builder:
    """The pure part of both enqueuers: from a name, arguments and options to drafts and ops."""

    def __init__(self, namespace: str, max_payload: int, find: Find | None) -> None:
        self.keys = Keys(namespace)
        self._max_payload = max_payload
        self._find = find
        self._quoted: dict[str, bytes] = {}
        self._introduced: dict[str, float] = {}
        #: Redis time minus this machine's, as last seen.
        self.offset = 0.0
        #: Takes the drafts in place of Redis. Here, because copies made by `using()` share their builder.
        self.sink: Sink | None = None

    def encode(self, name: str, args: Mapping[str, Any], how: How) -> tuple[bytes, How]:
        """The arguments as JSON, checked against the job type where it is known."""
        if self._find is None:
            return encode_unchecked(check_name(name), args), how
        job_type = self._find(name)
        if how.unique and job_type.options.unique_until != how.unique_until:
            how = replace(how, unique_until=job_type.options.unique_until)
        return job_type.encode((), args), how

    def draft(self, name: str, args: bytes, how: How) -> Draft:
        """A new job. Raises TooLarge or BadOption."""
        now = time.time() + self.offset if self.sink is None else self.sink.now()
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
        return Draft(job, name, payload, when, how.id is not None, how.unique_for)

    def op(self, drafts: Sequence[Draft], slot: Slot) -> Op[Stored]:
        """The request that stores drafts of one name and one time; more than one only without key and chosen id."""
        first = drafts[0]
        introduce = time.monotonic() - self._introduced.get(first.name, -KNOWN) >= KNOWN
        if first.chosen or first.job.unique_key is not None:
            return produce.admit(
                self.keys, slot, first.name, first.payload, first.when,
                job_id=first.job.id, chosen=first.chosen, unique_key=first.job.unique_key, unique_for=first.unique_for,
                introduce=introduce,
            )  # fmt: skip
        payloads = [draft.payload for draft in drafts]
        if first.when.mode == "now":
            return produce.enqueue(self.keys, slot, first.name, payloads, introduce=introduce)
        return produce.schedule(self.keys, slot, first.name, payloads, first.when, introduce=introduce)

    def accept(self, drafts: Sequence[Draft], stored: Stored) -> list[Job | None]:
        """What the caller gets, and what is learnt from the answer."""
        self._introduced[drafts[0].name] = time.monotonic()
        self.offset = stored.now - time.time()
        if not stored.stored:
            return [None]
        if stored.due is not None and drafts[0].when.mode != "now":
            for draft in drafts:
                draft.job.scheduled_at = stored.due
        return [draft.job for draft in drafts]

    def batches(self, drafts: Iterable[Draft]) -> list[list[Draft]]:
        """Drafts in requests of bounded size."""
        found: list[list[Draft]] = []
        size = produce.MOST_BYTES + 1
        for draft in drafts:
            alone = draft.chosen or draft.job.unique_key is not None
            if alone or size + len(draft.payload) > produce.MOST_BYTES or len(found[-1]) >= produce.MOST_JOBS:
                found.append([])
                size = 0
            found[-1].append(draft)
            size += produce.MOST_BYTES + 1 if alone else len(draft.payload)
        return found

    def _name(self, name: str) -> bytes:
        quoted = self._quoted.get(name)
        if quoted is None:
            quoted = self._quoted[check_name(name)] = codec.quoted(name)
        return quoted

    @staticmethod
    def _when(how: How, now: float) -> tuple[When, float | None]:
        if how.delay is not None:
            return When("in", round(how.delay * 1000)), now + how.delay
        if how.at is not None:
            return When("at", round(how.at * 1000)), how.at
        return When(), None

    def _unique_key(self, name: str, args: bytes, how: How) -> str:
        if isinstance(how.unique_key, str):
            return self.keys.unique(name, how.unique_key)
        if how.unique_key is not None:
            return self.keys.unique(name, codec.go_json(dict(how.unique_key)) + "\n")
        return self.keys.unique(name, codec.go_json(msgspec.json.decode(args)) + "\n")

    @staticmethod
    def _extras(how: How, source: str | int | None, unique_key: str | None, now: float) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if unique_key is not None and how.unique_for is None:
            extras["unique"] = True
            extras["unique_key"] = unique_key
            if how.unique_until != "start":
                extras["unique_until"] = how.unique_until
        if source is not None:
            extras["source"] = source
        if how.expires is not None:
            extras["expires"] = int((now + how.expires) * 1000)
        return extras


class Lane:
    """A link with a slot of its own, on which requests are numbered."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.renew()

    def renew(self) -> None:
        """Take a new slot: on the old one a request is open whose repeat must stay possible."""
        self.slot_id = new_id()
        self.number = 0

    def next(self) -> Slot:
        """The slot with the next number."""
        self.number += 1
        return Slot(self.slot_id, self.number)


class Doubt:
    """Whether a request, or one before it that belongs to the same call, may have been stored."""

    def __init__(self, stored: bool = False) -> None:
        self._stored = stored

    def judge(self, error: StoreError, *, last: bool) -> StoreError | None:
        """What to raise for this error, or None to try again."""
        if isinstance(error, Unavailable):
            self._stored = self._stored or error.sent
            if not last:
                return None
        if not self._stored:
            return error
        return Unknown(f"{error}; it may be stored, in part or whole (repeat() is safe)", _never)


class Links:
    """The connections of an enqueuer, shared by its using() copies. A forked child starts with none."""

    def __init__(self) -> None:
        self.reset()
        _all_links.add(self)

    def reset(self) -> None:
        """Forget everything: after a fork sockets and slots are the parent's, and its locks may be held."""
        self.lanes: deque[Lane] = deque()
        self.places = threading.BoundedSemaphore(MOST_LINKS)
        self.lock = threading.Lock()
        self.address: settings.Address | None = None
        #: For async code: a semaphore belongs to one event loop.
        self.home: asyncio.AbstractEventLoop | None = None
        self.aplaces = asyncio.Semaphore(MOST_LINKS)

    def async_places(self) -> asyncio.Semaphore:
        """The semaphore of the running loop; another loop has connections of its own."""
        loop = asyncio.get_running_loop()
        if self.home is not loop:
            self.home, self.lanes, self.aplaces = loop, deque(), asyncio.Semaphore(MOST_LINKS)
        return self.aplaces


_all_links: weakref.WeakSet[Links] = weakref.WeakSet()


def _after_fork() -> None:
    for links in list(_all_links):
        links.reset()


os.register_at_fork(after_in_child=_after_fork)


class _Base:
    """What both enqueuers share: options, and everything that can be done before sending."""

    def __init__(
        self,
        namespace: str = "dayjob",
        *,
        redis: str | None = None,
        on_commit: Commit | None = None,
        max_payload: int = 1 << 20,
        find: Find | None = None,
    ) -> None:
        self.namespace = namespace
        self._redis = redis
        self._builder = Builder(namespace, max_payload, find)
        self._how = How(on_commit=on_commit)

    def using(self, **options: Unpack[Using]) -> Self:
        """An enqueuer like this one whose jobs get these options; connections are shared. Raises BadOption."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._how = how_of(options, self._how)
        return twin

    def sourced(self, source: str | int | None) -> Self:
        """An enqueuer whose jobs are for `source`."""
        return self.using(source=source)

    def _one(self, name: str, args: Mapping[str, Any], **changes: Any) -> tuple[str, bytes, How]:
        how = replace(self._how, **changes) if changes else self._how
        if how.unique_key is not None or how.unique_for is not None:
            how = replace(how, unique=True)
        encoded, how = self._builder.encode(name, args, how)
        return name, encoded, how

    def _merge(self, how: How) -> How:
        """The options of a typed handle, over those of this enqueuer."""
        if how.on_commit is None and self._how.on_commit is not None:
            how = replace(how, on_commit=self._how.on_commit)
        if (how.unique_key is not None or how.unique_for is not None) and not how.unique:
            how = replace(how, unique=True)
        return how

    def _many(self, name: str, items: Iterable[Mapping[str, Any]]) -> list[list[Draft]]:
        if self._how.id is not None:
            raise BadOption("enqueue_many: one id cannot serve many jobs; drop using(id=...)")
        drafts = []
        for item in items:
            _, encoded, how = self._one(name, item)
            drafts.append(self._builder.draft(name, encoded, how))
        return self._builder.batches(drafts)

    def _address(self) -> settings.Address:
        return settings.parse_url(settings.connect_target(settings.resolve(self._redis)))

    def _result_op(self, job_id: str) -> Op[Any]:
        return plain("GET", self._builder.keys.result(job_id))


def read_result(raw: bytes, job_id: str) -> Any:
    """The result in a stored answer. Raises JobFailed where it is an error."""
    answer = msgspec.json.decode(raw)
    if "error" in answer:
        raise JobFailed(f"{job_id}: {answer['error']}")
    return answer.get("result")


class Enqueuer(_Base):
    """Puts jobs in. Safe to share between threads; opens its connections at first use."""

    def __init__(
        self,
        namespace: str = "dayjob",
        *,
        redis: str | None = None,
        on_commit: Commit | None = None,
        max_payload: int = 1 << 20,
        find: Find | None = None,
    ) -> None:
        super().__init__(namespace, redis=redis, on_commit=on_commit, max_payload=max_payload, find=find)
        self._links = Links()

    def enqueue(self, name: str, /, **args: Any) -> Job:
        """Put a job in its queue. Raises BadArguments, StoreError."""
        return self._certain(self.submit(*self._one(name, args)))

    def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Put a job in, to run after `delay` seconds."""
        return self._certain(self.submit(*self._one(name, args, delay=wait_of(delay))))

    def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Put a job in, to run at `when`."""
        return self._certain(self.submit(*self._one(name, args, at=epoch(when))))

    def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Put a job in unless one like it waits; None when one does."""
        return self.submit(*self._one(name, args, unique=True))

    def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """As enqueue_unique, to run after `delay` seconds."""
        return self.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """As enqueue_unique, to run at `when`."""
        return self.submit(*self._one(name, args, unique=True, at=epoch(when)))

    def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Put many jobs of one name in, a few hundred to a round trip. All are checked before any is sent."""
        batches = self._many(name, items)
        if self._how.on_commit is not None:
            self._how.on_commit(partial(self._send, batches, self._builder.sink))
            return [draft.job for drafts in batches for draft in drafts]
        return [job for job in self._send(batches) if job is not None]

    def submit(self, name: str, args: bytes, how: How) -> Job | None:
        """Send one job whose arguments are encoded already."""
        how = self._merge(how)
        drafts = [[self._builder.draft(name, args, how)]]
        if how.on_commit is not None:
            # What was drafted inside a testing block must not reach Redis when the commit comes after it.
            how.on_commit(partial(self._send, drafts, self._builder.sink))
            return drafts[0][0].job
        return self._send(drafts)[0]

    def result(self, job: Job | str, timeout: float | None = None) -> Any:
        """What the job returned, waiting up to `timeout` seconds. Raises ResultTimeout, JobFailed, StoreError.

        Only job types with `keep=` keep results.
        """
        job_id = job if isinstance(job, str) else job.id
        if self._builder.sink is not None:
            return self._builder.sink.result(job_id)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        wait = 0.005
        while True:
            raw = self.run(self._result_op(job_id))
            if raw is not None:
                return read_result(raw, job_id)
            wait = min(wait * 1.5, 0.25)
            if deadline is not None:
                wait = min(wait, deadline - time.monotonic())
                if wait <= 0:
                    raise ResultTimeout(
                        f"no result of job {job_id} within {timeout:g} s (is keep= set for its type?)"
                    )
            pause.wait(wait)

    def run(self, op: Op[Any]) -> Any:
        """Run an op that is safe to repeat on one of the connections."""
        with self._links.places:
            lane = self._lane()
            try:
                return lane.link.run(op)
            finally:
                self._links.lanes.append(lane)

    def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
        while self._links.lanes:
            self._links.lanes.pop().link.close()

    def _lane(self) -> Lane:
        try:
            return self._links.lanes.pop()
        except IndexError:
            with self._links.lock:
                if self._links.address is None:
                    self._links.address = self._address()
                address = self._links.address
            return Lane(Link(address, tag=self._builder.keys.known_jobs, name="dayjob:enqueuer"))

    def _send(self, batches: Sequence[Sequence[Draft]], sink: Sink | None = None) -> list[Job | None]:
        """Send requests in order; each is resent on its slot and number until it is answered."""
        sink = sink or self._builder.sink
        if sink is not None:
            return sink.store(batches)
        return self._send_on(batches, [])

    def _send_on(self, batches: Sequence[Sequence[Draft]], jobs: list[Job | None]) -> list[Job | None]:
        with self._links.places:
            lane = self._lane()
            try:
                for i, drafts in enumerate(batches):
                    op = self._builder.op(drafts, lane.next())
                    try:
                        stored = self._insist(lane.link, op, Doubt(bool(jobs)))
                    except Unknown as unknown:
                        lane.renew()
                        unknown._repeat = partial(self._repeat, op, batches[i:], jobs)
                        raise
                    jobs = jobs + self._builder.accept(drafts, stored)
            finally:
                self._links.lanes.append(lane)
        return jobs

    @staticmethod
    def _insist(link: Link, op: Op[Stored], doubt: Doubt) -> Stored:
        pause = threading.Event()
        for wait in TRIES:
            try:
                return link.run(op)
            except StoreError as error:
                verdict = doubt.judge(error, last=wait is None)
                if verdict is not None:
                    raise verdict from error
            pause.wait(wait)
        raise AssertionError("the last try ends in a verdict")

    def _repeat(self, op: Op[Stored], batches: Sequence[Sequence[Draft]], before: list[Job | None]) -> Any:
        with self._links.places:
            lane = self._lane()
            try:
                stored = self._insist(lane.link, op, Doubt(True))
            except Unknown as unknown:
                unknown._repeat = partial(self._repeat, op, batches, before)
                raise
            finally:
                self._links.lanes.append(lane)
        jobs = self._send_on(batches[1:], before + self._builder.accept(batches[0], stored))
        return jobs if len(jobs) != 1 else jobs[0]

    @staticmethod
    def _certain(job: Job | None) -> Job:
        if job is None:
            raise NotReady("a job like it already waits; use enqueue_unique, which returns None for that")
        return job


def _never() -> Any:
    raise AssertionError("replaced before anyone sees it")


class AsyncEnqueuer(_Base):
    """Puts jobs in, from async code: the methods of Enqueuer, awaited. Opens its connections at first use."""

    def __init__(
        self,
        namespace: str = "dayjob",
        *,
        redis: str | None = None,
        on_commit: Commit | None = None,
        max_payload: int = 1 << 20,
        find: Find | None = None,
    ) -> None:
        super().__init__(namespace, redis=redis, on_commit=on_commit, max_payload=max_payload, find=find)
        self._links = Links()

    async def enqueue(self, name: str, /, **args: Any) -> Job:
        """Put a job in its queue. Raises BadArguments, StoreError."""
        return Enqueuer._certain(await self.submit(*self._one(name, args)))

    async def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Put a job in, to run after `delay` seconds."""
        return Enqueuer._certain(await self.submit(*self._one(name, args, delay=wait_of(delay))))

    async def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Put a job in, to run at `when`."""
        return Enqueuer._certain(await self.submit(*self._one(name, args, at=epoch(when))))

    async def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Put a job in unless one like it waits; None when one does."""
        return await self.submit(*self._one(name, args, unique=True))

    async def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """As enqueue_unique, to run after `delay` seconds."""
        return await self.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    async def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """As enqueue_unique, to run at `when`."""
        return await self.submit(*self._one(name, args, unique=True, at=epoch(when)))

    async def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Put many jobs of one name in, a few hundred to a round trip. All are checked before any is sent."""
        self._refuse_commit(self._how)
        return [job for job in await self._send(self._many(name, items)) if job is not None]

    async def submit(self, name: str, args: bytes, how: How) -> Job | None:
        """Send one job whose arguments are encoded already."""
        how = self._merge(how)
        if how.on_commit is not None:
            raise BadOption(
                "on_commit calls a plain function: in async code use enqueue(...) for it, not aenqueue"
            )
        return (await self._send([[self._builder.draft(name, args, how)]]))[0]

    @staticmethod
    def _refuse_commit(how: How) -> None:
        if how.on_commit is not None:
            raise BadOption(
                "on_commit calls a plain function: in async code use enqueue(...) for it, not aenqueue"
            )

    async def result(self, job: Job | str, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - a limit on the job
        """What the job returned, waiting up to `timeout` seconds. Raises ResultTimeout, JobFailed, StoreError."""
        job_id = job if isinstance(job, str) else job.id
        if self._builder.sink is not None:
            return self._builder.sink.result(job_id)
        deadline = None if timeout is None else time.monotonic() + timeout
        wait = 0.005
        while True:
            raw = await self.run(self._result_op(job_id))
            if raw is not None:
                return read_result(raw, job_id)
            wait = min(wait * 1.5, 0.25)
            if deadline is not None:
                wait = min(wait, deadline - time.monotonic())
                if wait <= 0:
                    raise ResultTimeout(
                        f"no result of job {job_id} within {timeout:g} s (is keep= set for its type?)"
                    )
            await asyncio.sleep(wait)

    async def run(self, op: Op[Any]) -> Any:
        """Run an op that is safe to repeat on one of the connections."""
        async with self._links.async_places():
            lane = await self._lane()
            try:
                return await lane.link.run(op)
            finally:
                self._links.lanes.append(lane)

    async def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
        while self._links.lanes:
            await self._links.lanes.pop().link.close()

    async def _lane(self) -> Lane:
        try:
            return self._links.lanes.pop()
        except IndexError:
            if self._links.address is None:
                # May start the embedded server, which takes a moment.
                self._links.address = await asyncio.to_thread(self._address)
            address = self._links.address
            return Lane(AsyncLink(address, tag=self._builder.keys.known_jobs, name="dayjob:enqueuer"))

    async def _send(self, batches: Sequence[Sequence[Draft]]) -> list[Job | None]:
        if self._builder.sink is not None:
            return await self._builder.sink.astore(batches)
        return await self._send_on(batches, [])

    async def _send_on(self, batches: Sequence[Sequence[Draft]], jobs: list[Job | None]) -> list[Job | None]:
        async with self._links.async_places():
            lane = await self._lane()
            try:
                for i, drafts in enumerate(batches):
                    op = self._builder.op(drafts, lane.next())
                    try:
                        stored = await self._insist(lane.link, op, Doubt(bool(jobs)))
                    except BaseException as error:
                        # Cancelled in mid-request is unknown too: that slot must not be used on.
                        lane.renew()
                        if isinstance(error, Unknown):
                            error._repeat = partial(self._repeat, op, batches[i:], jobs)
                        raise
                    jobs = jobs + self._builder.accept(drafts, stored)
            finally:
                self._links.lanes.append(lane)
        return jobs

    @staticmethod
    async def _insist(link: AsyncLink, op: Op[Stored], doubt: Doubt) -> Stored:
        for wait in TRIES:
            try:
                return await link.run(op)
            except StoreError as error:
                verdict = doubt.judge(error, last=wait is None)
                if verdict is not None:
                    raise verdict from error
            await asyncio.sleep(wait or 0)
        raise AssertionError("the last try ends in a verdict")

    async def _repeat(
        self, op: Op[Stored], batches: Sequence[Sequence[Draft]], before: list[Job | None]
    ) -> Any:
        async with self._links.async_places():
            lane = await self._lane()
            try:
                stored = await self._insist(lane.link, op, Doubt(True))
            except Unknown as unknown:
                unknown._repeat = partial(self._repeat, op, batches, before)
                raise
            finally:
                self._links.lanes.append(lane)
        jobs = await self._send_on(batches[1:], before + self._builder.accept(batches[0], stored))
        return jobs if len(jobs) != 1 else jobs[0]
