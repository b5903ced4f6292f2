"""Attacks: from other sites, under other names, without a password, with too much, by a viewer."""

from __future__ import annotations

import base64
import contextlib
import http.client
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dayjob.admin.client import Admin, AsyncAdmin
from dayjob.errors import BadOption
from dayjob.web import WebOptions, create_app
from dayjob.web.security import MAX_BODY, host_allowed
from dayjob.web.throttle import MAX_ADDRESSES, MAX_WRONG, Throttle
from server import wait_until
from web.conftest import running_console, serving
from web.shop import shop

PAUSE = "/api/v1/queue/pause"


def paused(console) -> bool:
    return any(view.queue.paused for view in console.admin.queues().queues)


@pytest.fixture(scope="module")
def shared(server):
    """One console for all attacks that must not change anything."""
    with running_console(server.url, "attacked" + secrets.token_hex(4)) as console:
        console.admin.enqueue("mail", {"to": "a@example.com", "password": "hunter2"})
        yield console


@pytest.fixture
def filled(shared):
    shared.admin.resume("mail")
    return shared


@pytest.fixture(scope="module")
def closed(server):
    """One console with a password."""
    with running_console(
        server.url, "closed" + secrets.token_hex(4), WebOptions(password="geheim")
    ) as console:
        yield console


# Other sites.


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "nonsense"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://evil.example/127.0.0.1"},
        {"sec-fetch-site": "cross-site", "origin": "{own}"},
    ],
    ids=str,
)
def test_a_page_of_another_site_changes_nothing(filled, headers):
    headers = {name: value.format(own=filled.url) for name, value in headers.items()}
    answer = filled.post(PAUSE, {"name": "mail"}, headers=headers)
    assert answer.status_code == 403
    assert "Nothing was changed" in answer.json()["error"]
    assert not paused(filled)


@pytest.mark.parametrize(
    "headers", [{"sec-fetch-site": "same-origin", "origin": "{own}"}, {"origin": "{own}"}, {}], ids=str
)
def test_the_pages_of_the_console_and_programs_act(filled, headers):
    headers = {name: value.format(own=filled.url) for name, value in headers.items()}
    assert filled.post(PAUSE, {"name": "mail"}, headers=headers).status_code == 200
    assert paused(filled)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_what_a_form_can_send_is_refused(filled, kind):
    answer = filled.request("POST", PAUSE, content=b'{"name":"mail"}', headers={"content-type": kind})
    assert answer.status_code == 415
    assert not paused(filled)


def test_a_gocraft_address_is_guarded_against_other_sites_as_well(filled):
    answer = filled.request("POST", "/delete_all_dead_jobs", headers={"origin": "https://evil.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
def test_no_method_but_post_changes_anything(filled, method):
    for path in (
        PAUSE,
        "/api/v1/job/delete",
        "/api/v1/enqueue",
        "/delete_all_dead_jobs",
        "/retry_all_dead_jobs",
    ):
        answer = filled.request(method, path, params={"name": "mail"})
        assert answer.status_code == 405, path
        assert "POST" in answer.headers["allow"]
    assert not paused(filled)
    assert filled.admin.queues().queues[0].queue.size == 1


def test_a_method_in_a_header_or_query_is_not_believed(filled):
    answer = filled.get(
        PAUSE, headers={"x-http-method-override": "POST"}, params={"_method": "POST", "name": "mail"}
    )
    assert answer.status_code == 405
    assert not paused(filled)


# Other names.


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:5040", "127.0.0.1.evil.example", "localhost.evil.example"]
)
def test_a_name_of_others_that_leads_here_gets_nothing(filled, host):
    answer = filled.get("/api/v1/queues", headers={"host": host})
    assert answer.status_code == 421
    assert "mail" not in answer.text
    assert "--allow-host" in answer.json()["hint"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.1.2.3:80", "[::1]:5040", "localhost."]
)
def test_the_names_of_this_machine_will_do(filled, host):
    assert filled.get("/api/v1/queues", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["a b", "evil/127.0.0.1", "x@127.0.0.1", "", "127.0.0.1:port", "[::1", "é.example"]
)
def test_a_host_that_cannot_be_read_is_refused(filled, host):
    status, _ = raw(
        filled, b"GET /api/v1/queues HTTP/1.1\r\nHost: " + host.encode() + b"\r\nConnection: close\r\n\r\n"
    )
    assert status == 400


def test_two_hosts_are_refused(filled):
    status, _ = raw(
        filled, b"GET /queues HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    assert status == 400


def raw(console, request: bytes) -> tuple[int, bytes]:
    """The status and the whole answer to bytes as they are."""
    url = httpx.URL(console.url)
    with socket.create_connection((url.host, url.port), 60) as sock:
        sock.sendall(request)
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    answer = b"".join(parts)
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.parametrize(
    ("host", "allowed", "closed", "wanted"),
    [
        ("jobs.example.com", None, False, False),
        ("jobs.example.com", None, True, True),
        ("jobs.example.com", ["jobs.example.com"], True, True),
        ("JOBS.example.com.", ["jobs.example.com"], True, True),
        ("x.jobs.example.com", ["jobs.example.com"], True, False),
        ("jobs.example.com", ["*"], True, True),
        ("10.0.0.7", ["jobs.example.com"], True, True),
        ("10.0.0.7", [], False, False),
        ("[fd00::1]", [], True, True),
        ("localhost", [], True, True),
    ],
)
def test_which_names_a_console_answers_to(host, allowed, closed, wanted):
    assert host_allowed(host, allowed, closed=closed) is wanted


# Who may come in.


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


WRONG = [
    {}, basic("ann", "wrong"), basic("ann", ""), {"authorization": "Basic !!!"}, {"authorization": "Basic"},
    {"authorization": "Basic " + base64.b64encode(b"\xff\xfe:x").decode()}, {"authorization": "Bearer geheim"},
    {"authorization": "Bearer"}, {"authorization": "geheim"}, {"authorization": "Basic " + "A" * 5000},
]  # fmt: skip


@pytest.mark.parametrize("headers", WRONG, ids=lambda headers: headers.get("authorization", "none")[:20])
def test_without_the_password_there_is_nothing_to_see(closed, headers):
    own = {"x-forwarded-for": f"203.0.113.{WRONG.index(headers)}"}
    with closed.client(headers=headers | own) as client:
        for path in (
            "/api/v1/queues",
            "/queues",
            "/metrics",
            "/events",
            "/api/v1/openapi.json",
            "/nothing/here",
        ):
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Basic")
            assert "geheim" not in answer.text
        assert client.post(PAUSE, json={"name": "mail"}).status_code == 401


def test_who_gives_many_wrong_passwords_must_wait_and_nobody_else_does(closed, caplog):
    guessing, other = {"x-forwarded-for": "203.0.113.77"}, {"x-forwarded-for": "203.0.113.78"}
    # Without a password one is asked for it, however often.
    for _ in range(2 * MAX_WRONG):
        assert closed.get("/queues", headers=guessing).status_code == 401
    for n in range(MAX_WRONG):
        assert closed.get("/queues", headers=guessing | basic("ann", f"no{n}")).status_code == 401
    refused = closed.get("/queues", headers=guessing | basic("ann", "geheim"))
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert "Wait" in refused.json()["hint"]
    assert closed.get("/queues", headers=other | basic("ann", "geheim")).status_code == 200
    assert "203.0.113.77" in caplog.text
    assert "no3" not in caplog.text


def test_wrong_passwords_are_forgotten_after_a_minute_and_their_addresses_are_few():
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    for _ in range(MAX_WRONG):
        assert throttle.wait("a") == 0
        throttle.wrong("a")
    assert throttle.wait("a") == 60
    now[0] = 59.5
    assert throttle.wait("a") == 1
    now[0] = 60.0
    assert throttle.wait("a") == 0
    throttle.wrong("a")
    assert throttle.wait("a") == 0
    for n in range(5000):
        throttle.wrong(f"b{n}")
    assert len(throttle._wrong) == MAX_ADDRESSES


def test_probes_need_no_password(closed):
    assert closed.get("/healthz").status_code == 200
    assert closed.get("/readyz").status_code == 200


def test_with_the_password_the_audit_says_who_it_was(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(password="geheimß:x")) as console:
        assert (
            console.post(
                PAUSE, {"name": "mail", "force": True}, headers=basic("ann", "geheimß:x")
            ).status_code
            == 200
        )
        assert console.admin.audit()[0].actor == "ann (web)"


def test_a_user_name_cannot_forge_a_line_of_the_audit(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(password="p")) as console:
        name = "ann\r\n\x1b[2Jroot@machine " + "x" * 500
        assert (
            console.post(PAUSE, {"name": "mail", "force": True}, headers=basic(name, "p")).status_code == 200
        )
        actor = console.admin.audit()[0].actor
        assert actor.isprintable()
        assert len(actor) <= 90
        assert actor.endswith(" (web)")


def test_a_token_lets_programs_in(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(token="s3cret")) as console:
        assert console.get("/metrics", headers={"authorization": "Bearer s3cret"}).status_code == 200
        refused = console.get("/metrics", headers={"authorization": "Bearer s3cre"})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert console.get("/metrics", headers=basic("x", "s3cret")).status_code == 401


def test_without_a_password_other_machines_are_refused_even_where_somebody_mounts_it(redis_url, namespace):
    """A client from elsewhere, as a proxy in front says it: what uvicorn believes of a proxy on this machine."""
    with running_console(redis_url, namespace) as console:
        answer = console.get("/api/v1/queues", headers={"x-forwarded-for": "203.0.113.9"})
        assert answer.status_code == 403
        assert "password" in answer.json()["error"]


# Roles.


def by_header(request):
    return request.headers.get("x-role")


async def by_header_awaited(request):
    return request.headers.get("x-role")


@pytest.mark.parametrize("role", [by_header, by_header_awaited])
def test_a_viewer_looks_and_an_operator_acts(redis_url, namespace, role):
    options = WebOptions(role=role, user=lambda request: request.headers.get("x-user"))
    with running_console(redis_url, namespace, options) as console:
        for wrong in ({}, {"x-role": "admin"}, {"x-role": "root"}):
            assert console.get("/api/v1/queues", headers=wrong).status_code == 403
        viewer, operator = {"x-role": "viewer"}, {"x-role": "operator", "x-user": "ann"}
        assert console.get("/api/v1/queues", headers=viewer).status_code == 200
        assert console.get("/api/v1/me", headers=viewer).json()["may_act"] is False
        refused = console.post(PAUSE, {"name": "mail"}, headers=viewer)
        assert refused.status_code == 403
        assert "view, but not change anything" in refused.json()["error"]
        assert not paused(console)
        assert console.post(PAUSE, {"name": "mail", "force": True}, headers=operator).status_code == 200
        assert console.admin.audit()[0].actor == "ann (web)"


def unsafe_paths(console) -> list[str]:
    paths = console.get("/api/v1/openapi.json", headers=console.headers).json()["paths"]
    found = [path for path, methods in paths.items() if "post" in methods]
    assert len(found) > 15
    return [
        *found,
        "/delete_all_dead_jobs",
        "/retry_all_dead_jobs",
        "/delete_dead_job/1/x",
        "/retry_dead_job/1/x",
    ]


def test_read_only_is_enforced_for_every_address_that_changes_anything(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(read_only=True)) as console:
        console.admin.enqueue("mail", {})
        for path in unsafe_paths(console):
            answer = console.post(path, {"name": "mail"})
            assert answer.status_code == 403, path
            assert "read-only" in answer.json()["error"]
        assert console.api("/me")["may_act"] is False
        assert console.api("/queues")["queues"][0]["queue"]["size"] == 1
        assert not paused(console)


@pytest.mark.parametrize(
    "options",
    [WebOptions(read_only=True), WebOptions(role=lambda request: "viewer")],
    ids=["read-only", "viewer"],
)
def test_who_may_only_look_sees_where_workers_are_in_their_code(redis_url, namespace, options):
    with shop(redis_url, namespace) as run, running_console(redis_url, namespace, options) as console:
        job = run.pool.enqueuer.enqueue("pack", boxes=8)
        wait_until(run.admin.busy)
        pool_id = run.admin.pools().pools[0].id
        asked = [("/api/v1/pool/stacks", {"pool": pool_id})] * 8
        with ThreadPoolExecutor(8) as some, console.client() as client:
            answers = list(some.map(lambda one: client.get(one[0], params=one[1]), asked))
        assert {answer.status_code for answer in answers} == {200}
        assert all(answer.json()["workers"][0]["id"] == job.id for answer in answers)
        assert "data-stack" in console.get("/busy_workers", headers={"accept": "text/html"}).text
        found = console.get("/job", params={"id": job.id}, headers={"accept": "text/html"}).text
        assert "Show its stack" in found
        assert "data-verb" not in found
        assert console.get("/api/v1/pool/stacks", params={"pool": "nobody"}).status_code == 404


def test_a_viewer_can_post_to_no_address_at_all(redis_url, namespace):
    options = WebOptions(role=lambda request: "viewer")
    with running_console(redis_url, namespace, options) as console:
        for path in unsafe_paths(console):
            assert console.post(path, {}).status_code == 403, path


# Too much, and too strange.


def test_a_huge_body_is_refused_before_it_is_read(filled):
    connection = http.client.HTTPConnection(
        httpx.URL(filled.url).host, httpx.URL(filled.url).port, timeout=60
    )
    connection.putrequest("POST", PAUSE)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_huge_body_in_pieces_is_refused(filled):
    def pieces():
        for _ in range(MAX_BODY // 65536 + 4):
            yield b" " * 65536

    answer = filled.request("POST", PAUSE, content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert not paused(filled)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"1", b'"x"', b'{"name":1}', b'{"name":null}', b'{"name":""}', b'{"nane":"mail"}',
        b'{"name":"mail","more":1}', b'{"name":"\\ud800"}', b"\xff\xfe", b'{"name":"mail"}{}', b"[" * 100_000,
        b'{"a":' * 20_000, b'{"name":"' + b"x" * 400 + b'"}',
    ],
    ids=lambda body: repr(body[:24]),
)  # fmt: skip
def test_a_body_that_does_not_fit_is_refused_in_words(filled, body):
    answer = filled.request("POST", PAUSE, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error", "hint", "status", "code"}
    assert not paused(filled)


HOSTILE = [
    "<script>alert(1)</script>", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "a\r\nSet-Cookie: x=1", "\x00", "x" * 299,
    "'; FLUSHALL", "{}", "*", "é\u202e\u2028", "jobs:mail", "%", "a|b", "-1", "~~", "1e999~", "nan~x",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_hostile_names_ids_and_cursors_get_an_answer_in_words(filled, text):
    gets = [
        ("/api/v1/queue", {"name": text}), ("/api/v1/job", {"id": text}), ("/api/v1/job/explain", {"id": text}),
        ("/api/v1/jobs", {"state": "dead", "after": text}), ("/api/v1/jobs", {"state": "waiting", "name": text}),
        ("/api/v1/jobs", {"state": "waiting", "name": "mail", "after": text}), ("/dead_jobs", {"page": text}),
        ("/api/v1/jobs", {"state": "dead", "where": text}), ("/api/v1/jobs", {"state": text}),
        ("/api/v1/jobs", {"state": "dead", text: "1"}), ("/api/v1/audit", {"about": text}),
    ]  # fmt: skip
    for path, params in gets:
        answer = filled.get(path, params=params)
        assert answer.status_code in (200, 400, 404), (path, params, answer.text)
        assert answer.headers["content-type"].startswith(("application/json", "application/problem+json"))
        assert "set-cookie" not in answer.headers
        answer.json()
    for path, body in (
        (PAUSE, {"name": text}), ("/api/v1/job/delete", {"id": text, "state": "dead", "at": 1.5}),
        ("/api/v1/periodic/run", {"name": text}), ("/api/v1/pool/quiet", {"pool": text}),
        ("/api/v1/failures/apply", {"verb": "delete", "name": text, "kind": text}),
    ):  # fmt: skip
        answer = filled.post(path, body)
        assert answer.status_code in (200, 400, 404, 409), (path, answer.text)
    for verb in ("delete", "retry"):
        answer = filled.post(f"/{verb}_dead_job/12/" + httpx.QueryParams({"x": text}).__str__()[2:])
        assert answer.status_code in (404, 405), answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%00",
        "/..%5c..%5capp.py", "//etc/passwd", "/static/....//app.py", "/static/..\\app.py", "/%2e%2e/%2e%2e/etc/passwd",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_folder_of_static_files(filled, path):
    request = b"GET " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, answer = raw(filled, request)
    assert status in (400, 404)
    assert b"create_app" not in answer
    assert b"root:" not in answer


def test_every_answer_carries_the_same_headers(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(token="t")) as console:
        good = {"authorization": "Bearer t"}
        answers = [
            console.get("/api/v1/queues", headers=good), console.get("/nothing", headers=good), console.get("/queues"),
            console.get("/healthz"), console.post(PAUSE, {}, headers=good), console.get("/metrics", headers=good),
            console.get("/queues", headers={**good, "accept": "text/html"}),
        ]  # fmt: skip
        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in answer.headers


def test_secrets_are_in_no_answer(redis_url, namespace):
    with running_console(redis_url, namespace, hide=("iban",)) as console:
        args = {"to": "ann", "password": "hunter2", "iban": "DE12345", "deep": [{"api_key": "k-9"}]}
        job = console.admin.enqueue("mail", args).subject.split()[1]
        console.admin.enqueue("mail", args, delay=100)
        console.admin.kill(job)
        paths = [
            "/api/v1/jobs?state=dead", "/api/v1/jobs?state=scheduled", f"/api/v1/job?id={job}", "/dead_jobs", "/scheduled_jobs",
            "/api/v1/failures", "/api/v1/audit", f"/api/v1/job/explain?id={job}", "/metrics", "/api/v1/jobs?state=dead&size=1",
        ]  # fmt: skip
        for path in paths:
            text = console.get(path).text
            assert not any(secret in text for secret in ("hunter2", "DE12345", "k-9")), path
        assert "[redacted]" in console.get("/api/v1/jobs?state=dead").text


# Where it is served.


def test_a_console_can_be_mounted_under_any_path(redis_url, namespace):
    console = create_app(AsyncAdmin(namespace, redis=redis_url))

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with console.router.lifespan_context(console):
            yield

    outer = Starlette(routes=[Mount("/ops/jobs", console)], lifespan=lifespan)
    with Admin(namespace, redis=redis_url) as admin, serving(outer, mounted=console) as (url, _):
        admin.enqueue("mail", {})
        assert (
            httpx.get(url + "/ops/jobs/api/v1/queues", timeout=60).json()["queues"][0]["queue"]["name"]
            == "mail"
        )
        assert httpx.get(url + "/ops/jobs/queues", timeout=60).json()[0]["job_name"] == "mail"
        assert httpx.get(url + "/ops/jobs/healthz", timeout=60).status_code == 200
        assert httpx.get(url + "/ops/jobs/api/v1/openapi.json", timeout=60).json()["servers"] == [
            {"url": "/ops/jobs"}
        ]
        assert httpx.get(url + "/api/v1/queues", timeout=60).status_code == 404
        cross = httpx.post(
            url + "/ops/jobs" + PAUSE,
            json={"name": "mail"},
            headers={"sec-fetch-site": "cross-site"},
            timeout=60,
        )
        assert cross.status_code == 403
        assert httpx.post(url + "/ops/jobs" + PAUSE, json={"name": "mail"}, timeout=60).status_code == 200


def test_behind_a_proxy_it_lives_below_the_base_path(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(base_path="/ops/jobs")) as console:
        root = console.url.removesuffix("/ops/jobs")
        assert httpx.get(root + "/ops/jobs/queues", timeout=60).status_code == 200
        assert httpx.get(root + "/queues", timeout=60).status_code == 404
        assert httpx.get(root + "/ops/jobsqueues", timeout=60).status_code == 404
        assert httpx.get(root + "/healthz", timeout=60).status_code == 200
        assert httpx.get(root + "/ops/jobs/healthz", timeout=60).status_code == 200


@pytest.mark.parametrize(
    "options",
    [
        {"password": ""}, {"token": " "}, {"base_path": "ops"}, {"base_path": "/ops/"}, {"allow_hosts": "jobs.example.com"},
        {"password": "x", "role": lambda request: "viewer"},
    ],
    ids="-".join,
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(BadOption):
        WebOptions(**options)


def test_options_do_not_show_the_password():
    assert "geheim" not in repr(WebOptions(password="geheim", token="geheim2"))
