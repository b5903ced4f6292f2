"""Which server and which namespace a command is about: the options that say so, and the connection to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from dayjob import settings
from dayjob.store.keys import Keys
from dayjob.store.sync import Link

F = TypeVar("F", bound=Callable[..., Any])


def options(fn: F) -> F:
    """Give a command --redis and --namespace."""
    fn = click.option(
        "--namespace", envvar="DAYJOB_NAMESPACE", default="dayjob", show_default=True, help="The namespace.",
    )(fn)  # fmt: skip
    return click.option(
        "--redis", metavar="URL",
        help="The server: a URL, or 'embedded'. Otherwise DAYJOB_REDIS_URL, then REDIS_URL, then the embedded one.",
    )(fn)  # fmt: skip


@contextlib.contextmanager
def connected(redis: str | None, namespace: str) -> Iterator[tuple[Link, Keys]]:
    """A connection for the length of a command. Raises StoreError, UsageError."""
    keys = Keys(namespace)
    address = settings.parse_url(settings.connect_target(settings.resolve(redis)))
    link = Link(address, tag=keys.known_jobs, name="dayjob:cli")
    try:
        yield link, keys
    finally:
        link.close()
