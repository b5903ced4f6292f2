"""The rules of alerts: what is read, what is refused, and what is posted by them."""

from __future__ import annotations

import tomllib

import pytest

from dayjob.admin.alert_rules import AlertRules, read_rules
from dayjob.admin.alerts import BEGUN, FORGET_SECONDS, MAX_NEW_GROUPS, Alert, AlertCondition, AlertLog
from dayjob.cli.receivers import slack_text
from dayjob.errors import BadOption


def read(text: str) -> AlertRules:
    return read_rules(tomllib.loads(text), "alerts.toml")


def test_an_empty_file_has_the_defaults():
    assert read("") == AlertRules()


def test_every_key_is_read():
    found = read(
        'every = "30s"\nsettle = 5\nresolved = false\nconsole = "https://jobs.example.com/"\n'
        '[verdict]\nenabled = false\nlevel = "error"\nignore = ["dead", "paused"]\n'
        '[failures]\nignore = ["report.*"]\n[missed]\nafter = "2m"\n[late]\nafter = "10m"\n'
        '[late.queues]\nmedia = "1h"\nslow = "off"\n'
    )
    assert (found.every, found.settle, found.resolved, found.console) == (
        30.0,
        5.0,
        False,
        "https://jobs.example.com",
    )
    assert (found.verdict.enabled, found.verdict.level, found.verdict.ignore) == (
        False,
        "error",
        ("dead", "paused"),
    )
    assert (found.failures.ignore, found.missed.after) == (("report.*",), 120.0)
    assert [found.late.limit(name) for name in ("media", "slow", "mail")] == [3600.0, None, 600.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("evry = 5", "alerts.toml: the file has no 'evry'. Did you mean 'every'?"),
        ("[lates]", "alerts.toml: the file has no 'lates'. Did you mean 'late'?"),
        ("[late]\nafer = 5", "alerts.toml: [late] has no 'afer'. Did you mean 'after'?"),
        ('[verdict]\nlevel = "eror"', "there are notice, warning, error. Did you mean 'error'?"),
        ('[verdict]\nignore = ["pause"]', "no note is of the kind 'pause'. Did you mean 'paused'?"),
        ('every = "often"', "write a span of time"),
        ('every = "0s"', "1s at least"),
        ("settle = true", "write a span of time"),
        ('settle = "40d"', "30 days at most"),
        ("resolved = 1", "write true or false"),
        ("late = 5", "late is a table: write [late] on a line of its own"),
        ('failures.ignore = "mail"', "write a list of names"),
        ('console = "javascript:alert(1)"', "write the address of the console"),
        ('[late.queues]\nmedia = "soon"', "late.queues.media"),
    ],
)
def test_what_does_not_fit_is_refused(text, expected):
    with pytest.raises(BadOption) as error:
        read(text)
    assert str(error.value).startswith("alerts.toml: ")
    assert expected in str(error.value)


# What is new.


def late(name: str = "mail") -> AlertCondition:
    return AlertCondition("late", name, "warning", "late", "/queue")


def group(number: int) -> AlertCondition:
    return AlertCondition(
        "failures", "mail", "warning", f"fails {number}", "/failures", detail=f"error {number}"
    )


class Memory:
    """Redis, for these tests."""

    def __init__(self, **rules) -> None:
        self.log = AlertLog(AlertRules(**{"settle": 0.0, **rules}), "shop")
        self.stored: dict[str, bytes] = {}

    def look(self, now: float, *found: AlertCondition) -> list[Alert]:
        posted = []
        for change in self.log.changes(now, found, dict(self.stored)):
            assert self.stored.pop(change.key, b"") == change.before
            if change.after:
                self.stored[change.key] = change.after
            if change.alert is not None:
                posted.append(change.alert)
        return posted


def test_a_change_must_last_before_it_is_posted():
    memory = Memory(settle=30.0)
    assert memory.look(100, late()) == []
    assert memory.look(110) == []
    # It began again: the time begins again too.
    assert memory.look(120, late()) == []
    assert memory.look(149, late()) == []
    assert [one.state for one in memory.look(150, late())] == ["firing"]
    assert memory.look(160) == []
    assert memory.look(170, late()) == []
    assert memory.look(180) == []
    assert [one.state for one in memory.look(210)] == ["resolved"]
    assert set(memory.stored) == {BEGUN}


def test_that_something_is_over_need_not_be_posted():
    memory = Memory(resolved=False)
    assert len(memory.look(1, late())) == 1
    assert memory.look(2) == []
    assert set(memory.stored) == {BEGUN}


def test_groups_of_failures_are_remembered_for_a_day_after_they_were_seen():
    memory = Memory()
    assert memory.look(0, group(1)) == []
    assert [one.text for one in memory.look(10, group(1), group(2))] == ["fails 2"]
    # They go and come back, as jobs in retry do.
    assert memory.look(20) == memory.look(30, group(2)) == []
    for hours in range(1, 30):
        assert memory.look(hours * 3700, group(2)) == []
    assert [one.text for one in memory.look(29 * 3700 + FORGET_SECONDS + 1, group(2))] == ["fails 2"]
    memory.look(29 * 3700 + 3 * FORGET_SECONDS)
    assert set(memory.stored) == {BEGUN}


def test_very_many_new_groups_are_counted():
    memory = Memory()
    memory.look(0)
    posted = memory.look(10, *map(group, range(MAX_NEW_GROUPS + 7)))
    assert len(posted) == MAX_NEW_GROUPS
    assert posted[-1].text.endswith("(and 7 further new groups of failures)")
    assert memory.look(20, *map(group, range(MAX_NEW_GROUPS + 7))) == []


def test_a_state_that_cannot_be_read_is_replaced():
    memory = Memory()
    memory.stored = {BEGUN: b"1", late().key: b"\xff"}
    assert [one.state for one in memory.look(1, late())] == ["firing"]
    assert memory.look(2, late()) == []


def test_a_name_cannot_notify_a_slack_channel():
    alert = Alert(
        "1",
        "late",
        "firing",
        "error",
        "a&b",
        "",
        "<!channel> & <https://evil|x>",
        1.0,
        1.0,
        "https://c/queue?name=a|b>",
    )
    text = slack_text(alert)
    assert "<!channel>" not in text
    assert "&lt;!channel&gt; &amp; &lt;https://evil|x&gt;" in text
    assert text.endswith("<https://c/queue?name=a%7Cb%3E|Open the console>")
