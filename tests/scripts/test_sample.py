from __future__ import annotations

import pytest

from dayjob.store.ops import figures, maintain

MINUTE = 77


@pytest.fixture
def sample(keys, link):
    return lambda *names, last=True: link.run(maintain.sample(keys, MINUTE, names, last=last))


@pytest.fixture
def minute(keys, link):
    return lambda: link.run(figures.minute(keys, MINUTE)).counts


def test_the_sizes_of_a_minute_are_noted_for_as_long_as_its_figures(sample, minute, put, call, keys):
    put("a", "1", "2")
    put("b", "1")
    assert sample("a", "b", "empty") == 2
    assert minute().sizes == {"a": 2, "b": 1}
    assert (minute().size("a"), minute().size("empty"), minute().size("unheard of")) == (2, 0, 0)
    assert 262_790 <= call("TTL", keys.minute(MINUTE)) <= figures.KEPT_SECONDS


def test_without_the_last_part_no_size_is_known(sample, minute, put):
    put("a", "1")
    sample("a", last=False)
    assert minute().sizes is None
    assert minute().size("a") is None
    sample(last=True)
    assert minute().size("a") == 1


def test_the_first_to_count_is_right(sample, minute, put):
    put("a", "1")
    sample("a")
    put("a", "2")
    assert sample("a") == 0
    assert minute().sizes == {"a": 1}


def test_a_queue_of_a_wrong_type_is_passed_over(sample, minute, put, call, keys):
    call("SET", keys.queue("a"), "x")
    put("b", "1")
    assert sample("a", "b") == 1
    assert minute().sizes == {"b": 1}


def test_a_minute_of_a_wrong_type_is_left_alone(sample, put, call, keys):
    put("a", "1")
    call("SET", keys.minute(MINUTE), "x")
    assert sample("a") == -1
    assert call("GET", keys.minute(MINUTE)) == b"x"
