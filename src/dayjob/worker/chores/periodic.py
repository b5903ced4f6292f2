"""PeriodicScheduler: enqueues the ticks of schedules. All pools together enqueue at most one job per tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dayjob import cron
from dayjob.errors import Full, Rejected
from dayjob.handlers.periodic import PeriodicJob as Record
from dayjob.job import new_id
from dayjob.safe_logging import SafeLogger
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops import produce
from dayjob.worker.shared_link import SharedLink

logger = SafeLogger("dayjob.worker.chores.periodic")

#: Seconds after which a pool that does not lead enqueues a tick that the leader has not.
FOLLOWER_DELAY_SECONDS = 2.0
#: Seconds by which a last tick may be ahead of Redis time. With more, the clock was wrong at that tick.
MAX_AHEAD_SECONDS = 60


class Ticker:
    """One schedule and its last tick, if known."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.schedule = cron.parse(record.spec, record.timezone)
        self.last: int | None = None

    def next_at(self) -> float | None:
        """The Redis time of the next tick. 0 if the last tick is not known yet, None if there is no next one."""
        return 0.0 if self.last is None else self.schedule.next_after(self.last)


class PeriodicScheduler:
    """Ticks all schedules of one pool."""

    def __init__(
        self,
        keys: Keys,
        link: SharedLink,
        records: Sequence[Record],
        now: Callable[[], float],
        leads: Callable[[], bool],
    ) -> None:
        self._keys = keys
        self._link = link
        self._tickers = [Ticker(record) for record in records]
        self._now = now
        self._leads = leads
        self._look_again = False

    def look_again(self) -> None:
        """Read the last ticks again. Redis may have lost them, and a tick without one is not enqueued."""
        self._look_again = True

    def step(self) -> float | None:
        """Enqueue all due ticks. Returns the seconds until the next tick, or None."""
        if self._look_again:
            self._look_again = False
            for ticker in self._tickers:
                ticker.last = None
        waits: list[float] = []
        for ticker in self._tickers:
            if ticker.last is not None and ticker.last > self._now() + MAX_AHEAD_SECONDS:
                ticker.last = None
            at = ticker.next_at()
            if at is None:
                continue
            delay = 0.0 if self._leads() or ticker.last is None else FOLLOWER_DELAY_SECONDS
            if at + delay <= self._now():
                try:
                    self._tick(ticker)
                except (Rejected, Full) as error:
                    # A key has a wrong type, or Redis is out of memory. The other schedules must still tick.
                    logger.error("schedule=%s: its tick could not be enqueued: %s", ticker.record.name, error)  # noqa: TRY400
                    waits.append(1.0)
                    continue
                before, at = at, ticker.next_at()
                delay = 0.0 if self._leads() else FOLLOWER_DELAY_SECONDS
                if at == before:
                    # Redis did not accept the tick, because the pool's estimate of Redis time is ahead.
                    waits.append(0.5)
                    continue
            if at is not None:
                waits.append(at + delay - self._now())
        return max(0.001, min(waits)) if waits else None

    def _tick(self, ticker: Ticker) -> None:
        record = ticker.record
        last = self._read_last(record) if ticker.last is None else ticker.last
        ticker.last = last
        for _ in range(3):
            now = self._now()
            due = cron.due(ticker.schedule, last, now, record.missed)
            if not due.enqueue and not due.missed:
                return
            jobs = [(moment, self._payload(record, moment)) for moment in due.enqueue]
            answer = self._link.run(
                produce.tick(
                    self._keys, record.name, record.job,
                    seen=last, newest=due.last, missed=due.missed, jobs=jobs,
                )
            )  # fmt: skip
            self._log_replaced(record, answer)
            changed = answer.last != last
            ticker.last = last = answer.last
            if answer.enqueued or not changed:
                if answer.enqueued:
                    logger.debug("schedule=%s: enqueued %d jobs", record.name, answer.enqueued)
                return

    def _read_last(self, record: Record) -> int:
        """The last tick that is stored in Redis."""
        seen = self._link.run(produce.tick(self._keys, record.name, record.job, seen=None, newest=None))
        self._log_replaced(record, seen)
        return seen.last

    @staticmethod
    def _log_replaced(record: Record, answer: produce.Ticked) -> None:
        """Log that the script replaced a wrong last tick. It does so once, for the first pool that asks."""
        if answer.replaced == "junk":
            logger.warning(
                "schedule=%s: its last tick in Redis was not a number. It ticks again from now on.",
                record.name,
            )
        elif answer.replaced == "ahead":
            logger.warning(
                "schedule=%s: its last tick was in the future. The clock of the Redis server was probably ahead. "
                "It ticks again from now on; ticks that were enqueued early are not enqueued again.",
                record.name,
            )

    @staticmethod
    def _payload(record: Record, moment: int) -> bytes:
        extras = {"periodic": record.name, "tick": moment}
        return codec.write(codec.quoted(record.job), new_id(), moment, record.args, extras)
