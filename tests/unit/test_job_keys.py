"""Keys of jobs: what they are made of, and how strange and long ones are stored."""

from __future__ import annotations

import pytest

from dayjob.handlers.job_keys import MAX_KEY_BYTES, stored_key

STRANGE = {
    "ten kilobytes": "k" * 10_240,
    "one byte too long": "x" * 65,
    "letters of two bytes": "ü" * 40,
    "letters of four bytes": "\N{GRINNING FACE}" * 40,
    "line breaks": "a\nb\r\n" * 30,
    "a separator": "a|b~c:d{e}",
    "nothing": "",
    "spaces": " a ",
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_a_key_as_consoles_show_it_is_the_same_key(text):
    shown = stored_key(text)
    assert stored_key(shown) == shown
    assert len(shown.encode()) <= MAX_KEY_BYTES
    assert shown.isprintable()
    assert text.startswith(shown.partition("~")[0]) or "\n" in text


def test_long_keys_that_begin_alike_are_different_keys():
    assert len({stored_key("k" * 10_000 + str(n)) for n in range(100)}) == 100
