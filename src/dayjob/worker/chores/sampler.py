"""Sampler: stores once a minute what no counter keeps: how old the oldest jobs are, the state of the server, and how many workers are busy.

A chore of the leader. Harmless if two pools do it: both store what they saw in the same fields.
"""

from __future__ import annotations

from dayjob.errors import Full, Rejected
from dayjob.safe_logging import SafeLogger
from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import figures, health, inspect, maintain, pools
from dayjob.store.steps import Steps
from dayjob.worker.shared_link import SharedLink

logger = SafeLogger("dayjob.worker.chores.sampler")

#: Fields of INFO to the names of their measures.
_SERVER = {
    "used_memory": "memory",
    "maxmemory": "max_memory",
    "connected_clients": "clients",
    "instantaneous_ops_per_sec": "commands",
}


class Sampler:
    """Stores the measures of each minute."""

    def __init__(self, keys: Keys, link: SharedLink) -> None:
        self._keys = keys
        self._link = link

    def sample(self, minute: int) -> None:
        """Store the measures of the minute that begins."""
        try:
            measures = self._round_trips(minute - 1) | self._sizes() | self._workers() | self._server()
            walk(self._link, figures.keep_measures(self._keys, minute, self._ages(), measures))
        except (Full, Rejected) as error:
            # Charts have a gap then. For example, this Redis user may not read a key, or a key has a wrong type.
            logger.error("the measures of this minute are not stored: %s", error)  # noqa: TRY400

    def _ages(self) -> dict[str, int]:
        """Milliseconds that the oldest job of each queue has waited."""
        overview = walk(self._link, inspect.all_queues(self._keys))
        return {one.name: round(one.age * 1000) for one in overview.queues if one.age is not None}

    def _round_trips(self, minute: int) -> dict[str, int]:
        """The median and the slow end of the exchanges of a minute, in microseconds."""
        trips = self._link.run(figures.round_trips(self._keys, minute))
        found = {"trip_p50": trips.quantile(0.5), "trip_p99": trips.quantile(0.99)}
        return {name: round(seconds * 1e6) for name, seconds in found.items() if seconds is not None}

    def _sizes(self) -> dict[str, int]:
        places = {"scheduled": self._keys.scheduled, "retry": self._keys.retry, "dead": self._keys.dead}
        sizes = walk(self._link, inspect.known_sizes([maintain.size(key) for key in places.values()]))
        return {name: size for name, size in zip(places, sizes, strict=True) if size >= 0}

    def _workers(self) -> dict[str, int]:
        live = walk(self._link, pools.pools(self._keys))
        statuses = [pool.status for pool in live if pool.status is not None and pool.lease > 0]
        return {
            "workers": sum(status.concurrency for status in statuses),
            "busy": sum(min(status.in_use, status.concurrency) for status in statuses),
        }

    def _server(self) -> dict[str, int]:
        info = walk(self._link, _info())
        return {name: int(info[field]) for field, name in _SERVER.items() if info.get(field, "").isdecimal()}


def _info() -> Steps[dict[str, str]]:
    try:
        return (yield from health.read_info())
    except Rejected:
        # Managed servers may refuse INFO.
        return {}
