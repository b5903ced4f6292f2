"""Endpoint: one address of the API as a value. Routes and the OpenAPI document are built from a table of endpoints."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec
import msgspec.inspect
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dayjob.admin.client import AsyncAdmin
from dayjob.errors import DayjobError
from dayjob.names import suggest
from dayjob.web.console import WebConsole
from dayjob.web.reading import read_answer
from dayjob.web.responses import JSON, Refusal, answer, refusal_of

PREFIX = "/api/v1"

T_co = TypeVar("T_co", covariant=True)


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The input of an address that takes nothing."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One authorised and parsed request."""

    request: Request
    console: WebConsole
    #: Acts for the user of this request.
    admin: AsyncAdmin
    #: The input, from the query of a GET or the body of a POST.
    sent: T_co


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address: its input, its answer, and the function behind it."""

    method: Literal["GET", "POST"]
    path: str
    #: The topic under which the document lists it.
    topic: str
    summary: str
    handler: Callable[[Any], Awaitable[Any]]
    #: The type of the answer.
    answers: Any
    #: The type of the input: the query of a GET, or the JSON body of a POST.
    takes: type[msgspec.Struct] = Nothing
    #: Whether the answer is a stream with one JSON object per line.
    streams: bool = False
    #: Whether the answer may be that what was named does not exist; None means that nothing was found.
    finds: bool = False
    #: Whether the answer may be that the job is in another state by now.
    moves: bool = False

    @property
    def name(self) -> str:
        """A name for the document: `queue_pause`."""
        return self.path.strip("/").replace("/", "_").replace(".", "_")

    async def run(self, call: Call[Any]) -> Any:
        """The answer to one call. Raises Refusal."""
        try:
            found = await self.handler(call)
        except DayjobError as error:
            raise refusal_of(error) from None
        if found is None and self.finds:
            text = "It was not found: it completed, was deleted or never existed."
            raise Refusal(404, text, code="unknown_job")
        return found

    def route(self) -> Route:
        """The route that serves it."""

        async def serve(request: Request) -> Response:
            console: WebConsole = request.app.state.console
            sent = (
                _read_query(request, self.takes)
                if self.method == "GET"
                else await _read_body(request, self.takes)
            )
            found = await self.run(Call(request, console, console.admin_for(request), sent))
            if isinstance(found, Response):
                return found
            return await read_answer(request, found) if self.method == "GET" else answer(found)

        return Route(f"{PREFIX}{self.path}", serve, methods=[self.method], name=self.name)


def _read_query(request: Request, takes: type[msgspec.Struct]) -> msgspec.Struct:
    """Parse the query. Raises Refusal."""
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs):
        raise Refusal(400, "A parameter is given twice.", "Give each at most once.")
    _check_names(given, takes)
    try:
        return msgspec.convert({name: _value(text, takes, name) for name, text in given.items()}, takes)
    except msgspec.ValidationError as error:
        raise Refusal(400, _words(error)) from None


_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,20})?([eE][+-]?\d{1,3})?", re.ASCII)


@functools.cache
def _kinds(takes: type[msgspec.Struct]) -> dict[str, set[type]]:
    """The plain types that each field accepts."""
    info = msgspec.inspect.type_info(takes)
    assert isinstance(info, msgspec.inspect.StructType)  # noqa: S101 - tables are made of structs
    return {field.name: set(_plain(field.type)) for field in info.fields}


def _plain(info: msgspec.inspect.Type) -> Iterator[type]:
    match info:
        case msgspec.inspect.Metadata():
            yield from _plain(info.type)
        case msgspec.inspect.UnionType():
            for one in info.types:
                yield from _plain(one)
        case msgspec.inspect.LiteralType():
            yield from (type(value) for value in info.values)
        case msgspec.inspect.IntType():
            yield int
        case msgspec.inspect.FloatType():
            yield float
        case msgspec.inspect.BoolType():
            yield bool


def _value(text: str, takes: type[msgspec.Struct], name: str) -> str | int | float | bool:
    """A parameter as a JSON value, if its field does not accept text."""
    kinds = _kinds(takes)[name]
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    if kinds & {int, float} and _NUMBER.fullmatch(text):
        return float(text) if float in kinds else int(text) if text.lstrip("-").isdecimal() else text
    return text


async def _read_body(request: Request, takes: type[msgspec.Struct]) -> msgspec.Struct:
    """Parse the JSON body. Raises Refusal."""
    if request.query_params:
        raise Refusal(400, "This address takes a JSON body and no query.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Refusal(415, f"The body is {kind or 'of no type'}. Nothing was changed.", f"Send {JSON}.")
    body = await request.body()
    try:
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refusal(400, _words(error), "Nothing was changed.") from None
    return read_fields(given, takes)


def read_fields(given: Any, takes: type[msgspec.Struct]) -> msgspec.Struct:
    """Check decoded JSON against an input. Raises Refusal."""
    try:
        if isinstance(given, dict):
            _check_names(given, takes)
            given = {name: _whole(value, takes, name) for name, value in given.items()}
        return msgspec.convert(given, takes)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refusal(400, _words(error), "Nothing was changed.") from None


def _whole(value: Any, takes: type[msgspec.Struct], name: str) -> Any:
    """Accept a number such as 7.0 for an integer: JSON does not distinguish them."""
    kinds = _kinds(takes)[name]
    return (
        int(value)
        if type(value) is float and value.is_integer() and int in kinds and float not in kinds
        else value
    )


def _check_names(given: dict[str, Any], takes: type[msgspec.Struct]) -> None:
    known = takes.__struct_fields__
    for name in given:
        if name not in known:
            there = f"There are: {', '.join(known)}." if known else "This address takes nothing."
            raise Refusal(400, f"There is no {name[:80]!r}{suggest(name, known) or '.'}", there)


def _words(error: Exception) -> str:
    """The message of msgspec, rewritten: `$.size` becomes `size`."""
    text = str(error).replace("`$.", "`").replace(" - at `$`", "").replace("`", "'")
    return f"The request is not valid: {text}."
