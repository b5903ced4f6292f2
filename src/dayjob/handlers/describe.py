"""Descriptions of job types: arguments and options as plain data, for forms, checks and redaction in consoles.

Pools store the descriptions in Redis when they start. Consoles read them, because they do not import the program.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Literal

import msgspec
from msgspec import inspect as types

from dayjob.handlers.redact import is_hidden
from dayjob.handlers.registry import JobType
from dayjob.handlers.signature import show
from dayjob.names import suggest
from dayjob.options import JobOptions

Kind = Literal["text", "integer", "number", "boolean", "choice", "json"]

#: Limits of one description: arguments, choices per argument, characters of a line, bytes in total.
MAX_ARGUMENTS = 100
MAX_CHOICES = 100
MAX_LINE = 200
MAX_BYTES = 16_384

_KINDS: tuple[tuple[type[types.Type] | tuple[type[types.Type], ...], Kind], ...] = (
    (types.BoolType, "boolean"),
    (types.IntType, "integer"),
    ((types.FloatType, types.DecimalType), "number"),
    ((types.StrType, types.DateTimeType, types.DateType, types.TimeType, types.TimeDeltaType, types.UUIDType), "text"),
    ((types.BytesType, types.ByteArrayType), "text"),
)  # fmt: skip


class DescribedArgument(msgspec.Struct, frozen=True):
    """One argument of a job type."""

    name: str
    #: The annotation as source code: `int`, `str | None`.
    type: str = ""
    required: bool = True
    #: A JSON value; None if there is none, or if it is hidden.
    default: Any = None
    kind: Kind = "json"
    choices: tuple[str | int, ...] = ()
    nullable: bool = False
    #: Whether its values are never shown.
    hidden: bool = False


class Described(msgspec.Struct, frozen=True):
    """A job type as its pools describe it."""

    name: str
    arguments: tuple[DescribedArgument, ...] = ()
    #: Whether it accepts further arguments of any name.
    open: bool = False
    colour: Literal["sync", "async"] = "sync"
    priority: int = 1
    max_fails: int = 4
    timeout: float | None = None
    max_concurrency: int | None = None
    keep: float | None = None
    unique_until: str = "start"
    redact: tuple[str, ...] = ()
    #: How many records of its attempts the history keeps, and for how many seconds; None if an older release announced it.
    history_count: int | None = None
    history_age: float | None = None
    #: Whether its jobs are found by their id wherever they are.
    deep_lookup: bool = False
    #: The first line of its docstring, and its signature as error messages show it.
    doc: str = ""
    signature: str = ""


#: The options of a job type that its description has: the fields of the same name.
DESCRIBED_OPTIONS = tuple(one.name for one in fields(JobOptions) if one.name in Described.__struct_fields__)


def describe(job_type: JobType[..., ..., Any]) -> Described:
    """Describe a job type. Its signature must be resolved."""
    options = job_type.options
    doc = inspect.getdoc(job_type.fn) or ""
    described = Described(
        name=job_type.name,
        arguments=_arguments(job_type),
        open=job_type.open,
        colour="async" if job_type.is_async else "sync",
        doc=_line(doc.strip().partition("\n")[0]),
        **{name: getattr(options, name) for name in DESCRIBED_OPTIONS},
    )
    described = msgspec.structs.replace(described, signature=_signature(described))
    if len(msgspec.json.encode(described)) > MAX_BYTES:
        # A description cut to size must still list what to redact.
        described = msgspec.structs.replace(described, arguments=(), open=True)
    return described


def fingerprint(described: Described) -> str:
    """A short hash that differs between job types with different arguments.

    It uses the kinds of values instead of the annotations, so that `Optional[int]` and `int | None` are the same.
    """
    shape = [(one.name, one.kind, one.required, one.nullable, one.choices) for one in described.arguments]
    return hashlib.sha256(msgspec.json.encode((shape, described.open))).hexdigest()[:6]


def _arguments(job_type: JobType[..., ..., Any]) -> tuple[DescribedArgument, ...]:
    found = []
    for parameter, info in job_type.arguments()[:MAX_ARGUMENTS]:
        hidden = is_hidden(parameter.name, job_type.options.redact)
        kind, choices, nullable = _kind(info)
        required = parameter.default is parameter.empty
        annotation = "" if parameter.annotation is parameter.empty else show(parameter.annotation)
        default = None if required or hidden else _plain(parameter.default)
        found.append(
            DescribedArgument(
                parameter.name, _line(annotation), required, default, kind, choices, nullable, hidden
            )
        )
    return tuple(found)


def _signature(described: Described) -> str:
    parts = []
    for one in described.arguments:
        default = "..." if one.hidden or (one.default is None and not one.nullable) else repr(one.default)
        parts.append(
            one.name + (f": {one.type}" if one.type else "") + ("" if one.required else f" = {default}")
        )
    return f"{described.name}({', '.join([*parts, *(['...'] if described.open else [])])})"


def _kind(info: types.Type) -> tuple[Kind, tuple[str | int, ...], bool]:
    """The kind of value that a type accepts, its choices if they are few, and whether null is accepted."""
    if isinstance(info, types.UnionType):
        some = [part for part in info.types if not isinstance(part, types.NoneType)]
        kind, choices, _ = _kind(some[0]) if len(some) == 1 else ("json", (), False)
        return kind, choices, len(some) < len(info.types)
    if isinstance(info, types.LiteralType):
        values = tuple(value for value in info.values if value is not None)
        return "choice", values[:MAX_CHOICES], None in info.values
    if isinstance(info, types.EnumType):
        members = tuple(one.value for one in info.cls if isinstance(one.value, str | int))
        return "choice", members[:MAX_CHOICES], False
    for kinds, kind in _KINDS:
        if isinstance(info, kinds):
            return kind, (), False
    return "json", (), isinstance(info, types.AnyType)


def _plain(value: Any) -> Any:
    """A default as a JSON value; None if it cannot be one."""
    try:
        raw = msgspec.json.encode(value.value if isinstance(value, Enum) else value)
        return msgspec.json.decode(raw) if len(raw) <= 1000 else None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _line(text: str) -> str:
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 3] + "..."


_FITS: dict[Kind, tuple[str, tuple[type, ...]]] = {
    "text": ("text", (str,)), "integer": ("a whole number", (int,)), "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
}  # fmt: skip


def misfit(described: Described, args: Mapping[str, Any]) -> str:
    """Why these arguments do not fit a job type; "" if they do. Only checks what the description contains."""
    known = {argument.name: argument for argument in described.arguments}
    for name in args:
        if name not in known and not described.open:
            near = suggest(str(name), [one for one in known if one not in args])
            return f"got an unexpected argument {name!r}{near}"
    for argument in described.arguments:
        if argument.name not in args:
            if argument.required:
                return f"missing argument {argument.name!r}"
            continue
        problem = _unfit(argument, args[argument.name])
        if problem:
            return f"argument {argument.name!r}: {problem}"
    return ""


def _unfit(argument: DescribedArgument, value: Any) -> str:
    if value is None:
        return "" if argument.nullable or argument.kind == "json" else "must not be null"
    if argument.kind == "choice":
        if len(argument.choices) < MAX_CHOICES and value not in argument.choices:
            return f"expected one of {', '.join(map(str, argument.choices))}"
        return ""
    if argument.kind not in _FITS:
        return ""
    words, kinds = _FITS[argument.kind]
    # A Decimal may also be sent as a string.
    fits = isinstance(value, kinds) or (argument.kind == "number" and isinstance(value, str))
    fits = fits and not (isinstance(value, bool) and bool not in kinds)
    return "" if fits else f"expected {words}, got {type(value).__name__}"
