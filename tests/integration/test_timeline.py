"""The timeline: what happened to a small fleet, with known answers, merged with what its operators did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from dayjob import Admin, AsyncAdmin, WorkerPool
from dayjob.errors import BadOption, StoreError
from dayjob.store.keys import Keys
from dayjob.store.op import plain
from dayjob.store.ops import maintain, membership
from dayjob.store.steps import ask
from dayjob.worker.chores import chores
from server import running, wait_until

HOST = socket.gethostname()


def texts(found):
    """The sentences, oldest first."""
    return [event.text for event in reversed(found.events)]


def test_the_life_of_a_pool_is_on_the_timeline_with_who_it_is(admin, new_pool):
    pool = new_pool()
    pool.register("mail", lambda: None)
    pool.start()
    pool.stop()
    found = admin.events()
    where = f"Pool {HOST}/{os.getpid()}"
    assert texts(found) == [
        f"{where} started.", f"{where} became the leader.",
        "A program without a version was deployed: 1 new job type (mail).", f"{where} stopped.",
    ]  # fmt: skip
    assert not found.more
    assert found.events[0].at <= found.now
    assert {event.pool for event in found.events} == {found.events[0].pool}


def test_a_pool_that_names_its_version_is_a_deploy_and_shows_it(admin, new_pool):
    for tag in ("v41", "v42", "v42"):
        pool = new_pool(tag=tag)
        pool.register("mail", lambda: None)
        pool.start()
        pool.stop()
    deploys = admin.events(kinds=["deploy"]).events
    assert [(one.before, one.after) for one in deploys] == [("v41", "v42"), ("v41", "v41")]
    assert [one.tag for one in admin.events(kinds=["started"]).events] == ["v42", "v42", "v41"]


def test_a_restart_of_the_server_is_on_the_timeline_though_it_lost_its_data(tmp_path, namespace, monkeypatch):
    monkeypatch.setattr(chores, "SERVER_INTERVAL_SECONDS", 0.1)
    with running(tmp_path) as server:
        pool = WorkerPool(namespace=namespace, redis=server.url, beat=0.2, lease=2.0)
        pool.register("mail", lambda: None)
        with pool, Admin(namespace, redis=server.url) as admin:
            # The leader has seen the server.
            keys = Keys(namespace)
            wait_until(lambda: admin._walk(ask(plain("HGET", keys.watch, "run"))))
            server.kill()
            server.start()

            def restarts():
                with contextlib.suppress(StoreError):
                    return texts(admin.events(kinds=["redis"]))

            wait_until(restarts)
            assert restarts() == ["The Redis server was restarted."]


def test_what_died_with_a_machine_and_what_became_of_its_jobs(admin, new_pool, new_ghost, look, keys, link):
    pool = new_pool(beat=0.3)
    pool.register("mail", lambda: None)
    job = pool.enqueuer.enqueue("mail")
    ghost = new_ghost(lease=30)
    ((token, _),) = ghost.take("mail")
    link.run(membership.set_cause(keys, ghost.id, "", "it used too much memory"))
    link.run(maintain.condemn(keys, lease=30, proven=[ghost.id], judge=False))
    pool.start()
    wait_until(lambda: look.total("done:mail"))
    (death,) = admin.events(kinds=["died"]).events
    assert (death.pool, death.after, death.count) == (ghost.id, "exit", 1)
    assert [(one.id, one.name, one.became) for one in death.jobs] == [(job.id, "mail", "reaped")]
    assert death.text == (
        f"Pool {ghost.id} died: it used too much memory. It held 1 job: 1 back in its queue."
    )
    assert admin.events(pool=ghost.id[:8], name="mail").events == (death,)
    assert token


def test_pauses_and_limits_are_shown_once_with_who(admin, new_pool):
    admin.pause("mail", force=True)
    admin.acting("bob").resume("mail")
    for _ in range(2):
        admin.limit("mail", 2, force=True)
    # Sorted, because some are of the same millisecond.
    assert sorted(texts(admin.events())) == [
        'Queue "mail" was paused by ada.', 'Queue "mail" was resumed by bob.',
        'The limit of "mail" was set to 2 by ada.',
    ]  # fmt: skip
    assert texts(admin.events(actor="bob")) == ['Queue "mail" was resumed by bob.']
    assert [one.actor for one in admin.events(kinds=["pause"], name="mail").events] == ["bob", "ada"]


def test_ticks_and_paused_schedules_are_on_the_timeline(admin, new_pool, look):
    pool = new_pool()
    pool.register("sweep", lambda: None)
    # All, so that a machine that is paused for a moment misses none.
    pool.periodic("@every 1s", "sweep", name="quick", missed="all")
    pool.start()
    wait_until(lambda: look.total("ticked:sweep") >= 2)
    admin.pause_schedule("quick")
    wait_until(lambda: look.total("missed:sweep") >= 2)
    pool.stop()
    paused, fired = admin.events(kinds=["tick"], name="quick").events
    assert (fired.after, paused.after) == ("fired", "paused")
    assert (fired.count, paused.count) == (look.total("ticked:sweep"), look.total("missed:sweep"))
    assert fired.last_at < paused.last_at
    assert fired.name == "sweep"
    assert fired.last_at - fired.first_at == fired.count - 1


def test_the_span_the_size_and_the_offset_choose_a_part(admin, look):
    for name in ("a", "b", "c"):
        admin.pause(name, force=True)
        # Events are in milliseconds.
        at = look.now()
        wait_until(lambda at=at: look.now() > at + 0.002)
    newest = admin.events(size=1)
    assert newest.more
    assert newest.events[0].name == "c"
    assert admin.events(size=1, offset=2).events[0].name == "a"
    at = [one.at for one in reversed(admin.events().events)]
    assert [one.name for one in admin.events(since=at[1]).events] == ["c", "b"]
    assert [one.name for one in admin.events(until=at[1]).events] == ["a"]


def test_marks_are_the_events_that_charts_show_oldest_first(admin, new_pool):
    pool = new_pool()
    pool.register("mail", lambda: None)
    pool.start()
    admin.pause("mail")
    pool.stop()
    now = admin.events().now
    marks = admin.marks_for(now - 60, now + 1)
    assert [(mark.kind, mark.text) for mark in marks] == [
        ("deploy", "A program without a version was deployed: 1 new job type (mail)."),
        ("pause", 'Queue "mail" was paused by ada.'),
    ]
    assert admin.marks_for(now - 120, now - 60) == ()


def test_a_kind_that_does_not_exist_is_refused_with_the_nearest(admin):
    with pytest.raises(BadOption, match="no kind of event 'dead'"):
        admin.events(kinds=["dead"])


def test_the_async_admin_answers_the_same(admin, namespace, redis_url):
    async def read():
        async with AsyncAdmin(namespace, redis=redis_url) as other:
            return await other.events(), await other.marks_for(0, 1e12)

    admin.pause("mail", force=True)
    found, marks = asyncio.run(read())
    assert found.events == admin.events().events
    assert len(marks) == 1
