"""ParentCondition: what the parent of `dayjob worker` knows without asking, for probes and for systemd."""

from __future__ import annotations

from typing import NamedTuple


class ParentCondition(NamedTuple):
    """How the parent and its children are."""

    #: How many children there should be, how many run, and how many of those have started their pool.
    wanted: int
    alive: int
    started: int
    quiet: bool = False
    rolling: bool = False
    stopping: bool = False
    #: Whether the parent or a child cannot reach Redis.
    redis_away: bool = False

    @property
    def healthy(self) -> bool:
        """Whether the wanted number of children runs. An outage of Redis is no reason to restart workers."""
        return self.alive >= self.wanted or self.stopping

    @property
    def ready(self) -> bool:
        """Whether all children fetch jobs."""
        return self.started >= self.wanted and not (self.quiet or self.stopping or self.redis_away)

    def __str__(self) -> str:
        notes = {
            "stopping": self.stopping, "quiet": self.quiet, "replacing processes": self.rolling,
            "Redis is unreachable": self.redis_away,
        }  # fmt: skip
        text = f"{self.started} of {self.wanted} processes have started"
        return "; ".join([text, *(note for note, holds in notes.items() if holds)])
