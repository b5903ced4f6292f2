"""Audit of a batch: compares the records of the batch with where its members are, and repairs it on request.

Every job of the namespace is searched, in bounded reads. Jobs move while they are searched, so that a difference counts only if
three searches in a row find it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dayjob.admin import walks
from dayjob.admin.batch_health import OPEN_SECONDS
from dayjob.admin.batches import stored, view
from dayjob.admin.newest import AT_ONCE
from dayjob.admin.session import Session, write_audit
from dayjob.admin.views.batches import AuditFinding, AuditKind, BatchAudit
from dayjob.explain.batches import number_in
from dayjob.store.keys import Keys
from dayjob.store.ops import batches, inspect
from dayjob.store.ops.batches import BatchChange, StoredBatch
from dayjob.store.steps import Steps, ask, ask_all
from dayjob.text import counted

#: How many searches in a row must find a difference, and how often what a repair left is audited again.
SEARCHES = 3
MAX_REPAIRS = 3
#: How many members one step of a repair changes.
REPAIRED_AT_ONCE = 500
_SHOWN = 10

_CHANGES: dict[AuditKind, BatchChange] = {"lost": "completed", "died": "dead", "alive": "reopened"}


class Members:
    """A set of members as the bits of one number, so that sets of a million are compared at once."""

    def __init__(self, total: int) -> None:
        self._bytes = bytearray((total + 7) // 8)
        self._total = total

    def add(self, number: int) -> None:
        """Add a member; one that joined after the audit began is left out."""
        if 0 <= number < self._total:
            self._bytes[number >> 3] |= 128 >> (number & 7)

    @property
    def bits(self) -> int:
        """The set as a number."""
        return int.from_bytes(self._bytes)


@dataclass(frozen=True, slots=True)
class _Differences:
    """What differs after one search, as sets of members."""

    lost: int
    died: int
    alive: int

    def __and__(self, other: _Differences) -> _Differences:
        return _Differences(self.lost & other.lost, self.died & other.died, self.alive & other.alive)

    def __bool__(self) -> bool:
        return bool(self.lost | self.died | self.alive)


def audit(session: Session, batch_id: str, *, repair: bool = False) -> Steps[BatchAudit]:
    """Compare a batch with its members; with `repair`, correct the records of the batch. Raises BadOption."""
    first = yield from _look(session, batch_id)
    if not repair:
        return replace(first, findings=_shown(first))
    found, repaired = first, 0
    for _ in range(MAX_REPAIRS):
        wrong = [one for one in found.findings if one.kind != "open"]
        if not wrong:
            break
        # What moved between the look and the repair shows in the next look.
        for one in wrong:
            repaired += yield from _repair(session, batch_id, one)
        found = yield from _look(session, batch_id)
    if repaired:
        text = f"{counted(repaired, 'difference')} repaired."
        yield from write_audit(session, "repair batch", f"batch {batch_id}", text)
    searched = found.searched if found is first else first.searched + found.searched
    return replace(found, findings=_shown(first), repaired=repaired, searched=searched)


def _shown(found: BatchAudit) -> tuple[AuditFinding, ...]:
    return tuple(replace(one, numbers=one.numbers[:_SHOWN]) for one in found.findings)


def _look(session: Session, batch_id: str) -> Steps[BatchAudit]:
    keys = session.keys
    about = yield from stored(session, batch_id)
    total = about.total
    searched = 0
    differ: _Differences | None = None
    for _ in range(SEARCHES):
        before, _ = yield from _beliefs(keys, batch_id, total)
        live, dead, count = yield from _search(keys, batch_id, total)
        after, known_dead = yield from _beliefs(keys, batch_id, total)
        searched += count
        all_members = (1 << (total + 7) // 8 * 8) - (1 << -total % 8)
        now_seen = _Differences(
            all_members & ~(live | dead | after), dead & ~(after & known_dead), before & after & live
        )
        differ = now_seen if differ is None else differ & now_seen
        if not differ:
            break
    about = yield from stored(session, batch_id)
    now = yield from ask(inspect.now())
    findings = [*_findings(differ, total), *_of_batch(about, now, changed=bool(differ))]
    sound = all(one.kind == "open" for one in findings)
    return BatchAudit(view(about, now), searched, tuple(findings), sound=sound)


def _beliefs(keys: Keys, batch_id: str, total: int) -> Steps[tuple[int, int]]:
    """The members that have ended and those that are dead, as the batch has recorded them."""
    found = yield from ask_all(
        [batches.bitmap(keys.batch_ended(batch_id)), batches.bitmap(keys.batch_dead(batch_id))]
    )
    size = (total + 7) // 8
    ended, dead = (int.from_bytes(bits[:size].ljust(size, b"\0")) for bits in found)
    return ended, dead


def _search(keys: Keys, batch_id: str, total: int) -> Steps[tuple[int, int, int]]:
    """The members that have not ended, those that are dead, and how many jobs were searched."""
    live, dead = Members(total), Members(total)

    def note(payload: bytes) -> None:
        number = number_in(payload, batch_id)
        if number is not None:
            live.add(number)

    def note_dead(entry: inspect.StoredEntry) -> None:
        number = number_in(entry.member, batch_id)
        if number is not None:
            dead.add(number)

    searched = yield from walks.over_live(keys, note)
    searched += yield from walks.over_set(keys.dead, note_dead)
    yield from _nested(keys, batch_id, live, dead)
    # A member that was seen in a queue may be dead by now.
    return live.bits & ~dead.bits, dead.bits, searched


def _nested(keys: Keys, batch_id: str, live: Members, dead: Members) -> Steps[None]:
    """Note the members that are batches themselves."""
    cursor = ""
    while cursor != "0":
        cursor, ids = yield from ask(batches.nested(keys, batch_id, cursor or "0"))
        numbers = list(ids)
        for first in range(0, len(numbers), AT_ONCE):
            some = numbers[first : first + AT_ONCE]
            found = yield from batches.read_many(keys, [ids[number] for number in some])
            for number, one in zip(some, found, strict=True):
                if one is not None and one.ended_at is None:
                    live.add(number)
                elif one is not None and one.state != "succeeded":
                    dead.add(number)


def _numbers(bits: int, total: int) -> list[int]:
    raw = bits.to_bytes((total + 7) // 8)
    return [
        place * 8 + bit for place, byte in enumerate(raw) if byte for bit in range(8) if byte & (128 >> bit)
    ]


_TEXTS: dict[AuditKind, str] = {
    "lost": "nowhere: deleted by another program, or lost. A repair counts them as ended.",
    "died": "dead, which the batch does not know. A repair counts them as dead.",
    "alive": "not ended, though the batch has recorded that. A repair lets the batch wait for them.",
}


def _findings(differ: _Differences | None, total: int) -> list[AuditFinding]:
    found: list[AuditFinding] = []
    for kind in ("lost", "died", "alive"):
        numbers = _numbers(getattr(differ, kind), total) if differ else []
        if numbers:
            verb = "is" if len(numbers) == 1 else "are"
            text = f"{counted(len(numbers), 'member')} {verb} {_TEXTS[kind]}"
            found.append(AuditFinding(kind, len(numbers), tuple(numbers), text))
    return found


def _of_batch(about: StoredBatch, now: float, *, changed: bool) -> list[AuditFinding]:
    if about.closed and not about.left and about.ended_at is None and not changed:
        text = "All members have ended, but the batch has not. A repair ends it."
        return [AuditFinding("not_ended", 0, (), text)]
    if not about.closed and now - about.created_at > OPEN_SECONDS:
        text = (
            "Its block has not ended for an hour: if the program that opened it is gone, close or cancel it."
        )
        return [AuditFinding("open", 0, (), text)]
    return []


def _repair(session: Session, batch_id: str, finding: AuditFinding) -> Steps[int]:
    """Correct one kind of difference. Returns how many were corrected."""
    about = yield from stored(session, batch_id)
    if finding.kind == "not_ended":
        yield from ask(batches.change_batch(session.keys, about, "check"))
        return 1
    for first in range(0, finding.members, REPAIRED_AT_ONCE):
        some = finding.numbers[first : first + REPAIRED_AT_ONCE]
        yield from ask(batches.change_batch(session.keys, about, _CHANGES[finding.kind], some))
    return finding.members
