"""Results that are sent to the callers that wait for them."""

from __future__ import annotations

import pytest

from dayjob.outcome import Cancelled, Died, Dropped, Kept
from dayjob.store import addresses
from dayjob.store.ops import results
from dayjob.store.ops.consume import Entry
from dayjob.store.subscription import Subscription
from monitor import monitor

RESULT = b'{"result":7}'


@pytest.fixture
def held(pool, put):
    """A pool that holds one attempt of `a`."""
    put("a", "1")
    assert pool.fetch("a") == ["1:a"]
    return pool


@pytest.fixture
def mailbox(redis_url, keys):
    """A subscribed channel."""
    found = Subscription(addresses.parse_url(redis_url), tag=keys.known_jobs)
    found.subscribe(keys.mailbox("m1"))
    yield found
    found.close()


def settle(pool, outcome=None, result=RESULT):
    pool.exchange(entries=[Entry("a", "1:a", outcome or Kept(60), b"1 kept", "id1", result)])


def look(keys, link, mailbox="m1"):
    return link.run(results.look_for_result(keys, "id1", keys.mailbox(mailbox)))


def test_a_result_that_is_there_is_returned_and_nothing_is_noted(held, keys, link, call):
    settle(held)
    assert look(keys, link) == RESULT
    assert call("GET", keys.result("id1")) == RESULT


@pytest.mark.parametrize(
    "outcome", [Kept(60), Died(counts_failure=True), Dropped(counts_failure=False), Cancelled()]
)
def test_a_result_that_comes_later_is_sent(held, keys, link, mailbox, outcome):
    assert look(keys, link) is None
    assert mailbox.receive(0) is None
    settle(held, outcome)
    assert mailbox.receive(60) == keys.result("id1").encode() + b"\n" + RESULT
    assert look(keys, link) == RESULT


def test_a_job_may_be_noted_before_it_is_enqueued(held, keys, link, mailbox):
    link.run(results.note_waiting(keys, "id1", keys.mailbox("m1")))
    settle(held)
    assert mailbox.receive(60).endswith(RESULT)


def test_a_note_never_replaces_a_result(held, keys, link, call):
    settle(held)
    link.run(results.note_waiting(keys, "id1", keys.mailbox("m1")))
    assert call("GET", keys.result("id1")) == RESULT


def test_every_process_that_waits_gets_the_result_once(held, keys, link, mailbox, redis_url):
    other = Subscription(addresses.parse_url(redis_url), tag=keys.known_jobs)
    other.subscribe(keys.mailbox("m2"))
    for name in ("m1", "m2", "m1", "m2"):
        assert look(keys, link, name) is None
    settle(held)
    for one in (mailbox, other):
        assert one.receive(60).endswith(RESULT)
        one.test()
        assert one.receive(60) == b""
    other.close()


def test_a_note_expires_and_names_a_bounded_number_of_processes(keys, link, call):
    for number in range(500):
        assert look(keys, link, f"{number:024}") is None
    assert call("STRLEN", keys.result("id1")) < 4200
    assert 0 < call("PTTL", keys.result("id1")) <= results.NOTE_MS


def test_a_long_result_is_not_sent_but_its_callers_are(held, keys, link, mailbox):
    look(keys, link)
    long = b'{"result":"' + b"x" * 70_000 + b'"}'
    settle(held, result=long)
    assert mailbox.receive(60) == keys.result("id1").encode() + b"\n"
    assert look(keys, link) == long


def test_a_key_of_another_type_does_not_stop_the_exchange(held, keys, call):
    call("RPUSH", keys.result("id1"), "x")
    settle(held)
    assert call("GET", keys.result("id1")) == RESULT


def test_a_result_that_nothing_waits_for_costs_no_more_than_to_store_it(held, keys, link, server):
    with monitor(server.port, link) as heard:
        settle(held)
    key = keys.result("id1").encode()
    assert [words[0] for words in heard.by_scripts if key in words] == [b"SET"]
    assert not [words for words in heard.by_scripts if words[0].upper() == b"PUBLISH"]


def test_a_note_is_no_result(keys, link):
    look(keys, link)
    assert link.run(results.read_result(keys, "id1")) is None
