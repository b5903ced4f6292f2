from __future__ import annotations

import pytest

from dayjob.store.ops import membership


@pytest.fixture
def lead(keys, link):
    return lambda pool_id, term: link.run(membership.lead(keys, pool_id, term=term))


@pytest.mark.parametrize(
    ("holder", "term", "leads", "after"),
    [
        (None, 3.0, True, b"p1"),
        ("p1", 3.0, True, b"p1"),
        ("p2", 3.0, False, b"p2"),
        (None, 0, False, None),
        ("p1", 0, False, None),
        ("p2", 0, False, b"p2"),
    ],
)
def test_only_the_holder_renews_or_gives_up(lead, call, keys, holder, term, leads, after):
    if holder:
        call("SET", keys.leader, holder, "PX", 1000)
    assert lead("p1", term) is leads
    assert call("GET", keys.leader) == after


def test_a_renewal_lasts_a_whole_term(lead, call, keys):
    call("SET", keys.leader, "p1", "PX", 100)
    lead("p1", 3.0)
    assert 2500 < call("PTTL", keys.leader) <= 3000


def test_a_leader_key_of_a_wrong_type_is_mended(lead, call, keys):
    """Or no pool could ever do the chores again: such a key does not expire."""
    call("LPUSH", keys.leader, "x")
    assert lead("p1", 3.0)
    assert call("GET", keys.leader) == b"p1"
    assert call("PTTL", keys.leader) > 0
