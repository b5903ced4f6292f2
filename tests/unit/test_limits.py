"""The values of limits: what is refused, and how they are written to Redis and back."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from dayjob import BadOption, Concurrency, Job, Rate, Throttled, Window, WorkerPool
from dayjob.limits import Limit, allows, read_definition
from dayjob.options import JobOptions
from dayjob.outcome import HeldBack, Snoozed
from dayjob.retry import decide


@pytest.mark.parametrize("kind", [Rate, Window])
@pytest.mark.parametrize("n", [0, -1, 1.5, math.inf, math.nan, "5", True, None, 10**12])
def test_a_number_that_is_no_number_of_jobs_is_refused(kind, n):
    with pytest.raises(BadOption, match="give a whole number"):
        kind(n)


@pytest.mark.parametrize("kind", [Rate, Window])
@pytest.mark.parametrize("per", [0, -1, math.inf, math.nan, "1", True, None, 1e9, timedelta(0)])
def test_a_time_that_is_no_time_is_refused(kind, per):
    with pytest.raises(BadOption, match="give seconds"):
        kind(5, per=per)


def test_other_limits_that_cannot_be_are_refused():
    with pytest.raises(BadOption, match="burst=0"):
        Rate(5, burst=0)
    with pytest.raises(BadOption, match="units in a second"):
        Rate(10_000_000, per=1)
    with pytest.raises(BadOption, match="more than a year"):
        Rate(1, per=86_400, burst=1000)
    with pytest.raises(BadOption, match="give a whole number"):
        Concurrency(0)


def options(**settings):
    return JobOptions.of(settings, "job 'a'").for_job("a", "job 'a'")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"limits": [Rate(100, burst=4)], "cost": 5}, "cost=5 is above the burst 4 of the limit 'a/rate'"),
        ({"limits": [Rate(1), 5]}, "5 is no limit"),
        ({"limits": Rate(1)}, "give a list"),
        ({"limits": "stripe"}, "give a list"),
        ({"limits": [Concurrency(1), Concurrency(2)]}, "two Concurrency"),
        ({"limits": [Concurrency(1)], "max_concurrency": 2}, "not both"),
        ({"limits": [Limit("x", Rate(1))] * 2}, "given twice"),
        ({"cost": 0}, "give a whole number"),
    ],
)
def test_limits_of_a_job_type_that_cannot_be_are_refused(settings, problem):
    with pytest.raises(BadOption, match=problem):
        options(**settings)


def test_a_limit_without_a_name_has_that_of_its_job_type_and_a_concurrency_is_max_concurrency():
    found = options(limits=[Rate(1), Window(2), Rate(3), Limit("x", Rate(4)), Concurrency(5)])
    assert [one.name for one in found.limits] == ["a/rate", "a/window", "a/rate-2", "x"]
    assert found.max_concurrency == 5


def test_a_definition_is_read_as_it_was_written():
    for kind in (Rate(100, per=1, burst=20), Rate(5, per=timedelta(minutes=1)), Window(3, per=0.5)):
        assert read_definition(kind.definition()) == kind
    for text in ("lifted", "", "rate", "rate 1 2", "rate x 1 1", "window 0 5", "other 1 2"):
        assert read_definition(text) is None


def test_what_a_limit_allows_in_words():
    assert allows(Rate(100, per=1, burst=20)) == "100 per second, burst 20"
    assert allows(Window(3, per=10)) == "3 in any 10 s"
    assert allows(None) == "lifted"


def test_only_rates_and_windows_can_be_shared():
    with pytest.raises(BadOption, match="Concurrency belongs to one job type"):
        WorkerPool().limit("x", Concurrency(3))  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="job name 'a b'"):
        WorkerPool().limit("a b", Rate(3))


def test_throttled_holds_the_limits_that_it_names_or_all():
    import random

    both = options(limits=[Rate(1), Limit("x", Rate(2))])
    rng = random.Random(0)
    assert decide(both, Throttled(after=3), 0, rng).limits == ("a/rate", "x")  # type: ignore[union-attr]
    for limit in ("x", Limit("x", Rate(2)), Rate(2)):
        found = decide(both, Throttled("429", after=3, limit=limit), 0, rng)
        assert found == HeldBack(("x",), 3, "throttled: 429")
    other = decide(both, Throttled(after=3, limit="y"), 0, rng)
    assert isinstance(other, Snoozed)
    assert "has no limit 'y', so the job was snoozed" in other.why
    assert isinstance(decide(options(), Throttled(after=3), 0, rng), Snoozed)
    for after in (-1, math.inf, math.nan, "soon"):
        wrong = decide(both, Throttled(after=after), 0, rng)  # type: ignore[arg-type]
        assert isinstance(wrong, Snoozed)
        assert "is not seconds from 0 to ten years; the backoff was used" in wrong.why


def test_what_a_job_spends_adds_up_and_must_be_a_number_of_units():
    job = Job("a")
    assert job.spent is None
    job.spend(2)
    job.spend(0.5)
    assert job.spent == 2.5
    for units in (-1, math.inf, math.nan, "3", True, None):
        with pytest.raises(BadOption):
            job.spend(units)  # type: ignore[arg-type]
