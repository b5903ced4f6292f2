"""Backoffs, and the fate of failed attempts."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from dayjob import retry
from dayjob.errors import (
    BadArguments,
    BadOption,
    Dead,
    Discard,
    GiveBack,
    JobTimeout,
    Retry,
    Signal,
    Snooze,
    Throttled,
)
from dayjob.options import JobOptions
from dayjob.outcome import Died, Dropped, GivenBack, Retried, Snoozed, counts_failure
from dayjob.retry import MAX_SECONDS, Delay, constant, decide, delay, exponential, gocraft


@pytest.fixture
def rng():
    return random.Random(7)


class Highest(random.Random):
    def random(self):
        return 1 - 2**-53


class Lowest(random.Random):
    def random(self):
        return 0.0


@pytest.mark.parametrize(
    ("fails", "low", "high"), [(1, 16, 76), (2, 31, 121), (3, 96, 216), (10, 10_015, 10_345)]
)
def test_the_default_wait_grows_with_the_fourth_power_of_the_fails(fails, low, high):
    assert gocraft(fails, Lowest()) == low
    assert gocraft(fails, Highest()) == pytest.approx(high)
    assert len({gocraft(fails, random.Random(seed)) for seed in range(20)}) == 20


def test_an_exponential_backoff_doubles_up_to_its_cap():
    backoff = exponential(base=3, cap=50, jitter=False)
    assert [backoff(n) for n in (1, 2, 3, 4, 5, 6, 1_000_000)] == [3, 6, 12, 24, 48, 50, 50]


def test_jitter_keeps_between_half_and_all_of_the_wait():
    backoff = exponential(base=8, cap=64)
    for fails, full in ((1, 8), (2, 16), (4, 64), (90, 64)):
        waits = [backoff(fails) for _ in range(200)]
        assert all(full / 2 <= wait <= full for wait in waits)
        assert max(waits) - min(waits) > full / 5


def test_a_constant_backoff_is_constant():
    assert [constant(5)(n) for n in (1, 2, 99)] == [5, 5, 5]
    assert constant(timedelta(minutes=2))(1) == 120


@pytest.mark.parametrize(
    "make",
    [
        lambda: exponential(base=-1),
        lambda: exponential(factor=0.5),
        lambda: exponential(cap=float("nan")),
        lambda: exponential(base="1"),
        lambda: exponential(cap=True),
        lambda: constant(-1),
        lambda: constant(1e10),
        lambda: constant("5"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused_where_it_is_made(make):
    with pytest.raises(BadOption, match=r"exponential|constant"):
        make()


def test_a_backoff_may_be_a_function_a_number_a_duration_or_nothing(rng):
    assert delay(lambda n: n * 2, 3, rng) == Delay(6.0)
    assert delay(lambda n: timedelta(minutes=n), 3, rng) == Delay(180.0)
    assert delay(12.5, 3, rng) == Delay(12.5)
    assert delay(0, 3, rng) == Delay(0.0)
    assert delay(None, 3, random.Random(1)) == Delay(gocraft(3, random.Random(1)))


def test_a_backoff_is_told_how_many_fails_there_were(rng):
    asked = []
    delay(lambda n: asked.append(n) or 1, 5, rng)
    assert asked == [5]


class Unprintable:
    def __repr__(self):
        raise RuntimeError


def leave(_fails):
    raise SystemExit


@pytest.mark.parametrize(
    ("backoff", "word"),
    [
        (lambda n: 1 / 0, "raised ZeroDivisionError"),
        (lambda: 5, "raised TypeError"),
        (leave, "raised SystemExit"),
        (lambda n: -1, "gave -1"),
        (lambda n: float("nan"), "gave nan"),
        (lambda n: float("inf"), "gave inf"),
        (lambda n: MAX_SECONDS * 1.01, "gave 31"),
        (lambda n: 10**5000, "gave <int>"),
        (lambda n: "30", "gave '30'"),
        (lambda n: True, "gave True"),
        (lambda n: None, "gave None"),
        (lambda n: timedelta(days=-1), "gave datetime.timedelta"),
        (lambda n: Unprintable(), "gave <Unprintable>"),
        (lambda n: "x" * 10_000, "..."),
        (1e11, "gave 100000000000.0"),
    ],
)
def test_a_broken_backoff_is_replaced_by_the_default_with_a_note(backoff, word):
    wait, note = delay(backoff, 2, random.Random(1))
    assert wait == gocraft(2, random.Random(1))
    assert word in note
    assert "default" in note
    assert len(note) < 200


def test_no_wait_is_longer_than_ten_years(rng):
    assert delay(None, 1_000_000, rng) == Delay(MAX_SECONDS)


def fate(exception, fails=0, **options):
    return decide(JobOptions.of(options, "test"), exception, fails, random.Random(3))


def test_an_exception_is_retried_by_the_backoff_and_counts():
    assert fate(ValueError("x"), 1, backoff=9) == Retried(9.0, "fail 2 of 4")
    assert fate(ValueError("x")).after == gocraft(1, random.Random(3))
    asked = []
    fate(ValueError(), 2, backoff=lambda n: asked.append(n) or 1)
    assert asked == [3]


@pytest.mark.parametrize("exception", [ValueError("x"), Retry("x", after=5), SystemExit(), BadArguments("x")])
def test_a_job_is_dead_after_as_many_failed_runs_as_max_fails_says(exception):
    kinds = [type(fate(exception, fails, max_fails=3)) for fails in range(4)]
    assert kinds == [Retried, Retried, Died, Died]
    assert isinstance(fate(exception, max_fails=1), Died)
    assert counts_failure(fate(exception, max_fails=1))


def test_skip_dead_drops_what_would_be_dead_by_the_options_but_obeys_the_signal():
    assert isinstance(fate(ValueError(), 3, skip_dead=True), Dropped)
    assert isinstance(fate(Retry(), 3, skip_dead=True), Dropped)
    assert isinstance(fate(ValueError(), skip_dead=True, retry_on=KeyError), Dropped)
    assert isinstance(fate(ValueError(), 2, skip_dead=True), Retried)
    assert isinstance(fate(Dead("no use"), skip_dead=True), Died)


def test_only_the_exceptions_of_retry_on_are_retried():
    assert isinstance(fate(ConnectionResetError(), retry_on=(ConnectionError, KeyError)), Retried)
    decision = fate(ValueError("secret"), retry_on=ConnectionError)
    assert decision == Died(True, "ValueError is not in retry_on")
    assert isinstance(fate(JobTimeout("slow"), retry_on=TimeoutError), Retried)
    assert isinstance(fate(ValueError(), retry_on=()), Died)


def test_the_exceptions_of_discard_on_end_the_job_uncounted_whatever_retry_on_says():
    decision = fate(KeyError("secret"), 3, discard_on=LookupError, retry_on=KeyError)
    assert decision == Dropped(False, "KeyError is in discard_on")


def test_signals_are_obeyed_before_the_options():
    everything = {"discard_on": Exception, "retry_on": KeyError}
    assert fate(Retry("busy", after=30), **everything) == Retried(30.0, "fail 1 of 4: busy")
    assert fate(Snooze("later", after=30), 9, **everything) == Snoozed(30.0, "snoozed: later")
    assert fate(Discard("gone"), **everything) == Dropped(False, "discarded: gone")
    assert fate(Dead("no use"), **everything) == Died(True, "sent to dead: no use")


def test_a_retry_without_a_time_takes_the_backoff():
    assert fate(Retry("busy"), 1, backoff=lambda n: n * 10) == Retried(20.0, "fail 2 of 4: busy")


def test_a_signal_may_give_its_time_as_a_duration():
    assert fate(Retry(after=timedelta(minutes=1))).after == 60
    assert fate(Snooze(after=timedelta(hours=1))).after == 3600


@pytest.mark.parametrize("after", [-1, float("nan"), "soon", 1e11, True, Unprintable()])
@pytest.mark.parametrize("signal", [Retry, Snooze])
def test_a_signal_with_a_time_that_makes_no_sense_takes_the_backoff_and_says_so(signal, after):
    decision = fate(signal("busy", after=after), backoff=7)
    assert type(decision) is {Retry: Retried, Snooze: Snoozed}[signal]
    assert decision.after == 7
    assert f"{signal.__name__}(after=" in decision.why


def test_a_snooze_never_runs_out():
    assert fate(Snooze(after=0), 1000, max_fails=1) == Snoozed(0.0, "snoozed")


def test_signals_of_ones_own_work_like_their_parents_and_a_bare_one_is_an_exception():
    class Busy(Retry):
        def __init__(self):
            pass

    assert fate(Busy(), backoff=5) == Retried(5.0, "fail 1 of 4")
    assert isinstance(fate(Signal("x")), Retried)


def test_a_signal_may_be_given_a_reason_of_any_kind():
    assert fate(Discard(ValueError("x"))).why == "discarded: ValueError('x')"
    assert fate(Discard(Unprintable())).why == "discarded: <Unprintable>"


def test_a_broken_backoff_is_told_in_the_reason():
    decision = fate(ValueError("secret"), backoff=lambda n: 1 / 0)
    assert isinstance(decision, Retried)
    assert decision.after == gocraft(1, random.Random(3))
    assert decision.why == "fail 1 of 4; backoff raised ZeroDivisionError; the default was used"


def test_the_reason_never_holds_the_text_of_an_exception():
    for options in ({}, {"max_fails": 1}, {"retry_on": KeyError}, {"discard_on": ValueError}):
        assert "secret" not in fate(ValueError("secret"), **options).why


def test_a_give_back_counts_nothing_whatever_the_options_say():
    expected = GivenBack(why="given back: stopping")
    assert fate(GiveBack("stopping"), 9, max_fails=1, retry_on=KeyError) == expected


@pytest.mark.parametrize(
    ("error", "low", "high"),
    [(ConnectionResetError(), 60, 60), (OSError(), 5, 5), (TimeoutError(), 2, 2), (ValueError(), 16, 76)],
    ids=["the nearest base class", "its own class", "a function", "no class: the default"],
)
def test_a_backoff_may_depend_on_the_error(error, low, high):
    by_error = {OSError: 5, ConnectionError: 60, TimeoutError: lambda fails: fails * 2}
    options = JobOptions.of({"backoff": by_error}, "job 'x'")
    outcome = decide(options, error, 0, random.Random(1))
    assert isinstance(outcome, Retried)
    assert low <= outcome.after <= high


@pytest.mark.parametrize(
    ("backoff", "words"),
    [
        ({int: 5}, "is no exception class"),
        ({OSError: -1}, "must not be negative"),
        ({OSError: None}, "give OSError seconds"),
    ],
)
def test_a_wrong_backoff_by_error_is_refused_at_registration(backoff, words):
    with pytest.raises(BadOption, match=words):
        JobOptions.of({"backoff": backoff}, "job 'x'")


@pytest.mark.parametrize(
    "error",
    [
        ValueError(), KeyError(), OSError(), SystemExit(1), Retry(), Dead(), Discard(), Snooze(after=1), GiveBack(),
        Throttled(after=1),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("fails", [0, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"discard_on": [ValueError]}, {"retry_on": [KeyError]}, {"skip_dead": True, "retry_on": [OSError]}],
    ids=str,
)
def test_what_counts_as_a_failure_and_as_the_last_one_is_what_decide_makes_of_it(error, fails, options):
    chosen = JobOptions.of({"max_fails": 4, **options}, "job 'x'")
    outcome = decide(chosen, error, fails, random.Random(1))
    assert retry.counts_failure(chosen, error) == counts_failure(outcome)
    if counts_failure(outcome):
        assert retry.is_last(chosen, error, fails) == (not isinstance(outcome, Retried))
