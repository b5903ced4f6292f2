"""Pages as a browser gets them, without a browser: what they say, what they escape, where they lead."""

from __future__ import annotations

import html
import re
import signal
from html.parser import HTMLParser

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dayjob import Admin
from dayjob.admin.client import AsyncAdmin
from dayjob.store.op import plain
from dayjob.web import WebOptions, create_app
from dayjob.web.pages import routes
from dayjob.web.pages.traces import split
from dayjob.web.render import args, brief, number, relative, share, size, took
from monitor import monitor
from server import running, wait_until
from web.conftest import RunningConsole, running_console, serving
from web.shop import HOSTILE, poison, shop

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
#: Every page; those that are about one thing, of a thing that is not there.
PAGES = [route.path for route in routes() if "{" not in route.path]
#: Pages about one thing, which the address must name.
ABOUT_ONE = ("/queue", "/job", "/pool", "/schedule", "/failure", "/source", "/batch", "/workflow")


def page(console: RunningConsole, path: str, status: int = 200, **query: object) -> str:
    answer = console.get(path, params=query or None, headers=HTML)
    assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:300]}"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def words(text: str) -> str:
    """What a reader sees of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


class Markup(HTMLParser):
    """Collects what must not be in a page: inline code, styles, addresses elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        told = dict(attributes)
        self.wrong += [f"{tag} {key}" for key in told if key.startswith("on") or key == "style"]
        if tag == "script" and "src" not in told:
            self.wrong.append("inline script")
        for key in ("href", "src", "action"):
            if told.get(key):
                self.links.append(str(told[key]))


# Every page.


def test_pages_of_an_empty_namespace_open_or_say_what_is_missing(console):
    for path in PAGES:
        text = page(console, path, 404 if path in ABOUT_ONE else 200)
        assert "<h1>" in text, path
        assert not Markup(text).wrong, path


def test_pages_stay_themselves_whatever_others_write_into_redis(console, link, keys):
    poison(link, keys)
    about_one = [{"name": bad, "id": bad, "kind": bad, "source": bad} for bad in HOSTILE]
    for path in PAGES:
        for query in about_one if path in (*ABOUT_ONE, "/enqueue") else [{}]:
            answer = console.get(path, params=query, headers=HTML)
            assert answer.status_code in (200, 404), path
            found = Markup(answer.text)
            assert not found.wrong, path
            assert "textarea" not in found.tags or path in ("/enqueue", "/broken")
            assert answer.text.count("<script") == answer.text.count("<title>") == 1, path
            assert not [link for link in found.links if not link.startswith(("/", "#"))], path


def test_a_hostile_queue_and_its_jobs_are_reached_by_the_links_to_them(console, link, keys):
    poison(link, keys)
    listing = Markup(page(console, "/queues"))
    targets = [link for link in listing.links if link.startswith("/queue?")]
    assert len(targets) == len(HOSTILE)
    for target in targets:
        of_queue = Markup(page(console, target))
        (job,) = {link for link in of_queue.links if link.startswith("/job?")}
        told = words(page(console, job))
        assert any(bad in told for bad in HOSTILE)


def test_pages_under_a_prefix_link_to_nothing_outside_of_it(redis_url, namespace):
    inner = create_app(AsyncAdmin(namespace, redis=redis_url))
    outer = Starlette(
        routes=[Mount("/ops/jobs", inner)], lifespan=lambda _: inner.router.lifespan_context(inner)
    )
    with Admin(namespace, redis=redis_url) as admin, serving(outer, mounted=inner) as (url, _):
        admin.enqueue("greet", {"name": "Ada"})
        with httpx.Client(base_url=f"{url}/ops/jobs", headers=HTML, timeout=60) as client:
            for path in PAGES:
                found = Markup(client.get(path, params={"name": "greet"}).text)
                assert len(found.links) > 15, path
                assert [link for link in found.links if not link.startswith(("/ops/jobs", "#"))] == [], path


def test_pages_are_there_while_redis_is_away_and_say_so(namespace, tmp_path):
    with running(tmp_path) as server, running_console(server.url, namespace) as console:
        server.kill()
        for path in PAGES:
            text = page(console, path)
            assert "Redis does not answer." in words(text), path
            assert 'href="/queues"' in text, path
        server.start()
        for path in PAGES:
            wait_until(lambda path=path: "Redis does not answer" not in console.get(path, headers=HTML).text)


def test_a_server_that_is_silent_is_named_in_whole_sentences(namespace, tmp_path):
    with running(tmp_path) as server, running_console(server.url, namespace) as console:
        server.process.send_signal(signal.SIGSTOP)
        told = words(page(console, "/queues"))
    where = re.escape(f"Redis at {server.url}/0")
    assert re.search(
        rf"Redis does not answer\. {where}: no answer (in time|within \d+ s)\. This page reconnects", told
    )


def test_programs_get_json_where_people_get_pages(console):
    for path in ("/queues", "/worker_pools", "/busy_workers", "/retry_jobs", "/scheduled_jobs", "/dead_jobs"):
        assert console.get(path).headers["content-type"].startswith("application/json")
        page(console, path)
    assert console.get("/metrics").headers["content-type"].startswith("text/plain")
    assert "Metrics" in page(console, "/metrics")


def test_an_unknown_address_is_said_in_a_page(console):
    assert "There is no page at this address." in words(page(console, "/nope", 404))


# What pages say.


def test_home_says_the_verdict_in_words_and_teaches_a_newcomer(console):
    text = words(page(console, "/"))
    assert f'Nothing has ever run in namespace "{console.namespace}".' in text
    assert "dayjob worker app.jobs:pool" in text


def test_home_links_what_is_wrong_to_where_it_is_mended(console):
    console.admin.enqueue("greet", {})
    console.admin.pause("greet")
    text = wait_until(
        lambda: (
            (found := page(console, "/")) and '"greet" is paused and 1 job waits' in words(found) and found
        )
    )
    assert "/queue?name=greet" in Markup(text).links


def test_a_queue_says_who_paused_it_and_what_waits(console):
    for n in range(12):
        console.admin.enqueue("greet", {"name": f"user-{n}"})
    console.admin.pause("greet")
    text = words(page(console, "/queue", name="greet"))
    assert "Paused by test" in text
    assert "user-0" in text
    assert "All 12" in text
    assert "by test" in words(page(console, "/queues", show="paused"))
    assert "No matching queue" in words(page(console, "/queues", q="nothing"))


def test_an_unknown_queue_is_said_with_one_that_is_like_it(console):
    console.admin.enqueue("send_mail", {})
    text = words(page(console, "/queue", 404, name="send_mial"))
    assert 'Cannot show "send_mial": no such queue' in text
    assert "send_mail" in text


def test_a_list_is_filtered_by_the_address_and_paged(console):
    for n in range(60):
        console.admin.enqueue("greet", {"name": f"user-{n:02}"}, delay=1000 + n, source=n % 2)
    first = page(console, "/scheduled_jobs")
    assert "50 of 60" in words(first)
    (target,) = [link for link in Markup(first).links if "after=" in link]
    assert "10 of 60" in words(page(console, target))
    assert "30 of 60" in words(page(console, "/scheduled_jobs", where="source=1"))
    assert "No match among 60 jobs" in words(page(console, "/scheduled_jobs", where="name=other"))
    assert "Unknown filter: bogus" in words(page(console, "/scheduled_jobs", 400, where="bogus=words"))


def test_an_id_in_the_filter_leads_to_the_job(console):
    console.admin.enqueue("greet", {})
    (job,) = console.admin.jobs("waiting", name="greet").jobs
    answer = console.get("/dead_jobs", params={"where": job.id}, headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/job?id={job.id}")
    assert "it is the next" in words(page(console, answer.headers["location"]))


def test_a_job_has_a_page_in_every_state(console, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        run.pool.enqueuer.enqueue("pack", boxes=8)
        wait_until(lambda: any(one.progress for one in run.admin.busy()))
        run.fail(1)
        run.pool.enqueuer.using(source="acme").enqueue("charge", order=7)
        run.pool.enqueuer.enqueue("greet", name="Ada")
        wait_until(lambda: run.admin.verdict().sizes.done and run.admin.verdict().sizes.retry)
        run.admin.enqueue("unknown_name", {"token": "hunter2"})
        run.admin.enqueue("greet", {"name": "Later"}, delay=500)

        def told(state: str, name: str | None = None) -> str:
            job = run.admin.jobs(state, name=name).jobs[0]
            return words(page(console, "/job", id=job.id, name=job.name))

        running_job = run.admin.busy()[0].worker
        text = words(page(console, "/job", id=running_job.id))
        assert "Running for" in text
        assert "packing" in text
        dead = told("dead")
        assert "OutOfStock: item 0 is out of stock" in dead
        assert "Own code (1)" in dead
        assert "dayjob enqueue order_goods --json" in dead
        assert "Attempts 1" in dead
        assert "acme" in told("retry")
        assert "Completed" in told("done")
        waiting = told("waiting", "unknown_name")
        assert "no live pool has this job" in waiting
        assert "[redacted]" in waiting
        assert "hunter2" not in waiting
        assert "Due in" in told("scheduled")
        assert "Every" in words(page(console, "/periodic")) or "At 09:00" in words(page(console, "/periodic"))


def test_the_form_for_one_like_it_leaves_hidden_arguments_to_be_filled_in(console):
    console.admin.enqueue(
        "greet", {"name": "Ada", "password": "hunter2", "deep": {"token": "x"}}, source="acme"
    )
    (job,) = console.admin.jobs("waiting", name="greet").jobs
    (target,) = [link for link in Markup(page(console, "/job", id=job.id)).links if "args=" in link]
    assert "redacted" not in target
    text = page(console, target)
    assert "Ada" in text
    assert "hunter2" not in text
    assert 'value="acme"' in text


def test_a_job_that_is_gone_is_explained(console):
    text = page(console, "/job", 404, id="gone")
    assert "it completed, was deleted, never existed" in words(text)
    assert "or is further back. The first 1,000 jobs of each queue and state were searched" in words(text)
    (further,) = [link for link in Markup(text).links if "deep=" in link]
    assert (
        "The first 10,000 jobs of each queue and state were searched, and the newest records of the history."
        in words(page(console, further, 404))
    )


def test_a_job_behind_many_is_found_by_looking_further(console, link, keys):
    link.run(plain("SADD", keys.known_jobs, "mail"))
    for n in range(8):
        jobs = (f'{{"name":"mail","id":"j{1000 * n + i}","t":1,"args":{{}}}}' for i in range(1000))
        link.run(plain("LPUSH", keys.queue("mail"), *jobs))
    text = page(console, "/job", 404, id="j4000")
    (further,) = [link for link in Markup(text).links if "deep=" in link]
    assert "4,000 ahead" in words(page(console, further))
    # Its name says where it is.
    assert "4,000 ahead" in words(page(console, "/job", id="j4000", name="mail"))


def test_failures_are_grouped_and_lead_to_their_jobs(console, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        run.fail(5)
    text = page(console, "/failures", window="24")
    assert "OutOfStock: item # is out of stock" in words(text)
    (target,) = [link for link in Markup(text).links if link.startswith("/dead_jobs?where")]
    assert "5 of 5" in words(page(console, target))
    assert "No failed job is in retry or dead" in words(page(console, "/failures", name="other"))


def test_the_form_is_made_from_the_type_hints(console, redis_url, namespace):
    with shop(redis_url, namespace):
        wait_until(console.admin.job_types)
        text = page(console, "/enqueue", name="greet", args='{"name": "Eve", "times": 3}')
    assert "Say hello to somebody." in words(text)
    for piece in (
        'data-arg="name"',
        'value="Eve"',
        'data-kind="integer"',
        'value="3"',
        '<option value="&#34;cool&#34;"',
    ):
        assert piece in text
    free = page(console, "/enqueue", name="never_heard_of")
    assert "No pool has announced the arguments of this job" in words(free)


def test_metrics_have_a_table_beside_the_chart(console, redis_url, namespace):
    with shop(redis_url, namespace) as run:
        run.fail(3)
        wait_until(lambda: sum(job.failed for job in run.admin.metrics(1).jobs) == 3)
    for hours in (1, 24, 72):
        text = page(console, "/metrics", hours=hours)
        assert 'role="img"' in text
        assert "As a table" in words(text)
        # In one row of the table, or in two if the minute ended meanwhile.
        rows = re.findall(r"0 completed, (\d+) failed", words(text))
        assert sum(map(int, rows)) == 3


def test_a_viewer_sees_everything_and_no_button_that_acts(redis_url, namespace):
    with running_console(redis_url, namespace, WebOptions(read_only=True)) as console:
        console.admin.enqueue("greet", {"name": "Ada"}, delay=500)
        console.admin.enqueue("greet", {"name": "Ada"})
        for path in PAGES:
            text = console.get(path, params={"name": "greet"}, headers=HTML).text
            assert not re.search(r"data-(post|verb|every|some|pick|repair|limit|stack)[=> ]", text), path
        assert "You may look, not act" in words(page(console, "/enqueue"))


# The files that pages load.


def test_static_files_are_kept_for_ever_under_the_mark_that_pages_ask_with(console):
    found = Markup(page(console, "/"))
    for link in (one for one in found.links if one.startswith("/static/")):
        answer = console.get(link)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert console.get("/static/dayjob.css?v=old").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["../app.py", "..%2Fapp.py", "%2e%2e/render.py", "dayjob.css/..", "", "base.html"]
)
def test_nothing_but_the_static_files_can_be_asked_for(console, name):
    assert console.get(f"/static/{name}").status_code == 404


# What it costs.


def fill(link, keys, count: int) -> None:
    for first in range(0, count, 500):
        flat: list[object] = []
        for n in range(first, first + 500):
            told = f'{{"name":"mail","id":"j{n}","t":1700000000,"args":{{"n":{n}}},"fails":3,"err":"Timeout: {n} s","failed_at":1700000000}}'
            flat += [1_700_000_000 + n, told]
        for place in (keys.dead, keys.retry, keys.scheduled):
            link.run(plain("ZADD", place, *flat))
        link.run(plain("LPUSH", keys.queue("mail"), *flat[1::2]))
    link.run(plain("SADD", keys.known_jobs, "mail"))


def test_pages_do_not_grow_with_the_jobs(console, link, keys, server):
    """What a page costs is what it asks for: `make bench-pages` has the times."""
    fill(link, keys, 20_000)
    for path in PAGES:
        if path in ABOUT_ONE:
            continue
        with monitor(server.port, link) as heard:
            text = page(console, path)
        own = [words for words in heard.by_clients if any(keys.prefix.encode() in word for word in words)]
        assert len(own) < 150, path
        assert len(text) < 300_000, path


def test_a_filter_over_all_queues_says_when_it_has_not_seen_all(console, link, keys):
    fill(link, keys, 6000)
    text = words(page(console, "/jobs", where="error~nothing"))
    assert "No match among the first 3,000 jobs" in text
    for name in ("", "mail"):
        first = page(console, "/jobs", where="error~nothing", name=name)
        (target,) = [link for link in Markup(first).links if "after=" in link]
        assert "No more jobs" in words(page(console, target))


def test_the_waiting_jobs_of_all_queues_are_paged_to_the_last(console):
    for n in range(120):
        console.admin.enqueue(f"send_{n // 4:02}")
    target, found = "/jobs?where=name~send", []
    while target:
        text = page(console, target)
        found += re.findall(r'data-key="(\w+)', text)
        target = next((link for link in Markup(text).links if "after=" in link), "")
    assert (len(found), len(set(found))) == (120, 120)
    assert "20 of 120, 20 searched" in words(text)


@pytest.mark.parametrize("path", ["/jobs", "/dead_jobs", "/retry_jobs", "/scheduled_jobs"])
def test_a_filter_that_cannot_be_read_shows_its_error_and_claims_nothing(console, link, keys, path):
    fill(link, keys, 5)
    text = words(page(console, path, 400, where="foo=bar"))
    assert "Unknown filter: foo" in text
    assert "No jobs are shown" in text
    for claim in ("No job is dead", "No job waits", "Nothing is scheduled"):
        assert claim not in text


def test_metrics_show_the_busiest_of_many_jobs_and_any_other_by_its_name(console, link, keys):
    minute = int(console.admin.verdict().now // 60)
    figures = [part for n in range(130) for part in (f"job{n:03}|r5", n + 1)]
    link.run(plain("HSET", keys.minute(minute), *figures))
    text = page(console, "/metrics")
    assert "1–100 of 130 Next page" in words(text)
    assert text.count('data-key="job') == 100
    assert 'data-key="job129"' in text
    assert 'data-key="job029"' not in text
    one = page(console, "/metrics", name="job029")
    assert one.count('data-key="job') == 1
    assert "30 completed, 0 failed" in words(one)
    assert "of 130" not in words(one)


def test_of_many_busy_workers_the_longest_are_shown(console, link, keys):
    now = console.admin.verdict().now
    workers = [
        {"token": f"{n}:mail", "name": "mail", "id": f"id{n:03}", "started_at": now - n} for n in range(250)
    ]
    status = {"id": "p", "host": "h", "concurrency": 250, "running": {"mail": 250}, "workers": workers}
    link.run(plain("SET", keys.pool("p"), msgspec.json.encode(status)))
    link.run(plain("ZADD", keys.pools, int((now + 60) * 1000), "p"))
    text = page(console, "/busy_workers")
    assert "1–200 Next page" in words(text)
    assert "id249" in text
    assert "id049" not in text
    assert len(console.admin.busy()) == 250
    assert [one.worker.id for one in console.admin.busy(pool_id="p", most=2)] == ["id249", "id248"]
    assert console.admin.busy(pool_id="q") == ()


# Words.


def test_numbers_are_written_for_people():
    assert [number(n) for n in (None, 0, 999, 1234567, 12.34, 1234.5)] == [
        "–",
        "0",
        "999",
        "1,234,567",
        "12.3",
        "1,234",
    ]
    assert [took(n) for n in (None, 0.0123, 1.5, 90)] == ["–", "12 ms", "1.5 s", "90 s"]
    shares = [share(*n) for n in ((0, 0), (1, 2), (1, 30), (1, 10_000))]
    assert shares == ["0%", "50%", "3.3%", "<0.1%"]
    assert [size(n) for n in (0, 512, 5 * 1024**2, 3 * 1024**4)] == ["–", "512 B", "5 MiB", "3072 GiB"]


def test_moments_are_written_for_people():
    assert [relative(n) for n in (0.4, 5, -5, -7000, 200_000)] == [
        "now",
        "in 5 s",
        "5 s ago",
        "117 min ago",
        "in 2 days",
    ]
    assert brief(-3) == "0 s"


def test_arguments_are_escaped_on_their_line():
    assert args({"a<b": '"><i>'}) == "a&lt;b=<b>&#34;&gt;&lt;i&gt;</b>"
    assert args(None) == ""


def test_a_traceback_is_split_into_own_code_and_libraries():
    text = (
        'Traceback (most recent call last):\n  File "/usr/lib/python3.11/socket.py", line 1, in a\n    x\n'
        '  File "/app/jobs.py", line 2, in b\n    y\n    ^^^\nValueError: no\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "C:\\app\\v\\site-packages\\z.py", line 3, in c\nKeyError: 1\n'
    )
    found = split(text)
    assert (found.own, found.all) == (1, 3)
    assert [kind for kind, part in found.parts if "File" in part] == ["lib", "own-frame", "lib"]
    assert "\n".join(part for _, part in found.parts) == text.strip("\n")
    assert split("  ") is None
