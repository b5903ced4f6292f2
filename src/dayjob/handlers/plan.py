"""Reads what the signature and annotations of a handler ask for, and refuses what cannot be called or sent as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect as types

from dayjob.errors import BadOption, BadSignature
from dayjob.handlers.altered import may_alter
from dayjob.handlers.codecs import Codecs
from dayjob.handlers.coerce import parts
from dayjob.handlers.job_keys import SOURCE
from dayjob.handlers.pydantic_types import Adapted, adapted
from dayjob.handlers.redact import is_hidden
from dayjob.handlers.signature import NOT_YET, Function, Role, show
from dayjob.names import suggest

#: Types whose values contain no keys.
_SCALARS = (
    types.NoneType, types.BoolType, types.IntType, types.FloatType, types.StrType, types.BytesType, types.DateTimeType,
    types.DateType, types.TimeType, types.TimeDeltaType, types.UUIDType, types.DecimalType, types.EnumType,
    types.LiteralType,
)  # fmt: skip

#: Types of which no value is null in JSON or has one inside.
_NEVER_NULL = (
    types.BoolType, types.IntType, types.FloatType, types.StrType, types.BytesType, types.DateTimeType, types.DateType,
    types.TimeType, types.TimeDeltaType, types.UUIDType, types.DecimalType,
)  # fmt: skip

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ORDERS: tuple[list[str], ...] = ([], ["context"], ["job"], ["context", "job"])
_PLAIN_DEFAULTS = (type(None), bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Rest:
    """The `**args` parameter of a handler, and the type of its values."""

    name: str
    info: types.Type
    decode: Callable[[bytes | msgspec.Raw], Any]


@dataclass(frozen=True, slots=True)
class SignaturePlan:
    """What the signature and annotations of one handler ask for."""

    wants_context: bool
    wants_job: bool
    #: All arguments in order: first those that may be passed by position, then the keyword-only ones.
    names: tuple[str, ...]
    by_position: int
    required: frozenset[str]
    #: Arguments that must be strings; without a check msgspec would silently encode bytes as base64.
    texts: tuple[str, ...]
    infos: Mapping[str, types.Type]
    #: Arguments that JSON may change, each with its field in what `decode` returns.
    watched: tuple[tuple[str, str], ...]
    #: Whether an argument may be null in JSON, or have a null inside.
    nullable: bool
    #: Arguments that pydantic reads and writes.
    adapted: Mapping[str, type[Adapted]]
    decode: Callable[[bytes | msgspec.Raw], Any]
    rest: Rest | None
    #: Whether any arguments are accepted, because the handler takes only the job and reads them from it.
    anything: bool
    #: Names that `**args` may not use, because the context or the job parameter has them.
    taken: tuple[str, ...]
    shown: str


def read_plan(job_name: str, function: Function, redact: Sequence[str], codecs: Codecs) -> SignaturePlan:
    """Read the signature of a handler. Raises BadSignature, BadOption, and NOT_YET for a type that does not exist yet."""
    parameters = function.parameters()
    _check_kind(function, parameters)
    hints = {one.name: function.hint(one) for one in parameters}
    roles = {one.name: function.role(hints[one.name]) for one in parameters}
    order = [roles[one.name] for one in parameters]
    leading = [role for role in order if role != "argument"]
    by_position = [one.kind in _POSITIONAL for one in parameters[: len(leading)]]
    if leading != order[: len(leading)] or leading not in _ORDERS or not all(by_position):
        raise _disorder(function, parameters, roles, hints)
    arguments = parameters[len(leading) :]
    named = [one for one in arguments if one.kind is not one.VAR_KEYWORD]
    by_pydantic = {one.name: kind for one in named if (kind := adapted(hints[one.name])) is not None}
    read_as = {**hints, **by_pydantic}
    infos = {one.name: _type_info(function, codecs, one, read_as[one.name]) for one in arguments}
    rest = None
    for one in arguments[len(named) :]:
        rest = Rest(one.name, infos.pop(one.name), codecs.decoder(hints[one.name]))
    if rest is None and (arguments or "job" not in leading):
        _check_redact(job_name, function, redact, infos)
    return SignaturePlan(
        wants_context="context" in leading,
        wants_job="job" in leading,
        names=tuple(one.name for one in named),
        by_position=sum(one.kind in _POSITIONAL for one in named),
        required=frozenset(one.name for one in named if one.default is one.empty),
        texts=tuple(one.name for one in named if hints[one.name] in (str, str | None)),
        infos=infos,
        watched=tuple(
            (one.name, f"a{number}") for number, one in enumerate(named) if may_alter(infos[one.name])
        ),
        nullable=not all(map(_is_never_null, infos.values())),
        adapted=by_pydantic,
        decode=codecs.decoder(_struct(named, read_as, forbid=rest is None)),
        rest=rest,
        anything="job" in leading and not arguments,
        taken=tuple(one.name for one in parameters[: len(leading)] if one.kind is not one.POSITIONAL_ONLY),
        shown=function.shown(arguments),
    )


def _check_redact(job_name: str, function: Function, redact: Sequence[str], infos: Mapping[str, Any]) -> None:
    """Refuse a name in `redact` that is not an argument, unless it may be a key inside one."""
    for name in redact:
        if name in infos:
            continue
        near = suggest(name, [one for one, info in infos.items() if _is_scalar(info) or _is_any(info)])
        if near or all(map(_is_scalar, infos.values())):
            raise BadOption(
                f"job {job_name!r}: redact={name!r} is not an argument of the job{near}\n"
                f"    {function.shown()}    {function.location}"
            )


def check_key(
    job_name: str, function: Function, plan: SignaturePlan, key: Sequence[str], redact: Sequence[str]
) -> None:
    """Refuse a key that is not an argument, or one whose value must not be shown. Raises BadOption."""
    infos = plan.infos
    for name in key:
        problem = ""
        if name == SOURCE:
            if name in infos:
                problem = "means the source of the job, but the job has an argument of this name: rename it"
        elif is_hidden(name, redact):
            problem = "is a redacted argument: keys are shown to operators, so it cannot be one"
        elif name not in infos and not plan.anything and plan.rest is None:
            known = ", ".join((*infos, SOURCE))
            problem = f"is not an argument of the job{suggest(name, [*infos, SOURCE])} (there are: {known})"
        if problem:
            raise BadOption(
                f"job {job_name!r}: by={name!r} {problem}\n    {function.shown()}    {function.location}"
            )


def _disorder(
    function: Function,
    parameters: list[inspect.Parameter],
    roles: Mapping[str, Role],
    hints: Mapping[str, Any],
) -> BadSignature:
    first = parameters[0]
    start = [roles[one.name] for one in parameters[:2]]
    if start == ["argument", "job"] and is_own_class(hints[first.name]):
        return function.bad(
            f"{function.no_context(first.name, hints[first.name])}, or put the argument after the job"
        )
    return function.misplaced(roles)


def _check_kind(function: Function, parameters: list[inspect.Parameter]) -> None:
    if function.yields:
        raise function.bad("a job cannot yield: calling it would run nothing. Return instead")
    if (
        parameters
        and parameters[0].name in ("self", "cls")
        and parameters[0].annotation is parameters[0].empty
    ):
        raise function.bad(
            "a plain method cannot be called without its object: register a bound method, or write a function"
        )
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            raise function.bad(
                f"arguments have names, so '*{one.name}' gets none: write {_without(function, one)}"
            )


def _type_info(function: Function, codecs: Codecs, parameter: inspect.Parameter, hint: Any) -> types.Type:
    try:
        info = types.type_info(hint)
    except NOT_YET:
        raise
    except Exception as error:
        # Types are the user's code and may raise anything; the meaning is the same.
        raise function.bad(f"{parameter.name}: {show(hint)} cannot be read from JSON ({error})") from None
    for part in parts(info):
        if isinstance(part, types.CustomType) and not codecs.can_load(part.cls):
            kind = show(part.cls)
            raise function.bad(
                f"{parameter.name}: {kind} cannot travel as JSON. Send an id or plain values, "
                f"make {kind} a dataclass, TypedDict, msgspec.Struct or pydantic model, "
                f"or give the pool a codec: WorkerPool(codecs=[Codec({kind}, to_json, from_json)])"
            )
    return info


def _struct(named: Sequence[inspect.Parameter], hints: Mapping[str, Any], *, forbid: bool) -> Any:
    # The fields are renamed, because an argument may have a name that a Struct field cannot have.
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for number, one in enumerate(named):
        hint = hints[one.name]
        if one.default is one.empty:
            fields.append((f"a{number}", hint))
        elif type(one.default) in _PLAIN_DEFAULTS:
            fields.append((f"a{number}", hint, one.default))
        else:
            # A factory passes the same object, as a plain call does; as a default msgspec would copy or refuse it.
            fields.append((f"a{number}", hint, msgspec.field(default_factory=_giving(one.default))))
    rename = {f"a{number}": one.name for number, one in enumerate(named)}
    return msgspec.defstruct("Arguments", fields, kw_only=True, rename=rename, forbid_unknown_fields=forbid)


def _giving(value: Any) -> Callable[[], Any]:
    return lambda: value


def _without(function: Function, star: inspect.Parameter) -> str:
    """The signature with `**args` in place of its `*args`."""
    kept = [one for one in function.parameters() if one is not star and one.name != star.name]
    if not any(one.kind is one.VAR_KEYWORD for one in kept):
        kept.append(star.replace(kind=inspect.Parameter.VAR_KEYWORD))
    return function.shown(kept)


def is_own_class(hint: Any) -> bool:
    """Whether a type is a class that is not built into Python, such as one of the program."""
    return isinstance(hint, type) and hint.__module__ != "builtins"


def _is_any(info: Any) -> bool:
    return isinstance(info, types.AnyType)


def _is_scalar(info: Any) -> bool:
    """Whether values of this type contain no keys."""
    if isinstance(info, types.Metadata):
        return _is_scalar(info.type)
    if isinstance(info, types.UnionType):
        return all(map(_is_scalar, info.types))
    return isinstance(info, _SCALARS)


def _is_never_null(info: Any) -> bool:
    return isinstance(info.type if isinstance(info, types.Metadata) else info, _NEVER_NULL)
