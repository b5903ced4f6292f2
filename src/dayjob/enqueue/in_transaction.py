"""Jobs that are enqueued in a database transaction: an outbox keeps them as rows of it until it is committed."""

from __future__ import annotations

from msgspec.structs import replace

from dayjob.enqueue.builder import Builder
from dayjob.errors import BadOption
from dayjob.options import Commit, EnqueueOptions
from dayjob.store.ops.produce import NewJob, When
from dayjob.transactions import TransactionOutbox


def keep_in_transaction(
    outbox: TransactionOutbox | None, builder: Builder, new_jobs: list[NewJob], options: EnqueueOptions
) -> tuple[list[NewJob], Commit | None]:
    """The jobs, and the commit that they wait for: that of the session's transaction, or of the options if none is open.

    Raises BadOption.
    """
    if outbox is None:
        raise BadOption("using(session=...) needs an outbox: WorkerPool(outbox=Outbox(engine))")
    if options.commit_given:
        return new_jobs, options.on_commit
    named = [replace(one, chosen=True, when=_fixed(one)) for one in new_jobs]
    testing = builder.sink is not None
    commit = outbox.commit_of(options.session, builder.keys.namespace, named, testing=testing)
    if commit is None:
        return new_jobs, options.on_commit
    if new_jobs and new_jobs[0].batch:
        raise BadOption("a job that an outbox keeps cannot join a batch: start the batch after the commit")
    return named, commit


def _fixed(new_job: NewJob) -> When:
    """When a job of an outbox runs. A delay counts from the enqueue, not from when its row is sent."""
    due = new_job.job.scheduled_at
    return new_job.when if due is None else When("at", round(due * 1000))
