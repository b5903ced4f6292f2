"""Logging for commands: one line per event, on stderr. Logging that the program has configured is not changed."""

from __future__ import annotations

import logging
import sys
import time

from dayjob.job import running
from dayjob.logging import JSONLines
from dayjob.text import escaped

#: Fields of a record about its job, as text lines show them.
_FIELDS = ("job_name", "job_id", "attempt")


def set_up(*, form: str = "auto", warnings_only: bool = False) -> None:
    """Send log lines to stderr, as JSON if it is not a terminal or if asked for. Does nothing if handlers exist."""
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
        # On a terminal every completed job gets a line too.
        logging.getLogger("dayjob.job").setLevel(logging.DEBUG)


def add_job(record: logging.LogRecord) -> bool:
    """Add the name, ID and attempt of the running job to a record."""
    job = running.get()
    if job is not None and not hasattr(record, "job_id"):
        record.job_name, record.job_id, record.attempt = job.name, job.id, job.attempt
        record.from_handler = True
    return True


class TextLines(logging.Formatter):
    """One line of text. Further lines, such as those of a traceback, are indented, so a line at the margin is a new record.

    Control characters are escaped, because messages contain untrusted text.
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
