"""`deep_lookup`: a job of such a name is found by its id wherever it is."""

from __future__ import annotations

import pytest

from dayjob import Admin, Job
from dayjob.store.ops import find


@pytest.fixture
def shallow(monkeypatch):
    """A search that covers little, so that a few jobs are as deep as ten thousand."""
    for name in ("MAX_SEARCHED", "AT_ONCE", "FIRST"):
        monkeypatch.setattr(find, name, 3)


@pytest.mark.parametrize("deep", [True, False])
def test_a_job_is_found_behind_those_that_a_search_covers_if_its_name_asks_for_it(
    new_pool, namespace, redis_url, shallow, deep
):
    pool = new_pool()

    def fail(n: int) -> None:
        raise ValueError(n)

    ship = pool.register("ship", lambda: None, deep_lookup=deep)
    lose = pool.register("lose", fail, max_fails=1, deep_lookup=deep)
    # Its start announces the job types, which is how consoles know them.
    pool.start()
    for n in range(20):
        lose.enqueue(n=n)
    assert pool.drain(60)
    pool.stop()
    waiting = [ship.enqueue() for _ in range(20)]
    scheduled = [ship.enqueue_in(3600 + n) for n in range(20)]
    admin = Admin(namespace, redis=redis_url)
    # The places in the middle, which no end of a search covers. Several may have died in the same millisecond.
    dead = Job("lose", id=admin.jobs("dead").jobs[10].id)
    wanted = {"waiting": waiting[10], "scheduled": scheduled[10], "dead": dead}
    expected = list(wanted) if deep else [None] * 3
    assert [pool.enqueuer.state(job) for job in wanted.values()] == expected
    assert [pool.enqueuer.state(job.id) for job in wanted.values()] == expected
    with admin:
        found = [admin.job(job.id) for job in wanted.values()]
        # The history has the attempt of the dead job.
        states = [one and one.job.state for one in found]
        assert states == (expected if deep else [None, None, "finished"])
        if deep:
            assert found[0].job.place == 10
            assert admin.explain(waiting[10].id) != admin.explain("no such job")
        assert {one.name: one.deep_lookup for one in admin.job_types()} == {"ship": deep, "lose": deep}
