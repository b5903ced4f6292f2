"""Receivers of alerts: webhooks and Slack, over plain HTTP. Redirects are not followed, and addresses are never shown whole.

The path of such an address is often a secret: only its host is logged, and Redis has a digest of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ssl
import time
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from dayjob.admin.alerts import Alert
from dayjob.errors import BadOption
from dayjob.version import __version__

#: Seconds for connecting, and for each further step of a request.
TIMEOUT_SECONDS = 10.0
#: Bytes of an answer that are read.
MAX_ANSWER_BYTES = 1000
#: Statuses with which a receiver refuses a message for good: it would refuse it again.
REFUSED = (400, 413, 422)

_MARKS = {
    "ok": ":white_check_mark:",
    "notice": ":information_source:",
    "warning": ":warning:",
    "error": ":red_circle:",
}


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one request."""

    outcome: Literal["accepted", "refused", "failed"]
    #: Why it was not accepted.
    why: str = ""


@dataclass(frozen=True, slots=True)
class Receiver:
    """One address that alerts are posted to."""

    kind: Literal["webhook", "slack"]
    url: str = field(repr=False)
    #: Signs the messages to a webhook; "" for none.
    secret: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        """Names its messages in Redis, without its address."""
        return hashlib.sha256(f"{self.kind} {self.url}".encode()).hexdigest()[:24]

    @property
    def label(self) -> str:
        """Its kind and host, for logs."""
        return f"{self.kind} {host_of(self.url)}"

    def body(self, alert: Alert) -> bytes:
        """What is posted."""
        return msgspec.json.encode(alert if self.kind == "webhook" else {"text": slack_text(alert)})

    def headers(self, alert: Alert, body: bytes) -> dict[str, str]:
        """The headers of a request, with a signature if there is a secret."""
        found = {
            "Content-Type": "application/json",
            "User-Agent": f"dayjob/{__version__}",
            "Connection": "close",
        }
        if self.kind == "webhook":
            found["Dayjob-Alert"] = alert.id
            if self.secret:
                found["Dayjob-Signature"] = signature(self.secret, int(time.time()), body)
        return found

    def deliver(self, alert: Alert) -> Delivery:
        """Post an alert once. Never raises for what the receiver or the network does."""
        body = self.body(alert)
        parts = urlsplit(self.url)
        try:
            with contextlib.closing(_connection(parts)) as connection:
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("POST", path, body, self.headers(alert, body))
                answer = connection.getresponse()
                answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Delivery("failed", f"{type(error).__name__}: {error}".partition("\n")[0][:200])
        if 200 <= answer.status < 300:
            return Delivery("accepted")
        why = f"it answered {answer.status}"
        if 300 <= answer.status < 400:
            why += ", and redirects are not followed"
        return Delivery("refused" if answer.status in REFUSED else "failed", why)


def _connection(parts: SplitResult) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_SECONDS, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_SECONDS)


def signature(secret: str, moment: int, body: bytes) -> str:
    """`t=<seconds>,v1=<hex>`: HMAC-SHA256 of the seconds, a dot and the body. A receiver compares it, and refuses old ones."""
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
    return f"t={moment},v1={digest.hexdigest()}"


def slack_text(alert: Alert) -> str:
    """An alert in Slack's markup."""
    mark = _MARKS["ok" if alert.state == "resolved" else alert.level]
    text = f"{mark} *{_escaped(alert.namespace)}*: {_escaped(alert.text)}"
    return (
        f"{text}\n<{alert.link.replace('|', '%7C').replace('>', '%3E')}|Open the console>"
        if alert.link
        else text
    )


def _escaped(text: str) -> str:
    # Slack reads these three as markup: a name such as <!channel> would notify everyone.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def host_of(url: str) -> str:
    """The scheme and host of an address, which may be shown."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "(not an address)"


def check_url(url: str, option: str) -> str:
    """An address to post to. Raises BadOption, which does not quote it: it may contain a secret."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise BadOption(f"{option}: write an address that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise BadOption(
            f"{option}: the address must not have a user or password\n    Sign messages instead: set DAYJOB_WATCH_SECRET"
        )
    return url
