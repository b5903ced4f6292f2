"""Payload sizes as consoles show them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from dayjob.store.ops.find import State


@dataclass(frozen=True, slots=True)
class LargeJob:
    """A job with a large payload."""

    size: int
    id: str
    name: str
    state: State


@dataclass(frozen=True, slots=True)
class NameSizes:
    """The payloads of one job name, in bytes."""

    name: str
    count: int
    median: int
    largest: int
    total: int


@dataclass(frozen=True, slots=True)
class PayloadSizes:
    """How large the payloads of stored jobs are."""

    now: float
    #: How many jobs were read, and how many there are.
    searched: int
    total: int
    #: The largest size of each step in bytes, a power of two, to how many payloads it has.
    steps: dict[int, int]
    #: The name with the most bytes first, unless sorted otherwise.
    names: tuple[NameSizes, ...]
    largest: tuple[LargeJob, ...]
