"""Undo, as operators do it: what they deleted comes back, is run, and no job exists twice or is lost."""

from __future__ import annotations

import contextlib
import json

import pytest

from census import census
from dayjob import Admin
from dayjob.admin.views import Seen
from dayjob.errors import Full, NothingToUndo
from dayjob.store import addresses
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.store.ops import bin as store
from dayjob.store.ops import membership
from server import running


@pytest.fixture
def bob(redis_url, namespace):
    with Admin(namespace, redis=redis_url, actor="bob") as found:
        yield found


def ids(admin: Admin, state, **which) -> list[str]:
    return [job.id for job in admin.jobs(state, size=500, **which).jobs]


def test_one_job_is_deleted_and_put_back(admin, enqueuer):
    jobs = [enqueuer.enqueue("mail", n=n) for n in range(3)]
    done = admin.delete(jobs[1].id)
    assert done.undo
    assert ids(admin, "waiting", name="mail") == [jobs[0].id, jobs[2].id]
    (deletion,) = admin.bin()
    assert (deletion.id, deletion.jobs, deletion.actor, deletion.action) == (done.undo, 1, "ada", "delete")
    assert 590 < deletion.expires_at - admin.verdict().now <= 600
    assert admin.undo().changed == 1
    assert ids(admin, "waiting", name="mail") == [jobs[1].id, jobs[0].id, jobs[2].id]
    assert admin.bin() == ()
    assert [line.action for line in admin.audit()] == ["undo", "undo", "delete"]


@pytest.mark.parametrize("state", ["scheduled", "retry", "dead", "done"])
def test_a_job_of_a_set_comes_back_at_its_moment(admin, call, keys, state):
    raw = json.dumps({"name": "mail", "id": "id1", "t": 1, "args": {}})
    call("ZADD", getattr(keys, state), 4_000_000_000.5, raw)
    assert admin.delete("id1", state=state).undo
    assert ids(admin, state) == []
    assert admin.undo().message == "1 job put back."
    assert call("ZSCORE", getattr(keys, state), raw) == b"4000000000.5"


def test_a_selection_is_undone_as_one(admin, enqueuer):
    waiting = [enqueuer.enqueue("mail", n=n).id for n in range(2)]
    later = enqueuer.enqueue_in("mail", 900, n=9).id
    done = admin.selection("delete", [Seen(one) for one in (*waiting, later, "nobody")])
    assert len({one.undo for one in done if one.undo}) == 1
    assert [one.done for one in done] == [True, True, True, False]
    assert admin.undo(done[0].undo).changed == 3
    assert sorted(ids(admin, "waiting", name="mail")) == sorted(waiting)
    assert ids(admin, "scheduled") == [later]
    one = admin.selection("delete", [Seen(later)])[0]
    admin.undo(one.undo)
    about = {line.subject for line in admin.audit() if line.action == "undo"}
    assert about == {"delete of 1 selected job", "delete of 4 selected jobs"}


def test_all_that_match_come_back_in_their_order_from_every_queue(admin, enqueuer):
    enqueuer.enqueue_many("a", [{"n": n} for n in range(230)])
    enqueuer.enqueue_many("b", [{"n": n} for n in range(10)])
    before = {name: ids(admin, "waiting", name=name) for name in ("a", "b")}
    tally = admin.apply("delete", "waiting", where="age<1d")
    assert (tally.changed, bool(tally.undo)) == (240, True)
    assert admin.undo(tally.undo[:8]).changed == 240
    assert {name: ids(admin, "waiting", name=name) for name in ("a", "b")} == before


def test_a_group_of_failures_is_undone_as_one(admin, call, keys):
    for state in ("dead", "retry"):
        job = {"name": "mail", "id": f"id-{state}", "t": 1, "args": {}, "fails": 1, "err": "Timeout: no"}
        call("ZADD", getattr(keys, state), 5, json.dumps(job))
    (group,) = admin.failures().groups
    tally = admin.apply_to_failures("delete", group.name, group.kind)
    assert (tally.changed, len(admin.bin())) == (2, 1)
    assert admin.undo(tally.undo).changed == 2
    assert (ids(admin, "dead"), ids(admin, "retry")) == (["id-dead"], ["id-retry"])


def test_a_purge_is_undone_and_its_jobs_run_once(admin, enqueuer, new_pool):
    ran: list[int] = []
    pool = new_pool()

    @pool.job
    def mail(n: int) -> None:
        ran.append(n)

    enqueuer.enqueue_many("mail", [{"n": n} for n in range(20)])
    tally = admin.purge("mail")
    pool.start()
    pool.drain()
    assert ran == []
    assert admin.undo(tally.undo).changed == 20
    pool.drain()
    pool.stop()
    assert sorted(ran) == list(range(20))
    assert admin.queue("mail").totals["restored"] == 20


def test_a_unique_job_stays_in_the_bin_while_another_has_its_key(admin, enqueuer):
    first = enqueuer.enqueue_unique("mail", n=1)
    admin.delete(first.id)
    second = enqueuer.enqueue_unique("mail", n=1)
    tally = admin.undo()
    assert tally.changed == 0
    assert second.id in tally.message
    admin.delete(second.id, undo=False)
    assert admin.undo().changed == 1
    assert enqueuer.enqueue_unique("mail", n=1) is None


def test_the_last_deletion_is_that_of_the_same_operator(admin, bob, enqueuer):
    mine, other = enqueuer.enqueue("mail", n=1), enqueuer.enqueue("mail", n=2)
    admin.delete(mine.id)
    bob.delete(other.id)
    assert admin.undo().changed == 1
    assert ids(admin, "waiting", name="mail") == [mine.id]
    with pytest.raises(NothingToUndo, match="Others deleted: 1"):
        admin.undo()
    assert admin.undo(bob.bin()[0].id).changed == 1
    with pytest.raises(NothingToUndo, match="'gone' is not in the bin"):
        admin.undo("gone")


def test_without_undo_a_job_is_gone_at_once(admin, enqueuer, link, keys):
    jobs = [enqueuer.enqueue("mail", n=n) for n in range(4)]
    assert admin.delete(jobs[0].id, undo=False).undo == ""
    assert admin.apply("delete", "waiting", name="mail", most=1, undo=False).undo == ""
    assert admin.selection("delete", [jobs[2].id], undo=False)[0].undo == ""
    assert admin.purge("mail", undo=False).undo == ""
    assert census(keys, link).jobs == 0


def test_a_running_job_that_is_cancelled_offers_no_undo(admin, call, keys, link):
    assert link.run(membership.join(keys, "p1", [], lease=60.0, term=1.0)).registered
    raw = json.dumps({"name": "mail", "id": "id1", "t": 1, "args": {}})
    call("HSET", keys.held("p1"), "1:mail", raw)
    outcome = admin.cancel("id1")
    assert (outcome.done, outcome.undo) == (True, "")


def test_a_broken_entry_comes_back(admin, call, keys):
    call("RPUSH", keys.broken, "{}\none", "{}\ntwo")
    outcome = admin.delete_broken(admin.broken().entries[0])
    assert admin.undo(outcome.undo).changed == 1
    assert call("LRANGE", keys.broken, 0, -1) == [b"{}\none", b"{}\ntwo"]


def test_an_undo_can_be_stopped_on_the_way_and_continued(admin, enqueuer):
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(250)])
    before = ids(admin, "waiting", name="mail")
    tally = admin.purge("mail")
    assert admin.undo(tally.undo, progress=lambda _: False).changed == 100
    assert admin.bin()[0].jobs == 150
    assert admin.undo(tally.undo).changed == 150
    assert ids(admin, "waiting", name="mail") == before


def test_a_full_server_deletes_for_good_and_refuses_the_bin_in_words(tmp_path):
    with running(tmp_path) as server, Admin("full", redis=server.url) as admin:
        for n in range(3):
            admin.enqueue("mail", {"n": n})
        first = admin.jobs("waiting", name="mail").jobs[0].id
        with store_link(server) as link:
            link.run(plain("CONFIG", "SET", "maxmemory", 1))
        for act in (
            lambda: admin.delete(first),
            lambda: admin.purge("mail"),
            lambda: admin.apply("delete", "waiting", name="mail"),
        ):
            with pytest.raises(Full, match="--no-undo"):
                act()
        assert admin.queue("mail").view.queue.size == 3
        assert admin.delete(first, undo=False).done
        assert admin.purge("mail", undo=False).changed == 2


def store_link(server):
    return contextlib.closing(Link(addresses.parse_url(server.url), tag="x", name="test"))


def test_the_bin_keeps_for_ten_minutes():
    assert store.KEEP_SECONDS == 600
