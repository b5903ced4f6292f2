"""Which names and texts are valid: of jobs, namespaces, headers and servers. Also suggests the name that was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dayjob.errors import BadOption

#: Control characters, and those that change the direction of text: they can alter a terminal or disguise a name.
_CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"

#: The excluded characters keep a key such as `jobs:<name>:paused` from being another job's queue.
JOB_NAME = re.compile(rf"[^\s:/|{{}}{_CONTROLS}]{{1,200}}")

#: Spaces and line ends are excluded because they are usually typing mistakes and would make another namespace.
NAMESPACE = re.compile(rf"[^\s{_CONTROLS}]*")

#: A lone surrogate, such as `os.fsdecode` returns for bytes that are not UTF-8. Redis keys and JSON cannot hold it.
_SURROGATE = re.compile(r"[\ud800-\udfff]")

#: The name of a header of a job.
HEADER_NAME = re.compile(r"[a-z0-9_.-]{1,64}")
#: The names and values of all headers of a job together.
MAX_HEADER_BYTES = 4096


def check_headers(headers: Any, where: str) -> dict[str, str]:
    """A copy of `headers` if they can travel with a job. Raises BadOption, which names `where`."""
    if not isinstance(headers, Mapping):
        raise BadOption(f"{where}: give a dict of strings, such as {{'request-id': '7f3a'}}")
    for name, value in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise BadOption(f"{where}: {name!r} is no name: use 1 to 64 of a-z, 0-9, '-', '_' and '.'")
        if not isinstance(value, str):
            raise BadOption(f"{where}: {name!r} must be a string, not {type(value).__name__}")
        check_text(value, f"{where}: {name!r}")
    size = sum(len(name) + len(value.encode()) for name, value in headers.items())
    if size > MAX_HEADER_BYTES:
        raise BadOption(f"{where}: {size:,} bytes are too many; the limit is {MAX_HEADER_BYTES:,}")
    return dict(headers)


def check_text(text: str, where: str) -> str:
    """Return `text` if it is a string that Redis and JSON can store. Raises BadOption, which names `where`."""
    if not isinstance(text, str):
        raise BadOption(f"{where}: {text!r} is a {type(text).__name__}, not a string")
    if not text.isascii() and _SURROGATE.search(text):
        raise BadOption(f"{where}: {text!r} has half a character (a lone surrogate), which cannot be stored")
    return text


def check_name(name: str) -> str:
    """Return `name` if it is a valid job name. Raises BadOption."""
    if not isinstance(name, str) or not JOB_NAME.fullmatch(name) or _SURROGATE.search(name):
        raise BadOption(
            f"job name {name!r}: use 1 to 200 characters without spaces, control characters, ':', '/', '|', '{{' or '}}' "
            "('mail.send' and 'send-mail' are fine)"
        )
    return name


def check_namespace(namespace: str) -> str:
    """Return `namespace` if it is valid. Raises BadOption."""
    if not isinstance(namespace, str):
        raise BadOption(f"namespace={namespace!r}: give a string")
    if len(namespace) > 200 or not NAMESPACE.fullmatch(namespace) or _SURROGATE.search(namespace):
        meant = re.sub(rf"[\s{_CONTROLS}\ud800-\udfff]+", "-", namespace.strip())[:60]
        raise BadOption(
            f"namespace {namespace[:60]!r}: use up to 200 characters without blanks or line ends, and without control characters"
            + (f", such as {meant!r}" if meant else "")
        )
    return namespace


def check_redis(redis: str | None, name: str = "redis") -> str | None:
    """Return `redis` if it is a string or None. Raises BadOption, without the value: a client may show its password."""
    if redis is not None and not isinstance(redis, str):
        raise BadOption(
            f"{name} is of type {type(redis).__name__}: give a URL like 'redis://localhost:6379/0', or 'embedded'"
        )
    return redis


def suggest(key: str, known: Sequence[str]) -> str:
    """A "Did you mean" question for an error about `key`, or "" when no known name is similar."""
    near = difflib.get_close_matches(key, known, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""
