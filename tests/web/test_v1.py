"""The API does what the admin layer does: every action, what it says when something has moved on, and Redis away."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

from dayjob import Job, WorkerPool
from dayjob.store.op import plain
from dayjob.store.steps import ask
from server import running, wait_until
from web.conftest import running_console


def enqueue(console, name="mail", args=None, **more) -> str:
    """A new job's id."""
    return console.admin.enqueue(name, args or {}, **more).subject.split()[1]


def lines(answer: httpx.Response) -> list[dict]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def state_of(console, job: str) -> str | None:
    found = console.admin.job(job)
    return found.job.state if found else None


# Queues.


def test_a_queue_is_paused_resumed_and_limited(console):
    enqueue(console)
    assert console.post("/api/v1/queue/pause", {"name": "mail"}).json()["message"] == "Paused."
    assert console.api("/queue", name="mail")["paused_by"] == "127.0.0.1 (web)"
    again = console.post("/api/v1/queue/pause", {"name": "mail"})
    assert (again.status_code, again.json()["error"]) == (409, "It was paused already. Nothing was changed.")
    assert console.post("/api/v1/queue/resume", {"name": "mail"}).status_code == 200
    assert console.post("/api/v1/queue/resume", {"name": "mail"}).status_code == 409
    assert console.post("/api/v1/queue/limit", {"name": "mail", "limit": 5}).status_code == 200
    assert console.admin.queues().queues[0].queue.limit == 5
    assert console.post("/api/v1/queue/limit", {"name": "mail", "limit": None}).status_code == 200
    assert console.admin.queues().queues[0].queue.limit is None
    assert console.post("/api/v1/queue/limit", {"name": "mail"}).status_code == 400


def test_a_queue_that_does_not_exist_is_paused_and_limited_only_by_force(console):
    enqueue(console, "mail.welcome")
    space = console.namespace
    for path, body, verb in (
        ("/queue/pause", {}, "pause"), ("/queue/limit", {"limit": 2}, "limit"), ("/queue/resume", {}, "resume"),
    ):  # fmt: skip
        answer = console.post(f"/api/v1{path}", {"name": "mail.welcom", **body})
        assert answer.status_code == 404
        assert answer.json()["error"] == f'cannot {verb} "mail.welcom": no such queue in namespace "{space}".'
        assert answer.json()["hint"].startswith('Did you mean "mail.welcome"?')
    assert "force=true" in console.post("/api/v1/queue/pause", {"name": "x"}).json()["hint"]
    forced = {"name": "later", "force": True}
    assert console.post("/api/v1/queue/pause", forced).json()["message"] == "Paused."
    assert console.post("/api/v1/queue/resume", {"name": "later"}).json()["message"] == "Resumed."
    assert console.post("/api/v1/queue/limit", {**forced, "limit": 2}).status_code == 200
    assert console.post("/api/v1/queue/pause", {"name": "later"}).status_code == 200


@pytest.mark.parametrize("verb", ["retry", "delete", "kill", "run_now", "cancel"])
def test_an_action_on_an_unknown_job_is_404(console, verb):
    answer = console.post(f"/api/v1/job/{verb}", {"id": "nowhere", "state": "dead"})
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("No job nowhere was found")


def test_an_unknown_queue_is_404_with_a_suggestion(console):
    enqueue(console, "mail")
    for answer in (
        console.get("/api/v1/queue", params={"name": "mial"}),
        console.post("/api/v1/queue/purge", {"name": "mial"}),
    ):
        assert answer.status_code == 404
        assert '"mail"' in answer.json()["hint"]


def test_a_purge_tells_how_far_it_is_and_deletes_all(console):
    for _ in range(5):
        enqueue(console)
    told = lines(console.post("/api/v1/queue/purge", {"name": "mail"}))
    assert "progress" in told[0]
    assert told[-1]["tally"]["changed"] == 5
    assert console.admin.queues().queues[0].queue.size == 0


# Jobs.


@pytest.mark.parametrize(
    ("verb", "state", "after"),
    [
        ("retry", "dead", "waiting"), ("delete", "dead", None), ("delete", "waiting", None), ("kill", "waiting", "dead"),
        ("kill", "scheduled", "dead"), ("run_now", "scheduled", "waiting"), ("cancel", "waiting", None),
        ("cancel", "scheduled", None), ("retry", "scheduled", "waiting"),
    ],
)  # fmt: skip
def test_one_job(console, verb, state, after):
    job = enqueue(console, delay=5000 if state == "scheduled" else 0)
    if state == "dead":
        console.admin.kill(job)
    answer = console.post(f"/api/v1/job/{verb}", {"id": job, "state": state})
    assert answer.status_code == 200, answer.text
    assert answer.json()["done"] is True
    assert state_of(console, job) == after
    line = console.admin.audit()[0]
    assert (line.actor, line.action) == ("127.0.0.1 (web)", verb)


def test_a_job_that_moved_on_is_left_alone_and_the_answer_says_where_it_is(console):
    job = enqueue(console)
    for verb in ("retry", "delete", "kill", "run_now", "cancel"):
        answer = console.post(f"/api/v1/job/{verb}", {"id": job, "state": "dead"})
        assert answer.status_code == 409
        assert (
            answer.json()["error"]
            == "It has moved on: it was dead, now it waits in its queue. Nothing was changed."
        )
    gone = console.post("/api/v1/job/delete", {"id": "nowhere", "state": "dead"})
    assert gone.status_code == 404
    assert "Nothing was changed" in gone.json()["error"]
    assert state_of(console, job) == "waiting"


def test_what_was_seen_must_be_said(console):
    job = enqueue(console)
    answer = console.post("/api/v1/job/delete", {"id": job})
    assert answer.status_code == 400
    assert "state" in answer.json()["error"]
    assert state_of(console, job) == "waiting"


def test_jobs_come_in_pages_with_filters(console):
    for n in range(7):
        console.admin.kill(enqueue(console, "mail" if n % 2 else "sms", {"n": n}))
    seen, after = [], ""
    while True:
        page = console.api("/jobs", state="dead", size=3, after=after)
        seen += [job["id"] for job in page["jobs"]]
        after = page["next"]
        if not after:
            break
    assert len(seen) == len(set(seen)) == page["total"] == 7
    assert {job["name"] for job in console.api("/jobs", state="dead", where="name=sms")["jobs"]} == {"sms"}
    assert {job["name"] for job in console.api("/jobs", state="dead", name="sms")["jobs"]} == {"sms"}
    assert console.api("/jobs/count", state="dead", where="name=sms") == {
        "matched": 4,
        "searched": 7,
        "total": 7,
        "hidden": 0,
        "next": "",
        "left": 0,
        "complete": True,
    }
    newest, oldest = (
        [job["id"] for job in console.api("/jobs", state="dead", newest_first=way)["jobs"]]
        for way in ("true", "false")
    )
    assert newest == oldest[::-1]


def test_waiting_jobs_are_paged_with_and_without_the_name_of_a_queue(console):
    jobs = [enqueue(console, name) for name in ("mail", "mail", "sms", "sms")]
    first = console.api("/jobs", state="waiting", size=3)
    assert ([job["id"] for job in first["jobs"]], first["total"]) == (jobs[:3], 4)
    rest = console.api("/jobs", state="waiting", size=3, after=first["next"])
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (jobs[3:], "")
    assert [job["id"] for job in console.api("/jobs", state="waiting", name="sms")["jobs"]] == jobs[2:]
    assert console.api("/jobs/count", state="waiting", where="name~s")["matched"] == 2


def test_one_job_with_its_story(console):
    job = enqueue(console, args={"to": "ann", "password": "x"}, source=42)
    told = console.api("/job", id=job)
    assert told["job"]["state"] == "waiting"
    assert told["job"]["source"] == 42
    assert told["job"]["args"]["password"] == "[redacted]"
    assert "payload" not in told["job"]
    assert told["sentence"] == console.api("/job/explain", id=job)["sentence"]
    assert told["command"].startswith("dayjob enqueue mail")
    assert console.get("/api/v1/job", params={"id": "nowhere"}).status_code == 404
    assert console.get("/api/v1/job/explain", params={"id": "nowhere"}).status_code == 404


def test_a_selection_tells_of_each_job(console):
    jobs = [enqueue(console) for _ in range(3)]
    body = {"verb": "delete", "jobs": [{"id": jobs[0], "state": "waiting"}, {"id": jobs[1], "state": "dead"}]}
    told = console.post("/api/v1/jobs/selection", body).json()
    assert (told["done"], told["failed"]) == (1, 1)
    assert [one["done"] for one in told["outcomes"]] == [True, False]
    assert state_of(console, jobs[1]) == "waiting"
    many = {"verb": "delete", "jobs": [{"id": "x", "state": "dead"}] * 501}
    assert console.post("/api/v1/jobs/selection", many).status_code == 400


def test_everything_that_matches_is_changed_in_steps(console):
    for n in range(250):
        enqueue(console, "mail", {"n": n}, delay=5000)
    enqueue(console, "sms", delay=5000)
    told = lines(
        console.post("/api/v1/jobs/apply", {"verb": "delete", "state": "scheduled", "where": "name=mail"})
    )
    progress = [line["progress"] for line in told[:-1]]
    assert progress
    assert [one["changed"] for one in progress] == sorted(one["changed"] for one in progress)
    assert told[-1]["tally"].pop("undo")
    assert told[-1]["tally"] | {"message": ""} == {
        "searched": 251,
        "matched": 250,
        "changed": 250,
        "unchanged": 0,
        "message": "",
        "audited": True,
    }
    assert console.admin.count("scheduled").total == 1


def test_what_was_deleted_is_listed_and_undone(console):
    job = enqueue(console, "mail", delay=5000)
    seen = {"id": job, "state": "scheduled"}
    undo = console.post("/api/v1/job/delete", seen).json()["undo"]
    (listed,) = console.get("/api/v1/bin").json()
    assert (listed["id"], listed["jobs"], listed["action"]) == (undo, 1, "delete")
    assert lines(console.post("/api/v1/undo", {"deletion": undo}))[-1]["tally"]["changed"] == 1
    assert state_of(console, job) == "scheduled"
    again = console.post("/api/v1/undo", {"deletion": undo})
    assert (again.status_code, "is not in the bin" in again.json()["error"]) == (404, True)
    picked = {"verb": "delete", "jobs": [seen]}
    assert console.post("/api/v1/jobs/selection", picked | {"undo": False}).json()["undo"] == ""
    assert console.get("/api/v1/bin").json() == []
    assert console.post("/api/v1/undo", {}).status_code == 404


def test_a_dry_run_has_ten_samples_and_changes_nothing(console):
    for n in range(12):
        enqueue(console, "mail", {"n": n})
    (line,) = lines(
        console.post(
            "/api/v1/jobs/apply", {"verb": "delete", "state": "waiting", "name": "mail", "dry_run": True}
        )
    )
    assert line["preview"]["would_change"] == 12
    assert [job["args"]["n"] for job in line["preview"]["samples"]] == list(range(10))
    assert "payload" not in line["preview"]["samples"][0]
    (line,) = lines(console.post("/api/v1/queue/purge", {"name": "mail", "dry_run": True}))
    assert line["preview"]["would_change"] == 12
    group = {"verb": "retry", "name": "mail", "kind": "x", "dry_run": True}
    (line,) = lines(console.post("/api/v1/failures/apply", group))
    assert line["preview"]["would_change"] == 0
    assert console.admin.queue("mail").view.queue.size == 12


def test_dead_jobs_are_retried_in_waves(console):
    for n in range(3):
        console.admin.kill(enqueue(console, "mail", {"n": n}))
    console.admin.pause("mail")
    with (
        console.client() as client,
        client.stream("POST", "/api/v1/jobs/retry_in_waves", json={"size": 2}) as answer,
    ):
        first = json.loads(next(answer.iter_lines()))
    assert first["progress"]["message"] == "Wave 1: 2 jobs still to end. 0 of 0 failed again."
    assert wait_until(lambda: "Stopped." in console.admin.audit()[0].result)
    assert console.admin.count("dead").matched == 1


def test_no_more_than_asked_for_is_changed(console):
    for _ in range(10):
        enqueue(console, delay=5000)
    told = lines(console.post("/api/v1/jobs/apply", {"verb": "run_now", "state": "scheduled", "most": 4}))
    assert told[-1]["tally"]["changed"] == 4
    assert console.admin.count("scheduled").total == 6


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"verb": "delete", "state": "scheduled", "where": "nmae=mail"}, "name"),
        ({"verb": "retry", "state": "done"}, "retry is not possible for all jobs in done"),
        ({"verb": "delete", "state": "waiting"}, "which jobs"),
        ({"verb": "explode", "state": "dead"}, "explode"),
    ],
)
def test_a_mistake_is_said_before_anything_is_done(console, body, words):
    answer = console.post("/api/v1/jobs/apply", body)
    assert answer.status_code == 400
    assert words in answer.json()["error"] + answer.json()["hint"]


def test_who_leaves_stops_the_work_at_a_safe_point_and_the_audit_says_so(console, call, keys):
    """Ten thousand jobs are many steps: the first line is out long before the last step."""
    for first in range(0, 20_000, 500):
        batch = [
            part
            for n in range(first, first + 500)
            for part in (5000000000 + n, b'{"name":"mail","id":"s%d","t":1,"args":null}' % n)
        ]
        call("ZADD", keys.scheduled, *batch)
    with console.client() as client:
        body = {"verb": "kill", "state": "scheduled"}
        with client.stream("POST", "/api/v1/jobs/apply", json=body) as answer:
            assert "progress" in json.loads(next(answer.iter_lines()))
    ended = wait_until(lambda: [line for line in console.admin.audit() if "changed" in line.result])
    left = console.admin.count("scheduled").total
    assert 0 < left < 20_000
    assert f"{20_000 - left:,} changed" in ended[0].result
    assert "Stopped after" in ended[0].result
    assert console.admin.count("dead").total == 20_000 - left


def test_redis_that_stops_in_the_middle_is_said_in_the_last_line(tmp_path, namespace):
    with running(tmp_path) as server, running_console(server.url, namespace) as console:
        batch = [
            part
            for n in range(30_000)
            for part in (5e9 + n, b'{"name":"mail","id":"s%d","t":1,"args":null}' % n)
        ]
        console.admin._walk(ask(plain("ZADD", f"{namespace}:scheduled", *batch)))
        with (
            console.client() as client,
            client.stream(
                "POST", "/api/v1/jobs/apply", json={"verb": "kill", "state": "scheduled"}
            ) as answer,
        ):
            told = answer.iter_lines()
            next(told)
            server.kill()
            last = [json.loads(line) for line in told][-1]
    assert last["status"] == 503
    assert "Redis does not answer" in last["error"]


# Failures.


def test_a_group_of_failures_is_retried_as_a_whole(console, call, keys):
    for n in range(5):
        error = b"Timeout: after %d s" % n if n < 3 else b"KeyError: 'x'"
        call(
            "ZADD",
            keys.dead,
            100 + n,
            b'{"name":"mail","id":"f%d","t":1,"args":{},"fails":4,"err":"%b","failed_at":100}' % (n, error),
        )
    call(
        "ZADD",
        keys.retry,
        5e9,
        b'{"name":"mail","id":"r1","t":1,"args":{},"fails":1,"err":"Timeout: after 9 s","failed_at":100}',
    )
    groups = console.api("/failures")["groups"]
    assert [(group["kind"], group["count"]) for group in groups] == [
        ("Timeout: after # s", 4),
        ("KeyError: 'x'", 2),
    ]
    body = {"verb": "retry", "name": "mail", "kind": groups[0]["kind"]}
    assert lines(console.post("/api/v1/failures/apply", body))[-1]["tally"]["changed"] == 4
    assert (call("LLEN", keys.queue("mail")), call("ZCARD", keys.dead), call("ZCARD", keys.retry)) == (
        4,
        2,
        0,
    )
    body = {"verb": "delete", "name": "mail", "kind": "KeyError: 'x'", "states": ["dead"]}
    assert lines(console.post("/api/v1/failures/apply", body))[-1]["tally"]["changed"] == 2


# New jobs, broken ones, schedules.


def test_a_job_is_enqueued_by_name(console):
    answer = console.post(
        "/api/v1/enqueue", {"name": "mail", "args": {"to": "ann", "big": 2**70}, "source": "acme"}
    )
    assert answer.status_code == 200
    job = console.admin.job(answer.json()["subject"].split()[1]).job
    assert (job.name, job.args, job.source) == ("mail", {"to": "ann", "big": 2**70}, "acme")
    assert console.post("/api/v1/enqueue", {"name": "mail", "delay": 60}).json()["message"] == "Scheduled."
    for wrong in ({"name": "a b"}, {"name": "mail", "args": []}, {"name": "mail", "delay": -1}, {}):
        assert console.post("/api/v1/enqueue", wrong).status_code == 400


def test_broken_entries_are_shown_dropped_and_mended(console, call, keys):
    for n in range(3):
        call(
            "LPUSH",
            keys.broken,
            b'{"at":1000,"where":"queue mail","why":"no JSON"}\njunk%d "password":"hunter2"' % n,
        )
    found = console.api("/broken")
    assert found["total"] == 3
    assert "hunter2" not in str(found)
    first, second, _ = found["entries"]
    wrong = console.post("/api/v1/broken/delete", {"index": first["index"], "digest": second["digest"]})
    assert wrong.status_code == 409
    assert (
        console.post(
            "/api/v1/broken/delete", {"index": first["index"], "digest": first["digest"]}
        ).status_code
        == 200
    )
    assert console.api("/broken")["total"] == 2
    entry = console.api("/broken")["entries"][0]
    named = {"index": entry["index"], "digest": entry["digest"]}
    assert console.post("/api/v1/broken/repair", {**named, "payload": "no job"}).status_code == 400
    repaired = console.post(
        "/api/v1/broken/repair", {**named, "payload": '{"name":"mail","id":"m1","t":1,"args":{}}'}
    )
    assert repaired.status_code == 200, repaired.text
    assert call("LLEN", keys.queue("mail")) == 1


def test_a_broken_entry_is_not_repaired_with_the_mask_of_a_hidden_value(console, call, keys):
    raw = b'{"name":"mail","id":"m1","t":1,"args":{"note":"[redacted]","password":"hunter2"}}'
    call("LPUSH", keys.broken, b'{"at":1000,"where":"queue greet","why":"a job named mail"}\n' + raw)
    (entry,) = console.api("/broken")["entries"]
    named = {"index": entry["index"], "digest": entry["digest"]}
    refused = console.post("/api/v1/broken/repair", {**named, "payload": entry["text"]})
    assert refused.status_code == 400, refused.text
    assert '"password"' in refused.json()["error"]
    assert console.api("/broken")["total"] == 1
    assert call("LLEN", keys.queue("mail")) == 0
    whole = entry["text"].replace('"password":"[redacted]"', '"password":"hunter3"')
    assert console.post("/api/v1/broken/repair", {**named, "payload": whole}).status_code == 200
    assert call("LRANGE", keys.queue("mail"), 0, -1) == [raw.replace(b"hunter2", b"hunter3")]


@pytest.fixture
def pool(console, redis_url):
    """A pool at work, with a job that waits for the test."""
    made: WorkerPool = WorkerPool(concurrency=2, namespace=console.namespace, redis=redis_url, beat=0.5)
    go = threading.Event()

    @made.job
    def hold(job: Job, token: str, n: int = 1) -> None:
        job.checkin("waiting", done=1, total=4)
        go.wait(60)

    made.periodic("0 0 1 1 *", "hold", {"token": "t", "n": 7})
    made.go = go
    made.start()
    try:
        yield made
    finally:
        go.set()
        made.stop(timeout=5)
        made.enqueuer.close()


def test_schedules_are_shown_run_paused_and_resumed(console, pool):
    schedule = wait_until(lambda: console.api("/periodic"))[0]
    name = {"name": schedule["name"]}
    assert schedule["args"] == {"token": "[redacted]", "n": 7}
    assert len(schedule["next"]) == 5
    assert console.post("/api/v1/periodic/pause", name).status_code == 200
    assert console.post("/api/v1/periodic/pause", name).status_code == 409
    assert console.api("/periodic")[0]["paused"] is True
    assert console.post("/api/v1/periodic/resume", name).status_code == 200
    assert console.post("/api/v1/periodic/run", name).status_code == 200
    wait_until(lambda: console.api("/busy"))
    assert console.post("/api/v1/periodic/run", {"name": "nothing"}).status_code == 404


def test_pools_their_workers_and_where_those_are_in_their_code(console, pool):
    enqueue(console, "hold", {"token": "geheim"})
    (busy,) = wait_until(lambda: [one for one in console.api("/busy") if one["progress"] == 0.25])
    assert busy["worker"]["name"] == "hold"
    assert busy["worker"]["args"] == {"token": "[redacted]"}
    pool_id = console.api("/pools")["pools"][0]["id"]
    told = console.get("/api/v1/pool/stacks", params={"pool": pool_id})
    assert told.status_code == 200, told.text
    frames = told.json()["workers"][0]["frames"]
    assert any(frame["function"].endswith("hold") and frame["own"] for frame in frames), frames
    assert console.post("/api/v1/pool/quiet", {"pool": pool_id}).status_code == 200
    wait_until(lambda: console.api("/pools")["pools"][0]["status"]["quiet"])
    pool.go.set()
    assert console.post("/api/v1/pool/stop", {"pool": pool_id}).status_code == 200
    wait_until(lambda: not console.api("/pools")["pools"])
    for path in ("quiet", "stop"):
        gone = console.post(f"/api/v1/pool/{path}", {"pool": pool_id})
        assert gone.status_code in (404, 409)
        assert pool_id in gone.json()["error"] or "Nothing was changed" in gone.json()["error"]


def test_job_types_are_announced_and_arguments_checked_against_them(console, pool):
    found = wait_until(lambda: console.api("/job_types"))
    (hold,) = [one for one in found if one["name"] == "hold"]
    arguments = {one["name"]: one for one in hold["arguments"]}
    assert arguments["n"]["kind"] == "integer"
    assert arguments["token"]["hidden"] is True
    wrong = console.post("/api/v1/enqueue", {"name": "hold", "args": {"token": "geheim", "n": "many"}})
    assert wrong.status_code == 400
    assert "geheim" not in wrong.text
    assert (
        console.post("/api/v1/enqueue", {"name": "hold", "args": {"x": 1}, "check": False}).status_code == 200
    )


# The rest.


def test_who_asks_and_what_they_may(console):
    me = console.api("/me")
    assert me["namespace"] == console.namespace
    assert (me["role"], me["read_only"], me["may_act"]) == ("operator", False, True)


def test_the_audit_can_be_searched(console):
    for name in ("mail", "sms"):
        console.post("/api/v1/queue/pause", {"name": name, "force": True})
    assert len(console.api("/audit")) == 2
    assert [line["subject"] for line in console.api("/audit", about="sms")] == ["queue sms"]
    assert len(console.api("/audit", size=1)) == 1


def test_figures_of_the_server_and_of_jobs(console):
    enqueue(console)
    assert console.api("/metrics", hours=24)["hours"] == 24
    assert console.api("/metrics", name="never_heard_of", most=3)["jobs"] == []
    assert len(console.api("/throughput", hours=72)["ended"]) == 72
    assert console.get("/api/v1/metrics", params={"hours": 5}).status_code == 400
    assert any(finding["topic"] == "eviction" for finding in console.api("/redis")["findings"])
    assert console.api("/verdict")["waiting"] == 1


def test_numbers_and_flags_in_a_query_are_read_strictly(console):
    for wrong in ("1.5", "0", "501", "x", "", "1e2", "٣", "0x10", "+1", " 1"):
        assert console.get("/api/v1/audit", params={"size": wrong}).status_code == 400, wrong
    for wrong in ("1", "yes", "True", ""):
        params = {"state": "dead", "newest_first": wrong}
        assert console.get("/api/v1/jobs", params=params).status_code == 400, wrong
    assert console.get("/api/v1/audit?size=1&size=2").status_code == 400
    assert console.get("/api/v1/failures", params={"window": "1.5e3"}).status_code == 200
    assert console.get("/api/v1/failures", params={"window": "nan"}).status_code == 400


def test_redis_comes_back_and_so_does_everything(tmp_path, namespace):
    with running(tmp_path) as server, running_console(server.url, namespace) as console:
        assert console.get("/api/v1/queues").status_code == 200
        server.kill()
        for path in ("/api/v1/queues", "/api/v1/verdict", "/metrics", "/api/v1/scale"):
            answer = console.get(path)
            assert answer.status_code == 503
            assert "Redis does not answer" in answer.json()["error"]
        assert console.post("/api/v1/queue/pause", {"name": "mail"}).status_code == 503
        server.start()
        assert console.post("/api/v1/queue/pause", {"name": "mail", "force": True}).status_code == 200
