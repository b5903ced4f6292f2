"""What a search found, as consoles show it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dayjob.store.ops.find import State

SearchKind = Literal["job", "queue", "pool", "schedule", "source", "error"]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One thing that a text may mean."""

    kind: SearchKind
    #: Its name: of a job the job name, of a pool its id, of a source the source, of an error the job that fails with it.
    name: str
    #: Of a job: its id and its state.
    id: str = ""
    state: State | None = None
    #: What else is known: the error of a job, the host of a pool, the job of a schedule, the kind of an error.
    text: str = ""
    #: Of a source or an error: how many of the jobs that were read have it.
    count: int | None = None


@dataclass(frozen=True, slots=True)
class SearchedPart:
    """How many jobs of a state were searched."""

    state: State
    searched: int
    total: int


@dataclass(frozen=True, slots=True)
class SearchView:
    """What a text may mean, the nearest first, and what was searched."""

    text: str
    hits: tuple[SearchHit, ...]
    parts: tuple[SearchedPart, ...]

    @property
    def complete(self) -> bool:
        """Whether every job was searched."""
        return all(part.searched >= part.total for part in self.parts)
