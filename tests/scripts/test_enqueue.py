from __future__ import annotations

import pytest

from dayjob.errors import Rejected
from dayjob.store.ops import produce
from dayjob.store.ops.produce import Slot


@pytest.fixture
def enqueue(keys, link):
    def send(number, *payloads, slot="s", introduce=True):
        return link.run(produce.enqueue(keys, Slot(slot, number), "mail", payloads, introduce=introduce))

    return send


def test_jobs_wait_in_the_order_they_were_given(enqueue, look):
    enqueue(1, b"1", b"2")
    enqueue(2, b"3")
    assert look().queues == {"mail": [b"1", b"2", b"3"]}


def test_it_rings_the_bell_of_its_name_and_says_the_time(enqueue, call, keys, now):
    before = now()
    answer = enqueue(1, b"1")
    assert call("ZRANGE", keys.bell("mail"), 0, -1) == [b"1"]
    assert answer.stored
    assert before - 0.001 <= answer.now <= now()


def test_the_name_becomes_known_only_where_asked(enqueue, call, keys):
    enqueue(1, b"1", introduce=False)
    assert call("SMEMBERS", keys.known_jobs) == []
    enqueue(2, b"2")
    assert call("SMEMBERS", keys.known_jobs) == [b"mail"]


def test_a_resend_stores_nothing_again(enqueue, look):
    enqueue(1, b"1", b"2")
    assert enqueue(1, b"1", b"2").stored
    assert look().queues == {"mail": [b"1", b"2"]}


def test_a_late_copy_of_an_earlier_request_stores_nothing(enqueue, look):
    enqueue(9, b"9")
    enqueue(10, b"10")
    enqueue(9, b"9")
    assert look().queues == {"mail": [b"9", b"10"]}


def test_numbers_are_compared_as_numbers(enqueue, look):
    enqueue(9, b"9")
    enqueue(10, b"10")
    assert look().queues == {"mail": [b"9", b"10"]}


def test_two_slots_do_not_know_of_each_other(enqueue, look):
    enqueue(1, b"1", slot="s")
    enqueue(1, b"2", slot="t")
    assert look().queues == {"mail": [b"1", b"2"]}


def test_the_number_is_remembered_for_an_hour(enqueue, call, keys):
    enqueue(1, b"1")
    assert 3590 <= call("TTL", keys.sent("s")) <= 3600


def test_five_hundred_jobs_go_in_one_request(enqueue, look):
    payloads = [b"%d" % i for i in range(produce.MAX_JOBS)]
    enqueue(1, *payloads)
    assert look().queues == {"mail": payloads}


def test_bytes_are_stored_as_they_are(enqueue, look):
    odd = b'{"args":{"a":[],"n":12345678901234567890}}\x00\xff\r\n'
    enqueue(1, odd)
    assert look().queues == {"mail": [odd]}


def test_a_queue_of_a_wrong_type_stores_nothing_and_the_same_number_works_later(enqueue, call, keys, look):
    call("SET", keys.queue("mail"), "x")
    with pytest.raises(Rejected):
        enqueue(1, b"1")
    call("DEL", keys.queue("mail"))
    enqueue(1, b"1")
    assert look().queues == {"mail": [b"1"]}
