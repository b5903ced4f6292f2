"""Codes of errors: why a request was refused, as stable words for programs. Every error of the API has one. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dayjob.admin.views import OutcomeKind
from dayjob.errors import (
    BadArguments,
    DayjobError,
    Full,
    NothingToUndo,
    Rejected,
    StoreError,
    TooLarge,
    Unknown,
    UnknownPool,
    UnknownQueue,
    UnknownSchedule,
)

ErrorCode = Literal[
    "bad_request", "bad_arguments", "job_too_large", "not_signed_in", "forbidden", "read_only", "other_site",
    "no_such_address", "not_found", "unknown_queue", "unknown_schedule", "unknown_pool", "unknown_limit", "unknown_batch", "unknown_workflow", "unknown_job", "unknown_failure", "nothing_to_undo", "method_not_allowed",
    "conflict", "moved", "not_allowed", "taken", "already", "too_large", "unsupported_media_type", "wrong_host",
    "too_many_attempts", "internal", "unavailable", "redis_unavailable", "redis_full", "redis_refused", "outcome_unknown",
]  # fmt: skip


class CodeRow(NamedTuple):
    """One code: the status it comes with, and what it means."""

    status: int
    text: str


#: The only list of codes. A code is never renamed or given another status.
CODES: dict[ErrorCode, CodeRow] = {
    "bad_request": CodeRow(400, "A field is missing, unknown, out of range or of a wrong type."),
    "bad_arguments": CodeRow(400, "The arguments do not fit the job type that pools announced."),
    "job_too_large": CodeRow(400, "The job is larger than the limit for payloads."),
    "not_signed_in": CodeRow(401, "Sign in with the password or token of the console."),
    "forbidden": CodeRow(403, "The role of the user does not allow this."),
    "read_only": CodeRow(403, "The console was started with --read-only."),
    "other_site": CodeRow(403, "The request came from a page of another site."),
    "no_such_address": CodeRow(404, "There is nothing at this address."),
    "not_found": CodeRow(404, "What was named does not exist."),
    "unknown_queue": CodeRow(404, "No queue has this name; the hint may name a similar one."),
    "unknown_schedule": CodeRow(404, "No schedule has this name."),
    "unknown_pool": CodeRow(404, "No pool has this id: it stopped, it died, or it never existed."),
    "unknown_limit": CodeRow(404, "No rate limit has this name."),
    "unknown_batch": CodeRow(404, "No batch has this id, or it succeeded more than a week ago."),
    "unknown_workflow": CodeRow(404, "No workflow has this id, or it succeeded more than a week ago."),
    "unknown_job": CodeRow(404, "No job has this id: it completed, was deleted or never existed."),
    "unknown_failure": CodeRow(404, "No job that was read is in retry or dead with this error."),
    "nothing_to_undo": CodeRow(404, "The bin has no deletion that could be undone, or not this one."),
    "method_not_allowed": CodeRow(405, "The address exists, but not for this method."),
    "conflict": CodeRow(409, "Something changed in the meantime. Nothing was changed."),
    "moved": CodeRow(409, "The job or entry is not where it was seen. Nothing was changed."),
    "not_allowed": CodeRow(409, "The state of the target does not allow this action. Nothing was changed."),
    "taken": CodeRow(409, "The unique key of the job belongs to another job. Nothing was changed."),
    "already": CodeRow(409, "The target was already in that state. Nothing was changed."),
    "too_large": CodeRow(413, "The body of the request is too large."),
    "unsupported_media_type": CodeRow(415, "The body is not application/json."),
    "wrong_host": CodeRow(421, "The console does not answer to this host name."),
    "too_many_attempts": CodeRow(429, "There were too many wrong passwords from this address; wait."),
    "internal": CodeRow(500, "A bug in dayjob; the log of the console has the details."),
    "unavailable": CodeRow(503, "The console is busy; try again."),
    "redis_unavailable": CodeRow(503, "There was no answer from Redis; try again."),
    "redis_full": CodeRow(503, "Redis is out of memory. Nothing was stored."),
    "redis_refused": CodeRow(503, "Redis refused the request: a wrong type, or no permission."),
    "outcome_unknown": CodeRow(
        503, "The answer of Redis was lost: the change may or may not have been made."
    ),
}

#: The code of a refusal that names none.
_BY_STATUS: dict[int, ErrorCode] = {
    400: "bad_request", 401: "not_signed_in", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 409: "conflict",
    413: "too_large", 415: "unsupported_media_type", 421: "wrong_host", 429: "too_many_attempts", 500: "internal", 503: "unavailable",
}  # fmt: skip

#: The code of an error of the admin layer; the first class that fits counts.
_BY_ERROR: tuple[tuple[type[DayjobError], ErrorCode], ...] = (
    (NothingToUndo, "nothing_to_undo"), (UnknownQueue, "unknown_queue"), (UnknownSchedule, "unknown_schedule"), (UnknownPool, "unknown_pool"), (BadArguments, "bad_arguments"), (TooLarge, "job_too_large"),
    (Full, "redis_full"), (Rejected, "redis_refused"), (Unknown, "outcome_unknown"), (StoreError, "redis_unavailable"),
)  # fmt: skip

#: The code of an action that changed nothing.
_BY_OUTCOME: dict[OutcomeKind, ErrorCode] = {
    "not_found": "not_found", "moved": "moved", "not_allowed": "not_allowed", "taken": "taken", "already": "already",
}  # fmt: skip


def code_of_status(status: int) -> ErrorCode:
    """The general code of a status."""
    return _BY_STATUS.get(status, "bad_request" if status < 500 else "internal")


def code_of_error(error: DayjobError) -> ErrorCode:
    """The code of an error of the admin layer."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), "bad_request")


def code_of_outcome(kind: OutcomeKind) -> ErrorCode:
    """The code of an action that changed nothing."""
    return _BY_OUTCOME.get(kind, "conflict")
