"""The server and the namespace of a command: its options, and the connection."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from dayjob.errors import BadOption
from dayjob.pool import WorkerPool
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.urls import parse_url

F = TypeVar("F", bound=Callable[..., Any])


def options(fn: F) -> F:
    """Give a command --redis and --namespace."""
    fn = click.option(
        "--namespace", envvar="DAYJOB_NAMESPACE", default="dayjob", show_default=True, help="The namespace.",
    )(fn)  # fmt: skip
    return click.option(
        "--redis", metavar="URL",
        help="The server: a URL, or 'embedded'. Default: DAYJOB_REDIS_URL, then REDIS_URL, then pyproject.toml, then the embedded one.",
    )(fn)  # fmt: skip


def pool_options(fn: F) -> F:
    """Give a command that takes MODULE:POOL the options --redis and --namespace, which default to the pool's."""
    fn = click.option(
        "--namespace", envvar="DAYJOB_NAMESPACE",
        help="The namespace. Default: DAYJOB_NAMESPACE, the pool's, pyproject.toml, dayjob.",
    )(fn)  # fmt: skip
    return click.option(
        "--redis", metavar="URL",
        help="The server. Default: DAYJOB_REDIS_URL, the pool's, REDIS_URL, pyproject.toml, embedded.",
    )(fn)  # fmt: skip


def app_option(fn: F) -> F:
    """Give a command with --redis and --namespace the option --app: a pool whose server and namespace it uses."""

    @functools.wraps(fn)
    def command(*args: Any, app: str | None, redis: str | None, namespace: str, **values: Any) -> Any:
        if app is not None:
            from dayjob.cli.load import find_pool  # noqa: PLC0415 - imports the program only where it is named

            redis, namespace = of_pool(find_pool(app), redis, namespace)
        return fn(*args, redis=redis, namespace=namespace, **values)

    return app_flag(command)  # type: ignore[return-value]  # click returns the function that it was given


def optional_pool(fn: F) -> F:
    """Give a command the argument [MODULE:POOL], which can also be given as --app, as for the other commands."""

    @functools.wraps(fn)
    def command(*args: Any, app: str | None, pool: str | None, **values: Any) -> Any:
        return fn(*args, pool=one_pool(pool, app), **values)

    return app_flag(click.argument("pool", metavar="[MODULE:POOL]", required=False)(command))  # type: ignore[return-value]  # as above


def one_pool(argument: str | None, app: str | None) -> str | None:
    """The pool that a command names as its argument or as --app. Raises BadOption for both."""
    if argument is not None and app is not None:
        raise BadOption(f"the pool is given twice, as {argument} and as --app {app}: give one")
    return app if argument is None else argument


#: The bare option. The command decides what to do with the pool.
app_flag = click.option(
    "--app", metavar="MODULE:POOL", help="Use the server and namespace of this pool, such as app.jobs:pool."
)


def split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options that a pool has too: those of the command line or a variable, and those of pyproject.toml.

    The pool's own options come between the two.
    """
    context = click.get_current_context()
    named: dict[str, Any] = {}
    filed: dict[str, Any] = {}
    for name, value in values.items():
        source = context.get_parameter_source(name)
        if value is not None and source not in (None, ParameterSource.DEFAULT):
            (filed if source == ParameterSource.DEFAULT_MAP else named)[name] = value
    if named.get("namespace") == os.environ.get("DAYJOB_NAMESPACE"):
        # `addresses` reads the variable itself, so that it knows where the value came from.
        named.pop("namespace", None)
    return named, filed


def of_pool(pool: WorkerPool[Any], redis: str | None, namespace: str | None) -> tuple[str | None, str]:
    """The server and the namespace of a command with a pool. Prints a line if the pool and the file disagree."""
    named, filed = split({"redis": redis, "namespace": namespace})
    for name, own in (("redis", pool.redis), ("namespace", pool.named_namespace)):
        line = "" if name in named else addresses.conflict(name, own, file=filed.get(name))  # type: ignore[arg-type]
        if line:
            click.echo(f"dayjob: {line}", err=True)
    found = addresses.resolve(named.get("redis"), pool=pool.redis, file=filed.get("redis"))
    return (
        # With None the connection decides, and warns that no server was named.
        None if found.origin == addresses.FALLBACK else found.url,
        addresses.resolve_namespace(
            named.get("namespace"), pool=pool.named_namespace, file=filed.get("namespace")
        ),
    )


@contextlib.contextmanager
def connected(redis: str | None, namespace: str) -> Iterator[tuple[Link, Keys]]:
    """A connection for the duration of a command. Raises StoreError, UsageError."""
    keys = Keys(namespace)
    address = parse_url(addresses.connect_target(addresses.resolve(redis)))
    link = Link(address, tag=keys.known_jobs, name="dayjob:cli")
    try:
        yield link, keys
    finally:
        link.close()
