"""Chores: the work that the leader does for all pools, and when. Harmless if two pools do it at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from dayjob.errors import Rejected
from dayjob.store.keys import Keys
from dayjob.store.op import plain
from dayjob.store.ops import consume, maintain, membership, pools
from dayjob.store.steps import walk
from dayjob.worker.chores.announcer import Announcer
from dayjob.worker.chores.keys import KeyKeeper
from dayjob.worker.chores.limits import StartRestorer
from dayjob.worker.chores.periodic import PeriodicScheduler
from dayjob.worker.chores.reaper import Reaper
from dayjob.worker.chores.recorder import Recorder
from dayjob.worker.chores.releaser import Releaser
from dayjob.worker.chores.requeuer import Requeuer
from dayjob.worker.chores.trimmer import Trimmer
from dayjob.worker.chores.watcher import QUEUE_INTERVAL_SECONDS, Watcher
from dayjob.worker.membership import LEADER_TERM_SECONDS
from dayjob.worker.shared_link import SharedLink
from dayjob.worker.state import PoolState

#: Seconds between two passes that check leases and ring bells.
PASS_INTERVAL_SECONDS = 1.0
#: Seconds between two checks of the caps; and of the limits, the known names and this pool's announcements.
TRIM_INTERVAL_SECONDS = 10.0
REPAIR_INTERVAL_SECONDS = 60.0
#: Seconds between two checks for job types that no pool announces any more.
FORGET_INTERVAL_SECONDS = 3600.0
#: Seconds between two checks whether the server was restarted.
SERVER_INTERVAL_SECONDS = 10.0
#: Seconds after which staged jobs are looked for even without a bell, which may be lost when the leader changes.
RELEASE_INTERVAL_SECONDS = 10.0
#: Names that one call of the ring script checks.
MAX_NAMES_RUNG = 200
#: Longest wait for the bell of due jobs, in seconds.
MAX_WAIT_SECONDS = 0.5
#: Seconds by which a blocking command of Redis may return too late.
BLOCKING_OVERRUN_SECONDS = 0.12
#: Seconds after which due jobs are checked even without a bell: some programs schedule jobs without ringing it, and a
#: bell may be lost when the leader changes.
DUE_CHECK_SECONDS = 1.0


class Chores:
    """Runs the leader's chores. A pool that does not lead only ticks and announces its own schedules."""

    def __init__(
        self,
        keys: Keys,
        link: SharedLink,
        state: PoolState,
        *,
        requeuer: Requeuer,
        releaser: Releaser,
        reaper: Reaper,
        periodic: PeriodicScheduler,
        trimmer: Trimmer,
        recorder: Recorder,
        watcher: Watcher,
        announcer: Announcer,
        key_keeper: KeyKeeper,
        beat: float,
        dead_age: float,
    ) -> None:
        self._slice = min(MAX_WAIT_SECONDS, beat / 4)
        self._dead_age = dead_age
        self._keys = keys
        self._link = link
        self._state = state
        self._requeuer = requeuer
        self._releaser = releaser
        self._reaper = reaper
        self._periodic = periodic
        self._trimmer = trimmer
        self._recorder = recorder
        self._watcher = watcher
        self._announcer = announcer
        self._starts = StartRestorer(keys, link)
        self._key_keeper = key_keeper
        #: Monotonic time of the next run of each chore. These two have nothing to do directly after the start.
        self._next: dict[str, float] = dict.fromkeys(
            ("restore", "names"), time.monotonic() + REPAIR_INTERVAL_SECONDS
        )
        #: Monotonic time when the next scheduled or retry job is due, as far as this pool knows.
        self._due_at = 0.0
        #: The same for the next queue that waits for a rate limit. An exchange that parks one rings the same bell.
        self._parked_at = 0.0
        self.closing = False

    def step(self) -> float:
        """Do the chores that are due, then wait for the bell that announces earlier due jobs."""
        tick = self._periodic.step()
        self._every("restore", REPAIR_INTERVAL_SECONDS, self._restore)
        if not self._state.leads:
            self._due_at = self._parked_at = 0.0
            return min(1.0, PASS_INTERVAL_SECONDS if tick is None else tick)
        self._every("pass", PASS_INTERVAL_SECONDS, self._pass)
        self._every("trim", TRIM_INTERVAL_SECONDS, lambda: self._trimmer.trim(self._state.clock.now()))
        self._every("repair", REPAIR_INTERVAL_SECONDS, self._trimmer.repair_limits)
        self._every("keys", REPAIR_INTERVAL_SECONDS, self._key_keeper.repair)
        self._every("names", REPAIR_INTERVAL_SECONDS, self._forget_names)
        self._every("server", SERVER_INTERVAL_SECONDS, self._watcher.check_server)
        self._every("queues", QUEUE_INTERVAL_SECONDS, self._watcher.watch_queues)
        self._every("forget", FORGET_INTERVAL_SECONDS, lambda: self._recorder.forget_types(self._dead_age))
        if time.monotonic() >= self._due_at:
            due = self._requeuer.step()
            self._due_at = time.monotonic() + (
                DUE_CHECK_SECONDS if due is None else min(due, DUE_CHECK_SECONDS)
            )
        self._every("release", RELEASE_INTERVAL_SECONDS, self._release)
        if time.monotonic() >= self._parked_at:
            parked = self._ring_parked()
            self._parked_at = math.inf if parked is None else time.monotonic() + parked
        now = time.monotonic()
        chores = [
            self._next["pass"] - now,
            self._next["release"] - now,
            self._due_at - now,
            self._parked_at - now,
            *([] if tick is None else [tick]),
        ]
        # A short wait, because the heartbeat uses the same connection.
        wait = max(0.001, min(*chores, self._slice))
        if self.closing:
            return 0.0
        if wait <= BLOCKING_OVERRUN_SECONDS:
            # An idle server checks blocked clients only ten times a second, so short waits are done on this side.
            return wait
        try:
            if (
                self._link.run(consume.wait_bell([self._keys.due], wait - BLOCKING_OVERRUN_SECONDS))
                is not None
            ):
                self._due_at = self._parked_at = self._next["release"] = 0.0
        except Rejected:
            # Only dayjob uses this key, so a value of a wrong type can be deleted.
            self._link.run(plain("DEL", self._keys.due))
        return 0.0

    def _every(self, name: str, period: float, chore: Callable[[], object]) -> None:
        now = time.monotonic()
        if now >= self._next.get(name, 0.0):
            self._next[name] = now + period
            chore()

    def _release(self) -> None:
        if self._releaser.step():
            self._next["release"] = 0.0

    def _forget_names(self) -> None:
        live = walk(self._link, pools.pools(self._keys))
        self._trimmer.forget_names(
            {name for one in live if one.status is not None for name in one.status.names}
        )

    def _restore(self) -> None:
        self._announcer.restore(self._link, self._state.clock.now())
        self._starts.restore(self._state)

    def _pass(self) -> None:
        """Check leases and ring bells, then renew the leadership. A pool that is stuck here loses it."""
        self._reaper.step()
        self._ring()
        self._key_keeper.scan()
        self._state.leads = self._link.run(
            membership.lead(self._keys, self._state.pool_id, term=LEADER_TERM_SECONDS)
        )

    def _ring_parked(self) -> float | None:
        """Ring the bells of queues whose rate limits let a job start again. Returns the seconds until the next; or None."""
        due = self._link.run(maintain.read_due(self._keys.parked))
        if due.members:
            names = [name.decode("utf-8", "replace") for name, _ in due.members]
            self._link.run(maintain.ring(self._keys, names))
        return 0.0 if len(due.members) >= maintain.BATCH else due.wait

    def _ring(self) -> None:
        """Ring the bells of queues that a program filled or resumed without ringing, such as gocraft's."""
        names = self._link.run(maintain.known_jobs(self._keys))
        for first in range(0, len(names), MAX_NAMES_RUNG):
            self._link.run(maintain.ring(self._keys, names[first : first + MAX_NAMES_RUNG]))
        self._recorder.record(self._state.clock.now(), names)
