"""Answers to reads and pages: compressed if the client accepts it. A read is a 304 without a body if the client has the same answer already."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dayjob.web.responses import JSON, plain

#: Bytes below which compressing saves nothing, and above which it is done beside the event loop.
MIN_COMPRESSED_BYTES = 1000
MIN_IN_THREAD = 100_000
#: The fastest level: a list of jobs becomes six times smaller, and little is gained by more.
LEVEL = 1

_WEIGHT = re.compile(r"\s*gzip\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?", re.IGNORECASE)


async def read_answer(request: Request, value: Any) -> Response:
    """A view as the response to a GET."""
    shown = plain(value)
    body = msgspec.json.encode(shown)
    tag = _tag(shown, body)
    headers = {"etag": tag, "vary": "Accept-Encoding"}
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    if len(body) >= MIN_IN_THREAD:
        body, packed = await asyncio.to_thread(compressed, request, body)
    else:
        body, packed = compressed(request, body)
    return Response(body, headers=headers | packed, media_type=JSON)


def compressed(request: Request, body: bytes) -> tuple[bytes, dict[str, str]]:
    """A body as this client takes it, and the header that belongs to it."""
    if len(body) < MIN_COMPRESSED_BYTES or not accepts_gzip(request.headers.get("accept-encoding", "")):
        return body, {}
    # Without a time, so that the same answer has the same bytes.
    return gzip.compress(body, LEVEL, mtime=0), {"content-encoding": "gzip"}


def _tag(shown: Any, body: bytes) -> str:
    """The entity tag of an answer. The time at which it was read does not count, or no two answers would be the same."""
    if isinstance(shown, dict) and "now" in shown:
        body = msgspec.json.encode({name: one for name, one in shown.items() if name != "now"})
    return f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'


def _has(header: str, tag: str) -> bool:
    """Whether an If-None-Match names this tag."""
    named = {one.strip().removeprefix("W/") for one in header.split(",")}
    return "*" in named or tag.removeprefix("W/") in named


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding allows gzip."""
    for part in header.split(","):
        match = _WEIGHT.fullmatch(part)
        if match is not None:
            return match[1] is None or match[1].strip("0.") != ""
    return False
