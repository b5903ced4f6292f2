"""What actions answer: the outcome, the progress and the preview of one on many jobs, and what can be undone. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dayjob.admin.views.jobs import JobView

#: done; the target was not found; it has moved on; it does not allow this in its state; its unique key is another job's; it was so
#: already.
OutcomeKind = Literal["done", "not_found", "moved", "not_allowed", "taken", "already"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an action."""

    #: Whether something was changed.
    done: bool
    #: A sentence about what was done, or why nothing was.
    message: str
    action: str
    subject: str
    #: Whether it is in the audit.
    audited: bool = True
    #: Whether the target exists. If not, nothing was done.
    found: bool = True
    #: The outcome as a stable word for programs.
    kind: OutcomeKind = "done"
    #: The id of the deletion that undo takes back; "" where there is nothing to undo.
    undo: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs match a filter, among those that were searched."""

    matched: int
    searched: int
    #: How many there are in all, filter or not.
    total: int
    #: How many could not be compared, because the filter is about arguments and theirs are hidden.
    hidden: int = 0
    #: Pass it as `after` to search on; "" where there is no more to search.
    next: str = ""
    #: How many come after those that were searched. Without a `next` they are behind the first 10,000 of their queue.
    left: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing is left. If not, more may match."""
        return not self.left


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of an action on many jobs."""

    searched: int
    total: int
    matched: int
    changed: int
    #: More about it in words, where the numbers do not say it.
    message: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action on many jobs would change."""

    message: str
    count: Count
    would_change: int
    #: The first ten of them, or of those that were found.
    samples: tuple[JobView, ...]
    now: float


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcome of an action on many jobs."""

    searched: int
    matched: int
    changed: int
    message: str
    audited: bool = True
    #: The id of the deletion that undo takes back; "" where there is nothing to undo.
    undo: str = ""

    @property
    def unchanged(self) -> int:
        """Jobs that matched and were not changed: they moved on, or another job has their unique key."""
        return self.matched - self.changed


@dataclass(frozen=True, slots=True)
class DeletionView:
    """An action that deleted jobs and can be undone."""

    id: str
    #: When the action ended, by Redis time.
    at: float
    actor: str
    action: str
    subject: str
    #: How many jobs are in the bin.
    jobs: int
    expires_at: float
