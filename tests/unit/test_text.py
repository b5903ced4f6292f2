from __future__ import annotations

import json
import logging
import sys

import pytest

from dayjob.cli.logs import JSONLines, TextLines
from dayjob.errors import BadOption
from dayjob.text import counted, escaped, escaped_json, read_span, span


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("1w", 604800)],
)
def test_a_span_is_read_as_people_write_it(text, seconds):
    assert read_span(text, "--in") == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "5 m", "-5", "5x", "1h30", "1e3", "5m!", "inf", "nan", "9" * 60 + "s"]
)
def test_what_is_no_span_is_refused_in_words(text):
    with pytest.raises(BadOption, match="--in .* 90s, 5m, 1h30m or 2d"):
        read_span(text, "--in")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (42, "42 s"),
        (180, "3 min"),
        (9000, "2.5 h"),
        (1e6, "12 days"),
        (1e8, "1,157 days"),
    ],
)
def test_a_span_is_told_roughly(seconds, text):
    assert span(seconds) == text


def test_a_number_of_things_has_its_plural():
    assert [counted(number, "job") for number in (0, 1, 2000)] == ["0 jobs", "1 job", "2,000 jobs"]


HOSTILE = [
    "\x1b[2J\x1b]0;title\x07", "\x9b31m", "\x85", "\r", "\x0b\x0c", "\x1c\x1d\x1e", "\u2028\u2029", "\u202e", "\u2066\u2069",
    "\u200f", "\u061c", "\x00", "\x7f", "\ud800", "\U000e0001",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_others_reaches_a_terminal_unescaped(text):
    shown = escaped(f"a{text}b")
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape").encode("utf-16", "surrogatepass") == f"a{text}b".encode(
        "utf-16", "surrogatepass"
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_json_for_a_terminal_is_escaped_and_means_the_same(text):
    shown = escaped_json(json.dumps({"a": text, text: ["b"]}, ensure_ascii=False, indent=2))
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {"a": text, text: ["b"]}


def test_plain_text_stays_as_it_is():
    assert escaped("Zürich, 東京: 100 %") == "Zürich, 東京: 100 %"


@pytest.mark.parametrize("text", [*HOSTILE, "\n"])
@pytest.mark.parametrize("raised", [True, False])
def test_a_text_log_shows_one_line_at_the_margin_for_each_record(text, raised):
    forged = f"x{text}\n12:00:00 INFO     1 dayjob: forged"
    try:
        raise ValueError(forged)
    except ValueError:
        info = sys.exc_info() if raised else None
    record = logging.LogRecord("dayjob.job", logging.ERROR, __file__, 1, "failed: %s", (forged,), info)
    lines = TextLines().format(record).split("\n")
    assert [line for line in lines if not line.startswith("    ")] == lines[:1]
    assert all(line.isprintable() for line in lines)
    assert "    12:00:00 INFO     1 dayjob: forged" in lines


def test_a_traceback_in_a_text_log_stays_readable():
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("dayjob", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    _, *more = TextLines().format(record).split("\n")
    assert more[0] == "    Traceback (most recent call last):"
    assert more[1].startswith('      File "')
    assert more[-1] == "    ValueError: no"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_json_log_is_one_printable_line_that_means_the_same(text):
    record = logging.LogRecord("dayjob", logging.ERROR, __file__, 1, "failed: %s", (text,), None)
    line = JSONLines().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"failed: {text}"


def test_a_text_record_whose_message_ends_with_a_line_end_has_no_empty_line():
    record = logging.LogRecord(
        "dayjob.job", logging.ERROR, "", 0, "is dead\nTraceback\nValueError: no\n", (), None
    )
    assert TextLines().format(record).split("\n")[1:] == ["    Traceback", "    ValueError: no"]
