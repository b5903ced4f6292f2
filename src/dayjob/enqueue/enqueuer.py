"""Enqueuer and AsyncEnqueuer, which store jobs in Redis. They share the builder and differ in how they send.

An enqueue has three outcomes: stored (the call returns), not stored (it raises an error), or unknown (it raises
`Unknown`, and repeating it is safe).
"""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from dayjob.enqueue.builder import Builder, Find, NewJob, Sink
from dayjob.enqueue.connections import EnqueueRequest, Links, NumberedLink, confirmed
from dayjob.errors import BadOption, JobFailed, ResultTimeout, StoreError, Unknown
from dayjob.explain.reasons import explain
from dayjob.explain.words import sentence
from dayjob.handlers.registry import epoch, require_stored, wait_of
from dayjob.job import Job
from dayjob.options import (
    Commit,
    Durability,
    EnqueueOptions,
    Seconds,
    Using,
    check_text,
    durability_of,
    read_using,
)
from dayjob.store import addresses, codec
from dayjob.store.async_link import AsyncLink
from dayjob.store.link import Link
from dayjob.store.op import Op, plain
from dayjob.store.ops import confirm
from dayjob.store.ops.find import State, find_job
from dayjob.store.ops.produce import Stored
from dayjob.store.steps import Steps, awalk, walk

A = TypeVar("A")

#: Seconds to wait after each failed try of a request; None for the last try.
TRIES = (0.05, 0.25, 0.7, None)


class _EnqueuerBase:
    """What both enqueuers share: their options, and building the jobs to send."""

    def __init__(
        self,
        namespace: str | None = None,
        *,
        redis: str | None = None,
        on_commit: Commit | None = None,
        max_payload: int = 1 << 20,
        timeout: float = 5.0,
        durability: str = "memory",
        find: Find | None = None,
    ) -> None:
        if not 0.1 <= timeout <= 3600:
            raise BadOption(f"timeout={timeout!r}: give seconds from 0.1 to 3600")
        #: Seconds to wait for answers, divided among the tries. The waits between the tries are not included.
        self._timeout = timeout
        self._answer = timeout / len(TRIES)
        self.namespace = addresses.resolve_namespace(namespace)
        self._redis = redis
        self._builder = Builder(self.namespace, max_payload, find)
        self._how = EnqueueOptions(
            on_commit=on_commit, durability=durability_of(durability, type(self).__name__) or None
        )

    def using(self, **options: Unpack[Using]) -> Self:
        """A copy of this enqueuer whose jobs get these options. It shares the connections. Raises BadOption."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._how = read_using(options, self._how)
        return twin

    def sourced(self, source: str | int | None) -> Self:
        """A copy of this enqueuer whose jobs have this `source`."""
        return self.using(source=source)

    def _one(self, name: str, args: Mapping[str, Any], **changes: Any) -> tuple[str, bytes, EnqueueOptions]:
        how = replace(self._how, **changes) if changes else self._how
        if how.unique_key is not None or how.unique_for is not None:
            how = replace(how, unique=True)
        encoded, how = self._builder.encode(name, args, how)
        return name, encoded, how

    def _merge(self, how: EnqueueOptions) -> EnqueueOptions:
        """The options of a job type's `using()`, with those of this enqueuer as defaults."""
        if not how.commit_said and self._how.on_commit is not None:
            how = replace(how, on_commit=self._how.on_commit)
        if how.durability is None and self._how.durability:
            how = replace(how, durability=self._how.durability)
        if (how.unique_key is not None or how.unique_for is not None) and not how.unique:
            how = replace(how, unique=True)
        return how

    def _many(self, name: str, items: Iterable[Mapping[str, Any]]) -> list[list[NewJob]]:
        if self._how.id is not None:
            raise BadOption("enqueue_many: jobs cannot share one id; remove using(id=...)")
        new_jobs = []
        for item in items:
            _, encoded, how = self._one(name, item)
            new_jobs.append(self._builder.new_job(name, encoded, how))
        return self._builder.batches(new_jobs)

    def _address(self) -> addresses.Address:
        return addresses.parse_url(addresses.connect_target(addresses.resolve(self._redis)))

    def _why_no_result(self, job: Job | str, timeout: float | None) -> Steps[str]:
        """The message of a ResultTimeout, with the state of the job."""
        job_id, name = self._id_and_name(job)
        message = f"no result of job {job_id} within {timeout or 0:g} s"
        try:
            why = yield from explain(self._builder.keys, job_id, name)
        except StoreError:
            return message
        if why.kind == "not_found":
            return f"{message}: the job was not found. Only job types with keep= keep results, for that long"
        first, _, _ = sentence(why).partition("\n")
        return f"{message}. {first.rstrip('.')}"

    def _id_and_name(self, job: Job | str) -> tuple[str, str | None]:
        """The id of a job to look up, and its name if it is known. Raises BadOption."""
        return (check_text(job, "the id of a job"), None) if isinstance(job, str) else (job.id, job.name)

    def _result_op(self, job_id: str) -> Op[Any]:
        return plain("GET", self._builder.keys.result(job_id))


def _first(jobs: list[Job | None]) -> Job | None:
    return jobs[0]


def _all(jobs: list[Job | None]) -> list[Job]:
    return [job for job in jobs if job is not None]


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


def read_result(raw: bytes, job_id: str) -> Any:
    """Decode a stored result. Raises JobFailed if the job failed."""
    answer = codec.json_value(raw)
    if "error" in answer:
        raise JobFailed(f"{job_id}: {answer['error']}")
    return answer.get("result")


class Enqueuer(_EnqueuerBase):
    """Stores jobs in Redis. Threads may share one. Connects at first use."""

    def __init__(
        self,
        namespace: str | None = None,
        *,
        redis: str | None = None,
        on_commit: Commit | None = None,
        max_payload: int = 1 << 20,
        timeout: float = 5.0,
        durability: str = "memory",
        find: Find | None = None,
    ) -> None:
        super().__init__(
            namespace, redis=redis, on_commit=on_commit, max_payload=max_payload, timeout=timeout,
            durability=durability, find=find,
        )  # fmt: skip
        self._links = Links()

    def enqueue(self, name: str, /, **args: Any) -> Job:
        """Enqueue a job. Raises BadArguments, StoreError."""
        return require_stored(self.submit(*self._one(name, args)))

    def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Schedule a job to run after `delay` seconds."""
        return require_stored(self.submit(*self._one(name, args, delay=wait_of(delay))))

    def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Schedule a job to run at `when`."""
        return require_stored(self.submit(*self._one(name, args, at=epoch(when))))

    def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Enqueue a job unless another one holds its unique key; then returns None."""
        return self.submit(*self._one(name, args, unique=True))

    def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run after `delay` seconds."""
        return self.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run at `when`."""
        return self.submit(*self._one(name, args, unique=True, at=epoch(when)))

    def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs of one name, a few hundred per round trip. All are checked before the first is sent."""
        request = EnqueueRequest(self._builder, self._many(name, items), _all, self._how.durability)
        if self._how.on_commit is not None:
            sink = self._builder.sink
            self._how.on_commit(lambda: self._send(request, sink))
            return [new_job.job for new_jobs in request.batches for new_job in new_jobs]
        return self._send(request)

    def submit(self, name: str, args: bytes, how: EnqueueOptions) -> Job | None:
        """Enqueue one job whose arguments are already encoded."""
        how = self._merge(how)
        new_job = self._builder.new_job(name, args, how)
        request = EnqueueRequest(self._builder, [[new_job]], _first, how.durability)
        if how.on_commit is not None:
            # A job built inside a testing block must not reach Redis, even if the commit comes after the block.
            sink = self._builder.sink
            how.on_commit(lambda: self._send(request, sink))
            return new_job.job
        return self._send(request)

    def result(self, job: Job | str, timeout: float | None = None) -> Any:
        """Wait up to `timeout` seconds for the job and return its result. Raises ResultTimeout, JobFailed, StoreError.

        Only job types with `keep=` keep results.
        """
        job_id, _ = self._id_and_name(job)
        sink = self._builder.sink
        if sink is not None:
            return sink.result(job_id)
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
                    raise ResultTimeout(self._walk(self._why_no_result(job, timeout)))
            pause.wait(wait)

    def state(self, job: Job | str) -> State | None:
        """The state of a job: waiting, running, scheduled, retry, dead or done; None if it is not found. Raises StoreError.

        A completed job is found until its job type's `keep` has passed. Given an id, the first 10,000 waiting jobs of
        each queue are searched; given a Job, those of its own queue only.
        """
        job_id, name = self._id_and_name(job)
        found = self._walk(find_job(self._builder.keys, job_id, name))
        return None if found is None else found.state

    def _walk(self, steps: Steps[A]) -> A:
        numbered_link = self._links.take(self._numbered_link)
        try:
            numbered_link.link.freshen()
            return walk(numbered_link.link, steps)
        finally:
            self._links.give(numbered_link)

    def run(self, op: Op[Any]) -> Any:
        """Run one op, other than an enqueue, on one of the connections."""
        numbered_link = self._links.take(self._numbered_link)
        try:
            numbered_link.link.freshen()
            return numbered_link.link.run(op)
        finally:
            self._links.give(numbered_link)

    def close(self) -> None:
        """Close idle connections. The next call opens new ones."""
        for numbered_link in self._links.idle():
            numbered_link.link.close()

    def _numbered_link(self) -> NumberedLink[Link]:
        with self._links.lock:
            if self._links.address is None:
                self._links.address = self._address()
        return NumberedLink(
            Link(
                self._links.address,
                tag=self._builder.keys.known_jobs,
                name="dayjob:enqueuer",
                timeout=self._answer,
            )
        )

    def _send(self, request: EnqueueRequest[A], sink: Sink | None = None) -> A:
        sink = sink or self._builder.sink
        if sink is not None:
            return request.read(sink.store(request.batches))
        return self._drive(request)

    def _drive(self, request: EnqueueRequest[A]) -> A:
        """Send requests in order. Each is resent under the same slot and number until it is answered."""
        numbered_link = self._links.take(self._numbered_link)
        try:
            while (op := request.open(numbered_link)) is not None:
                request.settle(self._send_until_answered(numbered_link.link, op, request))
        except BaseException as error:
            # The unanswered request may be stored. Another one on its slot would make repeat() unsafe.
            numbered_link.renew()
            if isinstance(error, Unknown):
                error.again = partial(self._drive, request)
            raise
        finally:
            self._links.give(numbered_link)
        return request.read(request.jobs)

    def _send_until_answered(self, link: Link, op: Op[Stored], request: EnqueueRequest[Any]) -> Stored:
        deadline = time.monotonic() + self._timeout if request.wanted else math.inf
        for wait in TRIES:
            try:
                if request.wanted:
                    return self._confirm(link, op, request.wanted, deadline)
                return link.run(op)
            except StoreError as error:
                raised = request.judge(error, last=wait is None or time.monotonic() > deadline)
                if raised is not None:
                    raise raised from error
            threading.Event().wait(wait)
        raise AssertionError("the last try returns or raises")

    def _confirm(self, link: Link, op: Op[Stored], wanted: Durability, deadline: float) -> Stored:
        """Send a request and wait until it has the wanted durability."""
        if wanted not in self._links.able:
            walk(link, confirm.able(wanted))
            self._links.able.add(wanted)
        left = max(deadline - time.monotonic(), 0.001)
        stored, answer = link.run_confirmed(op, confirm.confirm(wanted, left), left)
        if isinstance(answer, StoreError):
            self._links.able.discard(wanted)
        return confirmed(wanted, stored, answer, self._timeout)


class AsyncEnqueuer(_EnqueuerBase):
    """Stores jobs in Redis from async code: the methods of Enqueuer as coroutines. Connects at first use."""

    def __init__(
        self,
        namespace: str | None = None,
        *,
        redis: str | None = None,
        on_commit: Commit | None = None,
        max_payload: int = 1 << 20,
        timeout: float = 5.0,
        durability: str = "memory",
        find: Find | None = None,
    ) -> None:
        super().__init__(
            namespace, redis=redis, on_commit=on_commit, max_payload=max_payload, timeout=timeout,
            durability=durability, find=find,
        )  # fmt: skip
        self._links = Links()
        #: Sends jobs at commit, because a commit hook is a plain function and may run in any thread.
        self._plain = Enqueuer(namespace, redis=redis, max_payload=max_payload, timeout=timeout)
        self._plain._builder = self._builder

    async def enqueue(self, name: str, /, **args: Any) -> Job:
        """Enqueue a job. Raises BadArguments, StoreError."""
        return require_stored(await self.submit(*self._one(name, args)))

    async def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Schedule a job to run after `delay` seconds."""
        return require_stored(await self.submit(*self._one(name, args, delay=wait_of(delay))))

    async def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Schedule a job to run at `when`."""
        return require_stored(await self.submit(*self._one(name, args, at=epoch(when))))

    async def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Enqueue a job unless another one holds its unique key; then returns None."""
        return await self.submit(*self._one(name, args, unique=True))

    async def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run after `delay` seconds."""
        return await self.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    async def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run at `when`."""
        return await self.submit(*self._one(name, args, unique=True, at=epoch(when)))

    async def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs of one name, a few hundred per round trip. All are checked before the first is sent."""
        request = EnqueueRequest(self._builder, self._many(name, items), _all, self._how.durability)
        if self._how.on_commit is not None:
            await self._send_at_commit(self._how.on_commit, request)
            return [new_job.job for new_jobs in request.batches for new_job in new_jobs]
        return await self._send(request)

    async def submit(self, name: str, args: bytes, how: EnqueueOptions) -> Job | None:
        """Enqueue one job whose arguments are already encoded."""
        how = self._merge(how)
        new_job = self._builder.new_job(name, args, how)
        request = EnqueueRequest(self._builder, [[new_job]], _first, how.durability)
        if how.on_commit is not None:
            await self._send_at_commit(how.on_commit, request)
            return new_job.job
        return await self._send(request)

    async def _send_at_commit(self, on_commit: Commit, request: EnqueueRequest[Any]) -> None:
        sink = self._builder.sink
        answer = _register(on_commit, lambda: self._plain._send(request, sink))
        if inspect.isawaitable(answer):
            await answer

    async def result(self, job: Job | str, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - a limit on the job
        """Wait up to `timeout` seconds for the job and return its result. Raises ResultTimeout, JobFailed, StoreError."""
        job_id, _ = self._id_and_name(job)
        sink = self._builder.sink
        if sink is not None:
            return sink.result(job_id)
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
                    raise ResultTimeout(await self._walk(self._why_no_result(job, timeout)))
            await asyncio.sleep(wait)

    async def state(self, job: Job | str) -> State | None:
        """The state of a job: waiting, running, scheduled, retry, dead or done; None if it is not found. Raises StoreError."""
        job_id, name = self._id_and_name(job)
        found = await self._walk(find_job(self._builder.keys, job_id, name))
        return None if found is None else found.state

    async def _walk(self, steps: Steps[A]) -> A:
        here = self._links.here()
        async with here.places:
            numbered_link = await self._numbered_link()
            try:
                await numbered_link.link.freshen()
                return await awalk(numbered_link.link, steps)
            finally:
                here.numbered_links.append(numbered_link)

    async def run(self, op: Op[Any]) -> Any:
        """Run one op, other than an enqueue, on one of the connections."""
        here = self._links.here()
        async with here.places:
            numbered_link = await self._numbered_link()
            try:
                await numbered_link.link.freshen()
                return await numbered_link.link.run(op)
            finally:
                here.numbered_links.append(numbered_link)

    async def close(self) -> None:
        """Close the idle connections of this event loop. The next call opens new ones."""
        self._plain.close()
        numbered_links = self._links.here().numbered_links
        while numbered_links:
            await numbered_links.pop().link.close()

    async def _numbered_link(self) -> NumberedLink[AsyncLink]:
        try:
            return self._links.here().numbered_links.pop()
        except IndexError:
            if self._links.address is None:
                # In a thread, because it may start the embedded server, which would block the event loop.
                self._links.address = await asyncio.to_thread(self._address)
            return NumberedLink(
                AsyncLink(
                    self._links.address,
                    tag=self._builder.keys.known_jobs,
                    name="dayjob:enqueuer",
                    timeout=self._answer,
                )
            )

    async def _send(self, request: EnqueueRequest[A]) -> A:
        sink = self._builder.sink
        if sink is not None:
            return request.read(await sink.astore(request.batches))
        return await self._drive(request)

    async def _drive(self, request: EnqueueRequest[A]) -> A:
        here = self._links.here()
        async with here.places:
            numbered_link = await self._numbered_link()
            try:
                while (op := request.open(numbered_link)) is not None:
                    request.settle(await self._send_until_answered(numbered_link.link, op, request))
            except BaseException as error:
                # A request that was cancelled before its answer may be stored, so its slot must not be used again.
                numbered_link.renew()
                if isinstance(error, Unknown):
                    error.again = partial(self._drive, request)
                raise
            finally:
                here.numbered_links.append(numbered_link)
        return request.read(request.jobs)

    async def _send_until_answered(
        self, link: AsyncLink, op: Op[Stored], request: EnqueueRequest[Any]
    ) -> Stored:
        deadline = time.monotonic() + self._timeout if request.wanted else math.inf
        for wait in TRIES:
            try:
                if request.wanted:
                    return await self._confirm(link, op, request.wanted, deadline)
                return await link.run(op)
            except StoreError as error:
                raised = request.judge(error, last=wait is None or time.monotonic() > deadline)
                if raised is not None:
                    raise raised from error
            await asyncio.sleep(wait or 0)
        raise AssertionError("the last try returns or raises")

    async def _confirm(self, link: AsyncLink, op: Op[Stored], wanted: Durability, deadline: float) -> Stored:
        """Send a request and wait until it has the wanted durability."""
        if wanted not in self._links.able:
            await awalk(link, confirm.able(wanted))
            self._links.able.add(wanted)
        left = max(deadline - time.monotonic(), 0.001)
        stored, answer = await link.run_confirmed(op, confirm.confirm(wanted, left), left)
        if isinstance(answer, StoreError):
            self._links.able.discard(wanted)
        return confirmed(wanted, stored, answer, self._timeout)
