"""AttemptLog: keeps the last lines that an attempt logged, for job types with `keep_logs`.

One handler of the root logger serves all pools of a process. It finds the attempt by the context variable that the runner
sets, so it works in threads and in tasks. It never raises into the program that logs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from dayjob.handlers.redact import secrets_in, without
from dayjob.job import running
from dayjob.store import codec

if TYPE_CHECKING:
    from dayjob.worker.running.attempt import Attempt

#: Of one log record: the most characters that are kept, and its place in a line.
MAX_LINE_CHARS = 16_384
_CUT = "... (earlier lines were dropped)\n"


class AttemptLog:
    """The last lines of one attempt, within a number of bytes."""

    __slots__ = ("_dropped", "_lines", "_lock", "_most", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: deque[str] = deque()
        self._size = 0
        self._dropped = False
        # A handler may log from several threads that share its context.
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        """Add a line, and drop the oldest ones that do not fit any more."""
        line = line[: min(MAX_LINE_CHARS, self._most // 4)]
        with self._lock:
            self._lines.append(line)
            self._size += _bytes(line)
            while self._size > self._most - len(_CUT):
                self._size -= _bytes(self._lines.popleft())
                self._dropped = True

    def redacted(self, attempt: Attempt) -> bytes:
        """The lines without the values of the job's redacted arguments."""
        with self._lock:
            text = (_CUT if self._dropped else "") + "".join(f"{line}\n" for line in self._lines)
        try:
            secrets = secrets_in(attempt.open().args, attempt.job_type.options.redact)
        except codec.UNREADABLE:
            secrets = []
        # A value may become longer when it is replaced.
        return without(text, secrets).encode("utf-8", "backslashreplace")[-self._most :]


def _bytes(line: str) -> int:
    return len(line.encode("utf-8", "backslashreplace")) + 1


class AttemptLogHandler(logging.Handler):
    """Adds log records to the attempt in whose context they were made."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, if the attempt that runs here keeps its logs."""
        attempt = running.get()
        job_type = getattr(attempt, "job_type", None)
        most = None if job_type is None else job_type.options.keep_logs
        if most is None or attempt is None or getattr(attempt, "over", True):
            return
        try:
            line = _line(record, self)
        except Exception:
            # A record whose text cannot be made is reported as logging does it, on stderr.
            self.handleError(record)
            return
        log = attempt.log  # type: ignore[attr-defined]
        if log is None:
            log = attempt.log = AttemptLog(most)  # type: ignore[attr-defined]
        log.add(line)


def _line(record: logging.LogRecord, handler: logging.Handler) -> str:
    moment = time.strftime("%H:%M:%S", time.gmtime(record.created))
    return f"{moment}.{int(record.msecs):03d} {record.levelname} {record.name}: {handler.format(record)}"


class LogInstallation:
    """Puts the handler on the root logger while at least one pool of this process needs it."""

    def __init__(self) -> None:
        self._handler = AttemptLogHandler()
        self._users = 0
        self._lock = threading.Lock()

    def install(self) -> None:
        """Add the handler, or restore it if a logging configuration removed it."""
        with self._lock:
            self._users += 1
            logging.root.addHandler(self._handler)

    def remove(self) -> None:
        """Remove the handler if no other pool needs it."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                logging.root.removeHandler(self._handler)


#: The handler of this process.
installation = LogInstallation()
