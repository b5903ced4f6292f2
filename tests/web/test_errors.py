"""Errors of the API: every address refuses with a documented code, and 404 and 409 mean the same everywhere. ETag and gzip."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest

from dayjob.admin import verbs
from dayjob.errors import (
    BadArguments,
    Full,
    Rejected,
    TooLarge,
    Unavailable,
    Unknown,
    UnknownQueue,
    UnknownSchedule,
)
from dayjob.web import WebOptions, v1
from dayjob.web.codes import CODES, code_of_error
from dayjob.web.openapi import document
from dayjob.web.reading import accepts_gzip
from dayjob.web.responses import refusal_of
from dayjob.web.v1.table import PREFIX, Endpoint
from server import running
from web.conftest import running_console

DOCUMENT = document(v1.ENDPOINTS)
SCHEMAS = DOCUMENT["components"]["schemas"]
READS = [one for one in v1.ENDPOINTS if one.method == "GET"]
WRITES = [one for one in v1.ENDPOINTS if one.method == "POST"]


def path_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def minimal(schema: dict[str, Any]) -> Any:
    """The smallest value that fits a schema; names are of things that do not exist."""
    if "$ref" in schema:
        own = SCHEMAS[schema["$ref"].rpartition("/")[2]]
        return {name: minimal(own["properties"][name]) for name in own.get("required", ())}
    if "anyOf" in schema:
        return minimal(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "string":
            return "0" * 24 if schema.get("pattern", "").endswith("{24}$") else "nowhere"
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "array":
            return [minimal(schema["items"])]
    return {}


#: What an address needs beside its required fields: one of several, for instance.
FURTHER: dict[str, dict[str, Any]] = {"/job/reschedule": {"delay": 60}}


def given(endpoint: Endpoint) -> dict[str, Any]:
    """A valid input that names what does not exist."""
    own = SCHEMAS.get(endpoint.takes.__name__, {})
    required = {name: minimal(own["properties"][name]) for name in own.get("required", ())}
    return required | FURTHER.get(endpoint.path, {})


def asked(console, endpoint: Endpoint, sent: dict[str, Any], **options: Any):
    path = f"{PREFIX}{endpoint.path}"
    if endpoint.method == "GET":
        return console.get(path, params=sent, **options)
    return console.post(path, sent, **options)


def problem(answer) -> tuple[int, str]:
    """The status and the code of an error, which must be in order."""
    found = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(found) == {"error", "hint", "status", "code"}
    assert found["error"]
    assert found["status"] == answer.status_code == CODES[found["code"]].status
    return answer.status_code, found["code"]


@pytest.mark.parametrize("endpoint", v1.ENDPOINTS, ids=path_of)
def test_an_unknown_field_and_a_wrong_method_are_refused(console, endpoint):
    assert problem(asked(console, endpoint, {**given(endpoint), "nothing": "x"})) == (400, "bad_request")
    other = "DELETE"
    assert problem(console.request(other, f"{PREFIX}{endpoint.path}")) == (405, "method_not_allowed")


@pytest.mark.parametrize("endpoint", WRITES, ids=path_of)
def test_a_body_that_is_not_json_is_refused(console, endpoint):
    answer = console.request("POST", f"{PREFIX}{endpoint.path}", content=b"name=mail")
    assert problem(answer) == (415, "unsupported_media_type")
    answer = console.request(
        "POST", f"{PREFIX}{endpoint.path}", content=b"{", headers={"content-type": "application/json"}
    )
    assert problem(answer) == (400, "bad_request")


@pytest.mark.parametrize("endpoint", [one for one in v1.ENDPOINTS if one.finds], ids=path_of)
def test_what_does_not_exist_is_404_with_a_code_that_names_its_kind(console, endpoint):
    status, code = problem(asked(console, endpoint, given(endpoint)))
    assert status == 404
    assert code.startswith("unknown_") or code == "nothing_to_undo"


def test_what_exists_but_cannot_be_done_is_409(console):
    job = console.admin.enqueue("mail", {}).subject.split()[1]

    def post(path, **body):
        return problem(console.post(f"/api/v1{path}", body))

    assert post("/job/retry", id=job, state="waiting") == (409, "not_allowed")
    assert post("/job/retry", id=job, state="dead") == (409, "moved")
    console.admin.pause("mail")
    assert post("/queue/pause", name="mail") == (409, "already")
    assert post(verbs.row("broken", "delete").path, index=0, digest="0" * 24) == (409, "moved")
    assert post("/job/delete", id="nowhere", state="dead") == (404, "unknown_job")


def test_arguments_that_do_not_fit_have_a_code_of_their_own(console, redis_url):
    from dayjob import WorkerPool
    from server import wait_until

    pool = WorkerPool(namespace=console.namespace, redis=redis_url, concurrency=1)

    @pool.job
    def mail(to: str) -> None: ...

    with pool:
        wait_until(console.admin.job_types)
    answer = console.post("/api/v1/enqueue", {"name": "mail", "args": {"too": "ada"}})
    assert problem(answer) == (400, "bad_arguments")


def test_an_address_that_does_not_exist(console):
    assert problem(console.get("/api/v1/nothing")) == (404, "no_such_address")
    assert problem(console.get("/api/v2/queues")) == (404, "no_such_address")


@pytest.mark.parametrize("endpoint", WRITES, ids=path_of)
def test_a_page_of_another_site_changes_nothing(console, endpoint):
    answer = asked(console, endpoint, given(endpoint), headers={"origin": "https://evil.example"})
    assert problem(answer) == (403, "other_site")


def test_codes_of_sign_in_and_read_only(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(read_only=True)) as console:
        for endpoint in WRITES:
            assert problem(asked(console, endpoint, given(endpoint))) == (403, "read_only")
        assert problem(console.get("/api/v1/me", headers={"host": "evil.example"})) == (421, "wrong_host")
    with running_console(redis_url, namespace, WebOptions(password="pw")) as console:
        for endpoint in READS:
            assert problem(asked(console, endpoint, given(endpoint))) == (401, "not_signed_in")


def test_without_redis_every_address_answers_the_same_code(tmp_path):
    with running(tmp_path) as server, running_console(server.url, "away") as console:
        server.kill()
        for endpoint in v1.ENDPOINTS:
            # The last two are refused before Redis is asked: they need a name or a condition.
            if endpoint.path not in ("/me", "/openapi.json", "/jobs/apply", "/jobs/move"):
                assert problem(asked(console, endpoint, given(endpoint))) == (503, "redis_unavailable"), (
                    endpoint
                )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownQueue("x", "y"), "unknown_queue"), (UnknownSchedule("x"), "unknown_schedule"), (BadArguments("x"), "bad_arguments"),
        (TooLarge("x"), "job_too_large"), (Full("x"), "redis_full"), (Rejected("x"), "redis_refused"), (Unknown("x"), "outcome_unknown"),
        (Unavailable("x"), "redis_unavailable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_every_error_of_the_admin_layer_has_its_code_and_status(error, code):
    assert code_of_error(error) == code
    refusal = refusal_of(error)
    assert (refusal.code, refusal.status) == (code, CODES[code].status)


def test_the_document_has_every_code():
    assert set(SCHEMAS["Problem"]["properties"]["code"]["enum"]) == set(CODES)
    assert "code" in SCHEMAS["Problem"]["required"]


# ETag and gzip.


def test_a_read_that_has_not_changed_is_not_sent_again(console):
    first = console.get("/api/v1/queues")
    tag = first.headers["etag"]
    assert re.fullmatch(r'W/"[0-9a-f]{32}"', tag)
    same = console.get("/api/v1/queues", headers={"if-none-match": f'"other", {tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert same.headers["x-content-type-options"] == "nosniff"
    console.admin.enqueue("mail", {})
    changed = console.get("/api/v1/queues", headers={"if-none-match": tag})
    assert (changed.status_code, changed.headers["etag"] != tag) == (200, True)
    assert changed.json()["queues"][0]["queue"]["name"] == "mail"


def test_every_read_has_a_tag_and_no_change_has(console):
    for endpoint in READS:
        answer = asked(console, endpoint, given(endpoint))
        assert ("etag" in answer.headers) == (answer.status_code == 200), endpoint.path
    console.admin.enqueue("mail", {})
    assert "etag" not in console.post("/api/v1/queue/pause", {"name": "mail"}).headers


def test_long_answers_are_compressed_if_the_client_accepts_that(console):
    plain = console.get("/api/v1/openapi.json", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    small = console.request("GET", "/api/v1/openapi.json", headers={"accept-encoding": "gzip;q=1.0"})
    assert small.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in small.headers["vary"]
    assert small.content == plain.content
    assert int(small.headers["content-length"]) < len(plain.content) / 3
    assert small.headers["etag"] == plain.headers["etag"]
    # Too short to gain from it.
    assert "content-encoding" not in console.get("/api/v1/me", headers={"accept-encoding": "gzip"}).headers


@pytest.mark.parametrize("path", ["/", "/queues", "/static/dayjob.js", "/static/dayjob.css"])
def test_pages_and_their_files_are_compressed_if_the_browser_accepts_that(console, path):
    headers = {"accept": "text/html"}
    plain = console.get(path, headers={**headers, "accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    small = console.get(path, headers={**headers, "accept-encoding": "gzip, br"})
    assert small.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in small.headers["vary"]
    assert int(small.headers["content-length"]) < len(plain.content) / 2


def test_very_long_answers_are_compressed_beside_the_event_loop(console):
    for n in range(400):
        console.admin.enqueue("mail", {"text": "x" * 300, "n": n})
    page = console.get(
        "/api/v1/jobs", params={"state": "waiting", "size": 500}, headers={"accept-encoding": "gzip"}
    )
    assert page.headers["content-encoding"] == "gzip"
    assert len(page.json()["jobs"]) == 400
    assert len(gzip.compress(page.content, 1)) < len(page.content)


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("br", False),
        ("", False),
        ("GZIP", True),
    ],
)
def test_who_accepts_gzip(header, accepted):
    assert accepts_gzip(header) is accepted


# The page.


def test_the_page_has_every_address_and_every_code(console):
    answer = console.get("/api", headers={"accept": "text/html"})
    assert answer.status_code == 200
    for endpoint in v1.ENDPOINTS:
        assert f"<code>{PREFIX}{endpoint.path}</code>" in answer.text
        for name in endpoint.takes.__struct_fields__:
            assert f"<code>{name}</code>" in answer.text
    for code in CODES:
        assert f"<code>{code}</code>" in answer.text
    linked = set(re.findall(r'href="#([^"]+)"', answer.text))
    ids = re.findall(r'id="([^"]+)"', answer.text)
    assert linked <= set(ids)
    assert len(ids) == len(set(ids))
    assert 'aria-current="page"' in answer.text
