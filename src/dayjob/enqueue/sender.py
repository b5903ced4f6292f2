"""Sending: makes a request of the jobs of one call, and sends it on a connection until it is answered.

An enqueue has three outcomes: stored (the call returns), not stored (it raises an error), or unknown (it raises
`Unknown`, and repeating it is safe). Every request has a slot and a number. Redis recognises a resend by them, so that
its jobs are not stored twice.

`EnqueueRequest.steps` yields what to send. `Sender` sends it in sync code, and `AsyncSender` of `async_sender.py` in async
code; they alone wait.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

import msgspec

from dayjob.enqueue.batches import joining
from dayjob.enqueue.builder import Builder, Sink, existing_job
from dayjob.enqueue.connections import AsyncLinks, Links
from dayjob.enqueue.hooks import hooked, with_headers
from dayjob.enqueue.in_transaction import keep_in_transaction
from dayjob.enqueue.mailbox import Mailbox, mailbox_of
from dayjob.enqueue.pause import Pause
from dayjob.errors import BadOption, StoreError, Unavailable, Unknown
from dayjob.instruments import INSTRUMENTS
from dayjob.job import Job, new_id, running
from dayjob.middleware import FindServer, ServerAddress
from dayjob.option_checks import Durability
from dayjob.options import Commit, EnqueueOptions
from dayjob.store import addresses
from dayjob.store.link import Link, server_finder, walk
from dayjob.store.op import Op
from dayjob.store.ops import produce
from dayjob.store.ops.batches import MemberChunk, add_members
from dayjob.store.ops.confirm import store_durably
from dayjob.store.ops.produce import Keyed, NewJob, Slot, Stored, digest_to_keep
from dayjob.store.ops.workflows import WorkflowChunk, start_workflow
from dayjob.store.steps import Steps
from dayjob.transactions import TransactionOutbox

A = TypeVar("A")
K = TypeVar("K", Links, AsyncLinks)
L = TypeVar("L")

#: Seconds to wait after each failed try of a request; None for the last try.
RETRY_SECONDS = (0.05, 0.25, 0.7, None)
#: An enqueuer adds a name to known_jobs again after this many seconds, in case Redis was emptied.
KNOWN_JOBS_REFRESH_SECONDS = 300.0
#: Seconds between two requests on a slot that ask for Redis time and extend the slot's expiry.
TIME_REFRESH_SECONDS = 10.0

#: The job of a call that stores one; None for a duplicate.
first_of: Callable[[list[Job | None]], Job | None] = itemgetter(0)
_payload_of = attrgetter("payload")
_job_of = attrgetter("job")


class SenderBase(Generic[K]):
    """What both senders share: they make requests of jobs, and know the default options and where to connect."""

    _links_type: type[K]

    def __init__(
        self,
        builder: Builder,
        defaults: EnqueueOptions,
        *,
        redis: str | None,
        timeout: float,
        outbox: TransactionOutbox | None = None,
    ) -> None:
        self.builder = builder
        #: Keeps jobs that are enqueued in a database transaction.
        self._outbox = outbox
        #: Seconds to wait for answers, divided among the tries. The waits between the tries are not included.
        self._timeout = timeout
        self.links: K = self._links_type(redis, builder.keys.known_jobs, timeout / len(RETRY_SECONDS))
        self._redis = redis
        #: The server that `redis` and the environment name, once it is known.
        self._server: str | None = None
        #: Returns its address, for those who record it.
        self._find_server: FindServer | None = None
        #: The enqueuer's own `on_commit` and `durability`, for calls that choose neither; None if it has neither.
        self._defaults = defaults if defaults.on_commit or defaults.durability else None

    def _request(
        self,
        name: str,
        items: Sequence[tuple[bytes, EnqueueOptions]],
        options: EnqueueOptions,
        read: Callable[[list[Job | None]], A],
    ) -> tuple[EnqueueRequest[A], Commit | None]:
        """The request for jobs of one name, each with its arguments and options, and the commit that it waits for."""
        block = joining.get()
        batch = "" if block is None else block.joined_from(self.place, options)
        if self._defaults is not None:
            options = _with_defaults(options, self._defaults)
        new_jobs = []
        for args, own in items:
            new_jobs.append(self.builder.new_job(name, args, own, batch))
        on_commit = options.on_commit
        if self._outbox is not None or options.session is not None:
            new_jobs, on_commit = keep_in_transaction(self._outbox, self.builder, new_jobs, options)
        batches = [new_jobs] if len(new_jobs) == 1 else self.builder.batches(new_jobs)
        request = EnqueueRequest(self.builder, batches, read, options.durability, self._timeout, options.now)
        if options.reply is not None:
            ids = [new_job.job.id for new_job in new_jobs]
            request.notes = options.reply.expect(ids, noted=not options.durability)
        return request, on_commit

    @property
    def place(self) -> tuple[str, str]:
        """The namespace and the server to which this sends."""
        prefix = self.builder.keys.prefix
        if self.builder.sink is not None:
            return prefix, f"testing {id(self.builder.sink)}"
        if self._server is None:
            self._server = addresses.resolve(self._redis).url
        return prefix, self._server

    def find_server(self) -> ServerAddress | None:
        """Where the server is; None in a testing block, and as long as it is not known."""
        if self.builder.sink is not None:
            return None
        if self._find_server is None:
            self._find_server = server_finder(self.place[1], self.builder.keys.known_jobs)
        return self._find_server()

    def commit_for_workflow(self, new_jobs: Sequence[NewJob]) -> Commit | None:
        """The commit that the start of a workflow waits for, if any. Raises BadOption."""
        commit = None if self._defaults is None else self._defaults.on_commit
        if self._outbox is not None:
            namespace = self.builder.keys.namespace
            if self._outbox.commit_of(None, namespace, list(new_jobs), testing=True) is not None:
                raise BadOption("an outbox cannot keep a workflow: start the workflow after the commit")
        return commit

    def _chunk_request(self, chunk: MemberChunk | WorkflowChunk) -> EnqueueRequest[list[Job]]:
        durability = None if self._defaults is None else self._defaults.durability
        return EnqueueRequest(self.builder, [chunk], stored_of, durability, self._timeout)

    def mailbox(self) -> Mailbox:
        """Where the results arrive that this process waits for."""
        return mailbox_of(self.place, self.builder.keys, self.links.subscription)

    def _collected(self, request: EnqueueRequest[Any]) -> bool:
        """Whether the atomic job that is running keeps the jobs until it completes."""
        outer = running.get()
        if outer is None or not outer.atomic or request.now:
            return False
        return outer.collect(self.place, itertools.chain.from_iterable(request.batches))


class Sender(SenderBase[Links]):
    """Sends requests from sync code. An enqueuer, its using() copies and the job types of a pool share one."""

    _links_type = Links

    def submit(self, name: str, args: bytes, options: EnqueueOptions) -> Job | None:
        """Enqueue one job whose name is checked and whose arguments are encoded; None for a duplicate."""
        # Without a call, because this is asked for every job.
        if not (INSTRUMENTS.installed or self.builder.pool_hooks):
            return self.send(*self._request(name, ((args, options),), options, first_of))
        with hooked(self.builder.hooks, name, 1, options, self.find_server) as outgoing:
            options = with_headers(options, outgoing)
            job = self.send(*self._request(name, ((args, options),), options, first_of))
            outgoing.jobs = () if job is None else (job,)
        return job

    def submit_many(
        self, name: str, items: Sequence[tuple[bytes, EnqueueOptions]], options: EnqueueOptions
    ) -> list[Job]:
        """Enqueue many jobs of one name, each with encoded arguments and its options. Duplicates are left out of the answer."""
        with hooked(self.builder.hooks, name, len(items), options, self.find_server) as outgoing:
            if self.builder.hooks:
                items = [(args, with_headers(own, outgoing)) for args, own in items]
            jobs = self.send(*self._request(name, items, options, stored_of))
            outgoing.jobs = jobs
        return jobs

    def send(
        self, request: EnqueueRequest[A], on_commit: Commit | None = None, sink: Sink | None = None
    ) -> A:
        """Send a request now, or have `on_commit` send it."""
        # A job built inside a testing block must not reach Redis, even if the commit comes after the block.
        sink = sink or self.builder.sink
        if on_commit is not None:
            if sink is not None:
                sink.defer(request.batches)
            on_commit(lambda: self.send(request, sink=sink))
            return request.planned()
        if running.get() is not None and self._collected(request):
            return request.planned()
        block = joining.get()
        if block is not None and block.add(request):
            for chunk in block.full():
                self.send_chunk(chunk)
            return request.planned()
        if sink is not None:
            return request.read(sink.store(request.batches))
        return self.drive(request)

    def send_chunk(self, chunk: MemberChunk | WorkflowChunk) -> None:
        """Store jobs that join a batch, and create or close it; or a workflow."""
        if self.builder.sink is not None:
            self.builder.sink.store([chunk])
        else:
            self.drive(self._chunk_request(chunk))

    def drive(self, request: EnqueueRequest[A]) -> A:
        """Send a request to Redis on one link."""
        # Links.take and Links.give, written out: they are two calls of every enqueue.
        links = self.links
        try:
            numbered_link = links.idle.pop()
        except IndexError:
            numbered_link = links.wait(self._connect)
        steps = request.steps(numbered_link, links.able, self.drive)
        try:
            return walk(numbered_link.link, steps)
        finally:
            steps.close()
            links.idle.append(numbered_link)
            if links.waiting:
                links.notify()

    def run(self, op: Op[A]) -> A:
        """Run one op, other than an enqueue, on one of the links."""
        with self._link() as link:
            return link.run(op)

    def run_many(self, ops: Sequence[Op[Any]]) -> list[Any]:
        """Run several ops in one round trip, on one of the links."""
        with self._link() as link:
            return link.run_many(ops)

    def close(self) -> None:
        """Close idle connections. The next call opens new ones."""
        self.links.close()

    @contextmanager
    def _link(self) -> Iterator[Link]:
        """A link whose connection is fresh, because unlike an enqueue what it runs is not sent again."""
        numbered_link = self.links.take(self._connect)
        try:
            numbered_link.link.freshen()
            yield numbered_link.link
        finally:
            self.links.give(numbered_link)

    def _connect(self) -> NumberedLink[Link]:
        return NumberedLink(self.links.connect())


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
    #: Whether it is sent at once inside an atomic job.
    now: bool = False
    #: Sent ahead of each try, in the same round trip: notes that this process waits for the results.
    notes: Sequence[Op[Any]] = ()
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
    ) -> Steps[A]:
        """Send the requests in order, each until it is answered. Raises StoreError.

        `able` are the durabilities that the server is known to be able to confirm; `again` repeats this after Unknown.
        """
        try:
            while self.answered < len(self.batches):
                batch = self.batches[self.answered]
                if self.op is None:
                    self.op = self._op(batch, numbered_link.next())
                deadline = time.monotonic() + self.timeout if self.wanted else math.inf
                for pause in RETRY_SECONDS:
                    try:
                        if self.notes:
                            stored = (yield [*self.notes, self.op])[-1]
                        elif not self.wanted:
                            stored = yield self.op
                        else:
                            stored = yield from store_durably(
                                self.op, self.wanted, able, deadline, self.timeout
                            )
                        break
                    except StoreError as error:
                        raised = self._judge(error, last=pause is None or time.monotonic() > deadline)
                        if raised is not None:
                            raise raised from error
                    yield Pause(pause or 0.0)
                self.jobs += self._accept(batch, stored)
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

    def _op(self, new_jobs: Sequence[NewJob], slot: Slot) -> Op[Stored]:
        """The request that stores jobs of one name and one time. A job with a unique key or a chosen id must be alone.

        Jobs that join a batch may be of any name and time.
        """
        keys = self.builder.keys
        if isinstance(new_jobs, MemberChunk):
            return add_members(keys, slot, new_jobs)
        if isinstance(new_jobs, WorkflowChunk):
            return start_workflow(keys, slot, new_jobs)
        first = new_jobs[0]
        if first.batch:
            # Its block has ended: a commit sends it now.
            return add_members(keys, slot, MemberChunk(new_jobs, (first.batch,)))
        job, when, expires = first.job, first.when, first.expires
        known_at = self.builder.introduced.get(job.name)
        introduce = known_at is None or time.monotonic() - known_at >= KNOWN_JOBS_REFRESH_SECONDS
        keyed = None if first.key is None else self._keyed(new_jobs)
        if first.chosen or job.unique_key is not None:
            return produce.admit(
                keys, slot, job.name, first.payload, when,
                job_id=job.id, chosen=first.chosen, unique_key=job.unique_key, unique_for=first.unique_for,
                introduce=introduce, expires=expires, digest=digest_to_keep(first), keyed=keyed,
            )  # fmt: skip
        payloads = list(map(_payload_of, new_jobs))
        if when.mode == "now":
            return produce.enqueue(
                keys, slot, job.name, payloads,
                introduce=introduce, expires=expires, keyed=keyed,
            )  # fmt: skip
        return produce.schedule(keys, slot, job.name, payloads, when, introduce=introduce, expires=expires)

    def _keyed(self, new_jobs: Sequence[NewJob]) -> Keyed | None:
        rule = self.builder.types[new_jobs[0].job.name].options.fair_by
        return Keyed(rule.by, tuple(one.key or "" for one in new_jobs)) if rule else None

    def _accept(self, new_jobs: Sequence[NewJob], stored: Stored) -> list[Job | None]:
        """The jobs to return to the caller, with the times of the answer; None for a duplicate. Raises BadOption."""
        if isinstance(new_jobs, MemberChunk | WorkflowChunk) or new_jobs[0].batch:
            if not stored.stored:
                raise BadOption("the batch has ended, so no job can join it: start another one")
            return list(map(_job_of, new_jobs))
        first = new_jobs[0]
        self.builder.introduced[first.job.name] = time.monotonic()
        if stored.now:
            self.builder.offset = stored.now - time.time()
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


def _with_defaults(options: EnqueueOptions, defaults: EnqueueOptions) -> EnqueueOptions:
    return replace(
        options,
        on_commit=options.on_commit if options.commit_given else defaults.on_commit,
        durability=defaults.durability if options.durability is None else options.durability,
    )


def stored_of(jobs: list[Job | None]) -> list[Job]:
    """The jobs without those that were duplicates."""
    return [job for job in jobs if job is not None]
