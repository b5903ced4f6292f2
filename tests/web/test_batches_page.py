"""The pages of batches and their API."""

from __future__ import annotations

import re

from dayjob import WorkerPool
from dayjob.admin import verbs

HTML = {"accept": "text/html"}


def started(namespace, redis_url, *, size=3, description="November mails"):
    pool = WorkerPool(namespace=namespace, redis=redis_url)
    mail = pool.register("mail", lambda n: None)
    report = pool.register("report", lambda: None)
    with pool.batch(on_success=report, description=description) as batch:
        mail.enqueue_many([{"n": n} for n in range(size)])
    return batch.id


def test_the_list_and_the_page_of_a_batch_lead_to_each_other_and_to_its_jobs(console, namespace, redis_url):
    assert "No batches" in console.get("/batches", headers=HTML).text
    batch_id = started(namespace, redis_url)
    text = console.get("/batches", params={"sort": "-left"}, headers=HTML).text
    assert "November mails" in text
    assert f"/batch?id={batch_id}" in text
    page = console.get("/batch", params={"id": batch_id}, headers=HTML)
    assert page.status_code == 200
    assert "Waits for 3 of 3 members: 3 not started." in page.text
    assert "not yet" in page.text
    assert re.findall(r'data-post="([^"]*)"', page.text) == [
        row.path for row in verbs.offered("batch", "running")
    ]
    (job, *_) = console.admin.jobs("waiting", name="mail").jobs
    assert f"/batch?id={batch_id}" in console.get("/job", params={"id": job.id}, headers=HTML).text
    assert console.get("/batch", params={"id": "nothing"}, headers=HTML).status_code == 404
    assert console.get("/batch", headers=HTML).status_code == 404


def test_the_api_lists_audits_and_cancels_batches(console, namespace, redis_url):
    batch_id = started(namespace, redis_url)
    assert [one["id"] for one in console.api("/batches")["batches"]] == [batch_id]
    assert console.api("/batch", id=batch_id)["waiting"] == 3
    assert console.api("/batch/audit", id=batch_id)["sound"] is True
    assert console.post("/api/v1/batch/repair", {"id": batch_id}).json()["repaired"] == 0
    assert console.post("/api/v1/batch/retry", {"id": batch_id}).json()["matched"] == 0
    assert console.post("/api/v1/batch/close", {"id": batch_id}).status_code == 409
    assert console.post("/api/v1/batch/cancel", {"id": batch_id}).status_code == 200
    assert console.post("/api/v1/batch/cancel", {"id": batch_id}).status_code == 409
    assert console.post("/api/v1/batch/cancel", {"id": "nothing"}).json()["code"] == "unknown_batch"


def test_the_metrics_count_batches_by_state(console, namespace, redis_url):
    started(namespace, redis_url)
    text = console.get("/metrics").text
    assert re.search(r'dayjob_batches\{[^}]*state="running"[^}]*\} 1\b', text)
    assert re.search(r"dayjob_batch_members_left\{[^}]*\} 3\b", text)
