"""Enqueuer and AsyncEnqueuer, the public classes that store jobs in Redis. `request.py` does the work."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, Self, TypeVar, Unpack

from dayjob.enqueue.request import AsyncSender, Builder, Commands, Find, NewJob, Pause, Sender
from dayjob.errors import BadOption, JobFailed, ResultTimeout, StoreError
from dayjob.explain.reasons import explain
from dayjob.explain.words import sentence
from dayjob.handlers.registry import epoch, require_stored, wait_of
from dayjob.job import Job
from dayjob.options import (
    Commit,
    EnqueueOptions,
    Seconds,
    Using,
    check_redis,
    check_text,
    durability_of,
    read_using,
)
from dayjob.store import addresses, codec
from dayjob.store.op import Op, plain
from dayjob.store.ops.find import State, find_job

S = TypeVar("S", Sender, AsyncSender)

#: Seconds between two looks for a result: the first, and the longest.
RESULT_SECONDS = (0.0075, 0.25)


class _EnqueuerBase(Generic[S]):
    """What both enqueuers share: all but the sending."""

    _sender_type: type[S]

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
        self.namespace = addresses.resolve_namespace(namespace)
        wanted = durability_of(durability, f"{type(self).__name__}: durability")
        self._options = EnqueueOptions(on_commit=on_commit, durability=wanted or None)
        self._builder = Builder(self.namespace, max_payload, find)
        self.sender: S = self._sender_type(
            self._builder, self._options, redis=check_redis(redis), timeout=timeout
        )

    def using(self, **options: Unpack[Using]) -> Self:
        """A copy of this enqueuer whose jobs get these options. It shares the connections. Raises BadOption."""
        chosen = copy.copy(self)
        chosen._options = read_using(options, self._options)
        return chosen

    def sourced(self, source: str | int | None) -> Self:
        """A copy of this enqueuer whose jobs have this `source`."""
        return self.using(source=source)

    def _one(self, name: str, args: Mapping[str, Any], **changes: Any) -> tuple[str, bytes, EnqueueOptions]:
        options = replace(self._options, **changes) if changes else self._options
        raw, options = self._builder.encode(name, args, options)
        return name, raw, options

    def _many(self, name: str, items: Iterable[Mapping[str, Any]]) -> list[NewJob]:
        if self._options.id is not None:
            raise BadOption("enqueue_many: jobs cannot share one id; remove using(id=...)")
        return [self._builder.new_job(*self._one(name, item)) for item in items]

    def _result(self, job: Job | str, timeout: float | None) -> Commands[Any]:
        """Wait for the result of a job. Raises ResultTimeout, JobFailed."""
        job_id, _ = _id_and_name(job)
        if self._builder.sink is not None:
            return self._builder.sink.result(job_id)
        deadline = None if timeout is None else time.monotonic() + timeout
        wait, longest = RESULT_SECONDS
        while True:
            raw = yield plain("GET", self._builder.keys.result(job_id))
            if raw is not None:
                return read_result(raw, job_id)
            left = longest if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise ResultTimeout((yield from self._why_no_result(job, timeout)))
            yield Pause(min(wait, left))
            wait = min(wait * 1.5, longest)

    def _why_no_result(self, job: Job | str, timeout: float | None) -> Commands[str]:
        """The message of a ResultTimeout, with the state of the job."""
        job_id, name = _id_and_name(job)
        message = f"no result of job {job_id} within {timeout or 0:g} s"
        try:
            why = yield from explain(self._builder.keys, job_id, name)
        except StoreError:
            return message
        if why.kind == "not_found":
            return f"{message}: the job was not found. Only job types with keep= keep results, for that long"
        first, _, _ = sentence(why).partition("\n")
        return f"{message}. {first.rstrip('.')}"

    def _state(self, job: Job | str) -> Commands[State | None]:
        job_id, name = _id_and_name(job)
        found = yield from find_job(self._builder.keys, job_id, name)
        return None if found is None else found.state


def _id_and_name(job: Job | str) -> tuple[str, str | None]:
    """The id of a job to look up, and its name if it is known. Raises BadOption."""
    return (check_text(job, "the id of a job"), None) if isinstance(job, str) else (job.id, job.name)


def read_result(raw: bytes, job_id: str) -> Any:
    """Decode a stored result. Raises JobFailed if the job failed."""
    answer = codec.json_value(raw)
    if "error" in answer:
        raise JobFailed(f"{job_id}: {answer['error']}")
    return answer.get("result")


class Enqueuer(_EnqueuerBase[Sender]):
    """Stores jobs in Redis. Threads may share one. Connects at first use."""

    _sender_type = Sender

    def enqueue(self, name: str, /, **args: Any) -> Job:
        """Enqueue a job. Raises BadArguments, StoreError."""
        return require_stored(self.sender.submit(*self._one(name, args)))

    def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Schedule a job to run after `delay` seconds."""
        return require_stored(self.sender.submit(*self._one(name, args, delay=wait_of(delay))))

    def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Schedule a job to run at `when`."""
        return require_stored(self.sender.submit(*self._one(name, args, at=epoch(when))))

    def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Enqueue a job unless another one holds its unique key; then returns None."""
        return self.sender.submit(*self._one(name, args, unique=True))

    def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run after `delay` seconds."""
        return self.sender.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run at `when`."""
        return self.sender.submit(*self._one(name, args, unique=True, at=epoch(when)))

    def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs of one name, a few hundred per round trip. All are checked before the first is sent."""
        return self.sender.submit_many(self._many(name, items), self._options)

    def result(self, job: Job | str, timeout: float | None = None) -> Any:
        """Wait up to `timeout` seconds for the job and return its result. Raises ResultTimeout, JobFailed, StoreError.

        Only job types with `keep=` keep results.
        """
        return self.sender.walk(self._result(job, timeout))

    def state(self, job: Job | str) -> State | None:
        """The state of a job: waiting, running, scheduled, retry, dead or done; None if it is not found. Raises StoreError.

        A completed job is found until its job type's `keep` has passed. Given an id, the first 10,000 waiting jobs of
        each queue are searched; given a Job, those of its own queue only.
        """
        return self.sender.walk(self._state(job))

    def run(self, op: Op[Any]) -> Any:
        """Run one op, other than an enqueue, on one of the connections."""
        return self.sender.run(op)

    def close(self) -> None:
        """Close idle connections. The next call opens new ones."""
        self.sender.close()


class AsyncEnqueuer(_EnqueuerBase[AsyncSender]):
    """Stores jobs in Redis from async code: the methods of Enqueuer as coroutines. Connects at first use."""

    _sender_type = AsyncSender

    async def enqueue(self, name: str, /, **args: Any) -> Job:
        """Enqueue a job. Raises BadArguments, StoreError."""
        return require_stored(await self.sender.submit(*self._one(name, args)))

    async def enqueue_in(self, name: str, delay: Seconds, /, **args: Any) -> Job:
        """Schedule a job to run after `delay` seconds."""
        return require_stored(await self.sender.submit(*self._one(name, args, delay=wait_of(delay))))

    async def enqueue_at(self, name: str, when: datetime, /, **args: Any) -> Job:
        """Schedule a job to run at `when`."""
        return require_stored(await self.sender.submit(*self._one(name, args, at=epoch(when))))

    async def enqueue_unique(self, name: str, /, **args: Any) -> Job | None:
        """Enqueue a job unless another one holds its unique key; then returns None."""
        return await self.sender.submit(*self._one(name, args, unique=True))

    async def enqueue_unique_in(self, name: str, delay: Seconds, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run after `delay` seconds."""
        return await self.sender.submit(*self._one(name, args, unique=True, delay=wait_of(delay)))

    async def enqueue_unique_at(self, name: str, when: datetime, /, **args: Any) -> Job | None:
        """Like enqueue_unique, to run at `when`."""
        return await self.sender.submit(*self._one(name, args, unique=True, at=epoch(when)))

    async def enqueue_many(self, name: str, items: Iterable[Mapping[str, Any]], /) -> list[Job]:
        """Enqueue many jobs of one name, a few hundred per round trip. All are checked before the first is sent."""
        return await self.sender.submit_many(self._many(name, items), self._options)

    async def result(self, job: Job | str, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - a limit on the job
        """Wait up to `timeout` seconds for the job and return its result. Raises ResultTimeout, JobFailed, StoreError."""
        return await self.sender.walk(self._result(job, timeout))

    async def state(self, job: Job | str) -> State | None:
        """The state of a job: waiting, running, scheduled, retry, dead or done; None if it is not found. Raises StoreError."""
        return await self.sender.walk(self._state(job))

    async def run(self, op: Op[Any]) -> Any:
        """Run one op, other than an enqueue, on one of the connections."""
        return await self.sender.run(op)

    async def close(self) -> None:
        """Close the idle connections of this event loop. The next call opens new ones."""
        await self.sender.close()
