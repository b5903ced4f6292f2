"""Converts arguments to JSON, checked strictly at enqueue, and back, checked leniently in the worker.

The fast path is one typed decode. The code that explains a mistake runs only after that has failed.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect as types
from msgspec.structs import astuple

from dayjob.errors import BadArguments, BadOption, BadSignature
from dayjob.handlers.altered import altered, may_alter
from dayjob.handlers.codecs import DEFAULT, Codecs
from dayjob.handlers.coerce import lenient, parts
from dayjob.handlers.pydantic_types import Adapted, adapted
from dayjob.handlers.redact import looks_secret
from dayjob.handlers.signature import NOT_YET, Function, Role, show
from dayjob.names import suggest

Called = tuple[tuple[Any, ...], dict[str, Any]]

#: What msgspec or a model raises for a value that JSON cannot represent, or that does not fit its type.
_UNFIT = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")

#: Types whose values contain no keys.
_SCALARS = (
    types.NoneType, types.BoolType, types.IntType, types.FloatType, types.StrType, types.BytesType, types.DateTimeType,
    types.DateType, types.TimeType, types.TimeDeltaType, types.UUIDType, types.DecimalType, types.EnumType,
    types.LiteralType,
)  # fmt: skip

#: Parameter names that were probably not meant as arguments, and what to write instead.
_MEANT = {
    "job": "; write 'job: Job' to be given the job",
    "ctx": "; to be given the context, annotate it with the class that WorkerPool was given",
    "context": "; to be given the context, annotate it with the class that WorkerPool was given",
}


_decode_object = msgspec.json.Decoder(dict[str, Any] | None).decode


def encode_unchecked(name: str, kwargs: Mapping[str, Any], codecs: Codecs = DEFAULT) -> bytes:
    """Encode arguments as a JSON object, for a job whose handler this process does not have. Raises BadArguments."""
    given = dict(kwargs)
    try:
        raw = codecs.encode(given)
    except _UNFIT as error:
        raise BadArguments(f"{name}: {_uncarried(given, codecs) or error}") from None
    if b"null" in raw and (problem := _not_finite(given, codecs)):
        raise BadArguments(f"{name}: {problem}")
    if not all(isinstance(key, str) for key in given):
        raise BadArguments(f"{name}: argument names must be strings: {list(given)}")
    return raw


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
    #: Arguments that pydantic reads and writes.
    adapted: Mapping[str, type[Adapted]]
    decode: Callable[[bytes | msgspec.Raw], Any]
    rest: Rest | None
    #: Whether any arguments are accepted, because the handler takes only the job and reads them from it.
    anything: bool
    #: Names that `**args` may not use, because the context or the job parameter has them.
    taken: tuple[str, ...]
    shown: str


class Arguments:
    """Encodes and decodes the arguments of one handler.

    A type that does not exist yet is looked up again at first use, and only then raises BadSignature. Any other problem
    of the signature raises BadSignature at once.
    """

    def __init__(
        self, job_name: str, function: Function, redact: Sequence[str] = (), codecs: Codecs = DEFAULT
    ) -> None:
        self._name = job_name
        self._function = function
        self._redact = redact
        self._codecs = codecs
        self._encode = codecs.encode
        self._plan: SignaturePlan | None = None
        with suppress(
            *NOT_YET
        ):  # the type may be defined further down, or in a module that is still being imported
            self._plan = self._read()

    @property
    def plan(self) -> SignaturePlan:
        """What the handler's signature asks for. Raises BadSignature."""
        return self._plan or self.resolve()

    @property
    def resolved(self) -> bool:
        """Whether every type of the signature has been found."""
        return self._plan is not None

    def resolve(self) -> SignaturePlan:
        """Look up every type now. Raises BadSignature, which names the type that does not exist."""
        try:
            plan = self._read()
        except NOT_YET as error:
            for parameter in self._function.parameters():
                try:
                    self._function.hint(parameter)
                except NOT_YET as missing:
                    raise self._function.undefined(parameter, missing) from None
            # The missing name is used inside a type, such as by a field of a dataclass.
            raise self._function.bad(f"a type it uses is not complete: {error}") from None
        self._plan = plan
        return plan

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Check the arguments strictly and encode them as a JSON object. Raises BadArguments."""
        plan = self._plan or self.resolve()
        given = self._bind(plan, args, kwargs) if args or type(kwargs) is not dict else kwargs
        if plan.adapted:
            return self._encode_adapted(plan, given)
        if plan.rest is not None or plan.anything:
            return self._encode_open(plan, given)
        try:
            raw = self._encode(given)
            arrived = plan.decode(raw)
        except _UNFIT as error:
            raise self._refusal(plan, given, error) from None
        if b"null" in raw and (problem := _not_finite(given, self._codecs)):
            raise self._bad(plan, problem)
        self._refuse_altered(plan, given, arrived)
        for name in plan.texts:
            if name in given and given[name] is not None and not isinstance(given[name], str):
                raise self._bad(plan, f"argument {name!r}: expected str, got {type(given[name]).__name__}")
        return raw

    def _encode_adapted(self, plan: SignaturePlan, given: Mapping[str, Any]) -> bytes:
        """Encode arguments of which pydantic writes some."""
        try:
            plain = {
                name: plan.adapted[name].dump(value) if name in plan.adapted else value
                for name, value in given.items()
            }
            if plan.rest is not None:
                return self._encode_open(plan, plain)
            raw = self._encode(plain)
            arrived = plan.decode(raw)
        except _UNFIT as error:
            raise self._refusal(plan, given, error) from None
        self._refuse_altered(plan, given, arrived)
        return raw

    def _refuse_altered(self, plan: SignaturePlan, given: Mapping[str, Any], arrived: Any) -> None:
        for name, field in plan.watched:
            if name in given and (problem := altered(given[name], getattr(arrived, field))):
                raise self._changed(plan, name, problem)

    def call_args(self, raw: bytes | msgspec.Raw) -> Called:
        """Decode the arguments to call the handler with, after context and job. Raises BadArguments."""
        plan = self._plan or self.resolve()
        if plan.anything:
            return (), {}
        try:
            if plan.rest is not None:
                return self._call_open(plan, _decode_object(raw) or {})
            values = astuple(plan.decode(raw))
        except _UNFIT as error:
            return self._call_leniently(plan, raw, error)
        if plan.by_position == len(values):
            return values, {}
        return _split(plan, values)

    def _bind(self, plan: SignaturePlan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = plan.names[: plan.by_position]
        if len(args) > len(names):
            raise self._bad(plan, f"takes {_count(len(names), 'argument')} by position, got {len(args)}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise self._bad(plan, f"got the argument {name!r} twice")
            given[name] = value
        return given

    def _encode_open(self, plan: SignaturePlan, given: Mapping[str, Any]) -> bytes:
        try:
            raw = encode_unchecked(self._name, given, self._codecs)
        except BadArguments as error:
            raise BadArguments(f"{error}\n{self._where(plan)}") from None
        if plan.rest is not None:
            try:
                args, kwargs = self._call_open(plan, _decode_object(raw) or {})
            except _UNFIT as error:
                raise self._refusal(plan, given, error) from None
            arrived = dict(zip(plan.names, args, strict=False)) | kwargs
        else:
            arrived = _decode_object(raw) or {}
        for name, value in given.items():
            if problem := altered(value, arrived[name]):
                raise self._changed(plan, name, problem)
        return raw

    def _call_open(self, plan: SignaturePlan, given: dict[str, Any]) -> Called:
        if plan.rest is None:
            raise TypeError("not a handler with **args")
        for name in plan.taken:
            if name in given:
                raise TypeError(
                    f"the handler needs the name {name!r} itself; write '/' before '**{plan.rest.name}'"
                )
        args, kwargs = _split(plan, astuple(plan.decode(self._encode(given))))
        for name, value in given.items():
            if name not in plan.infos:
                try:
                    kwargs[name] = plan.rest.decode(self._encode(value))
                except msgspec.ValidationError as error:
                    raise msgspec.ValidationError(_inside(name, str(error))) from None
        return args, kwargs

    def _call_leniently(self, plan: SignaturePlan, raw: bytes | msgspec.Raw, error: BaseException) -> Called:
        """Decode again, after correcting how other languages write integers (7.0) and empty lists ({})."""
        try:
            given = _decode_object(raw) or {}
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise self._bad(plan, "the arguments are not a JSON object") from None
        rest = None if plan.rest is None else plan.rest.info
        fixed = {}
        for name, value in given.items():
            info = plan.infos.get(name, rest)
            fixed[name] = value if info is None else lenient(value, info)
        try:
            if plan.rest is not None:
                return self._call_open(plan, fixed)
            return _split(plan, astuple(plan.decode(self._encode(fixed))))
        except _UNFIT:
            raise self._refusal(plan, given, error) from None

    def _refusal(self, plan: SignaturePlan, given: Mapping[str, Any], error: BaseException) -> BadArguments:
        if plan.rest is None:
            for name in given:
                if name not in plan.infos:
                    near = suggest(str(name), [one for one in plan.names if one not in given])
                    return self._bad(plan, f"got an unexpected argument {name!r}{near}")
        for name in plan.names:
            if name in plan.required and name not in given:
                return self._bad(plan, f"missing argument {name!r}{self._meant(name)}")
        problem = _uncarried(given, self._codecs, self._hidden) or _not_finite(given, self._codecs)
        return self._bad(plan, problem or self._misfit(str(error)))

    def _meant(self, name: str) -> str:
        """A hint for a missing argument that was probably meant as the job, or as the context of another pool."""
        first = self._function.parameters()[0]
        if name == first.name and first.annotation is not first.empty:
            hint = self._function.hint(first)
            # Only a hint, because the user's class may also be an argument that was left out.
            if _is_own_class(hint) and (name in _MEANT or "Context" in hint.__name__):
                return f"; {self._function.no_context(name, hint)}"
        return _MEANT.get(name, "")

    def _misfit(self, text: str) -> str:
        """An error of msgspec or a model, rephrased to name the argument instead of a JSON path."""
        match = _PATH.search(text)
        if match is None:
            return text
        path = match[1]
        name = re.split(r"[.\[]", path, maxsplit=1)[0]
        if self._hidden(name):
            # The original message may quote the value, which must stay hidden.
            return f"argument {name!r} does not fit its type"
        what = text[: match.start()].replace("`", "")
        return f"argument {path!r}: {what[:1].lower()}{what[1:]}"

    def _hidden(self, name: str) -> bool:
        return name in self._redact or _is_secret(name)

    def _changed(self, plan: SignaturePlan, name: str, problem: str) -> BadArguments:
        # The original message may quote a key of the value, which must stay hidden.
        shown = "it would arrive as something else" if self._hidden(name) else problem
        return self._bad(plan, f"argument {name!r}: {shown}")

    def _bad(self, plan: SignaturePlan, problem: str) -> BadArguments:
        return BadArguments(f"{self._name}: {problem}\n{self._where(plan)}")

    def _where(self, plan: SignaturePlan) -> str:
        return f"    {plan.shown}    {self._function.location}"

    def _read(self) -> SignaturePlan:
        function = self._function
        parameters = function.parameters()
        self._check_kind(parameters)
        hints = {one.name: function.hint(one) for one in parameters}
        roles = {one.name: function.role(hints[one.name]) for one in parameters}
        order = [roles[one.name] for one in parameters]
        leading = [role for role in order if role != "argument"]
        by_position = [one.kind in _POSITIONAL for one in parameters[: len(leading)]]
        if leading != order[: len(leading)] or leading not in _ORDERS or not all(by_position):
            raise self._disorder(parameters, roles, hints)
        arguments = parameters[len(leading) :]
        named = [one for one in arguments if one.kind is not one.VAR_KEYWORD]
        by_pydantic = {one.name: kind for one in named if (kind := adapted(hints[one.name])) is not None}
        read_as = {**hints, **by_pydantic}
        infos = {one.name: self._type_info(one, read_as[one.name]) for one in arguments}
        rest = None
        for one in arguments[len(named) :]:
            rest = Rest(one.name, infos.pop(one.name), self._codecs.decoder(hints[one.name]))
        if rest is None and (arguments or "job" not in leading):
            self._check_redact(infos)
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
            adapted=by_pydantic,
            decode=self._codecs.decoder(_struct(named, read_as, forbid=rest is None)),
            rest=rest,
            anything="job" in leading and not arguments,
            taken=tuple(
                one.name for one in parameters[: len(leading)] if one.kind is not one.POSITIONAL_ONLY
            ),
            shown=function.shown(arguments),
        )

    def _check_redact(self, infos: Mapping[str, Any]) -> None:
        """Refuse a name in `redact` that is not an argument, unless it may be a key inside one."""
        for name in self._redact:
            if name in infos:
                continue
            near = suggest(name, [one for one, info in infos.items() if _is_scalar(info) or _is_any(info)])
            if near or all(map(_is_scalar, infos.values())):
                raise BadOption(
                    f"job {self._name!r}: redact={name!r} is not an argument of the job{near}\n"
                    f"    {self._function.shown()}    {self._function.location}"
                )

    def _disorder(
        self, parameters: list[inspect.Parameter], roles: Mapping[str, Role], hints: Mapping[str, Any]
    ) -> BadSignature:
        first = parameters[0]
        start = [roles[one.name] for one in parameters[:2]]
        if start == ["argument", "job"] and _is_own_class(hints[first.name]):
            return self._function.bad(
                f"{self._function.no_context(first.name, hints[first.name])}, or put the argument after the job"
            )
        return self._function.misplaced(roles)

    def _check_kind(self, parameters: list[inspect.Parameter]) -> None:
        function = self._function
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

    def _type_info(self, parameter: inspect.Parameter, hint: Any) -> types.Type:
        try:
            info = types.type_info(hint)
        except NOT_YET:
            raise
        except Exception as error:
            # Types are the user's code and may raise anything; the meaning is the same.
            raise self._function.bad(
                f"{parameter.name}: {show(hint)} cannot be read from JSON ({error})"
            ) from None
        for part in parts(info):
            if isinstance(part, types.CustomType) and not self._codecs.can_load(part.cls):
                kind = show(part.cls)
                raise self._function.bad(
                    f"{parameter.name}: {kind} cannot travel as JSON. Send an id or plain values, "
                    f"make {kind} a dataclass, TypedDict, msgspec.Struct or pydantic model, "
                    f"or give the pool a codec: WorkerPool(codecs=[Codec({kind}, to_json, from_json)])"
                )
        return info


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ORDERS: tuple[list[str], ...] = ([], ["context"], ["job"], ["context", "job"])
_PLAIN_DEFAULTS = (type(None), bool, int, float, str)


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


def _inside(name: str, text: str) -> str:
    """An error of msgspec about a value, with the path it would have as an argument of that name."""
    return text.replace("`$", f"`$.{name}") if _PATH.search(text) else f"{text} - at `$.{name}`"


def _without(function: Function, star: inspect.Parameter) -> str:
    """The signature with `**args` in place of its `*args`."""
    kept = [one for one in function.parameters() if one is not star and one.name != star.name]
    if not any(one.kind is one.VAR_KEYWORD for one in kept):
        kept.append(star.replace(kind=inspect.Parameter.VAR_KEYWORD))
    return function.shown(kept)


def _is_own_class(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__module__ != "builtins"


def _split(plan: SignaturePlan, values: tuple[Any, ...]) -> Called:
    number = plan.by_position
    return values[:number], dict(zip(plan.names[number:], values[number:], strict=True))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number or 'no'} {noun}s"


def _is_any(info: Any) -> bool:
    return isinstance(info, types.AnyType)


def _is_scalar(info: Any) -> bool:
    """Whether values of this type contain no keys."""
    if isinstance(info, types.Metadata):
        return _is_scalar(info.type)
    if isinstance(info, types.UnionType):
        return all(map(_is_scalar, info.types))
    return isinstance(info, _SCALARS)


def _is_secret(name: str) -> bool:
    return looks_secret(str(name))


def _uncarried(
    given: Mapping[str, Any], codecs: Codecs, hidden: Callable[[str], bool] = _is_secret
) -> str | None:
    """A message about the first argument that JSON cannot represent; None if there is none."""
    for name, value in given.items():
        try:
            codecs.encode(value)
        except RecursionError:
            return f"argument {name!r} contains itself, or is nested too deeply for JSON"
        except UnicodeEncodeError:
            return f"argument {name!r} has half a character (a lone surrogate), which JSON cannot carry"
        except _UNFIT as error:
            return f"argument {name!r} cannot travel as JSON" + ("" if hidden(name) else f": {error}")
    return None


def _not_finite(given: Mapping[str, Any], codecs: Codecs) -> str | None:
    """A message about an argument with a NaN or infinity, which msgspec would silently encode as null; or None."""
    for name, value in given.items():
        if value is None or isinstance(value, str | int):
            continue
        number = next(_unbounded(msgspec.to_builtins(value, enc_hook=codecs.dump)), None)
        if number is not None:
            return f"argument {name!r} has {number}, which JSON cannot carry"
    return None


def _unbounded(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield value
    elif isinstance(value, dict | list | tuple | set | frozenset):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _unbounded(one)
