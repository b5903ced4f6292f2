"""What an operator can see and do, on a real server: each read and each action, and what it says when it came late."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from dayjob import Job
from dayjob.errors import BadOption, Rejected
from dayjob.explain import reasons, words
from dayjob.explain.obstacles import AllQuiet, AtLimit, NoWorker, QueuePaused
from dayjob.explain.reasons import HolderDied, JobNotFound
from dayjob.store import addresses, codec
from dayjob.store.async_link import AsyncLink, awalk
from dayjob.store.link import walk
from dayjob.store.op import plain
from dayjob.store.ops import (
    broken,
    concurrency,
    figures,
    find,
    health,
    inspect,
    maintain,
    membership,
    operate,
    pools,
)
from dayjob.worker.pool_job_type import bucket
from monitor import monitor
from server import wait_until


@pytest.fixture
def go(link):
    """Run an op or steps."""
    return lambda what: link.run(what) if hasattr(what, "read") else walk(link, what)


def payload(name, job_id, at=1000, **extras):
    return codec.write(codec.quoted(name), job_id, at, b'{"n":[]}', extras)


def ids(page):
    return [entry.job.id for entry in page.entries]


# Queues.


def test_an_overview_tells_size_age_pause_limit_and_bell_of_many_queues_in_one_look(
    keys, call, go, enqueuer, look
):
    enqueuer.enqueue_many("a", [{}, {}, {}])
    call("LPUSH", keys.queue("old"), payload("old", "x", look.now() - 60))
    go(operate.pause(keys, "old"))
    go(operate.set_concurrency_limit(keys, "a", 2))
    call("SADD", keys.held_of("a"), "p/1:a")
    seen = go(inspect.queues(keys, ["a", "old", "none"]))
    a, old, none = seen.queues
    assert (a.size, a.paused, a.limit, a.held, a.rung) == (3, False, 2, 1, True)
    assert a.age < 50
    assert (old.size, old.paused, old.limit, old.rung) == (1, True, None, False)
    assert 59 < old.age < 150
    assert (none.size, none.age, none.wrong) == (0, None, False)
    assert abs(seen.now - look.now()) < 60


def test_the_age_of_a_queue_survives_large_and_unreadable_payloads(keys, call, go, look):
    now = look.now()
    big = codec.write(codec.quoted("big"), "x", now - 30, b'{"text":"%b"}' % (b"x" * 100_000))
    call("LPUSH", keys.queue("big"), big)
    call("LPUSH", keys.queue("bad"), b"\xff")
    call("LPUSH", keys.queue("go"), b'{"name":"go","id":"1","t":%d,"args":null}' % int(now - 20))
    one, two, three = go(inspect.queues(keys, ["big", "bad", "go"])).queues
    assert 29 < one.age < 100
    assert two.age is None
    assert two.size == 1
    assert 19 < three.age < 100


def test_a_queue_of_a_wrong_type_is_shown_as_such_beside_good_ones(keys, call, go, enqueuer):
    enqueuer.enqueue("good")
    call("SADD", keys.known_jobs, "bad")
    call("SET", keys.queue("bad"), "text")
    bad, good = go(inspect.all_queues(keys)).queues
    assert (bad.name, bad.wrong, bad.size) == ("bad", True, 0)
    assert (good.name, good.wrong, good.size) == ("good", False, 1)


def test_more_queues_than_one_look_takes_are_all_shown(keys, call, go):
    names = [f"n{i:03}" for i in range(450)]
    call("SADD", keys.known_jobs, *names)
    assert [queue.name for queue in go(inspect.all_queues(keys)).queues] == names
    with pytest.raises(BadOption, match="all_queues"):
        inspect.queues(keys, names)


def test_no_queues_at_all_is_an_empty_overview(keys, go):
    assert go(inspect.all_queues(keys)).queues == ()


def test_sizes_count_each_set_and_survive_a_wrong_type(keys, call, go):
    call("ZADD", keys.scheduled, 1, "a", 2, "b")
    call("RPUSH", keys.broken, "x")
    assert go(inspect.sizes(keys)) == inspect.Sizes(2, 0, 0, 0, 1)
    call("SET", keys.dead, "text")
    assert go(inspect.sizes(keys)) == inspect.Sizes(2, 0, -1, 0, 1)


# Pages.


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_follow_each_other_without_gap_or_repeat_even_with_one_score(keys, call, go, newest_first):
    members = [payload("a", f"id{i:03}") for i in range(25)]
    for i, member in enumerate(members):
        call("ZADD", keys.dead, 7 if i < 20 else i, member)
    seen, after = [], None
    while True:
        page = go(inspect.page(keys.dead, after=after, size=4, newest_first=newest_first))
        assert page.total == 25
        assert page.offset == len(seen)
        seen += ids(page)
        if page.next is None:
            break
        after = inspect.Cursor.of(page.next.text)
    expected = [f"id{i:03}" for i in range(25)]
    assert seen == (expected[::-1] if newest_first else expected)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_cursor_holds_its_place_when_its_entry_is_gone(keys, call, go, newest_first):
    for i in range(10):
        call("ZADD", keys.retry, 5, payload("a", f"id{i}"))
    page = go(inspect.page(keys.retry, size=4, newest_first=newest_first))
    for entry in page.entries:
        call("ZREM", keys.retry, entry.member)
    rest = go(inspect.page(keys.retry, after=page.next, size=50, newest_first=newest_first))
    expected = [f"id{i}" for i in range(10)]
    assert ids(rest) == (expected[::-1] if newest_first else expected)[4:]


def test_a_cursor_is_by_bytes_whatever_the_bytes_are(keys, call, go):
    members = sorted([b"\x00", b"\x00\x01", b"A", b"a", b"Z", b"\xc3\xa4", b"\xff", b"B"])
    for member in members:
        call("ZADD", keys.dead, 1, member)
    for i, member in enumerate(members):
        page = go(inspect.page(keys.dead, after=inspect.Cursor(1.0, member), size=100))
        # The beginning of a long member stands for all that begin so.
        expected = [one for one in members[i + 1 :] if not one.startswith(member)]
        assert [entry.member for entry in page.entries] == expected


def test_a_page_may_begin_at_an_offset_and_past_the_end(keys, call, go):
    for i in range(5):
        call("ZADD", keys.scheduled, i, payload("a", f"id{i}"))
    assert ids(go(inspect.page(keys.scheduled, offset=3))) == ["id3", "id4"]
    past = go(inspect.page(keys.scheduled, offset=30))
    assert (past.total, past.entries, past.next) == (5, (), None)


def test_a_page_of_large_jobs_is_shorter_but_says_where_to_go_on(keys, call, go):
    for i in range(20):
        call("ZADD", keys.dead, i, codec.write(b'"a"', f"id{i}", 1, b'{"x":"%b"}' % (b"y" * 300_000)))
    page = go(inspect.page(keys.dead, size=20))
    assert 0 < len(page.entries) < 20
    assert ids(go(inspect.page(keys.dead, after=inspect.Cursor.of(page.next.text), size=1))) == [
        f"id{len(page.entries)}"
    ]


def test_an_unreadable_entry_is_shown_with_its_reason(keys, call, go):
    call("ZADD", keys.dead, 1, b"\xff{", 2, payload("a", "fine"))
    bad, good = go(inspect.page(keys.dead)).entries
    assert bad.job is None
    assert "not a job" in bad.problem
    assert bad.member == b"\xff{"
    assert good.job.id == "fine"
    assert good.at == 2


def test_a_nonsense_cursor_is_refused_in_words():
    for text in ("", "x", "abc~", "~", "1~a"):
        with pytest.raises(BadOption, match="is not a cursor"):
            inspect.Cursor.of(text)


def test_a_queue_can_be_looked_at_from_both_ends(keys, go, enqueuer):
    jobs = enqueuer.enqueue_many("a", [{"n": n} for n in range(30)])
    wanted = [job.id for job in jobs]
    assert ids(go(inspect.peek(keys, "a", size=10))) == wanted[:10]
    assert ids(go(inspect.peek(keys, "a", size=10, offset=25))) == wanted[25:]
    assert ids(go(inspect.peek(keys, "a", size=3, newest_first=True))) == wanted[:-4:-1]
    assert go(inspect.peek(keys, "a")).total == 30


def test_a_broken_entry_is_shown_with_its_bytes_and_where_they_were_found(keys, call, go):
    call(
        "RPUSH",
        keys.broken,
        codec.broken_entry(b"\x00raw\n", at=12.5, where="scheduled", why="no job"),
        b"no header",
    )
    page = go(broken.page(keys))
    first, second = page.entries
    assert page.total == 2
    assert (first.payload, first.at, first.where, first.why) == (b"\x00raw\n", 12.5, "scheduled", "no job")
    assert second.payload == b"no header"


# Totals and figures.


def test_totals_are_parsed_by_counter_and_name(keys, call, go):
    call("HSET", keys.totals, "done:a.b", 5, "done:c", 7, "broken:", 1, "odd:x", "text")
    assert go(figures.totals(keys)) == {"done": {"a.b": 5, "c": 7}, "broken": {"": 1}}


def test_figures_of_minutes_come_as_histograms_with_the_workers_buckets(keys, call, go):
    call("HSET", keys.minute(100), "a|r10", 90, "a|r20", 10, "a|w3", 4, "|x5", 6, "a|new", 1)
    found = go(figures.minutes(keys, [99, 100, 101]))
    assert [one.number for one in found] == [99, 100, 101]
    before, times, after = (one.times for one in found)
    assert before.runs == {}
    assert after.exchange().count == 0
    runs = times.run("a")
    assert runs.count == 100
    assert runs.quantile(0.5) == figures.bucket_limit(10)
    assert runs.quantile(0.99) == figures.bucket_limit(20)
    assert times.wait("a").buckets == {3: 4}
    assert times.exchange().count == 6
    assert found[1].counts.ran("a") == 100
    assert figures.Histogram().quantile(0.5) is None


def test_both_sides_agree_on_the_bounds_of_the_buckets():
    for number in range(60):
        assert bucket(figures.bucket_limit(number) * 0.999) == number


# Pools and schedules.


def test_pools_show_what_they_do(keys, go, new_pool):
    gate, running = threading.Event(), threading.Event()
    pool = new_pool(concurrency=3, beat=0.3)

    @pool.job
    def slow(job: Job):
        job.checkin("row 3", done=3, total=9)
        running.set()
        gate.wait(60)

    job = slow.enqueue()
    pool.start()
    assert running.wait(60)
    try:
        one = wait_until(lambda: [p for p in go(pools.pools(keys)) if p.status and p.status.workers])[0]
        assert 0 < one.lease <= 16
        assert one.status.concurrency == 3
        assert one.status.names == ("slow",)
        assert (one.status.workers[0].id, one.status.workers[0].checkin) == (job.id, "row 3")
        assert wait_until(lambda: go(pools.leader(keys))) == one.id
    finally:
        gate.set()


def test_a_pool_whose_status_is_missing_or_nonsense_is_still_shown(keys, call, go):
    call("ZADD", keys.pools, 1000, "p1", 2000, "p2")
    call("SET", keys.pool("p2"), "{nonsense")
    first, second = go(pools.pools(keys))
    assert (first.id, first.status, second.status) == ("p1", None, None)
    assert first.lease < 0


def test_condemned_pools_show_since_when_and_what_is_left(keys, call, go):
    assert go(pools.condemned(keys)) == []
    call("ZADD", keys.condemned, 1234, "p1")
    call("HSET", keys.held("p1"), "1:a", "x", "2:a", "y")
    assert go(pools.condemned(keys)) == [pools.Condemned("p1", 1234.0, 2)]


def test_limits_say_who_set_them(keys, go):
    go(operate.set_concurrency_limit(keys, "a", 3, by="code"))
    go(operate.set_concurrency_limit(keys, "b", 0))
    assert go(concurrency.get_limits(keys)) == ({"a": 3, "b": 0}, {"b"})


def test_a_limit_set_by_an_operator_counts_what_runs_already(keys, call, go, enqueuer, new_ghost):
    enqueuer.enqueue_many("a", [{}] * 4)
    ghost = new_ghost(lease=30)
    assert len(ghost.take("a", room=2)) == 2
    go(operate.set_concurrency_limit(keys, "a", 2))
    assert call("SCARD", keys.held_of("a")) == 2
    assert ghost.take("a") == []
    go(operate.set_concurrency_limit(keys, "a", None))
    assert len(ghost.take("a")) == 2


def test_a_schedule_can_be_announced_paused_resumed_and_run(keys, call, go, look):
    call("HSET", keys.periodic, "tick", 500)
    announced = inspect.StoredSchedule(
        "tick", 0, False, "a", "@every 5s", None, "skip", b'{"big":9007199254740993,"l":[]}'
    )
    go(operate.announce_schedules(keys, [announced]))
    assert go(operate.pause_schedule(keys, "nobody")) == "unknown"
    assert go(operate.pause_schedule(keys, "tick")) == "changed"
    assert go(operate.pause_schedule(keys, "tick")) == "same"
    (seen,) = go(inspect.schedules(keys))
    assert (seen.name, seen.last, seen.paused, seen.job, seen.spec) == ("tick", 500, True, "a", "@every 5s")
    job_id, request = operate.run_schedule(keys, seen, now=look.now())
    assert go(request).stored
    assert go(request).stored
    (job,) = look.queue("a")
    assert (job["id"], job["args"], job["periodic"]) == (job_id, {"big": 9007199254740993, "l": []}, "tick")
    assert go(operate.resume_schedule(keys, "tick")) == "changed"
    assert not go(inspect.schedules(keys))[0].paused


def test_a_schedule_that_nobody_announced_cannot_be_run_and_says_so(keys, call, go):
    call("HSET", keys.periodic, "tick", 500)
    (seen,) = go(inspect.schedules(keys))
    with pytest.raises(BadOption, match="start one that has it"):
        operate.run_schedule(keys, seen, now=1.0)


def test_the_server_tells_of_itself_and_its_slow_log_shows_no_payload(keys, call, go, enqueuer):
    call("CONFIG", "SET", "slowlog-log-slower-than", 0)
    try:
        enqueuer.enqueue("a", note="hunter2")
        found = go(health.health())
    finally:
        call("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    assert found.info["redis_version"]
    assert found.config["maxmemory-policy"] == "noeviction"
    assert "script enqueue" in {one.command for one in found.slow}
    assert "hunter2" not in repr(found)


def test_the_health_of_a_server_that_refuses_config_is_told_without_it(redis_url, call, go, keys):
    call("ACL", "SETUSER", "guest", "on", ">word", "~*", "+@all", "-config", "-slowlog")
    address = addresses.parse_url(redis_url.replace("//", "//guest:word@"))
    from dayjob.store.link import Link

    guest = Link(address, tag=keys.known_jobs)
    try:
        found = walk(guest, health.health())
    finally:
        guest.close()
        call("ACL", "DELUSER", "guest")
    assert found.config is None
    assert found.slow is None
    assert found.info["role"] == "master"


# Actions on the side sets.


def unique_scheduled(enqueuer, keys, call):
    job = enqueuer.enqueue_unique_in("u", 600, n=1)
    (member,) = call("ZRANGE", keys.scheduled, 0, -1)
    return job, member


def test_deleting_an_entry_releases_its_unique_key_and_says_whether_it_was_there(
    keys, call, go, enqueuer, look
):
    job, member = unique_scheduled(enqueuer, keys, call)
    assert call("EXISTS", job.unique_key) == 1
    assert go(operate.delete(keys, keys.scheduled, member)) is True
    assert call("EXISTS", job.unique_key) == 0
    assert go(operate.delete(keys, keys.scheduled, member)) is False
    assert look.total("deleted:u") == 1


def test_deleting_leaves_a_unique_key_alone_that_is_another_jobs(keys, call, go, enqueuer):
    job, member = unique_scheduled(enqueuer, keys, call)
    call("SET", job.unique_key, "somebody else")
    assert go(operate.delete(keys, keys.scheduled, member)) is True
    assert call("GET", job.unique_key) == b"somebody else"


def test_a_payload_cannot_name_a_key_outside_the_unique_ones(keys, call, go):
    call("SET", keys.leader, "victim")
    member = payload("a", "victim", unique_key=keys.leader)
    call("ZADD", keys.dead, 1, member)
    assert go(operate.delete(keys, keys.dead, member)) is True
    assert call("GET", keys.leader) == b"victim"


def test_running_now_moves_a_job_with_its_arguments_byte_for_byte_and_rings(keys, call, go, look):
    args = b'{"l":[],"big":9007199254740993,"f":1e400}'
    member = codec.write(b'"a"', "x", 1.0, args)
    call("ZADD", keys.retry, 4e9, member)
    now = look.now()
    assert go(operate.run_now(keys, keys.retry, [member], now=now)) == 1
    assert go(operate.run_now(keys, keys.retry, [member], now=now)) == 0
    (queued,) = call("LRANGE", keys.queue("a"), 0, -1)
    assert args in queued
    assert codec.read(queued).at == int(now * 1000)
    assert call("ZCARD", keys.bell("a")) == 1


def test_a_dead_job_is_revived_as_if_it_had_never_failed(keys, call, go, look):
    member = payload(
        "a",
        "x",
        fails=4,
        err="boom",
        failed_at=5,
        trace="t",
        deaths=2,
        attempt="p/1:a",
        source=42,
        expires=1000,
    )
    call("ZADD", keys.dead, 9, member)
    now = look.now()
    assert go(operate.revive(keys, member, now=now)) == operate.Revived("moved")
    (job,) = look.queue("a")
    assert job == {
        "name": "a", "id": "x", "t": int(now), "args": {"n": []}, "source": 42, "at": int(now * 1000),
    }  # fmt: skip
    assert call("ZCARD", keys.bell("a")) == 1
    assert look.total("revived:a") == 1
    assert go(operate.revive(keys, member, now=now)) == operate.Revived("gone")


def test_reviving_takes_the_unique_key_again_or_says_who_has_it(keys, call, go, enqueuer, look):
    key = keys.unique("a", "k")
    member = payload("a", "x", unique=True, unique_key=key)
    call("ZADD", keys.dead, 9, member)
    other = enqueuer.using(unique_key="k").enqueue_unique("a")
    assert go(operate.revive(keys, member, now=look.now())) == operate.Revived("taken", other.id)
    assert call("ZCARD", keys.dead) == 1
    assert len(look.queue("a")) == 1
    call("DEL", key)
    assert go(operate.revive(keys, member, now=look.now())).fate == "moved"
    assert call("GET", key) == b"x"
    assert 29 * 86400 < call("TTL", key) <= 30 * 86400


def test_an_unreadable_dead_entry_cannot_be_revived_and_says_what_can_be_done(keys):
    with pytest.raises(BadOption, match="can be deleted"):
        operate.revive(keys, b"\xff", now=1.0)


@pytest.mark.parametrize(
    ("score", "at", "moment"),
    [(7.0, 7250, 7.25), (7.0, 6900, 7.0), (7.0, 8000, 7.0), (7.5, 0, 7.5), (None, 0, 0.0)],
)
def test_the_moment_of_a_death_is_as_fine_as_the_job_says(score, at, moment):
    """Scores of dead are whole seconds; two deaths in one second must be told apart."""
    assert inspect.StoredEntry(b"", score, codec.Wire("a", at=at)).moment == moment
    assert inspect.StoredEntry(b"", score, None).moment == (score or 0.0)


def test_killing_moves_a_waiting_retry_to_dead_and_frees_its_key(keys, call, go, enqueuer, look):
    job, member = unique_scheduled(enqueuer, keys, call)
    assert go(operate.kill(keys, keys.scheduled, member, now=look.now())) is True
    assert go(operate.kill(keys, keys.scheduled, member, now=look.now())) is False
    (dead,) = look.dead()
    assert dead["id"] == job.id
    assert dead["err"] == "killed by an operator"
    assert call("EXISTS", job.unique_key, keys.scheduled) == 0
    assert look.total("dead:u") == 1
    assert abs(look.scores(keys.dead)[0] - look.now()) < 60


# Actions on queues.


def test_a_waiting_job_is_taken_out_of_the_middle_of_its_queue(keys, call, go, enqueuer, look):
    jobs = enqueuer.enqueue_many("a", [{"n": n} for n in range(20)])
    entry = go(inspect.peek(keys, "a", offset=7, size=1)).entries[0]
    assert go(operate.unqueue(keys, "a", entry.member, 7)) is True
    assert [job["id"] for job in look.queue("a")] == [job.id for job in jobs if job.id != entry.job.id]
    assert go(operate.unqueue(keys, "a", entry.member, 7)) is False
    assert look.total("deleted:a") == 1


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_waiting_job_is_found_though_the_queue_moved_since(keys, call, go, enqueuer, look, ahead):
    enqueuer.enqueue_many("a", [{"n": n} for n in range(200)])
    entry = go(inspect.peek(keys, "a", offset=150, size=1)).entries[0]
    for _ in range(100):
        call("RPOP", keys.queue("a"))
    for i in range(ahead):
        call("RPUSH", keys.queue("a"), payload("a", f"given back {i}"))
    assert go(operate.unqueue(keys, "a", entry.member, 150)) is True
    assert entry.job.id not in {job["id"] for job in look.queue("a")}
    assert call("LLEN", keys.queue("a")) == 99 + ahead


def test_a_waiting_job_that_was_given_back_ahead_of_is_found(keys, call, go, enqueuer):
    enqueuer.enqueue_many("a", [{"n": n} for n in range(5)])
    entry = go(inspect.peek(keys, "a", offset=2, size=1)).entries[0]
    for i in range(10):
        call("RPUSH", keys.queue("a"), payload("a", f"given back {i}"))
    assert go(operate.unqueue(keys, "a", entry.member, 2)) is True
    assert call("LLEN", keys.queue("a")) == 14


def test_a_waiting_job_can_be_killed_and_frees_its_key(keys, call, go, enqueuer, look):
    job = enqueuer.enqueue_unique("a", n=1)
    entry = go(inspect.peek(keys, "a")).entries[0]
    assert go(operate.unqueue(keys, "a", entry.member, 0, now=look.now(), kill=True)) is True
    assert [one["id"] for one in look.dead()] == [job.id]
    assert call("EXISTS", job.unique_key, keys.queue("a")) == 0


def test_a_job_too_deep_in_its_queue_is_refused_in_words(keys):
    with pytest.raises(BadOption, match="number 10,001 in the queue 'a'"):
        operate.unqueue(keys, "a", b"{}", 10_000)


def test_two_killed_jobs_with_the_same_bytes_are_two_dead_jobs(keys, call, go, look):
    same = b'{"name":"a","id":"","t":1,"args":null}'
    call("LPUSH", keys.queue("a"), same, same)
    for _ in range(2):
        assert go(operate.unqueue(keys, "a", same, 0, now=1.0, kill=True)) is True
    assert len(look.dead()) == 2


def test_pausing_and_resuming_say_whether_it_changed_anything_and_resuming_rings(keys, call, go, enqueuer):
    enqueuer.enqueue("a")
    assert go(operate.pause(keys, "a")) is True
    assert go(operate.pause(keys, "a")) is False
    call("DEL", keys.bell("a"))
    assert go(operate.resume(keys, "a")) is True
    assert call("ZCARD", keys.bell("a")) == 1
    assert go(operate.resume(keys, "a")) is False


def test_a_purge_deletes_what_waited_and_frees_the_keys(keys, call, go, enqueuer, look):
    job = enqueuer.enqueue_unique("a", n=1)
    enqueuer.enqueue_many("a", [{}] * 250)
    call("LPUSH", keys.queue("a"), b"\xff")
    assert go(operate.purge(keys, "a", most=100)) == 100
    assert go(operate.purge(keys, "a")) == 152
    assert call("EXISTS", keys.queue("a"), job.unique_key) == 0
    assert look.total("deleted:a") == 252


def test_a_purge_deletes_only_what_it_saw(keys, call, go, enqueuer):
    enqueuer.enqueue_many("a", [{"n": n} for n in range(6)])
    seen = go(inspect.peek(keys, "a", size=4)).entries
    call("RPOP", keys.queue("a"))
    jobs = [(place, entry.member) for place, entry in enumerate(seen)]
    assert go(operate.unqueue_many(keys, "a", jobs)) == 3
    call("RPUSH", keys.queue("a"), payload("a", "given back"))
    assert go(operate.unqueue_many(keys, "a", jobs)) == 0
    assert call("LLEN", keys.queue("a")) == 3


# Attempts and broken entries.


def test_only_an_attempt_that_a_live_pool_holds_can_be_cancelled(keys, call, go, enqueuer, new_ghost):
    enqueuer.enqueue("a")
    ghost = new_ghost(lease=30)
    ((token, _),) = ghost.take("a")
    assert go(operate.cancel(keys, ghost.id, "99:a")) is False
    assert go(operate.cancel(keys, "nobody", token)) is False
    assert go(operate.cancel(keys, ghost.id, token)) is True
    assert go(membership.beat(keys, ghost.id, lease=30)).cancel == (token,)


def test_a_running_job_that_is_cancelled_is_told_to_wind_up(keys, go, new_pool):
    pool = new_pool(beat=0.3)
    running, told = threading.Event(), threading.Event()

    @pool.job
    def endless(job: Job):
        running.set()
        while not job.stopping and not told.wait(0.01):
            pass
        told.set()

    job = endless.enqueue()
    pool.start()
    assert running.wait(60)
    found = go(find.find_job(keys, job.id))
    assert go(operate.cancel(keys, found.pool_id, found.token)) is True
    assert told.wait(60)


def test_a_broken_entry_is_put_back_mended_or_dropped(keys, call, go, look):
    for text in (b"one", b"two", b"three"):
        call("RPUSH", keys.broken, codec.broken_entry(text, at=1, where="w", why="y"))
    one, two, three = go(broken.page(keys)).entries
    with pytest.raises(BadOption, match="cannot be read"):
        operate.repair(keys, two, b"still nonsense")
    assert go(operate.delete_broken(keys, one)) is True
    repaired = payload("a", "two")
    assert go(operate.repair(keys, two, repaired)) is True
    assert go(operate.repair(keys, two, repaired)) is False
    assert call("LRANGE", keys.queue("a"), 0, -1) == [repaired]
    assert call("LRANGE", keys.broken, 0, -1) == [three.entry]
    assert call("SISMEMBER", keys.known_jobs, "a") == 1
    assert call("ZCARD", keys.bell("a")) == 1


# Finding and explaining.


def test_a_job_is_found_in_every_state(keys, call, go, enqueuer, new_ghost):
    waiting = enqueuer.enqueue_many("a", [{}] * 3)[2]
    enqueuer.enqueue("b", n=1)
    ghost = new_ghost(lease=30)
    ((token, held),) = ghost.take("b")
    scheduled = enqueuer.enqueue_in("a", 600)
    for source, name in ((keys.retry, "retry"), (keys.dead, "dead"), (keys.done, "done")):
        call("ZADD", source, 77, payload("a", name), 78, payload("a", "other"))
    call("SET", keys.result("only"), '{"result":1}')

    found = go(find.find_job(keys, waiting.id))
    assert (found.state, found.name, found.place, found.job.id) == ("waiting", "a", 2, waiting.id)
    found = go(find.find_job(keys, held["id"]))
    assert (found.state, found.pool_id, found.token) == ("running", ghost.id, token)
    found = go(find.find_job(keys, scheduled.id))
    assert found.state == "scheduled"
    assert abs(found.at - scheduled.scheduled_at) < 0.01
    for name in ("retry", "dead", "done"):
        found = go(find.find_job(keys, name))
        assert (found.state, found.at, found.job.id) == (name, 77.0, name)
    assert go(find.find_job(keys, "only")).result == b'{"result":1}'
    assert go(find.find_job(keys, "nobody")) is None


def test_a_running_job_is_found_behind_many_and_large_ones(keys, call, go):
    call("ZADD", keys.pools, 4e12, "p1")
    big = b'{"x":"%b"}' % (b"y" * 300_000)
    for i in range(12):
        call("HSET", keys.held("p1"), f"{i}:a", codec.write(b'"a"', f"big{i}", 1, big))
    call(
        "HSET",
        keys.held("p1"),
        *(word for i in range(100, 2600) for word in (f"{i}:a", payload("a", f"id{i}"))),
    )
    for job_id in ("big0", "big11", "id100", "id2599"):
        assert go(find.find_job(keys, job_id)).pool_id == "p1"


def test_an_id_inside_of_arguments_is_not_the_job(keys, go, enqueuer):
    enqueuer.enqueue("a", other="x-7", id="x-7")
    assert go(find.find_job(keys, "x-7")) is None
    enqueuer.using(id="x-7").enqueue("a")
    assert go(find.find_job(keys, "x-7")).place == 1


def test_an_id_that_is_a_job_name_too_is_looked_for_at_the_cost_of_any_other(keys, call, go, link, server):
    call("SADD", keys.known_jobs, "mail")
    call("LPUSH", keys.queue("mail"), *(payload("mail", f"id{i}") for i in range(3000)))
    with monitor(server.port, link) as heard:
        assert go(find.find_job(keys, "mail")) is None
    assert len([words for words in heard.by_clients if keys.queue("mail").encode() in words]) < 10
    call("RPUSH", keys.queue("mail"), b'{"name":"mail", "args":{"id":"x"}, "id" : "mail", "t":1}')
    assert go(find.find_job(keys, "mail")).place == 0


def test_large_payloads_are_read_few_at_a_time(keys, call, link):
    queue = keys.queue("a")
    call("RPUSH", queue, *(payload("a", f"id{i}") for i in range(300)))
    big = codec.write(b'"a"', "big", 1, b'{"x":"%b"}' % (b"y" * 500_000))
    for _ in range(100):
        call("RPUSH", queue, big)
    found = link.run(find.seek(queue, [b'"nobody"']))
    # Some are there before it is known that they are large; those that follow are left for the next look.
    assert 300 < found.searched < 310
    same = link.run(find.seek(queue, [b'"big"'], offset=300))
    assert len(same.candidates) <= 10


def test_an_id_with_odd_characters_is_found_as_go_writes_it_too(keys, call, go):
    call("LPUSH", keys.queue("a"), b'{"name":"a","id":"<\\u0026\\u003e","t":1,"args":null}')
    call("LPUSH", keys.queue("a"), b'{"name":"a","id":"\\u003c\\u0026\\u003e","t":1,"args":null}')
    assert go(find.find_job(keys, "<&>", "a")).place == 1


def test_a_waiting_job_is_looked_for_among_the_first_ten_thousand(keys, call, go):
    queue = keys.queue("a")
    for start in range(0, 12_000, 1000):
        call("LPUSH", queue, *(payload("a", f"id{i}") for i in range(start, start + 1000)))
    assert go(find.find_job(keys, "id9999", "a")).place == 9999
    assert go(find.find_job(keys, "id10500", "a")) is None
    # And among the last, where those arrive that move while one looks.
    assert go(find.find_job(keys, "id11500", "a")).place == 11_500


def test_a_quick_look_sees_so_much_of_each_queue_and_of_all(keys, call, go, monkeypatch):
    monkeypatch.setattr(find, "QUICK", 2000)
    monkeypatch.setattr(find, "QUICK_IN_ALL", 3300)
    for name in ("a", "b", "c"):
        call("SADD", keys.known_jobs, name)
        call("LPUSH", keys.queue(name), *(payload(name, f"{name}{i}") for i in range(5000)))
    for job_id, place in (("c50", 50), ("c1050", 1050)):
        assert go(find.find_job(keys, job_id, quick=True)).place == place
    # That would be the third stretch of each, and more than 3,300 of all.
    assert go(find.find_job(keys, "c1500", quick=True)) is None
    for name, quick in (("c", True), (None, False)):
        assert go(find.find_job(keys, "c1500", name, quick=quick)).place == 1500


def test_a_job_that_goes_back_to_its_queue_while_one_looks_is_found(keys, call, link):
    """It was in retry when its queue was looked at, and in its queue when retry was."""
    sent = payload("a", "mine")
    call("SADD", keys.known_jobs, "a")
    call("LPUSH", keys.queue("a"), *(payload("a", f"id{i}") for i in range(10)))
    call("ZADD", keys.retry, 1, sent)

    class Moving:
        run = staticmethod(link.run)

        def run_many(self, ops):
            if any(keys.retry in op.keys for op in ops) and call("ZREM", keys.retry, sent):
                call("LPUSH", keys.queue("a"), sent)
            return link.run_many(ops)

    found = walk(Moving(), find.find_job(keys, "mine"))
    assert (found.state, found.place) == ("waiting", 10)
    assert call("ZCARD", keys.retry) == 0


def test_both_drivers_take_the_same_steps(redis_url, keys, enqueuer):
    job = enqueuer.enqueue("a")

    async def main():
        link = AsyncLink(addresses.parse_url(redis_url), tag=keys.known_jobs)
        try:
            sizes = await awalk(link, inspect.sizes(keys))
            return sizes, await awalk(link, find.find_job(keys, job.id))
        finally:
            await link.close()

    sizes, found = asyncio.run(main())
    assert sizes.dead == 0
    assert found.state == "waiting"


def test_many_requests_of_the_async_driver_are_one_round_trip(redis_url, keys, call):
    call("SET", keys.queue("wrong"), "x")
    call("SCRIPT", "FLUSH")
    good = [plain("INCR", keys.result("n")) for _ in range(200)]

    def reads():
        """How often the server found something to read."""
        lines = call("INFO", "stats").decode().splitlines()
        return next(
            int(line.partition(":")[2]) for line in lines if line.startswith("total_reads_processed:")
        )

    async def main():
        found = AsyncLink(addresses.parse_url(redis_url), tag=keys.known_jobs)
        try:
            before = reads()
            answers = await found.run_many([*good, inspect.queues(keys, ["a"])])
            took = reads() - before
            with pytest.raises(Rejected):
                await found.run_many([good[0], plain("LLEN", keys.queue("wrong")), good[0]])
            # Nothing of it is left over for the next one.
            return took, answers, await found.run(good[0])
        finally:
            await found.close()

    took, answers, last = asyncio.run(main())
    assert answers[:200] == list(range(1, 201))
    assert answers[200].queues[0].size == 0
    assert last == 203
    assert took < 50


def why(go, keys, job):
    return go(reasons.explain(keys, getattr(job, "id", job)))


def test_a_waiting_job_names_what_keeps_it_from_running(keys, call, go, enqueuer, look):
    job = enqueuer.enqueue_many("a", [{}] * 2)[1]
    assert why(go, keys, job).kind == "no_pool"
    assert words.sentence(why(go, keys, job)) == (
        'Waits in the queue "a" (1 ahead of it): no pool is running.'
    )
    call("ZADD", keys.pools, (look.now() + 60) * 1000, "p1")

    def say(**status):
        call("SET", keys.pool("p1"), msgspec.json.encode({"id": "p1", "concurrency": 2, **status}))

    assert why(go, keys, job).obstacle == NoWorker(pools=1, unreported=1)
    say(names=["b"])
    assert why(go, keys, job).obstacle == NoWorker(pools=1, unreported=0)
    say(names=["a"], quiet=True)
    assert why(go, keys, job).obstacle == AllQuiet(pools=1)
    say(names=["a"], held=2)
    assert [pool.id for pool in why(go, keys, job).obstacle.full] == ["p1"]
    say(names=["a", "b"], async_names=["b"], concurrency=9, threads=1, threads_busy=1, held=1)
    assert [pool.id for pool in why(go, keys, job).obstacle.threadless] == ["p1"]
    say(names=["a", "b"], async_names=["a"], concurrency=9, threads=1, threads_busy=1, held=1)
    assert why(go, keys, job).kind == "next"
    say(names=["a"], held=1)
    assert why(go, keys, job).kind == "next"
    go(operate.set_concurrency_limit(keys, "a", 1))
    call("SADD", keys.held_of("a"), "p1/1:a")
    assert why(go, keys, job).obstacle == AtLimit(held=1, limit=1)
    assert why(go, keys, job).holders == ("p1/1:a",)
    go(operate.pause(keys, "a"))
    assert why(go, keys, job).obstacle == QueuePaused(by="", at=None)


def test_other_jobs_name_what_they_wait_for(keys, call, go, enqueuer, look):
    later = why(go, keys, enqueuer.enqueue_in("a", 420))
    assert later.kind == "due_later"
    assert 300 < later.seconds <= 420
    now = look.now()
    call("ZADD", keys.retry, now - 100, payload("a", "late", fails=2, err="ValueError: no\nmore"))
    late = why(go, keys, "late")
    assert (late.kind, late.fails, late.leader) == ("overdue", 2, None)
    call("SET", keys.unique("a", "k"), "holder")
    call("ZADD", keys.dead, now - 7200, payload("a", "gone", err="boom", unique_key=keys.unique("a", "k")))
    gone = why(go, keys, "gone")
    assert (gone.kind, gone.error, gone.holder) == ("dead", "boom", "holder")
    assert gone.seconds == pytest.approx(7200, abs=60)
    call("ZADD", keys.done, now + 3600 * 5, payload("a", "kept"))
    assert why(go, keys, "kept").kind == "done"
    assert why(go, keys, "kept").kept_for == pytest.approx(3600 * 5, abs=60)
    assert why(go, keys, "nobody") == JobNotFound("nobody")
    expired = enqueuer.enqueue("x")
    call("DEL", keys.queue("x"))
    call("LPUSH", keys.queue("x"), payload("x", expired.id, expires=5))
    assert why(go, keys, expired).kind == "expired"


def test_a_running_job_says_where_and_for_how_long(keys, call, go, enqueuer, new_ghost, look):
    job = enqueuer.enqueue("a")
    ghost = new_ghost(lease=30)
    ((token, _),) = ghost.take("a")
    assert (why(go, keys, job).kind, why(go, keys, job).pool.id) == ("starting", ghost.id)
    worker = {"token": token, "name": "a", "id": job.id, "started_at": look.now() - 30, "checkin": "row 3"}
    status = {"id": ghost.id, "host": "box", "pid": 7, "workers": [worker]}
    call("SET", keys.pool(ghost.id), msgspec.json.encode(status))
    runs = why(go, keys, job)
    assert (runs.kind, runs.pool.host, runs.pool.pid, runs.checkin) == ("running", "box", 7, "row 3")
    assert 29 < runs.seconds < 100
    go(maintain.condemn(keys, lease=1, proven=[ghost.id], judge=False))
    assert why(go, keys, job) == HolderDied(ghost.id)


def test_no_look_or_action_changes_what_a_full_server_still_lets_one_do(keys, call, go, enqueuer):
    """With memory full an operator can still look, delete, purge and pause what would drain it."""
    enqueuer.enqueue_many("a", [{}] * 5)
    call("ZADD", keys.retry, 4e9, payload("a", "r"))
    entry = go(inspect.peek(keys, "a")).entries[2]
    call("CONFIG", "SET", "maxmemory", 1)
    try:
        assert go(inspect.queues(keys, ["a"])).queues[0].size == 5
        assert go(operate.unqueue(keys, "a", entry.member, 2)) is True
        assert go(operate.kill(keys, keys.retry, payload("a", "r"), now=1.0)) is True
        dead = [entry.member for entry in go(inspect.page(keys.dead)).entries]
        assert go(operate.delete_many(keys, keys.dead, dead)) == 1
        assert go(operate.purge(keys, "a")) == 4
    finally:
        call("CONFIG", "SET", "maxmemory", 0)
