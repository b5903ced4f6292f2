"""Rate limits, and the keys of a queue, as consoles show them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """What an operator set a limit to for one key."""

    key: str
    #: In words; "lifted" if there is no limit for this key.
    allows: str


@dataclass(frozen=True, slots=True)
class LimitView:
    """A rate limit."""

    name: str
    #: `rate` or `window`.
    kind: str
    #: What it allows, in words; "lifted" if an operator lifted it.
    allows: str
    #: Units of a rate, or starts of a window, that are used now; and how many may be.
    used: int
    most: int | None
    #: Seconds until the next job may start; 0 if one may start now.
    wait: float
    #: Seconds until its hold ends; 0 if there is none.
    held_for: float
    #: Jobs that wait in the queues of its job names. Other limits may keep them back too.
    waiting: int
    #: About how many seconds a job enqueued now waits for this limit, behind those that wait; 0 if it may start at once.
    delay: float
    #: The job names that have this limit.
    queues: tuple[str, ...]
    #: What the code declares, in words; and whether an operator set something else.
    declared: str
    by_operator: bool
    #: Whether a key of the limit has a wrong type, so that its jobs do not start.
    wrong: bool = False
    #: The arguments by which it counts, if each key has its own count; and what operators set for single keys.
    by: tuple[str, ...] = ()
    own_keys: tuple[KeyLimit, ...] = ()
    #: How many keys wait for this limit or for another one of their job names.
    keys_held_back: int = 0


@dataclass(frozen=True, slots=True)
class KeyView:
    """One key of a queue."""

    key: str
    #: Jobs that wait, jobs that run, and the share of the waiting jobs of all keys, from 0 to 1. What runs of one key is
    #: counted only if the key has a limit on it; otherwise None.
    waiting: int
    running: int | None
    share: float
    #: Seconds that its oldest job has waited; None if that is not known.
    oldest: float | None
    weight: float
    #: How many of its jobs may run at once; None if its job type has no such limit.
    limit: int | None
    #: Whether an operator set that limit for this key.
    own_limit: bool
    paused: bool
    #: Seconds until it is tried again; None if it does not wait for a time.
    wait: float | None
    #: Whether it waits until one of its jobs has ended.
    full: bool


@dataclass(frozen=True, slots=True)
class KeysView:
    """The keys of a queue that have waiting jobs."""

    queue: str
    #: The arguments of the key; none if the queue has no keys.
    by: tuple[str, ...]
    #: How many keys have jobs, and how many of those must wait.
    total: int
    held_back: int
    #: Jobs that wait under the keys that were read.
    waiting: int
    #: Those with most jobs first, unless sorted otherwise.
    keys: tuple[KeyView, ...]
    now: float
    #: Seconds that the oldest job of the keys but the largest has waited; None if that is not known.
    others_wait: float | None = None
