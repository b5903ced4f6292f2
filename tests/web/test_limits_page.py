"""The page of rate limits and its API."""

from __future__ import annotations

import re

from dayjob import Rate
from keyed import fill_keys, key_name
from rates import limit_name

HTML = {"accept": "text/html"}


def test_the_page_shows_every_limit_with_what_can_be_done(console, keys, link):
    empty = console.get("/limits", headers=HTML)
    assert (empty.status_code, "No job type has a rate limit" in empty.text) == (200, True)
    limit_name(keys, link, "mail", {"smtp": Rate(10, per=60)})
    text = console.get("/limits", headers=HTML).text
    assert "10 per minute" in text
    assert re.findall(r'data-post="([^"]*)"', text) == ["/limit/hold", "/limit/reset", "/limit/lift"]
    assert console.post("/api/v1/limit/set", {"name": "smtp", "n": 20}).status_code == 200
    text = console.get("/limits", headers=HTML).text
    assert "the code declares 10 per minute" in text
    assert "/limit/restore" in text


def test_the_api_changes_a_limit_and_refuses_what_does_not_exist(console, keys, link):
    limit_name(keys, link, "mail", {"smtp": Rate(10, per=60)})
    assert [(one["name"], one["allows"]) for one in console.api("/limits")] == [("smtp", "10 per minute")]
    for path, body in (("hold", {"seconds": 5}), ("reset", {}), ("lift", {}), ("restore", {})):
        answer = console.post(f"/api/v1/limit/{path}", {"name": "smtp", **body})
        assert (answer.status_code, answer.json()["subject"]) == (200, "limit smtp"), answer.text
    assert console.post("/api/v1/limit/hold", {"name": "smtp", "seconds": -1}).status_code == 400
    assert console.post("/api/v1/limit/reset", {"name": "other"}).status_code == 404


def test_the_page_of_a_queue_shows_its_keys_the_largest_first(console, keys, link, call):
    key_name(keys, link, "mail", places=2)
    call("SADD", keys.known_jobs, "mail")
    jobs = [("acme", f'{{"name":"mail","id":"a{n}","t":1,"args":{{}}}}') for n in range(3)]
    fill_keys(keys, link, "mail", *jobs, ("zeta", '{"name":"mail","id":"z1","t":1,"args":{}}'))
    console.admin.pause_key("mail", "zeta")
    page = console.get("/queue", params={"name": "mail"}, headers=HTML)
    assert page.status_code == 200, page.text
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.text.partition("<h2>Keys</h2>")[2]))
    assert "2 keys by key, " in text
    assert re.search(r"acme .*?3 75% .*? 0 of 2 1 .*?zeta paused 1 25%", text)


def test_what_runs_of_a_key_is_not_claimed_where_it_is_not_counted(console, keys, link, call):
    key_name(keys, link, "mail")
    call("SADD", keys.known_jobs, "mail")
    fill_keys(keys, link, "mail", ("acme", '{"name":"mail","id":"a1","t":1,"args":{}}'))
    page = console.get("/queue", params={"name": "mail"}, headers=HTML).text
    assert re.search(r'data-l="Running">\s*&ndash;', page.partition("<h2>Keys</h2>")[2])
    assert console.api("/queue/keys", name="mail")["keys"][0]["running"] is None
    console.admin.limit_key("mail", "acme", 2)
    assert console.api("/queue/keys", name="mail")["keys"][0]["running"] == 0
