"""Logging for commands: one line per event, on stderr. A program that has set up logging itself is left alone."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Literal

from dayjob.job import running
from dayjob.text import escaped, escaped_json

Format = Literal["auto", "text", "json"]

#: What a record may carry about the job that it is of.
_FIELDS = ("job_name", "job_id", "attempt")
#: What every record has, and what is shown already; all else is from `extra`.
_STANDARD = {
    *vars(logging.LogRecord("", 0, "", 0, "", (), None)), *_FIELDS, "message", "asctime", "taskName", "from_handler",
}  # fmt: skip


def set_up(*, form: str = "auto", warnings_only: bool = False) -> None:
    """Send log lines to stderr: JSON when it is no terminal, or when asked for; nothing when handlers exist."""
    root = logging.getLogger()
    if root.handlers:
        return
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.addFilter(add_job)
    handler.setFormatter(JSONLines() if as_json else TextLines())
    root.addHandler(handler)
    root.setLevel(logging.WARNING if warnings_only else logging.INFO)
    if sys.stderr.isatty() and not warnings_only:
        # Somebody is looking: every job that is done gets a line too.
        logging.getLogger("dayjob.job").setLevel(logging.DEBUG)


def add_job(record: logging.LogRecord) -> bool:
    """Give a record that was logged while a job runs that job's name, id and attempt."""
    job = running.get()
    if job is not None and not hasattr(record, "job_id"):
        record.job_name, record.job_id, record.attempt = job.name, job.id, job.attempt
        record.from_handler = True
    return True


class JSONLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record) + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        line |= {field: getattr(record, field) for field in _FIELDS if hasattr(record, field)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        for name, value in _extra(record).items():
            line[f"extra_{name}" if name in line or name == "traceback" else name] = value
        return escaped_json(json.dumps(line, ensure_ascii=False, default=str))


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """What the program gave as `extra`, as JSON values."""
    return {name: _json_value(value) for name, value in vars(record).items() if name not in _STANDARD}


def _json_value(value: Any) -> Any:
    # A __str__ of others may raise anything; the line must not be lost for it.
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False))
    except Exception:
        try:
            return str(value)
        except Exception:
            return f"({type(value).__name__}, which cannot be shown)"


class TextLines(logging.Formatter):
    """One line for people. Further lines, as of a traceback, are indented: what begins at the margin is a record.

    Control characters are escaped, because messages hold texts of others.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        about = ""
        if getattr(record, "from_handler", False):
            about = " job={} id={} attempt={}".format(*(getattr(record, field) for field in _FIELDS))
        first, *more = record.getMessage().split("\n")
        if record.exc_info:
            more += self.formatException(record.exc_info).split("\n")
        lines = [f"{when} {record.levelname:<8} {record.process} {record.name}: {first}{about}"]
        # A stored traceback ends with a line end.
        while more and not more[-1]:
            more.pop()
        lines += [f"    {line}" for line in more]
        return "\n".join(map(escaped, lines))


def _utc(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}"
