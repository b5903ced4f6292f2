"""Failures by error and job name, as consoles show them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from dayjob.admin.views.jobs import JobView
from dayjob.store.ops.groups import GroupMark


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Jobs of one name that failed the same way."""

    name: str
    #: The first line of the error, with numbers and ids as #; `kind=` in a filter.
    kind: str
    count: int
    #: How many of them failed within 1 h, 24 h and 72 h.
    last_hour: int
    last_day: int
    last_three_days: int
    dead: int
    retry: int
    #: When the first of them failed this way; `first_known` is false if it may have been earlier.
    first_at: float
    last_at: float
    #: The one that failed last.
    sample: JobView
    first_known: bool = True
    #: What operators noted about it.
    mark: GroupMark = field(default_factory=GroupMark)


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """How often attempts of one job name failed, including those whose jobs completed later."""

    name: str
    last_hour: int


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures by error and job name, the largest group first."""

    now: float
    #: Jobs that are in retry or dead now.
    groups: tuple[FailureGroup, ...]
    searched: int
    total: int
    #: Every job name of which an attempt failed in the last hour, the one with most first.
    attempts: tuple[FailedAttempts, ...] = ()
