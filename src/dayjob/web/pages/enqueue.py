"""The enqueue form, built from the type hints that pools announce."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.web.order import Order
from dayjob.web.pages.shell import Values, page
from dayjob.web.render import pretty

#: How many job names are suggested.
MAX_NAMES = 500


@page("enqueue.html", "/enqueue", "Enqueue")
async def enqueue(request: Request, admin: AsyncAdmin) -> Values:
    """The form for `name`; `args` and `source` fill it in."""
    asked = request.query_params
    name = asked.get("name", "")
    order = Order.of(request, sorting.JOB_TYPES)
    kinds = {one.name: one for one in await admin.job_types(sort=order.sort)}
    kind = kinds.get(name)
    given = _object(asked.get("args", ""))
    known = {one.name for one in kind.arguments} if kind else set()
    rest = {key: value for key, value in given.items() if key not in known}
    names = sorted({*kinds, *await admin.queue_names()})
    return {
        "name": name, "names": names[:MAX_NAMES], "order": order, "kind": kind, "kinds": list(kinds.values()), "given": given,
        "rest": pretty(rest) if rest else "", "source": asked.get("source", ""),
        "hidden": _list(asked.get("hidden", "")), "large": _list(asked.get("large", "")), "taken": _list(asked.get("taken", "")),
    }  # fmt: skip


def _list(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str]) if text else []
    except (msgspec.MsgspecError, UnicodeError):
        return []


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError):
        found = {}
    return found if isinstance(found, dict) else {}
