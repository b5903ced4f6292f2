"""Which server and which namespace a command is about: the options that say so, and the connection to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from dayjob.pool import WorkerPool
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link

F = TypeVar("F", bound=Callable[..., Any])


def options(fn: F) -> F:
    """Give a command --redis and --namespace."""
    fn = click.option(
        "--namespace", envvar="DAYJOB_NAMESPACE", default="dayjob", show_default=True, help="The namespace.",
    )(fn)  # fmt: skip
    return click.option(
        "--redis", metavar="URL",
        help="The server: a URL, or 'embedded'. Else DAYJOB_REDIS_URL, REDIS_URL, pyproject.toml, or the embedded one.",
    )(fn)  # fmt: skip


def split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of this command that may also be a pool's: those of the call or of a variable, and those of pyproject.toml.

    The pool comes between the two.
    """
    context = click.get_current_context()
    named: dict[str, Any] = {}
    filed: dict[str, Any] = {}
    for name, value in values.items():
        source = context.get_parameter_source(name)
        if value is not None and source not in (None, ParameterSource.DEFAULT):
            (filed if source == ParameterSource.DEFAULT_MAP else named)[name] = value
    if named.get("namespace") == os.environ.get("DAYJOB_NAMESPACE"):
        # `settings` reads the variable itself, and then knows who named it.
        named.pop("namespace", None)
    return named, filed


def of_pool(pool: WorkerPool[Any], redis: str | None, namespace: str | None) -> tuple[str | None, str]:
    """The server and the namespace that a command with a pool is about. Prints a line where pool and file disagree."""
    named, filed = split({"redis": redis, "namespace": namespace})
    for name, own in (("redis", pool.redis), ("namespace", pool.named_namespace)):
        line = "" if name in named else addresses.conflict(name, own, file=filed.get(name))  # type: ignore[arg-type]
        if line:
            click.echo(f"dayjob: {line}", err=True)
    found = addresses.resolve(named.get("redis"), pool=pool.redis, file=filed.get("redis"))
    return (
        # None leaves it to whoever connects, and so the warning that no server was named.
        None if found.origin == addresses.FALLBACK else found.url,
        addresses.resolve_namespace(
            named.get("namespace"), pool=pool.named_namespace, file=filed.get("namespace")
        ),
    )


@contextlib.contextmanager
def connected(redis: str | None, namespace: str) -> Iterator[tuple[Link, Keys]]:
    """A connection for the length of a command. Raises StoreError, UsageError."""
    keys = Keys(namespace)
    address = addresses.parse_url(addresses.connect_target(addresses.resolve(redis)))
    link = Link(address, tag=keys.known_jobs, name="dayjob:cli")
    try:
        yield link, keys
    finally:
        link.close()
