"""Failure: the message and traceback of an exception, for storing and logging."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from types import TracebackType

import msgspec

from dayjob.errors import DayjobError
from dayjob.handlers.redact import secrets_in, without
from dayjob.job import Job
from dayjob.store import codec
from dayjob.worker.running.traces import OURS, format_error
from dayjob.worker.status.stacks import is_own


class Failure(msgspec.Struct, frozen=True):
    """An exception that ended an attempt, with a message and traceback that contain no redacted values."""

    error: BaseException
    message: str
    trace: str
    secrets: Sequence[str] = ()

    def redacted(self, text: str) -> str:
        """`text` without the values of the job's redacted arguments."""
        return without(text, self.secrets)

    @property
    def where(self) -> str:
        """The last line of the program's own code before the error was raised, for a log line; else the line that raised it."""
        own = last = None
        frame = self.error.__traceback__
        while frame is not None:
            last, frame = frame, frame.tb_next
            if is_own(last.tb_frame.f_code.co_filename):
                own = last
        shown = own or last
        return "" if shown is None else f" at {shown.tb_frame.f_code.co_filename}:{shown.tb_lineno}"


def explain(error: BaseException, job: Job) -> Failure:
    """Describe an error of a job, without the values of its redacted arguments."""
    secrets = _secrets(job)
    # Redacted before it is cut, because a secret that is cut in half would not be found.
    message, trace = (codec.cut(without(text, secrets)) for text in _describe(error))
    return Failure(error, message, trace, secrets)


def _secrets(job: Job) -> list[str]:
    """The values of redacted arguments, which must not be stored or logged."""
    try:
        return secrets_in(job.args, tuple(job.redact))
    except codec.UNREADABLE:
        return []


def _describe(error: BaseException) -> tuple[str, str]:
    """Message and traceback of an exception, even if its str() raises."""
    try:
        text = str(error)
    except BaseException:
        text = "(the message of this exception cannot be shown)"
    kind = type(error).__name__
    message = f"{kind}: {text}" if text else kind
    try:
        trace = format_error(error, _from_handler(error))
    except BaseException:
        # Formatting can fail, for example because of a `__cause__` whose str() raises. Extracting frames cannot.
        frames = traceback.extract_tb(error.__traceback__)
        lines = "".join(
            f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n' for frame in frames
        )
        trace = f"Traceback (most recent call last):\n{lines}{message}"
    return message, trace


def _from_handler(error: BaseException) -> TracebackType | None:
    """The traceback without the frames that lead to the handler. None for an error that dayjob itself raised."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(OURS):
        frame = frame.tb_next
    return frame if frame is not None or isinstance(error, DayjobError) else error.__traceback__
