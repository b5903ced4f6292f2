"""Whether anything is wrong, as consoles show it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dayjob.store.ops.inspect import Sizes

#: A notice is a fact to know of that needs no action at once.
Level = Literal["ok", "notice", "warning", "error"]
NoteKind = Literal[
    "unused", "no_pool", "not_rescued", "stuck", "loop_blocked", "arguments", "wrong_type", "paused", "no_worker", "late",
    "failing", "noisy", "overdue", "broken", "dead", "eviction", "memory_only", "outbox",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that is wrong or worth knowing, as a sentence."""

    level: Level
    #: What it is about: a queue, a side set, `pools`, `busy` (the workers) or `redis` (the server); "" when it is about all.
    subject: str
    text: str
    #: What is wrong, as a stable word for programs.
    kind: NoteKind
    #: Since when, Redis time; None if that is not known.
    since: float | None = None
    #: Whether it may have begun before `since`.
    or_earlier: bool = False
    #: What to do about it, in a sentence.
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether anything is wrong, as sentences: the worst first."""

    level: Level
    sentence: str
    notes: tuple[Note, ...]
    #: Redis time.
    now: float
    waiting: int
    running: int
    sizes: Sizes
    #: Pools with a lease, and the workers they have.
    pools: int
    workers: int
    #: Rows of the outbox that were not sent, and the age of the oldest in seconds, as a relay published them.
    unsent: int = 0
    unsent_age: float = 0.0
    #: Seconds since a relay last reported; 0 without an outbox.
    relay_silence: float = 0.0
