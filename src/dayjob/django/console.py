"""The console as a Django view: for staff, with live updates under ASGI, and with a page that polls under WSGI."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt
from starlette.applications import Starlette
from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.django.project import project_pool, settings_of_project
from dayjob.store import addresses
from dayjob.web import WebOptions, create_app
from dayjob.web.options import Role
from dayjob.web.streams import ending_streams
from dayjob.web.wsgi import NO_STREAMS, STREAM

T = TypeVar("T")

#: Where the view leaves the role and the name of the user for the console.
ROLE = "dayjob.django.role"
USER = "dayjob.django.user"


@csrf_exempt  # type: ignore[untyped-decorator]  # the console checks the origin of every change itself
@non_atomic_requests  # type: ignore[untyped-decorator]  # the console needs no transaction, and async views cannot have one
async def console(request: HttpRequest, path: str = "") -> HttpResponse:
    """Every page and address of the console. Staff may see it; superusers and those with the permission may act."""
    request.get_host()  # raises DisallowedHost
    user = await request.auser()
    role = await _role_of(user)
    if role is None:
        html = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if html and not user.is_authenticated:
            return redirect_to_login(request.get_full_path(), _login_url())
        raise PermissionDenied
    scope = _scope(request, path)
    scope[ROLE], scope[USER] = role, user.get_username()
    if hasattr(request, "scope"):
        return await _Exchange(_consoles.here(), scope, request.body).answer()
    if path == "events":
        # Django would read the stream to its end before it sends anything. The page polls after this answer.
        return HttpResponse(status=204)
    if STREAM.search(f"/{path}"):
        return HttpResponse(NO_STREAMS, status=501, content_type="text/plain")
    return await _consoles.run(_whole(scope, request.body))


async def _role_of(user: Any) -> Role | None:
    if not (user.is_active and user.is_staff):
        return None
    return "operator" if await user.ahas_perm(settings_of_project().operator) else "viewer"


def _login_url() -> str:
    try:
        url: str = reverse("admin:login")
    except NoReverseMatch:
        url = settings.LOGIN_URL
    return url


def _scope(request: HttpRequest, path: str) -> dict[str, Any]:
    """The request in the form of ASGI, with the path of this view as the root of the console."""
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in request.headers.items()
        if value
    ]
    host, _, port = request.get_host().partition(":")
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": request.method,
        "scheme": request.scheme, "path": request.path, "raw_path": request.path.encode(),
        "root_path": request.path.removesuffix(path).rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1", "replace"), "headers": headers,
        "client": (request.META.get("REMOTE_ADDR") or "127.0.0.1", 0), "server": (host, int(port or 80)),
    }  # fmt: skip


def _create() -> Starlette:
    pool = project_pool()
    options = WebOptions(role=_known_role, user=_known_user)
    return create_app(AsyncAdmin(pool.namespace, redis=addresses.pool_redis(pool.redis)), options=options)


def _known_role(request: Request) -> Role:
    role: Role = request.scope[ROLE]
    return role


def _known_user(request: Request) -> str:
    user: str = request.scope[USER]
    return user


class _Consoles:
    """The console of each event loop, whose connections belong to it. Without one, a thread runs a loop of its own."""

    def __init__(self) -> None:
        self._apps: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Starlette] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Never exited: a server that stops must not wait for an open page.
        self._signals = contextlib.ExitStack()

    def here(self) -> Starlette:
        """The console of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._apps:
            self._apps[loop] = _create()
            self._signals.enter_context(ending_streams([self._apps[loop].state.console]))
        return self._apps[loop]

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` in the thread's loop, from the short-lived loop in which Django runs a view under WSGI."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="dayjob-console", daemon=True).start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


_consoles = _Consoles()


async def _whole(scope: dict[str, Any], body: bytes) -> HttpResponse:
    """The answer of the thread's console, complete."""
    exchange = _Exchange(_consoles.here(), scope, body)
    response = await exchange.answer()
    if response.streaming:
        parts = [part async for part in response.streaming_content]
        whole = HttpResponse(b"".join(parts), status=response.status_code)
        for name, value in response.items():
            whole[name] = value
        return whole
    return response


class _Exchange:
    """One request to the console: runs it as a task, and passes on what it sends."""

    def __init__(self, app: Starlette, scope: dict[str, Any], body: bytes) -> None:
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(maxsize=4)
        self._body: bytes | None = body
        self._task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: Starlette, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._sent.put)  # type: ignore[arg-type]  # Starlette's messages are dicts
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                self._sent.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # Django cancels the task of a client that has left.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def answer(self) -> HttpResponse:
        """The answer: complete, or a stream if the console sends it in parts."""
        try:
            start = await self._sent.get()
            if start is None:
                await self._task  # raises what the console raised
                raise RuntimeError("the console sent no answer")
            first = await self._sent.get()
        except BaseException:
            self._task.cancel()
            raise
        more = first is not None and first.get("more_body", False)
        content = first["body"] if first is not None and "body" in first else b""
        if more:
            response = StreamingHttpResponse(self._parts(content), status=start["status"])
        else:
            response = HttpResponse(content, status=start["status"])
        del response["Content-Type"]
        for name, value in start["headers"]:
            response[name.decode("latin-1")] = value.decode("latin-1")
        if response.get("Content-Type", "").startswith("text/event-stream"):
            # GZipMiddleware would hold events back until it has enough to compress.
            response["Content-Encoding"] = "identity"
        return response

    async def _parts(self, first: bytes) -> AsyncIterator[bytes]:
        try:
            yield first
            while (message := await self._sent.get()) is not None:
                yield message.get("body", b"")
                if not message.get("more_body", False):
                    return
        finally:
            self._task.cancel()
