"""/metrics and /api/v1/scale: exact, escaped, computed from Redis."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest

from dayjob.admin.scale import Scale, scale_of
from dayjob.admin.scrape import Counts, Minute, Scrape, Times
from dayjob.admin.views import Pool, Queue, QueuesView, QueueView, Sizes, Status
from dayjob.store.ops.outbox import publish_outbox
from dayjob.web.durations import DurationSums
from dayjob.web.prometheus import escaped, text
from server import wait_until

SAMPLE = re.compile(
    r'([a-z_]+)\{([a-z]+="(?:[^"\\\n]|\\.)*"(?:,[a-z]+="(?:[^"\\\n]|\\.)*")*)\} (-?[0-9.e+-]+|\+Inf|NaN)'
)


def parsed(page: str) -> dict[str, float]:
    """Every sample by its name and labels; each line must be one, or a comment of the format."""
    found: dict[str, float] = {}
    typed: set[str] = set()
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in typed, f"{name} is said twice"
            typed.add(name)
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert re.sub("_(bucket|sum|count)$", "", match[1]) in typed or match[1] in typed, line
            key = f"{match[1]}{{{match[2]}}}"
            assert key not in found, key
            found[key] = float(match[3])
    return found


def scraped(console) -> dict[str, float]:
    answer = console.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(answer.text)


def test_what_waits_and_what_is_kept(console, keys, call):
    for _ in range(3):
        console.admin.enqueue("mail", {})
    console.admin.enqueue("mail", {}, delay=500)
    console.admin.pause("mail")
    console.admin.limit("mail", 4)
    call("HINCRBY", keys.totals, "done:mail", 12)
    own = f'namespace="{console.namespace}"'
    found = scraped(console)
    assert found[f'dayjob_queue_size{{{own},queue="mail"}}'] == 3
    assert found[f'dayjob_queue_oldest_seconds{{{own},queue="mail"}}'] >= 0
    assert found[f'dayjob_queue_paused{{{own},queue="mail"}}'] == 1
    assert found[f'dayjob_queue_limit{{{own},queue="mail"}}'] == 4
    assert found[f'dayjob_stored_jobs{{{own},state="scheduled"}}'] == 1
    assert found[f'dayjob_jobs_total{{{own},counter="done",job="mail"}}'] == 12
    assert found[f"dayjob_pools{{{own}}}"] == 0


def test_rows_of_an_outbox_that_were_not_sent(console, keys, link):
    own = f'namespace="{console.namespace}"'
    assert f"dayjob_outbox_unsent{{{own}}}" not in scraped(console)
    link.run(publish_outbox(keys, 3, 7.0))
    found = scraped(console)
    assert found[f"dayjob_outbox_unsent{{{own}}}"] == 3
    assert found[f"dayjob_outbox_oldest_seconds{{{own}}}"] >= 7
    assert 0 <= found[f"dayjob_outbox_silence_seconds{{{own}}}"] < 86_400


def test_what_limits_use_and_keep_back(console, keys, link):
    from dayjob.limits import Rate, Window
    from pools import fill
    from rates import RatedPool, limit_name

    rule = limit_name(keys, link, "call", {"stripe": Rate(1, per=3600, burst=2)})
    limit_name(keys, link, "visit", {"site": Window(3, per=3600)})
    fill(keys, link, "call", "1", "2", "3", "4")
    console.admin.limit("call", 7)
    own = f'namespace="{console.namespace}"'
    before = scraped(console)
    assert before[f'dayjob_limit_waiting{{{own},limit="stripe"}}'] == 0, "its burst may start"
    RatedPool(keys, link, {"call": rule}).start("call")
    found = scraped(console)
    assert found[f'dayjob_limit_used{{{own},limit="stripe"}}'] == 2
    assert found[f'dayjob_limit_most{{{own},limit="stripe"}}'] == 2
    assert found[f'dayjob_limit_waiting{{{own},limit="stripe"}}'] == 2
    assert found[f'dayjob_limit_held{{{own},limit="stripe"}}'] == 0
    assert found[f'dayjob_limit_keys_held_back{{{own},limit="stripe"}}'] == 0
    # Two wait, and each takes an hour.
    assert found[f'dayjob_limit_delay_seconds{{{own},limit="stripe"}}'] == pytest.approx(3 * 3600, rel=0.01)
    assert found[f'dayjob_queue_limit_used{{{own},queue="call"}}'] == 2
    assert found[f'dayjob_limit_delay_seconds{{{own},limit="site"}}'] == 0
    console.admin.hold_limit("site", 600)
    console.admin.lift_limit("stripe")
    lifted = scraped(console)
    assert lifted[f'dayjob_limit_held{{{own},limit="site"}}'] == 1
    assert lifted[f'dayjob_limit_delay_seconds{{{own},limit="site"}}'] == pytest.approx(600, rel=0.1)
    assert f'dayjob_limit_most{{{own},limit="stripe"}}' not in lifted
    assert lifted[f'dayjob_limit_waiting{{{own},limit="stripe"}}'] == 0


def test_a_pool_that_works_shows_in_the_histograms(console, redis_url):
    from dayjob import WorkerPool

    pool: WorkerPool = WorkerPool(concurrency=2, namespace=console.namespace, redis=redis_url)

    @pool.job
    def quick() -> None:
        pass

    own = f'namespace="{console.namespace}",job="quick"'
    before = scraped(console)
    assert f"dayjob_run_seconds_count{{{own}}}" not in before
    trips = f'dayjob_redis_round_trip_seconds_count{{namespace="{console.namespace}"}}'

    def shown() -> bool:
        found = scraped(console)
        counts = [found.get(f"dayjob_{what}_seconds_count{{{own}}}") for what in ("run", "wait")]
        return counts == [20, 20] and found.get(trips, 0) > 0

    with_pool(pool, lambda: wait_until(shown))
    found = scraped(console)
    assert found[f"dayjob_run_seconds_count{{{own}}}"] == 20
    assert found[f'dayjob_run_seconds_bucket{{{own},le="+Inf"}}'] == 20
    assert found[f"dayjob_wait_seconds_count{{{own}}}"] == 20
    assert found[trips] > 0
    buckets = [value for key, value in found.items() if key.startswith(f"dayjob_run_seconds_bucket{{{own}")]
    assert buckets == sorted(buckets)


def with_pool(pool, work) -> None:
    pool.start()
    try:
        for _ in range(20):
            pool.enqueuer.enqueue("quick")
        work()
    finally:
        pool.stop(timeout=5)
        pool.enqueuer.close()


def minute(number: int, **runs: dict[int, int]) -> Minute:
    return Minute(Counts(number), Times(runs))


def test_a_ledger_counts_each_attempt_once_however_often_it_is_scraped():
    ledger = DurationSums()
    assert ledger.since is None
    ledger.add([minute(10, a={3: 2}), minute(11, a={3: 1})])
    ledger.add([minute(10, a={3: 2}), minute(11, a={3: 1, 5: 4})])
    ledger.add([minute(11, a={3: 1, 5: 4}), minute(12, b={1: 1})])
    assert ledger.sums == {("run", "a"): {3: 3, 5: 4}, ("run", "b"): {1: 1}}
    assert ledger.since == 11


def test_a_ledger_reads_what_a_gap_left_out_and_forgets_settled_minutes():
    ledger = DurationSums()
    ledger.add([minute(10, a={3: 2})])
    ledger.add([minute(number, a={3: 1}) for number in range(10, 40)])
    # Minute 10 had 2 already and says 1 now: nothing is taken back.
    assert ledger.sums[("run", "a")] == {3: 2 + 29}
    assert ledger.since == 38


@pytest.mark.parametrize("name", ['a"b', "a\\", "a\nb", "a} 1", "\r\x00", "é\u2028", '"} 1\nfake{x="'])
def test_no_name_breaks_the_page(name):
    queue = Queue(name, 1, None, False, None, 0, False)
    view = QueueView(queue, 0, 0, 0.0)
    scrape = Scrape(0.0, QueuesView(0.0, (view,)), Sizes(0, 0, 0, 0, 0), (), {"done": {name: 1}}, ())
    ledger = DurationSums()
    ledger.add([minute(1, **{name: {1: 1}})])
    found = parsed(text(scrape, ledger, name, 0.1))
    assert not any(key.startswith("fake") for key in found)
    assert "\n" not in escaped(name)


def test_a_browser_gets_the_page_of_figures_and_prometheus_the_text(console):
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
    assert console.get("/metrics", headers={"accept": prometheus}).text.startswith("# HELP")
    assert (
        console.get("/metrics", headers={"accept": "text/html"})
        .headers["content-type"]
        .startswith("text/html")
    )


# What scales a fleet.


def queue(
    name: str,
    *,
    size: int = 0,
    age: float | None = None,
    paused: bool = False,
    limit: int | None = None,
    **more,
) -> QueueView:
    own = Queue(name, size, age, paused, limit, 0, False)
    return QueueView(own, **{"running": 0, "workers": 10, "out": 0.0, **more})


def scale(scrape: Scrape, within: float) -> Scale:
    return scale_of(scrape.queues, scrape.pools, scrape.minutes, within)


def fleet(*views: QueueView, minutes=(), concurrency: int = 10) -> Scrape:
    status = Status(
        id="p", concurrency=concurrency, names=tuple(view.queue.name for view in views), running={"a": 3}
    )
    return Scrape(
        7.0, QueuesView(7.0, views), Sizes(0, 0, 0, 0, 0), (Pool("p", 9.0, status),), {}, tuple(minutes)
    )


#: Bucket 28 ends at 1.6384 s; its middle is about 1.378 s.
SECONDS = 0.0001 * 2**14 / 2**0.25


def test_workers_wanted_follow_littles_law():
    """Ten a second of 1.378 s each keep 13.8 workers busy; sixty that wait and should be gone in 30 s take 2.8 more."""
    found = scale(fleet(queue("a", size=60, age=4.0, incoming=600.0), minutes=[minute(1, a={28: 5})]), 30.0)
    (one,) = found.queues
    assert one.run_seconds == pytest.approx(SECONDS)
    assert one.wanted == 17 == found.total.wanted
    assert (one.waiting, one.oldest, one.in_per_minute) == (60, 4.0, 600.0)
    assert (found.total.busy, found.total.capacity) == (3, 10)


def test_stuck_workers_are_no_capacity_and_each_wants_another():
    views = [queue("a", size=60, incoming=600.0, stuck=6)]
    found = fleet(*views, minutes=[minute(1, a={28: 5})])
    pool = found.pools[0]
    hung = msgspec.structs.replace(pool.status, stuck=6, running={"a": 8})
    told = scale(replace(found, pools=(replace(pool, status=hung),)), 30.0)
    assert (told.total.busy, told.total.capacity, told.total.stuck) == (2, 4, 6)
    assert (told.queues[0].capacity, told.total.wanted) == (4, 17 + 6)
    # A pool whose lease is over counts for nothing.
    gone = scale(replace(found, pools=(replace(pool, status=hung, lease=-7.0),)), 30.0)
    assert (gone.total.stuck, gone.total.capacity, gone.total.wanted) == (0, 0, 17)


def test_parts_of_workers_add_up_over_queues():
    views = [queue(name, incoming=60 * 0.4 / SECONDS) for name in ("a", "b", "c")]
    found = scale(fleet(*views, minutes=[minute(1, a={28: 1}, b={28: 1}, c={28: 1})]), 60.0)
    assert [one.wanted for one in found.queues] == [1, 1, 1]
    assert found.total.wanted == 2


def test_a_paused_queue_wants_nobody_and_a_limit_is_not_passed():
    views = [queue("a", size=10_000, paused=True), queue("b", size=10_000, limit=3)]
    found = scale(fleet(*views, minutes=[minute(1, a={28: 1}, b={28: 1})]), 60.0)
    assert [one.wanted for one in found.queues] == [0, 3]
    assert found.total.oldest is None


def test_a_queue_that_never_ran_wants_one_worker_to_find_out():
    found = scale(fleet(queue("a", size=5)), 60.0)
    assert found.queues[0].wanted is None
    assert found.total.wanted == 1
    assert scale(fleet(queue("a")), 60.0).total.wanted == 0


def test_the_figures_are_served(console):
    console.admin.enqueue("mail", {})
    found = console.api("/scale", within=30)
    assert found["within"] == 30
    assert found["total"]["waiting"] == 1
    assert found["queues"][0]["name"] == "mail"
