"""Job to bytes and back: the only place that knows the job JSON.

Arguments stay the bytes they came as, through every retry and requeue; so do fields that we do not know.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from dayjob.job import Job

#: Errors and tracebacks are cut at this many bytes.
MAX_ERROR = 8192
#: Failed attempts that a payload remembers, and characters of the error of each.
MAX_PAST = 10
MAX_LINE = 200

_NULL = msgspec.Raw(b"null")


#: A moment in seconds or milliseconds; beyond this it is no moment.
Moment = (
    Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)] | Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
)
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class Wire(msgspec.Struct, gc=False):
    """The job JSON as it is read; every field but the name may be missing."""

    name: str
    id: str = ""
    t: Moment = 0
    args: msgspec.Raw = _NULL
    unique: bool = False
    unique_key: str = ""
    fails: Count = 0
    err: str = ""
    failed_at: Moment = 0
    # Fields that only dayjob writes.
    at: Moment = 0
    source: str | int | None = None
    deaths: Count = 0
    snoozes: Count = 0
    unique_until: str = ""
    expires: Moment = 0
    attempt: str = ""
    trace: str = ""
    past: msgspec.Raw = _NULL
    enqueued_at: Moment = 0


class Fault(msgspec.Struct, array_like=True, frozen=True):
    """One failed attempt as the payload remembers it: its number, when it failed, how long it ran, its error's first line.

    Or one whose process died. How long that one ran is not known, which is 0.
    """

    attempt: Count
    at: Moment
    ran: Moment
    error: str
    #: Id of the pool whose process died; "" for an attempt that failed.
    died_in: str = ""


class Broken(Exception):
    """Bytes that are not a job; the message says why."""


_read = msgspec.json.Decoder(Wire).decode
_read_past = msgspec.json.Decoder(list[Fault]).decode
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_write = msgspec.json.Encoder().encode
#: What decoding of hostile bytes can raise: bad JSON, bad types, bad UTF-8, endless nesting.
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
#: What keys beside a queue end with, ours and gocraft's: a payload must not make one of them.
_NO_QUEUE = (":paused", ":inprogress", ":lock", ":lock_info", ":max_concurrency")
#: How arguments begin, and where in a payload of our own, the length of its name left out.
_OBJECT = b'"args":{'
_ARGS_AT = len('{"name":"","id":"0123456789abcdef01234567","t":1000000000,')


def read(payload: bytes, name: str | None = None) -> Wire:
    """The job in `payload`. Raises Broken when it is not one, or not one of `name`."""
    try:
        if not payload.isascii():
            # The decoder passes over strings it does not need; a later rewrite would stumble over them.
            payload.decode()
        wire = _read(payload)
    except UNREADABLE as error:
        raise Broken(f"not a job: {error}") from None
    if name is None:
        if not wire.name or wire.name.endswith(_NO_QUEUE):
            raise Broken(f"a job cannot be named {wire.name!r}: its queue would be something else's key")
    elif wire.name != name:
        raise Broken(f"a job named {wire.name!r} in the queue of {name!r}")
    # Our own payloads say so at the same place each time; others are looked at closely.
    if not payload.startswith(_OBJECT, len(wire.name) + _ARGS_AT) and bytes(wire.args)[:1] not in (
        b"{",
        b"n",
    ):
        raise Broken("its args are not an object")
    return wire


def enqueued_at(wire: Wire) -> float:
    """When a job was enqueued or became due, in seconds; 0 when it does not say.

    `at` is `t` to the millisecond. Other programs that requeue a job renew `t` alone, so the later of the two counts.
    """
    return wire.at / 1000 if wire.at >= wire.t * 1000 else float(wire.t)


def first_enqueued(wire: Wire, *, settled: bool = False) -> float:
    """When a job was enqueued for the first time, in seconds; 0 when that is not known.

    `t` is that moment until the job is requeued for its second attempt. `settled`: an attempt has put the payload where it
    is, and it has not been requeued since. In that case `at` is when the attempt ended.
    """
    if wire.enqueued_at:
        return wire.enqueued_at / 1000
    made = wire.fails + wire.snoozes
    if made > settled or (not made and wire.past is not _NULL):
        return 0.0
    return float(wire.t) if settled and made else enqueued_at(wire)


def first_enqueued_field(wire: Wire, *, settled: bool = False) -> dict[str, int]:
    """The field that keeps the moment of the first enqueue while `t` changes; none where it is not known."""
    found = first_enqueued(wire, settled=settled)
    return {"enqueued_at": int(found * 1000)} if found else {}


def requeued(payload: bytes, wire: Wire, at: float) -> bytes:
    """`payload` of a side set as it goes to its queue, due at `at`. Raises Broken."""
    first = first_enqueued_field(wire, settled=True)
    return rewrite(payload, {"t": int(at), "at": int(at * 1000), **first})


def job_of(wire: Wire) -> Job:
    """The Job a handler is given."""
    job = Job.__new__(Job)
    job.name = wire.name
    job.id = wire.id
    job.source = wire.source
    job.enqueued_at = enqueued_at(wire)
    job.scheduled_at = None
    job.expires_at = wire.expires / 1000 if wire.expires else None
    job.unique_key = wire.unique_key or None
    job.fails = wire.fails
    job.deaths = wire.deaths
    job.snoozes = wire.snoozes
    job.error = wire.err
    job.raw_args = wire.args
    job.redact = ()
    job._args = None
    job.line = None
    job.last_checkin = None
    job.existed = False
    return job


def past(wire: Wire) -> list[Fault]:
    """The failed attempts that the payload remembers, oldest first."""
    try:
        return [] if wire.past is _NULL else _read_past(wire.past)
    except UNREADABLE:
        return []


def remember(
    wire: Wire, *, attempt: int, at: float, ran: float, error: str, died_in: str = ""
) -> list[Fault]:
    """Those, and one more."""
    line = error.strip().partition("\n")[0][:MAX_LINE]
    return [*past(wire)[1 - MAX_PAST :], Fault(attempt, int(at * 1000) / 1000, round(ran, 3), line, died_in)]


def json_value(raw: msgspec.Raw | bytes) -> Any:
    """The value that JSON bytes stand for. Raises one of UNREADABLE."""
    return msgspec.json.decode(raw)


def quoted(text: str) -> bytes:
    """`text` as JSON."""
    return _write(text)


def write(name: bytes, job_id: str, at: float, args: bytes, extras: dict[str, Any] | None = None) -> bytes:
    """A new payload. `name` is quoted already (it is cached), `at` in seconds, `args` JSON, `extras` further fields."""
    milliseconds = int(at * 1000)
    head = b'{"name":%b,"id":%b,"t":%d,"args":%b' % (name, _write(job_id), milliseconds // 1000, args)
    if extras:
        rest = _write(extras)
        return b'%b,%b,"at":%d}' % (head, rest[1:-1], milliseconds)
    return b'%b,"at":%d}' % (head, milliseconds)


def rewrite(payload: bytes, changes: dict[str, Any]) -> bytes:
    """`payload` with fields changed, and dropped where the new value is None; all others byte for byte. Raises Broken."""
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
    """`text` as it may be stored: no lone surrogates, and of a bounded length with its end kept."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_ERROR:
        half = MAX_ERROR // 2 - 16
        data = data[:half] + b"\n ... cut ...\n" + data[-half:]
    return data.decode("utf-8", "ignore")


def broken_entry(payload: bytes, *, at: float, where: str, why: str) -> bytes:
    """What is kept of bytes that are not a job: a header line, then the bytes as they were."""
    return _write({"at": int(at * 1000), "where": where, "why": cut(why)[:500]}) + b"\n" + payload


def go_json(value: Any) -> str:
    """JSON exactly as Go's encoder writes it, for unique keys that Go enqueuers must agree with."""
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
    """What the unique key of a job with these arguments ends in; None when they cannot be read.

    For jobs whose enqueuer, of gocraft's last release, did not write the key down.
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
    # repr has the shortest digits that make this number again; Decimal writes them out without an exponent.
    return format(Decimal(text), "f").removesuffix(".0")


_GO_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f",
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip


def _go_string(text: str) -> str:
    out = []
    for char in text:
        if char in _GO_ESCAPES:
            out.append(_GO_ESCAPES[char])
        elif char < " ":
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'
