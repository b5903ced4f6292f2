"""What happened: each question has one answer on the page, in the API, the command and the terminal."""

from __future__ import annotations

import json

import pytest

from dayjob import WorkerPool
from dayjob.handlers.describe import Described
from dayjob.outcome import Died, Reaped
from dayjob.store.link import walk
from dayjob.store.ops import job_types, maintain, membership, operate, produce
from dayjob.store.ops.consume import Entry
from pools import fill
from server import wait_until

#: Programs are started in these; on a busy machine that alone may take long.
pytestmark = pytest.mark.timeout(300)

ABOUT = b'{"host":"web-3","pid":4711,"tag":"v42","dayjob":"1","python":"3"}'


@pytest.fixture
def join(keys, link):
    def joined(pool_id, about=ABOUT, names=("mail",)):
        assert link.run(membership.join(keys, pool_id, names, lease=60.0, term=3.0, about=about)).registered
        link.run(membership.status(keys, pool_id, b'{"id":"%b",%b' % (pool_id.encode(), about[1:])))

    return joined


def test_what_died_with_that_machine_and_what_became_of_its_jobs(faces, join, keys, link, call):
    join("p1")
    for job_id in ("id1", "id2"):
        call(
            "HSET",
            keys.held("p1"),
            f"{job_id[-1]}:mail",
            f'{{"name":"mail","id":"{job_id}","t":1,"args":{{}}}}',
        )
    link.run(membership.set_cause(keys, "p1", "", "it used 900 MiB"))
    link.run(maintain.condemn(keys, lease=60.0, proven=["p1"], judge=False))
    link.run(
        maintain.sweep(
            keys, "p1",
            [
                Entry("mail", "2:mail", Reaped(), b"2", "id2"),
                Entry("mail", "1:mail", Died(counts_failure=False), b'{"name":"mail","id":"id1","t":1,"args":{}}', "id1"),
            ],
        )
    )  # fmt: skip
    sentence = (
        "Pool web-3/4711 (v42) died: it used 900 MiB. It held 2 jobs: 1 back in its queue, 1 moved to dead."
    )
    (found,) = faces.api("/events", kind="died", pool="web-3")["events"]
    assert found["text"] == sentence
    jobs = [("id2", "mail", "reaped"), ("id1", "mail", "died")]
    assert [(one["id"], one["name"], one["became"]) for one in found["jobs"]] == jobs
    shown = faces.page("/timeline", kind="died", pool="web-3", hours=1)
    assert sentence in shown
    assert "mail id2 : back in its queue" in shown
    assert "mail id1 : moved to dead" in shown
    printed = faces.run("events", "ls", "--kind", "died", "--pool", "web-3", "--since", "1h")
    assert sentence in printed
    assert "mail id2: back in its queue\nmail id1: moved to dead" in printed
    assert faces.run_json("events", "ls", "--kind", "died")["events"] == [found]
    screen = faces.top("timeline")
    screen.wait_for("died", sentence)


def test_who_paused_a_queue_and_since_when(faces, admin, call, keys):
    call("SADD", keys.known_jobs, "mail")
    admin.acting("ada").pause("mail")
    sentence = 'Queue "mail" was paused by ada.'
    (found,) = faces.api("/events", kind="pause", name="mail")["events"]
    assert (found["text"], found["actor"], found["after"]) == (sentence, "ada", "paused")
    assert abs(found["at"] - faces.api("/queue", name="mail")["paused_at"]) < 60
    assert sentence in faces.page("/timeline", name="mail")
    assert sentence in faces.run("events", "ls", "--name", "mail")
    assert "paused by ada" in faces.run("queues", "show", "mail")
    faces.top("timeline").wait_for(sentence)


def test_what_a_deploy_changed_and_which_pool_runs_which_version(faces, join, keys, link):
    join("p1", ABOUT.replace(b"v42", b"v41"))
    link.run(job_types.announce(keys, [Described("mail")], pool_id="p1", tag="v41"))
    join("p2")
    new = [Described("mail", doc="new"), Described("invoice")]
    link.run(job_types.announce(keys, new, pool_id="p2", tag="v42"))
    sentence = 'Version "v42" was deployed after "v41": 1 new job type (invoice), 1 changed job type (mail).'
    newest, first = faces.api("/events", kind="deploy")["events"]
    assert newest["text"] == sentence
    assert (newest["before"], newest["after"], newest["added"], newest["changed"]) == (
        "v41",
        "v42",
        ["invoice"],
        ["mail"],
    )
    assert first["added"] == ["mail"]
    assert sentence in faces.page("/timeline", kind="deploy")
    assert sentence in faces.run("events", "ls", "--kind", "deploy")
    tags = {pool["id"]: pool["status"]["tag"] for pool in faces.api("/pools")["pools"]}
    assert tags == {"p1": "v41", "p2": "v42"}
    for text in (faces.page("/worker_pools"), faces.run("pools", "ls")):
        assert "v41" in text
        assert "v42" in text


def test_whether_a_schedule_fired_and_when_a_tick_was_missed(faces, keys, link, call):
    call("HSET", keys.periodic, "nightly", 1_700_000_000)
    tick = 1_700_086_400
    link.run(produce.tick(keys, "nightly", "mail", seen=1_700_000_000, newest=tick, jobs=[(tick, b"x")]))
    link.run(produce.tick(keys, "nightly", "mail", seen=tick, newest=tick + 172_800, missed=2))
    missed, fired = faces.api("/events", kind="tick", name="nightly")["events"]
    assert (fired["after"], fired["count"], fired["first_at"], fired["last_at"]) == ("fired", 1, tick, tick)
    assert (missed["after"], missed["count"], missed["last_at"]) == ("missed", 2, tick + 172_800)
    for text in (faces.page("/timeline", kind="tick"), faces.run("events", "ls", "--kind", "tick")):
        assert 'Schedule "nightly" fired.' in text
        assert 'Schedule "nightly" missed 2 ticks.' in text


def test_when_the_leader_changed(faces, join, keys, link):
    join("p1")
    join("p2", ABOUT.replace(b"4711", b"4712"))
    link.run(membership.leave(keys, "p1"))
    link.run(membership.lead(keys, "p2", term=3.0))
    sentence = "Pool web-3/4712 (v42) became the leader, after pool p1."
    newest, first = faces.api("/events", kind="leader")["events"]
    assert newest["text"] == sentence
    assert first["pool"] == newest["before"] == "p1"
    assert sentence in faces.page("/timeline", kind="leader")
    assert sentence in faces.run("events", "ls", "--kind", "leader")


def test_a_quiet_pool_is_resumed_and_runs_jobs_again(faces, new_pool, look, admin):
    pool: WorkerPool = new_pool(beat=0.2, lease=5.0)
    pool.register("mail", lambda: None)
    pool.start()
    (pool_id,) = look.pools()
    faces.run("pools", "quiet", pool_id, "--wait")
    assert admin.pools().pools[0].status.quiet
    assert "Resume" in faces.page("/worker_pools")
    pool.enqueuer.enqueue("mail")
    assert "It fetches jobs again" in faces.run("pools", "resume", pool_id)
    wait_until(lambda: look.total("done:mail") == 1)
    wait_until(lambda: not admin.pools().pools[0].status.quiet)
    # The request is gone, so that the pool can be made quiet again.
    pool._runtime.quiet()
    wait_until(lambda: admin.pools().pools[0].status.quiet)
    assert faces.console.post("/api/v1/pool/resume", {"pool": pool_id}).status_code == 200
    wait_until(lambda: not admin.pools().pools[0].status.quiet)


def test_quiet_that_waits_in_vain_exits_with_1_and_says_what_is_left(faces, keys, link, join, call):
    join("p1")
    call("SET", keys.pool("p1"), '{"id":"p1","quiet":true,"held":2,"concurrency":2,"running":{"mail":2}}')
    text = faces.run("pools", "quiet", "p1", "--wait", "--timeout", "1s", code=1)
    assert "1 pool with 2 running jobs left" in text


def test_queues_are_paused_and_resumed_by_pattern_and_all_at_once(faces, keys, link, admin):
    for name in ("mail.welcome", "mail.bill", "export"):
        fill(keys, link, name, "{}")

    def paused():
        return {one.queue.name for one in admin.queues().queues if one.queue.paused}

    faces.run("queues", "pause", "mail.*")
    assert paused() == {"mail.welcome", "mail.bill"}
    faces.run("queues", "pause", "--all")
    assert paused() == {"mail.welcome", "mail.bill", "export"}
    assert "No queue had to be changed." in faces.run("queues", "pause", "--all")
    answer = faces.console.post("/api/v1/queues/resume", {"pattern": "mail.*"})
    assert [one["kind"] for one in answer.json()] == ["done", "done"]
    assert paused() == {"export"}
    assert "no queue matches 'nosuch*'" in faces.run("queues", "resume", "nosuch*", code=2)
    assert "which queues?" in faces.run("queues", "resume", code=2)
    assert faces.console.post("/api/v1/queues/pause", {"pattern": "nosuch*"}).status_code == 404


def test_a_schedule_that_is_paused_is_on_the_timeline(faces, keys, link, call):
    call("HSET", keys.periodic, "nightly", 1)
    link.run(operate.pause_schedule(keys, "nightly", actor="ada"))
    walk(link, operate.resume(keys, "other"))
    assert 'Schedule "nightly" was paused by ada.' in faces.run("events", "ls", "--actor", "ada")


def test_follow_prints_events_as_they_happen(faces, admin):
    admin.pause("mail", force=True)
    following = faces.start("events", "ls", "--follow", "--json", "--kind", "pause", "--since", "1h")
    try:
        assert json.loads(following.stdout.readline())["text"] == 'Queue "mail" was paused by test.'
        admin.resume("mail")
        assert json.loads(following.stdout.readline())["text"] == 'Queue "mail" was resumed by test.'
    finally:
        following.terminate()
        following.communicate(timeout=60)


def test_times_of_the_command_are_spans_or_moments(faces, admin):
    admin.pause("mail", force=True)
    assert "mail" in faces.run("events", "ls", "--since", "1970-01-02 00:00")
    assert faces.run("events", "ls", "--until", "1970-01-02 00:00") == "No event matches."
    assert "--since 'soon': write a span" in faces.run("events", "ls", "--since", "soon", code=2)


@pytest.mark.parametrize("path", ["/", "/metrics", "/queue", "/worker_pools", "/redis", "/history"])
def test_charts_mark_deploys_deaths_pauses_and_restarts(faces, join, keys, link, admin, call, path):
    join("p1")
    link.run(job_types.announce(keys, [Described("mail")], pool_id="p1", tag="v41"))
    link.run(maintain.condemn(keys, lease=60.0, proven=["p1"], judge=False))
    link.run(maintain.check_server(keys, "00ff"))
    admin.pause("mail")
    admin.pause("export", force=True)
    for kind in ("deploy", "died", "redis", "pause"):
        # Five minutes ago, since some charts end with the last full minute.
        lines = [line.split(b" ", 1) for line in call("LRANGE", keys.events(kind), 0, -1)]
        call("DEL", keys.events(kind))
        call("RPUSH", keys.events(kind), *(b"%d %b" % (int(at) - 300_000, rest) for at, rest in lines))
    shown = faces.page(path, **({"name": "mail"} if path == "/queue" else {}))
    assert 'Version "v41" was deployed: 1 new job type (mail).' in shown
    assert "Pool web-3/4711 (v42) died: its process exited. It held no jobs." in shown
    assert 'Queue "mail" was paused by test.' in shown
    assert ('Queue "export" was paused by test.' in shown) == (path != "/queue")
    # A title on the chart, and a line of its list.
    assert shown.count('Queue "mail" was paused by test.') >= 2
    # The server of the tests may have been up for long, or just have been started.
    assert "The Redis server was restarted." in shown or "Another Redis server has taken over" in shown
