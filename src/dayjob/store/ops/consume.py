"""The requests of a pool: join, exchange, beat, status, limits, leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, assert_never

import msgspec

from dayjob.outcome import (
    Cancelled,
    Died,
    Done,
    Dropped,
    GivenBack,
    HeldBack,
    Kept,
    NameSuspect,
    Outcome,
    Reaped,
    Recharge,
    Release,
    Retried,
    Rewound,
    Snoozed,
    StartRequest,
    Unreadable,
)
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, texts
from dayjob.store.ops.history import AttemptLines, Records
from dayjob.store.ops.rates import RateRule, Spent, state_key
from dayjob.store.scripts import load

#: Limits of one exchange, because a script blocks the server while it runs.
MAX_FETCHED = 500
MAX_SETTLED = 500
MAX_BYTES = 1 << 20
#: Milliseconds for which the error of a dead job is kept under its result key. The exchange script has the same number.
KEEP_ERROR_MS = 86_400_000
#: Seconds for which stack traces are kept.
KEEP_STACKS_SECONDS = 60

Status = Literal["ok", "rewound", "again", "late", "refused"]


def token_of(number: int, name: str) -> str:
    """The token of an attempt. The exchange script builds the same text."""
    return f"{number}:{name}"


def name_in(token: str) -> str:
    """The job name in a token."""
    return token.partition(":")[2]


def number_in(token: str) -> int:
    """The number in a token."""
    return int(token.partition(":")[0])


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one held attempt, or a request of one that has not started, with all that Redis needs for it."""

    name: str
    token: str
    outcome: Outcome | StartRequest
    #: What Redis stores from now on: the job's new payload, or for Unreadable an entry of broken. Empty if the outcome
    #: stores nothing, or the payload that Redis holds.
    payload: bytes = b""
    job_id: str = ""
    #: What a caller that waits for the job's result gets: its result or its error, as JSON. Empty if none is kept.
    result: bytes = b""
    #: The unique key that is released because the job ends, or "".
    releases: str = ""
    #: The class name of the exception that ended the attempt, or "".
    error: str = ""
    #: What the history keeps of the attempt, and the lines that it logged; None if nothing.
    records: Records | None = None
    logs: AttemptLines | None = None
    #: A correction of what rate limits were charged for the attempt.
    spent: Spent | None = None


def error_result(message: str) -> bytes:
    """What a caller that waits for the result of a dead job gets."""
    return msgspec.json.encode({"error": message})


def encode(keys: Keys, entry: Entry) -> tuple[str, int, str, bytes | str]:
    """The kind, number, key and value of an entry, as exchange.lua and sweep.lua document them for each kind."""
    match entry.outcome:
        case Kept(seconds=seconds):
            return "kept", int(seconds * 1000), _result_key(keys, entry), entry.result
        case Retried(after=after):
            return "retried", _milliseconds(after), "", b""
        case Snoozed(after=after):
            return "snoozed", _milliseconds(after), "", b""
        case Died(counts_failure=counts):
            return "died", int(counts), _result_key(keys, entry), entry.result
        case Dropped(counts_failure=counts):
            return "dropped", int(counts), "", b""
        case Done():
            return "done", 0, "", b""
        case Release(unique_key=key, first_run=first):
            return "release", int(first), key, entry.job_id
        case GivenBack(unique_key=key):
            return "given_back", 0, key, entry.job_id
        case HeldBack(after=after):
            return "held_back", _milliseconds(after), "", b""
        case Recharge():
            return "recharge", 0, "", b""
        case NameSuspect():
            return "name_suspect", 0, "", b""
        case Cancelled():
            return "cancelled", 0, "", b""
        case Rewound():
            return "rewound", 0, "", b""
        case Reaped():
            return "reaped", 0, "", b""
        case Unreadable():
            return "unreadable", 0, "", b""
        case _ as unknown:
            assert_never(unknown)


def _result_key(keys: Keys, entry: Entry) -> str:
    return keys.result(entry.job_id) if entry.result else ""


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


@dataclass(frozen=True, slots=True)
class Want:
    """A job name that takes part in an exchange, with its weight."""

    name: str
    weight: int
    fetch: bool
    fast: bool = False


@dataclass(slots=True)
class Request:
    """The content of one exchange. The command is built from it once, so that a resend is byte-identical."""

    pool_id: str
    number: int
    first_token: int
    wants: Sequence[Want]
    room: int = 0
    extra: int = 0
    entries: Sequence[Entry] = ()
    #: Plain completions: tokens by job name.
    done: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Metrics to add to a minute since the epoch: field to increment.
    minute: int = 0
    figures: Mapping[str, int] = field(default_factory=dict)
    #: What the history keeps of completed attempts.
    records: Sequence[Records] = ()
    #: The rules of those names that have rate limits, and the kind of each limit that the request refers to.
    rules: Mapping[str, RateRule] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


class Batch(NamedTuple):
    """Jobs of one name, oldest first, each under a token of its own."""

    name: str
    tokens: list[str]
    payloads: list[bytes]


@dataclass(slots=True)
class Reply:
    """The answer to an exchange."""

    status: Status
    now: float
    held: int
    late: int
    live: list[str]
    #: Token to the payload to run, or None when the attempt is gone; for `Release`.
    released: dict[str, bytes | None]
    stuck: list[str]
    wrong: list[str]
    #: In the order of the token numbers.
    batches: list[Batch]
    #: Tokens that were not settled because their job was cancelled; True if the job goes to dead.
    cancelled: dict[str, bool] = field(default_factory=dict)
    #: Names whose rate limits differ from those in the request, so that nothing was fetched of them.
    unknown: list[str] = field(default_factory=list)
    #: Rate limit to the mark of what was charged.
    marks: dict[str, str] = field(default_factory=dict)


def exchange(keys: Keys, request: Request, *, lease: float, u: float) -> Op[Reply]:
    """Settle finished attempts and fetch new jobs, in one step."""
    names = [want.name for want in request.wants]
    index = {name: i for i, name in enumerate(names, 1)}
    key_list: list[Arg] = [
        keys.pools, keys.state(request.pool_id), keys.held(request.pool_id), keys.limits, keys.totals, keys.retry,
        keys.dead, keys.scheduled, keys.done, keys.broken, keys.due, keys.minute(request.minute), keys.parked,
    ]  # fmt: skip
    for name in names:
        key_list += keys.of_name(name)
    for limit, kind in request.limits.items():
        key_list += (state_key(keys, limit, kind), keys.hold(limit))
    settled, count = _settle_args(keys, request, index, key_list)
    for records in request.records:
        settled += _record_args(keys, records, "", key_list)
    count += len(request.records)
    args: list[Arg] = [
        request.pool_id, request.number, request.first_token, request.room, request.extra, int(lease * 1000),
        f"{u:.17f}", MAX_BYTES, len(names), count, len(request.done), len(request.limits), len(request.rules),
    ]  # fmt: skip
    for want in request.wants:
        args += (want.name, want.weight, 2 if want.fast and want.fetch else int(want.fetch))
    for limit, kind in request.limits.items():
        args += (limit, kind)
    for name, rule in request.rules.items():
        args += (index[name], rule.text)
    args += settled
    for name, tokens in request.done.items():
        args += (index[name], len(tokens), *tokens)
    for figure, increment in request.figures.items():
        args += (figure, increment)
    first = request.first_token
    limits = list(request.limits)
    return Op(load("exchange"), key_list, args, lambda reply: _read_exchange(reply, names, first, limits))


def _settle_args(
    keys: Keys, request: Request, index: Mapping[str, int], key_list: list[Arg]
) -> tuple[list[Arg], int]:
    """The arguments for the entries, and how many entries the script reads in them. Appends their keys to `key_list`.

    The release of a unique key, and a correction of charges, are entries of their own, ahead of the outcome that ends
    the attempt.
    """
    args: list[Arg] = []
    count = 0
    limits = {limit: i for i, limit in enumerate(request.limits, 1)} if request.limits else {}
    for entry in request.entries:
        name, token = index[entry.name], entry.token
        if entry.spent is not None:
            spent = entry.spent
            marks = " ".join(f"{limits[one]}:{mark}" for one, mark in spent.marks.items() if one in limits)
            again = isinstance(entry.outcome, Recharge)
            undone = "undone" if spent.undone else ""
            args += ("recharge" if again else "spent", name, token, undone, f"{spent.units:.6f}", 0, marks)
            count += 1
            if again:
                continue
        if entry.releases:
            key_list.append(entry.releases)
            args += ("release", name, token, b"", 0, len(key_list), entry.job_id)
            count += 1
        kind, number, key, value = encode(keys, entry)
        if isinstance(entry.outcome, HeldBack):
            value = " ".join(str(limits[one]) for one in entry.outcome.limits if one in limits)
        place = 0
        if key:
            key_list.append(key)
            place = len(key_list)
        args += (kind, name, token, entry.payload, number, place, value)
        count += 1
        if entry.records is not None:
            args += _record_args(keys, entry.records, token, key_list)
            count += 1
        if entry.logs is not None:
            key_list.append(keys.logs(entry.logs.job_id))
            logs = entry.logs
            args += ("logs", 0, token, logs.text, logs.milliseconds, len(key_list), logs.attempt)
            count += 1
    return args, count


def _record_args(keys: Keys, records: Records, token: str, key_list: list[Arg]) -> tuple[Arg, ...]:
    """The arguments of one entry of records. Appends their key to `key_list`."""
    key_list.append(records.key(keys))
    return "records", 0, token, records.lines, records.caps.count, len(key_list), records.caps.milliseconds


def _read_exchange(reply: Any, names: list[str], first: int, limits: list[str]) -> Reply:
    status: Status = reply[0].decode()
    releases = reply[5]
    batches: list[Batch] = []
    if status == "again":
        pairs = sorted(
            zip(reply[8][::2], reply[8][1::2], strict=True), key=lambda pair: int(pair[0].partition(b":")[0])
        )
        for raw, payload in pairs:
            token = raw.decode()
            batches.append(Batch(name_in(token), [token], [payload]))
    else:
        number = first
        for group in reply[8]:
            name = names[group[0] - 1]
            after = number + len(group) - 1
            batches.append(Batch(name, [f"{n}:{name}" for n in range(number, after)], group[1:]))
            number = after
    return Reply(
        status=status,
        now=reply[1] / 1000,
        held=reply[2],
        late=reply[3],
        live=[names[i - 1] for i in reply[4]],
        released={releases[i].decode(): releases[i + 1] for i in range(0, len(releases), 2)},
        stuck=[token.decode() for token in reply[6]],
        wrong=[names[i - 1] for i in reply[7]],
        batches=batches,
        cancelled={reply[9][i].decode(): reply[9][i + 1] == b"kill" for i in range(0, len(reply[9]), 2)},
        unknown=[names[i - 1] for i in reply[10]],
        marks={limits[reply[11][i] - 1]: reply[11][i + 1].decode() for i in range(0, len(reply[11]), 2)},
    )


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to join."""

    registered: bool
    now: float
    leads: bool


def join(
    keys: Keys, pool_id: str, names: Sequence[str], *, lease: float, term: float, about: bytes = b"{}"
) -> Op[Joined]:
    """Register a pool under an id that was never used before. `about` is what the timeline shows of it, as JSON."""
    return Op(
        load("join"),
        (
            keys.pools, keys.condemned, keys.state(pool_id), keys.known_jobs, keys.leader, keys.members,
            keys.events("started"), keys.events("leader"),
        ),
        (pool_id, int(lease * 1000), int(term * 1000), about, *names),
        lambda reply: Joined(bool(reply[0]), reply[1] / 1000, bool(reply[2])),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beaten:
    """The answer to beat."""

    alive: bool
    now: float
    leads: bool
    cancel: tuple[str, ...]
    #: Requests of operators: quiet, resume, stop, stacks.
    requests: tuple[str, ...] = ()
    #: Those of `cancel` whose jobs go to dead.
    kill: tuple[str, ...] = ()


def beat(keys: Keys, pool_id: str, *, lease: float, term: float = 0.0) -> Op[Beaten]:
    """Renew a pool's lease. With a `term`, also take the leadership if there is no leader."""
    return Op(
        load("beat"),
        (keys.pools, keys.state(pool_id), keys.leader, keys.held(pool_id), keys.events("leader")),
        (pool_id, int(lease * 1000), int(term * 1000)),
        _read_beaten,
    )


def _read_beaten(reply: Any) -> Beaten:
    alive, moment, leads, requests, kill, *cancel = reply
    return Beaten(
        bool(alive), moment / 1000, bool(leads), tuple(token.decode() for token in cancel),
        tuple(request.decode() for request in requests), tuple(token.decode() for token in kill),
    )  # fmt: skip


def lead(keys: Keys, pool_id: str, *, term: float) -> Op[bool]:
    """Take or renew the leadership; with a term of 0, give it up."""
    return Op(load("lead"), (keys.leader, keys.events("leader")), (pool_id, int(term * 1000)), bool)


def status(keys: Keys, pool_id: str, text: bytes) -> Op[bool]:
    """Publish the pool's status, for the console and the command line."""
    return Op(load("status"), (keys.pools, keys.pool(pool_id)), (pool_id, text), bool)


def stacks(keys: Keys, pool_id: str, text: bytes) -> Op[bool]:
    """Publish the stack traces of the busy workers, and remove the request for them."""
    return Op(
        load("stacks"),
        (keys.pools, keys.state(pool_id), keys.stacks(pool_id)),
        (pool_id, text, KEEP_STACKS_SECONDS),
        bool,
    )


def leave(keys: Keys, pool_id: str) -> Op[int]:
    """Unregister the pool. Returns how many attempts it still held; the leader sweeps these."""
    return Op(
        load("leave"),
        (
            keys.pools,
            keys.condemned,
            keys.state(pool_id),
            keys.held(pool_id),
            keys.pool(pool_id),
            keys.leader,
            keys.members,
            keys.events("stopped"),
        ),
        (pool_id,),
        int,
    )


def drop_request(keys: Keys, pool_id: str, request: str) -> Op[int]:
    """Remove a request of an operator that the pool has carried out."""
    return Op("HDEL", (keys.state(pool_id),), (f"wish:{request}",), int)


def held_tokens(keys: Keys, pool_id: str) -> Op[list[str]]:
    """The tokens of the attempts that a pool holds, according to Redis."""
    return Op("HKEYS", (keys.held(pool_id),), (), texts)


def set_cause(keys: Keys, pool_id: str, token: str, why: str) -> Op[int]:
    """Record why a pool is about to be killed, and which attempt caused it."""
    return Op(load("set_cause"), (keys.state(pool_id), keys.held(pool_id)), (token, why), int)


def wait_bell(bells: Sequence[str], seconds: float) -> Op[str | None]:
    """Wait until one of the bells rings and clear it. Returns its key, or None after `seconds`."""
    return Op("BZPOPMIN", bells, (f"{seconds:.3f}",), lambda reply: reply[0].decode() if reply else None)


@dataclass(frozen=True, slots=True)
class LimitTable:
    """The content of the hash `limits`."""

    in_force: dict[str, int]
    #: Names whose limit an operator set, and names whose limit an operator removed.
    by_operator: set[str]
    lifted: set[str]
    #: Name to the mark of the count in progress for its new limit.
    counting: dict[str, str]


def get_limits(keys: Keys) -> Op[tuple[dict[str, int], set[str]]]:
    """The limits in force, and the names whose limit an operator set."""
    return Op("HGETALL", (keys.limits,), (), lambda reply: _read_limits(reply)[:2])


def limit_table(keys: Keys) -> Op[LimitTable]:
    """The limits in force, who set them, and those that are being changed."""
    return Op("HGETALL", (keys.limits,), (), lambda reply: LimitTable(*_read_limits(reply)))


def _read_limits(reply: Any) -> tuple[dict[str, int], set[str], set[str], dict[str, str]]:
    words = [raw.decode("utf-8", "replace") for raw in reply]
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    # A rule of rate limits may stand behind the number. No job name has a colon, the definitions of limits have one.
    numbers = {name: value.partition(" ")[0] for name, value in pairs.items() if not {"|", ":"} & {*name}}
    limits = {name: int(number) for name, number in numbers.items() if number.isdecimal()}
    by = {name.removesuffix("|by"): value for name, value in pairs.items() if name.endswith("|by")}
    lifted = {name for name, value in by.items() if value == "lifted" and name not in limits}
    end = "|counting"
    counting = {name.removesuffix(end): mark for name, mark in pairs.items() if name.endswith(end)}
    return limits, {name for name in limits if by.get(name) == "operator"}, lifted, counting


def lift_limit(keys: Keys, name: str, *, by: str, actor: str = "") -> Op[bool]:
    """Remove the limit of a job name."""
    return Op(load("change_limit"), _limit_keys(keys, name), (name, "lift", "", by, "", actor), bool)


def begin_limit(keys: Keys, name: str, mark: str) -> Op[str]:
    """Count every attempt fetched from now on. Returns the mark of the count: `mark`, or that of a count in progress."""
    return Op(
        load("change_limit"), _limit_keys(keys, name), (name, "begin", mark), lambda reply: reply.decode()
    )


def finish_limit(keys: Keys, name: str, limit: int, *, by: str, mark: str, actor: str = "") -> Op[bool]:
    """Enforce a limit. False if attempts fetched since this count began may not have been counted."""
    return Op(load("change_limit"), _limit_keys(keys, name), (name, "finish", mark, by, limit, actor), bool)


def abandon_limit(keys: Keys, name: str, mark: str) -> Op[bool]:
    """Remove the mark of a count whose caller is gone. False if that count is no longer in progress."""
    return Op(load("change_limit"), _limit_keys(keys, name), (name, "abandon", mark), bool)


def _limit_keys(keys: Keys, name: str) -> tuple[str, ...]:
    return keys.limits, keys.held_of(name), keys.bell(name), keys.events("limit")


def pool_ids(keys: Keys) -> Op[list[str]]:
    """The ids of all registered pools."""
    return Op("ZRANGE", (keys.pools,), (0, -1), texts)


def condemned_ids(keys: Keys) -> Op[list[str]]:
    """The ids of all condemned pools that are not swept yet."""
    return Op("ZRANGE", (keys.condemned,), (0, -1), texts)
