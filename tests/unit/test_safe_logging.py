"""Log calls that never raise, whatever the program's log handlers, filters and record factories do."""

from __future__ import annotations

import logging

import pytest

from dayjob import safe_logging
from dayjob.safe_logging import SafeLogger


class Raising(logging.Handler):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        raise self.error


@pytest.fixture
def name(request, monkeypatch):
    """A logger of its own, whose failures no other test has shown yet."""
    monkeypatch.setattr(safe_logging, "_shown", [])
    found = f"test.{request.node.name}"
    logger = logging.getLogger(found)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    return found


@pytest.mark.parametrize("error", [OSError("collector is away"), SystemExit(3), KeyboardInterrupt()])
def test_what_a_handler_raises_is_shown_once_and_goes_no_further(name, error, capsys):
    logging.getLogger(name).addHandler(Raising(error))
    logger = SafeLogger(name)
    logger.debug("one %d", 1, extra={"job_id": "x"})
    logger.info("two")
    logger.warning("three")
    logger.error("four")
    logger.critical("five", exc_info=ValueError("a reason"))
    try:
        raise ValueError("another reason")
    except ValueError:
        logger.exception("six")
    shown = capsys.readouterr().err
    assert shown.count("a log line could not be written") == 1
    assert type(error).__name__ in shown
    assert "The line was: one 1" in shown
    assert "in emit" in shown


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical"])
def test_a_record_names_the_line_that_logged_it(name, level):
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    getattr(SafeLogger(name), level)("%s", level)
    (record,) = records
    assert (record.pathname, record.funcName) == (__file__, "test_a_record_names_the_line_that_logged_it")
    assert (record.levelname.lower(), record.getMessage(), record.exc_info) == (level, level, None)


def test_an_exception_is_logged_with_its_traceback(name):
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        raise ValueError("a reason")
    except ValueError as error:
        SafeLogger(name).exception("failed")
        given = (ValueError, error, error.__traceback__)
    (record,) = records
    assert record.exc_info == given
    assert record.funcName == "test_an_exception_is_logged_with_its_traceback"


def test_a_record_below_the_level_is_not_made(name, monkeypatch):
    logger = logging.getLogger(name)
    logger.setLevel(logging.WARNING)
    monkeypatch.setattr(logger, "makeRecord", None)
    SafeLogger(name).info("one")
    assert safe_logging._shown == []


def test_a_field_that_the_record_factory_sets_too_keeps_its_value_and_the_line_is_logged(name, capsys):
    handler = logging.Handler()
    records: list[logging.LogRecord] = []
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    before = logging.getLogRecordFactory()

    def factory(*args, **kwargs):
        record = before(*args, **kwargs)
        record.job_id = "of the program"
        return record

    logging.setLogRecordFactory(factory)
    try:
        SafeLogger(name).error("failed %s", "here", extra={"job_id": "of dayjob"})
    finally:
        logging.setLogRecordFactory(before)
    (record,) = records
    assert (record.getMessage(), record.job_id) == ("failed here", "of the program")
    assert capsys.readouterr().err == ""


def test_a_handler_that_raises_a_key_error_is_called_once(name):
    handler = Raising(KeyError("missing"))
    logging.getLogger(name).addHandler(handler)
    SafeLogger(name).error("failed", extra={"job_id": "x"})
    assert len(handler.records) == 1


def test_a_record_names_the_line_that_logged(name):
    handler = Raising(OSError())
    logging.getLogger(name).addHandler(handler)
    SafeLogger(name).info("here")
    assert handler.records[0].funcName == "test_a_record_names_the_line_that_logged"


def test_a_closed_stderr_is_no_reason_to_raise_either(name, monkeypatch):
    logging.getLogger(name).addHandler(Raising(OSError()))
    monkeypatch.setattr("sys.stderr", None)
    SafeLogger(name).info("here")
