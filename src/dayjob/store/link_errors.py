"""Turns errors of the client library into StoreErrors, with advice where a mistake in the URL is likely."""

from __future__ import annotations

import re

import redis

from dayjob.errors import Full, Rejected, StoreError, Unavailable
from dayjob.store.data_folder import RUNTIME

#: What to do about an Unavailable.
NEXT_STEP = "Start that server, or name another with --redis or DAYJOB_REDIS_URL."
#: How error replies start that mean a temporary problem.
PASSING = (
    "LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "UNBLOCKED", "NOREPLICAS", "MISCONF",
    "BUSY", "ERR max number of clients",
)  # fmt: skip
#: Those that mean that the connection leads to the wrong server, or to one that is shutting down.
MISPLACED = ("LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "MOVED", "ASK", "UNBLOCKED")

#: The client library removes the code from replies that it has an exception class for. This maps the class to the code.
_CODES = {
    "BusyLoadingError": "LOADING", "MasterDownError": "MASTERDOWN", "ReadOnlyError": "READONLY",
    "ClusterDownError": "CLUSTERDOWN", "TryAgainError": "TRYAGAIN", "MovedError": "MOVED", "AskError": "ASK",
    "OutOfMemoryError": "OOM", "NoPermissionError": "NOPERM", "NoScriptError": "NOSCRIPT",
    "AuthenticationError": "NOAUTH",
}  # fmt: skip


def reply_text(error: Exception) -> str:
    """An error reply as the server sent it, starting with its code."""
    code = _CODES.get(type(error).__name__)
    text = str(error)
    if code == "NOAUTH" and text.startswith("invalid"):
        code = "WRONGPASS"
    return text if code is None or text.startswith(code) else f"{code} {text}"


def mapped(error: Exception, *, sent: bool, where: str) -> StoreError:
    """Turn an error of the client library into a StoreError. `sent` means that the server may have got the request."""
    if not isinstance(
        error,
        redis.ResponseError
        | redis.AuthenticationError
        | redis.exceptions.BusyLoadingError
        | redis.ReadOnlyError,
    ):
        text = str(error) or (
            "no answer in time"
            if isinstance(error, TimeoutError | redis.exceptions.TimeoutError)
            else type(error).__name__
        )
        advice = _advice(text, where, dialled=not sent)
        # The library's message repeats the address.
        return Unavailable(f"Redis at {where}: {_followed(_ADDRESS.sub('', text), advice)}", sent=sent)
    text = reply_text(error)
    if text.startswith(PASSING):
        return Unavailable(f"Redis at {where} answered: {text}", sent=False)
    if text.startswith("OOM") or "OOM command not allowed" in text:
        return Full(
            f"Redis at {where} is out of memory; nothing was stored. Raise maxmemory or let workers drain it."
        )
    return Rejected(f"Redis at {where} answered: {_followed(text, _advice(text, where, dialled=False))}")


_ADDRESS = re.compile(r"^Error -?\d+ connecting to \S+\. ")


def _followed(text: str, advice: str) -> str:
    sentence = text.rstrip(".")
    return f"{sentence}. {advice}" if advice else sentence


def _advice(text: str, where: str, *, dialled: bool) -> str:
    """Advice for errors that usually come from a mistake in the URL or from a stopped server; else ""."""
    for codes, advice in _ADVICE:
        if any(code in text for code in codes):
            return advice
    if where.startswith(f"unix://{RUNTIME}/dayjob-") and any(sign in text for sign in _CUT):
        return (
            "This embedded server seems to be stopped: `dayjob server start`, in its folder, starts it again."
        )
    if not dialled:
        return ""
    if where.startswith("rediss") and "CERTIFICATE_VERIFY_FAILED" in text:
        return "Name the authority that signed its certificate: rediss://...?ssl_ca_certs=/path/to/ca.pem"
    if where.startswith("rediss") and ("SSL" in text or "Timeout" in text or "reset" in text):
        return "If that port does not speak TLS, write redis:// instead of rediss://."
    if where.startswith("redis:") and ("reset by peer" in text or "closed by server" in text):
        return "If that port speaks TLS, write rediss:// instead of redis://."
    return ""


#: What the client library's messages contain when no server is listening, or the server closed the connection.
_CUT = ("connecting to", "Broken pipe", "closed by server", "reset by peer")

#: Words in an error reply, and what to do about it.
_ADVICE = (
    (("WRONGPASS",), "The user or the password in the URL is wrong; in them write / as %2F, ? as %3F, # as %23, @ as %40."),
    (("NOAUTH",), "It wants a password: write redis://:PASSWORD@host:port/0 or redis://USER:PASSWORD@host:port/0."),
    (("DB index is out of range",), "The number that ends the URL is the database; most servers have 0 to 15."),
)  # fmt: skip


def is_noscript(error: Exception) -> bool:
    """Whether the server does not know the script."""
    return reply_text(error).startswith("NOSCRIPT")


def misplaced(error: Exception) -> bool:
    """Whether the client must locate the server again."""
    return reply_text(error).startswith(MISPLACED)
