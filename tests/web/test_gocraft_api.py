"""gocraft's API: its addresses, verbs and shapes, byte for byte where time allows."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from server import running
from web.conftest import running_console

GOLDEN = Path(__file__).parent.parent / "golden"

#: As its own workers write them.
RETRY = [
    (1794767136, b'{"name":"mail","id":"9fb3807b7dd1eb4700a73232","t":1794767036,"args":{"to":"ann","n":1},"fails":1,"err":"handler said no \\u003c\\u0026\\u003e","failed_at":1794767076}'),
    (1794767200, b'{"name":"mail","id":"aa","t":1794767037,"args":null,"unique":true,"unique_key":"w:unique:mail:","fails":2,"err":"x","failed_at":1794767100}'),
]  # fmt: skip
SCHEDULED = [(1894767036, b'{"name":"later","id":"bb","t":1794767036,"args":{"x":[1,2.5,null,"\xc3\xa9"]}}')]
DEAD = [(1794767300 + n, b'{"name":"a","id":"d%d","t":1,"args":{},"fails":4,"err":"gone","failed_at":1794767300}' % n) for n in range(45)]  # fmt: skip
FUTURE = 32_503_680_000


def golden(name: str) -> str:
    return (GOLDEN / f"gocraft_{name}.json").read_text("utf-8")


@pytest.fixture
def put(call, keys):
    """Write what another program would have written."""

    def write(key: str, entries) -> None:
        for score, payload in entries:
            call("ZADD", key, score, payload)

    return write


def test_queues(console, call, keys):
    for name, jobs in (("mail", 2), ("empty", 0), ("a<b>&c", 1)):
        call("SADD", keys.known_jobs, name)
        for n in range(jobs):
            call(
                "LPUSH",
                keys.queue(name),
                b'{"name":"%b","id":"%d","t":%d,"args":null}' % (name.encode(), n, FUTURE),
            )
    assert console.get("/queues").text == golden("queues")


def test_latency_is_the_age_of_the_oldest_in_seconds(console, call, keys):
    call("SADD", keys.known_jobs, "mail")
    call("LPUSH", keys.queue("mail"), b'{"name":"mail","id":"x","t":%d,"args":null}' % (time.time() - 100))
    assert 99 <= console.get("/queues").json()[0]["latency"] < 200


def test_worker_pools(console, call, keys):
    status = {
        "id": "b1", "host": "web-7", "pid": 42, "started_at": 1794767036.7, "beat_at": 1794767040.2, "concurrency": 3,
        "names": ["mail", "a"], "worker_ids": ["b1-2", "b1-1"], "workers": [],
    }  # fmt: skip
    for pool_id in ("b1", "a0"):
        call("ZADD", keys.pools, FUTURE * 1000, pool_id)
    call("SET", keys.pool("b1"), json.dumps(status))
    assert console.get("/worker_pools").text == golden("worker_pools")


def test_busy_workers(console, call, keys):
    workers = [
        {
            "token": "1:mail", "name": "mail", "id": "j1", "worker_id": "b1-1", "started_at": 1794767036.7,
            "args": {"to": "ann", "n": 1}, "checkin": "row 3 <of> 9", "checkin_at": 1794767039.9, "done": 3, "total": 9,
        },
        {"token": "2:a", "name": "a", "id": "j2", "worker_id": "b1-2", "started_at": 1794767037.0},
    ]  # fmt: skip
    call("ZADD", keys.pools, FUTURE * 1000, "b1")
    call("SET", keys.pool("b1"), json.dumps({"id": "b1", "concurrency": 3, "workers": workers}))
    assert console.get("/busy_workers").text == golden("busy_workers")


def test_no_list_is_ever_null(console):
    for path in ("/queues", "/worker_pools", "/busy_workers"):
        assert console.get(path).json() == []
    for path in ("/retry_jobs", "/scheduled_jobs", "/dead_jobs"):
        assert console.get(path).json() == {"count": 0, "jobs": []}


def test_retry_jobs(console, put, keys):
    put(keys.retry, RETRY)
    assert console.get("/retry_jobs").text == golden("retry_jobs")


def test_scheduled_jobs(console, put, keys):
    put(keys.scheduled, SCHEDULED)
    assert console.get("/scheduled_jobs").text == golden("scheduled_jobs")


def test_dead_jobs(console, put, keys):
    put(keys.dead, DEAD[:2])
    assert console.get("/dead_jobs").text == golden("dead_jobs")


def test_pages_have_twenty_jobs_the_earliest_first(console, put, keys):
    put(keys.dead, DEAD)
    pages = [console.get("/dead_jobs", params={"page": n}).json() for n in (1, 2, 3, 4)]
    assert [page["count"] for page in pages] == [45] * 4
    assert [len(page["jobs"]) for page in pages] == [20, 20, 5, 0]
    assert [job["id"] for page in pages for job in page["jobs"]] == [f"d{n}" for n in range(45)]
    for first in ("", "?page=0", "?page=", "?page=1"):
        assert console.get(f"/dead_jobs{first}").json() == pages[0]


@pytest.mark.parametrize("page", ["x", "-1", "1.5", "1e3", "9" * 40, "٣"])
def test_a_page_that_is_no_number_is_refused_in_valid_json(console, page):
    answer = console.get("/dead_jobs", params={"page": page})
    assert answer.status_code == 400
    assert page[:10] in answer.json()["error"]


def test_large_jobs_do_not_shorten_a_page(console, put, keys):
    big = b"x" * 200_000
    put(keys.dead, [(n, b'{"name":"a","id":"d%d","t":1,"args":{"x":"%b"}}' % (n, big)) for n in range(1, 31)])
    pages = [console.get("/dead_jobs", params={"page": n}).json()["jobs"] for n in (1, 2)]
    assert [job["id"] for page in pages for job in page] == [f"d{n}" for n in range(1, 31)]


def test_delete_one_dead_job(console, put, keys, call):
    put(keys.dead, DEAD[:3])
    answer = console.post("/delete_dead_job/1794767301/d1")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert console.get("/dead_jobs").json()["count"] == 2
    again = console.post("/delete_dead_job/1794767301/d1")
    assert again.status_code == 404
    assert again.json()["error"].startswith("nothing deleted")
    wrong_moment = console.post("/delete_dead_job/1794767300/d2")
    assert wrong_moment.status_code == 404
    assert call("ZCARD", keys.dead) == 2


def test_a_client_that_knows_whole_seconds_finds_a_job_that_died_within_one(console, call, keys):
    call("ZADD", keys.dead, "1794767301.25", DEAD[1][1])
    shown = console.get("/dead_jobs").json()["jobs"][0]
    assert shown["died_at"] == 1794767301
    assert console.post(f"/retry_dead_job/{shown['died_at']}/{shown['id']}").json() == {"status": "ok"}
    assert call("ZCARD", keys.dead) == 0
    assert call("LLEN", keys.queue("a")) == 1


def test_an_id_with_slashes_can_be_named(console, call, keys):
    """As its own periodic enqueuer makes them: such a job cannot be named in gocraft's own API."""
    call("ZADD", keys.dead, 5, b'{"name":"a","id":"periodic:a:*/5 * * * *:1794767300","t":1,"args":null}')
    assert console.post("/delete_dead_job/5/periodic:a:*/5 * * * *:1794767300").status_code == 200


def test_nothing_is_deleted_or_retried_without_a_body_or_with_one(console, put, keys):
    put(keys.dead, DEAD[:2])
    with console.client() as client:
        assert client.post("/delete_dead_job/1794767300/d0").status_code == 200
        assert client.post("/delete_dead_job/1794767301/d1/", content=b"{}").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/delete_dead_job/x/d1",
        "/delete_dead_job/-1/d1",
        "/retry_dead_job/1e3/d1",
        "/retry_dead_job/" + "9" * 30 + "/d",
    ],
)
def test_a_moment_that_is_no_number_is_refused(console, path):
    answer = console.post(path)
    assert answer.status_code == 400
    assert "error" in answer.json()


def test_delete_all_and_retry_all(console, put, keys, call):
    put(keys.dead, DEAD)
    assert console.post("/retry_all_dead_jobs").json() == {"status": "ok"}
    assert (call("ZCARD", keys.dead), call("LLEN", keys.queue("a"))) == (0, 45)
    put(keys.dead, DEAD)
    assert console.post("/delete_all_dead_jobs").json() == {"status": "ok"}
    assert (call("ZCARD", keys.dead), call("LLEN", keys.queue("a"))) == (0, 45)


def test_a_retry_drops_the_old_result(console, put, keys, call):
    put(keys.dead, DEAD)
    for member in call("ZRANGE", keys.dead, 0, -1):
        call("SET", keys.result(json.loads(member)["id"]), '{"error":"old"}')
    assert console.post("/retry_all_dead_jobs").json() == {"status": "ok"}
    assert call("KEYS", keys.result("*")) == []


def test_a_browser_gets_the_page_and_a_program_the_json(console):
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    for path in ("/queues", "/worker_pools", "/busy_workers", "/retry_jobs", "/scheduled_jobs", "/dead_jobs"):
        assert (
            console.get(path, headers={"accept": browser}).headers["content-type"].startswith("text/html")
        ), path
        for accept in ("*/*", "application/json", "", "application/json, text/html;q=0.5", "text/html;q=x"):
            answer = console.get(path, headers={"accept": accept})
            assert answer.headers["content-type"] == "application/json; charset=utf-8", (path, accept)
        assert "Accept" in answer.headers["vary"]


def test_a_slash_behind_an_address_and_options_are_taken(console):
    assert console.get("/queues/").json() == []
    assert "text/html" in console.get("/queues/", headers={"accept": "text/html"}).headers["content-type"]
    answer = console.request("OPTIONS", "/queues")
    assert answer.status_code == 200
    assert "GET" in answer.headers["allow"]
    assert console.get("/nothing").status_code == 404
    assert "error" in console.get("/nothing").json()
    assert console.post("/queues").status_code == 405


def test_what_cannot_be_read_does_not_hide_its_neighbours(console, put, keys):
    put(keys.dead, [(1, b"junk"), *DEAD[:1]])
    found = console.get("/dead_jobs").json()
    assert found["count"] == 2
    assert "cannot be read" in found["jobs"][0]["err"]
    assert found["jobs"][1]["id"] == "d0"


def test_without_redis_the_answer_is_503_in_valid_json(tmp_path, namespace):
    with running(tmp_path) as server, running_console(server.url, namespace) as console:
        server.kill()
        for path in ("/queues", "/worker_pools", "/busy_workers", "/retry_jobs", "/dead_jobs"):
            answer = console.get(path)
            assert answer.status_code == 503
            assert "Redis does not answer" in answer.json()["error"]
        assert console.post("/delete_all_dead_jobs").status_code == 503
        server.start()
        assert console.get("/queues").status_code == 200
