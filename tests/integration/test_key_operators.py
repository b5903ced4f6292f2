"""What operators see of keys, and do to one: limits, weights, pause, purge and hold; explain; the noisy neighbour."""

from __future__ import annotations

import json
import threading

import pytest
from click.testing import CliRunner

from dayjob import Admin, BadOption, Concurrency, Rate
from dayjob.cli import cli
from server import wait_until


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="ada") as admin:
        yield admin


@pytest.fixture
def fleet(new_pool):
    """A pool with a job type whose limits count by account; it has announced them and stopped."""
    pool = new_pool(concurrency=4)
    stripe = pool.limit("stripe", Rate(1, per=3600, burst=2, by="account"))

    def charge(account: str, n: int = 0) -> None: ...

    pool.register("charge", charge, limits=[stripe, Concurrency(3, by="account")])
    with pool:
        pass
    return pool


def fill(pool, **counts: int) -> None:
    for account, count in counts.items():
        for n in range(count):
            pool.find("charge").enqueue(account=account, n=n)


def command(namespace, redis_url, *words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "--namespace", namespace, "--redis", redis_url])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_keys_of_a_queue_are_listed_with_their_shares(fleet, admin, namespace, redis_url):
    fill(fleet, acme=6, zeta=2)
    found = admin.queue_keys("charge")
    assert (found.by, found.total, found.waiting) == (("account",), 2, 8)
    assert [(one.key, one.waiting, one.limit) for one in found.keys] == [("acme", 6, 3), ("zeta", 2, 3)]
    assert found.keys[0].share == pytest.approx(0.75)
    assert found.keys[0].oldest is not None
    text = command(namespace, redis_url, "queues", "keys", "charge")
    assert "2 keys by account with jobs" in text
    assert "acme" in text
    assert "75%" in text
    assert json.loads(command(namespace, redis_url, "queues", "keys", "charge", "--json"))["total"] == 2
    assert "has no keys" in command(namespace, redis_url, "queues", "keys", "nothing")


def test_a_key_is_weighted_limited_paused_and_resumed_and_each_is_in_the_audit(fleet, admin):
    fill(fleet, acme=1)
    assert admin.set_weight("charge", "acme", 3).done
    assert admin.limit_key("charge", "acme", 7).done
    assert admin.pause_key("charge", "acme").done
    assert not admin.pause_key("charge", "acme").done
    (one,) = admin.queue_keys("charge").keys
    assert (one.weight, one.limit, one.own_limit, one.paused) == (3.0, 7, True, True)
    assert admin.resume_key("charge", "acme").done
    assert admin.limit_key("charge", "acme", None).done
    assert admin.set_weight("charge", "acme", 1).done
    (one,) = admin.queue_keys("charge").keys
    assert (one.weight, one.limit, one.own_limit, one.paused) == (1.0, 3, False, False)
    assert {line.action for line in admin.audit(about="acme")} == {
        "set weight",
        "limit key",
        "pause key",
        "resume key",
    }
    with pytest.raises(BadOption, match="has no keys"):
        admin.pause_key("other", "acme")
    with pytest.raises(BadOption, match="weight"):
        admin.set_weight("charge", "acme", 0)


def test_the_jobs_of_one_key_are_purged_and_undo_puts_them_back(fleet, admin, namespace, redis_url):
    fill(fleet, acme=3, zeta=2)
    text = command(namespace, redis_url, "queues", "key", "charge", "acme", "--purge", "--yes")
    assert "3 jobs deleted" in text
    assert [one.key for one in admin.queue_keys("charge").keys] == ["zeta"]
    tally = admin.purge_key("charge", "zeta")
    assert admin.queue("charge").view.queue.size == 0
    assert admin.undo(tally.undo)
    assert admin.queue("charge").view.queue.size == 2
    assert admin.verdict().sizes.broken == 0


@pytest.mark.parametrize(
    "account",
    ["k" * 10_240, "ü" * 40, "a|b~c:d{e}", "line\nbreak", "", 7, None],
    ids=lambda one: repr(one)[:12],
)
def test_a_strange_key_is_limited_shown_and_found_by_what_is_shown(new_pool, admin, account):
    pool, done = new_pool(concurrency=4), []
    crm = pool.limit("crm", Rate(1, per=3600, burst=1, by="account"))
    pool.register("sync", lambda account, n: done.append(n), limits=[crm, Concurrency(1, by="account")])
    with pool:
        wait_until(lambda: admin.limits() != [])
    jobs = [pool.enqueuer.enqueue("sync", account=account, n=n) for n in range(3)]
    (shown,) = (one.key for one in admin.queue_keys("sync").keys)
    assert len(shown.encode()) <= 64
    text = "" if account is None else str(account)
    admin.pause_key("sync", text)
    assert [one.paused for one in admin.queue_keys("sync").keys] == [True]
    admin.resume_key("sync", shown)
    with pool:
        wait_until(lambda: done == [0])
        named = shown or '""'
        wait_until(lambda: f"the limit crm (account {named})" in admin.explain(jobs[1].id))
        admin.lift_limit("crm", key=shown)
        wait_until(lambda: done == [0, 1, 2])
    assert [one.key for one in admin.limit_of("crm").own_keys] == [shown]
    assert all(len(line.subject) < 100 for line in admin.audit())


def test_a_limit_is_set_lifted_held_and_reset_for_one_key(
    fleet, admin, keys, link, call, namespace, redis_url
):
    fill(fleet, acme=6, zeta=6)
    with fleet:
        # Two of each start at once; each key has its own bucket.
        wait_until(lambda: admin.queue("charge").view.queue.size == 8)
        assert call("EXISTS", keys.rate("stripe|acme"), keys.rate("stripe|zeta")) == 2
        admin.reset_limit("stripe", key="acme")
        wait_until(lambda: admin.queue("charge").view.queue.size == 6)
        admin.hold_limit("stripe", 3600, key="acme")
        admin.lift_limit("stripe", key="zeta")
        wait_until(lambda: [one.key for one in admin.queue_keys("charge").keys] == ["acme"])
        command(namespace, redis_url, "limits", "set", "stripe", "100", "--per", "1", "--key", "acme")
        # A change lets the key try again; the next fetch finds that it is still held.
        wait_until(lambda: [one.keys_held_back for one in admin.limits()] == [1])
        (view,) = admin.limits()
        assert view.by == ("account",)
        assert [(one.key, one.allows) for one in view.own_keys] == [
            ("acme", "100 per second"),
            ("zeta", "lifted"),
        ]
        admin.reset_limit("stripe", key="acme")
        wait_until(lambda: admin.queue("charge").view.queue.size == 0)
    assert admin.restore_limit("stripe", key="acme").message == "As for all keys: 1 per hour, burst 2."
    assert [one.key for one in admin.limit_of("stripe").own_keys] == ["zeta"]


def test_a_limit_that_counts_all_jobs_together_has_no_keys(new_pool, admin):
    pool = new_pool()
    pool.register("plain", lambda: None, limits=[Rate(1, per=1)])
    with pool:
        pass
    with pytest.raises(BadOption, match="it has no keys"):
        admin.reset_limit("plain/rate", key="x")


def test_explain_names_the_limit_with_its_key_and_the_jobs_ahead(fleet, admin):
    fill(fleet, acme=5)
    with fleet:
        wait_until(lambda: admin.queue("charge").view.queue.size == 3)
        last = admin.jobs("waiting", name="charge").jobs[-1]
        wait_until(lambda: admin.explain(last.id).startswith("Waits for the limit stripe (account acme): "))
        text = str(admin.explain(last.id))
        assert "1 per hour, burst 2, next slot in " in text
        assert text.endswith("2 jobs ahead of it.")
        admin.hold_limit("stripe", 7200, key="acme")
        # A change lets the key try again; the next fetch finds that it is still held.
        wait_until(lambda: "(account acme): held for another " in admin.explain(last.id))
        admin.pause_key("charge", "acme")
        paused = "Waits (account acme): this key is paused, 2 jobs ahead of it."
        wait_until(lambda: admin.explain(last.id) == paused)


def test_explain_names_the_places_of_a_key(new_pool, admin):
    pool, gate = new_pool(concurrency=4), threading.Event()

    def work(account: str) -> None:
        gate.wait(60)

    pool.register("work", work, limits=[Concurrency(1, by="account")])
    for _ in range(3):
        pool.find("work").enqueue(account="acme")
    with pool:
        wait_until(lambda: admin.queue("work").view.queue.size == 2)
        first = admin.jobs("waiting", name="work").jobs[0]
        words = "Waits for the limit of 1 at once (account acme): 1 running, it is the next."
        wait_until(lambda: admin.explain(first.id) == words)
        gate.set()


def test_home_names_a_noisy_neighbour(new_pool, admin):
    pool = new_pool()
    pool.register("transcode", lambda video: None, fair_by="source")
    with pool:
        pass
    job_type = pool.find("transcode")
    pool.enqueuer.using(source="acme").enqueue_many("transcode", [{"video": n} for n in range(188)])
    assert [one.kind for one in admin.verdict().notes if one.kind == "noisy"] == [], (
        "a lone source is no neighbour"
    )
    for n in range(12):
        job_type.using(source="zeta").enqueue(video=n)
    (note,) = [one for one in admin.verdict().notes if one.kind == "noisy"]
    assert note.text.startswith('"acme" has 94% of "transcode"; other sources wait ')
    assert note.todo
