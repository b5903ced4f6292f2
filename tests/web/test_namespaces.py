"""One console for several namespaces: a switch on every page, and each namespace at its own address."""

from __future__ import annotations

import re
import secrets

import httpx
import pytest

from dayjob import Admin, BadOption
from dayjob.admin.client import AsyncAdmin
from dayjob.web import WebOptions, create_app
from dayjob.web.pages.shell import NAV
from web.conftest import serving
from web.test_web_command import web

HTML = {"accept": "text/html"}
SWITCH = re.compile(r'<li><a href="([^"]*)"( aria-current="true")?>([^<]*)</a></li>')


@pytest.fixture
def other(redis_url):
    """Another namespace, with a job that waits."""
    name = f"other-{secrets.token_hex(4)}"
    with Admin(name, redis=redis_url, actor="test") as admin:
        admin.enqueue("invoice", {}, check=False)
        yield name
        admin.purge("invoice")


@pytest.mark.parametrize("base", ["", "/ops/jobs"])
def test_pages_switch_between_the_namespaces(redis_url, namespace, other, base):
    app = create_app(
        AsyncAdmin(namespace, redis=redis_url), options=WebOptions(base_path=base), others=[AsyncAdmin(other, redis=redis_url)]
    )  # fmt: skip
    with serving(app) as (url, _), httpx.Client(base_url=url + base, headers=HTML, timeout=60) as client:
        first, second = client.get("/queues").text, client.get(f"/ns/{other}/queues").text
        here, there = f"{base}/", f"{base}/ns/{other}/"
        assert SWITCH.findall(first) == [(here, ' aria-current="true"', namespace), (there, "", other)]
        assert SWITCH.findall(second) == [(here, "", namespace), (there, ' aria-current="true"', other)]
        assert "invoice" not in first
        assert f'href="{base}/ns/{other}/queue?name=invoice"' in second
        # Its links and its API stay in its namespace.
        assert client.get(f"/ns/{other}/queue", params={"name": "invoice"}).status_code == 200
        found = client.get(f"/ns/{other}/api/v1/queues", headers={"accept": "application/json"}).json()
        assert [one["queue"]["name"] for one in found["queues"]] == ["invoice"]
        assert client.get("/ns/nowhere/queues").status_code == 404


def test_one_namespace_has_no_switch(console):
    assert 'class="spaces"' not in console.get("/", headers=HTML).text


def test_the_password_and_the_rights_are_those_of_the_console(redis_url, namespace, other):
    options = WebOptions(password="secret", read_only=True)
    app = create_app(
        AsyncAdmin(namespace, redis=redis_url), options=options, others=[AsyncAdmin(other, redis=redis_url)]
    )
    with serving(app) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        assert client.get(f"/ns/{other}/queues").status_code == 401
        post = client.post(
            f"/ns/{other}/api/v1/queue/pause", json={"name": "invoice"}, auth=("ada", "secret")
        )
        assert post.status_code == 403
        answer = client.get(f"/ns/{other}/queues", auth=("ada", "secret"))
        assert (answer.status_code, answer.headers.get_list("x-frame-options")) == (200, ["DENY"])


@pytest.mark.parametrize("names", [("a", "a"), ("shop", "b"), ("a/b",), ("{a}",), ("",)])
def test_a_namespace_that_cannot_be_served_is_refused(redis_url, names):
    others = [AsyncAdmin(name, redis=redis_url) for name in names]
    with pytest.raises(BadOption, match="namespace"):
        create_app(AsyncAdmin("shop", redis=redis_url), others=others)


def test_the_command_serves_further_namespaces_and_stops_with_open_pages(redis_url, namespace, other):
    with web("--redis", redis_url, "--namespace", namespace, "--also", other, "--port", "0") as command:
        assert other in httpx.get(command.url + "/", headers=HTML, timeout=60).text
        with httpx.stream("GET", f"{command.url}/ns/{other}/events", timeout=60) as events:
            next(events.iter_lines())
            assert command.end()[0] == 0


def test_no_two_pages_have_the_same_key():
    keys = [key for group in NAV for _, _, _, key, _ in group]
    assert len(keys) == len(set(keys))
