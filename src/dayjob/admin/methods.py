"""The methods of Admin and AsyncAdmin: one table, in which each method names the steps that it runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from dayjob.admin import actions, batch_audit, bulk, transfer
from dayjob.admin import batches as batch_steps
from dayjob.admin import bin as bin_steps
from dayjob.admin import calendar as calendar_steps
from dayjob.admin import changes as change_steps
from dayjob.admin import details as detail_steps
from dayjob.admin import failures as failure_steps
from dayjob.admin import gocraft as numbered_steps
from dayjob.admin import groups as group_steps
from dayjob.admin import history as history_steps
from dayjob.admin import job_lists as list_steps
from dayjob.admin import job_types as type_steps
from dayjob.admin import jobs as job_steps
from dayjob.admin import keys as key_steps
from dayjob.admin import limits as limit_steps
from dayjob.admin import metrics as metric_steps
from dayjob.admin import payloads as payload_steps
from dayjob.admin import pools as pool_steps
from dayjob.admin import preview as preview_steps
from dayjob.admin import queues as queue_steps
from dayjob.admin import scale as scale_steps
from dayjob.admin import scrape as scrape_steps
from dayjob.admin import search as search_steps
from dayjob.admin import sources as sources_steps
from dayjob.admin import streams as stream_steps
from dayjob.admin import timeline as timeline_steps
from dayjob.admin import verdict as verdict_steps
from dayjob.admin import waves as wave_steps
from dayjob.admin import workflow_audit as workflow_audit_steps
from dayjob.admin import workflows as workflow_steps
from dayjob.admin.session import Session, read_audit
from dayjob.store.steps import Steps

if TYPE_CHECKING:
    from dayjob.admin.client import Admin, AsyncAdmin

P = ParamSpec("P")
T = TypeVar("T")


class Method(Generic[P, T]):
    """Steps as a method, which Admin calls and AsyncAdmin awaits. `client.py` makes a function of it for each class."""

    def __init__(self, steps: Callable[Concatenate[Session, P], Steps[T]]) -> None:
        self.steps = steps

    if TYPE_CHECKING:

        @overload
        def __get__(self, admin: Admin, owner: type) -> Callable[P, T]: ...
        @overload
        def __get__(self, admin: AsyncAdmin, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, admin: None, owner: type) -> Callable[..., Any]: ...
        def __get__(self, admin: Any, owner: type) -> Any: ...


class AdminMethods:
    """What an operator can see or do."""

    # Views.
    verdict = Method(verdict_steps.verdict)
    queues = Method(queue_steps.listing)
    queue_names = Method(queue_steps.names)
    queue = Method(queue_steps.detail)
    pools = Method(pool_steps.listing)
    pool = Method(detail_steps.pool)
    busy = Method(pool_steps.busy)
    stacks = Method(pool_steps.stacks)
    jobs = Method(list_steps.page)
    broken = Method(list_steps.broken)
    bin = Method(bin_steps.listing)
    job = Method(job_steps.detail)
    still = Method(job_steps.still)
    logs = Method(job_steps.logs)
    emitted = Method(stream_steps.emitted)
    explain = Method(job_steps.explain)
    search = Method(search_steps.search)
    batches = Method(batch_steps.listing)
    batch = Method(batch_steps.one)
    workflows = Method(workflow_steps.listing)
    workflow = Method(workflow_steps.one)
    failures = Method(failure_steps.failures)
    failure_group = Method(group_steps.group)
    count = Method(list_steps.count)
    preview = Method(preview_steps.preview)
    preview_move = Method(preview_steps.preview_move)
    preview_purge = Method(preview_steps.preview_purge)
    preview_failures = Method(preview_steps.preview_failures)
    periodic = Method(pool_steps.periodic)
    schedule = Method(detail_steps.schedule)
    calendar = Method(calendar_steps.calendar)
    job_types = Method(type_steps.every)
    job_type = Method(type_steps.one)
    metrics = Method(metric_steps.metrics)
    spread = Method(metric_steps.spread)
    throughput = Method(metric_steps.throughput)
    payloads = Method(payload_steps.payloads)
    vitals = Method(metric_steps.vitals)
    redis = Method(metric_steps.redis)
    history = Method(history_steps.history)
    history_counts = Method(history_steps.history_counts)
    sources = Method(sources_steps.sources)
    source = Method(sources_steps.source)
    children = Method(history_steps.children)
    audit = Method(read_audit)
    events = Method(timeline_steps.timeline)
    marks_for = Method(timeline_steps.marks_for)
    ping = Method(scrape_steps.ping)
    scrape = Method(scrape_steps.scrape)
    scale = Method(scale_steps.scale)
    numbered = Method(numbered_steps.numbered)
    at_second = Method(numbered_steps.at_second)

    # Actions on jobs.
    retry = Method(actions.retry)
    delete = Method(actions.delete)
    kill = Method(actions.kill)
    run_now = Method(actions.run_now)
    cancel = Method(actions.cancel)
    selection = Method(actions.selection)
    apply = Method(bulk.apply)
    apply_to_failures = Method(bulk.apply_to_failures)
    reschedule = Method(change_steps.reschedule)
    move = Method(change_steps.move)
    move_all = Method(change_steps.move_all)
    retry_in_waves = Method(wave_steps.retry_in_waves)
    enqueue = Method(actions.enqueue)
    delete_broken = Method(actions.delete_broken)
    undo = Method(bin_steps.undo)
    repair = Method(actions.repair)
    note_group = Method(group_steps.note_group)
    ignore_group = Method(group_steps.ignore_group)

    # Actions on batches.
    cancel_batch = Method(batch_steps.cancel)
    close_batch = Method(batch_steps.close)
    retry_batch = Method(batch_steps.retry)
    audit_batch = Method(batch_audit.audit)

    # Actions on workflows and their nodes.
    cancel_workflow = Method(workflow_steps.cancel)
    retry_workflow = Method(workflow_steps.retry)
    skip_node = Method(workflow_steps.skip)
    audit_workflow = Method(workflow_audit_steps.audit)

    # Actions on pools.
    quiet = Method(pool_steps.quiet)
    resume_pool = Method(pool_steps.resume)
    stop = Method(pool_steps.stop)

    # Actions on queues and schedules.
    pause = Method(queue_steps.pause)
    resume = Method(queue_steps.resume)
    pause_matching = Method(queue_steps.pause_matching)
    resume_matching = Method(queue_steps.resume_matching)
    purge = Method(queue_steps.purge)
    limit = Method(queue_steps.limit)
    limits = Method(limit_steps.listing)
    limit_of = Method(limit_steps.one)
    set_rate = Method(limit_steps.set_rate)
    lift_limit = Method(limit_steps.lift)
    restore_limit = Method(limit_steps.restore)
    reset_limit = Method(limit_steps.reset)
    hold_limit = Method(limit_steps.hold)
    queue_keys = Method(key_steps.listing)
    set_weight = Method(key_steps.set_weight)
    limit_key = Method(key_steps.limit_key)
    pause_key = Method(key_steps.pause_key)
    resume_key = Method(key_steps.resume_key)
    purge_key = Method(key_steps.purge_key)
    run_schedule = Method(pool_steps.run_schedule)
    pause_schedule = Method(pool_steps.pause_schedule)
    resume_schedule = Method(pool_steps.resume_schedule)

    # Copies of a namespace.
    export = Method(transfer.export)
    load = Method(transfer.load)
