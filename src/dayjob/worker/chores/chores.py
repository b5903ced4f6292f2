"""Chores: the work that the leader does for all pools, and when. Harmless if two pools do it at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from dayjob.store.keys import Keys
from dayjob.store.link import walk
from dayjob.store.ops import maintain, membership, pools
from dayjob.worker.chores.announcer import Announcer
from dayjob.worker.chores.due_bell import DueBell
from dayjob.worker.chores.keys import KeyRepairer
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

#: Seconds between two rounds of the leader, which renew the leadership, check leases and due jobs, and ring the bells of all
#: queues that can be fetched from. The longer interval holds while no ring found a job for FOREIGN_SECONDS: then all programs
#: ring by themselves, and the rings only serve bells that were lost.
ROUND_SECONDS = 1.0
IDLE_ROUND_SECONDS = 2.0
FOREIGN_SECONDS = 3600.0
#: Seconds between two checks of the caps; of the limits, the keys and this pool's announcements; and for unused names.
TRIM_INTERVAL_SECONDS = 10.0
REPAIR_INTERVAL_SECONDS = 60.0
NAMES_INTERVAL_SECONDS = 300.0
#: Seconds between two checks for job types that no pool announces any more.
FORGET_INTERVAL_SECONDS = 3600.0
#: Seconds between two checks whether the server was restarted.
SERVER_INTERVAL_SECONDS = 30.0
#: Seconds between two searches for staged jobs without a bell, which may be lost when the leader changes.
RELEASE_INTERVAL_SECONDS = 10.0
#: Names whose bells one request rings.
MAX_NAMES_RUNG = 200


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
        key_repairer: KeyRepairer,
        due: DueBell,
        lease: float,
        dead_age: float,
    ) -> None:
        self._lease = lease
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
        self._key_repairer = key_repairer
        self._due = due
        #: Monotonic time of the next run of each chore. These two have nothing to do directly after the start.
        self._next: dict[str, float] = dict.fromkeys(
            ("restore", "names"), time.monotonic() + REPAIR_INTERVAL_SECONDS
        )
        #: Monotonic time when the next scheduled or retry job is due, as far as this pool knows.
        self._due_at = 0.0
        #: The same for the next queue that waits for a rate limit. An exchange that parks one rings the same bell.
        self._parked_at = 0.0
        #: The same for staged jobs that wait to be moved to their queues.
        self._release_at = 0.0
        #: The known job names, and the monotonic time when a ring last found a queue with jobs.
        self._names: list[str] = []
        self._rung_at = -math.inf
        self.closing = False

    def step(self) -> float:
        """Do the chores that are due, then wait for the bell that announces earlier due jobs."""
        tick = self._periodic.step()
        self._every("restore", REPAIR_INTERVAL_SECONDS, self._restore)
        if not self._state.leads:
            self._due_at = self._parked_at = self._release_at = 0.0
            return min(1.0, ROUND_SECONDS if tick is None else tick)
        foreign = time.monotonic() - self._rung_at < FOREIGN_SECONDS
        self._every("round", ROUND_SECONDS if foreign else IDLE_ROUND_SECONDS, self._lead)
        self._every("repair", REPAIR_INTERVAL_SECONDS, self._trimmer.repair_limits)
        self._every("keys", REPAIR_INTERVAL_SECONDS, lambda: self._key_repairer.repair(self._names))
        self._every("names", NAMES_INTERVAL_SECONDS, self._forget_names)
        self._every("server", SERVER_INTERVAL_SECONDS, self._watcher.check_server)
        self._every("queues", QUEUE_INTERVAL_SECONDS, lambda: self._watcher.watch_queues(self._names))
        self._every("forget", FORGET_INTERVAL_SECONDS, lambda: self._recorder.forget_types(self._dead_age))
        if time.monotonic() >= self._due_at:
            self._due_at = _moment_in(self._requeuer.step())
        if time.monotonic() >= self._release_at:
            self._release()
        if time.monotonic() >= self._parked_at:
            self._parked_at = _moment_in(self._ring_parked())
        now = time.monotonic()
        chores = (self._next["round"], self._release_at, self._due_at, self._parked_at, _moment_in(tick))
        if not self.closing and self._due.wait(max(0.001, min(chores) - now)):
            self._due_at = self._parked_at = self._release_at = 0.0
        return 0.0

    def _every(self, name: str, period: float, chore: Callable[[], object]) -> None:
        now = time.monotonic()
        if now >= self._next.get(name, 0.0):
            self._next[name] = now + period
            chore()

    def _release(self) -> None:
        self._release_at = 0.0 if self._releaser.step() else math.inf

    def _forget_names(self) -> None:
        live = walk(self._link, pools.pools(self._keys))
        self._trimmer.forget_names(
            {name for one in live if one.status is not None for name in one.status.names}
        )

    def _restore(self) -> None:
        self._announcer.restore(self._link, self._state.clock.now())
        self._starts.restore(self._state)

    def _lead(self) -> None:
        """Renew the leadership, check leases, ring bells and learn what is due. A pool that is stuck in its chores stops leading."""
        rung = self._names[:MAX_NAMES_RUNG]
        answer = self._link.run(
            membership.lead(
                self._keys, self._state.pool_id, term=LEADER_TERM_SECONDS, lease=self._lease, names=rung
            )
        )
        self._state.leads = answer.leads
        if not answer.leads:
            return
        self._reaper.sweep_all(answer.condemned)
        # Some programs schedule jobs without ringing the bell, and a bell may be lost when the leader changes.
        self._due_at = min(self._due_at, _moment_in(answer.due_in))
        self._parked_at = min(self._parked_at, _moment_in(answer.parked_in))
        if answer.released:
            self._every("release", RELEASE_INTERVAL_SECONDS, self._release)
        now = self._state.clock.now()
        if self._trimmer.over_caps(answer, now):
            self._every("trim", TRIM_INTERVAL_SECONDS, lambda: self._trimmer.trim(now))
        if answer.names != len(self._names):
            self._read_names()
            rung = []
        self._ring(self._names[len(rung) :], answer.rung)
        self._every("list", REPAIR_INTERVAL_SECONDS, self._read_names)
        self._recorder.record(now, self._names)

    def _ring_parked(self) -> float | None:
        """Ring the bells of queues whose rate limits let a job start again. Returns the seconds until the next; or None."""
        due = self._link.run(maintain.read_due(self._keys.parked))
        if due.members:
            names = [name.decode("utf-8", "replace") for name, _ in due.members]
            self._link.run(maintain.ring(self._keys, names))
        return 0.0 if len(due.members) >= maintain.BATCH else due.wait

    def _ring(self, names: Sequence[str], rung: int) -> None:
        """Ring the bells of these queues. `rung` is how many bells of other queues the round has rung.

        They ring for jobs of programs that pushed or resumed without ringing, such as gocraft's.
        """
        for first in range(0, len(names), MAX_NAMES_RUNG):
            rung += self._link.run(maintain.ring(self._keys, names[first : first + MAX_NAMES_RUNG]))
        if rung:
            # Such a program may push more jobs soon.
            self._rung_at = time.monotonic()
            self._next["round"] = self._rung_at + ROUND_SECONDS

    def _read_names(self) -> None:
        self._names = self._link.run(maintain.known_jobs(self._keys))


def _moment_in(seconds: float | None) -> float:
    """The monotonic time after so many seconds; infinite for None."""
    return math.inf if seconds is None else time.monotonic() + seconds
