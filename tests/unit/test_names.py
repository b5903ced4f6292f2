"""Which job names an exchange asks for."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayjob.worker.fetching import names as names_module
from dayjob.worker.fetching.names import ALL_NAMES_INTERVAL_SECONDS, MAX_NAMES, NamesWithJobs, sample


@settings(deadline=None)
@given(
    weights=st.dictionaries(st.text(max_size=3), st.integers(1, 1000), min_size=1),
    draws=st.integers(1, 100),
    seed=st.integers(),
)
def test_a_sample_gives_each_name_its_share_rounded_up_or_down(weights, draws, seed):
    found = sample(weights, draws, random.Random(seed))
    total = sum(weights.values())
    for name, weight in weights.items():
        share = weight * draws / total
        assert math.floor(share - 1e-6) <= found.get(name, 0) <= math.ceil(share + 1e-6)


def test_over_many_samples_a_light_name_gets_its_share():
    weights = {"heavy": 97, "a": 1, "b": 1, "c": 1}
    drawn: Counter[str] = Counter()
    for seed in range(2000):
        drawn.update(sample(weights, 5, random.Random(seed)))
    assert drawn.total() == 10_000
    assert all(50 < drawn[name] < 150 for name in "abc")


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock of the module, which a test moves."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(names_module, "time", clock)
    return clock


def new_names(priorities) -> NamesWithJobs:
    return NamesWithJobs(priorities, random.Random(1))


def test_the_first_request_asks_for_all_names(clock):
    assert new_names({"a": 3, "b": 5}).weights(fetches=True, settled=()) == {"a": 3, "b": 5}


def test_between_two_requests_for_all_names_only_those_with_jobs_are_asked_for(clock):
    names = new_names({"a": 3, "b": 5, "c": 7})
    names.answered(names.weights(fetches=True, settled=()), ["b"])
    assert names.live == {"b"}
    assert names.weights(fetches=True, settled=()) == {"b": 5}
    clock.now += ALL_NAMES_INTERVAL_SECONDS
    assert names.weights(fetches=True, settled=()) == {"a": 3, "b": 5, "c": 7}


def test_a_name_that_was_not_asked_for_keeps_its_jobs():
    names = new_names({"a": 1, "b": 1})
    names.answered(["a"], [])
    assert names.live == {"b"}
    names.answered(["a"], ["a"])
    assert names.live == {"a", "b"}


def test_a_bell_makes_one_request_ask_for_its_name(clock):
    names = new_names({"a": 3, "b": 5})
    names.answered(names.weights(fetches=True, settled=()), [])
    names.rung.add("b")
    assert names.weights(fetches=True, settled=()) == {"b": 5}
    assert names.weights(fetches=True, settled=()) == {}


def test_settled_names_are_in_the_request_but_are_not_fetched(clock):
    names = new_names({"a": 3, "b": 5})
    assert names.weights(fetches=False, settled=["a"]) == {"a": 0}


def test_a_bell_reaches_redis_with_its_name_though_nothing_may_be_fetched(clock):
    names = new_names({"a": 3, "b": 5})
    names.rung.add("b")
    assert names.weights(fetches=False, settled=()) == {"b": 5}


def test_of_many_names_a_sample_is_asked_for_and_no_bell_is_forgotten(clock):
    priorities = {f"n{number}": 1 for number in range(3 * MAX_NAMES)}
    names = new_names(priorities)
    assert names.weights(fetches=True, settled=()) == priorities, "every tenth of a second all are asked for"
    names.rung.update(priorities)
    weights = names.weights(fetches=True, settled=())
    assert weights.keys() == priorities.keys()
    assert sum(weights.values()) == MAX_NAMES


def test_after_a_new_registration_all_names_are_asked_for(clock):
    names = new_names({"a": 3, "b": 5})
    names.answered(names.weights(fetches=True, settled=()), [])
    names.start_over()
    assert names.live == {"a", "b"}
    assert names.weights(fetches=True, settled=()) == {"a": 3, "b": 5}


def test_an_exchange_over_all_names_can_be_asked_for(clock):
    names = new_names({"a": 3, "b": 5})
    names.answered(names.weights(fetches=True, settled=()), [])
    names.ring_all()
    assert names.weights(fetches=True, settled=()) == {"a": 3, "b": 5}


def test_a_request_that_was_prepared_for_all_names_counts_as_one(clock):
    names = new_names({"a": 3, "b": 5})
    names.rung.add("a")
    names.sent_all()
    names.answered(names.all_weights(), [])
    assert names.weights(fetches=True, settled=()) == {}
