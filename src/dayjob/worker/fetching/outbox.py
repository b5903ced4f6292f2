"""OutcomeOutbox: outcomes of attempts that wait for the next exchange. The executors add them, the fetcher takes them."""

from __future__ import annotations

import time
from collections import defaultdict, deque

import msgspec

from dayjob.outcome import Done, Emit, Kept, counts_failure
from dayjob.store.codec import PlainMember
from dayjob.store.ops import consume
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.member_groups import MemberGroup
from dayjob.worker.fetching.history import HistoryRecorder
from dayjob.worker.fetching.start_gate import StartGate
from dayjob.worker.pool_job_type import PoolJobType
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.attempt_stream import EmitQueue

#: Stuck outcomes that one exchange sends again, and the seconds between two tries.
MAX_STUCK = 100
RETRY_STUCK_SECONDS = 1.0
#: Attempts whose emitted values one exchange sends.
MAX_EMITTING = 100


class OutcomeOutbox:
    """The outcomes for the next exchanges."""

    def __init__(self, gate: StartGate, history: HistoryRecorder, emits: EmitQueue) -> None:
        self._start_gate = gate
        self._history = history
        #: The attempts that emitted something.
        self.emits = emits
        self.finished: deque[Attempt] = deque()
        #: Finished attempts that are reported at their `hold_until`, in that order.
        self.later: deque[Attempt] = deque()
        #: Entries for attempts that no executor ran.
        self.entries: deque[Entry] = deque()
        #: Outcomes that Redis cannot store because a key has a wrong type.
        self._stuck: deque[Entry] = deque()
        self._stuck_at = 0.0
        #: Completions of atomic jobs whose children are being staged, in the exchanges before they are sent.
        self._staging: deque[Entry] = deque()
        #: The names of the jobs that the entries taken last store.
        self.born: set[str] = set()
        #: Completed members of the outcomes taken last, by batch and what is above that.
        self._members = _no_members()

    def __len__(self) -> int:
        """How many outcomes wait, without the stuck ones."""
        return len(self.finished) + len(self.entries) + len(self._staging)

    def due(self, gathered: int = 0) -> bool:
        """Whether an outcome should be sent now. Up to `gathered` finished attempts may wait for more."""
        return bool(
            len(self.finished) > gathered or self.entries or self._staging or self._retry_due or self._later_due
            or self.emits.wait == 0
        )  # fmt: skip

    @property
    def stuck(self) -> bool:
        """Whether Redis could not store some outcomes, so that they are sent again later."""
        return bool(self._stuck)

    @property
    def _retry_due(self) -> bool:
        return bool(self._stuck) and time.monotonic() >= self._stuck_at

    @property
    def _later_due(self) -> bool:
        """Whether the first of the delayed attempts should be reported now."""
        if not self.later:
            return False
        first = self.later[0]
        return first.job_type.stopping or first.hold_until <= time.monotonic()

    def stick(self, entry: Entry) -> None:
        """Keep an outcome that Redis could not store. It is sent again once a second."""
        if entry.children is not None:
            # Perhaps because Redis does not have what was staged.
            entry.children.stage_again()
        self._stuck.append(entry)

    def clear(self) -> None:
        """Drop the entries of a condemned pool id. Finished attempts stay, but are marked as lost."""
        self.entries.clear()
        self._stuck.clear()
        self._staging.clear()
        self.emits.clear()

    def take(self, epoch: float) -> tuple[list[Entry], dict[str, list[str]]]:
        """The outcomes for one exchange, within its limits: entries, and job name to the tokens of plain completions.

        `epoch` is the Redis time at which the monotonic clock was 0.
        """
        entries: list[Entry] = []
        size = self._stage(entries) if self._staging else 0
        size += self._emit(entries)
        while self.entries and len(entries) < consume.MAX_SETTLED and size < consume.MAX_BYTES:
            entries.append(self.entries.popleft())
            size += _bytes(entries[-1])
        while self._later_due:
            self.finished.append(self.later.popleft())
        groups: defaultdict[PoolJobType, list[Attempt]] = defaultdict(list)
        finished = self.finished
        room = consume.MAX_SETTLED - len(entries) if size < consume.MAX_BYTES else 0
        for _ in range(min(len(finished), room)):
            attempt = finished.popleft()
            groups[attempt.job_type].append(attempt)
            if attempt.price is not None and not isinstance(attempt.settlement, PlainMember):
                attempt.settlement = msgspec.structs.replace(
                    attempt.settlement or Entry(attempt.name, attempt.token, Done()), worked=attempt.worked()
                )
            entry = attempt.settlement
            if entry is not None and not attempt.lost:
                if isinstance(entry, PlainMember):
                    numbers, by_name = self._members[entry.batch, entry.above]
                    numbers.append(entry.number)
                    by_name.setdefault(attempt.name, []).append(attempt.token)
                    continue
                attempt.job_type.fails += counts_failure(entry.outcome)
                size += self._add(self._history.with_record(attempt, entry), entries)
                if size >= consume.MAX_BYTES:
                    break
        done: dict[str, list[str]] = {}
        for job_type, attempts in groups.items():
            tokens = self._count(job_type, attempts, epoch)
            if tokens:
                done[job_type.name] = tokens
        if self._retry_due:
            self._stuck_at = time.monotonic() + RETRY_STUCK_SECONDS
            for _ in range(min(len(self._stuck), MAX_STUCK)):
                size += self._add(self._stuck.popleft(), entries)
                if size >= consume.MAX_BYTES:
                    break
        return entries, done

    def take_members(self) -> list[MemberGroup]:
        """The completed members among the outcomes that `take` took."""
        if not self._members:
            return []
        found, self._members = self._members, _no_members()
        groups: list[MemberGroup] = []
        for (batch, above), (numbers, tokens) in found.items():
            path = msgspec.json.decode(b"[%b]" % above[1:]) if above else []
            groups.append(MemberGroup((batch.decode(), *path[::2]), path[1::2], numbers, tokens))
        return groups

    def _add(self, entry: Entry, entries: list[Entry]) -> int:
        """Add an entry for this exchange, or stage the children of its attempt first. Returns its size."""
        children = entry.children
        if children is not None:
            if children.large:
                self._staging.append(entry)
                return 0
            self.born |= children.names
        entries.append(entry)
        return _bytes(entry)

    def _emit(self, entries: list[Entry]) -> int:
        """Add what running attempts have emitted. Returns the size."""
        size = 0
        for attempt in self.emits.take(MAX_EMITTING):
            if attempt.stream is not None and (part := attempt.stream.take()).values:
                entries.append(Entry(attempt.name, attempt.token, Emit(), stream=part))
                size += _bytes(entries[-1])
        return size

    def _stage(self, entries: list[Entry]) -> int:
        """Add the next part of the children that are being staged; once all are, the outcome. Returns the size."""
        entry = self._staging[0]
        children = entry.children
        part = None if children is None else children.next_part()
        if part is None:
            self._staging.popleft()
            entries.append(entry)
            return _bytes(entry)
        entries.append(Entry(entry.name, entry.token, part, children=children))
        return sum(map(len, part.payloads))

    def _count(self, job_type: PoolJobType, attempts: list[Attempt], epoch: float) -> list[str]:
        """Count ended attempts of one job type in its figures and history. Returns the tokens of plain completions."""
        job_type.learn([attempt for attempt in attempts if attempt.ran is not None], epoch)
        if self._start_gate.suspecting:
            for attempt in attempts:
                self._start_gate.ended(attempt)
        plain = [attempt.token for attempt in attempts if attempt.settlement is None and not attempt.lost]
        done = len(plain)
        if done < len(attempts) and self._members:
            done += sum(len(by_name.get(job_type.name, ())) for _, by_name in self._members.values())
        self._history.completed(
            job_type, attempts if done == len(attempts) else [one for one in attempts if _completed(one)]
        )
        return plain


def _no_members() -> defaultdict[tuple[bytes, bytes], tuple[list[int], dict[str, list[str]]]]:
    return defaultdict(lambda: ([], {}))


def _completed(attempt: Attempt) -> bool:
    entry = attempt.settlement
    if attempt.lost:
        return False
    return entry is None or isinstance(entry, PlainMember) or isinstance(entry.outcome, Done | Kept)


def _bytes(entry: Entry) -> int:
    """The size of an entry, as far as it counts against MAX_BYTES."""
    size = len(entry.payload) + len(entry.result)
    if entry.logs is not None:
        size += len(entry.logs.text)
    if entry.stream is not None:
        size += len(entry.stream.values) + len(entry.stream.shown)
    if entry.children is not None:
        # At least so much that an exchange stores no more than about a thousand jobs.
        size += max(entry.children.size, len(entry.children.jobs) * consume.MAX_BYTES // 1000)
    return size
