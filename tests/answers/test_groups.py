"""Groups of failures: their pages, their notes, and groups that are ignored for a time."""

from __future__ import annotations

import pytest

from dayjob.admin.groups import MAX_MARKS
from dayjob.errors import BadOption

pytestmark = pytest.mark.timeout(300)

KIND = "TimeoutError: no answer within # s"


@pytest.fixture
def failed(call, keys, look):
    """Three dead jobs of one group, one in retry, and one of another group."""
    now = int(look.now())

    def put(place, number, name, error, ago):
        payload = (
            f'{{"name":"{name}","id":"{name}-{number}","t":{now - ago},"args":{{"order":{number}}},"fails":1,'
            f'"err":"{error}","failed_at":{now - ago}}}'
        )
        call("ZADD", place, now - ago if place == keys.dead else now + 600, payload)

    for number in range(3):
        put(keys.dead, number, "charge", f"TimeoutError: no answer within {number} s", 3600 + number * 60)
    put(keys.retry, 9, "charge", "TimeoutError: no answer within 9 s", 30)
    put(keys.dead, 5, "mail", "ValueError: no", 10)


def test_a_group_has_a_page_a_command_and_an_address(faces, admin, failed):
    found = admin.failure_group("charge", KIND)
    assert (found.group.count, found.group.dead, found.group.retry) == (4, 3, 1)
    assert [job.id for job in found.jobs] == ["charge-9", "charge-0", "charge-1", "charge-2"]
    assert sum(found.failed) == 4
    assert found.failed[0] >= 1
    api = faces.api("/failures/group", name="charge", kind=KIND)
    assert [job["id"] for job in api["jobs"]] == [job.id for job in found.jobs]
    page = faces.page("/failure", name="charge", kind=KIND)
    for text in ("Failed attempts since the first", "charge-9", "order= 0", "4 in retry or dead"):
        assert text in page
    printed = faces.run("dead", "group", "charge", KIND)
    assert "4 jobs: 3 dead, 1 in retry; the first" in printed
    assert "charge-2 dead 1" in printed


def test_a_group_opens_in_the_terminal_with_its_jobs_and_is_retried_there(faces, admin, failed):
    admin.note_group("charge", KIND, "the bank works on it")
    screen = faces.top("failures")
    screen.wait_for("charge", KIND)
    screen.press("enter")
    screen.wait_for("4 jobs: 3 dead, 1 in retry", "the bank works on it", "charge-9", "charge-2")
    screen.settle(lambda: screen.line_of("charge-9") < screen.line_of("charge-2"))
    screen.press("enter")
    screen.wait_for("id           charge-9", "Timeline")
    screen.press("escape")
    screen.wait_for("4 jobs: 3 dead")
    screen.press("r")
    screen.wait_for("that failed with")
    screen.press("y")
    screen.wait_for("No job of this group is in retry or dead any more.")
    assert admin.failure_group("charge", KIND) is None


def test_a_note_is_seen_everywhere_and_is_in_the_audit(faces, admin, failed):
    assert "Noted: the bank works on it" in faces.run("dead", "note", "charge", KIND, "the bank works\non it")
    assert admin.failure_group("charge", KIND).group.mark.note == "the bank works on it"
    assert "the bank works on it" in faces.page("/failure", name="charge", kind=KIND)
    assert "the bank works on it" in faces.page("/failures")
    assert "the bank works on it" in faces.run("dead", "groups")
    assert faces.api("/failures")["groups"][0]["mark"]["note"] == "the bank works on it"
    assert admin.audit()[0].subject == f"failures of charge: {KIND}"
    assert (
        faces.console.post("/api/v1/failures/note", {"name": "charge", "kind": KIND, "text": ""}).status_code
        == 200
    )
    assert not admin.failure_group("charge", KIND).group.mark.note
    assert [one.mark.note for one in admin.failures().groups] == ["", ""]


def test_an_ignored_group_is_hidden_until_its_time_is_over(faces, admin, failed, call, keys):
    assert "Ignored for 2 days." in faces.run("dead", "ignore", "charge", KIND, "--for", "2d")
    until = admin.failure_group("charge", KIND).group.mark.ignored_until
    assert until - admin.verdict().now == pytest.approx(2 * 86400, abs=600)
    hidden = faces.page("/failures")
    assert KIND not in hidden
    assert "1 ignored" in hidden
    assert KIND in faces.page("/failures", ignored=1)
    assert KIND not in faces.page("/").partition("Failing most")[2]
    assert "ignored until" in faces.run("dead", "groups")
    # Its jobs are counted and can be acted on as before.
    assert admin.verdict().sizes.dead == 4
    assert "It is shown again." in faces.run("dead", "unignore", "charge", KIND)
    assert KIND in faces.page("/failures")


def test_an_ignore_that_is_over_is_removed_with_the_next_note(admin, failed, call, keys):
    admin.ignore_group("charge", KIND, 1)
    (field,) = call("HKEYS", keys.groups)
    call(
        "HSET", keys.groups, field, call("HGET", keys.groups, field).replace(b'"until":', b'"until":1,"was":')
    )
    assert admin.failure_group("charge", KIND).group.mark.ignored_until is None
    admin.note_group("mail", "ValueError: no", "known")
    assert [name.decode().partition("|")[2] for name in call("HKEYS", keys.groups)] == ["note"]


def test_notes_are_bounded_and_checked(faces, admin, failed, call, keys):
    for seconds in (0, -5, 1e9):
        with pytest.raises(BadOption, match="a second to a year"):
            admin.ignore_group("charge", KIND, seconds)
    call(
        "HSET",
        keys.groups,
        *(word for n in range(MAX_MARKS) for word in (f"{n}|note", '{"name":"a","kind":"b"}')),
    )
    with pytest.raises(BadOption, match="1,000 notes"):
        admin.note_group("charge", KIND, "one more")
    admin.note_group("charge", KIND, "")


def test_what_is_not_json_in_the_notes_is_passed_over(admin, failed, call, keys):
    call("HSET", keys.groups, "x|note", "no json")
    assert len(admin.failures().groups) == 2


def test_a_group_that_is_gone_is_not_found(faces, admin):
    assert admin.failure_group("charge", KIND) is None
    assert "is in retry or dead with this error" in faces.page("/failure", 404, name="charge", kind=KIND)
    assert "is in retry or dead with this error" in faces.run("dead", "group", "charge", KIND, code=1)
    answer = faces.console.get("/api/v1/failures/group", params={"name": "a", "kind": "b"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_failure")
    assert answer.json()["error"] == "No job of 'a' is in retry or dead with this error."
