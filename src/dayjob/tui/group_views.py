"""The views of batches and workflows."""

from __future__ import annotations

from dayjob.admin.client import AsyncAdmin
from dayjob.tui import actions, render_groups
from dayjob.tui.sheet import Sheet
from dayjob.tui.view import SIZE, Open, ReadOptions, View


async def batches(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    """The batches, the newest first."""
    return render_groups.batches(await admin.batches(offset=options.place, size=SIZE, sort=options.sort))


def batch(batch_id: str) -> View:
    """One batch with its callbacks and the batches nested in it."""

    async def read(admin: AsyncAdmin, _: ReadOptions) -> Sheet:
        return render_groups.batch(await admin.batch(batch_id))

    return View(f"batch {batch_id}", read, opens=lambda one: batch(one.id))


async def workflows(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
    """The workflows, the newest first."""
    return render_groups.workflows(await admin.workflows(offset=options.place, size=SIZE, sort=options.sort))


def workflow(workflow_id: str, opens: Open) -> View:
    """One workflow with its nodes, each of which opens its job."""

    async def read(admin: AsyncAdmin, options: ReadOptions) -> Sheet:
        return render_groups.workflow(await admin.workflow(workflow_id, first=options.place))

    return View(f"workflow {workflow_id}", read, actions.nodes_of(workflow_id), opens)
