"""What operators read from the history: pages, filters, the slowest, counts over time, sources, and finished jobs."""

from __future__ import annotations

import json
import random
import time

import pytest
from click.testing import CliRunner

from dayjob.admin.client import Admin
from dayjob.admin.history import MAX_SEARCHED
from dayjob.cli import cli
from dayjob.errors import BadOption
from dayjob.store.ops.history import StoredRecord
from records import write_records
from server import wait_until

NOW = 1_800_000_000.0


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="test", show_unannounced=True) as found:
        yield found


@pytest.fixture
def write(keys, link, announce):
    """Add a record: write("mail", "id1", "retried", ended=NOW)."""
    seen = set()

    def add(name, job_id, ending="completed", *, ended=NOW, place="", **fields):
        place = place or f"{int(ended * 1000) + 500}-*"
        if name not in seen:
            announce(name)
            seen.add(name)
        write_records(
            link, keys, name, StoredRecord(job_id, ending, int(ended * 1000), **fields), place=place
        )

    return add


@pytest.fixture
def run(redis_url, namespace):
    def invoke(*args):
        answer = CliRunner().invoke(cli, [*args, "--redis", redis_url, "--namespace", namespace])
        assert answer.exit_code == 0, answer.output
        return answer.output

    return invoke


def ids(page):
    return [one.id for one in page.records]


def all_pages(admin, **options):
    """The ids of all pages, and the number of pages."""
    found, after, pages = [], "", 0
    while True:
        page = admin.history(**options, after=after)
        found += ids(page)
        pages += 1
        if not page.next:
            return found, pages
        after = page.next


def test_the_newest_attempts_of_all_names_come_first(admin, write):
    write("a", "1", place="1000-0")
    write("b", "2", "retried", place="1001-0")
    write("a", "3", "dead", place="1002-0")
    write("b", "4", place="1003-0")
    page = admin.history()
    assert ids(page) == ["4", "3", "2", "1"]
    assert [one.name for one in page.records] == ["b", "a", "b", "a"]
    assert (page.next, page.searched, page.sample_rate) == ("", 4, 1.0)
    assert ids(admin.history("a")) == ["3", "1"]


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_have_each_attempt_once_and_in_order_even_if_they_were_written_at_the_same_moment(
    admin, write, limit
):
    chance = random.Random(4)
    moments = sorted(chance.choices(range(1000, 1040), k=120))
    expected = []
    used = {}
    for number, moment in enumerate(moments):
        name, ending = chance.choice("abc"), chance.choice(["completed", "retried"])
        used[name, ending, moment] = used.get((name, ending, moment), -1) + 1
        write(name, str(number), ending, place=f"{moment}-{used[name, ending, moment]}")
        expected.append(str(number))
    found, pages = all_pages(admin, limit=limit)
    assert sorted(found) == sorted(expected)
    assert [moments[int(one)] for one in found] == sorted(moments, reverse=True)
    assert pages == -(-120 // limit)


def test_filters_choose_by_outcome_source_pool_and_time(admin, write):
    write("a", "1", ended=NOW, source="acme", pool="p1")
    write("a", "2", "retried", ended=NOW + 10, source="acme", pool="p2", error="Boom")
    write("a", "3", "dead", ended=NOW + 20, source=7, pool="p1")
    write("a", "4", "cancelled", ended=NOW + 30)
    # A record that only looks as if it had the source.
    write("a", "acme", ended=NOW + 40)
    assert ids(admin.history(outcome="failed")) == ["3", "2"]
    assert ids(admin.history(outcome="cancelled")) == ["4"]
    assert ids(admin.history(outcome="completed")) == ["acme", "1"]
    assert sorted(ids(admin.history(source="acme"))) == ["1", "2"]
    assert ids(admin.history(source="7")) == ["3"]
    assert sorted(ids(admin.history(pool="p1"))) == ["1", "3"]
    with pytest.raises(BadOption, match="Did you mean 'retried'"):
        admin.history(outcome="retrid")
    with pytest.raises(BadOption, match="not a cursor"):
        admin.history(after="x")


def test_a_span_has_the_attempts_that_ended_in_it(admin, write):
    for number in range(20):
        written = int((NOW + number) * 1000) + 900
        write("a", str(number), ended=NOW + number, place=f"{written}-0")
    assert ids(admin.history(since=NOW + 5, until=NOW + 8)) == ["7", "6", "5"]


def test_a_filter_that_finds_little_answers_with_what_was_searched_and_a_way_on(admin, write, keys, link):
    write("a", "rare", source="acme", place="1-0")
    for number in range(MAX_SEARCHED + 1500):
        if number % 500 == 0:
            write("a", "many", place=f"{number + 2}-0")
        else:
            write_records(link, keys, "a", StoredRecord("many", "completed", 5), place=f"{number + 2}-0")
    page = admin.history(source="acme")
    assert ids(page) == []
    assert page.searched >= MAX_SEARCHED
    assert page.next
    page = admin.history(source="acme", after=page.next)
    assert (ids(page), page.next) == (["rare"], "")


def test_the_slowest_attempts_come_first_over_all_names(admin, write):
    for number, seconds in enumerate([0.2, 30, 0.001, 5, 90]):
        write("ab"[number % 2], str(number), ran=int(seconds * 1e6))
    write("a", "crash", "crashed")
    page = admin.history(sort="-ran", limit=3)
    assert [(one.id, one.ran) for one in page.records] == [("4", 90), ("1", 30), ("3", 5)]
    assert not page.partial
    assert ids(admin.history("a", sort="-ran")) == ["4", "0", "2"]


def test_counts_over_time_weigh_the_records_of_a_sample(admin, write):
    write("a", "1", ended=NOW + 1, weight=10.0)
    write("a", "2", "retried", ended=NOW + 1)
    write("b", "3", "snoozed", ended=NOW + 35)
    found = admin.history_counts(since=NOW, until=NOW + 40, steps=4)
    assert (found.step, found.ended, found.failed) == (10, (11, 0, 0, 1), (1, 0, 0, 0))
    assert found.starts == (NOW, NOW + 10, NOW + 20, NOW + 30)
    assert (found.searched, found.partial) == (3, False)
    assert admin.history_counts("b", since=NOW, until=NOW + 40, steps=1).ended == (1,)
    with pytest.raises(BadOption, match="since must be before until"):
        admin.history_counts(since=NOW, until=NOW)


def test_sources_show_attempts_failures_and_time_used(admin, write):
    now = time.time()
    write("a", "1", ended=now, source="acme", ran=2_000_000, waited=1_000_000, weight=3.0)
    write("b", "2", "retried", ended=now, source="acme", ran=500_000, waited=0)
    write("b", "3", ended=now - 100_000, source="old", ran=10_000_000)
    write("b", "4", ended=now, source=7, ran=10_000_000)
    write("b", "5", ended=now, ran=10_000_000)
    seven, acme = admin.sources().sources
    assert (seven.source, seven.attempts, seven.worked, seven.waited) == ("7", 1, 10, None)
    assert (acme.source, acme.attempts, acme.failed, acme.worked, acme.waited) == ("acme", 4, 1, 6.5, 0.75)
    assert acme.names == ("a", "b")
    assert [one.source for one in admin.sources(source="acme").sources] == ["acme"]


def test_a_finished_job_is_found_with_its_attempts(admin, run, new_pool):
    pool = new_pool(concurrency=1)

    @pool.job(backoff=0.0)
    def flaky(n: int) -> None:
        if not tries:
            tries.append(n)
            raise KeyError(n)

    tries: list[int] = []
    job = flaky.using(source="acme").enqueue(n=1)
    other = flaky.enqueue(n=2)
    with pool:
        wait_until(lambda: len(admin.history("flaky").records) == 3)
    for name in (None, "flaky"):
        detail = admin.job(job.id, name=name)
        assert detail is not None
        assert (detail.job.state, detail.job.name, detail.kind) == ("finished", "flaky", "finished")
        assert [(one.attempt, one.outcome, one.error) for one in detail.attempts] == [
            (1, "retried", "KeyError"),
            (2, "completed", ""),
        ]
        assert detail.sentence.startswith("Completed ")
        assert [event.kind for event in detail.timeline] == [
            "enqueued",
            "started",
            "failed",
            "started",
            "ended",
        ]
    assert len(admin.job(other.id).attempts) == 1
    assert admin.explain(job.id).startswith("Completed ")
    assert admin.job("nothing") is None
    shown = run("jobs", "show", job.id)
    assert "finished" in shown
    assert "KeyError" in shown
    assert json.loads(run("jobs", "show", job.id, "--json"))["attempts"][0]["outcome"] == "retried"


def test_a_job_that_is_stored_shows_the_attempts_that_it_has_had(admin, new_pool):
    pool = new_pool(concurrency=1)

    @pool.job(backoff=300.0)
    def fails() -> None:
        raise ValueError("no")

    job = fails.enqueue()
    with pool:
        wait_until(lambda: admin.jobs("retry").total == 1)
    detail = admin.job(job.id)
    assert (detail.job.state, [one.outcome for one in detail.attempts]) == ("retry", ["retried"])


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("cancelled", "Cancelled by an operator"),
        ("discarded", "Discarded"),
        ("dropped", "Dropped after its last failure"),
        ("retried", "No longer stored. Its last recorded attempt (1)"),
    ],
)
def test_the_end_of_a_job_is_put_into_words(admin, write, ending, words):
    write("a", "1", ending, ended=time.time())
    assert admin.job("1").sentence.startswith(words)


def test_the_commands_list_attempts_and_sources(write, run):
    now = time.time()
    write("mail", "id1", "retried", ended=now - 30, source="acme", error="Boom", ran=1_500_000, waited=10_000)
    write("mail", "id2", ended=now - 7200, weight=20.0)
    listed = run("history", "ls", "--since", "1h")
    assert "Boom" in listed
    assert "id2" not in listed
    assert "about 5.0% of the attempts" in run("history", "ls", "--outcome", "completed")
    slowest = json.loads(run("history", "ls", "--sort", "-ran", "--name", "mail", "--json"))
    assert [one["id"] for one in slowest["records"]] == ["id1"]
    assert "No attempt matches" in run("history", "ls", "--source", "other")
    clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(now - 60))
    assert "id1" in run("history", "ls", "--since", clock)
    listed = run("sources", "ls")
    assert "acme" in listed
    assert json.loads(run("sources", "ls", "--json"))["sources"][0]["failed"] == 1


def test_without_a_source_or_a_record_the_commands_say_so(run):
    assert "No attempt matches (0 records searched)." in run("history", "ls")
    assert "No job with a source has run." in run("sources", "ls")


def test_a_history_of_a_wrong_type_hides_no_other_name(admin, write, call, keys):
    write("a", "1")
    write("b", "2")
    call("DEL", keys.history("b"))
    call("SET", keys.history("b"), "wrong")
    assert ids(admin.history()) == ["1"]


def test_an_unreadable_record_hides_no_other(admin, write, call, keys):
    write("a", "1")
    call("XADD", keys.history("a"), "*", "r", "not a record")
    write("a", "3")
    assert ids(admin.history()) == ["3", "1"]


def test_attempts_that_run_are_counted_for_their_source(admin, call, keys):
    worker = {"name": "a", "source": "acme"}
    call("ZADD", keys.pools, 4e12, "p1")
    call("SET", keys.pool("p1"), json.dumps({"id": "p1", "workers": [worker, worker, {"name": "a"}]}))
    (acme,) = admin.sources().sources
    assert (acme.source, acme.running, acme.attempts) == ("acme", 2, 0)
