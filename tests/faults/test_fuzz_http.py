"""Requests by the thousand against the console, whose namespace is full of rubbish: it never answers 500, nor ends."""

from __future__ import annotations

import json
import random
import secrets
import socket
from collections import Counter
from urllib.parse import quote, quote_from_bytes

import pytest

from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from dayjob.web import v1
from faults.mutator import NASTY, SEED, TIMES, hostile, job
from faults.test_fuzz_payloads import PRIVATE
from web.conftest import running_console

# A thousand requests, one after the other: more than a minute on a busy machine.
pytestmark = pytest.mark.timeout(900)

#: What people get; the rest of the paths is in the API's own table.
PAGES = (
    "/", "/queues", "/queues/a", "/queues/nobody", "/jobs/dead", "/jobs/retry", "/jobs/scheduled", "/jobs/done", "/jobs/running",
    "/jobs/waiting", "/job/x", "/pools", "/busy", "/periodic", "/failures", "/metrics", "/redis", "/audit", "/broken", "/settings", "/api",
    "/enqueue", "/worker_pools", "/busy_workers", "/retry_jobs", "/scheduled_jobs", "/dead_jobs", "/static/dayjob.css",
    "/static/../app.py", "/static/%2e%2e/app.py", "/healthz", "/readyz", "/nothing",
)  # fmt: skip
HEADERS = (b"Host", b"Origin", b"Accept", b"Content-Type", b"Content-Length", b"Cookie", b"Authorization", b"X-Forwarded-For", b"Sec-Fetch-Site",
           b"Transfer-Encoding", b"Last-Event-ID", b"X-Forwarded-Prefix", b"Connection", b"Expect")  # fmt: skip
METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"BREW")


@pytest.fixture(scope="module")
def rubbish(server):
    """A console over a namespace in which every key holds some rubbish."""
    namespace = "fuzz" + secrets.token_hex(4)
    keys = Keys(namespace)
    link = Link(addresses.parse_url(server.url), tag=keys.known_jobs)
    chance = random.Random(f"{SEED} rubbish")
    for place in PRIVATE.values():
        for bad in (*chance.sample(NASTY, 8), *(hostile(chance, job("a", "x")) for _ in range(8))):
            link.run(plain(*place(keys, bad[:400])))
    for bad in (*NASTY, *(hostile(chance, job("a", f"{n}")) for n in range(100))):
        link.run(plain("LPUSH", keys.queue("a"), bad))
        for zset in (keys.scheduled, keys.retry, keys.dead, keys.done):
            link.run(plain("ZADD", zset, chance.choice([0, 1.5, 4e9, -1, 1e300]), bad))
    link.run(plain("SADD", keys.known_jobs, "a"))
    link.close()
    with running_console(server.url, namespace) as console:
        yield console


def status(url: str, request: bytes) -> int:
    """The status that raw bytes are answered with; 0 when the connection is closed without a word."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.settimeout(60)
        sock.sendall(request)
        line = b""
        while b"\r\n" not in line:
            try:
                more = sock.recv(4096)
            except ConnectionResetError:
                return 0
            if not more:
                return 0
            line += more
    return int(line.split()[1])


def get(path: str, accept: str = "text/html", **headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Accept: {accept}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def post(path: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def unharmed(console) -> None:
    assert status(console.url, get("/healthz")) == 200
    assert not console.server.should_exit


def test_every_page_and_address_answers_over_rubbish(rubbish):
    paths = [*PAGES, *(f"/api/v1{one.path}" for one in v1.ENDPOINTS if one.method == "GET")]
    found = {
        (path, accept): status(rubbish.url, get(path, accept))
        for path in paths
        for accept in ("text/html", "application/json", "*/*")
    }
    assert not [(where, code) for where, code in found.items() if code >= 500 or code == 0]
    assert sum(code == 200 for code in found.values()) > len(found) / 2
    unharmed(rubbish)


def test_queries_by_the_thousand_are_answered_or_refused(rubbish):
    chance = random.Random(f"{SEED} queries")
    names = [
        "state",
        "name",
        "where",
        "after",
        "size",
        "offset",
        "id",
        "minutes",
        "since",
        "q",
        "page",
        "sort",
        "kind",
        "x",
        "newest_first",
    ]
    values = ["", "0", "-1", "1e400", "9" * 30, "dead", "a", "name=a", "error~'", "age>1e400", "\x00", "é", "%", "../..", "<script>", "{}", "null", "true", "[]", "' or 1=1"]  # fmt: skip
    gets = [one for one in v1.ENDPOINTS if one.method == "GET" and not one.streams]
    wrong = []
    for _ in range(1000 * TIMES):
        path = chance.choice(PAGES) if chance.random() < 0.4 else "/api/v1" + chance.choice(gets).path
        known = [
            *names,
            *(field for one in gets if one.path in path for field in one.takes.__struct_fields__),
        ]
        pairs = [
            f"{quote(chance.choice(known))}={quote(chance.choice(values)) if chance.random() < 0.7 else quote_from_bytes(chance.randbytes(5))}"
            for _ in range(chance.randrange(1, 4))
        ]
        code = status(
            rubbish.url, get(f"{path}?{'&'.join(pairs)}", chance.choice(["text/html", "application/json"]))
        )
        if code >= 500 or code == 0:
            wrong.append((code, path, pairs))
    assert not wrong
    unharmed(rubbish)


def test_bodies_by_the_thousand_are_done_or_refused(rubbish):
    chance = random.Random(f"{SEED} bodies")
    # Waves wait until their jobs have run, and no pool runs here.
    posts = [one for one in v1.ENDPOINTS if one.method == "POST" and one.path != "/jobs/retry_in_waves"]
    values = [
        "a",
        "",
        0,
        -1,
        1e300,
        None,
        True,
        [],
        {},
        "dead",
        "x" * 500,
        "\ud800",
        ["a"],
        {"a": 1},
        "name=a",
        "é\x00",
        10**30,
    ]
    good = {
        "name": "a", "limit": 3, "pool": "p" * 24, "id": "x", "state": "dead", "at": 1.5, "verb": "retry", "jobs": [{"id": "x", "state": "dead"}],
        "where": "name=a", "most": 5, "kind": "(no error is noted)", "states": ["dead"], "args": {"n": 1}, "delay": 5, "source": "s", "check": False,
        "index": 0, "digest": "0" * 24, "payload": '{"name":"a"}', "force": True,
        "pattern": "a*", "undo": True, "dry_run": False, "n": 5, "per": 1.0, "burst": 5, "seconds": 5, "due_at": 1e10, "to": "b",
        "deletion": "0" * 24, "text": "known", "key": "k", "weight": 2.0, "node": 0,
    }  # fmt: skip
    wrong, codes = [], Counter()
    for _ in range(1000 * TIMES):
        endpoint = chance.choice(posts)
        fields = [*endpoint.takes.__struct_fields__, "x"]
        given = {field: good[field] for field in endpoint.takes.__struct_fields__ if chance.random() < 0.9}
        for field in chance.sample(fields, chance.randrange(2)):
            given[field] = chance.choice(values)
        body = json.dumps(given).encode()
        if chance.random() < 0.3:
            body = hostile(chance, body)
        kind = chance.choice(
            ["application/json"] * 6 + ["text/plain", "", "application/json; charset=utf-16"]
        )
        code = status(rubbish.url, post("/api/v1" + endpoint.path, body, kind))
        if code >= 500 or code == 0:
            wrong.append((code, endpoint.path, body[:200]))
        codes[code] += 1
    assert not wrong
    assert codes[200] > 10, codes
    assert codes[400] > 100, codes
    unharmed(rubbish)


def test_bytes_that_are_hardly_http_are_refused_and_harm_nobody(rubbish):
    chance = random.Random(f"{SEED} http")
    wrong = []
    for _ in range(1000 * TIMES):
        lines = [
            chance.choice(METHODS) + b" " + _path(chance) + b" HTTP/1.1",
            b"Host: 127.0.0.1",
            b"Connection: close",
        ]
        for _ in range(chance.randrange(4)):
            lines.append(chance.choice(HEADERS) + b": " + _value(chance))
        request = b"\r\n".join(lines) + b"\r\n\r\n"
        if chance.random() < 0.3:
            found = bytearray(request)
            for _ in range(chance.randrange(1, 4)):
                found[chance.randrange(len(found))] = chance.randrange(256)
            request = bytes(found)
        # A body that is announced and never sent would be waited for: let it be known that nothing more comes.
        code = _closing(rubbish.url, request)
        if code >= 500:
            wrong.append((code, request))
    assert not wrong
    unharmed(rubbish)


def _path(chance: random.Random) -> bytes:
    draw = chance.random()
    if draw < 0.5:
        return chance.choice(PAGES).encode()
    if draw < 0.8:
        return b"/api/v1" + chance.choice(v1.ENDPOINTS).path.encode()
    return b"/" + quote_from_bytes(chance.randbytes(12)).encode()


def _value(chance: random.Random) -> bytes:
    return chance.choice([b"", b"-1", b"9" * 30, b"chunked", b"text/html", b"http://evil.example", b"127.0.0.1", b"\xff\xfe", b"a" * 3000, b"Basic !!!", b"Basic " + b"QQ==", b"100-continue", b"none", b"x=" + b";" * 50])  # fmt: skip


def _closing(url: str, request: bytes) -> int:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.settimeout(60)
        try:
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
            line = sock.recv(4096)
        except (ConnectionError, TimeoutError):
            return 0
    words = line.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
