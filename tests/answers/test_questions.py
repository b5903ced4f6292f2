"""Every question of an operator has one page, one command and one address of the API, and their answers agree."""

from __future__ import annotations

import datetime as dt
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from answers.fleet import Fleet, built, write_minute

pytestmark = pytest.mark.timeout(900)

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "questions.md"
KIND = "TimeoutError: no answer within # s"
DEPLOYED = 'Version "v42" was deployed after "v41": 4 new job types (hang, limited, report, charge), 1 changed job type (mail).'
DIED = "Pool web-3/4711 (v41) died: its process exited. It held 1 job: 1 back in its queue."


@dataclass(frozen=True)
class Question:
    """Where a question is answered, and its answer. `{waits}` and the like are fields of the fleet."""

    words: str
    page: str
    command: str
    api: str
    #: Patterns in what the page shows, and in what the command prints.
    shown: str
    printed: str
    #: The same in the answer of the API.
    answered: Callable[[Any], bool]


def _queue(found: Any, name: str) -> Any:
    return next(one for one in found["queues"] if one["queue"]["name"] == name)


def _ids(found: Any) -> list[str]:
    return [one["id"] for one in found["records"]]


QUESTIONS = (
    Question(
        "What waits, and for how long?", "/queues", "queues ls", "/queues", r"media no worker 3 1\d min", r"media 3 1\d min",
        lambda found: _queue(found, "media")["queue"]["size"] == 3 and 600 <= _queue(found, "media")["queue"]["age"] < 1200,
    ),
    Question(
        "What fails, since when, and why?", "/failures", "dead groups", "/failures", rf"{KIND} charge .*?2 dead.*? 2 2 2 2 (now|\d+ (s|min) ago)", rf"charge 2 2 2 2 2 [\d.]+ (s|min) ago {KIND}",
        lambda found: [(one["name"], one["kind"], one["dead"]) for one in found["groups"]][0] == ("charge", KIND, 2),
    ),
    Question(
        "What is each worker doing, and where in the code?", "/busy_workers", "pools stacks {pool_id}", "/pool/stacks?pool={pool_id}", r"report \w+ month= 10 \d+ (s|min) page 3 25%",
        r"report \w+ sync, running for [\d.]+ (s|min)\n\S*fleet\.py:\d+ in built\.<locals>\.report",
        lambda found: any("built.<locals>.report" in str(one) for one in found["workers"]),
    ),
    Question(
        "Which jobs are stuck?", "/busy_workers", "pools busy", "/busy", r"hang past its timeout", r"hang [\d.]+ (s|min) past its timeout",
        lambda found: [one["worker"]["name"] for one in found if one["worker"]["stuck"]] == ["hang"],
    ),
    Question(
        "Why is this job not running?", "/job?id={waits}&name=media", "jobs explain {waits} --name media", "/job/explain?id={waits}&name=media",
        r'Waits in the queue "media" \(it is the next\): no live pool has this job', r'Waits in the queue "media" \(it is the next\): no live pool has this job',
        lambda found: "no live pool has this job" in found["sentence"],
    ),
    Question(
        "What died with that machine?", "/timeline?kind=died&pool=web-3", "events ls --kind died --pool web-3", "/events?kind=died&pool=web-3",
        re.escape(DIED) + " 1 job mail twice-1 : back in its queue", re.escape(DIED) + "\nmail twice-1: back in its queue", lambda found: [one["text"] for one in found["events"]] == [DIED],
    ),
    Question(
        "Is Redis the bottleneck?", "/redis", "redis", "/redis", r"Median round trip 6\.4 ms", r"trips p50 6\.4 ms", lambda found: 0.006 < found["trips"]["p50"] < 0.007,
    ),
    Question(
        "Do I have enough workers?", "/", "scale", "/scale", r"media has no worker, and 3 jobs wait\.", r"media has no worker, and 3 jobs wait\.", lambda found: "media has no worker, and 3 jobs wait." in found["sentence"],
    ),
    Question(
        "Which jobs ran last night at two?", "/history?since={night}&until={morning}", "history ls --since {since} --until {until}", "/history?since={night}&until={morning}",
        r"Ended scan slow-1 .* mail night-1 .* mail night-1", r"scan slow-1(.|\n)* mail night-1(.|\n)* mail night-1", lambda found: _ids(found) == ["slow-1", "night-1", "night-1"],
    ),
    Question(
        "Who deleted these jobs?", "/audit?about=name=spam", "audit --about name=spam", "/audit?about=name=spam", r"ada delete all jobs in scheduled where name=spam 3 jobs matched, 3 changed\.",
        r"ada delete all jobs in scheduled where name=spam 3 jobs matched, 3 changed\.", lambda found: (found[0]["actor"], found[0]["result"]) == ("ada", "3 jobs matched, 3 changed."),
    ),
    Question(
        "How often was it retried, and with which errors?", "/job?id=night-1&name=mail", "jobs show night-1 --name mail", "/job?id=night-1&name=mail",
        r"attempt 1 retried after 3\.0 s: SMTPError .* attempt 2 completed", r"attempt 1 retried after 3\.0 s: SMTPError(.|\n)*attempt 2 completed",
        lambda found: [(one["outcome"], one["error"]) for one in found["attempts"]] == [("retried", "SMTPError"), ("completed", "")],
    ),
    Question(
        "Which source hogs the queue?", "/source?source=acme", "sources show acme", "/source?source=acme", r"Waiting 2 of 5 searched", r"^waiting 2 of 5 jobs searched$",
        lambda found: found["stored"]["waiting"]["matched"] == 2,
    ),
    Question(
        "What will run in the next hour?", "/calendar", "calendar", "/calendar", r"newsletter text= .* in \d+ (s|min) scheduled", r"newsletter scheduled", lambda found: [(one["name"], one["kind"]) for one in found["entries"]] == [("newsletter", "scheduled")],
    ),
    Question(
        "Did the periodic job fire, and how did it end?", "/schedule?name=nightly", "periodic show nightly", "/schedule?name=nightly",
        r'scan nightly-1 completed globex 1 250 ms 4\.0 s .* Schedule "nightly" fired\.', r'Schedule "nightly" fired\.\n.*\n.* completed scan nightly-1 1 250 ms 4\.0 s',
        lambda found: ([one["id"] for one in found["runs"]], [one["after"] for one in found["ticks"]]) == (["nightly-1"], ["fired"]),
    ),
    Question(
        "What did this deploy change?", "/timeline?kind=deploy", "events ls --kind deploy", "/events?kind=deploy", re.escape(DEPLOYED), re.escape(DEPLOYED), lambda found: found["events"][0]["text"] == DEPLOYED,
    ),
    Question(
        "What is paused, by whom, and since when?", "/queues", "queues ls", "/queues", r"scan paused by ada, \d+ (s|min) ago 1", r"scan 1 .* paused by ada for [\d.]+ (s|min)", lambda found: [(one["queue"]["name"], one["queue"]["paused_by"]) for one in found["queues"] if one["queue"]["paused"]] == [("scan", "ada")],
    ),
    Question(
        "Which limit is full, and held by whom?", "/queue?name=limited", "queues show limited", "/queue?name=limited", r"Running 1 of 1 .* Running All 1 .* \w{24} .*Runs at once 1 of 1 held", r"limit 1 of 1 held(.|\n)*runs \w+ for [\d.]+ (s|min) on",
        lambda found: (found["view"]["queue"]["limit"], found["view"]["queue"]["held"], len(found["busy"])) == (1, 1, 1),
    ),
    Question(
        "Which job types are slowest?", "/metrics?sort=-run_p95", "metrics --sort -run_p95", "/metrics?sort=-run_p95", r"\(log scale\) scan 5", r"TOTAL-FAILED\nscan 5", lambda found: found["jobs"][0]["name"] == "scan",
    ),
    Question(
        "Which single jobs are slowest?", "/history?sort=-ran", "history ls --sort -ran", "/history?sort=-ran", r"Ended scan slow-1 completed acme 1 250 ms 95 s", r"ERROR\n.* completed scan slow-1 1 250 ms 95 s", lambda found: _ids(found)[0] == "slow-1",
    ),
    Question(
        "Which payloads are largest?", "/payloads", "payloads", "/payloads", r"newsletter 1 4\.99 KiB", r"5,106 newsletter scheduled", lambda found: found["largest"][0]["name"] == "newsletter",
    ),
    Question(
        "What cannot be read?", "/broken", "broken ls", "/broken", r"queue mail it is not JSON", r"queue mail it is not JSON", lambda found: [(one["where"], one["why"]) for one in found["entries"]] == [("queue mail", "it is not JSON")],
    ),
    Question(
        "Which pool runs which version of my program?", "/worker_pools", "pools ls", "/pools", r"v42 leader", r"v42 leader", lambda found: [one["status"]["tag"] for one in found["pools"]] == ["v42"],
    ),
    Question(
        "How long until this queue is empty?", "/queue?name=media", "queues show media", "/queue?name=media", r"Empty no worker", r"^empty no worker$", lambda found: found["view"]["drain"]["kind"] == "unattended",
    ),
    Question(
        "What was run twice, and why?", "/history?outcome=crashed", "history ls --outcome crashed", "/history?outcome=crashed", r"mail twice-1 crashed its pool died", r"crashed mail twice-1 .*its pool died$",
        lambda found: [(one["id"], one["outcome"], one["pool_id"]) for one in found["records"]] == [("twice-1", "crashed", "p1")],
    ),
    Question(
        "What would happen if I press this?", "/dead_jobs?where=name=charge", "jobs delete --state dead --where name=charge --dry-run", "/jobs/count?state=dead&where=name=charge", r"2 of 3, 3 searched", r"Would delete 2 jobs in dead\.", lambda found: found["matched"] == 2,
    ),
    Question(
        "Is my server set up safely?", "/redis", "doctor", "/redis", r"warning persistence snapshots only", r"warning persistence snapshots only", lambda found: [one["level"] for one in found["findings"] if one["topic"] == "persistence"] == ["warning"],
    ),
)  # fmt: skip


def _filled(text: str, fleet: Fleet) -> str:
    return text.format(**vars(fleet), since=_clock(fleet.night), until=_clock(fleet.morning))


def _clock(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment, dt.UTC).isoformat()


@pytest.fixture
def minute(call, keys) -> None:
    write_minute(call, keys)


def test_every_question_has_one_answer_on_a_page_in_a_command_and_in_the_api(
    minute, faces, admin, new_pool, link, keys, call, subtests
):
    pool = new_pool(concurrency=3, beat=0.2, grace=0.05, tag="v42")
    with built(admin, pool, link, keys, call) as fleet:
        for one in QUESTIONS:
            with subtests.test(one.words):
                place = urlsplit(_filled(one.page, fleet))
                assert re.search(one.shown, faces.page(place.path, **dict(parse_qsl(place.query))))
                assert re.search(
                    one.printed, faces.run(*shlex.split(_filled(one.command, fleet))), re.MULTILINE
                )
                place = urlsplit(_filled(one.api, fleet))
                assert one.answered(faces.api(place.path, **dict(parse_qsl(place.query))))


def test_the_guide_answers_the_same_questions():
    rows = re.findall(r"^\| (.+?\?) \| (.+?) \| `dayjob ([^`]+)` \|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert [words for words, _, _ in rows] == [one.words for one in QUESTIONS]
    for (_, _, command), one in zip(rows, QUESTIONS, strict=True):
        assert command.split()[: len(_nouns(one.command))] == _nouns(one.command)


def _nouns(command: str) -> list[str]:
    """The words of a command before its arguments."""
    return re.split(r" (?:-|\{)| night-1| nightly| media| limited| acme", command)[0].split()
