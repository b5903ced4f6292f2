"""The tabs History and Sources of `dayjob top`."""

from __future__ import annotations

import time

import pytest

from dayjob.handlers.describe import Described
from dayjob.store.ops import job_types
from dayjob.store.ops.history import StoredRecord
from records import write_records


@pytest.fixture
def attempts(keys, link):
    link.run(job_types.announce(keys, [Described("mail")]))
    now = int(time.time() * 1000)
    write_records(
        link, keys, "mail", StoredRecord("id-1", "retried", now, ran=5000, source="acme", error="Boom")
    )
    write_records(link, keys, "mail", StoredRecord("id-2", "completed", now, ran=7000, weight=4.0))


def test_the_history_lists_attempts_and_opens_a_finished_job(top, attempts):
    screen = top("--tab", "history", columns=160)
    screen.wait_for("id-1", "id-2", "Boom", "about 40.0% of the attempts")
    screen.press("enter")
    screen.wait_for("finished")


def test_the_sources_lead_to_their_attempts(top, attempts):
    screen = top("--tab", "sources", columns=160)
    screen.wait_for("acme")
    screen.press("enter")
    screen.wait_for("source acme", "Boom")
