"""Answers of the API: views as JSON without secrets, and error answers with the right status."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dayjob.admin.views import BrokenEntry, BusyWorker, Count, JobView, Tally
from dayjob.errors import DayjobError, StoreError
from dayjob.web.codes import CODES, ErrorCode, code_of_error, code_of_status

#: Fields that are left out: the raw bytes of jobs contain redacted values.
LEFT_OUT: dict[type, frozenset[str]] = {JobView: frozenset({"payload"})}
#: Properties that are computed from the fields and shown with them.
WORKED_OUT: dict[type, tuple[str, ...]] = {
    BusyWorker: ("progress", "left"), Count: ("complete",), JobView: ("size",), Tally: ("unchanged",),
}  # fmt: skip

#: How many characters of an error are sent.
MAX_WORDS = 1000

JSON = "application/json"
PROBLEM = "application/problem+json"


class Refusal(Exception):
    """Ends a request with a status, a message and a hint."""

    def __init__(
        self,
        status: int,
        error: str,
        hint: str = "",
        headers: dict[str, str] | None = None,
        *,
        code: ErrorCode | None = None,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.code: ErrorCode = code or code_of_status(status)
        self.error = error
        self.hint = hint
        self.headers = headers


class Problem(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    error: str
    #: What to do next; may be empty.
    hint: str
    status: int
    #: The reason as a stable word.
    code: ErrorCode


def plain(value: Any) -> Any:
    """Any answer as JSON values, without the raw bytes of jobs."""
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        left_out = LEFT_OUT.get(kind, frozenset())
        found = {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(kind)
            if field.name not in left_out
        }
        if kind is JobView:
            found["unique_key"] = shown_key(value)
        for name in worked_out(kind):
            found[name] = plain(getattr(value, name))
        return found
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def worked_out(kind: type) -> tuple[str, ...]:
    """The properties of a view that are shown with its fields."""
    return WORKED_OUT.get(kind, ())


def answer(value: Any, status: int = 200) -> Response:
    """A view as a response."""
    return Response(msgspec.json.encode(plain(value)), status, media_type=JSON)


def problem(refusal: Refusal) -> Response:
    """A refusal as a response."""
    body = msgspec.json.encode(problem_of(refusal))
    return Response(body, refusal.status, refusal.headers, media_type=PROBLEM)


def problem_of(refusal: Refusal) -> Problem:
    """A refusal as a value."""
    return Problem(_printable(refusal.error), _printable(refusal.hint), refusal.status, refusal.code)


def _printable(text: str) -> str:
    # The request may contain a lone surrogate, which cannot be encoded, and errors quote the request.
    shown = text.encode("utf-8", "replace").decode()
    return shown if len(shown) <= MAX_WORDS else f"{shown[:MAX_WORDS]}..."


def refusal_of(error: DayjobError) -> Refusal:
    """The refusal for an error of the admin layer."""
    first, _, rest = str(error).partition("\n")
    hint = " ".join(rest.split())
    code = code_of_error(error)
    status = CODES[code].status
    if isinstance(error, StoreError):
        first = f"Redis does not answer, or answers with an error: {first}"
        hint = hint or "The next request tries again."
    return Refusal(status, first, hint, code=code)


def wants_html(request: Request) -> bool:
    """Whether a browser asks for a page: text/html is preferred to JSON, and asked for by name."""
    html = other = 0.0
    for part in request.headers.get("accept", "").split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if kind in ("text/html", "application/xhtml+xml"):
            html = max(html, weight)
        elif kind in (JSON, "text/plain", "application/openmetrics-text"):
            other = max(other, weight)
    return html > other


# Raw bytes.


def broken_text(entry: BrokenEntry) -> str:
    """The bytes of a broken entry as text. The admin layer has already hidden what looks like a secret."""
    return entry.payload.decode("utf-8", "replace")


def shown_key(job: JobView) -> str:
    """The unique key of a job without the arguments that it may contain."""
    head, brace, _ = job.unique_key.partition("{")
    return f"{head}{{...}}" if brace else job.unique_key
