"""The table of what operators can do, and the interfaces that are made from it: all have the same verbs."""

from __future__ import annotations

from typing import get_args

import click
import pytest

from dayjob import Admin
from dayjob.admin import verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.verbs import Verb, VerbTarget
from dayjob.admin.views import (
    BrokenEntry,
    BusyWorker,
    JobView,
    Periodic,
    Pool,
    Queue,
    QueueView,
    State,
    Status,
    WorkerStatus,
)
from dayjob.admin.views.batches import BatchState, BatchView
from dayjob.admin.views.workflows import NodeView, NodeViewState, WorkflowState, WorkflowView
from dayjob.cli import cli
from dayjob.tui import actions, views
from dayjob.web.v1 import ENDPOINTS

STATES: tuple[State, ...] = get_args(State)
#: Methods of Admin for the verbs that are not called like them.
METHODS = {
    ("schedule", "run"): "run_schedule", ("schedule", "pause"): "pause_schedule", ("schedule", "resume"): "resume_schedule",
    ("batch", "retry"): "retry_batch", ("batch", "close"): "close_batch", ("batch", "cancel"): "cancel_batch", ("batch", "repair"): "audit_batch",
    ("workflow", "retry"): "retry_workflow", ("workflow", "cancel"): "cancel_workflow", ("workflow", "repair"): "audit_workflow", ("node", "retry"): "retry_workflow",
    ("node", "cancel"): "cancel_workflow", ("node", "skip"): "skip_node",
    ("pool", "resume"): "resume_pool", ("broken", "repair"): "repair", ("broken", "delete"): "delete_broken",
}  # fmt: skip
#: What the API can do beside the table: more than one job at once, and new jobs.
OTHER_POSTS = {
    "/key/weight",
    "/key/limit",
    "/key/pause",
    "/key/resume",
    "/key/purge",
    # A rate limit has no list of states.
    "/limit/set",
    "/limit/lift",
    "/limit/restore",
    "/limit/reset",
    "/limit/hold",
    "/jobs/selection",
    "/jobs/still",
    "/jobs/apply",
    "/jobs/move",
    "/failures/apply",
    "/failures/note",
    "/failures/ignore",
    "/enqueue",
    "/queues/pause",
    "/queues/resume",
}


def rows():
    return [pytest.param(row, id=f"{row.target}-{row.name}") for row in verbs.TABLE]


def names(found) -> list[str]:
    return [row.name for row in found]


# The table.


def test_the_table_has_what_the_types_name():
    assert names(verbs.rows("job")) == list(get_args(Verb))
    assert {row.target for row in verbs.TABLE} == set(get_args(VerbTarget))


@pytest.mark.parametrize("row", rows())
def test_a_row_is_whole(row):
    assert set(row.same_as_other) <= set(row.states)
    assert set(row.bulk) <= set(row.states)
    assert set(row.named) <= set(row.states)
    assert row.offered
    assert row.label[0].isupper()
    assert row.effect.endswith(".")
    if row.target == "job":
        assert set(row.states) <= set(STATES)


@pytest.mark.parametrize("state", STATES)
def test_menus_offer_no_two_verbs_under_one_key(state):
    keys = [row.key for row in verbs.offered("job", state)]
    assert len(keys) == len(set(keys))


def test_what_menus_offer_for_each_state():
    found = {state: names(verbs.offered("job", state)) for state in STATES}
    assert found == {
        "waiting": ["kill", "delete"],
        "running": ["cancel", "kill"],
        "scheduled": ["run_now", "kill", "delete"],
        "retry": ["run_now", "kill", "delete"],
        "dead": ["retry", "delete"],
        "done": ["delete"],
        "finished": [],
    }
    assert names(verbs.offered_for_all("running")) == ["cancel"]
    assert names(verbs.offered_for_all("dead")) == ["retry", "delete"]


# Python.


@pytest.mark.parametrize("row", rows())
def test_admin_has_a_method_for_each_verb(row):
    name = METHODS.get((row.target, row.name), row.name)
    assert callable(getattr(Admin, name))
    assert callable(getattr(AsyncAdmin, name))


# The API.


@pytest.mark.parametrize("row", rows())
def test_the_api_has_an_address_for_each_verb(row):
    (endpoint,) = [one for one in ENDPOINTS if one.path == row.path]
    assert endpoint.method == ("GET" if row.name == "stacks" else "POST")


def test_the_api_can_change_nothing_that_is_not_in_the_table():
    posts = {one.path for one in ENDPOINTS if one.method == "POST"}
    assert posts == {row.path for row in verbs.TABLE if row.name != "stacks"} | OTHER_POSTS


# Commands.


def command_of(row) -> click.Command:
    noun, _, verb = row.command.partition(" ")
    found = cli.get_command(click.Context(cli), noun)
    if verb:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), verb)
    assert found is not None, row.command
    return found


@pytest.mark.parametrize("row", rows())
def test_there_is_a_command_for_each_verb_and_it_asks_where_the_table_says_so(row):
    found = {option.name: option for option in command_of(row).params}
    assert ("yes" in found) >= row.asks
    assert ("no_undo" in found) == row.undoes
    if row.target == "job":
        assert tuple(found["state"].type.choices) == row.states


# The terminal view.


def subjects(target: str, state: str) -> object:
    if target == "job":
        return JobView("id-1", "mail", state)
    if target == "queue":
        return QueueView(Queue("mail", 1, 1.0, state == "paused", None, 0, False), 0, 0, 0.0)
    if target == "pool":
        status = Status(host="box", quiet=state != "running", stopping=state == "stopping")
        return Pool("p1", 5.0, status)
    if target == "schedule":
        return Periodic("nightly", "mail", "", None, "", state == "paused", "skip", None, None, ())
    if target == "worker":
        return BusyWorker("p1", "box", 7, WorkerStatus(id="id-1", name="mail"), 1.0)
    if target == "batch":
        return BatchView("b1", "", state, 1.0, None, None, 1, 0, 0, 0, 1, None, (), ())
    if target == "workflow":
        return WorkflowView("w1", "", state, 1.0, None, None, 1, 0, 0, 0, 0, 1)
    if target == "node":
        return NodeView(0, "mail", "id-1", state, (), (), "stop", None, None)
    return BrokenEntry(0, b"x", b"x", None, "", "")


def asked(found: tuple[actions.Action, ...], subject: object) -> set[tuple[str, str]]:
    return {(one.key, one.label) for one in found if one.question(subject)}


@pytest.mark.parametrize(
    ("target", "found", "states"),
    [
        ("job", actions.ONE_JOB, STATES),
        ("queue", actions.QUEUE, ("open", "paused")),
        ("pool", actions.POOL, ("running", "quiet", "stopping")),
        ("schedule", actions.SCHEDULE, ("open", "paused")),
        ("broken", actions.BROKEN, ("broken",)),
        ("batch", actions.BATCH, get_args(BatchState)),
        ("workflow", actions.WORKFLOW, get_args(WorkflowState)),
        ("node", actions.nodes_of("w1"), get_args(NodeViewState)),
    ],
)
def test_the_terminal_offers_what_the_table_offers(target, found, states):
    for state in states:
        expected = {(row.key, row.label.lower()) for row in verbs.offered(target, state)}
        assert asked(found, subjects(target, state)) == expected, state


@pytest.mark.parametrize("state", STATES)
def test_a_list_of_jobs_in_the_terminal_offers_what_the_table_offers(state):
    assert [one.verb for one in actions.on_jobs(state)] == names(verbs.offered("job", state))


def test_a_busy_worker_has_the_verbs_of_a_running_job_and_its_stack():
    (tab,) = [view for view in views.tabs() if view.title == "Busy"]
    worker = subjects("worker", "busy")
    assert asked(tab.actions, worker) == {("c", "cancel"), ("x", "kill")}
    assert tab.other is not None
    assert tab.other[:2] == ("t", "stack")
    assert tab.other[2](worker) is not None


@pytest.mark.parametrize(
    ("target", "action"), [("due_job", actions.RESCHEDULE), ("waiting_job", actions.MOVE)]
)
def test_the_terminal_offers_the_verbs_that_need_a_text(target, action):
    (row,) = verbs.rows(target)
    assert (action.key, action.label, action.entry is not None) == (row.key, row.label.lower(), True)
    for state in STATES:
        assert bool(action.question(JobView("id-1", "mail", state))) == (state in row.offered)
