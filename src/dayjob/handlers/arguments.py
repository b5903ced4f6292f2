"""Converts arguments to JSON, checked strictly at enqueue, and back, checked leniently in the worker.

The fast path is one typed decode. The code that explains a mistake runs only after that has failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import astuple

from dayjob.errors import BadArguments
from dayjob.handlers.altered import altered
from dayjob.handlers.codecs import DEFAULT, Codecs
from dayjob.handlers.coerce import lenient
from dayjob.handlers.gaps import Path, emptied, gaps_in
from dayjob.handlers.plan import SignaturePlan, check_key, is_own_class, read_plan
from dayjob.handlers.redact import looks_secret
from dayjob.handlers.signature import NOT_YET, Function
from dayjob.names import suggest

Called = tuple[tuple[Any, ...], dict[str, Any]]
#: Nodes whose results are arguments, each with its place.
Gaps = list[tuple[Any, Path]]

#: What msgspec or a model raises for a value that JSON cannot represent, or that does not fit its type.
_UNFIT = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")

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
    for key in given:
        if not isinstance(key, str):
            raise BadArguments(f"{name}: argument names must be strings: {list(given)}")
    return raw


class Arguments:
    """Encodes and decodes the arguments of one handler.

    A type that does not exist yet is looked up again at first use, and only then raises BadSignature. Any other problem
    of the signature raises BadSignature at once.
    """

    def __init__(
        self,
        job_name: str,
        function: Function,
        redact: Sequence[str] = (),
        codecs: Codecs = DEFAULT,
        key: Sequence[str] = (),
    ) -> None:
        self._name = job_name
        #: The arguments that are the key of a job.
        self._key = key
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

    def _read(self) -> SignaturePlan:
        plan = read_plan(self._name, self._function, self._redact, self._codecs)
        check_key(self._name, self._function, plan, self._key, self._redact)
        return plan

    def default(self, name: str) -> Any:
        """The default of an argument as JSON would carry it; None if it has none."""
        for one in self._function.parameters():
            if one.name == name and one.default is not one.empty:
                return msgspec.json.decode(self._encode(one.default))
        return None

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
        # Long arguments take long to search.
        if plan.nullable and b"null" in raw and (problem := _not_finite(given, self._codecs)):
            raise self._bad(plan, problem)
        if plan.watched:
            self._refuse_altered(plan, given, arrived)
        for name in plan.texts:
            if name in given and given[name] is not None and not isinstance(given[name], str):
                raise self._bad(plan, f"argument {name!r}: expected str, got {type(given[name]).__name__}")
        return raw

    def encode_with_gaps(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bytes, Gaps]:
        """Encode arguments of which some are results of nodes. Returns their places, too. Raises BadArguments.

        The other arguments are checked as `encode` does, the results when the job starts.
        """
        plan = self._plan or self.resolve()
        given = self._bind(plan, args, kwargs)
        gaps = list(gaps_in(given))
        if not gaps:
            return self.encode((), given), gaps
        open_names = {path[0] for _, path in gaps}
        unknown = [name for name in given if name not in plan.infos]
        missing = [name for name in plan.names if name in plan.required and name not in given]
        if missing or (unknown and plan.rest is None and not plan.anything):
            raise self._refusal(plan, given, ValueError("unexpected arguments"))
        parts = []
        for name, value in given.items():
            raw = self._encode(emptied(value)) if name in open_names else self._encode_one(plan, name, value)
            parts.append(b"%b:%b" % (self._encode(name), raw))
        return b"{%b}" % b",".join(parts), gaps

    def _encode_one(self, plan: SignaturePlan, name: str, value: Any) -> bytes:
        """Encode one argument, checked by its type."""
        try:
            plain = plan.adapted[name].dump(value) if name in plan.adapted else value
            raw = self._encode(plain)
            hint = self._hints.get(name, Any)
            arrived = self._codecs.decoder(plan.adapted.get(name, hint))(raw)
        except _UNFIT as error:
            raise self._bad(plan, f"argument {name!r}: {error}") from None
        if problem := _not_finite({name: value}, self._codecs) or altered(value, arrived):
            raise self._changed(plan, name, problem)
        if name in plan.texts and value is not None and not isinstance(value, str):
            raise self._bad(plan, f"argument {name!r}: expected str, got {type(value).__name__}")
        return raw

    @property
    def _hints(self) -> dict[str, Any]:
        return {one.name: self._function.hint(one) for one in self._function.parameters()}

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
            if is_own_class(hint) and (name in _MEANT or "Context" in hint.__name__):
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


def _inside(name: str, text: str) -> str:
    """An error of msgspec about a value, with the path it would have as an argument of that name."""
    return text.replace("`$", f"`$.{name}") if _PATH.search(text) else f"{text} - at `$.{name}`"


def _split(plan: SignaturePlan, values: tuple[Any, ...]) -> Called:
    number = plan.by_position
    return values[:number], dict(zip(plan.names[number:], values[number:], strict=True))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number or 'no'} {noun}s"


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
        number = codecs.not_finite(value)
        if number is not None:
            return f"argument {name!r} has {number}, which JSON cannot carry"
    return None
