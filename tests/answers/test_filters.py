"""Filters mean the same on pages, over the API, in commands and for actions on many jobs; what is redacted stays so."""

from __future__ import annotations

import threading

import msgspec
import pytest

from dayjob import WorkerPool
from dayjob.admin import job_lists
from dayjob.worker.runtime import Runtime
from server import wait_until
from web.conftest import running_console

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def console(redis_url, namespace):
    """A console that hides the arguments of jobs that no pool has announced, as it does by default."""
    with running_console(redis_url, namespace, show_unannounced=False) as found:
        yield found


@pytest.fixture
def pool(namespace, redis_url):
    """A pool that announced its jobs: `charge` hides `card`, and `hold` runs until the gate is open."""
    made = WorkerPool(namespace=namespace, redis=redis_url, concurrency=2, beat=0.4, lease=4.0)
    gate = threading.Event()

    @made.job
    def mail(user_id: int = 0, to: str = "", address: dict[str, str] | None = None) -> None: ...

    @made.job(redact=["card"])
    def charge(user_id: int = 0, card: str = "") -> None: ...

    @made.job
    def hold(user_id: int = 0) -> None:
        gate.wait(60)

    # As `dayjob worker --tag media` starts it.
    runtime = Runtime(made, tag="media")
    runtime.start()
    yield made
    gate.set()
    runtime.stop(5)
    made.enqueuer.close()


@pytest.fixture
def dead(pool, call, keys, look):
    """Dead jobs of announced and unannounced names."""
    now = int(look.now())

    def put(name: str, job_id: str, age: float, **fields: object) -> None:
        told = {"err": "ValueError: no", "failed_at": now, **fields}
        call("ZADD", keys.dead, now - age, look.payload(name, job_id, **told))
        call("SADD", keys.known_jobs, name)

    put("mail", "m1", 10, args={"user_id": 7, "to": "ada@example.com"}, source="acme", fails=1)
    put(
        "mail",
        "m2",
        4000,
        args={"user_id": "7", "address": {"city": "Paris"}},
        fails=3,
        err="TimeoutError: x",
    )
    put("mail", "m3", 20, args={"user_id": 8}, deaths=2, past=[[1, now - 60, 0, "pool died", "pool-gone"]])
    put("charge", "c1", 30, args={"user_id": 7, "card": "4111"}, err="Declined: 4111")
    put("unknown", "u1", 40, args={"user_id": 7})


FOUND = {
    "args.user_id=7": ["c1", "m1"],
    "args.user_id='\"7\"'": ["m2"],
    "args.address.city=Paris": ["m2"],
    "source=acme": ["m1"],
    "deaths>0": ["m3"],
    "fails>=2": ["m2"],
    "age>1h": ["m2"],
    "since=1h name=mail": ["m1", "m3"],
    "until=1h": ["m2"],
    "pool=pool-gone": ["m3"],
    "timeout": ["m2"],
    "paris": ["m2"],
    "m1": ["m1"],
    "not name=mail": ["c1", "u1"],
    "not args.user_id=7 name=mail": ["m2", "m3"],
}


@pytest.mark.parametrize("where", FOUND)
def test_a_filter_finds_the_same_jobs_everywhere(faces, dead, where):
    found = faces.api("/jobs", state="dead", where=where)
    assert sorted(job["id"] for job in found["jobs"]) == FOUND[where]
    assert faces.api("/jobs/count", state="dead", where=where)["matched"] == len(FOUND[where])
    page = faces.page("/dead_jobs", where=where)
    assert sorted(set(page.split()) & {"m1", "m2", "m3", "c1", "u1"} - set(where.split())) == [
        one for one in FOUND[where] if one != where
    ]


def test_the_command_and_the_action_take_the_same_filters(faces, dead, admin):
    printed = faces.run("jobs", "ls", "--state", "dead", "--where", "args.user_id=7 name=mail")
    assert "m1" in printed
    assert "m2" not in printed
    tally = admin.apply("delete", "dead", where="args.user_id=7")
    assert (tally.matched, tally.changed) == (2, 2)
    assert "1 job could not be compared: their arguments are hidden." in tally.message
    left = {job.id for job in admin.jobs("dead").jobs}
    assert left == {"m2", "m3", "u1"}, "a job whose arguments are hidden is not touched"


def test_jobs_whose_arguments_are_hidden_are_passed_over_and_counted(faces, dead):
    for where in ("args.user_id=7", "not args.user_id=7", "args.user_id!=7"):
        found = faces.api("/jobs", state="dead", where=where)
        assert "u1" not in [job["id"] for job in found["jobs"]]
        assert found["hidden"] == 1
    assert "1 job could not be compared" in faces.page("/dead_jobs", where="args.user_id=7")


def test_a_filter_by_a_redacted_argument_is_refused_everywhere(faces, dead, admin):
    for where in (
        "args.card=4111",
        "not args.card=4111",
        "args.card~4",
        "args.card>4",
        "name=charge args.card=4111",
    ):
        answer = faces.console.get("/api/v1/jobs", params={"state": "dead", "where": where})
        assert answer.status_code == 400, where
        assert 'args.card is redacted in "charge"' in answer.json()["error"]
        assert (
            faces.console.get("/api/v1/jobs/count", params={"state": "dead", "where": where}).status_code
            == 400
        )
        body = {"verb": "delete", "state": "dead", "where": where}
        assert "is redacted" in faces.console.post("/api/v1/jobs/apply", body).text
    assert "is redacted" in faces.page("/dead_jobs", 400, where="args.card=4111")
    assert "is redacted" in faces.run("jobs", "ls", "--state", "dead", "--where", "args.card=4111", code=2)
    assert len(admin.jobs("dead").jobs) == 5
    assert faces.api("/jobs", state="dead", where="args.card=4111 not name=charge")["jobs"] == []


def test_a_word_does_not_find_what_is_redacted(faces, dead):
    for where in ("4111", "error~4111", "text~4111"):
        assert faces.api("/jobs", state="dead", where=where)["jobs"] == [], where


def test_running_jobs_are_found_by_pool_tag_and_argument(faces, pool, admin):
    pool.enqueuer.enqueue("hold", user_id=7)
    wait_until(lambda: admin.jobs("running").jobs)
    (job,) = admin.jobs("running").jobs
    (status,) = [one.status for one in admin.pools().pools]
    assert status is not None
    for where in (
        "tag=media", f"pool={job.pool_id}", f"pool={status.host}", f"pool={status.host}/{status.pid}", "args.user_id=7", "hold not tag=other",
    ):  # fmt: skip
        assert [one["id"] for one in faces.api("/jobs", state="running", where=where)["jobs"]] == [job.id], (
            where
        )
        assert admin.count("running", where=where).matched == 1
    for where in ("tag=other", "pool=nowhere", "not tag=media", "args.user_id=8"):
        assert faces.api("/jobs", state="running", where=where)["jobs"] == [], where
    assert admin.apply("cancel", "running", where="tag=media args.user_id=7").changed == 1


def test_scheduled_jobs_are_found_by_when_they_are_due(faces, admin, pool):
    soon = admin.enqueue("mail", {}, delay=600).subject.split()[1]
    admin.enqueue("mail", {}, delay=7200)
    found = faces.api("/jobs", state="scheduled", where="due<1h")
    assert [job["id"] for job in found["jobs"]] == [soon]
    answer = faces.console.get("/api/v1/jobs", params={"state": "dead", "where": "due<1h"})
    assert answer.status_code == 400
    assert "due is a filter for jobs in scheduled and retry" in answer.json()["error"]


def test_what_was_searched_and_what_is_left_is_shown_with_a_way_on(faces, call, keys, look, monkeypatch):
    # The console is served by a thread of this process, so that it searches ten jobs at once, too.
    monkeypatch.setattr(job_lists, "MAX_FILTERED", 10)
    monkeypatch.setattr(job_lists.inspect, "MAX_ENTRIES", 10)
    for number in range(35):
        name = "rare" if number == 3 else "mail"
        call("ZADD", keys.dead, number, look.payload(name, f"d{number}", err="no", failed_at=1))
    seen, after, left = [], "", []
    while True:
        found = faces.api("/jobs", state="dead", where="rare", after=after)
        seen += [job["id"] for job in found["jobs"]]
        left.append(found["left"])
        after = found["next"]
        if not after:
            break
    assert seen == ["d3"]
    assert left == [25, 15, 5, 0]
    page = faces.page("/dead_jobs", where="rare")
    assert "No match among the first 10 jobs" in page
    assert "25 jobs left to search." in page
    assert "Search further" in page


def test_an_id_leads_to_its_job_and_a_long_word_is_a_filter(faces, call, keys, look):
    call("ZADD", keys.dead, 1, look.payload("mail", "a" * 24, err="ConnectionRefusedError", failed_at=1))
    answer = faces.console.get("/dead_jobs", params={"where": "a" * 24}, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert f"id={'a' * 24}" in answer.headers["location"]
    page = faces.page("/dead_jobs", where="connectionrefusederror")
    assert "a" * 24 in page


def test_hostile_arguments_do_not_break_a_filter(faces, call, keys, look, pool):
    now = int(look.now())
    deep = b'{"user_id":' * 50 + b"1" + b"}" * 50
    for number, args in enumerate(
        (b"{}", b'{"user_id":[1,{"a":2}]}', b'{"user_id":1e400}', deep, b'{"us\\u0065r_id":7}')
    ):
        payload = b'{"name":"mail","id":"h%d","t":1,"err":"x","args":%b}' % (number, args)
        call("ZADD", keys.dead, now - number, payload)
    call("ZADD", keys.dead, now, b"no json")
    found = faces.api("/jobs", state="dead", where="args.user_id=7")
    assert [job["id"] for job in found["jobs"]] == ["h4"], "an escaped key is the same key"
    found = faces.api("/jobs", state="dead", where="args.user_id.1.a=2")
    assert [job["id"] for job in found["jobs"]] == ["h1"]
    assert msgspec.json.encode(found)
