"""What the shell completes from Redis: names of queues, jobs, schedules, pools, limits and sources, IDs of batches and workflows.

A prompt must never wait for a server: the answer is awaited for a second, no server is started, and every error means
that nothing is completed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from dayjob.admin.client import Admin
    from dayjob.admin.sorting import SortTable

#: Seconds that a shell waits for the names.
WAIT_SECONDS = 1.0
#: How many names are offered.
MAX_NAMES = 200

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Read = Callable[["Admin"], Iterable[str | tuple[str, str]]]


def _from_redis(read: Read) -> Complete:
    """Completes with what `read` finds; a pair has a description, which zsh and fish show."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Here, because every command imports this module and few need these; and before the wait.
        from dayjob.admin import client  # noqa: F401, PLC0415

        found: list[tuple[str, str]] = []

        def ask() -> None:
            # Whatever goes wrong: a shell that completes shows no error.
            try:
                found.extend((one, "") if isinstance(one, str) else one for one in _read(context, read))
            except Exception:
                return

        # A daemon: a name server or a host that does not answer must not hold the shell.
        thread = threading.Thread(target=ask, name="completion", daemon=True)
        thread.start()
        thread.join(WAIT_SECONDS)
        fitting = [one for one in list(found) if one[0].startswith(incomplete) and one[0].isprintable()]
        return [CompletionItem(name, help=text or None) for name, text in fitting[:MAX_NAMES]]

    return complete


def _read(context: click.Context, read: Read) -> Iterable[str | tuple[str, str]]:
    """Read from the server and the namespace that the options on the line, the environment and the file name."""
    from dayjob.admin.client import Admin  # noqa: PLC0415
    from dayjob.store import addresses  # noqa: PLC0415
    from dayjob.store.embedded import server_status  # noqa: PLC0415

    redis: str | None = context.params.get("redis")
    target = addresses.resolve(redis)
    if target.embedded is not None and not server_status(target.embedded).running:
        return ()
    namespace: str = context.params.get("namespace") or addresses.resolve_namespace(None)
    with Admin(namespace, redis=redis) as admin:
        return list(read(admin))


def _queues(admin: Admin) -> Iterable[str]:
    return admin.queue_names()


def _jobs(admin: Admin) -> Iterable[str | tuple[str, str]]:
    announced = {one.name: one.doc for one in admin.job_types()}
    return sorted(
        (*announced.items(), *((name, "") for name in admin.queue_names() if name not in announced))
    )


def _schedules(admin: Admin) -> Iterable[tuple[str, str]]:
    return [(one.name, one.english) for one in admin.periodic()]


def _pools(admin: Admin) -> Iterable[tuple[str, str]]:
    found = admin.pools(workers=False).pools
    return [(one.id, "" if one.status is None else f"{one.status.host}/{one.status.pid}") for one in found]


def _limits(admin: Admin) -> Iterable[tuple[str, str]]:
    return [(one.name, one.allows) for one in admin.limits()]


def _batches(admin: Admin) -> Iterable[tuple[str, str]]:
    return [(one.id, one.description) for one in admin.batches(size=MAX_NAMES).batches]


def _workflows(admin: Admin) -> Iterable[tuple[str, str]]:
    return [(one.id, one.name) for one in admin.workflows(size=MAX_NAMES).workflows]


def _sources(admin: Admin) -> Iterable[str]:
    return [one.source for one in admin.sources().sources]


queues = _from_redis(_queues)
jobs = _from_redis(_jobs)
schedules = _from_redis(_schedules)
pools = _from_redis(_pools)
limits = _from_redis(_limits)
batches = _from_redis(_batches)
workflows = _from_redis(_workflows)
sources = _from_redis(_sources)


def columns(table: SortTable[Any]) -> Complete:
    """Completes the columns of a table, in either direction."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        either = [*table.columns, *(f"-{column}" for column in table.columns)]
        return [CompletionItem(one) for one in either if one.startswith(incomplete)]

    return complete
