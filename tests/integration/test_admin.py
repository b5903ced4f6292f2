"""Admin on a real server: every view and action, what it says when it came late, and that each is noted."""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
import threading

import msgspec
import pytest

from census import dump
from dayjob import Admin, AsyncAdmin, Job
from dayjob.admin.filter_checks import kind_of
from dayjob.admin.filters import Filter, read_filter
from dayjob.admin.views import Seen
from dayjob.errors import BadArguments, BadOption, JobFailed, ResultTimeout, UnknownSchedule
from dayjob.handlers.redact import HIDDEN, UNANNOUNCED
from dayjob.store import codec
from dayjob.store.ops import figures
from dayjob.store.ops.figures import Histogram
from monitor import monitor
from server import running, wait_until


def failed(name, job_id, error, at, **extras):
    """A job as it lies in retry or dead."""
    told = {"fails": 1, "err": error, "failed_at": int(at), "attempt": f"p/{job_id}", **extras}
    return codec.write(codec.quoted(name), job_id, at - 10, b'{"n":1,"password":"x"}', told)


@pytest.fixture
def put(keys, call, look):
    """Put failed jobs into a side set: put("dead", "mail", "id1", "Timeout: 3", ago=60)."""

    def put(state, name, job_id, error="ValueError: no", ago=0.0, **extras):
        now = look.now()
        score = now + 3600 if state in ("retry", "scheduled") else now - ago
        call("SADD", keys.known_jobs, name)
        call("ZADD", getattr(keys, state), score, failed(name, job_id, error, now - ago, **extras))

    return put


def ids(page):
    return [job.id for job in page.jobs]


# Filters.


def test_a_filter_is_read_as_it_is_written_and_written_as_it_is_read():
    text = """name=mail error~'timed out' source=42 age>3600s"""
    found = read_filter(text)
    assert found.name == "mail"
    assert read_filter(str(found)) == found
    assert read_filter(str(Filter.of(kind="a 'b' \"c\""))) == read_filter('kind="a \'b\' \\"c\\""')
    assert read_filter("").empty


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nmae=mail", "Did you mean 'name'"),
        ("age=1h", "write age> or age>= or age< or age<="),
        ("name=", "needs a value"),
        ("age>soon", "such as 90s"),
        ("name='x", "not closed"),
        ("name=a name=b", "twice"),
    ],
)
def test_a_filter_that_cannot_be_read_says_how_to_write_it(text, said):
    with pytest.raises(BadOption, match=said):
        read_filter(text)


def test_errors_that_differ_only_in_numbers_and_ids_are_of_one_kind():
    assert kind_of("Timeout: 30 s for order 4711\nmore") == kind_of("Timeout: 5.5 s for order 1")
    assert kind_of("KeyError: 7f3a9c00-1234-4321-aaaa-0123456789ab") == "KeyError: #"
    assert kind_of("KeyError: facade") == "KeyError: facade"


# The verdict.


def test_where_nothing_is_wrong_all_is_well(admin, new_pool, look):
    pool = new_pool()
    pool.register("mail", lambda: None)
    pool.start()
    wait_until(look.status)
    verdict = admin.verdict()
    assert (verdict.level, verdict.sentence, verdict.notes) == ("ok", "All is well.", ())


def test_the_verdict_says_that_no_pool_runs_and_jobs_wait(admin, enqueuer):
    enqueuer.enqueue_many("mail", [{}, {}])
    verdict = admin.verdict()
    assert verdict.level == "error"
    assert verdict.sentence == "No pool is running and 2 jobs wait."
    assert verdict.waiting == 2


def test_the_verdict_names_queues_without_worker_old_jobs_pauses_and_what_could_not_be_read(
    admin, enqueuer, new_pool, keys, call, look
):
    pool = new_pool(concurrency=1)
    pool.register("known", lambda: None)
    pool.start()
    wait_until(look.status)
    enqueuer.enqueue("stray")
    call("LPUSH", keys.queue("stray"), look.payload("stray", "x"))
    admin.pause("known")
    enqueuer.enqueue("known")
    call("RPUSH", keys.broken, "x")
    told = admin.verdict().sentence
    assert told.startswith('1 queue has no worker ("stray")')
    assert '"known" is paused and 1 job waits' in told
    assert "1 entry could not be read" in told
    call("RPUSH", keys.queue("stray"), codec.write(b'"stray"', "old", look.now() - 840, b"{}"))
    assert 'the oldest job of "stray" has waited for 14 min' in admin.verdict().sentence


def test_the_verdict_says_what_share_of_a_job_fails(admin, call, keys, look):
    minute = int(look.now() // 60) - 1
    call("HSET", keys.minute(minute), "emails|r3", 20, "emails|f", 2, "rare|r3", 2, "rare|f", 2)
    call("HSET", keys.minute(minute - 3), "emails|f", 4, "fine|r3", 100, "fine|f", 9)
    notes = {note.subject: note.text for note in admin.verdict().notes}
    assert notes["emails"] == '30% of "emails" fail'
    assert "rare" not in notes


def test_the_verdict_survives_keys_of_wrong_types(admin, keys, call):
    for key in (keys.dead, keys.retry, keys.scheduled, keys.broken, keys.first_seen, keys.queue("a")):
        call("SET", key, "x")
    call("SADD", keys.known_jobs, "a")
    told = [note.text for note in admin.verdict().notes]
    assert "the key dead has a wrong type" in told
    assert "the key broken has a wrong type" in told
    assert 'the key of queue "a" has a wrong type' in told


# Queues.


def test_queues_tell_size_workers_and_pace(admin, enqueuer, new_pool, keys, call, look):
    pool = new_pool(concurrency=3)
    pool.register("mail", lambda: None)
    pool.start()
    wait_until(look.status)
    enqueuer.enqueue_many("stray", [{}, {}])
    minute = int(look.now() // 60) - 1
    call("HSET", keys.minute(minute), "stray|r3", 50, "|q", 1)
    found = admin.queues()
    mail, stray = found.queues
    assert (mail.queue.name, mail.workers, mail.out) == ("mail", 3, 0)
    assert (stray.queue.size, stray.workers, stray.running) == (2, 0, 0)
    assert stray.out == pytest.approx(50 * 60 / (found.now - minute * 60))


def test_a_queue_shows_what_comes_in_and_goes_out_its_times_and_the_next_jobs(
    admin, enqueuer, keys, call, look
):
    for age in range(200):
        call("RPUSH", keys.queue("mail"), codec.write(b'"mail"', f"old{age}", look.now() - 70 - age, b"{}"))
    enqueuer.enqueue_many("mail", [{"token": "s3cret", "n": n} for n in range(40)])
    call("HSET", keys.totals, "done:mail", 12, "done:other", 1)

    def read(this_minute):
        minute = this_minute - 1
        call("HSET", keys.minute(minute), "mail|r0", 99, "mail|r20", 1, "mail|w2", 5, "mail|w45", 7)
        return admin.queue("mail")

    found, this_minute = look.within_a_minute(read)
    minute = this_minute - 1
    # 40 wait and are young; 5 waited less than a minute and were fetched.
    assert found.incoming == pytest.approx(45, abs=3)
    assert found.view.queue.size == 240
    assert found.view.out == pytest.approx(100 * 60 / (found.now - minute * 60))
    assert (found.runs.count, found.runs.p50, found.runs.p99) == (100, 0.0001, 0.0001)
    assert found.waits.p95 == Histogram({2: 5, 45: 7}).quantile(0.95)
    assert found.totals == {"done": 12}
    assert len(found.next) == 10
    assert found.next[0].id == "old199"
    with pytest.raises(BadOption, match='Did you mean "mail"'):
        admin.queue("mial")


def test_pause_and_resume_say_who_and_whether_it_changed_anything(admin, enqueuer):
    enqueuer.enqueue("mail")
    assert admin.pause("mail").done
    again = admin.pause("mail")
    assert (again.done, again.message) == (False, "It was paused already. Nothing was changed.")
    found = admin.queue("mail")
    assert (found.paused_by, found.view.queue.paused) == ("ada", True)
    job = admin.jobs("waiting", name="mail").jobs[0]
    assert "its queue was paused by ada" in admin.explain(job.id)
    assert admin.resume("mail").done
    assert not admin.resume("mail").done
    assert not admin.queue("mail").view.queue.paused


def test_a_paused_queue_is_not_fetched_whoever_paused_it(admin, new_pool, look):
    ran = threading.Event()
    pool = new_pool(concurrency=1)
    pool.register("mail", ran.set)
    pool.register("other", lambda: None)
    admin.pause("mail", force=True)
    pool.enqueuer.enqueue("mail")
    pool.enqueuer.enqueue("other")
    pool.start()
    wait_until(lambda: look.total("done:other"))
    assert not ran.is_set()
    admin.resume("mail")
    assert ran.wait(60)


def test_a_limit_is_set_and_lifted(admin, enqueuer):
    enqueuer.enqueue("mail")
    assert admin.limit("mail", 2).message == "At most 2 at once."
    assert admin.queue("mail").view.queue.limit == 2
    admin.limit("mail", None)
    assert admin.queue("mail").view.queue.limit is None


def test_a_purge_deletes_what_waited_in_steps_with_progress(admin, enqueuer, keys, call):
    enqueuer.enqueue_many("mail", [{}] * 2500)
    steps = []
    tally = admin.purge("mail", progress=steps.append)
    assert (tally.changed, tally.message) == (2500, "2,500 jobs deleted.")
    assert [step.changed for step in steps] == [1000, 2000, 2500]
    assert call("LLEN", keys.queue("mail")) == 0


# Pages of jobs.


@pytest.mark.parametrize("state", ["scheduled", "retry", "dead", "done"])
def test_pages_of_a_side_set_follow_each_other(admin, put, state):
    for i in range(12):
        put(state, "mail", f"j{i:02}", ago=100 - i)
    seen, after = [], ""
    while True:
        page = admin.jobs(state, after=after, size=5)
        assert page.total == 12
        seen += ids(page)
        if not page.next:
            break
        after = page.next
    assert sorted(seen) == [f"j{i:02}" for i in range(12)]
    newest = ids(admin.jobs("dead", size=1)) if state == "dead" else None
    assert newest in (None, ["j11"])


def test_a_page_shows_arguments_without_secrets_and_keeps_the_bytes(
    admin, put, namespace, redis_url, announce
):
    announce("mail")
    put("dead", "mail", "j1", "ValueError: no", ago=5)
    (job,) = admin.jobs("dead").jobs
    assert job.args == {"n": 1, "password": HIDDEN}
    assert b'"password":"x"' in job.payload
    assert "payload" not in repr(job)
    assert (job.error, job.fails, job.attempt) == ("ValueError: no", 1, 2)
    with Admin(namespace, redis=redis_url, hide=["n"]) as strict:
        assert strict.jobs("dead").jobs[0].args == {"n": HIDDEN, "password": HIDDEN}


def test_filters_find_by_name_error_source_id_and_age(admin, put):
    put("dead", "mail", "a", "Timeout: took 3.5% too long", ago=7200, source=42)
    put("dead", "mail", "b", "Timeout: took 99 too long", ago=60, source="42")
    put("dead", "sms", "c", "KeyError: 'x'", ago=60)
    for where, expected in {
        "name=mail": "ab", "name~s": "c", "error~3.5%": "a", "error~.*": "", "source=42": "ab", "id=c": "c",
        "age>1h": "a", "age<1h name=mail": "b", "kind='Timeout: took # too long'": "b",
    }.items():  # fmt: skip
        assert sorted(ids(admin.jobs("dead", where=where))) == list(expected), where


def test_a_filtered_page_goes_on_where_the_last_one_ended(admin, put):
    for i in range(30):
        put("dead", "even" if i % 2 == 0 else "odd", f"j{i:02}", ago=100 - i)
    first = admin.jobs("dead", where="name=even", size=4)
    second = admin.jobs("dead", where="name=even", size=100, after=first.next)
    assert len(first.jobs) == 4
    assert (second.next, len(second.jobs)) == ("", 11)
    assert not set(ids(first)) & set(ids(second))


def test_a_filter_looks_at_a_bounded_number_of_entries_for_one_page(admin, keys, call, link):
    for first in range(0, 6500, 500):
        words = []
        for i in range(first, first + 500):
            words += [i, b'{"name":"mail","id":"j%d","t":1,"args":{}}' % i]
        call("ZADD", keys.dead, *words)
    page = admin.jobs("dead", where="id=j3")
    assert (page.jobs, page.searched) == ((), 3000)
    page = admin.jobs("dead", where="id=j3", after=page.next)
    assert (page.jobs, page.searched) == ((), 3000)
    assert ids(admin.jobs("dead", where="id=j3", after=page.next)) == ["j3"]


def test_waiting_jobs_are_paged_and_filtered_with_their_place(admin, enqueuer):
    jobs = enqueuer.enqueue_many("mail", [{"n": n} for n in range(7)])
    page = admin.jobs("waiting", name="mail", size=3)
    assert ids(page) == [job.id for job in jobs[:3]]
    assert [job.place for job in page.jobs] == [0, 1, 2]
    assert ids(admin.jobs("waiting", name="mail", size=10, after=page.next)) == [job.id for job in jobs[3:]]
    (newest,) = admin.jobs("waiting", name="mail", size=1, newest_first=True).jobs
    assert (newest.id, newest.place) == (jobs[6].id, 6)
    (one,) = admin.jobs("waiting", where=f"name=mail id={jobs[5].id}").jobs
    assert one.place == 5


def every_page(admin, **asked):
    """The ids of all pages, one after another, and how many pages there were."""
    found, after, pages = [], "", 0
    while True:
        page = admin.jobs("waiting", after=after, **asked)
        assert len(page.jobs) <= asked["size"]
        found += ids(page)
        pages, after = pages + 1, page.next
        if not after:
            return found, pages


def test_waiting_jobs_of_all_queues_are_paged_one_queue_after_another(admin, enqueuer):
    names = [f"queue_{n:02}" for n in range(12)]
    jobs = {name: enqueuer.enqueue_many(name, [{"n": n} for n in range(7)]) for name in names}
    expected = [job.id for name in names for job in jobs[name]]
    page = admin.jobs("waiting", size=5)
    assert (page.total, page.beyond, ids(page)) == (84, 0, expected[:5])
    assert every_page(admin, size=5) == (expected, 17)
    assert every_page(admin, size=7) == (expected, 12)
    part = [job.id for name in ("queue_10", "queue_11") for job in jobs[name]]
    assert every_page(admin, size=5, where="name~_1") == (part, 3)
    assert admin.jobs("waiting", where="name~_1", size=5).searched == 5
    # A queue that is emptied between two pages is passed over.
    following = admin.jobs("waiting", size=8).next
    admin.purge("queue_01")
    assert ids(admin.jobs("waiting", size=3, after=following)) == [job.id for job in jobs["queue_02"][:3]]


def test_a_filter_over_all_queues_looks_at_a_bounded_number_for_one_page(admin, keys, call):
    names = [f"q{n:03}" for n in range(450)]
    call("SADD", keys.known_jobs, *names)
    for name in names:
        call(
            "LPUSH",
            keys.queue(name),
            *(f'{{"name":"{name}","id":"{name}-{n}","t":1,"args":{{}}}}' for n in range(2)),
        )
    page = admin.jobs("waiting", where="id=q449-0")
    assert (page.jobs, page.searched, page.total) == ((), 400, 900)
    found, pages = every_page(admin, where="id=q449-0", size=50)
    assert (found, pages) == (["q449-0"], 3)


def test_jobs_too_far_back_to_be_listed_are_counted(admin, keys, call):
    call("SADD", keys.known_jobs, "mail", "sms")
    for first in range(0, 10_500, 500):
        told = (f'{{"name":"mail","id":"j{n}","t":1,"args":{{}}}}' for n in range(first, first + 500))
        call("LPUSH", keys.queue("mail"), *told)
    call("LPUSH", keys.queue("sms"), '{"name":"sms","id":"last","t":1,"args":{}}')
    found, _ = every_page(admin, size=500)
    assert (len(found), found[-1]) == (10_001, "last")
    assert admin.jobs("waiting").beyond == 500
    assert admin.jobs("waiting", name="mail").beyond == 500


def test_all_queues_are_counted_and_changed_by_one_filter(admin, enqueuer, look):
    for name in ("mail", "news", "sms"):
        for n in range(120):
            enqueuer.using(source=n % 2).enqueue(name, n=n)
    count = admin.count("waiting", where="source=1")
    assert (count.matched, count.searched, count.total, count.complete) == (180, 360, 360, True)
    count = admin.count("waiting", where="name~s source=1")
    assert (count.matched, count.complete) == (120, True)
    assert admin.count("waiting").matched == 360
    seen = []
    tally = admin.apply("delete", "waiting", where="name~s source=1", progress=seen.append)
    assert (tally.searched, tally.matched, tally.changed) == (240, 120, 120)
    assert [one.total for one in seen] == [240] * len(seen)
    assert [one.searched for one in seen] == sorted(one.searched for one in seen)
    assert [len(look.queue(name)) for name in ("mail", "news", "sms")] == [120, 60, 60]
    assert admin.apply("delete", "waiting", where="source=0", most=70).changed == 70
    with pytest.raises(BadOption, match="which jobs"):
        admin.apply("delete", "waiting")
    assert admin.verdict().waiting == 170


@pytest.mark.parametrize(
    ("state", "more", "said"),
    [
        ("waiting", {"after": "nonsense"}, "not a cursor"),
        ("waiting", {"after": "5~/"}, "not a cursor"),
        ("gone", {}, "none of"),
        ("running", {"after": "nonsense"}, "not a cursor"),
        ("dead", {"name": "x"}, "where='name="),
        ("dead", {"after": "nonsense"}, "not a cursor"),
        ("waiting", {"name": "x", "after": "nonsense"}, "not a cursor"),
        ("waiting", {"name": "x", "after": "10000"}, "10,000"),
    ],
)
def test_a_page_that_cannot_be_had_says_why(admin, state, more, said):
    with pytest.raises(BadOption, match=said):
        admin.jobs(state, **more)


def test_an_entry_that_cannot_be_read_is_shown_and_can_be_deleted_only(admin, keys, call):
    call("ZADD", keys.dead, 5, b"\xff{")
    (job,) = admin.jobs("dead").jobs
    assert job.problem
    with pytest.raises(BadOption, match="can be deleted"):
        admin.retry(job)
    assert admin.delete(job).done
    assert admin.jobs("dead").total == 0


# One job.


def test_a_job_is_found_in_any_state_with_its_story(admin, enqueuer, put, new_pool, look, announce):
    waiting = enqueuer.enqueue("mail", to="ada", api_key="s3cret")
    assert admin.job(waiting.id).python == f"enqueuer.enqueue('mail')  # add its arguments: {UNANNOUNCED}"
    announce("mail")
    found = admin.job(waiting.id)
    assert (found.job.state, found.job.place) == ("waiting", 0)
    assert found.kind == "no_pool"
    assert (
        found.python
        == f"enqueuer.enqueue('mail', **{{'to': 'ada', 'api_key': '{HIDDEN}'}})  # fill in what is {HIDDEN}"
    )
    assert "s3cret" not in repr(found)
    assert [event.kind for event in found.timeline] == ["enqueued"]
    put("dead", "mail", "d1", "Timeout: slow\ntrace", ago=60, trace="Traceback")
    dead = admin.job("d1")
    assert dead.job.state == "dead"
    assert dead.kind == "dead"
    assert "Timeout: slow" in dead.sentence
    assert [event.text for event in dead.timeline] == [
        "enqueued", "attempt 1 failed: Timeout: slow", "moved to dead",
    ]  # fmt: skip
    assert admin.job("nobody") is None
    assert '"nobody"' in admin.explain("nobody")


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_a_job_remembers_how_each_of_its_attempts_failed(admin, new_pool, look, colour):
    pool = new_pool(concurrency=1)

    def fail(job):
        raise ValueError(f"no {job.attempt}, token {job.args['token']}\nmore")

    @pool.job(max_fails=3, backoff=0)
    def plain(job: Job, token: str):
        fail(job)

    @pool.job(max_fails=3, backoff=0)
    async def coloured(job: Job, token: str):
        fail(job)

    with pool:
        job = pool.find(colour).enqueue(token="s3cret")
        wait_until(look.dead)
    found = admin.job(job.id)
    hidden = f"token {HIDDEN}"
    assert [(one.attempt, one.error) for one in found.job.past] == [
        (1, f"ValueError: no 1, {hidden}"), (2, f"ValueError: no 2, {hidden}"), (3, f"ValueError: no 3, {hidden}"),
    ]  # fmt: skip
    assert all(0 <= one.ran < 60 for one in found.job.past)
    told = [event.text for event in found.timeline if "failed" in event.text]
    assert [text.partition(" after ")[0] for text in told] == [f"attempt {n} failed" for n in (1, 2, 3)]
    # An operator's retry begins to count again, and forgets nothing.
    admin.retry(found.job)
    other = new_pool(concurrency=1)
    other.register(colour, lambda token: None, keep=60)
    with other:
        assert other.drain(60)
        wait_until(lambda: look.total(f"done:{colour}"))
    assert len(admin.job(job.id).job.past) == 3


def test_a_kept_result_is_part_of_the_job(admin, new_pool, look):
    pool = new_pool(concurrency=1)
    job_type = pool.register("sum", lambda: {"total": 3, "token": "x"}, keep=60)
    pool.start()
    job = job_type.enqueue()
    wait_until(lambda: look.total("done:sum"))
    found = admin.job(job.id)
    assert found.job.state == "done"
    assert found.job.result == {"total": 3, "token": HIDDEN}
    # The end of its attempt is known, also before the history has it.
    story = [re.sub(r" after .*", "", one.text) for one in found.timeline if one.kind != "started"]
    assert story == ["enqueued", "attempt 1 completed", "dropped from done"]


def test_explain_says_who_holds_the_limit_and_how_long_it_may_take(admin, enqueuer, keys, call, look):
    first, second = enqueuer.enqueue_many("mail", [{}, {}])
    # The figures cover the last five minutes and this one, and another minute may begin before they are read.
    minute = int(look.now() // 60) - 4
    call("HSET", keys.minute(minute), "mail|r3", 50, "|q", 1)
    # Nothing moves while no pool runs.
    assert admin.job(second.id).kind == "no_pool"
    assert "its turn comes" not in admin.explain(second.id)
    call("ZADD", keys.pools, (look.now() + 60) * 1000, "p1")
    status = {"id": "p1", "host": "box", "pid": 7, "concurrency": 1, "held": 1, "names": ["mail"]}
    call("SET", keys.pool("p1"), msgspec.json.encode(status))
    # Fifty in four to six minutes are one in 4.8 to 7.2 seconds.
    told = admin.explain(second.id).splitlines()[0]
    assert admin.job(second.id).kind == "busy"
    assert re.search(r"its turn comes in about (4\.[89]|[56]\.\d|7\.[0-2]) s\.$", told)
    admin.limit("mail", 1)
    call("SADD", keys.held_of("mail"), "pool1/3:mail")
    assert admin.job(first.id).kind == "at_limit"
    assert "held by pool1/3:mail." in admin.explain(first.id)


# Actions on one job.


def test_a_dead_job_is_retried_once_and_the_second_time_has_moved_on(admin, put, look):
    put("dead", "mail", "d1")
    (seen,) = admin.jobs("dead").jobs
    first = admin.retry(seen)
    assert (first.done, first.kind) == (True, "done")
    assert [job["id"] for job in look.queue("mail")] == ["d1"]
    late = admin.retry(seen)
    assert not late.done
    assert late.message == "It has moved on: it was dead, now it waits in its queue. Nothing was changed."


RETRIES = {
    "one": lambda admin: admin.retry(admin.jobs("dead").jobs[0]),
    "many": lambda admin: admin.apply("retry", "dead"),
}


@pytest.mark.parametrize("way", RETRIES)
def test_the_result_of_a_job_that_is_retried_is_that_of_its_new_attempt(way, new_pool, admin):
    pool = new_pool()
    broken = [True]

    @pool.job(keep=60, max_fails=1)
    def add(a: int, b: int) -> int:
        if broken:
            raise ValueError("no good")
        return a + b

    job = add.enqueue(2, 3)
    with pool, pytest.raises(JobFailed):
        add.result(job, 60)
    broken.clear()
    RETRIES[way](admin)
    with pytest.raises(ResultTimeout):
        add.result(job, 0)
    with pool:
        assert add.result(job, 60) == 5


KILLS = {
    "one": lambda admin, state: admin.kill(admin.jobs(state).jobs[0]),
    "many": lambda admin, state: admin.apply("kill", state, where="name~p"),
}


@pytest.mark.parametrize("way", KILLS)
@pytest.mark.parametrize("state", ["waiting", "scheduled", "retry"])
def test_the_result_of_a_job_that_is_killed_before_it_runs_raises(
    way, state, new_pool, admin, call, keys, look
):
    pool = new_pool()
    kept, plain = pool.register("kept", lambda: 5, keep=60), pool.register("plain", lambda: 5)
    with pool:  # announces which job type keeps results
        pass
    jobs = [one.enqueue() if state == "waiting" else one.enqueue_in(60) for one in (kept, plain)]
    if state == "retry":
        call("RENAME", keys.scheduled, keys.retry)
    for _ in (1, 2) if way == "one" else (1,):
        KILLS[way](admin, state)
    assert len(look.dead()) == 2
    with pytest.raises(JobFailed, match="killed by"):
        kept.result(jobs[0], 0)
    assert 86_000 < call("TTL", keys.result(jobs[0].id)) <= 86_400
    assert call("EXISTS", keys.result(jobs[1].id)) == 0
    admin.retry(jobs[0].id)
    with pool:
        assert kept.result(jobs[0], 60) == 5


def test_an_action_by_id_and_state_refuses_when_the_job_is_elsewhere(admin, put, look):
    put("retry", "mail", "r1")
    refused = admin.delete("r1", state="dead")
    assert not refused.done
    assert "it was dead, now it is in retry" in refused.message
    assert len(look.retry()) == 1
    assert admin.delete(Seen("r1", "retry")).done
    assert look.retry() == []
    assert "No job r1 was found" in admin.delete("r1").message


def test_a_job_deep_in_a_large_set_is_found_by_its_moment(admin, keys, call, put):
    for first in range(0, 12_000, 500):
        words = []
        for i in range(first, first + 500):
            words += [i, b'{"name":"mail","id":"j%d","t":1,"args":{}}' % i]
        call("ZADD", keys.dead, *words)
    page = admin.jobs("dead", size=1, newest_first=False)
    assert ids(page) == ["j0"]
    assert not admin.delete("j5").done
    assert admin.delete(Seen("j5", "dead", 5.0)).done
    assert admin.jobs("dead").total == 11_999


def test_run_now_kill_and_delete_move_the_job_and_nothing_else(admin, put, look, keys):
    for i in range(3):
        put("scheduled", "mail", f"s{i}")
    assert admin.run_now("s0").done
    assert admin.kill("s1").done
    assert admin.delete("s2").done
    assert [job["id"] for job in look.queue("mail")] == ["s0"]
    assert [(job["id"], job["err"]) for job in look.dead()] == [("s1", "killed by ada")]
    assert look.scores(keys.scheduled) == []
    assert admin.run_now("s0").kind == "not_allowed"
    assert admin.kill("s1").kind == "not_allowed"


def test_a_waiting_job_is_deleted_killed_or_cancelled_in_its_place(admin, enqueuer, look):
    jobs = enqueuer.enqueue_many("mail", [{"n": n} for n in range(5)])
    assert admin.delete(jobs[1].id).done
    assert admin.kill(jobs[3].id).done
    assert admin.cancel(jobs[0].id).done
    assert [job["id"] for job in look.queue("mail")] == [jobs[2].id, jobs[4].id]
    assert [job["id"] for job in look.dead()] == [jobs[3].id]
    assert admin.cancel(jobs[3].id).kind == "not_allowed"


def test_a_dead_job_whose_unique_key_is_anothers_stays_dead(admin, put, keys, call, look):
    put("dead", "mail", "d1", unique_key=keys.unique("mail", "x"))
    call("SET", keys.unique("mail", "x"), "other")
    outcome = admin.retry("d1")
    assert outcome.kind == "taken"
    assert "job other has its unique key" in outcome.message
    assert len(look.dead()) == 1


def test_a_running_job_is_told_to_end(admin, new_pool, look):
    began = threading.Event()
    pool = new_pool(concurrency=1, beat=0.2)

    def work(job: Job) -> None:
        began.set()
        wait_until(lambda: job.stopping)

    pool.register("work", work)
    pool.start()
    job = pool.enqueuer.enqueue("work", n=7, token=HIDDEN[:1])
    assert began.wait(60)
    assert admin.delete(job.id).kind == "not_allowed"
    busy = wait_until(admin.busy)
    assert [(one.worker.id, one.worker.args) for one in busy] == [(job.id, {"n": 7, "token": HIDDEN})]
    assert busy[0].running_for > 0
    assert admin.cancel(job.id, state="running").done
    wait_until(lambda: look.held() == 0)


def test_a_selection_has_an_outcome_for_each(admin, put):
    put("dead", "mail", "a")
    put("dead", "mail", "b")
    outcomes = admin.selection("delete", [*admin.jobs("dead").jobs, "gone"])
    assert [one.done for one in outcomes] == [True, True, False]
    with pytest.raises(BadOption, match="500 at most"):
        admin.selection("delete", ["x"] * 501)


# Actions on all that matches.


def test_what_matches_is_counted_first_and_then_retried_in_steps(admin, put, look):
    for i in range(130):
        put("dead", "mail", f"m{i}", f"Timeout: {i} s", ago=500 - i)
        if i % 3 == 0:
            put("dead", "sms", f"s{i}", "KeyError: x", ago=500 - i)
    count = admin.count("dead", where="error~Timeout")
    assert (count.matched, count.complete) == (130, True)
    steps = []
    tally = admin.apply("retry", "dead", where="error~Timeout", progress=steps.append)
    assert (tally.matched, tally.changed, tally.unchanged) == (130, 130, 0)
    assert steps[-1].searched == steps[-1].total == 174
    assert len(steps) == 2
    assert len(look.queue("mail")) == 130
    assert {job["name"] for job in look.dead()} == {"sms"}
    assert admin.count("dead").matched == 44


@pytest.mark.parametrize(
    ("verb", "state", "left", "elsewhere"),
    [
        ("delete", "retry", 1, 0),
        ("kill", "scheduled", 1, 2),
        ("run_now", "retry", 1, 2),
        ("delete", "done", 1, 0),
    ],
)
def test_each_verb_on_all_of_a_state_leaves_the_others_alone(
    admin, put, look, keys, verb, state, left, elsewhere
):
    for job_id in "ab":
        put(state, "mail", job_id)
    put(state, "sms", "c")
    assert admin.apply(verb, state, where="name=mail").changed == 2
    assert [job["name"] for job in look.members(getattr(keys, state))] == ["sms"] * left
    assert len(look.queue("mail")) + len(look.dead()) == elsewhere


def test_an_action_on_all_takes_no_more_than_asked_and_refuses_what_makes_no_sense(admin, put):
    for job_id in "abc":
        put("dead", "mail", job_id)
    assert admin.apply("delete", "dead", most=2).changed == 2
    assert admin.jobs("dead").total == 1
    with pytest.raises(BadOption, match="use retry or delete"):
        admin.apply("kill", "dead")


def test_a_queue_is_thinned_out_by_a_filter(admin, enqueuer, look):
    for n in range(250):
        enqueuer.using(source=n % 3).enqueue("mail", n=n)
    assert admin.count("waiting", where="name=mail source=1").matched == 83
    tally = admin.apply("delete", "waiting", where="name=mail source=1")
    assert (tally.searched, tally.changed) == (250, 83)
    assert [job["args"]["n"] for job in look.queue("mail")] == [n for n in range(250) if n % 3 != 1]
    assert admin.apply("kill", "waiting", name="mail", most=5).changed == 5
    assert len(look.dead()) == 5


# Failures.


def test_failures_are_grouped_by_error_and_job_and_counted_by_time(admin, put):
    for i in range(4):
        put("dead", "mail", f"m{i}", f"Timeout: {i} s", ago=[10, 7200, 90_000, 300_000][i])
    put("retry", "mail", "m9", "Timeout: 77 s", ago=30)
    put("dead", "sms", "s1", "Timeout: 1 s", ago=5)
    found = admin.failures()
    mail, sms = found.groups
    assert (mail.name, mail.kind, mail.count) == ("mail", "Timeout: # s", 5)
    assert (mail.last_hour, mail.last_day, mail.last_three_days) == (2, 3, 4)
    assert (mail.dead, mail.retry, mail.sample.id) == (4, 1, "m0")
    assert (sms.name, sms.count) == ("sms", 1)
    assert [group.count for group in admin.failures(window=3600).groups] == [2, 1]
    tally = admin.apply("retry", "dead", where=Filter.of(name="mail", kind=mail.kind))
    assert tally.changed == 4


# Broken entries, new jobs.


def test_broken_entries_are_shown_mended_and_dropped(admin, keys, call, look):
    for n in range(2):
        call(
            "RPUSH",
            keys.broken,
            codec.broken_entry(b"rubbish%d" % n, at=5.0, where="jobs:mail", why="not a job"),
        )
    page = admin.broken()
    assert (page.total, page.entries[0].payload, page.entries[0].why) == (2, b"rubbish0", "not a job")
    assert admin.repair(page.entries[0], look.payload("mail", "x")).done
    assert not admin.delete_broken(page.entries[0]).done
    (left,) = admin.broken().entries
    assert admin.delete_broken(left).done
    assert [job["id"] for job in look.queue("mail")] == ["x"]


def test_a_job_is_enqueued_by_name_now_or_later(admin, look, keys):
    done = admin.enqueue("mail", {"to": "ada"}, source=42)
    (job,) = look.queue("mail")
    assert (job["args"], job["source"]) == ({"to": "ada"}, 42)
    assert job["id"] in done.subject
    admin.enqueue("mail", delay=60)
    assert look.scores(keys.scheduled)[0] == pytest.approx(look.now() + 60, abs=50)
    with pytest.raises(BadArguments):
        admin.enqueue("mail", {"x": object()})
    with pytest.raises(BadOption):
        admin.enqueue("no good")


# Schedules, pools, figures, the server.


def test_schedules_are_told_in_english_and_can_be_run_and_paused(admin, new_pool, look, call, keys):
    pool = new_pool(concurrency=1)
    pool.register("sweep", lambda secret: None)
    pool.periodic("0 9 * * 1-5", "sweep", {"secret": "x"}, timezone="Europe/Paris")
    pool.start()
    (one,) = wait_until(admin.periodic)
    assert "09:00" in one.english
    assert (one.job, one.args, len(one.next)) == ("sweep", {"secret": HIDDEN}, 5)
    assert list(one.next) == sorted(one.next)
    assert admin.pause_schedule(one.name).done
    assert not admin.pause_schedule(one.name).done
    assert admin.periodic()[0].paused
    assert admin.resume_schedule(one.name).done
    assert admin.run_schedule(one.name).done
    wait_until(lambda: look.total("done:sweep"))
    with pytest.raises(UnknownSchedule):
        admin.run_schedule("x")


def test_pools_tell_who_lives_who_leads_and_who_is_being_rescued(admin, new_pool, look, call, keys):
    pool = new_pool(concurrency=2)
    pool.register("mail", lambda: None)
    pool.start()
    wait_until(look.status)

    def condemned():
        # The leader sweeps it within a second, possibly before it is read.
        call("ZADD", keys.condemned, look.now() - 5, "ghost")
        found = admin.pools()
        # A leader that did nothing for three seconds leads no longer, until its next heartbeat.
        return found if found.condemned and found.leader else None

    found = wait_until(condemned)
    assert [(one.status.concurrency, one.status.names) for one in found.pools] == [(2, ("mail",))]
    assert found.leader == found.pools[0].id
    assert [one.id for one in found.condemned] == ["ghost"]


@pytest.mark.parametrize(("hours", "steps", "step"), [(1, 60, 60), (24, 96, 900), (72, 72, 3600)])
def test_metrics_put_each_minute_into_its_step(
    admin, keys, call, look, namespace, redis_url, hours, steps, step
):
    call("HSET", keys.totals, "failed:mail", 3, "done:quiet", 1)

    def read(now):
        for back in (0, 1, hours * 60 - step // 60):
            call("HINCRBY", keys.minute(now - back), "mail|r4", 2)
        call("HINCRBY", keys.minute(now - hours * 60 - 60), "mail|r4", 99)
        # An admin keeps past minutes for a while.
        with Admin(namespace, redis=redis_url) as fresh:
            return fresh.metrics(hours)

    found, now = look.within_a_minute(read)
    mail, quiet = found.jobs
    assert (len(found.starts), found.step, len(mail.series)) == (steps, step, steps)
    assert (sum(mail.series), mail.runs.count) == (6, 6)
    assert mail.runs.p50 == figures.bucket_limit(4)
    assert mail.totals == {"failed": 3}
    assert (quiet.name, sum(quiet.series)) == ("quiet", 0)
    assert found.starts[-1] <= now * 60 < found.starts[-1] + step
    with pytest.raises(BadOption, match="1, 24, 72"):
        admin.metrics(2)


def test_the_server_is_examined(admin):
    found = admin.redis()
    assert {finding.topic for finding in found.findings} >= {"server", "persistence", "eviction", "memory"}
    assert found.health.info["role"] == "master"


# The audit.


def test_every_action_is_noted_with_actor_subject_and_result_newest_first(admin, enqueuer, put):
    enqueuer.enqueue("mail")
    put("dead", "mail", "d1")
    admin.pause("mail")
    admin.acting("bob").delete("d1")
    admin.delete("d1")
    admin.apply("delete", "dead", where="error~x")
    admin.purge("mail")
    lines = [(line.actor, line.action, line.subject, line.result) for line in admin.audit()]
    assert lines == [
        ("ada", "purge", "queue mail", "1 job deleted."),
        ("ada", "purge", "queue mail", "begun with 1 job"),
        ("ada", "delete all", "jobs in dead where error~x", "0 jobs matched, 0 changed."),
        ("ada", "delete all", "jobs in dead where error~x", "begun"),
        ("ada", "delete", "job d1", "No job d1 was found: it completed, was deleted or never existed. Nothing was changed."),
        ("bob", "delete", "job d1 (mail, dead)", "Deleted."),
        ("ada", "pause", "queue mail", "Paused."),
    ]  # fmt: skip


def test_the_audit_is_bounded_and_survives_lines_of_others(admin, keys, call, look):
    call("LPUSH", keys.audit, *["x"] * 1200)
    admin.pause("mail", force=True)
    assert call("LLEN", keys.audit) == 1000
    first, second = admin.audit(size=2)
    assert first.at == pytest.approx(look.now(), abs=60)
    assert (second.at, second.result) == (0.0, "x")


def test_an_action_that_cannot_be_noted_is_done_and_says_so(admin, keys, call):
    call("SET", keys.audit, "x")
    outcome = admin.pause("mail", force=True)
    assert (outcome.done, outcome.audited) == (True, False)
    assert "could not be written into the audit" in outcome.message


# Export and import.


def test_an_export_can_be_imported_elsewhere_byte_for_byte_and_twice_without_doubles(
    admin, enqueuer, put, keys, call, look, namespace, redis_url
):
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(250)])
    enqueuer.enqueue_unique("once", a=1)
    enqueuer.enqueue_unique_in("once", 100, a=2)
    enqueuer.enqueue_in("mail", 50, n=1)
    put("retry", "mail", "r1")
    put("dead", "mail", "d1")
    call("LPUSH", keys.queue("mail"), b"\xff\x00")
    call("ZADD", keys.dead, 1, b"\xfe")
    lines = []
    moved = admin.export(lines.append)
    assert (moved.counts, moved.changed) == ({"waiting": 252, "scheduled": 2, "retry": 1, "dead": 2}, ())
    other = namespace + "b"
    with Admin(other, redis=redis_url, actor="ada") as target:
        loaded = target.load(lines)
        assert (loaded.counts, loaded.there, loaded.left_out) == (moved.counts, 0, 0)
        loaded = target.load(lines)
        assert (loaded.total, loaded.there, loaded.left_out) == (0, 257, 0)
    twin = type(keys)(other)
    for name in ("mail", "once"):
        mine, its = (call("LRANGE", one.queue(name), 0, -1) for one in (keys, twin))
        assert [raw.replace(other.encode(), namespace.encode()) for raw in its] == mine
    for key in ("scheduled", "retry", "dead"):
        mine, its = (call("ZRANGE", getattr(one, key), 0, -1, "WITHSCORES") for one in (keys, twin))
        assert [raw.replace(other.encode(), namespace.encode()) for raw in its] == mine
    (raw,) = call("LRANGE", twin.queue("once"), 0, -1)
    wire = codec.read(raw)
    assert call("GET", wire.unique_key) == wire.id.encode()
    assert call("SISMEMBER", twin.known_jobs, "once") == 1


def test_an_import_leaves_out_unique_jobs_whose_key_is_taken(admin, enqueuer, keys, call):
    enqueuer.enqueue_unique("once", a=1)
    lines = []
    admin.export(lines.append)
    loaded = admin.load(lines)
    assert (loaded.total, loaded.left_out) == (0, 1)
    assert call("LLEN", keys.queue("once")) == 1


def test_an_export_that_was_cut_off_is_noticed_after_what_it_has_is_imported(
    admin, enqueuer, namespace, redis_url, call, keys
):
    enqueuer.enqueue_many("mail", [{"n": n} for n in range(3)])
    lines = []
    admin.export(lines.append)
    with Admin(namespace + "b", redis=redis_url) as target:
        with pytest.raises(BadOption, match="not complete: it has 2 jobs and lacks lines at its end"):
            target.load(lines[:3])
        assert call("LLEN", type(keys)(namespace + "b").queue("mail")) == 2
    with (
        Admin(namespace + "c", redis=redis_url) as target,
        pytest.raises(BadOption, match="not complete: it has 2 of 3 jobs and lacks lines[.]"),
    ):
        target.load([*lines[:2], *lines[3:]])


def test_an_export_of_the_first_version_has_no_last_line_and_can_be_imported(admin, enqueuer):
    enqueuer.enqueue("mail")
    lines = []
    admin.export(lines.append)
    head = msgspec.json.encode(msgspec.json.decode(lines[0]) | {"version": 1, "id": "other"})
    assert admin.load([head, *lines[1:-1]]).total == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no export"),
        ([b"{}\n"], "no export"),
        ([b'{"state":"dead","job":"x"}\n'], "no export"),
        ([b"HEAD", b"rubbish\n"], "line 2"),
        ([b"HEAD", b'{"state":"lost","job":"x"}\n'], "no state 'lost'"),
        ([b"HEAD", b'{"state":"dead","raw":"***"}\n'], "line 2"),
        ([b"HEAD", b'{"state":"waiting","name":"a b","job":"{}"}\n'], "line 2"),
        (
            [b"HEAD", b'{"state":"scheduled","at":1e308,"job":"{}"}\n'],
            "line 2: its time 1e[+]308 is out of range",
        ),
        (
            [b"HEAD", b'{"state":"dead","at":-1e300,"job":"{}"}\n'],
            "line 2: its time -1e[+]300 is out of range",
        ),
    ],
)
def test_a_file_that_is_no_export_is_refused_with_its_line(admin, lines, said):
    head = []
    admin.export(head.append)
    with pytest.raises(BadOption, match=said):
        admin.load([head[0] if line == b"HEAD" else line for line in lines])


@pytest.mark.parametrize("ask", [lambda admin: admin.job("a\ud800"), lambda admin: admin.explain("a\ud800")])
def test_an_id_or_a_name_with_half_a_character_is_refused_in_words(admin, namespace, redis_url, ask):
    with pytest.raises(BadOption, match="half a character"):
        ask(admin)

    async def awaited():
        async with AsyncAdmin(namespace, redis=redis_url) as twin:
            await ask(twin)

    with pytest.raises(BadOption, match="half a character"):
        asyncio.run(awaited())


# Both colours.


def test_the_async_twin_has_the_same_methods_with_the_same_signatures():
    def methods(kind):
        return {
            name: str(inspect.signature(member))
            for name, member in vars(kind).items()
            if inspect.isfunction(member) and not name.startswith("_") and name not in streams
        }

    # A stream is an iterator, and only async programs read it step by step.
    streams = {"stream", "open_stream"}
    assert inspect.signature(Admin.stream).parameters == inspect.signature(AsyncAdmin.stream).parameters
    assert methods(Admin) == methods(AsyncAdmin)
    assert len(methods(Admin)) > 30
    for name in methods(Admin):
        assert inspect.getdoc(getattr(Admin, name)).splitlines()[0].endswith((".", ",")), name
        assert inspect.iscoroutinefunction(getattr(AsyncAdmin, name)), name


def test_the_async_twin_answers_the_same_and_serves_many_tasks_at_once(namespace, redis_url, admin, put):
    put("dead", "mail", "d1")

    async def main():
        async with AsyncAdmin(namespace, redis=redis_url, actor="eve") as twin:
            pages = await asyncio.gather(*(twin.jobs("dead") for _ in range(10)))
            outcome = await twin.retry(pages[0].jobs[0])
            return pages, outcome, await twin.audit()

    pages, outcome, lines = asyncio.run(main())
    assert {ids(page)[0] for page in pages} == {"d1"}
    assert outcome.done
    assert lines[0].actor == "eve"


def test_threads_share_an_admin(admin, put):
    put("dead", "mail", "d1")
    found, threads = [], []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: found.append(admin.jobs("dead").total)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [1] * 8


# What it costs.


def test_no_view_searches_the_key_space_or_reads_a_whole_set(admin, enqueuer, put, server, link):
    enqueuer.enqueue_many("mail", [{}] * 20)
    put("dead", "mail", "d1")
    job = admin.jobs("waiting", name="mail").jobs[0]
    with monitor(server.port, link) as heard:
        admin.verdict()
        admin.queues()
        admin.queue("mail")
        admin.pools()
        admin.busy()
        for state in ("scheduled", "retry", "dead", "done"):
            admin.jobs(state, where="error~x")
            admin.count(state, where="error~x")
        admin.broken()
        admin.job(job.id)
        admin.failures()
        admin.periodic()
        admin.metrics(1)
        admin.redis()
        admin.audit()
        admin.export(lambda _: None)
    words = [[word.upper() for word in command] for command in (*heard.by_clients, *heard.by_scripts)]
    assert not {command[0] for command in words} & {b"KEYS", b"SCAN", b"SSCAN", b"ZSCAN", b"HSCAN", b"SORT"}
    whole = {command[1].rpartition(b":")[2] for command in words if command[2:4] == [b"0", b"-1"]}
    assert whole <= {b"POOLS", b"CONDEMNED"}


def test_a_status_of_all_pools_is_one_read(admin, keys, call, look, server, link):
    for n in range(20):
        call("ZADD", keys.pools, (look.now() + 100) * 1000, f"p{n}")
        call("SET", keys.pool(f"p{n}"), msgspec.json.encode({"id": f"p{n}", "concurrency": 1}))
    with monitor(server.port, link) as heard:
        assert len(admin.pools().pools) == 20
    assert sum(command[0].upper() == b"MGET" for command in heard.by_clients) == 1
    assert not any(command[0].upper() == b"GET" and b":pool:" in command[1] for command in heard.by_clients)


# Cursors.


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("shape", ["ours", "sorted keys"])
def test_a_cursor_holds_nothing_of_the_arguments_and_still_finds_its_place(
    admin, keys, call, shape, newest_first
):
    for i in range(25):
        job = {"name": "mail", "id": f"j{i:02}", "t": 1, "args": {"password": "hunter2"}}
        call("ZADD", keys.dead, 7, msgspec.json.encode(job if shape == "ours" else dict(sorted(job.items()))))
    seen, after = [], ""
    while True:
        page = admin.jobs("dead", size=4, after=after, newest_first=newest_first)
        seen += ids(page)
        after = page.next
        if not after:
            break
        padded = after.partition("~")[2]
        assert b"hunter2" not in base64.urlsafe_b64decode(padded + "=" * (-len(padded) % 4))
    assert sorted(seen) == [f"j{i:02}" for i in range(25)]
    assert len(seen) == 25


def test_a_cursor_whose_entry_is_gone_goes_on_without_missing_anything(admin, keys, call):
    members = [msgspec.json.encode({"args": {}, "id": f"j{i}", "name": "mail"}) for i in range(6)]
    for i, member in enumerate(members):
        call("ZADD", keys.dead, i, member)
    page = admin.jobs("dead", size=3, newest_first=False)
    for member in members[:3]:
        call("ZREM", keys.dead, member)
    assert ids(admin.jobs("dead", after=page.next, newest_first=False)) == ["j3", "j4", "j5"]


def test_pools_can_be_listed_without_what_their_workers_do(admin, call, keys):
    now = admin.verdict().now
    worker = {
        "token": "1:mail",
        "name": "mail",
        "id": "x",
        "args": {"password": "s3cret", "plain": "open"},
        "started_at": now,
    }
    status = {"id": "p", "concurrency": 3, "running": {"mail": 1}, "workers": [worker]}
    call("SET", keys.pool("p"), msgspec.json.encode(status))
    call("ZADD", keys.pools, int((now + 60) * 1000), "p")
    (with_,), (without,) = admin.pools().pools, admin.pools(workers=False).pools
    assert with_.status.workers[0].args == {"password": HIDDEN, "plain": "open"}
    assert without.status.workers == ()
    assert without.status.running == with_.status.running == {"mail": 1}
    assert admin.busy(most=1)[0].worker.args["password"] == HIDDEN


def test_a_server_that_was_restarted_is_not_noticed_by_who_asks_next(namespace, tmp_path):
    """Its connection is gone, and so it is after a quiet time where the server closes idle ones."""
    with running(tmp_path, "--appendonly", "yes") as server, Admin(namespace, redis=server.url) as admin:
        admin.enqueue("mail", {})
        server.stop()
        server.start()
        assert admin.verdict().waiting == 1


def test_nor_is_it_by_an_async_one(namespace, tmp_path):
    async def main():
        async with AsyncAdmin(namespace, redis=server.url) as admin:
            await admin.enqueue("mail", {})
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            assert (await admin.verdict()).waiting == 1
            # The loop has no time to notice that this one was closed.
            server.stop()
            server.start()
            assert (await admin.verdict()).waiting == 1

    with running(tmp_path, "--appendonly", "yes") as server:
        asyncio.run(main())


def test_a_preview_has_the_number_and_ten_of_the_jobs_and_changes_nothing(admin, enqueuer, keys, link):
    jobs = enqueuer.enqueue_many("mail", [{"n": n, "password": "hunter2"} for n in range(30)])
    enqueuer.enqueue_many("sms", [{"n": n} for n in range(3)])
    before = dump(keys, link)
    found = admin.preview("delete", "waiting", where="name=mail")
    assert (found.would_change, found.message) == (30, "Delete 30 jobs in waiting where name=mail.")
    assert [job.id for job in found.samples] == [job.id for job in jobs[:10]]
    assert "hunter2" not in str([job.args for job in found.samples])
    assert admin.preview("delete", "waiting", name="mail", most=4).would_change == 4
    assert len(admin.preview("delete", "waiting", name="mail", most=4).samples) == 4
    purge = admin.preview_purge("sms")
    assert (purge.would_change, len(purge.samples)) == (3, 3)
    with pytest.raises(BadOption, match="not possible for all jobs"):
        admin.preview("retry", "waiting", name="mail")
    assert admin.preview("retry", "dead").would_change == 0
    assert dump(keys, link) == before


def test_a_preview_of_a_group_of_failures_has_both_states(admin, call, keys):
    for n, state in enumerate(("dead", "retry", "retry")):
        job = {"name": "mail", "id": f"id{n}", "t": 1, "args": {}, "fails": 1, "err": "Timeout: no"}
        call("ZADD", getattr(keys, state), 5, msgspec.json.encode(job))
    found = admin.preview_failures("delete", "mail", "Timeout: no")
    assert (found.would_change, len(found.samples)) == (3, 3)
    assert admin.preview_failures("delete", "mail", "Timeout: no", ("dead",)).would_change == 1


def test_every_note_has_what_to_do_and_those_with_a_beginning_have_it(admin, enqueuer, look):
    enqueuer.enqueue("mail")
    before = look.now()
    admin.pause("mail")
    notes = {note.kind: note for note in admin.verdict().notes}
    assert all(note.todo.endswith((".", "app.jobs:pool")) for note in notes.values())
    assert abs(notes["paused"].since - before) < 60
    assert abs(notes["no_pool"].since - before) < 60
    assert notes["no_pool"].or_earlier
