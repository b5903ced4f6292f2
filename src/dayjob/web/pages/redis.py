"""Redis: the health of the server, problems in its settings, and slow commands."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request

from dayjob.admin import sorting
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.metrics import SPANS
from dayjob.admin.views import RedisView
from dayjob.text import span
from dayjob.web import charts
from dayjob.web.order import Order
from dayjob.web.pages import drawings
from dayjob.web.pages.marks import marks
from dayjob.web.pages.paging import part
from dayjob.web.pages.shell import Values, page, whole
from dayjob.web.render import NONE, number, size

#: How many job names the page of payload sizes shows.
MAX_NAMES = 50
_CONFIG = ("appendonly", "appendfsync", "save", "maxmemory-policy", "maxclients", "min-replicas-to-write")


@page("redis.html", "/redis", "Redis")
async def redis(request: Request, admin: AsyncAdmin) -> Values:
    """The health of the server; `hours` is the time of its charts."""
    asked = whole(request, "hours", 1)
    hours = asked if asked in SPANS else 1
    found = await admin.redis()
    pools = await admin.pools(workers=False)
    began = time.perf_counter()
    await admin.audit(size=1)
    trip = time.perf_counter() - began
    info = found.health.info
    return {
        "redis": found, "trip": trip, "server": _server(info), "memory": _whole(info, "used_memory"),
        "idle": _whole(info, "blocked_clients"), "clients": _whole(info, "connected_clients"), "most_memory": _whole(info, "maxmemory"), "ops": _whole(info, "instantaneous_ops_per_sec"),
        "waits": max((pool.status.connection_wait for pool in pools.pools if pool.status), default=None),
        "pictures": drawings.server(await admin.vitals(hours), await marks(request.app.state.console), drawings.to_timeline(request)), "spans": tuple(SPANS), "hours": hours,
        "checks_order": Order.of(request, sorting.CHECKS, "checks"), "slow_order": Order.of(request, sorting.SLOW, "slow"), "facts": _facts(found),
    }  # fmt: skip


@page("payloads.html", "/redis", "Payload sizes")
async def payloads(request: Request, admin: AsyncAdmin) -> Values:
    """How large the payloads of stored jobs are."""
    order = Order.of(request, sorting.PAYLOADS)
    found = await admin.payloads(sort=order.sort)
    labels = [size(step) for step in found.steps]
    picture = charts.columns(
        "Jobs by the size of their payload", "Up to", "Jobs", labels, list(found.steps.values())
    )
    names = part(request, found.names, MAX_NAMES, len(found.names))
    return {"found": found, "names": names, "picture": picture, "now": found.now, "order": order}


def _server(info: dict[str, str]) -> str:
    name = "Valkey" if info.get("server_name") == "valkey" or "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "of an unknown version")
    up = span(_whole(info, "uptime_in_seconds"))
    return f"{name} {version}, {info.get('redis_mode', info.get('server_mode', 'standalone'))}, up {up}."


def _whole(info: dict[str, str], key: str) -> int:
    text = info.get(key, "")
    return int(text) if text.isdecimal() else 0


def _facts(found: RedisView) -> list[tuple[str, Any]]:
    info, config = found.health.info, found.health.config or {}
    facts: list[tuple[str, Any]] = [
        ("role", info.get("role", NONE)), ("peak memory", size(_whole(info, "used_memory_peak"))),
        ("fragmentation", info.get("mem_fragmentation_ratio", NONE)),
        ("evicted keys", number(_whole(info, "evicted_keys"))), ("expired keys", number(_whole(info, "expired_keys"))),
        ("refused connections", number(_whole(info, "rejected_connections"))),
        ("commands in total", number(_whole(info, "total_commands_processed"))),
    ]  # fmt: skip
    return facts + [(key, _setting(config[key])) for key in _CONFIG if key in config]


def _setting(value: str) -> str:
    return number(int(value)) if value.isdecimal() else value or "(empty)"
