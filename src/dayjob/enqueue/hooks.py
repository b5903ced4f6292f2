"""Runs the pool's enqueue hooks around one enqueue call, in sync and async code."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dayjob.middleware import EnqueueHook, FindServer, Outgoing
from dayjob.names import check_headers
from dayjob.options import EnqueueOptions
from dayjob.safe_logging import SafeLogger

logger = SafeLogger("dayjob.enqueue")


@contextmanager
def hooked(
    hooks: Sequence[EnqueueHook],
    name: str,
    count: int,
    options: EnqueueOptions,
    find_server: FindServer = lambda: None,
) -> Iterator[Outgoing]:
    """Run each hook to its `yield`, the first one outermost; then the block; then the rest of each hook.

    What a hook raises before its `yield` reaches the caller, and nothing is sent. What it raises afterwards is logged,
    because the jobs are stored.
    """
    outgoing = Outgoing(name, count, dict(options.headers or {}), server=find_server())
    entered: list[tuple[EnqueueHook, Generator[None]]] = []
    try:
        for hook in hooks:
            running = hook.fn(outgoing)
            # A hook that returns before its yield has nothing to do afterwards.
            if next(running, hook) is not hook:
                entered.append((hook, running))
        yield outgoing
        # The first connection may have found it by sentinels or cluster nodes.
        outgoing.server = find_server()
    except BaseException as error:
        _finish(entered, error)
        raise
    _finish(entered, None)


def with_headers(options: EnqueueOptions, outgoing: Outgoing) -> EnqueueOptions:
    """`options` with the headers that the hooks left. Raises BadOption."""
    return replace(options, headers=check_headers(outgoing.headers, "on_enqueue: headers"))


def _finish(entered: list[tuple[EnqueueHook, Generator[None]]], error: BaseException | None) -> None:
    for hook, running in reversed(entered):
        try:
            if error is None:
                next(running)
            else:
                running.throw(error)
        except StopIteration:
            continue
        except BaseException as problem:
            if problem is not error:
                logger.error("enqueue hook %s failed: %s", hook.location, type(problem).__name__)  # noqa: TRY400
        else:
            running.close()
            logger.error("enqueue hook %s has a second yield; it was ended there", hook.location)
