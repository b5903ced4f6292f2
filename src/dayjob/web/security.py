"""Guard: checks every request before any handler runs: the Host, the user, the origin, the size.

It also catches exceptions of handlers, and adds the same headers to every answer.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import inspect
import ipaddress
import logging
import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dayjob.web.console import ACTOR, ROLE, WebConsole
from dayjob.web.options import Role, WebOptions
from dayjob.web.responses import Refusal, problem
from dayjob.web.throttle import Throttle

logger = logging.getLogger("dayjob.web")

#: The most bytes in the body of a request.
MAX_BODY = 1 << 20
#: Methods that change nothing.
SAFE = ("GET", "HEAD", "OPTIONS")
#: Addresses for health checks, which cannot sign in. They reveal only that the process answers.
PROBES = ("/healthz", "/readyz")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+)(?::(\d{1,5}))?")


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, console: WebConsole) -> None:
        self._app = app
        self._console = console
        self._throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        answering = _Answer(send)
        try:
            scope = _placed(scope, self._console.options.base_path)
            await self._admit(scope)
            await self._app(scope, _bounded(receive), answering)
        except Refusal as refusal:
            await problem(refusal)(scope, receive, answering)
        except ClientDisconnect:
            logger.debug(
                "%s %s: the client left before its request was complete", scope["method"], scope["path"]
            )
        except Exception:  # a bug: the log has the details, the client gets none
            logger.exception("%s %s failed", scope["method"], scope["path"].encode("unicode_escape").decode())
            if answering.begun:
                raise
            fault = Refusal(500, "The console has an internal error.", "See its log.")
            await problem(fault)(scope, receive, answering)

    async def _admit(self, scope: Scope) -> None:
        if scope["path"].removeprefix(scope.get("root_path", "")) in PROBES:
            return
        options = self._console.options
        request = Request(scope)
        _check_host(request.headers, options)
        scope[ROLE], scope[ACTOR] = await _identify(request, options, self._throttle)
        if scope["method"] not in SAFE:
            _check_site(request.headers)
            _check_may_act(scope[ROLE], options)
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MAX_BODY:
            raise _too_large()


def _placed(scope: Scope, base_path: str) -> Scope:
    """The scope relative to the path under which a proxy serves the app. Raises Refusal for any other path."""
    if not base_path:
        return scope
    path, root = scope["path"], scope.get("root_path", "") + base_path
    if path in PROBES:
        return scope
    if path == root:
        path = f"{root}/"
    elif not path.startswith(f"{root}/"):
        raise Refusal(404, "There is nothing here.", f"The console is at {root}/", code="no_such_address")
    return {**scope, "path": path, "root_path": root}


# Host: a page of another site must not be able to read the console by pointing its DNS name here.


def _check_host(headers: Headers, options: WebOptions) -> None:
    named = headers.getlist("host")
    match = _HOST.fullmatch(named[0]) if len(named) == 1 else None
    if match is None:
        raise Refusal(400, "The request has no valid Host header.")
    if not host_allowed(match[1], options.allow_hosts, closed=options.closed):
        raise Refusal(
            421, f"This console does not answer to the name {match[1]!r}.",
            f"Start it with --allow-host {match[1]}, or set allow_hosts in WebOptions.",
        )  # fmt: skip


def host_allowed(host: str, allowed: Collection[str] | None, *, closed: bool) -> bool:
    """Whether the console answers to this name. IP addresses cannot be rebound, so they are accepted with a sign-in."""
    host = host.lower().rstrip(".")
    address = _address(host.strip("[]"))
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    if allowed is None:
        return closed
    names = {name.lower() for name in allowed}
    return "*" in names or host in names or host.strip("[]") in names or (closed and address is not None)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


# The user.


async def _identify(request: Request, options: WebOptions, throttle: Throttle) -> tuple[Role, str]:
    """The role and the name of the user. Raises Refusal."""
    if options.role is not None:
        found = options.role(request)
        role = await found if inspect.isawaitable(found) else found
        if role not in ("viewer", "operator"):
            raise Refusal(403, "You do not have access to this console.", "Ask its operator.")
        user = options.user(request) if options.user is not None else None
        return role, _actor(user or _where(request))
    if options.closed:
        return "operator", _sign_in(request, options, throttle)
    if not all(map(_is_loopback, _passed(request))):
        raise Refusal(
            403, "Without a password, token or role this console answers only requests from its own machine.",
            "Set DAYJOB_WEB_PASSWORD or --password-file; in your own program set role in WebOptions.",
        )  # fmt: skip
    return "operator", _actor(_where(request))


def _sign_in(request: Request, options: WebOptions, throttle: Throttle) -> str:
    """The user with the right password or token. Raises Refusal."""
    given, address = request.headers.get("authorization", ""), _where(request)
    if given:
        wait = throttle.wait(address)
        if wait:
            raise Refusal(
                429, "Too many wrong passwords came from this address.", f"Wait {wait} s, then sign in.",
                {"retry-after": str(wait)},
            )  # fmt: skip
        user = _user(given, options)
        if user is not None:
            return _actor(user)
        throttle.wrong(address)
        logger.warning("a wrong password or token came from %s", address)
    if options.password is not None:
        challenge, hint = (
            'Basic realm="dayjob", charset="UTF-8"',
            "Any user name is accepted with the password.",
        )
    else:
        challenge, hint = 'Bearer realm="dayjob"', "Send the token as Authorization: Bearer ..."
    raise Refusal(401, "Sign in to see this console.", hint, {"www-authenticate": challenge})


def _user(given: str, options: WebOptions) -> str | None:
    """The user, if the password or token is right, else None."""
    scheme, _, credentials = given.partition(" ")
    if scheme.lower() == "bearer" and options.token is not None and _same(credentials.strip(), options.token):
        return "token"
    if scheme.lower() == "basic" and options.password is not None:
        try:
            text = base64.b64decode(credentials.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        user, _, password = text.partition(":")
        if _same(password, options.password):
            return user or "unknown"
    return None


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _passed(request: Request) -> list[str]:
    """The addresses that proxies report for a request. Used only to refuse, because any client can send them."""
    client = [request.client.host] if request.client is not None else []
    forwarded = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    return client + [one.strip() for one in forwarded if one.strip()]


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_loopback


def _where(request: Request) -> str:
    return request.client.host if request.client is not None else "this machine"


def _actor(name: str) -> str:
    """A name for the audit: one line, not too long."""
    shown = "".join(character for character in name if character.isprintable())[:80].strip()
    return f"{shown or 'unknown'} (web)"


# Changes are accepted from this console's own pages and from programs, never from pages of other sites.


def _check_site(headers: Headers) -> None:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        own = site in ("same-origin", "none")
    else:
        own = origin is None or (
            urlsplit(origin).netloc.lower() == headers.get("host", "").lower() and "://" in origin
        )
    if not own:
        raise Refusal(
            403, "This request came from a page of another site. Nothing was changed.",
            "Programs other than browsers send neither Origin nor Sec-Fetch-Site.", code="other_site",
        )  # fmt: skip


def _check_may_act(role: Role, options: WebOptions) -> None:
    if options.read_only:
        raise Refusal(
            403,
            "This console is read-only. Nothing was changed.",
            "Start one without --read-only.",
            code="read_only",
        )
    if role != "operator":
        raise Refusal(403, "You may view, but not change anything. Nothing was changed.", "Ask an operator.")


# Size and headers.


def _too_large() -> Refusal:
    return Refusal(413, f"The request is larger than {MAX_BODY:,} bytes. Nothing was changed.")


def _bounded(receive: Receive) -> Receive:
    taken = 0

    async def bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY:
            raise _too_large()
        return message

    return bounded


class _Answer:
    """Sends an answer with the console's headers."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
            headers.add_vary_header("Accept")
        await self._send(message)
