"""The tab Limits of `dayjob top`, and the keys of a queue."""

from __future__ import annotations

from dayjob import Rate
from keyed import fill_keys, key_name
from rates import limit_name


def test_the_limits_show_what_they_allow_and_lead_to_their_queue(top, keys, link, call):
    limit_name(keys, link, "mail", {"smtp": Rate(10, per=60)})
    call("SADD", keys.known_jobs, "mail")
    screen = top("--tab", "limits", columns=160)
    screen.wait_for("smtp", "10 per minute", "0 of 10", "now", "mail")
    screen.press("enter")
    screen.wait_for("Limits > mail", "waiting 0", gone="1 limit, ")


def test_a_queue_leads_to_its_keys(top, keys, link):
    key_name(keys, link, "scan", places=2)
    jobs = [
        (key, f'{{"name":"scan","id":"{key}-{n}","t":1,"args":{{}}}}')
        for key in ("acme", "zeta")
        for n in range(3)
    ]
    fill_keys(keys, link, "scan", *jobs)
    screen = top("--tab", "queues", columns=160)
    screen.wait_for("scan", "keys")
    screen.press("y")
    screen.wait_for("keys of scan", "2 keys by key", "acme", "zeta", "0 of 2")
