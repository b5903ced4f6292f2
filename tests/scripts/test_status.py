from __future__ import annotations

from dayjob.store.ops import maintain, membership


def test_the_status_of_a_registered_pool_is_written_for_an_hour(pool, link, keys, call):
    assert link.run(membership.status(keys, "p1", b'{"x":1}'))
    assert call("GET", keys.pool("p1")) == b'{"x":1}'
    assert 3590 <= call("TTL", keys.pool("p1")) <= 3600


def test_the_status_of_a_pool_that_is_gone_is_not_written(pool, link, keys, call):
    link.run(maintain.condemn(keys, lease=15.0, proven=["p1"], judge=False))
    assert not link.run(membership.status(keys, "p1", b"{}"))
    assert call("EXISTS", keys.pool("p1")) == 0
