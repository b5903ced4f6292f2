"""`dayjob workflows`: list, show, cancel and retry workflows, and skip their nodes."""

from __future__ import annotations

from typing import get_args

import click

from dayjob.admin import sorting, verbs
from dayjob.admin.views.workflows import NodeView, WorkflowState
from dayjob.cli import completions, console, groups
from dayjob.cli.console import clean, when
from dayjob.cli.group import group
from dayjob.text import counted, number_ranges


@group(epilog="Example: dayjob workflows ls --state failed")
def workflows() -> None:
    """List, show, cancel and retry workflows, and skip their nodes."""


@workflows.command(epilog="Example: dayjob workflows ls --state failed --sort -left")
@click.option("--state", type=click.Choice(get_args(WorkflowState)), help="Only those in this state.")
@groups.page_options
@console.sort_option(sorting.WORKFLOWS)
@console.options
def ls(
    state: WorkflowState | None,
    offset: int,
    limit: int,
    sort: str,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """List the workflows, the newest first."""
    with console.opened(redis, namespace) as admin:
        found = admin.workflows(state=state, offset=offset, size=limit, sort=sort)
    if console.emitted(found, as_json=as_json):
        return
    if not found.workflows:
        click.echo('No workflows. A program starts one: flow = pool.workflow("import")')
        return
    rows = [(one, one.name) for one in found.workflows]
    groups.print_page(rows, ("WORKFLOW", "NODES", "NAME"), found.now, found.next)


@workflows.command(epilog="Example: dayjob workflows show w5f1c0a...")
@click.argument("workflow_id", metavar="ID", shell_complete=completions.workflows)
@click.option("--first", default=0, type=click.IntRange(0), help="The number of the first node to show.")
@console.options
def show(workflow_id: str, first: int, redis: str | None, namespace: str, as_json: bool) -> None:
    """Show one workflow: what it waits for, and its nodes with their states, needs, jobs and errors."""
    with console.opened(redis, namespace) as admin:
        found = admin.workflow(workflow_id, first=first)
    if console.emitted(found, as_json=as_json):
        return
    one = found.workflow
    click.echo(clean(f"{one.id}: {one.state} {one.name}"))
    click.echo(found.sentence)
    click.echo(f"created {when(one.created_at)}")
    rows = [
        (str(node.number), node.name, node.state, needs_of(node), node.job_id, node.error.partition("\n")[0])
        for node in found.nodes
    ]
    console.table(("NODE", "NAME", "STATE", "NEEDS", "JOB", "ERROR"), rows, right="NODE")
    if found.next:
        click.echo(f"More: --first {found.next}", err=True)


def needs_of(node: NodeView) -> str:
    """The nodes that a node needs, and those whose failure it waits for, in a few words."""
    parts = [number_ranges(node.needs)] if node.needs else []
    if node.watches:
        parts.append(f"failure of {number_ranges(node.watches)}")
    return ", ".join(parts)


@workflows.command(epilog="Example: dayjob workflows cancel w5f1c0a... --yes")
@click.argument("workflow_id", metavar="ID", shell_complete=completions.workflows)
@click.argument("node", required=False, type=click.IntRange(0))
@console.yes_option
@console.options
def cancel(
    workflow_id: str, node: int | None, yes: bool, redis: str | None, namespace: str, as_json: bool
) -> None:
    """End a workflow, or one node and all that need it."""
    with console.opened(redis, namespace) as admin:
        _confirm("cancel", workflow_id, node, yes=yes)
        console.conclude([admin.cancel_workflow(workflow_id, node=node)], as_json=as_json)


@workflows.command(epilog="Example: dayjob workflows retry w5f1c0a... 3 --yes")
@click.argument("workflow_id", metavar="ID", shell_complete=completions.workflows)
@click.argument("node", required=False, type=click.IntRange(0))
@console.yes_option
@console.options
def retry(
    workflow_id: str, node: int | None, yes: bool, redis: str | None, namespace: str, as_json: bool
) -> None:
    """Run the dead and cancelled nodes again, or one node, and then the nodes that need them."""
    with console.opened(redis, namespace) as admin:
        if node is not None:
            _confirm("retry", workflow_id, node, yes=yes)
        console.conclude([admin.retry_workflow(workflow_id, node=node)], as_json=as_json)


@workflows.command(epilog="Example: dayjob workflows skip w5f1c0a... 3 --yes")
@click.argument("workflow_id", metavar="ID", shell_complete=completions.workflows)
@click.argument("node", type=click.IntRange(0))
@console.yes_option
@console.options
def skip(workflow_id: str, node: int, yes: bool, redis: str | None, namespace: str, as_json: bool) -> None:
    """Skip a node that waits, is dead or was cancelled; the nodes that need it no longer wait for it."""
    with console.opened(redis, namespace) as admin:
        _confirm("skip", workflow_id, node, yes=yes)
        console.conclude([admin.skip_node(workflow_id, node=node)], as_json=as_json)


@workflows.command(epilog="Example: dayjob workflows audit w5f1c0a... --repair")
@click.argument("workflow_id", metavar="ID", shell_complete=completions.workflows)
@click.option("--repair", is_flag=True, help="Correct the records of the workflow.")
@console.options
def audit(workflow_id: str, repair: bool, redis: str | None, namespace: str, as_json: bool) -> None:
    """Compare the records of a workflow with where the jobs of its nodes are.

    Every job of the namespace is searched. Exits with 1 if they disagree and nothing was repaired.
    """
    with console.opened(redis, namespace) as admin:
        found = admin.audit_workflow(workflow_id, repair=repair)
    total = counted(found.workflow.total, "node")
    groups.conclude_audit(found, "The workflow and its jobs", total, "Nodes", as_json=as_json)


def _confirm(verb: str, workflow_id: str, node: int | None, *, yes: bool) -> None:
    row = verbs.row("workflow" if node is None else "node", verb)
    what = f"the workflow {workflow_id}" if node is None else f"node {node} of the workflow {workflow_id}"
    console.confirm(f"{row.label} {what}? {row.effect}", yes=yes)
