"""Admin and AsyncAdmin: everything an operator can see or do, as methods. Both run the same steps.

A call takes an idle connection, or opens one if there is none.
"""

from __future__ import annotations

import functools
import getpass
import inspect
import platform
import re
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from dayjob.admin import actions, bulk, transfer
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
from dayjob.admin import limits as limit_steps
from dayjob.admin import metrics as metric_steps
from dayjob.admin import payloads as payload_steps
from dayjob.admin import pools as pool_steps
from dayjob.admin import preview as preview_steps
from dayjob.admin import queues as queue_steps
from dayjob.admin import scale as scale_steps
from dayjob.admin import scrape as scrape_steps
from dayjob.admin import search as search_steps
from dayjob.admin import timeline as timeline_steps
from dayjob.admin import verdict as verdict_steps
from dayjob.admin import waves as wave_steps
from dayjob.admin.minute_cache import MinuteCache
from dayjob.admin.session import Session, read_audit
from dayjob.errors import BadOption
from dayjob.names import check_redis
from dayjob.store import addresses
from dayjob.store.async_link import AsyncLink
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.steps import Steps, awalk, walk

P = ParamSpec("P")
T = TypeVar("T")

#: How many idle connections are kept.
MAX_IDLE = 4


def whoami() -> str:
    """The user of this process and the machine, for the audit."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "unknown"
    return f"{user}@{platform.node() or 'unknown'}"


class _AdminBase:
    """What both share: the namespace, the server, who acts, and what is hidden."""

    def __init__(
        self,
        namespace: str | None = None,
        *,
        redis: str | None = None,
        actor: str | None = None,
        hide: Collection[str] = (),
        show_unannounced: bool | None = None,
    ) -> None:
        self.namespace = addresses.resolve_namespace(namespace)
        self._redis = check_redis(redis)
        keys = Keys(self.namespace)
        if show_unannounced is None:
            show_unannounced = addresses.show_unannounced()
        self._session = Session(keys, actor or whoami(), frozenset(hide), show_unannounced, MinuteCache(keys))
        self._where: list[addresses.Address] = []

    def acting(self, actor: str) -> Self:
        """A copy that acts for another operator. It shares the connections."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._session = replace(self._session, actor=actor)
        return twin

    @property
    def actor(self) -> str:
        """Who acts, as the audit has it."""
        return self._session.actor

    def _address(self) -> addresses.Address:
        if not self._where:
            self._where.append(addresses.parse_url(addresses.connect_target(addresses.resolve(self._redis))))
        return self._where[0]


def _signed(method: Callable[..., Any], steps: Callable[..., Any]) -> None:
    """Give a method the signature of its steps, without the session."""
    found = inspect.signature(steps)
    _, *rest = found.parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    answer = re.sub(r"^Steps\[(.*)\]$", r"\1", str(found.return_annotation))
    method.__signature__ = inspect.Signature([own, *rest], return_annotation=answer)  # type: ignore[attr-defined]


def _sync(
    steps: Callable[Concatenate[Session, P], Steps[T]], name: str
) -> Callable[Concatenate[Admin, P], T]:
    @functools.wraps(steps)
    def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._walk(steps(self._session, *args, **kwargs))

    method.__name__ = name
    _signed(method, steps)
    return method


def _async(
    steps: Callable[Concatenate[Session, P], Steps[T]], name: str
) -> Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]]:
    @functools.wraps(steps)
    async def method(self: AsyncAdmin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._walk(steps(self._session, *args, **kwargs))

    method.__name__ = name
    _signed(method, steps)
    return method


class Admin(_AdminBase):
    """Everything an operator can see or do. Threads may share one. Each read is bounded, however many jobs there are."""

    def __init__(
        self,
        namespace: str = "dayjob",
        *,
        redis: str | None = None,
        actor: str | None = None,
        hide: Collection[str] = (),
        show_unannounced: bool | None = None,
    ) -> None:
        super().__init__(namespace, redis=redis, actor=actor, hide=hide, show_unannounced=show_unannounced)
        self._idle: deque[Link] = deque(maxlen=MAX_IDLE)

    # Views.
    verdict = _sync(verdict_steps.verdict, "verdict")
    queues = _sync(queue_steps.listing, "queues")
    queue_names = _sync(queue_steps.names, "queue_names")
    queue = _sync(queue_steps.detail, "queue")
    pools = _sync(pool_steps.listing, "pools")
    pool = _sync(detail_steps.pool, "pool")
    busy = _sync(pool_steps.busy, "busy")
    stacks = _sync(pool_steps.stacks, "stacks")
    jobs = _sync(list_steps.page, "jobs")
    broken = _sync(list_steps.broken, "broken")
    bin = _sync(bin_steps.listing, "bin")
    job = _sync(job_steps.detail, "job")
    still = _sync(job_steps.still, "still")
    logs = _sync(job_steps.logs, "logs")
    explain = _sync(job_steps.explain, "explain")
    search = _sync(search_steps.search, "search")
    failures = _sync(failure_steps.failures, "failures")
    failure_group = _sync(group_steps.group, "failure_group")
    count = _sync(bulk.count, "count")
    preview = _sync(preview_steps.preview, "preview")
    preview_move = _sync(preview_steps.preview_move, "preview_move")
    preview_purge = _sync(preview_steps.preview_purge, "preview_purge")
    preview_failures = _sync(preview_steps.preview_failures, "preview_failures")
    periodic = _sync(pool_steps.periodic, "periodic")
    schedule = _sync(detail_steps.schedule, "schedule")
    calendar = _sync(calendar_steps.calendar, "calendar")
    job_types = _sync(type_steps.every, "job_types")
    job_type = _sync(type_steps.one, "job_type")
    metrics = _sync(metric_steps.metrics, "metrics")
    spread = _sync(metric_steps.spread, "spread")
    throughput = _sync(metric_steps.throughput, "throughput")
    payloads = _sync(payload_steps.payloads, "payloads")
    vitals = _sync(metric_steps.vitals, "vitals")
    redis = _sync(metric_steps.redis, "redis")
    history = _sync(history_steps.history, "history")
    history_counts = _sync(history_steps.history_counts, "history_counts")
    sources = _sync(history_steps.sources, "sources")
    children = _sync(history_steps.children, "children")
    audit = _sync(read_audit, "audit")
    events = _sync(timeline_steps.timeline, "events")
    marks_for = _sync(timeline_steps.marks_for, "marks_for")
    ping = _sync(scrape_steps.ping, "ping")
    scrape = _sync(scrape_steps.scrape, "scrape")
    scale = _sync(scale_steps.scale, "scale")
    numbered = _sync(numbered_steps.numbered, "numbered")
    at_second = _sync(numbered_steps.at_second, "at_second")

    # Actions on jobs.
    retry = _sync(actions.retry, "retry")
    delete = _sync(actions.delete, "delete")
    kill = _sync(actions.kill, "kill")
    run_now = _sync(actions.run_now, "run_now")
    cancel = _sync(actions.cancel, "cancel")
    selection = _sync(actions.selection, "selection")
    apply = _sync(bulk.apply, "apply")
    apply_to_failures = _sync(bulk.apply_to_failures, "apply_to_failures")
    reschedule = _sync(change_steps.reschedule, "reschedule")
    move = _sync(change_steps.move, "move")
    move_all = _sync(change_steps.move_all, "move_all")
    retry_in_waves = _sync(wave_steps.retry_in_waves, "retry_in_waves")
    enqueue = _sync(actions.enqueue, "enqueue")
    delete_broken = _sync(actions.delete_broken, "delete_broken")
    undo = _sync(bin_steps.undo, "undo")
    repair = _sync(actions.repair, "repair")
    note_group = _sync(group_steps.note_group, "note_group")
    ignore_group = _sync(group_steps.ignore_group, "ignore_group")

    # Actions on pools.
    quiet = _sync(pool_steps.quiet, "quiet")
    resume_pool = _sync(pool_steps.resume, "resume_pool")
    stop = _sync(pool_steps.stop, "stop")

    # Actions on queues and schedules.
    pause = _sync(queue_steps.pause, "pause")
    resume = _sync(queue_steps.resume, "resume")
    pause_matching = _sync(queue_steps.pause_matching, "pause_matching")
    resume_matching = _sync(queue_steps.resume_matching, "resume_matching")
    purge = _sync(queue_steps.purge, "purge")
    limit = _sync(queue_steps.limit, "limit")
    limits = _sync(limit_steps.listing, "limits")
    limit_of = _sync(limit_steps.one, "limit_of")
    set_rate = _sync(limit_steps.set_rate, "set_rate")
    lift_limit = _sync(limit_steps.lift, "lift_limit")
    restore_limit = _sync(limit_steps.restore, "restore_limit")
    reset_limit = _sync(limit_steps.reset, "reset_limit")
    hold_limit = _sync(limit_steps.hold, "hold_limit")
    run_schedule = _sync(pool_steps.run_schedule, "run_schedule")
    pause_schedule = _sync(pool_steps.pause_schedule, "pause_schedule")
    resume_schedule = _sync(pool_steps.resume_schedule, "resume_schedule")

    # Copies of a namespace.
    export = _sync(transfer.export, "export")
    load = _sync(transfer.load, "load")

    def _walk(self, steps: Steps[T]) -> T:
        try:
            link = self._idle.pop()
        except IndexError:
            link = Link(self._address(), tag=self._session.keys.known_jobs, name="dayjob:admin")
        try:
            link.freshen()
            return walk(link, steps)
        except KeyboardInterrupt:
            # The answer may be read in part. The next call must not read the rest.
            link.close()
            raise
        except UnicodeEncodeError as error:
            raise _half_character(error) from None
        finally:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(link)
            else:
                link.close()

    def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _half_character(error: UnicodeEncodeError) -> BadOption:
    """The error for an id or a name that Redis cannot carry. It is raised before anything is sent."""
    return BadOption(
        f"{error.object[:200]!r} has half a character (a lone surrogate): nothing has such a name"
    )


class AsyncAdmin(_AdminBase):
    """The methods of Admin as coroutines. Tasks may share one."""

    def __init__(
        self,
        namespace: str = "dayjob",
        *,
        redis: str | None = None,
        actor: str | None = None,
        hide: Collection[str] = (),
        show_unannounced: bool | None = None,
    ) -> None:
        super().__init__(namespace, redis=redis, actor=actor, hide=hide, show_unannounced=show_unannounced)
        self._idle: deque[AsyncLink] = deque(maxlen=MAX_IDLE)

    # Views.
    verdict = _async(verdict_steps.verdict, "verdict")
    queues = _async(queue_steps.listing, "queues")
    queue_names = _async(queue_steps.names, "queue_names")
    queue = _async(queue_steps.detail, "queue")
    pools = _async(pool_steps.listing, "pools")
    pool = _async(detail_steps.pool, "pool")
    busy = _async(pool_steps.busy, "busy")
    stacks = _async(pool_steps.stacks, "stacks")
    jobs = _async(list_steps.page, "jobs")
    broken = _async(list_steps.broken, "broken")
    bin = _async(bin_steps.listing, "bin")
    job = _async(job_steps.detail, "job")
    still = _async(job_steps.still, "still")
    logs = _async(job_steps.logs, "logs")
    explain = _async(job_steps.explain, "explain")
    search = _async(search_steps.search, "search")
    failures = _async(failure_steps.failures, "failures")
    failure_group = _async(group_steps.group, "failure_group")
    count = _async(bulk.count, "count")
    preview = _async(preview_steps.preview, "preview")
    preview_move = _async(preview_steps.preview_move, "preview_move")
    preview_purge = _async(preview_steps.preview_purge, "preview_purge")
    preview_failures = _async(preview_steps.preview_failures, "preview_failures")
    periodic = _async(pool_steps.periodic, "periodic")
    schedule = _async(detail_steps.schedule, "schedule")
    calendar = _async(calendar_steps.calendar, "calendar")
    job_types = _async(type_steps.every, "job_types")
    job_type = _async(type_steps.one, "job_type")
    metrics = _async(metric_steps.metrics, "metrics")
    spread = _async(metric_steps.spread, "spread")
    throughput = _async(metric_steps.throughput, "throughput")
    payloads = _async(payload_steps.payloads, "payloads")
    vitals = _async(metric_steps.vitals, "vitals")
    redis = _async(metric_steps.redis, "redis")
    history = _async(history_steps.history, "history")
    history_counts = _async(history_steps.history_counts, "history_counts")
    sources = _async(history_steps.sources, "sources")
    children = _async(history_steps.children, "children")
    audit = _async(read_audit, "audit")
    events = _async(timeline_steps.timeline, "events")
    marks_for = _async(timeline_steps.marks_for, "marks_for")
    ping = _async(scrape_steps.ping, "ping")
    scrape = _async(scrape_steps.scrape, "scrape")
    scale = _async(scale_steps.scale, "scale")
    numbered = _async(numbered_steps.numbered, "numbered")
    at_second = _async(numbered_steps.at_second, "at_second")

    # Actions on jobs.
    retry = _async(actions.retry, "retry")
    delete = _async(actions.delete, "delete")
    kill = _async(actions.kill, "kill")
    run_now = _async(actions.run_now, "run_now")
    cancel = _async(actions.cancel, "cancel")
    selection = _async(actions.selection, "selection")
    apply = _async(bulk.apply, "apply")
    apply_to_failures = _async(bulk.apply_to_failures, "apply_to_failures")
    reschedule = _async(change_steps.reschedule, "reschedule")
    move = _async(change_steps.move, "move")
    move_all = _async(change_steps.move_all, "move_all")
    retry_in_waves = _async(wave_steps.retry_in_waves, "retry_in_waves")
    enqueue = _async(actions.enqueue, "enqueue")
    delete_broken = _async(actions.delete_broken, "delete_broken")
    undo = _async(bin_steps.undo, "undo")
    repair = _async(actions.repair, "repair")
    note_group = _async(group_steps.note_group, "note_group")
    ignore_group = _async(group_steps.ignore_group, "ignore_group")

    # Actions on pools.
    quiet = _async(pool_steps.quiet, "quiet")
    resume_pool = _async(pool_steps.resume, "resume_pool")
    stop = _async(pool_steps.stop, "stop")

    # Actions on queues and schedules.
    pause = _async(queue_steps.pause, "pause")
    resume = _async(queue_steps.resume, "resume")
    pause_matching = _async(queue_steps.pause_matching, "pause_matching")
    resume_matching = _async(queue_steps.resume_matching, "resume_matching")
    purge = _async(queue_steps.purge, "purge")
    limit = _async(queue_steps.limit, "limit")
    limits = _async(limit_steps.listing, "limits")
    limit_of = _async(limit_steps.one, "limit_of")
    set_rate = _async(limit_steps.set_rate, "set_rate")
    lift_limit = _async(limit_steps.lift, "lift_limit")
    restore_limit = _async(limit_steps.restore, "restore_limit")
    reset_limit = _async(limit_steps.reset, "reset_limit")
    hold_limit = _async(limit_steps.hold, "hold_limit")
    run_schedule = _async(pool_steps.run_schedule, "run_schedule")
    pause_schedule = _async(pool_steps.pause_schedule, "pause_schedule")
    resume_schedule = _async(pool_steps.resume_schedule, "resume_schedule")

    # Copies of a namespace.
    export = _async(transfer.export, "export")
    load = _async(transfer.load, "load")

    async def _walk(self, steps: Steps[T]) -> T:
        try:
            link = self._idle.pop()
        except IndexError:
            link = AsyncLink(self._address(), tag=self._session.keys.known_jobs, name="dayjob:admin")
        try:
            await link.freshen()
            return await awalk(link, steps)
        except UnicodeEncodeError as error:
            raise _half_character(error) from None
        finally:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(link)
            else:
                await link.close()

    async def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
        while self._idle:
            await self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
