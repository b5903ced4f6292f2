"""SafeLogger: log calls that never raise, on loggers that a configuration does not silence by accident.

Handlers, filters and record factories of the program run inside every log call, and each of them can fail: a log shipper
whose collector is away, for example. A log line must not cost an outcome, a worker thread or a loop.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Mapping

#: Never logs. No program has a reason to disable it by hand: if it is disabled, a logging configuration did it.
_WITNESS = logging.getLogger("dayjob.witness")
#: Not empty once this process has shown a failure.
_shown: list[bool] = []


class SafeLogger:
    """A logger of the standard library whose calls never raise. The first failure of a process is shown on stderr."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def is_enabled(self, level: int) -> bool:
        """Whether lines of this level are logged."""
        try:
            return self._logger.isEnabledFor(level)
        except BaseException as error:
            _show(error, "")
            return False

    def debug(self, text: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Log at DEBUG."""
        self._log(logging.DEBUG, text, args, extra)

    def info(self, text: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Log at INFO."""
        self._log(logging.INFO, text, args, extra)

    def warning(self, text: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Log at WARNING."""
        self._log(logging.WARNING, text, args, extra)

    def error(self, text: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Log at ERROR."""
        self._log(logging.ERROR, text, args, extra)

    def exception(self, text: str, *args: object) -> None:
        """Log at ERROR, with the exception that is being handled."""
        self._log(logging.ERROR, text, args, None, sys.exc_info()[1])

    def critical(self, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Log at CRITICAL, with the exception that is the reason."""
        self._log(logging.CRITICAL, text, args, None, exc_info)

    def _log(
        self,
        level: int,
        text: str,
        args: tuple[object, ...],
        extra: Mapping[str, object] | None,
        error: BaseException | None = None,
    ) -> None:
        # Handlers may raise anything, SystemExit too.
        try:
            while True:
                try:
                    self._write(level, text, args, extra, error)
                except KeyError as collision:
                    taken = _taken(collision, extra)
                    if taken is None or extra is None:
                        raise
                    # A record factory of the program sets a field of the same name: its value stands.
                    extra = {name: value for name, value in extra.items() if name != taken}
                else:
                    return
        except BaseException as problem:
            _show(problem, text, args)

    def _write(
        self,
        level: int,
        text: str,
        args: tuple[object, ...],
        extra: Mapping[str, object] | None,
        error: BaseException | None,
    ) -> None:
        """Like `Logger.log`, which is slower: it searches the stack for its caller, and that is known here."""
        logger = self._logger
        if not logger.isEnabledFor(level):
            return
        caller = sys._getframe(3)
        code = caller.f_code
        about = (type(error), error, error.__traceback__) if error is not None else None
        logger.handle(
            logger.makeRecord(
                logger.name, level, code.co_filename, caller.f_lineno, text, args, about, code.co_name, extra
            )
        )


def _taken(collision: KeyError, extra: Mapping[str, object] | None) -> str | None:
    """The field of `extra` that a record already had, if that is why a log call raised KeyError."""
    words = str(collision)
    return next((name for name in extra or () if f"Attempt to overwrite {name!r}" in words), None)


def _show(problem: BaseException, text: str, args: tuple[object, ...] = ()) -> None:
    """Write the first failure to stderr. stderr may be closed: then there is no place left to write to."""
    if _shown:
        return
    _shown.append(True)
    with contextlib.suppress(BaseException):
        # Without the exception that was being handled: its text may hold what is redacted.
        trace = "".join(traceback.format_exception(problem, chain=False))
        line = text % args if args else text
        sys.stderr.write(
            f"dayjob: a log line could not be written, because a log handler, filter or record factory raised "
            f"{type(problem).__name__}. Jobs go on; later failures of this kind are not shown.\n"
            f"    The line was: {line}\n{trace}"
        )
        sys.stderr.flush()


def restore_loggers() -> None:
    """Enable the loggers that a logging configuration disabled because it did not name them.

    That is the default of dictConfig and fileConfig, and would hide why a job died. Loggers that the configuration names
    keep their level and handlers. One that a program disabled by hand stays disabled, unless such a configuration came on top.
    """
    if not _WITNESS.disabled:
        return
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and (name == "dayjob" or name.startswith("dayjob.")):
            logger.disabled = False
