from __future__ import annotations

import pytest

from dayjob import wording
from dayjob.errors import BadOption


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("1w", 604800)],
)
def test_a_span_is_read_as_people_write_it(text, seconds):
    assert wording.read_span(text, "--in") == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "5 m", "-5", "5x", "1h30", "1e3", "5m!", "inf", "nan", "9" * 60 + "s"]
)
def test_what_is_no_span_is_refused_in_words(text):
    with pytest.raises(BadOption, match="--in .* 90s, 5m, 1h30m or 2d"):
        wording.read_span(text, "--in")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (0.44, "0.4 s"), (42, "42 s"), (180, "3 min"), (9000, "2.5 h"), (1e6, "12 days")],
)
def test_a_span_is_told_roughly(seconds, text):
    assert wording.span(seconds) == text


def test_a_number_of_things_has_its_plural():
    assert [wording.counted(number, "job") for number in (0, 1, 2000)] == ["0 jobs", "1 job", "2,000 jobs"]
