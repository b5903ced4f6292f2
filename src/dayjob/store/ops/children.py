"""The jobs that atomic jobs enqueue: how they travel with the outcome of their attempt, and how large numbers are staged.

A job that is enqueued inside an atomic job is kept by the attempt. The exchange that completes the attempt stores it. What
is too much for one exchange goes to staged lists in the exchanges before. Completing the attempt records these lists in
`released`, and the leader moves their jobs to the queues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dayjob.errors import TooLarge
from dayjob.outcome import Stage
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op
from dayjob.store.ops.produce import NewJob, When, digest_to_keep, span
from dayjob.store.scripts import load

#: What one attempt may send with its outcome. Beyond this its jobs are staged, this many in each exchange.
MAX_INLINE = 500
MAX_INLINE_BYTES = 1 << 18
#: How many staged lists the leader reads at once.
MAX_RELEASED = 20
#: Seconds by which the time in a payload may be older than the completion of its attempt.
MAX_AGE_SECONDS = 1.0


class ChildTarget(msgspec.Struct, frozen=True, gc=False):
    """Where and until when jobs are stored: those with the same target can be stored together."""

    name: str
    when: When
    expires: float | None
    #: The id of the batch that they join, or "".
    batch: str = ""

    @property
    def text(self) -> str:
        """When they are due and when they expire, as exchange.lua reads it."""
        return f"{self.when.mode} {self.when.milliseconds} {span(self.expires)}"


class StagedList(msgspec.Struct, frozen=True):
    """The record of a staged list in `released`."""

    key: str
    name: str
    mode: str
    milliseconds: int
    expires: int


class Children:
    """The jobs that one attempt of an atomic job has enqueued."""

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []
        self.size = 0
        #: Jobs that must be stored one by one, because of a unique key or a chosen id.
        self._admitted = 0
        #: While the jobs are being staged: each list, and how many of its jobs were sent.
        self._lists: list[tuple[ChildTarget, list[bytes]]] | None = None
        self._sent: list[int] = []

    def add(self, new_jobs: Iterable[NewJob]) -> None:
        """Keep jobs until the attempt completes. Raises TooLarge."""
        for new_job in new_jobs:
            self.jobs.append(new_job)
            self.size += len(new_job.payload)
            self._admitted += new_job.alone or new_job.batch != ""
        if self._admitted > MAX_INLINE:
            raise TooLarge(
                f"an atomic job can enqueue at most {MAX_INLINE} jobs with a unique key or a chosen id, or for a batch. "
                "Send the others at once with using(now=True), or divide the work among more jobs."
            )

    def date(self, now: float) -> None:
        """Let the jobs be enqueued now: they wait since their attempt completes, not since it asked for them."""
        for i, new_job in enumerate(self.jobs):
            if now - new_job.job.enqueued_at >= MAX_AGE_SECONDS:
                payload = codec.rewrite(new_job.payload, {"t": int(now), "at": int(now * 1000)})
                self.jobs[i] = msgspec.structs.replace(new_job, payload=payload)
                new_job.job.enqueued_at = now

    def __contains__(self, job_id: str) -> bool:
        return any(new_job.job.id == job_id for new_job in self.jobs)

    @property
    def names(self) -> set[str]:
        """The names of the jobs."""
        return {new_job.job.name for new_job in self.jobs}

    @property
    def large(self) -> bool:
        """Whether the jobs are too many or too large to be sent with the outcome."""
        return len(self.jobs) > MAX_INLINE or self.size > MAX_INLINE_BYTES

    def stage_again(self) -> None:
        """Stage all jobs from the first on, because Redis does not have what was staged."""
        self._lists = None

    def next_part(self) -> Stage | None:
        """The next part of the jobs to stage; None when all are staged."""
        if self._lists is None:
            by_target: defaultdict[ChildTarget, list[bytes]] = defaultdict(list)
            for new_job in self.jobs:
                if not (new_job.alone or new_job.batch):
                    by_target[_target(new_job)].append(new_job.payload)
            self._lists = list(by_target.items())
            self._sent = [0] * len(self._lists)
        for number, (_, payloads) in enumerate(self._lists):
            before, size = self._sent[number], 0
            if before < len(payloads):
                last = before
                while last < min(before + MAX_INLINE, len(payloads)) and size < MAX_INLINE_BYTES:
                    size += len(payloads[last])
                    last += 1
                self._sent[number] = last
                return Stage(number, before, tuple(payloads[before:last]))
        return None

    def args(
        self, keys: Keys, owner: str, token: str, index: Mapping[str, int], key_list: list[Arg]
    ) -> list[list[Arg]]:
        """The entries ahead of the outcome of the attempt `token` of the pool `owner`. Appends their keys to `key_list`."""
        found: list[list[Arg]] = []
        rest: Sequence[NewJob] = self.jobs
        if self._lists is not None:
            rest = [new_job for new_job in self.jobs if new_job.alone or new_job.batch]
            for number, (target, payloads) in enumerate(self._lists):
                key_list += (keys.staged(owner, token, number), keys.released)
                record = msgspec.json.encode(
                    StagedList(
                        keys.staged(owner, token, number), target.name, target.when.mode,
                        target.when.milliseconds, span(target.expires),
                    )
                )  # fmt: skip
                found.append(["staged", 0, token, len(payloads), 0, len(key_list) - 1, record])
        for target, new_jobs in runs(rest):
            found.append(_stored(keys, target, new_jobs, token, index, key_list))
        return found


def stage_args(keys: Keys, owner: str, token: str, part: Stage, key_list: list[Arg]) -> list[Arg]:
    """The entry that stages a part of the jobs of an attempt. Appends its key to `key_list`."""
    key_list.append(keys.staged(owner, token, part.number))
    return ["stage", 0, token, b"", len(part.payloads), len(key_list), part.before, *part.payloads]


def _target(new_job: NewJob) -> ChildTarget:
    return ChildTarget(new_job.job.name, new_job.when, new_job.expires, new_job.batch)


def runs(new_jobs: Sequence[NewJob]) -> Iterator[tuple[ChildTarget, list[NewJob]]]:
    """The jobs in order, those that can be stored together as one."""
    run: list[NewJob] = []
    last: ChildTarget | None = None
    for new_job in new_jobs:
        target = _target(new_job)
        if last is not None and (target != last or new_job.alone or run[-1].alone):
            yield last, run
            run = []
        run.append(new_job)
        last = target
    if last is not None:
        yield last, run


def _stored(
    keys: Keys,
    target: ChildTarget,
    new_jobs: Sequence[NewJob],
    token: str,
    index: Mapping[str, int],
    key_list: list[Arg],
) -> list[Arg]:
    first, name = new_jobs[0], target.name
    place = index.get(name, 0)
    when = target.text
    if target.batch:
        key_list.append(keys.batch(target.batch))
        when = f"{when} {len(key_list)} {target.batch}"
    key = len(key_list) + 1
    if not first.alone:
        if not place:
            key_list += (keys.queue(name), keys.bell(name), keys.known_jobs)
        payloads = [new_job.payload for new_job in new_jobs]
        return ["children", place, token, when, len(payloads), key, name, *payloads]
    job = first.job
    id_key = keys.job_id(job.id)
    key_list += (job.unique_key or id_key, id_key if first.chosen else job.unique_key or id_key)
    if not place:
        key_list += (keys.queue(name), keys.bell(name), keys.known_jobs)
    digest = digest_to_keep(first).decode() or "-"
    value = (
        f"{int(job.unique_key is not None)} {int(first.chosen)} {span(first.unique_for)} {digest} {job.id}"
    )
    return ["admitted", place, token, when, 2, key, value, first.payload, name]


def released(keys: Keys) -> Op[list[bytes]]:
    """The records of the staged lists that were released first."""
    return Op("ZRANGE", (keys.released,), (0, MAX_RELEASED - 1), list)


def release(keys: Keys, record: bytes) -> Op[int]:
    """Move up to MAX_INLINE jobs of a staged list to where they belong. Returns how many are left."""
    staged = msgspec.json.decode(record, type=StagedList)
    now = staged.mode == "now"
    return Op(
        load("release"),
        (
            keys.released,
            staged.key,
            keys.queue(staged.name) if now else keys.scheduled,
            keys.bell(staged.name) if now else keys.due,
            keys.known_jobs,
        ),
        (record, staged.name, staged.mode, staged.milliseconds, staged.expires, MAX_INLINE),
        int,
    )
