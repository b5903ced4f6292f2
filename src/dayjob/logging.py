"""Log records that name the job they were made in, under the logging configuration of your program.

`JobFilter` and `set_record_factory` are for the standard library, `JSONLines` writes records as JSON, and `add_job` is a
processor for structlog. `pool.carry(variable)` lets a context variable, such as a request ID, travel with every job.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from dayjob.handlers.redact import is_hidden
from dayjob.job import running
from dayjob.text import escaped_json

#: The value of a field where there is none, so that a format with `%(job_id)s` works outside of jobs too.
NONE = "-"
#: Fields of a record about its job.
FIELDS = ("job_name", "job_id", "attempt", "source")
#: Fields that every record has, or that are shown anyway; all others come from `extra`.
_STANDARD = {
    *vars(logging.LogRecord("", 0, "", 0, "", (), None)), *FIELDS, "message", "asctime", "taskName", "from_handler",
}  # fmt: skip


def job_fields(headers: Iterable[str] = ()) -> dict[str, Any]:
    """What is known about the job that runs here, and those of its headers; empty outside of jobs.

    A header `request-id` becomes the field `request_id`. The value of one that looks like a secret is left out.
    """
    job = running.get()
    if job is None:
        return {}
    fields: dict[str, Any] = {"job_name": job.name, "job_id": job.id, "attempt": job.attempt}
    if job.source is not None:
        fields["source"] = job.source
    names = tuple(headers)
    if names:
        opened = job.open()
        found = opened.headers
        fields |= {
            _field(name): found[name]
            for name in names
            if name in found and not is_hidden(name, opened.redact)
        }
    return fields


class JobFilter(logging.Filter):
    """Adds `job_name`, `job_id`, `attempt` and `source` to every record, and the job's headers of these names.

    Add it to your handlers. A field that the record has already is kept, and one without a value is "-".
    """

    def __init__(self, headers: Iterable[str] = ()) -> None:
        super().__init__()
        # A configuration as a dict or a file may give one name as a text.
        self._headers = (headers,) if isinstance(headers, str) else tuple(headers)
        self._fields = (*FIELDS, *map(_field, self._headers))

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields. Every record passes."""
        found = job_fields(self._headers)
        for name in self._fields:
            if not hasattr(record, name):
                setattr(record, name, found.get(name, NONE))
        return True


def set_record_factory(headers: Iterable[str] = ()) -> None:
    """Add the fields of JobFilter to every record of this process, whatever handler gets it.

    The records are still made by the factory that was set before. As with every record factory, a log call that passes
    one of the fields in `extra` raises KeyError.
    """
    make, add = logging.getLogRecordFactory(), JobFilter(headers)

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        add.filter(record)
        return record

    logging.setLogRecordFactory(factory)


def add_job(
    logger: Any,  # noqa: ARG001 - what structlog passes to a processor
    method: str,  # noqa: ARG001 - as above
    event: MutableMapping[str, Any],
    headers: Iterable[str] = (),
) -> MutableMapping[str, Any]:
    """A processor for structlog: adds the fields of the running job. Fields that are bound already are kept.

    `functools.partial(add_job, headers=["request-id"])` also adds the job's headers of these names.
    """
    for name, value in job_fields(headers).items():
        event.setdefault(name, value)
    return event


class JSONLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, process, job, the program's `extra` fields and exception."""

    def __init__(self, headers: Iterable[str] = ()) -> None:
        super().__init__()
        self._headers = (headers,) if isinstance(headers, str) else tuple(headers)

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        line: dict[str, Any] = {
            "time": _utc(record) + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        line |= self._job(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        for name, value in _extra(record).items():
            # A field of JobFilter that has the same value is there already.
            if line.get(name, NONE) != value:
                line[f"extra_{name}" if name in line or name == "traceback" else name] = value
        return escaped_json(json.dumps(line, ensure_ascii=False, default=str))

    def _job(self, record: logging.LogRecord) -> Mapping[str, Any]:
        """What the record names of its job, else what runs here."""
        own = {field: getattr(record, field) for field in FIELDS if getattr(record, field, NONE) != NONE}
        return job_fields(self._headers) | own


def _field(header: str) -> str:
    return header.replace("-", "_")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """The program's `extra` fields, as JSON values."""
    return {name: _json_value(value) for name, value in vars(record).items() if name not in _STANDARD}


def _json_value(value: Any) -> Any:
    # The __str__ of the program's classes may raise anything; the log line must not be lost.
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False))
    except Exception:
        try:
            return str(value)
        except Exception:
            return f"({type(value).__name__}, which cannot be shown)"


def _utc(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}"
