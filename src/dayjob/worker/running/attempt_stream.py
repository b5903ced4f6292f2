"""What attempts emit: kept until the next exchange, which is made soon for that."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dayjob.errors import BadArguments, NotReady, TooLarge
from dayjob.handlers.redact import secrets_in, without
from dayjob.store import codec, fork
from dayjob.store.ops.streams import StreamPart

if TYPE_CHECKING:
    from dayjob.worker.running.attempt import Attempt

#: The most that one attempt can emit, and one value of it.
MAX_VALUES, MAX_BYTES, MAX_VALUE_BYTES = 50_000, 1 << 20, 1 << 16
#: Seconds between two exchanges that are made for nothing but emitted values. The first value is sent at once.
EMIT_SECONDS = 0.04


class AttemptStream:
    """What one attempt emits. Its handler may use several threads."""

    __slots__ = ("_attempt", "_begun", "_count", "_lock", "_secrets", "_size", "_unsent")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._unsent: list[bytes] = []
        self._begun = False
        self._count = self._size = 0
        self._secrets: list[str] | None = None

    def add(self, value: Any) -> bool:
        """Keep a value for the next exchange. Returns whether it is the first that waits. Raises BadArguments, TooLarge."""
        name = self._attempt.name
        try:
            raw = self._attempt.job_type.type.encode_value(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadArguments(f"{name}: emit: the value cannot be written as JSON: {error}") from None
        if len(raw) > MAX_VALUE_BYTES:
            raise TooLarge(
                f"{name}: emit: the value has {len(raw):,} bytes as JSON, the limit is {MAX_VALUE_BYTES:,}. Emit it in parts."
            )
        with self._lock:
            if self._count >= MAX_VALUES or self._size + len(raw) > MAX_BYTES:
                raise TooLarge(
                    f"{name}: emit: an attempt can emit {MAX_VALUES:,} values and {MAX_BYTES:,} bytes as JSON. "
                    "Emit less, or larger parts, and return the rest as the result."
                )
            self._count += 1
            self._size += len(raw)
            self._unsent.append(raw)
            return len(self._unsent) == 1

    def take(self) -> StreamPart:
        """The values that were not sent yet, for an exchange."""
        attempt = self._attempt
        with self._lock:
            unsent, self._unsent = self._unsent, []
            begins, self._begun = bool(unsent) and not self._begun, self._begun or bool(unsent)
        values = b"\n".join(unsent)
        shown = self._redacted(values)
        return StreamPart(
            attempt.id, attempt.name, attempt.attempt, values, b"" if shown == values else shown, begins,
            int((attempt.keeps_result() or 0) * 1000),
        )  # fmt: skip

    @property
    def begun(self) -> bool:
        """Whether values were taken for an exchange, or wait for one."""
        return self._begun or bool(self._unsent)

    def _redacted(self, values: bytes) -> bytes:
        """Values without those of the job's redacted arguments."""
        if self._secrets is None:
            try:
                self._secrets = secrets_in(self._attempt.open().args, self._attempt.options.redact)
            except codec.UNREADABLE:
                self._secrets = []
        return without(values.decode(), self._secrets).encode() if self._secrets else values


class EmitQueue:
    """The attempts of one pool whose values wait for an exchange."""

    __slots__ = ("_next_at", "_waiting", "wake")

    def __init__(self) -> None:
        self._waiting: deque[Attempt] = deque()
        self._next_at = 0.0
        #: Makes the fetcher check whether an exchange is needed.
        self.wake: Callable[[], None] = lambda: None

    def add(self, attempt: Attempt) -> None:
        """Send the values of this attempt soon; called by the threads of handlers."""
        self._waiting.append(attempt)
        self.wake()

    @property
    def wait(self) -> float | None:
        """Seconds until an exchange should be made for these values; None if none wait."""
        return max(0.0, self._next_at - time.monotonic()) if self._waiting else None

    def take(self, most: int) -> list[Attempt]:
        """The attempts whose values the exchange that is being built takes along, `most` at most."""
        found: list[Attempt] = []
        while self._waiting and len(found) < most:
            attempt = self._waiting.popleft()
            # One that has ended sends its last values with its outcome.
            if not (attempt.settled or attempt.lost):
                found.append(attempt)
        if found:
            self._next_at = time.monotonic() + EMIT_SECONDS
        return found

    def clear(self) -> None:
        """Drop the values of a condemned pool id."""
        self._waiting.clear()


def check_process(attempt: Attempt) -> None:
    """Refuse to emit in a process that the handler forked: its values would be sent by none. Raises NotReady."""
    if fork.number != attempt.job_type.forks:
        raise NotReady(
            f"{attempt.name}: emit: this process was forked by the handler, and only the handler's own process sends "
            "values: pass them there"
        )
