"""Flask: jobs run in the context of the app, `flask dayjob ...` has every command, and the console is a part of the app.

init_app(app, pool, console="/ops/jobs", role=role)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
from flask import Flask, Response, abort, request
from starlette.requests import Request

from dayjob import cli
from dayjob.admin.client import AsyncAdmin
from dayjob.errors import BadOption
from dayjob.pool import WorkerPool
from dayjob.store import addresses
from dayjob.web import WebOptions, create_app
from dayjob.web.options import Role
from dayjob.web.wsgi import ConsoleThread, scope_of

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
#: Where the view leaves the role of the user for the console.
_ROLE = "dayjob.flask.role"


def init_app(
    app: Flask,
    pool: WorkerPool[Any],
    *,
    console: str | None = None,
    role: Callable[[], Role | None] | None = None,
    target: str | None = None,
    **options: Any,
) -> None:
    """Connect a pool with an app, before the pool starts.

    Jobs of the pool run inside `app.app_context()`. `flask dayjob worker` and all other commands use the pool; `target`
    names it for them, such as "shop.app:pool", if it is not a name of the app's own module. `console` is the path of the
    web console; `role` is called in each of its requests and returns "viewer", "operator" or None. Without it only
    requests from this machine are answered. `options` are those of WebOptions. Raises BadOption and NotReady.
    """
    pool.middleware(_in_context(app))
    app.cli.add_command(_command(app, pool, target))
    if console is None:
        if role is not None or options:
            raise BadOption(
                "init_app: role and the options of the console need its path: console='/ops/jobs'"
            )
        return
    root = "/" + console.strip("/")
    if root == "/":
        raise BadOption(f"init_app: console={console!r}: give a path such as '/ops/jobs'")
    thread = ConsoleThread(lambda: _create(pool, role is not None, options))
    view = _view(thread, root, role)
    app.add_url_rule(root + "/", "dayjob_console", view, methods=_METHODS)
    app.add_url_rule(f"{root}/<path:path>", "dayjob_console", view, methods=_METHODS)


def _in_context(app: Flask) -> Callable[[], Iterator[None]]:
    def app_context() -> Iterator[None]:
        with app.app_context():
            yield

    return app_context


# The console.


def _create(pool: WorkerPool[Any], has_roles: bool, options: dict[str, Any]) -> Any:
    if has_roles:
        options = {**options, "role": _known_role}
    admin = AsyncAdmin(pool.namespace, redis=addresses.pool_redis(pool.redis))
    return create_app(admin, options=WebOptions(**options))


def _known_role(asked: Request) -> Role | None:
    role: Role | None = asked.scope[_ROLE]
    return role


def _view(
    thread: ConsoleThread, root: str, role: Callable[[], Role | None] | None
) -> Callable[..., Response]:
    def dayjob_console(path: str = "") -> Response:  # noqa: ARG001 - it is in the environment too
        scope = scope_of(request.environ, root)
        if role is not None:
            scope[_ROLE] = role()
            if scope[_ROLE] is None:
                abort(403)
        answer = thread.answer(scope, request.get_data(cache=False))
        response = Response(answer.body, answer.status)
        response.headers.clear()
        for name, value in answer.headers:
            response.headers.add(name, value)
        return response

    return dayjob_console


# The commands.


def _command(app: Flask, pool: WorkerPool[Any], target: str | None) -> click.Command:
    @click.command(
        "dayjob",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.pass_context
    def dayjob(context: click.Context) -> None:
        """Background jobs: worker, web, top, check, doctor, jobs, ... (flask dayjob --help lists them)."""
        found = target or _found(app, pool)
        cli.main_of(found, context.args, prog="flask dayjob")

    return dayjob


def _found(app: Flask, pool: WorkerPool[Any]) -> str:
    """The pool as the processes of a worker find it. Raises click's UsageError."""
    module = sys.modules.get(app.import_name)
    for name, value in vars(module).items() if module is not None else ():
        if value is pool:
            return f"{app.import_name}:{name}"
    raise click.UsageError(
        f"the pool is not a name of the module {app.import_name!r}, so worker processes could not find it. "
        "Give init_app(app, pool, target='shop.app:pool'): a module that also creates the app"
    )
