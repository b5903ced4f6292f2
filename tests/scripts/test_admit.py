from __future__ import annotations

import pytest

from dayjob.errors import Rejected
from dayjob.store.ops import produce
from dayjob.store.ops.produce import Slot, When
from server import wait_until

DAY = 86_400_000
THIRTY_DAYS = 30 * DAY


@pytest.fixture
def admit(keys, link):
    def send(
        number, payload, *, when=When(), job_id="id1", chosen=False, unique="u", unique_for=None, slot="s"
    ):
        unique_key = keys.unique("mail", unique) if unique else None
        return link.run(
            produce.admit(
                keys, Slot(slot, number), "mail", payload, when,
                job_id=job_id, chosen=chosen, unique_key=unique_key, unique_for=unique_for, introduce=True,
            )
        )  # fmt: skip

    return send


def test_a_unique_job_takes_its_key_in_the_same_step(admit, look, keys, call):
    assert admit(1, b"1").stored
    assert look().queues == {"mail": [b"1"]}
    assert look().unique == {keys.unique("mail", "u"): b"id1"}
    assert call("ZCARD", keys.bell("mail")) == 1
    assert call("SMEMBERS", keys.known_jobs) == [b"mail"]


def test_a_resend_learns_what_the_first_sending_learnt(admit):
    first = admit(1, b"1", chosen=True, unique=None)
    assert (first.new, first.existed) == (True, False)
    resent = admit(1, b"1", chosen=True, unique=None)
    assert (resent.stored, resent.new, resent.existed) == (True, False, False)
    for _ in range(2):
        other = admit(1, b"2", chosen=True, unique=None, slot="other")
        assert (other.stored, other.new, other.existed) == (True, False, True)


@pytest.mark.parametrize("moment", [10**18, 1e303, float("inf")])
def test_a_time_out_of_range_is_refused_before_anything_is_stored(admit, look, call, keys, moment):
    with pytest.raises(Rejected, match="out of range"):
        admit(1, b"1", when=When("at", moment))
    assert call("KEYS", f"{keys.prefix}*") == []


def test_a_second_one_is_not_stored_and_learns_who_holds_the_key(admit, look, keys):
    admit(1, b"1")
    answer = admit(2, b"2", job_id="id2")
    assert (answer.stored, answer.holder) == (False, "id1")
    assert look().queues == {"mail": [b"1"]}
    assert look().unique == {keys.unique("mail", "u"): b"id1"}


def test_the_key_lives_thirty_days_past_the_time_the_job_is_due(admit, call, keys):
    key = keys.unique("mail", "u")
    admit(1, b"1")
    assert THIRTY_DAYS - 5_000 <= call("PTTL", key) <= THIRTY_DAYS
    call("DEL", key)
    admit(2, b"2", when=When("in", DAY))
    assert THIRTY_DAYS + DAY - 5_000 <= call("PTTL", key) <= THIRTY_DAYS + DAY


def test_the_key_of_a_job_due_in_the_past_lives_thirty_days_from_now(admit, call, keys):
    admit(1, b"1", when=When("at", 1_000))
    assert THIRTY_DAYS - 5_000 <= call("PTTL", keys.unique("mail", "u")) <= THIRTY_DAYS


def test_a_life_given_by_the_caller_counts_from_now(admit, call, keys):
    admit(1, b"1", when=When("in", DAY), unique_for=60.0)
    assert 55_000 <= call("PTTL", keys.unique("mail", "u")) <= 60_000


def test_the_shortest_life_does_not_turn_into_thirty_days(admit, call, keys):
    admit(1, b"1", unique_for=0.0004)
    assert call("PTTL", keys.unique("mail", "u")) <= 1


def test_a_scheduled_unique_job_waits_in_scheduled_and_wakes_the_leader(admit, look, keys, call):
    answer = admit(1, b"1", when=When("at", 1_900_000_000_500))
    assert look().scheduled == {b"1": 1_900_000_000.5}
    assert look().queues == {}
    assert answer.due == 1_900_000_000.5
    assert (call("ZCARD", keys.due), call("EXISTS", keys.bell("mail"))) == (1, 0)


def test_a_later_scheduled_one_does_not_wake_the_leader(admit, call, keys):
    admit(1, b"1", when=When("at", 1_900_000_000_000))
    call("DEL", keys.due)
    admit(2, b"2", when=When("at", 1_900_000_001_000), unique="v")
    assert call("ZCARD", keys.due) == 0


def test_a_resend_of_a_stored_job_is_still_stored_even_after_its_key_was_taken_by_another(
    admit, look, call, keys
):
    admit(1, b"1")
    call("SET", keys.unique("mail", "u"), "other")
    assert admit(1, b"1").stored
    assert look().queues == {"mail": [b"1"]}


def test_a_resend_of_a_duplicate_is_a_duplicate_even_after_the_key_is_free(admit, look, call, keys):
    admit(1, b"1", slot="other")
    admit(1, b"2", job_id="id2")
    call("DEL", keys.unique("mail", "u"))
    answer = admit(1, b"2", job_id="id2")
    assert (answer.stored, answer.holder) == (False, "id1")
    assert look().queues == {"mail": [b"1"]}


def test_a_holder_of_any_bytes_comes_back_whole_in_a_resend(admit, call, keys):
    call("SET", keys.unique("mail", "u"), b'{"a":1}\n:duplicate:\n')
    first = admit(1, b"1")
    assert (first.stored, admit(1, b"1").holder) == (False, first.holder)


def test_an_id_chosen_by_the_caller_is_stored_once_from_any_connection(admit, look, call, keys):
    assert admit(1, b"1", chosen=True, unique=None).stored
    assert admit(1, b"1", chosen=True, unique=None, slot="other").stored
    assert look().queues == {"mail": [b"1"]}
    assert 86_390 <= call("TTL", keys.job_id("id1")) <= 86_400


def test_an_id_that_nobody_chose_leaves_no_trace(admit, call, keys):
    admit(1, b"1")
    assert call("EXISTS", keys.job_id("id1")) == 0


def test_a_repeat_of_a_chosen_id_is_stored_even_though_its_own_key_blocks_others(admit, look):
    assert admit(1, b"1", chosen=True).stored
    assert admit(2, b"1", chosen=True).stored
    assert look().queues == {"mail": [b"1"]}


def test_a_duplicate_leaves_its_chosen_id_free(admit, look, call, keys):
    admit(1, b"1")
    assert not admit(2, b"2", job_id="id2", chosen=True).stored
    call("DEL", keys.unique("mail", "u"))
    assert admit(3, b"2", job_id="id2", chosen=True).stored
    assert look().queues == {"mail": [b"1", b"2"]}


def test_admit_and_enqueue_count_on_one_slot(admit, link, keys, look):
    admit(1, b"1")
    link.run(produce.enqueue(keys, Slot("s", 1), "mail", [b"late"], introduce=False))
    link.run(produce.enqueue(keys, Slot("s", 2), "mail", [b"2"], introduce=False))
    admit(2, b"late", unique="v")
    assert look().queues == {"mail": [b"1", b"2"]}


def test_a_resend_of_a_delay_answers_the_time_of_the_first(admit, now):
    first = admit(1, b"1", when=When("in", 60_000))
    start = now()
    wait_until(lambda: now() > start + 0.005)
    assert admit(1, b"1", when=When("in", 60_000)).due == first.due
