"""The real console, under the real server program, on a port of its own, against a real Redis."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from dayjob.admin.client import Admin, AsyncAdmin
from dayjob.web import WebOptions, create_app
from dayjob.web.pages import shell
from dayjob.web.server import ConsoleServer, listen
from server import wait_until


@dataclass
class RunningConsole:
    """A console that is served."""

    #: Where it is, without a slash at the end; with the path it is mounted under.
    url: str
    namespace: str
    #: Looks at and changes the same namespace, without the console.
    admin: Admin
    app: Starlette
    server: uvicorn.Server
    #: Headers that sign in, where that is needed.
    headers: dict[str, str] = field(default_factory=dict)

    def client(self, **options: Any) -> httpx.Client:
        """A client of it; close it, or use it in a `with`."""
        # Without TLS there is nothing to verify, and reading the authorities takes longer than most tests.
        return httpx.Client(
            **{"base_url": self.url, "headers": self.headers, "timeout": 60.0, "verify": False, **options}
        )

    @functools.cached_property
    def _own(self) -> httpx.Client:
        return self.client()

    def get(self, path: str, **options: Any) -> httpx.Response:
        """What it answers now, and not what pages read up to five seconds ago and share."""
        for cached in list(shell.page_caches.get(self.app.state.console, {}).values()):
            cached.read_at = float("-inf")
        return self._own.get(path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self._own.post(path, json={} if body is None else body, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._own.request(method, path, **options)

    def close(self) -> None:
        self._own.close()

    def api(self, path: str, **parameters: Any) -> Any:
        """What GET /api/v1<path> answers; it must be 200."""
        answer = self.get(f"/api/v1{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def serving(
    app: Starlette, *, mounted: Starlette | None = None, config: uvicorn.Config | None = None
) -> Iterator[tuple[str, uvicorn.Server]]:
    """Serve an app on a free port for the length of a block; `mounted` is the console where it is not the app itself."""
    listening = listen("127.0.0.1", 0)
    kind = ConsoleServer if mounted is None else uvicorn.Server
    server = kind(
        config
        or uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=3, ws="none", lifespan="on"
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="console")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()
        assert not thread.is_alive(), "the console did not stop"


@contextlib.contextmanager
def running_console(
    redis_url: str,
    namespace: str,
    options: WebOptions | None = None,
    *,
    hide: tuple[str, ...] = (),
    headers: dict[str, str] | None = None,
    show_unannounced: bool = True,
) -> Iterator[RunningConsole]:
    """A console over a namespace, with options of its own."""
    # Most of these namespaces have no pool that would announce the job types whose arguments are to be seen.
    shown = AsyncAdmin(namespace, redis=redis_url, hide=hide, show_unannounced=show_unannounced)
    app = create_app(shown, options=options)
    with (
        Admin(namespace, redis=redis_url, actor="test", show_unannounced=show_unannounced) as admin,
        serving(app) as (url, server),
    ):
        base = options.base_path if options else ""
        found = RunningConsole(url + base, namespace, admin, app, server, headers or {})
        try:
            yield found
        finally:
            found.close()


@pytest.fixture
def console(redis_url: str, namespace: str) -> Iterator[RunningConsole]:
    with running_console(redis_url, namespace) as found:
        yield found


# A browser, for the tests that drive one. Open for one module: while it is, its event loop is this thread's.


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from web.browser import launched

    with launched() as found:
        yield found


@pytest.fixture
def tab(chromium: Any, console: RunningConsole) -> Iterator[Any]:
    """A tab on the console; what its page complains of fails the test."""
    from web.browser import window

    with window(chromium, console.url) as found:
        yield found
        assert not found.complaints
