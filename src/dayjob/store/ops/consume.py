"""The exchange: settles finished attempts of a pool and fetches new jobs for it, in one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, assert_never

import msgspec

from dayjob.outcome import (
    Cancelled,
    Died,
    Done,
    Dropped,
    Emit,
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
    Stage,
    StartRequest,
    Unreadable,
)
from dayjob.store.keys import Keys
from dayjob.store.op import Arg, Op, texts
from dayjob.store.ops.batches import Member
from dayjob.store.ops.children import Children, stage_args
from dayjob.store.ops.history import AttemptLines, Records
from dayjob.store.ops.member_groups import MemberGroup, group_args
from dayjob.store.ops.rates import RateRule, Spent, state_key
from dayjob.store.ops.streams import RUNNING_MS, StreamPart
from dayjob.store.scripts import load

#: Limits of one exchange, because a script blocks the server while it runs.
MAX_FETCHED = 500
MAX_SETTLED = 500
MAX_BYTES = 1 << 20
#: Milliseconds for which the error of a dead job is kept under its result key. The exchange script has the same number.
KEEP_ERROR_MS = 86_400_000

ExchangeStatus = Literal["ok", "rewound", "again", "late", "refused"]


def token_of(number: int, name: str) -> str:
    """The token of an attempt. The exchange script builds the same text."""
    return f"{number}:{name}"


def name_in(token: str) -> str:
    """The job name in a token."""
    return token.partition(":")[2].partition("|")[0]


def key_in(token: str) -> str | None:
    """The key in a token; None for a job of a name without keys."""
    _, bar, key = token.partition("|")
    return key if bar else None


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
    #: What an atomic job enqueued, which is stored if this outcome is applied.
    children: Children | None = None
    #: Seconds that it took more, or less, than estimated, if the keys of its name share time.
    worked: float | None = None
    #: What the outcome makes of a member of a batch.
    member: Member | None = None
    #: What the attempt emitted, and behind an outcome its end.
    stream: StreamPart | None = None


def error_result(message: str) -> bytes:
    """What a caller that waits for the result of a dead job gets."""
    return msgspec.json.encode({"error": message})


def ended_result(outcome: Died | Dropped | Cancelled, *, kept: bool, awaited: bool) -> bytes:
    """What a caller that waits for the result of a job gets when the job ends without one; b"" if nothing is stored.

    `kept` means that its job type keeps results, `awaited` that the caller that enqueued it waits.
    """
    if isinstance(outcome, Died):
        return error_result(outcome.why) if kept or awaited else b""
    if not awaited:
        return b""
    why = outcome.why if isinstance(outcome, Dropped) else "an operator cancelled it"
    return error_result(f"the job ended without a result: {why or 'discarded'}")


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
            return "dropped", int(counts), _result_key(keys, entry), entry.result
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
            return "cancelled", 0, _result_key(keys, entry), entry.result
        case Rewound():
            return "rewound", 0, "", b""
        case Reaped():
            return "reaped", 0, "", b""
        case Unreadable():
            return "unreadable", 0, "", b""
        case Stage():
            return "stage", 0, "", b""
        case Emit():
            return "emit", 0, "", b""
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
    #: The same of members of batches.
    members: Sequence[MemberGroup] = ()
    #: Metrics to add to a minute since the epoch: field to increment.
    minute: int = 0
    figures: Mapping[str, int] = field(default_factory=dict)
    #: What the history keeps of completed attempts.
    records: Sequence[Records] = ()
    #: The rules of those names that have rate limits, and the kind of each limit that the request refers to.
    rules: Mapping[str, RateRule] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    #: The keys of those names that have keys.
    keyed: Mapping[str, KeyedName] = field(default_factory=dict)


class KeyedName(NamedTuple):
    """The keys of one job name that take part in an exchange."""

    #: The keys to fetch from, the next first; and those of attempts that the request settles.
    heads: Sequence[str]
    settled: Sequence[str] = ()
    #: What a job counts for its key: 1, or its estimated seconds if keys share time.
    price: float = 1.0
    #: Whether attempts are counted by key. If this is False and Redis counts them, plain completions of the name are not
    #: settled, and nothing of it is fetched. It must be True if there are entries of the name.
    counted: bool = True
    #: How many of the next keys the answer has.
    following: int = 64


class FetchedJobs(NamedTuple):
    """Jobs of one name, oldest first, each under a token of its own."""

    name: str
    tokens: list[str]
    payloads: list[bytes]


@dataclass(slots=True)
class Reply:
    """The answer to an exchange."""

    status: ExchangeStatus
    now: float
    held: int
    late: int
    live: list[str]
    #: Token to the payload to run, or None when the attempt is gone; for `Release`.
    released: dict[str, bytes | None]
    stuck: list[str]
    wrong: list[str]
    #: In the order of the token numbers.
    batches: list[FetchedJobs]
    #: Tokens that were not settled because their job was cancelled; True if the job goes to dead.
    cancelled: dict[str, bool] = field(default_factory=dict)
    #: Names whose rate limits differ from those in the request, so that nothing was fetched of them.
    unknown: list[str] = field(default_factory=list)
    #: Rate limit to the mark of what was charged.
    marks: dict[str, str] = field(default_factory=dict)
    #: Names with keys: the keys to fetch from next. And those whose queue has jobs to sort.
    next_keys: dict[str, list[str]] = field(default_factory=dict)
    #: Names with keys whose attempts are counted by key.
    counted: set[str] = field(default_factory=set)
    unsorted: list[str] = field(default_factory=list)


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
    for name, keyed in request.keyed.items():
        key_list += (keys.turns(name), keys.blocked(name), keys.debts(name), keys.key_settings(name))
        both = (*keyed.heads, *keyed.settled)
        partition, held_of = keys.partition(name, ""), keys.held_of(f"{name}|")
        key_list += [partition + key for key in both]
        if keyed.counted:
            key_list += [held_of + key for key in both]
    settled, count = _settle_args(keys, request, index, key_list)
    for group in request.members:
        settled += group_args(keys, group, index, key_list)
    for records in request.records:
        settled += _record_args(keys, records, "", key_list)
    count += len(request.members) + len(request.records)
    args: list[Arg] = [
        request.pool_id, request.number, request.first_token, request.room, request.extra, int(lease * 1000),
        f"{u:.17f}", MAX_BYTES, len(names), count, len(request.done), len(request.limits), len(request.rules),
        len(request.keyed),
    ]  # fmt: skip
    for want in request.wants:
        args += (want.name, want.weight, 2 if want.fast and want.fetch else int(want.fetch))
    for limit, kind in request.limits.items():
        args += (limit, kind)
    for name, rule in request.rules.items():
        args += (index[name], rule.text)
    for name, keyed in request.keyed.items():
        both = (*keyed.heads, *keyed.settled)
        args += (
            index[name], f"{keyed.price:.6g}", int(keyed.counted), keyed.following, len(keyed.heads), len(both), *both
        )  # fmt: skip
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

    The release of a unique key, a correction of charges, what the attempt emitted and the jobs of an atomic job are entries of
    their own, ahead of the outcome that ends the attempt.
    """
    args: list[Arg] = []
    count = 0
    limits = {limit: i for i, limit in enumerate(request.limits, 1)} if request.limits else {}
    for entry in request.entries:
        name, token = index[entry.name], entry.token
        if entry.spent is not None:
            args += _spent_args(entry.spent, entry.outcome, limits, name, token)
            count += 1
            if isinstance(entry.outcome, Recharge):
                continue
        if entry.releases:
            key_list.append(entry.releases)
            args += ("release", name, token, b"", 0, len(key_list), entry.job_id)
            count += 1
        if entry.stream is not None:
            if entry.stream.values:
                args += _emit_args(keys, entry.stream, request.pool_id, token, key_list)
                count += 1
            if isinstance(entry.outcome, Emit):
                continue
        if entry.children is not None:
            if isinstance(entry.outcome, Stage):
                args += stage_args(keys, request.pool_id, token, entry.outcome, key_list)
                count += 1
                continue
            for some in entry.children.args(keys, request.pool_id, token, index, key_list):
                args += some
                count += 1
        kind, number, key, value = encode(keys, entry)
        if isinstance(entry.outcome, HeldBack):
            value = " ".join(_held_limits(limits, entry.outcome, token))
        if key:
            key_list.append(key)
        args += (kind, name, token, entry.payload, number, len(key_list) if key else 0, value)
        count += 1
        if entry.member is not None:
            args += _member_args(keys, entry.member, token, key_list)
            count += 1
        if entry.worked is not None:
            args += ("worked", name, token, f"{entry.worked:.6f}", 0, 0, "")
            count += 1
        if entry.records is not None or entry.logs is not None or entry.stream is not None:
            for kept in _kept_args(keys, entry, token, key_list):
                args += kept
                count += 1
    return args, count


def _spent_args(
    spent: Spent, outcome: Outcome | StartRequest, limits: Mapping[str, int], name: int, token: str
) -> tuple[Arg, ...]:
    """The arguments of the entry for a correction of charges, or for charges that Redis lost."""
    marks = " ".join(f"{limits[one]}:{mark}" for one, mark in spent.marks.items() if one in limits)
    kind = "recharge" if isinstance(outcome, Recharge) else "spent"
    return kind, name, token, "undone" if spent.undone else "", f"{spent.units:.6f}", 0, marks


def _kept_args(keys: Keys, entry: Entry, token: str, key_list: list[Arg]) -> Iterator[tuple[Arg, ...]]:
    """The arguments of the entries for the record of an attempt, for its log lines and for the end of its stream."""
    if entry.records is not None:
        yield _record_args(keys, entry.records, token, key_list)
    if entry.logs is not None:
        yield _log_args(keys, entry.logs, token, key_list)
    if entry.stream is not None:
        yield _stream_end_args(keys, entry.stream, entry.outcome, token, key_list)


def _emit_args(
    keys: Keys, part: StreamPart, pool_id: str, token: str, key_list: list[Arg]
) -> tuple[Arg, ...]:
    """The arguments of the entry for emitted values. Appends their key to `key_list`."""
    key_list.append(keys.stream(part.job_id))
    fields = part.fields(f"{pool_id}/{token}")
    return "emit", 0, token, RUNNING_MS, len(fields), len(key_list), int(part.begins), *fields


def _stream_end_args(
    keys: Keys, part: StreamPart, outcome: Outcome | StartRequest, token: str, key_list: list[Arg]
) -> tuple[Arg, ...]:
    """The arguments of the entry for the end of a stream. Appends its key to `key_list`."""
    key_list.append(keys.stream(part.job_id))
    fields = part.end_fields(outcome)
    return "stream_end", 0, token, part.life(outcome), len(fields), len(key_list), "", *fields


def _held_limits(limits: Mapping[str, int], outcome: HeldBack, token: str) -> list[str]:
    """The indexes of the limits that an attempt holds: of those that count by key, for its key only."""
    key = key_in(token)
    names = (one if key is None or f"{one}|{key}" not in limits else f"{one}|{key}" for one in outcome.limits)
    return [str(limits[one]) for one in names if one in limits]


def _member_args(keys: Keys, member: Member, token: str, key_list: list[Arg]) -> tuple[Arg, ...]:
    """The arguments of the entry for a member of a batch or a node of a workflow. Appends their keys to `key_list`."""
    first = member.add_keys(keys, key_list)
    if member.is_node:
        value = f"{member.fate} {member.numbers[0]}"
        return "node", 0, token, member.result, len(member.added), first, value, *member.added
    return "member", 0, token, member.fate, 0, first, member.text


def _log_args(keys: Keys, logs: AttemptLines, token: str, key_list: list[Arg]) -> tuple[Arg, ...]:
    """The arguments of one entry of log lines. Appends their key to `key_list`."""
    key_list.append(keys.logs(logs.job_id))
    return "logs", 0, token, logs.text, logs.milliseconds, len(key_list), logs.attempt


def _record_args(keys: Keys, records: Records, token: str, key_list: list[Arg]) -> tuple[Arg, ...]:
    """The arguments of one entry of records. Appends their key to `key_list`."""
    key_list.append(records.key(keys))
    return "records", 0, token, records.lines, records.caps.count, len(key_list), records.caps.milliseconds


def _read_exchange(reply: Any, names: list[str], first: int, limits: list[str]) -> Reply:
    status: ExchangeStatus = reply[0].decode()
    releases = reply[5]
    batches: list[FetchedJobs] = []
    if status == "again":
        pairs = sorted(
            zip(reply[8][::2], reply[8][1::2], strict=True), key=lambda pair: int(pair[0].partition(b":")[0])
        )
        for raw, payload in pairs:
            token = raw.decode()
            batches.append(FetchedJobs(name_in(token), [token], [payload]))
    else:
        number = first
        for group in reply[8]:
            if group[0] < 0:
                tokens = _tokens_by_key(names[-group[0] - 1], number, group[1])
                batches.append(FetchedJobs(names[-group[0] - 1], tokens, group[2:]))
                number += len(tokens)
                continue
            name = names[group[0] - 1]
            after = number + len(group) - 1
            batches.append(FetchedJobs(name, [f"{n}:{name}" for n in range(number, after)], group[1:]))
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
        next_keys={names[reply[12][i] - 1]: texts(reply[12][i + 1]) for i in range(0, len(reply[12]), 3)},
        counted={names[reply[12][i] - 1] for i in range(0, len(reply[12]), 3) if reply[12][i + 2]},
        unsorted=[names[i - 1] for i in reply[13]],
    )


def _tokens_by_key(name: str, number: int, counts: Sequence[Any]) -> list[str]:
    """The tokens of jobs with keys, from a number on; `counts` has each key and how many of its jobs follow."""
    tokens: list[str] = []
    for key, count in zip(counts[::2], counts[1::2], strict=True):
        label = f":{name}|{key.decode()}"
        tokens += [f"{n}{label}" for n in range(number, number + count)]
        number += count
    return tokens


def wait_bell(bells: Sequence[str], seconds: float) -> Op[str | None]:
    """Wait until one of the bells rings and clear it. Returns its key, or None after `seconds`."""
    return Op("BZPOPMIN", bells, (f"{seconds:.3f}",), lambda reply: reply[0].decode() if reply else None)
