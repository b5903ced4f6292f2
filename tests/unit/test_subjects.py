"""What an action was applied to leads to its page."""

from __future__ import annotations

import pytest

from dayjob.web.pages.subjects import link_of


@pytest.mark.parametrize(
    ("subject", "path", "query"),
    [
        ("job 5f1c (mail.send, dead)", "/job", {"id": "5f1c", "name": "mail.send"}), ("job 5f1c (mail)", "/job", {"id": "5f1c", "name": "mail"}),
        ("queue mail", "/queue", {"name": "mail"}), ("queue mail (key a b)", "/queue", {"name": "mail"}),
        ("pool 7f91 (web-3, pid 4711)", "/pool", {"id": "7f91"}), ("schedule sweep @every 20s", "/schedule", {"name": "sweep @every 20s"}),
        ("batch b1", "/batch", {"id": "b1"}), ("workflow w1 node 3", "/workflow", {"id": "w1"}),
        ("failures of mail: ValueError: # is (no) number", "/failure", {"name": "mail", "kind": "ValueError: # is (no) number"}),
    ],
)  # fmt: skip
def test_one_thing_leads_to_its_page(subject, path, query):
    assert link_of(subject)[1:] == (path, query)


@pytest.mark.parametrize(
    "subject", ["", "all jobs in dead where name=mail", "limit sms", f"failures of mail: {'x' * 200}"]
)
def test_many_things_lead_nowhere(subject):
    assert link_of(subject) is None
