"""Encodes and decodes the job JSON. No other module knows its format.

Arguments and unknown fields keep their original bytes through every retry and requeue.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from dayjob.job import Job

#: Errors and tracebacks are cut at this many bytes.
MAX_ERROR = 8192
#: How many failed attempts a payload records, and how many characters of each error.
MAX_PAST = 10
MAX_LINE = 200
#: Longest text of who enqueued a job, in characters.
MAX_ORIGIN = 401
#: How deep batches may be nested.
MAX_BATCHES = 8
#: Longest time for which a job may ask to have its result kept, in seconds.
MAX_REPLY_SECONDS = 7 * 86_400.0

#: The value of a field that a payload does not have.
NULL = msgspec.Raw(b"null")


#: A time in seconds or milliseconds since the epoch. Values beyond this range are refused.
Moment = (
    Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)] | Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
)
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class Wire(msgspec.Struct, gc=False):
    """The decoded job JSON. Every field except the name may be missing."""

    name: str
    id: str = ""
    t: Moment = 0
    args: msgspec.Raw = NULL
    unique: bool = False
    unique_key: str = ""
    fails: _Count = 0
    err: str = ""
    failed_at: Moment = 0
    # Fields that only dayjob writes.
    at: Moment = 0
    source: str | int | None = None
    deaths: _Count = 0
    snoozes: _Count = 0
    unique_until: str = ""
    expires: Moment = 0
    attempt: str = ""
    trace: str = ""
    past: msgspec.Raw = NULL
    enqueued_at: Moment = 0
    periodic: str = ""
    tick: Moment = 0
    headers: msgspec.Raw = NULL
    #: The job inside which it was enqueued, `<name>/<id>`; or else the machine and process that did.
    parent: msgspec.Raw = NULL
    producer: msgspec.Raw = NULL
    #: The batch that it is a member of and its number there, then the same for each batch above.
    membership: msgspec.Raw = NULL
    #: Arguments of a node of a workflow that are results of other nodes: how many nodes before it, then the path in `args`.
    takes: msgspec.Raw = NULL
    #: Seconds to keep its result, because the caller that enqueued it waits for that.
    reply: msgspec.Raw = NULL


class Fault(msgspec.Struct, array_like=True, frozen=True):
    """A failed attempt, as the payload records it: its number, when it failed, how long it ran, first line of its error.

    Also an attempt whose process crashed. How long that one ran is not known, so `ran` is 0.
    """

    attempt: _Count
    at: Moment
    ran: Moment
    error: str
    #: Id of the pool whose process crashed; "" for an attempt that failed.
    died_in: str = ""


class Broken(Exception):
    """The bytes are not a job. The message gives the reason."""


_read = msgspec.json.Decoder(Wire).decode
_read_past = msgspec.json.Decoder(list[Fault]).decode
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_write = msgspec.json.Encoder().encode
#: `text` as JSON.
quoted: Callable[[str], bytes] = _write
#: A new payload without its name, to be filled with `%`: quoted id, seconds, arguments, more fields, milliseconds.
_BODY = b',"id":%b,"t":%d,"args":%b%b,"at":%d}'
#: What decoding untrusted bytes can raise: bad JSON, bad types, bad UTF-8, deep nesting.
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
#: Suffixes of other keys that start like a queue, of dayjob and gocraft. A job with such a name would write to them.
_NO_QUEUE = (":paused", ":inprogress", ":lock", ":lock_info", ":max_concurrency")
#: How the arguments start in the payload, and at which index in a payload that dayjob wrote, without the name's length.
_OBJECT = b'"args":{'
_ARGS_AT = len('{"name":"","id":"0123456789abcdef01234567","t":1000000000,')


def read(payload: bytes, name: str | None = None) -> Wire:
    """Decode `payload`. Raises Broken if it is not a job, or has another name than `name`."""
    try:
        if not payload.isascii():
            # The decoder does not check the UTF-8 of fields that it skips, and a later rewrite would fail on them.
            payload.decode()
        wire = _read(payload)
    except UNREADABLE as error:
        raise Broken(f"not a job: {error}") from None
    if name is None:
        if not wire.name or wire.name.endswith(_NO_QUEUE):
            raise Broken(
                f"a job cannot be named {wire.name!r}: its queue would be another key of dayjob or gocraft"
            )
    elif wire.name != name:
        raise Broken(f"a job named {wire.name!r} in the queue of {name!r}")
    # A payload that dayjob wrote has the arguments at a fixed index; others need the slower check.
    if not payload.startswith(_OBJECT, len(wire.name) + _ARGS_AT) and bytes(wire.args)[:1] not in (
        b"{",
        b"n",
    ):
        raise Broken("its args are not an object")
    return wire


def enqueued_at(wire: Wire) -> float:
    """When a job was enqueued or became due, in seconds; 0 if the payload has no such time.

    `at` is `t` in milliseconds. Other programs that requeue a job update `t` only, so the later of the two counts.
    """
    return wire.at / 1000 if wire.at >= wire.t * 1000 else float(wire.t)


def first_enqueued(wire: Wire, *, settled: bool = False) -> float:
    """When a job was enqueued for the first time, in seconds; 0 if that is not known.

    `t` is that time until the job is requeued for its second attempt. `settled` means that an attempt stored the payload
    in its current set and it has not been requeued since; then `at` is when that attempt ended.
    """
    if wire.enqueued_at:
        return wire.enqueued_at / 1000
    made = wire.fails + wire.snoozes
    if made > settled or (not made and wire.past is not NULL):
        return 0.0
    return float(wire.t) if settled and made else enqueued_at(wire)


def first_enqueued_field(wire: Wire, *, settled: bool = False) -> dict[str, int]:
    """The field that keeps the time of the first enqueue when `t` changes; empty if that time is not known."""
    found = first_enqueued(wire, settled=settled)
    return {"enqueued_at": int(found * 1000)} if found else {}


def requeued(payload: bytes, wire: Wire, at: float) -> bytes:
    """The payload to put into the queue for a scheduled or retried job that was due at `at`. Raises Broken."""
    first = first_enqueued_field(wire, settled=True)
    return rewrite(payload, {"t": int(at), "at": int(at * 1000), **first})


def origin_text(raw: msgspec.Raw) -> str:
    """The text of `parent` or `producer`; "" if there is none, or another program means something else by it."""
    if raw is NULL:
        return ""
    try:
        found = msgspec.json.decode(raw)
    except UNREADABLE:
        return ""
    return found[:MAX_ORIGIN] if isinstance(found, str) else ""


def reply_seconds(wire: Wire) -> float | None:
    """For how long the caller that enqueued the job wants its result kept; None if it does not wait for one."""
    if wire.reply is NULL:
        return None
    try:
        found = msgspec.json.decode(wire.reply)
    except UNREADABLE:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return min(float(found), MAX_REPLY_SECONDS) if is_number and found > 0 else None


#: The ids of a member's batches, the nearest first, and its numbers in them; -1 for a callback of a batch. Or the id of a
#: workflow, which begins with `w`, and the number of a node.
BatchMembership = tuple[tuple[str, ...], tuple[int, ...]]
#: The first letter of the ids of workflows. Those of batches are hex digits.
WORKFLOW = "w"
_MEMBERSHIP = re.compile(rb'"membership":(\[[^\]]*\])')


#: The members of batches that are in others, as scripts write them: the id of the batch, the number there, and what is above.
_NESTED_MEMBER = re.compile(
    rb'\["([0-9a-f]+)",([0-9]{1,10})((?:,"[0-9a-f]+",[0-9]{1,10}){1,%d})\]' % (MAX_BATCHES - 1)
)


#: The beginnings of `membership` that were met lately, to the ids of the batches in them.
_batches_met: dict[bytes, bytes] = {}
_MAX_MET = 1000


class PlainMember(msgspec.Struct, frozen=True, gc=False):
    """A member of a batch: the id of the batch, and its number there."""

    batch: bytes
    number: int
    #: The batches above and the numbers in them, as JSON without brackets; b"" if there is none.
    above: bytes = b""


def plain_member(wire: Wire) -> PlainMember | None:
    """What a job is a member of; None for a callback of a batch, a node, and what scripts do not write."""
    head, _, tail = bytes(wire.membership).partition(b'",')
    number = tail[:-1]
    if number.isdigit():
        batch = _batches_met.get(head) or _batch_in(head)
        return PlainMember(batch, int(number)) if batch else None
    found = _NESTED_MEMBER.fullmatch(wire.membership)
    return None if found is None else PlainMember(found[1], int(found[2]), found[3])


def _batch_in(head: bytes) -> bytes:
    """The id of the batch in the beginning of a `membership`; b"" for a node of a workflow, and what is no id."""
    batch = head[2:]
    if head[:2] != b'["' or not batch.isalnum() or batch.startswith(WORKFLOW.encode()):
        return b""
    if len(_batches_met) >= _MAX_MET:
        _batches_met.clear()
    _batches_met[head] = batch
    return batch


def membership(wire: Wire) -> BatchMembership | None:
    """The batches of a job; None if it has none, or another program means something else by the field."""
    return None if wire.membership is NULL else _read_membership(bytes(wire.membership))


def node_of(wire: Wire) -> tuple[str, int] | None:
    """The id of the workflow of a job and its number there; None if it is in none."""
    found = membership(wire)
    return (found[0][0], found[1][0]) if found is not None and found[0][0].startswith(WORKFLOW) else None


def membership_in(payload: bytes) -> BatchMembership | None:
    """The batches of a job that cannot be read otherwise."""
    found = _MEMBERSHIP.findall(payload)
    return _read_membership(found[-1]) if found else None


def _read_membership(raw: bytes) -> BatchMembership | None:
    try:
        values = msgspec.json.decode(raw)
    except UNREADABLE:
        return None
    if not isinstance(values, list) or len(values) % 2 or not 2 <= len(values) <= 2 * MAX_BATCHES:
        return None
    ids, numbers = tuple(values[::2]), tuple(values[1::2])
    fits = all(isinstance(one, str) and one.isalnum() for one in ids) and all(
        isinstance(one, int) and -1 <= one < 1 << 31 for one in numbers
    )
    return (ids, numbers) if fits else None


def job_of(wire: Wire) -> Job:
    """The Job to pass to a handler."""
    job = Job.__new__(Job)
    job.name = wire.name
    job.id = wire.id
    job.source = wire.source
    job.enqueued_at = enqueued_at(wire)
    job.scheduled_at = None
    job.expires_at = wire.expires / 1000 if wire.expires else None
    job.schedule = wire.periodic or None
    job.tick = float(wire.tick) if wire.periodic else None
    job.unique_key = wire.unique_key or None
    job.fails = wire.fails
    job._counted = 0
    job.deaths = wire.deaths
    job.snoozes = wire.snoozes
    job.error = wire.err
    job.raw_args = wire.args
    job._headers = wire.headers
    job.max_fails = None
    job.redact = ()
    job._args = None
    job.line = None
    job.last_checkin = None
    job.spent = None
    job.existed = False
    job.membership = membership(wire)
    return job


def past(wire: Wire) -> list[Fault]:
    """The failed attempts that the payload records, oldest first."""
    try:
        return [] if wire.past is NULL else _read_past(wire.past)
    except UNREADABLE:
        return []


def remember(
    wire: Wire, *, attempt: int, at: float, ran: float, error: str, died_in: str = ""
) -> list[Fault]:
    """The failed attempts that the payload records, and one more."""
    line = error.strip().partition("\n")[0][:MAX_LINE]
    return [*past(wire)[1 - MAX_PAST :], Fault(attempt, int(at * 1000) / 1000, round(ran, 3), line, died_in)]


def json_value(raw: msgspec.Raw | bytes) -> Any:
    """Decode JSON. Raises one of UNREADABLE."""
    return msgspec.json.decode(raw)


@lru_cache(maxsize=4096)
def template(name: str) -> bytes:
    """A new payload of this name, to be filled with `%`: quoted id, seconds, arguments, `more_fields`, milliseconds."""
    return b'{"name":%b%b' % (quoted(name).replace(b"%", b"%%"), _BODY)


def more_fields(fields: dict[str, Any]) -> bytes:
    """Fields that only some payloads have, as they follow the arguments."""
    return b",%b" % _write(fields)[1:-1] if fields else b""


def write(name: bytes, job_id: str, at: float, args: bytes, extras: dict[str, Any] | None = None) -> bytes:
    """A new payload. `name` is already a JSON string (callers cache it), `at` in seconds, `args` JSON, `extras` more fields."""
    milliseconds = int(at * 1000)
    body = _BODY % (quoted(job_id), milliseconds // 1000, args, more_fields(extras or {}), milliseconds)
    return b'{"name":%b%b' % (name, body)


def rewrite(payload: bytes, changes: dict[str, Any]) -> bytes:
    """`payload` with changed fields; None removes a field. All other fields keep their bytes. Raises Broken."""
    try:
        fields: dict[str, Any] = dict(_read_fields(payload))
    except UNREADABLE as error:
        raise Broken(f"its fields cannot be read: {error}") from None
    for key, value in changes.items():
        if value is None:
            fields.pop(key, None)
        else:
            fields[key] = value
    return _write(fields)


def cut(text: str) -> str:
    """`text` without lone surrogates and with its middle cut out if it is too long to store."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_ERROR:
        half = MAX_ERROR // 2 - 16
        data = data[:half] + b"\n ... cut ...\n" + data[-half:]
    return data.decode("utf-8", "ignore")


def broken_entry(payload: bytes, *, at: float, where: str, why: str) -> bytes:
    """The entry for `broken` of bytes that are not a job: a header line, then the original bytes."""
    return _write({"at": int(at * 1000), "where": where, "why": cut(why)[:500]}) + b"\n" + payload


def go_json(value: Any) -> str:
    """JSON exactly as Go's encoder writes it, because unique keys must be the same as those of Go enqueuers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _go_float(value)
    if isinstance(value, str):
        return _go_string(value)
    if isinstance(value, dict):
        # Go sorts keys by their UTF-8 bytes, which is the order of code points.
        return "{" + ",".join(f"{_go_string(k)}:{go_json(v)}" for k, v in sorted(value.items())) + "}"
    return "[" + ",".join(map(go_json, value)) + "]"


def unique_rest(args: msgspec.Raw) -> str | None:
    """The end of the unique key of a job with these arguments; None if they cannot be decoded.

    For jobs of gocraft's last release, whose enqueuer did not store the key in the payload.
    """
    try:
        value = json_value(args)
        return "" if value is None else go_json(value) + "\n"
    except (*UNREADABLE, TypeError):
        return None


def _go_float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not JSON")
    size = abs(value)
    text = repr(value)
    if size != 0 and (size < 1e-6 or size >= 1e21):
        mantissa, _, exponent = text.partition("e")
        return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"
    # repr gives the shortest digits that parse to this number; Decimal formats them without an exponent.
    return format(Decimal(text), "f").removesuffix(".0")


_GO_ESCAPES = str.maketrans(
    {
        **{chr(code): f"\\u{code:04x}" for code in [*range(32), 0x2028, 0x2029, *b"<>&"]},
        '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f",
    }
)  # fmt: skip


def _go_string(text: str) -> str:
    return f'"{text.translate(_GO_ESCAPES)}"'
