"""Observer: builds the status of the pool and its workers for operators. It only reads."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from dayjob.handlers.redact import secrets_in, shown, without
from dayjob.job import new_id
from dayjob.options import PoolOptions
from dayjob.store import codec
from dayjob.version import __version__
from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.executors import Executors
from dayjob.worker.service import Service
from dayjob.worker.state import PoolState

#: Seconds after which a running attempt is shown individually. Shorter ones are only counted.
SHOWN_AFTER_SECONDS = 0.5
#: Bytes of arguments that are shown. Longer arguments are replaced by their size.
MAX_ARGS_BYTES = 2000
#: Workers that a status shows individually.
MAX_SHOWN = 200


class Observer:
    """Builds the status of one pool."""

    def __init__(
        self,
        state: PoolState,
        executors: Executors,
        options: PoolOptions,
        names: list[str],
        services: Callable[[], list[Service]],
        tag: str,
        *,
        schedules: list[str],
        connections: Callable[[], int],
        waited: Callable[[], float],
        blocked: Callable[[], tuple[float, Attempt | None] | None],
        async_names: list[str],
        signatures: list[str],
        supervised: bool,
    ) -> None:
        #: Returns how long the event loop has been blocked, and by which attempt.
        self._blocked = blocked
        self._async_names = async_names
        self._signatures = signatures
        #: Return how many connections are open, and the longest wait for the shared one.
        self._connections = connections
        self._waited = waited
        self._state = state
        self._executors = executors
        self._options = options
        self._names = names
        self._schedules = schedules
        self._services = services
        self._tag = tag
        self._started_at = time.time()
        self._host = socket.gethostname()
        #: A random id for each worker, as in gocraft.
        self.worker_ids = [new_id() for _ in range(options.concurrency)]
        #: Whether a parent process can replace this one.
        self._supervised = supervised

    def busy(self) -> bool:
        """Whether attempts run that the status shows individually."""
        now = time.monotonic()
        return any(now - attempt.started_at > SHOWN_AFTER_SECONDS for attempt in self._executors.running())

    def status(self) -> bytes:
        """The pool's status as JSON."""
        now = time.monotonic()
        running = self._executors.running()
        counts: dict[str, int] = {}
        for attempt in running:
            counts[attempt.name] = counts.get(attempt.name, 0) + 1
        long = [attempt for attempt in running if now - attempt.started_at > SHOWN_AFTER_SECONDS]
        threads, threads_busy = self._executors.threads()
        return msgspec.json.encode(
            {
                "id": self._state.pool_id,
                "host": self._host,
                "pid": os.getpid(),
                "tag": self._tag,
                "version": __version__,
                "python": ".".join(map(str, sys.version_info[:3])),
                "started_at": self._started_at,
                "beat_at": self._state.clock.now(),
                "beat": self._options.beat,
                "concurrency": self._options.concurrency,
                "threads": threads,
                "threads_busy": threads_busy,
                "stuck": sum(map(_stuck, running)),
                "loop_blocked": self._loop_blocked(),
                "names": self._names,
                "async_names": self._async_names,
                "schedules": self._schedules,
                "signatures": self._signatures,
                "quiet": self._state.quiet,
                "stopping": self._state.stopping,
                "supervised": self._supervised,
                "leads": self._state.leads,
                "held": len(self._state.held),
                "running": counts,
                "workers": [self._worker(attempt, now) for attempt in long[:MAX_SHOWN]],
                "worker_ids": self.worker_ids[:MAX_SHOWN],
                "rss": resident(),
                "exchanges": self._state.exchanges,
                "connections": self._connections(),
                "connection_wait": round(self._waited(), 4),
                "fetched": self._state.fetched,
                "loops": {service.name: round(now - service.beaten_at, 1) for service in self._services()},
            }
        )

    def _loop_blocked(self) -> dict[str, Any] | None:
        found = self._blocked()
        if found is None:
            return None
        seconds, attempt = found
        return {
            "since": self._state.clock.now() - seconds,
            "name": attempt.name if attempt else "",
            "id": attempt.wire.id if attempt else "",
        }

    def _worker(self, attempt: Attempt, now: float) -> dict[str, Any]:
        wire = attempt.wire
        args: Any = None
        checkin = attempt.checkin_text
        size = len(bytes(wire.args))
        if size > MAX_ARGS_BYTES:
            # Large arguments are not parsed, because this runs every second for every worker. So redacted values
            # cannot be removed from the check-in.
            args = {"...": f"{size:,} bytes"}
        else:
            with contextlib.suppress(*codec.UNREADABLE):
                value, hide = codec.json_value(wire.args), attempt.job_type.options.redact
                args = shown(value, hide)
                checkin = without(checkin, secrets_in(value, hide)) if checkin else checkin
        age = now - attempt.started_at
        return {
            "worker_id": self.worker_ids[attempt.worker]
            if 0 <= attempt.worker < len(self.worker_ids)
            else "",
            "token": attempt.token,
            "name": attempt.name,
            "id": wire.id,
            "source": wire.source,
            "args": args,
            "attempt": 1 + wire.fails + wire.deaths + wire.snoozes,
            "started_at": self._state.clock.now() - age,
            "timeout": attempt.job_type.options.timeout,
            "stuck": _stuck(attempt),
            "lost": attempt.lost,
            "cancelled": attempt.cancelled,
            "checkin": checkin,
            "checkin_at": self._state.clock.now() - (now - attempt.checkin_at)
            if attempt.checkin_at
            else None,
            "done": attempt.progress,
            "total": attempt.total,
        }


def _stuck(attempt: Attempt) -> bool:
    """Whether the attempt passed its timeout and was settled as failed, but its thread does not end."""
    return attempt.timed_out and attempt.settled


def resident() -> int:
    """The memory of this process in bytes; 0 if it is not available."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - read once a beat
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
