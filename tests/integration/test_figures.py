"""Figures of each minute: runs, fails and sizes; roll-ups of them; what comes in; and how little reading them costs."""

from __future__ import annotations

import threading

import pytest

from dayjob import Admin, Enqueuer, Job, settings
from dayjob.store.ops import figures
from dayjob.store.ops.figures import Histogram, Minute
from dayjob.store.steps import walk
from dayjob.store.sync import Link
from dayjob.worker.recorder import Recorder
from dayjob.worker.shared import SharedLink
from monitor import monitor
from server import wait_until


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="ada") as found:
        yield found


@pytest.fixture
def recorder(keys, redis_url):
    link = Link(settings.parse_url(redis_url), tag=keys.known_jobs)
    yield Recorder(keys, SharedLink(link))
    link.close()


def all_minutes(keys, link, look):
    now = int(look.now() // 60)
    return walk(link, figures.minutes(keys, now - 2, now))


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
        assert pool.drain(10)
    found = all_minutes(keys, link, look)
    for name, fails, runs in (("plain", 150, 300), ("coloured", 50, 100)):
        assert sum(minute.failed(name) for minute in found) == fails == look.total(f"failed:{name}")
        assert sum(minute.ran(name) for minute in found) == runs
    metrics = {job.name: job for job in admin.metrics().jobs}
    assert (metrics["plain"].failed, metrics["plain"].failing) == (150, 0.5)
    assert sum(metrics["plain"].fails) == 150
    assert (metrics["coloured"].failed, metrics["coloured"].failing) == (50, 0.5)
    notes = {note.subject: note.text for note in admin.verdict().notes}
    assert notes == {"plain": "plain fails 50%", "coloured": "coloured fails 50%"}


def test_an_attempt_whose_thread_does_not_end_counts_as_run_and_failed(new_pool, look, keys, link):
    pool = new_pool(concurrency=1, grace=0.1)
    forever = threading.Event()

    @pool.job(timeout=0.1, max_fails=1)
    def deaf() -> None:
        while True:
            try:
                forever.wait(20)
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
        return [minute for minute in found if minute.sizes is not None]

    assert wait_until(sampled)[0].sizes == {"stray": 5}


@pytest.fixture
def enqueuer(namespace, redis_url):
    found = Enqueuer(namespace, redis=redis_url)
    yield found
    found.close()


def test_what_came_in_is_what_went_out_and_by_how_much_the_queue_grew():
    def minute(number, fetched=0, sizes=None):
        return Minute(number, {}, {}, Histogram(), {}, sizes, {"a": fetched})

    assert figures.came_in(minute(1, 10, {"a": 5}), minute(2, 0, {"a": 7}), "a") == 12
    assert figures.came_in(minute(1, 10, {"a": 5}), minute(2, 0, {}), "a") == 5
    assert figures.came_in(minute(1, 0, {"a": 5}), minute(2, 0, {}), "a") == 0  # deleted
    assert figures.came_in(minute(1, 10, None), minute(2, 0, {"a": 7}), "a") is None
    assert figures.came_in(minute(1, 10, {"a": 5}), minute(2, 0, None), "a") is None
    assert figures.came_in(minute(1, 10, {"a": 5}), None, "a") is None


def test_a_queue_shows_what_comes_in_goes_out_and_fails(admin, call, keys, look):
    last = int(look.now() // 60)
    for ago in range(6, -1, -1):
        fields = {"mail|o": 10, "mail|w4": 10, "mail|r4": 9, "mail|f": 3, "mail|q": 100 - 2 * ago, "|q": 1}
        call("HSET", keys.minute(last - ago), *(part for pair in fields.items() for part in pair))
    call("SADD", keys.known_jobs, "mail")
    detail = wait_until(lambda: (found := admin.queue("mail")) and int(found.now // 60) == last and found, 1)
    view = detail.view
    assert (view.incoming, view.out, view.fails) == (12.0, 9.0, 3.0)
    assert view.failing == pytest.approx(1 / 3)
    assert (detail.incoming, detail.incoming_exact) == (12.0, True)
    assert len(detail.series) == 60
    newest = detail.series[-1]
    assert (newest.at, newest.incoming, newest.out, newest.runs, newest.fails, newest.size) == (
        (last - 1) * 60, 12, 10, 9, 3, 98,
    )  # fmt: skip
    assert detail.series[0].incoming is None
    (listed,) = admin.queues().queues
    assert (listed.incoming, listed.failing) == (view.incoming, view.failing)


def test_without_sizes_what_comes_in_is_looked_for_roughly(admin, enqueuer):
    enqueuer.enqueue_many("mail", [{} for _ in range(20)])
    detail = admin.queue("mail")
    assert detail.view.incoming is None
    assert not detail.incoming_exact
    assert 18 <= detail.incoming <= 20


def test_how_busy_its_workers_are_is_told(admin, new_pool, look, keys, call):
    pool = new_pool(concurrency=10)
    pool.register("mail", lambda: None)
    pool.start()
    wait_until(look.status)
    last = int(look.now() // 60)
    # Ten workers for a minute are 600 seconds; the middle of the bucket is 7.8 s.
    for minute in range(last - 6, last + 2):
        call("HSET", keys.minute(minute), "mail|r33", 30)
    (view,) = [view for view in admin.queues().queues if view.queue.name == "mail"]
    assert 0.35 < view.utilisation < 0.45


# Roll-ups.


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
    over = (last - 1 - 5) // span * span - span
    assert call("EXISTS", keys.quarter(over) if span == 15 else keys.hour(over)) == 1
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
    recorder.record((first + 15 + 4) * 60.0, [])
    assert call("EXISTS", keys.quarter(first)) == 0
    call("HINCRBY", keys.minute(first + 3), "mail|r4", 100)
    recorder.record((first + 15 + 5) * 60.0, [])
    found = link.run(figures.rolled_up(keys, 15, first))
    assert found.ran("mail") == 15 * 6 + 100
    assert found.sizes == {"mail": first % 50} if first % 50 else found.sizes == {}
    assert 93_500 <= call("TTL", keys.quarter(first)) <= figures.KEPT[15]


def test_a_roll_up_is_made_once_by_however_many_leaders(recorder, keys, call, redis_url):
    first = 1_000_000 * 15
    fill(call, keys, first, 15)
    recorder.record((first + 20) * 60.0, [])
    made = call("GET", keys.quarter(first))
    call("DEL", keys.minute(first))
    call("DEL", keys.past(first))
    link = Link(settings.parse_url(redis_url), tag=keys.known_jobs)
    Recorder(keys, SharedLink(link)).record((first + 21) * 60.0, [])
    link.close()
    assert call("GET", keys.quarter(first)) == made


def test_a_minute_of_a_wrong_type_stops_nothing(recorder, call, keys, caplog):
    first = 1_000_000 * 15
    fill(call, keys, first, 15)
    call("SET", keys.minute(first), "x")
    recorder.record((first + 20) * 60.0, ["mail"])
    assert "cannot be rolled up" in caplog.text
    assert call("HGET", keys.minute(first + 20), "|q") is not None


def test_a_minute_that_is_over_is_kept_as_one_value_that_says_the_same(admin, recorder, call, keys, look):
    last = int(look.now() // 60)
    fill(call, keys, last - 40, 41)
    plain = admin.metrics(1)
    for minute in range(last - 34, last + 1):
        recorder.record(minute * 60.0, ["mail"])
    assert call("EXISTS", *(keys.past(minute) for minute in range(last - 40, last - 5))) == 35
    assert call("EXISTS", *(keys.past(minute) for minute in range(last - 5, last + 1))) == 0
    assert 7100 <= call("TTL", keys.past(last - 6)) <= figures.KEPT[1]
    (mail,) = (job for job in admin.metrics(1).jobs if job.name == "mail")
    assert (mail.runs.count, mail.waits.count) == (41 * 6, 41 * 6)
    # With the minutes gone, what was rolled up is still there.
    call("DEL", *(keys.minute(minute) for minute in range(last - 40, last - 5)))
    assert dict(shown(admin.metrics(1)).items() & shown(plain).items()) == shown(plain)


def test_a_new_leader_rolls_up_what_nobody_did(recorder, call, keys, link):
    first = 1_000_000 * 60
    fill(call, keys, first, 180)
    recorder.record((first + 180 + 5) * 60.0, [])
    assert call("EXISTS", *(keys.hour(first + 60 * n) for n in range(3))) == 3
    assert call("EXISTS", *(keys.quarter(first + 15 * n) for n in range(4, 12))) == 8
    assert link.run(figures.rolled_up(keys, 60, first + 60)).ran("mail") == 60 * 6


def test_minutes_are_kept_for_days_until_their_hour_is_summed(recorder, call, keys, look, admin):
    """Pools that stop for a night sum nothing: what ran before they did must be there in the morning."""
    hour = int(look.now() // 60) // 60 * 60
    fill(call, keys, hour - 120, 60)
    fill(call, keys, hour - 600, 7)
    for minute in (*range(hour - 120, hour - 60), *range(hour - 600, hour - 593)):
        call("EXPIRE", keys.minute(minute), figures.KEPT_MINUTES)
    recorder.record((hour - 60 + 5) * 60.0, [])
    assert call("EXISTS", keys.hour(hour - 120)) == 1
    assert call("TTL", keys.minute(hour - 90)) <= figures.KEPT_SUMMED
    assert call("TTL", keys.minute(hour - 600)) > figures.KEPT_SUMMED
    (mail,) = (job for job in admin.metrics(24).jobs if job.name == "mail")
    assert sum(mail.series) == 67 * 6


def test_an_hour_of_which_nothing_is_known_is_not_rolled_up(recorder, call, keys):
    first = 1_000_000 * 60
    recorder.record((first + 65) * 60.0, [])
    assert call("EXISTS", keys.hour(first), keys.quarter(first + 45), keys.past(first + 59)) == 0


def test_a_damaged_roll_up_is_passed_over(admin, call, keys, look):
    last = int(look.now() // 60)
    call("HSET", keys.minute(last), "mail|r4", 5)
    for quarter in range(last // 15 * 15 - 1440, last + 1, 15):
        call("SET", keys.quarter(quarter), b'{"names":7}')
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
    figure = figures.merged(walk(link, figures.minutes(keys, last - span, last - 1)), last - span)
    for start in range(last // span * span - hours * 60, last - 2 * span, span):
        link.run(figures.roll_up(keys, span, Minute(start, figure.runs, {}, Histogram())))
    with monitor(server.port, link) as heard:
        found = admin.metrics(hours)
    assert len(found.jobs) == 50
    # Of several that use this server at the same time, only our own are counted.
    own = [words for words in heard.by_clients if any(keys.prefix.encode() in word for word in words)]
    assert len(own) <= 230


def test_a_look_at_no_minute_at_all_is_cheap(admin, link, server, keys):
    with monitor(server.port, link) as heard:
        assert admin.metrics(72).jobs == ()
    own = [words for words in heard.by_clients if any(keys.prefix.encode() in word for word in words)]
    assert len(own) <= 72 + 72 + 1
