"""Link: an op that is sent ahead of its run."""

from __future__ import annotations

import os

import pytest

from dayjob.errors import Unavailable
from dayjob.store import addresses
from dayjob.store.link import Link
from dayjob.store.op import Op, plain
from dayjob.store.scripts import Script
from proxy import BEFORE, reply
from proxy import proxied as proxy_to
from server import Server

COUNT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture
def proxy(server: Server):
    with proxy_to(server.port) as found:
        yield found


@pytest.fixture
def link(proxy, keys):
    found = Link(addresses.parse_url(proxy.url), tag=keys.known_jobs, timeout=60.0)
    yield found
    found.close()


@pytest.fixture
def count(keys) -> Op[int]:
    """Adds 1 to a counter, and returns it."""
    return Op("INCR", (keys.prefix + "counter",), (), lambda answer: answer)


@pytest.fixture
def counter(call, keys):
    return lambda: int(call("GET", keys.prefix + "counter") or 0)


def test_a_run_reads_the_answer_to_what_was_sent_ahead(link, count, counter):
    for turn in (1, 2, 3):
        link.send_ahead(count)
        assert link.run(count) == turn
    assert link.run(count) == 4
    assert counter() == 4


def test_an_op_that_comes_between_gets_its_own_answer_and_the_first_is_sent_again(link, count, counter, keys):
    link.run(count)
    link.send_ahead(count)
    assert link.run(plain("ECHO", "between")) == b"between"
    assert link.run(count) == counter() == 3


def test_several_ops_that_come_between_get_their_own_answers(link, count, counter):
    link.send_ahead(count)
    assert link.run_many([plain("ECHO", "a"), plain("ECHO", "b")]) == [b"a", b"b"]
    assert link.run(count) == counter() == 2


def test_a_script_that_the_server_forgot_is_sent_with_its_source(link, keys, counter):
    script = Script("count", COUNT, "0" * 40, True)
    op = Op(script, (keys.prefix + "counter",), (), lambda answer: answer)
    link.send_ahead(op)
    assert link.run(op) == counter() == 1


@pytest.mark.parametrize(("fault", "times"), [(BEFORE, 1), (reply(0), 2)], ids=["not done", "done"])
def test_what_was_sent_ahead_on_a_connection_that_was_cut_is_sent_again(
    proxy, link, count, counter, fault, times
):
    link.run(plain("PING"))
    proxy.next(fault, only=b"INCR")
    link.send_ahead(count)
    with pytest.raises(Unavailable):
        link.run(count)
    assert link.run(count) == counter() == times


def test_a_server_that_cannot_be_reached_is_reported_by_the_run(proxy, link, count, counter):
    proxy.refuse()
    link.send_ahead(count)
    with pytest.raises(Unavailable):
        link.run(count)
    proxy.accept()
    assert link.run(count) == counter() == 1


def test_a_forked_process_sends_it_on_a_connection_of_its_own(link, count, counter):
    link.send_ahead(count)
    child = os.fork()
    if child == 0:
        os._exit(0 if link.run(count) in (1, 2) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert link.run(count) in (1, 2)
    assert counter() == 2
