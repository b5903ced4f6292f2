"""What becomes of a job that fails: retried and when, dead with its evidence, dropped; and what is told of it."""

from __future__ import annotations

import sys
import threading

import msgspec
import pytest

from dayjob import Dead, Discard, Enqueuer, Job, Retry, Snooze
from dayjob.options import PoolOptions
from dayjob.worker.chores.trimmer import Trimmer
from dayjob.worker.shared_link import SharedLink
from server import wait_until


def test_a_job_runs_max_fails_times_and_is_then_dead_with_all_its_evidence(new_pool, look):
    pool = new_pool()
    runs = []

    @pool.job(max_fails=3, backoff=0)
    def fails(job: Job, number: int):
        runs.append((job.fails, job.attempt, job.error))
        raise ValueError(f"run {len(runs)}")

    before = int(look.now())
    with pool:
        job = fails.enqueue(7)
        wait_until(look.dead)
    assert runs == [(0, 1, ""), (1, 2, "ValueError: run 1"), (2, 3, "ValueError: run 2")]
    (dead,) = look.dead()
    assert (dead["name"], dead["id"], dead["args"], dead["fails"]) == ("fails", job.id, {"number": 7}, 3)
    assert dead["err"] == "ValueError: run 3"
    assert "Traceback" in dead["trace"]
    assert "in fails" in dead["trace"]
    assert before <= dead["failed_at"] <= look.now()
    assert look.retry() == []
    assert look.held() == 0
    assert look.totals() == {"failed:fails": 3, "retried:fails": 2, "dead:fails": 1}


@pytest.mark.parametrize(
    ("backoff", "fails", "low", "high"),
    [(30, 0, 30, 30), (lambda n: n * 100, 0, 100, 100), (lambda n: n * 100, 2, 300, 300), (None, 0, 16, 76)],
    ids=["constant", "function", "function of the fails", "default"],
)
def test_a_failed_job_waits_in_retry_as_long_as_its_backoff_says(
    new_pool, look, keys, call, backoff, fails, low, high
):
    pool = new_pool()

    @pool.job(backoff=backoff)
    def broken():
        raise ValueError("no")

    call("LPUSH", keys.queue("broken"), look.payload("broken", "b", fails=fails))
    before = look.now()
    with pool:
        wait_until(look.retry)
        after = look.now()
        (retry,) = look.retry()
        (score,) = look.scores(keys.retry)
    assert before + low <= score + 0.001
    # A wait of ten seconds or more is rounded up to a whole second.
    assert score < after + high + 1
    assert score.is_integer()
    assert retry["fails"] == fails + 1
    assert retry["err"] == "ValueError: no"


def test_only_what_retry_on_names_is_retried_and_what_discard_on_names_is_dropped(new_pool, look):
    pool = new_pool()

    @pool.job(retry_on=LookupError, discard_on=(KeyboardInterrupt, OSError), backoff=600)
    def picky(kind: str):
        raise {"retried": KeyError, "dead": ValueError, "discarded": FileNotFoundError}[kind](kind)

    with pool:
        for kind in ("retried", "dead", "discarded"):
            picky.enqueue(kind)
        assert pool.drain(60)
    assert [job["args"]["kind"] for job in look.retry()] == ["retried"]
    assert [job["args"]["kind"] for job in look.dead()] == ["dead"]
    assert look.totals() == {"failed:picky": 2, "retried:picky": 1, "dead:picky": 1, "discarded:picky": 1}


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_signals_say_how_an_attempt_ends(new_pool, look, keys, colour):
    pool = new_pool()

    def act(kind):
        raise {
            "retry": Retry("later", after=60),
            "snooze": Snooze("not yet", after=60),
            "discard": Discard("never"),
            "dead": Dead("enough"),
        }[kind]

    @pool.job(max_fails=9)
    def plain(kind: str):
        act(kind)

    @pool.job(max_fails=9)
    async def coloured(kind: str):
        act(kind)

    before = look.now()
    with pool:
        for kind in ("retry", "snooze", "discard", "dead"):
            pool.enqueuer.enqueue(colour, kind=kind)
        assert pool.drain(60)
    (retry,), (dead,), (snoozed,) = look.retry(), look.dead(), look.members(keys.scheduled)
    assert (retry["args"]["kind"], retry["fails"], retry["err"]) == ("retry", 1, "Retry: later")
    assert (dead["args"]["kind"], dead["fails"], dead["err"]) == ("dead", 1, "Dead: enough")
    assert (snoozed["args"]["kind"], snoozed.get("fails", 0), snoozed["snoozes"]) == ("snooze", 0, 1)
    for key in (keys.retry, keys.scheduled):
        assert before + 60 <= look.scores(key)[0] + 0.001 < look.now() + 61.001
    assert look.totals() == {
        f"failed:{colour}": 2, f"retried:{colour}": 1, f"dead:{colour}": 1, f"discarded:{colour}": 1,
        f"snoozed:{colour}": 1,
    }  # fmt: skip


def test_retry_counts_as_a_fail_until_there_are_none_left(new_pool, look):
    pool = new_pool()
    runs = []

    @pool.job(max_fails=2)
    def insists():
        runs.append(1)
        raise Retry("again", after=0)

    with pool:
        insists.enqueue()
        wait_until(look.dead)
    assert len(runs) == 2
    assert look.dead()[0]["err"] == "Retry: again"


def test_skip_dead_drops_a_job_whose_fails_are_used_up(new_pool, look):
    pool = new_pool()
    runs = []

    @pool.job(max_fails=2, backoff=0, skip_dead=True)
    def light():
        runs.append(1)
        raise ValueError("no")

    with pool:
        light.enqueue()
        wait_until(lambda: look.total("discarded:light"))
    assert len(runs) == 2
    assert look.dead() == []
    assert look.totals() == {"failed:light": 2, "retried:light": 1, "discarded:light": 1}


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_hooks_are_called_with_the_job_and_what_happened_to_it(new_pool, look, colour):
    pool = new_pool()
    told = []

    def note(kind):
        return lambda job, *more: told.append((kind, job.id, job.fails, *map(repr, more)))

    hooks = {f"on_{kind}": note(kind) for kind in ("done", "fail", "dead", "discard")}

    def act(job):
        if job.id == "bad":
            raise ValueError("no")
        if job.id == "unwanted":
            raise Discard("nobody asked")

    @pool.job(max_fails=2, backoff=0, **hooks)
    def plain(job: Job):
        act(job)

    @pool.job(max_fails=2, backoff=0, **hooks)
    async def coloured(job: Job):
        act(job)

    with pool:
        for job_id in ("good", "bad", "unwanted"):
            pool.enqueuer.using(id=job_id).enqueue(colour)
        wait_until(look.dead)
        assert pool.drain(60)
    error = "ValueError('no')"
    assert [one for one in told if one[1] == "bad"] == [
        ("fail", "bad", 1, error), ("fail", "bad", 2, error), ("dead", "bad", 2, error),
    ]  # fmt: skip
    assert [one for one in told if one[1] == "good"] == [("done", "good", 0)]
    (discard,) = [one for one in told if one[1] == "unwanted"]
    assert discard[:3] == ("discard", "unwanted", 0)
    assert "nobody asked" in discard[3]


@pytest.mark.parametrize("colour", ["plain", "coloured"])
def test_a_job_that_expired_before_it_could_start_is_discarded_and_told_of(new_pool, look, colour, caplog):
    pool = new_pool()
    ran, told = [], []
    hooks = {"on_discard": lambda job, reason: told.append((job.id, reason))}

    @pool.job(**hooks)
    def plain():
        ran.append(1)

    @pool.job(**hooks)
    async def coloured():
        ran.append(1)

    late = pool.enqueuer.using(expires=0.001).enqueue(colour)
    pool.enqueuer.using(expires=60).enqueue(colour)
    wait_until(lambda at=look.now(): look.now() > at + 0.02)
    with caplog.at_level("INFO", "dayjob.job"), pool:
        assert pool.drain(60)
    assert ran == [1]
    ((job_id, reason),) = told
    assert job_id == late.id
    assert "expired" in reason
    (line,) = [one for one in caplog.records if one.name == "dayjob.job"]
    assert line.getMessage() == f"job={colour} id={late.id} discarded (expired before it could start)"
    assert (line.levelname, line.job_id) == ("INFO", late.id)
    assert look.totals() == {f"discarded:{colour}": 1, f"done:{colour}": 1}


@pytest.mark.parametrize("colour", ["plain", "coloured"])
@pytest.mark.parametrize("error", [ValueError, SystemExit], ids=lambda kind: kind.__name__)
def test_a_hook_that_fails_changes_nothing(new_pool, look, colour, error):
    pool = new_pool(concurrency=1)
    called = []

    def failing(job, *_more):
        called.append(job.id)
        raise error("hook")

    hooks = {f"on_{kind}": failing for kind in ("done", "fail", "dead", "discard")}

    def act(job):
        if job.id == "bad":
            raise ValueError("no")
        if job.id == "unwanted":
            raise Discard("nobody asked")

    @pool.job(max_fails=1, **hooks)
    def plain(job: Job):
        act(job)

    @pool.job(max_fails=1, **hooks)
    async def coloured(job: Job):
        act(job)

    with pool:
        for job_id in ("good", "bad", "unwanted", "last"):
            pool.enqueuer.using(id=job_id).enqueue(colour)
        wait_until(lambda: "last" in called)
        assert pool.drain(60)
    assert sorted(called) == ["bad", "bad", "good", "last", "unwanted"]
    assert look.totals() == {
        f"done:{colour}": 2, f"failed:{colour}": 1, f"dead:{colour}": 1, f"discarded:{colour}": 1,
    }  # fmt: skip
    assert look.dead()[0]["err"] == "ValueError: no"


def test_dead_jobs_over_the_cap_are_trimmed_oldest_first_and_counted(new_pool, look, keys, link):
    pool = new_pool(concurrency=1)

    @pool.job(max_fails=1)
    def fails(number: int):
        raise ValueError(number)

    with pool:
        for i in range(250):
            fails.enqueue(i)
        assert pool.drain(60)
    numbers = [job["args"]["number"] for job in look.dead()]
    assert sorted(numbers) == list(range(250))
    trimmer = Trimmer(keys, SharedLink(link), PoolOptions(dead_count=20))
    assert trimmer.trim(look.now()) == 230
    assert [job["args"]["number"] for job in look.dead()] == numbers[-20:]
    assert look.total("trimmed:dead") == 230
    assert trimmer.trim(look.now()) == 0


def test_dead_jobs_over_their_age_are_trimmed_and_counted(new_pool, look, keys, link):
    pool = new_pool()

    @pool.job(max_fails=1)
    def fails():
        raise ValueError("no")

    with pool:
        fails.enqueue()
        wait_until(look.dead)
    trimmer = Trimmer(keys, SharedLink(link), PoolOptions(dead_age=60.0))
    (died,) = look.scores(keys.dead)
    assert trimmer.trim(died + 50) == 0
    assert trimmer.trim(died + 70) == 1
    assert look.dead() == []
    assert look.total("trimmed:dead") == 1


def test_a_job_whose_arguments_do_not_fit_fails_like_any_other(new_pool, look, namespace, redis_url):
    pool = new_pool()
    ran = []

    @pool.job(max_fails=2, backoff=0)
    def typed(user_id: int):
        ran.append(user_id)

    stranger = Enqueuer(namespace, redis=redis_url)
    with pool:
        stranger.enqueue("typed", user_id="seven")
        stranger.enqueue("typed", user=7)
        stranger.enqueue("typed", user_id=7)
        wait_until(lambda: len(look.dead()) == 2)
        assert pool.drain(60)
    stranger.close()
    assert ran == [7]
    assert all(job["fails"] == 2 and job["err"].startswith("BadArguments: typed") for job in look.dead())
    assert look.totals() == {"failed:typed": 4, "retried:typed": 2, "dead:typed": 2, "done:typed": 1}


ARGS = [
    b'{"n":12345678901234567890123456789,"m":-9007199254740993}',
    b'{"f":1.0,"g":1e100,"h":0.1,"i":1E-7,"j":-0.0}',
    b'{"l":[],"o":{},"n":null,"deep":[[],[{}]]}',
    '{"é":"\\u00e9 é € \U0001f600 \\/ \\ud83d\\ude00"}'.encode(),
    b'{ "spaced" : [ 1 , 2 ] }',
    b'{"twice":1,"twice":2}',
]


@pytest.mark.parametrize("args", ARGS, ids=range(len(ARGS)))
def test_the_bytes_of_arguments_stay_as_they_were_through_every_retry(new_pool, look, keys, call, args):
    pool = new_pool()
    seen = []

    @pool.job(max_fails=3, backoff=0)
    def fails(job: Job):
        seen.append(bytes(job.raw_args))
        raise ValueError("no")

    call(
        "LPUSH", keys.queue("fails"), b'{"name":"fails","id":"f","t":1,"extra":[ 1.0 ],"args":' + args + b"}"
    )
    with pool:
        wait_until(look.dead)
    assert seen == [args] * 3
    (raw,) = call("ZRANGE", keys.dead, 0, -1)
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    assert bytes(fields["args"]) == args
    assert bytes(fields["extra"]) == b"[ 1.0 ]"


@pytest.mark.parametrize("end", ["done", "dead"])
def test_identical_payloads_are_as_many_jobs(new_pool, look, keys, call, end):
    pool = new_pool()
    lock, runs = threading.Lock(), []

    @pool.job(max_fails=2, backoff=0)
    def same(job: Job):
        with lock:
            runs.append(job.attempt)
        if job.attempt == 1 or end == "dead":
            raise ValueError("no")

    call("LPUSH", keys.queue("same"), *[b'{"name":"same","id":"s","t":1,"args":{}}'] * 20)
    with pool:
        wait_until(lambda: look.total(f"{end}:same") == 20)
    assert sorted(runs) == [1] * 20 + [2] * 20
    assert len(look.dead()) == (20 if end == "dead" else 0)


def test_long_errors_are_cut_with_both_ends_kept(new_pool, look):
    pool = new_pool()

    @pool.job(max_fails=1)
    def verbose():
        raise ValueError("start" + "x" * 100_000 + "end")

    with pool:
        verbose.enqueue()
        wait_until(look.dead)
    (dead,) = look.dead()
    for text in (dead["err"], dead["trace"]):
        assert len(text.encode()) <= 8192
    assert dead["err"].startswith("ValueError: start")
    assert dead["err"].endswith("end")


def test_sys_exit_in_a_handler_is_a_failure_and_not_the_end_of_the_process(new_pool, look):
    pool = new_pool()

    @pool.job(max_fails=1)
    async def leaves():
        sys.exit(3)

    with pool:
        leaves.enqueue()
        wait_until(look.dead)
    assert look.dead()[0]["err"] == "SystemExit: 3"
