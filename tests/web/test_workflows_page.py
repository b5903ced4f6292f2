"""The pages of workflows and their API."""

from __future__ import annotations

import re

from dayjob import WorkerPool

HTML = {"accept": "text/html"}


def started(namespace, redis_url, *, leaves=3):
    """A workflow of one node, some that need it, and one that needs all of these."""
    pool = WorkerPool(namespace=namespace, redis=redis_url)
    step = pool.register("step", lambda n: None)
    flow = pool.workflow("import")
    first = flow.add(step, n=0)
    parts = [flow.add(step, n=n, after=[first]) for n in range(leaves)]
    flow.add(step, n=9, after=parts)
    flow.add(step, n=8, on_failure_of=[first])
    return flow.start().id


def test_the_api_lists_shows_and_changes_workflows(console, namespace, redis_url):
    workflow_id = started(namespace, redis_url)
    assert [one["id"] for one in console.api("/workflows")["workflows"]] == [workflow_id]
    assert console.api("/workflows", state="failed")["workflows"] == []
    found = console.api("/workflow", id=workflow_id)
    assert [(one["state"], one["needs"]) for one in found["nodes"]][:2] == [
        ("released", []),
        ("waiting", [0]),
    ]
    assert console.post("/api/v1/workflow/retry", {"id": workflow_id}).status_code == 409
    assert console.post("/api/v1/workflow/skip", {"id": workflow_id, "node": 1}).status_code == 200
    assert console.post("/api/v1/workflow/skip", {"id": workflow_id, "node": 99}).status_code == 404
    assert (
        console.post("/api/v1/workflow/cancel", {"id": workflow_id, "node": 2})
        .json()["message"]
        .startswith("2 nodes")
    )
    assert console.post("/api/v1/workflow/cancel", {"id": workflow_id}).status_code == 200
    assert console.post("/api/v1/workflow/cancel", {"id": workflow_id}).status_code == 409
    assert console.post("/api/v1/workflow/cancel", {"id": "nothing"}).json()["code"] == "unknown_workflow"


def test_the_metrics_count_workflows_by_state(console, namespace, redis_url):
    started(namespace, redis_url)
    text = console.get("/metrics").text
    assert re.search(r'dayjob_workflows\{[^}]*state="running"[^}]*\} 1\b', text)
    assert re.search(r"dayjob_workflow_nodes_left\{[^}]*\} 6\b", text)
