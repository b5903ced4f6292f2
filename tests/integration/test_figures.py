"""Figures of each minute: runs, fails and sizes; roll-ups of them; what comes in; and how little reading them costs."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from dayjob import Admin, Job
from dayjob.admin.minute_cache import MAX_AGE_SECONDS, MinuteCache
from dayjob.errors import Full, Rejected
from dayjob.store import addresses
from dayjob.store.link import Link, walk
from dayjob.store.ops import figures, rollups
from dayjob.store.ops.figures import Counts
from dayjob.store.scripts import load
from dayjob.worker.chores.recorder import LATE_MINUTES, Recorder
from dayjob.worker.shared_link import SharedLink
from monitor import monitor
from server import wait_until


@pytest.fixture
def recorder(keys, redis_url):
    link = Link(addresses.parse_url(redis_url), tag=keys.known_jobs)
    yield Recorder(keys, SharedLink(link))
    link.close()


def all_minutes(keys, link, look):
    now = int(look.now() // 60)
    return [minute.counts for minute in walk(link, figures.minutes(keys, range(now - 2, now + 1)))]


# Fails.


def test_fails_are_counted_beside_runs_exactly(new_pool, look, keys, link, admin):
    pool = new_pool(concurrency=8)

    @pool.job(max_fails=2, backoff=0)
    def plain(job: Job, n: int) -> None:
        if n % 4 == 1 and job.fails == 0:
            raise ValueError("once")
        if n % 4 == 2:
            raise ValueError("always")

    @pool.job(max_fails=1, skip_dead=True)
    async def coloured(n: int) -> None:
        if n % 2:
            raise ValueError("no")

    pool.enqueuer.enqueue_many("plain", [{"n": n} for n in range(200)])
    pool.enqueuer.enqueue_many("coloured", [{"n": n} for n in range(100)])
    with pool:
        wait_until(lambda: look.total("done:plain") == 150 and look.total("dead:plain") == 50)
        assert pool.drain(60)
    found = all_minutes(keys, link, look)
    for name, fails, runs in (("plain", 150, 300), ("coloured", 50, 100)):
        assert sum(minute.failed(name) for minute in found) == fails == look.total(f"failed:{name}")
        assert sum(minute.ran(name) for minute in found) == runs
    metrics = {job.name: job for job in admin.metrics().jobs}
    assert (metrics["plain"].failed, metrics["plain"].failing) == (150, 0.5)
    assert sum(metrics["plain"].fails) == 150
    assert (metrics["coloured"].failed, metrics["coloured"].failing) == (50, 0.5)
    notes = {note.subject: note.text for note in admin.verdict().notes if "%" in note.text}
    assert notes == {"plain": '50% of "plain" fail', "coloured": '50% of "coloured" fail'}


def test_an_attempt_whose_thread_does_not_end_counts_as_run_and_failed(new_pool, look, keys, link):
    pool = new_pool(concurrency=1, grace=0.1)
    forever = threading.Event()

    @pool.job(timeout=0.1, max_fails=1)
    def deaf() -> None:
        while True:
            try:
                forever.wait(60)
                return
            except Exception:  # a handler that swallows what it is told
                continue

    deaf.enqueue()
    pool.start()
    try:
        wait_until(lambda: look.total("dead:deaf") == 1)

        def counted():
            found = all_minutes(keys, link, look)
            return sum(minute.ran("deaf") for minute in found), sum(minute.failed("deaf") for minute in found)

        wait_until(lambda: counted() == (1, 1))
    finally:
        forever.set()


# Sizes, and what comes in.


def test_the_leader_notes_how_many_jobs_wait_as_a_minute_begins(new_pool, enqueuer, look, keys, link):
    enqueuer.enqueue_many("stray", [{} for _ in range(5)])
    pool = new_pool(concurrency=1)
    pool.register("work", lambda: None)
    pool.start()

    def sampled():
        now = int(look.now() // 60)
        found = [link.run(figures.minute(keys, minute)) for minute in (now, now - 1)]
        return [minute.counts for minute in found if minute.counts.sizes is not None]

    assert wait_until(sampled)[0].sizes == {"stray": 5}


def test_what_came_in_is_what_went_out_and_by_how_much_the_queue_grew():
    def minute(number, fetched=0, sizes=None):
        return Counts(number, taken={"a": fetched}, sizes=sizes)

    assert figures.came_in(minute(1, 10, {"a": 5}), minute(2, 0, {"a": 7}), "a") == 12
    assert figures.came_in(minute(1, 10, {"a": 5}), minute(2, 0, {}), "a") == 5
    assert figures.came_in(minute(1, 0, {"a": 5}), minute(2, 0, {}), "a") == 0  # deleted
    assert figures.came_in(minute(1, 10, None), minute(2, 0, {"a": 7}), "a") is None
    assert figures.came_in(minute(1, 10, {"a": 5}), minute(2, 0, None), "a") is None
    assert figures.came_in(minute(1, 10, {"a": 5}), None, "a") is None


def test_a_queue_shows_what_comes_in_goes_out_and_fails(enqueuer, call, keys, look, namespace, redis_url):
    enqueuer.enqueue_many("mail", [{}] * 102)

    def read(last):
        for ago in range(6, -1, -1):
            fields = {
                "mail|o": 10,
                "mail|w4": 10,
                "mail|r4": 9,
                "mail|f": 3,
                "mail|q": 100 - 2 * ago,
                "|q": 1,
            }
            call("HSET", keys.minute(last - ago), *(part for pair in fields.items() for part in pair))
        with Admin(namespace, redis=redis_url) as fresh:
            return fresh.queue("mail"), fresh.queues()

    (detail, listed), last = look.within_a_minute(read)
    view = detail.view
    minutes = (detail.now - (last - 5) * 60) / 60
    # Six minutes are looked at, in which 60 were fetched and the queue grew from 90 to 102.
    assert [view.incoming, view.out, view.fails] == pytest.approx([72 / minutes, 54 / minutes, 18 / minutes])
    assert view.failing == pytest.approx(1 / 3)
    assert (detail.incoming, detail.incoming_exact) == (view.incoming, True)
    assert len(detail.series) == 60
    # The minute that is not over: what comes in is known from the size at its end.
    assert (detail.series[-1].at, detail.series[-1].runs, detail.series[-1].incoming) == (last * 60, 9, None)
    newest = detail.series[-2]
    assert (newest.at, newest.incoming, newest.out, newest.runs, newest.fails, newest.size) == (
        (last - 1) * 60, 12, 10, 9, 3, 98,
    )  # fmt: skip
    assert detail.series[0].incoming is None
    minutes = (listed.now - (last - 5) * 60) / 60
    assert listed.queues[0].incoming == pytest.approx(72 / minutes)
    assert listed.queues[0].failing == view.failing


@pytest.mark.parametrize("age", [3, 25, 59, 61, 119, 200, 299, 301, 1000])
def test_what_comes_in_and_goes_out_is_divided_by_the_time_since_the_figures_began(
    call, keys, look, namespace, redis_url, age
):
    """Five a second came in and were run since a pool started, so many seconds ago."""

    def read(last):
        begin = int(look.now()) - age
        ran = 0
        for minute in range(begin // 60, last + 1):
            seconds = min(look.now(), minute * 60 + 60) - max(begin, minute * 60)
            mark = max(begin, minute * 60)
            jobs = int(seconds * 5)
            call("HSET", keys.minute(minute), "mail|o", jobs, "mail|r4", jobs, "|q", mark)
            ran += jobs if minute >= last - 5 else 0
        with Admin(namespace, redis=redis_url) as fresh:
            return fresh.queue("mail"), fresh.queues(), ran, max(begin, (last - 5) * 60)

    call("SADD", keys.known_jobs, "mail")
    (detail, listed, ran, begin), _ = look.within_a_minute(read)
    for view, now in ((detail.view, detail.now), (listed.queues[0], listed.now)):
        assert view.out == view.incoming == pytest.approx(ran * 60 / (now - begin))
    assert detail.runs.count >= ran


def test_figures_of_the_first_moments_of_a_pool_agree(
    admin, new_pool, look, keys, call, namespace, redis_url
):
    pool = new_pool()
    pool.register("mail", lambda: None)
    pool.start()
    # The leader counts the queues as it starts.
    wait_until(lambda: any(call("HEXISTS", keys.minute(int(look.now() // 60) - ago), "|q") for ago in (0, 1)))
    pool.enqueuer.enqueue_many("mail", [{} for _ in range(200)])
    wait_until(lambda: look.total("done:mail") == 200)
    wait_until(lambda: sum(minute.ran("mail") for minute in minutes_of(admin)) == 200)
    # A new one, which has not read minutes whose last figures came later.
    with Admin(namespace, redis=redis_url) as fresh:
        (view,) = fresh.queues().queues
        assert view.out == view.incoming > 0
        assert fresh.queue("mail").runs.count == 200


def minutes_of(admin):
    """The counts of the last minutes, the one under way included."""
    return [minute.counts for minute in admin.scrape().minutes]


def test_without_sizes_what_comes_in_is_looked_for_roughly(admin, enqueuer):
    enqueuer.enqueue_many("mail", [{} for _ in range(20)])
    detail = admin.queue("mail")
    assert detail.view.incoming is None
    assert not detail.incoming_exact
    assert 18 <= detail.incoming <= 20


def test_how_busy_its_workers_are_is_told(new_pool, look, keys, call, namespace, redis_url):
    pool = new_pool(concurrency=10)
    pool.register("mail", lambda: None)
    pool.start()
    wait_until(look.status)

    # The middle of the bucket is 7.8 s.
    def read(last):
        for minute in range(last - 6, last + 1):
            call("HSET", keys.minute(minute), "mail|r33", 30, "|q", 1)
        with Admin(namespace, redis=redis_url) as fresh:
            return fresh.queues()

    found, last = look.within_a_minute(read)
    (view,) = found.queues
    assert view.utilisation == pytest.approx(6 * 30 * 7.8 / (10 * (found.now - (last - 5) * 60)), rel=0.05)


# Roll-ups.


def pass_by(recorder, minute, names=()):
    """What a leader does as a minute begins: it has seen the one before."""
    recorder.record((minute - 1) * 60.0, list(names))
    recorder.record(minute * 60.0, list(names))


def rolled_up(link, keys, first, last, span):
    """The counts that were kept; no minute is read for them."""

    def nothing(numbers):
        assert not numbers
        return []
        yield

    return walk(link, rollups.series(keys, first, last, span, nothing))


def fill(call, keys, first, count):
    for minute in range(first, first + count):
        call(
            "HSET", keys.minute(minute), "mail|r4", 5, "mail|r9", 1, "mail|w2", 6, "mail|f", minute % 3, "|x3", 7,
            "mail|q", minute % 50, "|q", 1, "sms|r1", 2,
        )  # fmt: skip


def shown(metrics):
    """What ran in each minute, by its start; a minute may have passed between two looks."""
    (mail,) = (job for job in metrics.jobs if job.name == "mail")
    found = zip(metrics.starts, mail.series, mail.fails, strict=True)
    return {start: (ran, failed) for start, ran, failed in found if ran}


def without_now(metrics):
    return metrics.jobs, metrics.starts, metrics.step, metrics.trips


@pytest.mark.parametrize(("hours", "span"), [(24, 15), (72, 60)])
def test_roll_ups_say_the_same_as_the_minutes_they_are_made_of(
    admin, recorder, call, keys, look, hours, span
):
    last = int(look.now() // 60)
    if last % span >= span - 1:
        wait_until(lambda: int(look.now() // 60) % span < span - 1, 70)
        last = int(look.now() // 60)
    fill(call, keys, last - 200, 201)
    plain = admin.metrics(hours)
    for minute in range(last - 200, last):
        recorder.record(minute * 60.0, ["mail"])
    over = (last - 1 - LATE_MINUTES) // span * span - span
    assert call("EXISTS", keys.counts(span, over), keys.times(span, over)) == 2
    assert without_now(admin.metrics(hours)) == without_now(plain)
    mail = next(job for job in plain.jobs if job.name == "mail")
    assert sum(mail.series) == 6 * 201
    assert sum(mail.fails) == mail.failed > 0
    assert mail.failing == mail.failed / (6 * 201)
    known = [number for number in mail.incoming if number is not None]
    assert known
    # With the minutes gone, what was rolled up is still there.
    for minute in range(over, over + span):
        call("DEL", keys.minute(minute))
    assert without_now(admin.metrics(hours)) == without_now(plain)


def test_a_roll_up_waits_for_figures_that_come_late(recorder, call, keys, link):
    first = 1_000_000 * 15
    fill(call, keys, first, 15)
    pass_by(recorder, first + 15 + 1)
    assert call("EXISTS", keys.counts(15, first)) == 0
    call("HINCRBY", keys.minute(first + 14), "mail|r4", 100)
    recorder.record((first + 15 + 2) * 60.0, [])
    (found,) = rolled_up(link, keys, first, first + 14, 15)
    assert found.ran("mail") == 15 * 6 + 100
    assert found.sizes == {"mail": first % 50}
    for key in (keys.counts(15, first), keys.times(15, first)):
        assert 93_500 <= call("TTL", key) <= rollups.KEPT_SECONDS[15]


def test_a_roll_up_is_made_once_by_however_many_leaders(recorder, keys, call, redis_url):
    first = 1_000_000 * 15
    fill(call, keys, first, 15)
    pass_by(recorder, first + 20)
    pass_by(recorder, first + 21)
    made = call("MGET", keys.counts(15, first), keys.times(15, first))
    assert None not in made
    call("DEL", keys.minute(first), keys.counts(1, first), keys.times(1, first))
    link = Link(addresses.parse_url(redis_url), tag=keys.known_jobs)
    pass_by(Recorder(keys, SharedLink(link)), first + 22)
    link.close()
    assert call("MGET", keys.counts(15, first), keys.times(15, first)) == made


def test_a_minute_of_a_wrong_type_stops_nothing(recorder, call, keys, caplog):
    first = 1_000_000 * 15
    fill(call, keys, first, 15)
    call("SET", keys.minute(first), "x")
    for minute in range(first + 16, first + 20):
        pass_by(recorder, minute, ["mail"])
    assert call("HGET", keys.minute(first + 19), "|q") is not None
    assert call("EXISTS", keys.counts(15, first), keys.times(15, first)) == 2
    assert not caplog.records


def refusing(recorder, error, monkeypatch):
    """A server that takes no roll-ups."""
    run_many = recorder._link.run_many

    def refuse(ops):
        if any(op.command == "SET" for op in ops):
            raise error
        return run_many(ops)

    monkeypatch.setattr(recorder._link, "run_many", refuse)


def test_what_may_not_be_written_is_said_and_stops_nothing(recorder, call, keys, caplog, monkeypatch):
    first = 1_000_000 * 15
    fill(call, keys, first, 15)
    refusing(recorder, Rejected("NOPERM this user may not"), monkeypatch)
    pass_by(recorder, first + 20, ["mail"])
    assert "cannot be rolled up" in caplog.text
    assert call("HGET", keys.minute(first + 20), "|q") is not None


def test_a_full_server_gets_its_roll_ups_when_there_is_room(recorder, call, keys, caplog, monkeypatch):
    first = 1_000_000 * 15
    fill(call, keys, first, 4)
    refusing(recorder, Full("OOM"), monkeypatch)
    pass_by(recorder, first + 6, ["mail"])
    assert "figures are not rolled up" in caplog.text
    monkeypatch.undo()
    recorder.record((first + 7) * 60.0, ["mail"])
    assert call("EXISTS", *(keys.counts(1, first + n) for n in range(4))) == 4


def test_a_minute_that_is_over_is_kept_as_one_value_that_says_the_same(admin, recorder, call, keys, look):
    last = int(look.now() // 60)
    fill(call, keys, last - 40, 41)
    plain = admin.metrics(1)
    for minute in range(last - 34, last + 1):
        recorder.record(minute * 60.0, ["mail"])
    over = last - LATE_MINUTES
    assert call("EXISTS", *(keys.counts(1, minute) for minute in range(last - 40, over))) == 40 - LATE_MINUTES
    assert call("EXISTS", *(keys.counts(1, minute) for minute in range(over, last + 1))) == 0
    assert 7100 <= call("TTL", keys.counts(1, over - 1)) <= rollups.KEPT_SECONDS[1]
    (mail,) = (job for job in admin.metrics(1).jobs if job.name == "mail")
    assert (mail.runs.count, mail.waits.count) == (41 * 6, 41 * 6)
    # With the minutes gone, what was rolled up is still there.
    call("DEL", *(keys.minute(minute) for minute in range(last - 40, over)))
    assert dict(shown(admin.metrics(1)).items() & shown(plain).items()) == shown(plain)


def test_a_new_leader_rolls_up_what_nobody_did(recorder, call, keys, link):
    first = 1_000_000 * 60
    fill(call, keys, first, 180)
    for minute in range(first + 185, first + 215):
        recorder.record(minute * 60.0, [])
    assert call("EXISTS", *(keys.counts(60, first + 60 * n) for n in range(3))) == 3
    assert call("EXISTS", *(keys.counts(15, first + 15 * n) for n in range(12))) == 12
    (middle,) = rolled_up(link, keys, first + 60, first + 119, 60)
    assert middle.ran("mail") == 60 * 6


def test_minutes_are_kept_for_days_until_their_hour_is_rolled_up(recorder, call, keys, look, admin):
    """Pools that stop for a night roll up nothing: what ran before they did must be there in the morning."""
    hour = int(look.now() // 60) // 60 * 60
    fill(call, keys, hour - 120, 60)
    fill(call, keys, hour - 600, 7)
    for minute in (*range(hour - 120, hour - 60), *range(hour - 600, hour - 593)):
        call("EXPIRE", keys.minute(minute), figures.KEPT_SECONDS)
    pass_by(recorder, hour - 120 + 59)
    assert call("TTL", keys.minute(hour - 90)) > figures.KEPT_ROLLED_UP_SECONDS
    for minute in range(hour - 60 + 2, hour - 60 + 20):
        recorder.record(minute * 60.0, [])
    for minute in (hour - 90, hour - 600):
        assert 0 < call("TTL", keys.minute(minute)) <= figures.KEPT_ROLLED_UP_SECONDS
        call("DEL", *(keys.minute(minute // 60 * 60 + n) for n in range(60)))
    for hours in (24, 72):
        (mail,) = (job for job in admin.metrics(hours).jobs if job.name == "mail")
        assert sum(mail.series) == mail.runs.count == 67 * 6


def test_a_new_leader_that_finds_much_does_it_bit_by_bit(recorder, call, keys, look, admin):
    hour = int(look.now() // 60) // 60 * 60
    for ago in range(2, 22):
        fill(call, keys, hour - 60 * ago, 2)

    def rolled_up_hours():
        return call("EXISTS", *(keys.counts(60, hour - 60 * ago) for ago in range(2, 22)))

    seen = []
    for minute in range(4, 28):
        recorder.record((hour + minute) * 60.0, [])
        seen.append(rolled_up_hours())
    assert seen == [*range(21), 20, 20, 20]
    (mail,) = (job for job in admin.metrics(24).jobs if job.name == "mail")
    assert sum(mail.series) == mail.runs.count == 20 * 2 * 6


def test_a_new_leader_asks_once_for_each_length_what_is_missing(recorder, keys, link, server):
    assert link.run(rollups.missing_rollups(keys, 1, [1])) == []
    with monitor(server.port, link) as heard:
        pass_by(recorder, 1_000_000 * 360)
    sha = load("missing_rollups").sha.encode()
    assert sum(sha in words for words in heard.by_clients) == len(rollups.KEPT_SECONDS)
    assert not [words for words in heard.by_clients if words[0] == b"EXISTS"]


def test_six_hours_are_summed_of_hours_whose_minutes_are_gone(recorder, call, keys, look, admin):
    """Its hours were rolled up before all pools stopped, and the six hours were not."""
    now = int(look.now() // 60)
    first = now // 360 * 360 - 720
    fill(call, keys, first, 360)
    for hour in range(first + 60, first + 361, 60):
        for minute in range(2, 30):
            recorder.record((hour + minute) * 60.0, [])
    call("DEL", keys.counts(360, first), keys.times(360, first))
    call("DEL", *(keys.minute(first + n) for n in range(360)))
    (mail,) = (job for job in admin.metrics(72).jobs if job.name == "mail")
    assert mail.runs.count == mail.waits.count == 360 * 6
    other = Recorder(keys, recorder._link)
    for minute in range(now, now + 30):
        other.record(minute * 60.0, [])
    assert call("EXISTS", keys.counts(360, first), keys.times(360, first)) == 2


def test_figures_of_one_job_or_of_the_busiest_are_those_of_all(call, keys, look, namespace, redis_url):
    def read(last):
        fill(call, keys, last - 40, 41)
        with Admin(namespace, redis=redis_url) as fresh:
            answers = {name: fresh.metrics(1, name=name) for name in ("sms", "other")}
            return fresh.metrics(1), fresh.metrics(1, most=1), answers, fresh.throughput(1)

    (found, busiest, by_name, throughput), _ = look.within_a_minute(read)
    sms, mail = (next(job for job in found.jobs if job.name == name) for name in ("sms", "mail"))
    assert busiest.jobs == (mail,)
    (alone,) = by_name["sms"].jobs
    # Only the figures of one job have the spread of its times.
    assert alone.run_times is not None
    assert replace(alone, run_times=None, wait_times=None) == sms
    assert by_name["other"].jobs == ()
    for some in (found, busiest, by_name["sms"], throughput):
        assert sum(some.ended) == 41 * 8
        assert sum(some.failed) == sum(mail.fails)
    assert busiest.names == ("mail", "sms")


def test_an_hour_of_which_nothing_is_known_is_not_rolled_up(recorder, call, keys):
    first = 1_000_000 * 60
    pass_by(recorder, first + 65)
    assert (
        call("EXISTS", keys.counts(60, first), keys.counts(15, first + 45), keys.counts(1, first + 59)) == 0
    )


def test_a_damaged_roll_up_is_passed_over(admin, call, keys, look):
    last = int(look.now() // 60)
    call("HSET", keys.minute(last), "mail|r4", 5)
    for quarter in range(last // 15 * 15 - 1440, last + 1, 15):
        call("SET", keys.counts(15, quarter), b'{"names":7}')
        call("SET", keys.times(15, quarter), b'{"runs":{"mail":{"x":1}},"waits":{},"trips":{}}')
    (mail,) = admin.metrics(24).jobs
    assert sum(mail.series) == 5


@pytest.mark.parametrize("hours", [24, 72])
def test_three_days_of_figures_are_few_and_short_reads(
    admin, recorder, call, keys, look, link, server, hours
):
    last = int(look.now() // 60)
    names = [f"job{n}" for n in range(50)]
    fields = [part for name in names for bucket in range(20) for part in (f"{name}|r{bucket}", 1)]
    span = {24: 15, 72: 60}[hours]
    for minute in range(last - 3 * span, last + 1):
        call("HSET", keys.minute(minute), *fields)
    read = partial(figures.minutes, keys)
    over = last // span * span - span
    walk(link, rollups.roll_up(keys, span, over, read))
    made = call("MGET", keys.counts(span, over), keys.times(span, over))
    for start in range(last // span * span - hours * 60, over, span):
        call("MSET", keys.counts(span, start), made[0], keys.times(span, start), made[1])
    with monitor(server.port, link) as heard:
        found = admin.metrics(hours)
    assert len(found.jobs) == 50
    # Of several that use this server at the same time, only our own are counted.
    own = [words for words in heard.by_clients if any(keys.prefix.encode() in word for word in words)]
    # The longer ones are not there, so that hours are asked for twice.
    assert len(own) <= 200


def test_a_look_at_no_minute_at_all_is_cheap(admin, link, server, keys):
    with monitor(server.port, link) as heard:
        assert admin.metrics(72).jobs == ()
    own = [words for words in heard.by_clients if any(keys.prefix.encode() in word for word in words)]
    # Whether there is anything of each hour and of each piece of the sum, and the minutes since the last quarter.
    assert len(own) <= 72 + (2 + 6 + 10 + 3 + 2) + 2 * 4 + 16


def test_a_former_leader_writes_over_nothing(recorder, call, keys, redis_url, monkeypatch):
    """It could not reach Redis for a while: another has led, and the minutes are gone."""
    first = 1_000_000 * 15
    fill(call, keys, first, 15)
    refusing(recorder, Full("OOM"), monkeypatch)
    pass_by(recorder, first + 20)
    monkeypatch.undo()
    link = Link(addresses.parse_url(redis_url), tag=keys.known_jobs)
    other = Recorder(keys, SharedLink(link))
    for minute in range(first + 21, first + 30):
        other.record(minute * 60.0, [])
    link.close()
    made = call("MGET", keys.counts(15, first), keys.times(15, first))
    assert None not in made
    for minute in range(first, first + 15):
        call("DEL", keys.minute(minute), keys.counts(1, minute))
    for minute in range(first + 30, first + 40):
        recorder.record(minute * 60.0, [])
    assert call("MGET", keys.counts(15, first), keys.times(15, first)) == made


def test_after_a_time_without_redis_pools_may_send_what_they_had(recorder, call, keys, link):
    """They send again what got no answer, with the minute it was made in."""
    first = 1_000_000 * 15
    fill(call, keys, first, 5)
    pass_by(recorder, first + 2)
    # Redis was away for ten minutes. The leader is the first to be back.
    recorder.record((first + 14) * 60.0, [])
    call("HINCRBY", keys.minute(first + 4), "mail|r4", 100)
    recorder.record((first + 15) * 60.0, [])
    found = rolled_up(link, keys, first + 4, first + 4, 1)
    assert found[0].ran("mail") == 106


def test_a_clock_that_is_set_back_hides_nothing(recorder, call, keys, link):
    """Figures come into minutes that are rolled up."""
    first = 1_000_000 * 15
    fill(call, keys, first, 30)
    for minute in range(first + 20, first + 32):
        recorder.record(minute * 60.0, [])
    assert call("EXISTS", keys.counts(15, first), keys.counts(1, first + 20)) == 2
    recorder.record((first + 20) * 60.0, [])
    for minute in range(first + 20, first + 30):
        call("HINCRBY", keys.minute(minute), "mail|r4", 100)
    for minute in range(first + 21, first + 45):
        recorder.record(minute * 60.0, [])
    found = rolled_up(link, keys, first, first + 29, 15)
    assert [part.ran("mail") for part in found] == [15 * 6, 15 * 6 + 1000]
    assert sum(part.ran("mail") for part in rolled_up(link, keys, first + 20, first + 29, 1)) == 10 * 106


def test_hours_say_what_is_not_in_days_though_their_minutes_are_gone(recorder, call, keys, look, admin):
    """A leader died between the hours and the six hours."""
    day = int(look.now() // 60) // 1440 * 1440 - 1440
    fill(call, keys, day + 1080, 120)
    read = partial(figures.minutes, keys)
    for hour in (day + 1080, day + 1140):
        walk(recorder._link, rollups.roll_up(keys, 60, hour, read))
    for minute in range(day + 1080, day + 1200):
        call("DEL", keys.minute(minute))
    (mail,) = (job for job in admin.metrics(72).jobs if job.name == "mail")
    assert sum(mail.series) == mail.runs.count == mail.waits.count == 720


def test_the_size_of_a_span_is_that_of_its_first_minute(recorder, call, keys, link):
    first = 1_000_000 * 15
    for minute in range(first + 1, first + 15):
        call("HSET", keys.minute(minute), "mail|q", minute % 50, "|q", 1, "mail|r1", 1)
    call("HSET", keys.minute(first), "mail|r1", 1)
    walk(link, rollups.roll_up(keys, 15, first, partial(figures.minutes, keys)))
    (found,) = rolled_up(link, keys, first, first + 14, 15)
    assert found.sizes is None


def test_roll_ups_are_kept_for_longer_than_they_are_shown(recorder, call, keys, link):
    shown = {1: 1, 15: 24, 60: 72, 360: 72}
    first = 1_000_000 * 1440
    fill(call, keys, first, 1)
    for span, hours in shown.items():
        walk(link, rollups.roll_up(keys, span, first, partial(figures.minutes, keys)))
        for key in (keys.counts(span, first), keys.times(span, first)):
            # One that has just ended began a whole span ago.
            assert call("TTL", key) >= hours * 3600 + min(span, 360 if hours == 72 else 15) * 60


JUNK = (
    ("mail|r4", "9" * 5000), ("mail|r4", "x"), ("mail|r4", "1e3"), ("mail|r" + "9" * 5000, 1), ("mail|r5000", 1), ("mail|r60", 1),
    ("|q", "-"), ("mail|q", "--5"), ("mail|f", "9" * 30), ("\udcff|r4", 3), ("mail|", 1), ("", 1), ("|", 1), ("mail|r-1", 1),
)  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: f"{junk[0][:12]}={str(junk[1])[:6]}")
def test_junk_in_a_minute_stops_neither_readers_nor_the_leader(recorder, call, keys, look, admin, junk):
    last = int(look.now() // 60)
    field, value = junk[0].encode("utf-8", "surrogateescape"), junk[1]
    for minute in (last - 3, last):
        call("HSET", keys.minute(minute), "mail|r7", 5, "mail|w7", 5, field, value)
    call("HSET", keys.totals, "done:mail", value, "failed:mail", 1)
    call("SADD", keys.known_jobs, "mail")
    for _ in range(2):
        looks = (
            admin.verdict,
            admin.queues,
            admin.redis,
            admin.throughput,
            admin.scrape,
            lambda: admin.queue("mail"),
        )
        for look_ in looks:
            look_()
        (mail,) = (job for job in admin.metrics(1).jobs if job.name == "mail")
        assert mail.runs.count >= 10
        pass_by(recorder, last + 1, ["mail"])
        assert call("EXISTS", keys.counts(1, last - 3)) == 1


def test_a_minute_of_a_wrong_type_hides_no_other(call, keys, look, admin):
    last = int(look.now() // 60)
    fill(call, keys, last - 5, 6)
    call("DEL", keys.minute(last - 3))
    call("SET", keys.minute(last - 3), "x")
    admin.verdict()
    admin.queues()
    (mail,) = (job for job in admin.metrics(1).jobs if job.name == "mail")
    assert sum(mail.series) == mail.runs.count == 5 * 6


def test_junk_in_a_roll_up_stops_no_reader(call, keys, look, admin):
    last = int(look.now() // 60)
    fill(call, keys, last - 5, 6)
    call(
        "SET", keys.times(1, last - 4), b'{"runs":{"mail":{"9999":1,"-3":-2}},"waits":{},"trips":{"9999":1}}'
    )
    call("SET", keys.times(1, last - 3), b'{"runs":{"mail":{"4":1e99}},"waits":{},"trips":{}}')
    (mail,) = (job for job in admin.metrics(1).jobs if job.name == "mail")
    assert mail.runs.count == 5 * 6 - 1


# The shelf: what is over is not read again at every look.


def asked_minutes(heard, keys):
    prefix = keys.minute(0)[:-1].encode()
    return [words[1] for words in heard.by_clients if words[0] == b"HGETALL" and words[1].startswith(prefix)]


def test_minutes_that_are_over_are_read_once_for_several_looks(admin, call, keys, look, link, server):
    last = int(look.now() // 60)
    fill(call, keys, last - 10, 11)
    with monitor(server.port, link) as heard:
        for _ in range(3):
            admin.verdict()
            admin.queues()
            admin.metrics(1)
    # Not the one under way, and not one that came to its end meanwhile, if any did.
    times = Counter(asked_minutes(heard, keys))
    over = [number for name, number in times.items() if int(name.rpartition(b":")[2]) < last]
    assert over
    assert max(over) == 1


def test_a_minute_that_is_over_is_read_again_after_a_while(call, keys, link):
    shelf = MinuteCache(keys)

    def ran(now):
        (found,) = walk(link, shelf.minutes([100], now))
        return found.counts.ran("mail")

    fill(call, keys, 100, 1)
    # Under way: each time.
    assert ran(100 * 60 + 59.0) == 6
    call("HINCRBY", keys.minute(100), "mail|r4", 1)
    assert ran(101 * 60 - 0.1) == 7
    assert ran(101 * 60.0) == 7
    call("HINCRBY", keys.minute(100), "mail|r4", 1)
    assert ran(101 * 60.0 + MAX_AGE_SECONDS - 0.1) == 7
    assert ran(101 * 60.0 + MAX_AGE_SECONDS) == 8
    # A clock that was set back: nothing is known of what is to come.
    call("HINCRBY", keys.minute(100), "mail|r4", 1)
    assert ran(101 * 60.0 + 1) == 9


def test_what_is_old_leaves_the_shelf(call, keys, link):
    shelf = MinuteCache(keys)
    walk(link, shelf.minutes(range(100, 200), 200 * 60.0))
    # An hour of them at most: three days may have to be read.
    assert list(shelf._kept) == list(range(139, 200))
    walk(link, shelf.minutes([198], 201 * 60.0))
    assert list(shelf._kept) == [198]


def test_the_leader_measures_what_no_counter_keeps(
    admin, enqueuer, call, keys, look, recorder, namespace, redis_url
):
    enqueuer.enqueue("mail")
    admin.enqueue("later", {}, delay=1000)

    def read(last):
        call("HSET", keys.minute(last - 1), "|x20", 90, "|x30", 10)
        recorder._sampled = 0
        recorder.record(last * 60.0, ["mail", "later"])
        with Admin(namespace, redis=redis_url) as fresh:
            return fresh.vitals(), fresh.queue("mail")

    (found, detail), last = look.within_a_minute(read)
    assert found.starts[-1] == last * 60
    assert (found.scheduled[-1], found.retry[-1], found.dead[-1]) == (1, 0, 0)
    assert (found.workers[-1], found.busy[-1]) == (0, 0)
    assert found.memory[-1] > 100_000
    assert found.clients[-1] >= 1
    assert [found.trip_p50[-1], found.trip_p99[-1]] == pytest.approx(
        [figures.bucket_limit(20), figures.bucket_limit(30)], rel=0.001
    )
    assert found.memory[0] is None
    minute = admin._walk(figures.minutes(keys, [last], "mail"))[0]
    assert 0 < minute.counts.oldest("mail") < 60
    assert minute.counts.oldest("other") == 0
    assert 0 < detail.series[-1].oldest < 60
    assert detail.series[-2].oldest is None


def test_a_roll_up_keeps_the_largest_measure(keys):
    parts = [
        Counts(60, ages={"mail": 5000}, measures={"memory": 7}),
        Counts(61, ages={"mail": 900, "other": 1}, measures={"memory": 9}),
        Counts(62),
    ]
    whole = rollups.merged_counts(parts, 60)
    assert (whole.ages, whole.measures) == ({"mail": 5000, "other": 1}, {"memory": 9})
    stored = rollups.COUNTS.read(rollups.COUNTS.write(whole), 60)
    assert (stored.ages, stored.measures) == (whole.ages, whole.measures)
    # What an older release stored has neither.
    assert rollups.COUNTS.read(b'{"ended":{},"fails":{},"taken":{},"sizes":null}', 60).measures == {}
