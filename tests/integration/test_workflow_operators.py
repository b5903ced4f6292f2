"""What operators see of workflows, and do to one or to a node: the list, explain, cancel, retry, skip."""

from __future__ import annotations

import json
import threading

import pytest
from click.testing import CliRunner

import dayjob
from dayjob import Admin, BadOption
from dayjob.cli import cli
from server import wait_until


@pytest.fixture
def admin(namespace, redis_url):
    with Admin(namespace, redis=redis_url, actor="ada") as admin:
        yield admin


@pytest.fixture
def command(namespace, redis_url):
    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, [*words, "--namespace", namespace, "--redis", redis_url])
        assert done.exit_code == code, done.output
        return done.output

    return run


class Program:
    """A pool whose step 1 is dead while `bad`, and whose step 2 waits for a gate."""

    def __init__(self, pool):
        self.pool = pool
        self.bad = True
        self.gate, self.started = threading.Event(), threading.Event()
        self.ran = []

        @pool.job(max_fails=1)
        def step(n: int, password: str = "") -> int:
            self.ran.append(n)
            if n == 1 and self.bad:
                raise dayjob.Dead(f"no {password}")
            if n == 2:
                self.started.set()
                self.gate.wait(60)
            return n

        self.step = step

    def start(self, *numbers, name="import"):
        """A chain of steps."""
        flow = self.pool.workflow(name)
        before = []
        for n in numbers:
            before = [flow.add(self.step, n=n, password="hunter22", after=before)]
        return flow.start()


@pytest.fixture
def program(new_pool):
    return Program(new_pool(concurrency=2, beat=0.2, lease=5.0))


def states(admin, flow):
    return [one.state for one in admin.workflow(flow.id).nodes]


def test_a_failed_workflow_names_the_dead_node_and_a_retry_lets_it_go_on(program, admin, command):
    flow = program.start(0, 1, 3, 4)
    first, *_, last = admin.workflow(flow.id).nodes
    words = f'Node 3 of the workflow "import" ({flow.id}) waits for node 2 (step), which waits for others.'
    assert admin.explain(last.job_id) == words
    with program.pool:
        wait_until(lambda: admin.workflow(flow.id).workflow.state == "failed", 60)
        found = admin.workflow(flow.id)
        assert [one.state for one in found.nodes] == ["completed", "dead", "waiting", "waiting"]
        assert found.sentence.startswith(
            "Failed: node 1 (step) is dead. Of its 4 nodes: 2 waiting for others."
        )
        # What looks like a secret is hidden in errors, too.
        assert (found.nodes[1].error, found.nodes[0].error) == ("Dead: no [redacted]", "")
        assert f"workflows retry {flow.id} 1" in admin.explain(found.nodes[2].job_id)
        assert "2 nodes wait for it" in admin.explain(found.nodes[1].job_id)
        assert [one.id for one in admin.jobs("dead", where=f"workflow={flow.id}").jobs] == [
            found.nodes[1].job_id
        ]
        assert "Dead: no [redacted]" in command("workflows", "show", flow.id)
        program.bad = False
        assert "3 nodes run again" in command("workflows", "retry", flow.id)
        wait_until(lambda: admin.workflow(flow.id).workflow.state == "succeeded", 60)
    assert program.ran == [0, 1, 1, 3, 4]
    assert admin.jobs("dead").jobs == ()
    assert admin.workflow(flow.id).sentence == "All of its 4 nodes have ended: 4 completed."
    assert [one.action for one in admin.audit(about=f"workflow {flow.id}")] == ["retry workflow"]
    assert admin.retry_workflow(flow.id).kind == "not_allowed"


def test_a_dead_node_is_skipped_and_a_completed_one_runs_again_with_what_needs_it(program, admin, command):
    flow = program.pool.workflow("join")
    bad = flow.add(program.step, n=1)
    flow.add(program.step, n=3, after=[flow.add(program.step, n=0), bad])
    flow.start()
    with program.pool:
        wait_until(lambda: states(admin, flow) == ["dead", "completed", "waiting"], 60)
        assert "1 node skipped" in command("workflows", "skip", flow.id, "0", "--yes")
        wait_until(lambda: states(admin, flow) == ["skipped", "completed", "completed"], 60)
        assert admin.jobs("dead").jobs == ()
        assert "2 nodes run again" in command("workflows", "retry", flow.id, "1", "--yes")
        wait_until(lambda: admin.workflow(flow.id).workflow.state == "succeeded", 60)
    assert sorted(program.ran) == [0, 0, 1, 3, 3]
    assert admin.skip_node(flow.id, node=1).kind == "not_allowed"


def test_a_cancelled_node_does_not_run_again_before_its_job_has_ended(program, admin, command):
    flow = program.start(2, 3)
    with program.pool:
        assert program.started.wait(60)
        wait_until(lambda: states(admin, flow) == ["running", "waiting"], 60)
        assert "running on" in admin.workflow(flow.id).sentence
        assert admin.retry_workflow(flow.id, node=0).kind == "not_allowed"
        assert "2 nodes cancelled" in command("workflows", "cancel", flow.id, "--yes")
        assert admin.cancel_workflow(flow.id).kind == "not_allowed"
        refused = admin.retry_workflow(flow.id)
        assert (refused.kind, "The job of node 0" in refused.message) == ("not_allowed", True)
        program.gate.set()
        assert program.pool.drain(60)
        assert states(admin, flow) == ["cancelled", "cancelled"]
        assert admin.retry_workflow(flow.id).done
        wait_until(lambda: admin.workflow(flow.id).workflow.state == "succeeded", 60)
    assert program.ran == [2, 2, 3]


def test_a_dead_node_that_is_retried_as_a_job_and_then_cancelled_is_waited_for_too(
    program, admin, keys, call
):
    flow = program.start(1, 3)
    with program.pool:
        wait_until(lambda: states(admin, flow) == ["dead", "waiting"], 60)
        assert program.pool.drain(60)
    (dead,) = admin.jobs("dead").jobs
    assert admin.retry(dead.id).done
    assert states(admin, flow) == ["released", "waiting"]
    assert admin.cancel_workflow(flow.id, node=0).done
    assert "has not ended" in admin.retry_workflow(flow.id, node=0).message
    call("DEL", keys.queue("step"))
    assert admin.retry_workflow(flow.id, node=0).done


def test_workflows_are_listed_by_state_sorted_and_paged(program, admin, command, keys, call):
    flows = [program.start(*range(size), name=f"of {size}") for size in (2, 5, 3)]
    for place, flow in enumerate(flows):
        # They may be of one millisecond.
        call("ZINCRBY", keys.workflows, place * 10, flow.id)
    ids = [flow.id for flow in flows]
    assert [one.id for one in admin.workflows().workflows] == ids[::-1]
    assert [one.total for one in admin.workflows(sort="-nodes").workflows] == [5, 3, 2]
    first = admin.workflows(size=2)
    assert (first.total, first.next) == (3, 2)
    assert [one.id for one in admin.workflows(size=2, offset=first.next).workflows] == ids[:1]
    flows[1].cancel()
    assert [one.id for one in admin.workflows(state="cancelled").workflows] == ids[1:2]
    assert json.loads(command("workflows", "ls", "--state", "running", "--json"))["workflows"][0][
        "total"
    ] in (2, 3)
    assert "of 5" in command("workflows", "ls")
    assert admin.workflow(ids[1], first=3).nodes[0].needs == (2,)
    with pytest.raises(BadOption, match="no workflow 'nothing'"):
        admin.workflow("nothing")
    with pytest.raises(BadOption, match="has no node 5"):
        admin.skip_node(ids[1], node=5)


# Audit.


@pytest.fixture
def broken_flow(new_pool, namespace, redis_url):
    """A workflow of two nodes whose first job was deleted by another program, and the pool."""
    program = Program(new_pool())
    flow = program.start(0, 3)
    return program, flow


def test_an_audit_finds_a_node_whose_job_is_nowhere_and_a_repair_lets_it_be_retried(
    broken_flow, admin, command, call, keys
):
    program, flow = broken_flow
    assert admin.audit_workflow(flow.id).sound
    call("DEL", keys.scheduled, keys.queue("step"))
    found = admin.audit_workflow(flow.id)
    assert [(one.kind, one.nodes, one.numbers) for one in found.findings] == [("lost", 1, (0,))]
    assert not found.sound
    assert "is nowhere" in command("workflows", "audit", flow.id, code=1)
    shown = command("workflows", "audit", flow.id, "--repair")
    assert "Repaired: 1 difference." in shown
    assert admin.workflow(flow.id).workflow.state == "failed"
    assert admin.audit(about=flow.id)[0].action == "repair workflow"
    assert admin.retry_workflow(flow.id).done
    with program.pool:
        wait_until(lambda: flow.progress().state == "succeeded")
    assert program.ran == [0, 3]


def test_an_audit_corrects_nodes_whose_jobs_are_dead_or_alive_again(broken_flow, admin, call, keys):
    _, flow = broken_flow
    (payload,) = call("ZRANGE", keys.scheduled, 0, -1)
    call("DEL", keys.scheduled)
    call("ZADD", keys.dead, 1, payload)
    found = admin.audit_workflow(flow.id, repair=True)
    assert ([one.kind for one in found.findings], found.repaired, found.sound) == (["died"], 1, True)
    assert found.workflow.dead == 1
    call("DEL", keys.dead)
    call("LPUSH", keys.queue("step"), payload)
    call("SADD", keys.known_jobs, "step")
    found = admin.audit_workflow(flow.id, repair=True)
    assert ([one.kind for one in found.findings], found.repaired, found.sound) == (["alive"], 1, True)
    assert (found.workflow.dead, found.workflow.state) == (0, "running")
    assert not admin.audit_workflow(flow.id).findings
    with pytest.raises(BadOption, match="no workflow"):
        admin.audit_workflow("wnothing")
