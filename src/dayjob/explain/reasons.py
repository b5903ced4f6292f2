"""Why is this job not running? Reads what decides it, and answers with a value; words.py has the sentence for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dayjob.explain.obstacles import (
    AllBusy,
    AtLimit,
    Fleet,
    KeyFull,
    KeyPaused,
    Obstacle,
    ObstacleKind,
    RateLimited,
    obstacle,
    occupied,
)
from dayjob.limits import allows, read_definition
from dayjob.store.keys import Keys
from dayjob.store.ops import inspect, maintain, partitions, pools, rates
from dayjob.store.ops.find import Found, find_job
from dayjob.store.ops.pools import Status
from dayjob.store.ops.rates import RateRule, RateTable
from dayjob.store.steps import Steps, ask

#: How many holders of a limit are named.
MAX_HOLDERS = 5
#: How the key of jobs without a value is shown.
_EMPTY = '""'

#: Why a job is not running, or what it does.
ReasonKind = Literal[
    ObstacleKind,
    "expired", "next", "not_started", "starting", "running", "pool_died", "due_later", "overdue", "dead", "done",
    "finished", "not_found",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobNotFound:
    """The job is nowhere."""

    kind: ClassVar[ReasonKind] = "not_found"
    job_id: str


@dataclass(frozen=True, slots=True)
class JobWaiting:
    """The job waits in its queue."""

    queue: str
    #: How many jobs are ahead of it.
    ahead: int
    #: What keeps its queue from being fetched; None if nothing does.
    obstacle: Obstacle | None
    #: Whether the job has expired, so that it is discarded when its turn comes.
    expired: bool
    #: The attempts that hold the limit, where that is reached.
    holders: tuple[str, ...]
    #: Redis time.
    now: float
    #: How many jobs of this name ended per minute lately; None where that is not known.
    per_minute: float | None = None

    @property
    def kind(self) -> ReasonKind:
        """What the job waits for, as a stable word."""
        if self.expired:
            return "expired"
        return "next" if self.obstacle is None else self.obstacle.kind

    @property
    def moves(self) -> bool:
        """Whether the jobs ahead of it are run, so that its turn comes."""
        return self.ahead > 0 and self.kind in ("next", "busy")


@dataclass(frozen=True, slots=True)
class HolderDied:
    """The job was running on a pool that died."""

    kind: ClassVar[ReasonKind] = "pool_died"
    pool_id: str


@dataclass(frozen=True, slots=True)
class JobFetched:
    """A pool holds the job, and has not reported that it runs."""

    pool: Status
    #: Why it has not started; None if it is about to, or has just done so.
    obstacle: AllBusy | None
    cancelled: bool
    now: float

    @property
    def kind(self) -> ReasonKind:
        """Whether something keeps it from starting."""
        return "starting" if self.obstacle is None else "not_started"


@dataclass(frozen=True, slots=True)
class JobRunning:
    """The job runs."""

    kind: ClassVar[ReasonKind] = "running"
    pool: Status
    seconds: float
    checkin: str
    #: Whether it blocks the event loop of its pool.
    blocks: bool
    cancelled: bool


@dataclass(frozen=True, slots=True)
class JobDue:
    """The job is scheduled, or waits for its next attempt."""

    #: Seconds until it is due; below 0 once it is overdue.
    seconds: float
    fails: int
    error: str
    #: The leader, which moves due jobs to their queues; None if there is none.
    leader: str | None

    @property
    def kind(self) -> ReasonKind:
        """Whether it is due yet."""
        return "due_later" if self.seconds > 0 else "overdue"


@dataclass(frozen=True, slots=True)
class JobDead:
    """The job is dead."""

    kind: ClassVar[ReasonKind] = "dead"
    #: Seconds since it died; None if only its error is kept.
    seconds: float | None
    error: str
    #: The job that has its unique key; "" if no other has.
    holder: str


@dataclass(frozen=True, slots=True)
class JobDone:
    """The job is done."""

    kind: ClassVar[ReasonKind] = "done"
    #: Seconds for which it is kept; None if only its result is.
    kept_for: float | None


@dataclass(frozen=True, slots=True)
class JobFinished:
    """The job is stored nowhere, and the history has the attempt that ended last."""

    kind: ClassVar[ReasonKind] = "finished"
    #: How that attempt ended, as the history names it, and how many seconds ago.
    ending: str
    seconds: float
    attempt: int
    #: Seconds that it ran; None if that is not known.
    ran: float | None
    #: The class name of its exception, or "".
    error: str


Reason = (
    JobNotFound | JobWaiting | HolderDied | JobFetched | JobRunning | JobDue | JobDead | JobDone | JobFinished
)


def explain(keys: Keys, job_id: str, name: str | None = None) -> Steps[Reason]:
    """Why the job with this id is not running."""
    found = yield from find_job(keys, job_id, name)
    if found is None:
        return JobNotFound(job_id)
    return (yield from reason(keys, found, found.job.err if found.job else ""))


def reason(keys: Keys, found: Found, error: str) -> Steps[Reason]:
    """Why this job is not running; `error` is its error as it may be shown."""
    match found.state:
        case "waiting":
            return (yield from _waiting(keys, found))
        case "running":
            return (yield from _held(keys, found))
        case "scheduled" | "retry":
            return (yield from _due(keys, found, error))
        case "dead":
            return (yield from _died(keys, found, error))
        case _:
            now = yield from ask(inspect.now())
            # Completed jobs are scored by when they are dropped.
            return JobDone(found.at - now if found.at else None)


def _waiting(keys: Keys, found: Found) -> Steps[Reason]:
    look = yield from inspect.overview(keys, [found.name])
    fleet = Fleet((yield from pools.pools(keys)))
    why = obstacle(look.queues[0], fleet)
    expired = bool(found.job and found.job.expires and found.job.expires < look.now * 1000)
    holders: tuple[str, ...] = ()
    if isinstance(why, AtLimit):
        held = yield from ask(maintain.held_members(keys, found.name, most=MAX_HOLDERS))
        holders = tuple(sorted(one for one in held if one.isprintable()))
    if why is None:
        why = yield from _limited(keys, found)
    return JobWaiting(found.name, found.place, why, expired, holders, look.now)


def _limited(keys: Keys, found: Found) -> Steps[RateLimited | KeyFull | KeyPaused | None]:
    """The pause or limit of its key, or the rate limit, that a job waits for; None if it waits for none."""
    table = yield from ask(rates.rate_table(keys))
    rule = table.rules.get(found.name)
    if rule is None:
        return None
    _, keyed, key = found.queue.partition("|")
    words = f"{' and '.join(rule.key.by)} {key or _EMPTY}" if keyed and rule.key is not None else ""
    if words and rule.key is not None:
        (state,) = yield from ask(partitions.key_states(keys, found.name, [key]))
        if state.paused:
            return KeyPaused(words)
        most = state.limit or rule.key.places
        if most and state.running >= most:
            return KeyFull(words, state.running, most)
    return (yield from _rate_limited(keys, table, rule, key if words else "", words))


def _rate_limited(
    keys: Keys, table: RateTable, rule: RateRule, key: str, words: str
) -> Steps[RateLimited | None]:
    """The rate limit that jobs of a rule, with this key if it has one, wait for longest; None if they wait for none."""
    own = [one for one in rule.limits if words or one not in rule.by_key]
    names = {(f"{one}|{key}" if one in rule.by_key else one): one for one in own}
    texts = {full: table.definitions.get(one, "") for full, one in names.items()}
    if not texts:
        return None
    for limit in rule.by_key.intersection(own):
        # What an operator set for this key.
        set_by_operator = (yield from ask(rates.overrides(keys, limit))).get(key)
        texts[f"{limit}|{key}"] = set_by_operator or texts[f"{limit}|{key}"]
    kinds = {full: rates.kind_of(text) for full, text in texts.items()}
    states = yield from ask(rates.limit_states(keys, kinds, cost=rule.cost))
    full = max(states, key=lambda one: states[one].wait)
    state, limit = states[full], names[full]
    if not state.wait:
        return None
    return RateLimited(
        limit, allows(read_definition(texts[full])), state.wait, state.held_for >= state.wait,
        words if limit in rule.by_key else "",
    )  # fmt: skip


def _held(keys: Keys, found: Found) -> Steps[Reason]:
    registered = yield from pools.pools(keys)
    now = yield from ask(inspect.now())
    pool = next((one for one in registered if one.id == found.pool_id), None)
    if pool is None:
        return HolderDied(found.pool_id)
    status = pool.status or Status(id=found.pool_id)
    (cancel,) = yield from ask(maintain.read_cancels(keys, found.pool_id, [found.token]))
    worker = next((one for one in status.workers if one.token == found.token), None)
    if worker is None:
        why = _not_started(status, found.name) if pool.status else None
        return JobFetched(status, why, cancel is not None, now)
    block = status.loop_blocked
    blocks = block is not None and block.id == worker.id
    return JobRunning(status, now - worker.started_at, worker.checkin or "", blocks, cancel is not None)


def _not_started(status: Status, name: str) -> AllBusy | None:
    """Why a job that a pool holds has not started; None if it may have started a moment ago."""
    blocked = status.loop_blocked is not None and name in status.async_names
    return occupied([status], name) if blocked or name not in status.running else None


def _due(keys: Keys, found: Found, error: str) -> Steps[Reason]:
    now = yield from ask(inspect.now())
    seconds = (found.at or 0) - now
    leader = None if seconds > 0 else (yield from ask(pools.leader(keys)))
    return JobDue(seconds, found.job.fails if found.job else 0, error, leader)


def _died(keys: Keys, found: Found, error: str) -> Steps[Reason]:
    if found.job is None:
        return JobDead(None, error, "")
    now = yield from ask(inspect.now())
    holder = ""
    if found.job.unique_key.startswith(keys.unique_prefix):
        owner = yield from ask(inspect.unique_owner(found.job.unique_key))
        holder = "" if owner in (None, found.job.id) else owner or ""
    return JobDead(now - (found.at or now), error, holder)
