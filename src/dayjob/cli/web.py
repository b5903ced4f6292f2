"""`dayjob web`: the console in a browser."""

from __future__ import annotations

import gc
import importlib.util
import ipaddress
import os
from pathlib import Path
from typing import Any

import click

from dayjob.cli import logs, target
from dayjob.errors import UsageError

PORT = 5040


@click.command(epilog="Example: dayjob web --redis redis://localhost:6379/0 --namespace shop")
@target.optional_pool
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="The port; 0 chooses a free one.",
)
@click.option(
    "--password-file", type=click.Path(path_type=Path), metavar="FILE",
    help="Require the password in this file; or set DAYJOB_WEB_PASSWORD.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE",
    help="Accept the token in this file as Authorization: Bearer; or set DAYJOB_WEB_TOKEN.",
)  # fmt: skip
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Also answer to this host name, such as jobs.example.com; '*' for any.",
)
@click.option(
    "--forwarded-allow-ips",
    multiple=True,
    metavar="ADDRESS",
    help="Trust the X-Forwarded-For of a proxy at this address or network, such as 10.0.0.0/8; '*' for any.",
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--base-path", default="", metavar="PATH", help="The path under which a proxy serves the console."
)
@target.pool_options
@click.option(
    "--also",
    multiple=True,
    metavar="NAMESPACE",
    help="Serve this namespace of the same server too, at /ns/NAMESPACE; pages then have a switch.",
)
@click.option(
    "--hide",
    multiple=True,
    metavar="KEY",
    help="Hide arguments of this name, in addition to those that look like secrets.",
)
def web(
    pool: str | None,
    *,
    host: str,
    port: int,
    password_file: Path | None,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    forwarded_allow_ips: tuple[str, ...],
    read_only: bool,
    base_path: str,
    redis: str | None,
    namespace: str | None,
    also: tuple[str, ...],
    hide: tuple[str, ...],
) -> None:
    """Serve the console at http://127.0.0.1:5040.

    MODULE:POOL, such as app.jobs:pool, uses the server and namespace of that pool; or use --redis and --namespace.
    Every option can also be set as a variable, such as DAYJOB_WEB_PORT=8080.

    Without a password or token it listens on this machine only. Ctrl-C stops it.
    """
    _require_modules()
    from dayjob.admin.client import AsyncAdmin  # noqa: PLC0415 - after the check of what it needs
    from dayjob.web import WebOptions, create_app, server  # noqa: PLC0415

    logs.set_up(form="text", warnings_only=True)
    proxies = _proxies(forwarded_allow_ips)
    password = _secret(password_file, "DAYJOB_WEB_PASSWORD", "--password-file")
    token = _secret(token_file, "DAYJOB_WEB_TOKEN", "--token-file")
    if password is None and token is None and not server.is_loopback(host):
        raise UsageError(
            f"--host {host} allows access from other machines, but there is no password.\n"
            "    Set DAYJOB_WEB_PASSWORD or DAYJOB_WEB_TOKEN, or give --password-file or --token-file;\n"
            "    or omit --host and use ssh -L 5040:127.0.0.1:5040"
        )
    if pool is not None:
        from dayjob.cli.load import find_pool  # noqa: PLC0415 - imports the program only where it is named

        redis, namespace = target.of_pool(find_pool(pool), redis, namespace)
    hosts = (host, *allow_host)
    options = WebOptions(
        read_only=read_only,
        password=password,
        token=token,
        allow_hosts=hosts,
        base_path=base_path.rstrip("/"),
    )
    admin = AsyncAdmin(namespace or "dayjob", redis=redis, hide=hide)
    # Done before the first request, to report a bad URL or the use of the embedded server at once.
    admin._address()
    others = [AsyncAdmin(one, redis=redis, hide=hide) for one in also]
    _serve(create_app(admin, options=options, others=others), host, port, options.base_path, proxies)


def _serve(app: Any, host: str, port: int, base_path: str, proxies: list[str]) -> None:
    from dayjob.web import server  # noqa: PLC0415 - after the check of what it needs

    listening = server.listen(host, port)
    where = server.address_of(host, listening.getsockname()[1], base_path)
    _spare_the_collector()
    server.serve(
        app,
        listening,
        ready=lambda: click.echo(f"The console is at {where}  (Ctrl-C stops it)"),
        forwarded_allow_ips=proxies,
    )


def _require_modules() -> None:
    for module in ("starlette", "uvicorn", "jinja2"):
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"the console needs {module}.\n    pip install 'dayjob[web]'")


def _proxies(given: tuple[str, ...]) -> list[str]:
    """The addresses and networks of --forwarded-allow-ips, which may be separated by commas. Raises UsageError."""
    found = [one.strip() for text in given for one in text.split(",") if one.strip()]
    for one in found:
        try:
            if one != "*":
                ipaddress.ip_network(one)
        except ValueError:
            raise UsageError(
                f"--forwarded-allow-ips {one!r} is not an address.\n"
                "    Write one like 10.0.0.7, a network like 10.0.0.0/8, or '*' for any."
            ) from None
    return found


def _secret(path: Path | None, variable: str, option: str) -> str | None:
    """The secret in a file or a variable, without the line end. Raises UsageError, which does not show it."""
    if path is None:
        found = os.environ.get(variable)
        where = variable
    else:
        where = f"{option} {path}"
        try:
            found = path.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError(f"{where} cannot be read: {why}") from None
    if found is not None and not found.strip():
        raise UsageError(f"{where} is empty.\n    Write a password into it, or leave it out.")
    return found


def _spare_the_collector() -> None:
    """Collect garbage rarely, and ignore loaded modules: a page for many pools has a hundred thousand objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
