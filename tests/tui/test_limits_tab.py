"""The tabs Limits and Payloads of `dayjob top`, and the keys of a queue."""

from __future__ import annotations

import re
from pathlib import Path

from dayjob import Rate
from dayjob.tui import views
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
    screen.press("o")
    screen.wait_for("sorted by key")


def test_limits_and_payload_sizes_are_sorted(top, keys, link, call):
    limit_name(keys, link, "mail", {"smtp": Rate(10, per=60), "bulk": Rate(5, per=60)})
    call("SADD", keys.known_jobs, "mail", "scan")
    call("LPUSH", keys.queue("mail"), '{"name":"mail","id":"m1","t":1,"args":{"text":"%s"}}' % ("x" * 3000))
    call(
        "LPUSH", keys.queue("scan"), *(f'{{"name":"scan","id":"s{n}","t":1,"args":{{}}}}' for n in range(90))
    )
    screen = top("--tab", "payloads", columns=160)
    screen.wait_for("91 of 91 stored jobs read", "the largest has 2.98 KiB: mail m1 in waiting", "scan")
    assert screen.line_of("scan  ") < screen.line_of("mail  "), "the most bytes in all come first"
    screen.press("o")
    screen.wait_for("sorted by name")
    screen.settle(lambda: -1 < screen.line_of("mail  ") < screen.line_of("scan  "))
    screen.press("left")
    screen.wait_for("2 limits", "sort: name")
    screen.press("O")
    screen.wait_for("sorted by -name")
    screen.settle(lambda: -1 < screen.line_of("smtp") < screen.line_of("bulk"))


def test_the_guide_has_every_tab_in_its_order():
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "terminal.md"
    cells = re.findall(r"^\|[^|]*\| ([A-Z][\w, ]*) \|", guide.read_text("utf-8"), re.MULTILINE)
    assert [tab for cell in cells for tab in cell.split(", ")] == [one.title for one in views.tabs()]
