"""The pages of workflows and their API."""

from __future__ import annotations

import re

from dayjob import WorkerPool
from dayjob.admin import verbs
from server import wait_until

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


def test_the_list_and_the_graph_of_a_workflow_lead_to_each_other_and_to_its_jobs(
    console, namespace, redis_url
):
    assert "No workflows" in console.get("/workflows", headers=HTML).text
    workflow_id = started(namespace, redis_url)
    assert f"/workflow?id={workflow_id}" in console.get("/workflows", headers=HTML).text
    assert "No workflow is failed" in console.get("/workflows", params={"state": "failed"}, headers=HTML).text
    page = console.get("/workflow", params={"id": workflow_id}, headers=HTML).text
    assert (page.count('class="wire"'), page.count('class="wire dashed"')) == (6, 1)
    assert (page.count('class="box run"'), page.count('class="box idle"')) == (1, 5)
    offered = [row.path for state in ("released", *["waiting"] * 5) for row in verbs.offered("node", state)]
    assert re.findall(r'data-post="([^"]*)"', page) == ["/workflow/cancel", "/workflow/repair", *offered]
    node, *_ = console.admin.workflow(workflow_id).nodes
    assert f'href="/job?id={node.job_id}&amp;name=step"' in page
    job = console.get("/job", params={"id": node.job_id}, headers=HTML).text
    assert f"/workflow?id={workflow_id}" in job
    assert console.get("/workflow", params={"id": "nothing"}, headers=HTML).status_code == 404


def test_a_workflow_with_too_many_nodes_for_a_graph_is_a_table(console, namespace, redis_url):
    workflow_id = started(namespace, redis_url, leaves=498)
    page = console.get("/workflow", params={"id": workflow_id}, headers=HTML).text
    assert "Too many for a graph" in page
    assert f"/workflow?id={workflow_id}&amp;first=500" in page
    assert "501 step" not in page
    assert "500 step" in console.get("/workflow", params={"id": workflow_id, "first": 500}, headers=HTML).text


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


def test_an_argument_that_is_the_result_of_a_node_is_named_as_such(console, namespace, redis_url):
    pool = WorkerPool(namespace=namespace, redis=redis_url)

    @pool.job
    def count(shop: str) -> int:
        return len(shop)

    @pool.job(max_fails=1)
    def price(rows: int, parts: list[int], card: str) -> None:
        raise ValueError("no price")

    flow = pool.workflow("import")
    rows = flow.add(count, shop="acme")
    flow.add(price, rows=rows.result, parts=[1, rows.result], card="4111 1111")
    flow.start()
    with pool:
        wait_until(lambda: console.admin.jobs("dead").jobs)
    (job,) = console.admin.jobs("dead").jobs
    named = "[result of node 0]"
    assert job.args == {"rows": named, "parts": [1, named], "card": "4111 1111"}
    page = console.get("/job", params={"id": job.id}, headers=HTML).text
    assert "# fill in the results of other nodes" in page
    (again,) = re.findall(r'href="(/enqueue\?[^"]*)"', page)
    form = console.get(again.replace("&amp;", "&"), headers=HTML).text
    assert "Left out because they are results of other nodes: <b>rows, parts</b>" in form
    assert "4111 1111" in form
