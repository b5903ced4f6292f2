"""Supervisor: the parent process of `dayjob worker`. It starts, watches, replaces and stops the child processes.

The parent runs no user code. It treats a child as dead only after waitpid reported its exit. All Redis traffic is done
by ChildLeases on a thread of its own.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from dayjob.errors import Unavailable
from dayjob.safe_logging import SafeLogger
from dayjob.store import addresses
from dayjob.store.ops import consume
from dayjob.text import counted
from dayjob.worker.supervisor.channel import (
    Asked,
    Away,
    Back,
    Config,
    Ended,
    Failed,
    Hurry,
    LoopDied,
    Started,
)
from dayjob.worker.supervisor.child_slot import LAST_PAUSE_SECONDS, ChildSlot
from dayjob.worker.supervisor.condition import ParentCondition
from dayjob.worker.supervisor.deadlines import Posted
from dayjob.worker.supervisor.leases import Cause, ChildLeases, PoolAddress
from dayjob.worker.supervisor.process import STOP_OVERTIME_SECONDS, Process
from dayjob.worker.supervisor.systemd import SystemdNotifier
from dayjob.worker.supervisor.wakeup import Wakeup

logger = SafeLogger("dayjob.worker.supervisor.supervisor")

#: Seconds that the interpreter of a child may take to exit after its pool has stopped.
EXIT_SECONDS = 5.0
#: Seconds that a stop may take beyond its timeout, with the sweep of the children that had to be killed.
OVERTIME_SECONDS = 1.0
#: Seconds of a stop that are reserved for the exit of the parent's own interpreter.
OWN_EXIT_SECONDS = 0.2
#: The exit code when a loop of the parent died.
EXIT_LOOP_DIED = 70
#: Seconds to wait until Redis has stored why a child is killed. After that it is killed anyway.
SET_CAUSE_SECONDS = 1.0


class ExitStatus(NamedTuple):
    """The exit code of the parent, and a message for the operator, if any."""

    code: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """How many children to run, and when to recycle them."""

    processes: int = 1
    #: Bytes; None for no limit.
    max_memory: int | None = None
    max_jobs: int | None = None


class Supervisor:
    """Runs the parent process."""

    def __init__(self, command: Sequence[str], config: Config, plan: ProcessPlan) -> None:
        self._command = command
        report = 0.1 if plan.max_jobs else 1.0 if plan.max_memory else 0.0
        self._config = msgspec.structs.replace(config, report=report)
        self._plan = plan
        self._slots = [ChildSlot() for _ in range(plan.processes)]
        self._processes: list[Process] = []
        self._leases = ChildLeases(self._leased_pools, self._leases_died, self._add_kill)
        self._wakeup = Wakeup()
        #: Pool id and token of attempts that operators killed and that still run.
        self._kills: deque[tuple[str, str]] = deque()
        self._ever_started = False
        self._quiet = False
        self._broken = False
        #: Set when the parent shall end: the exit status, and the monotonic time by which the parent must have ended.
        self._exit_status: ExitStatus | None = None
        self._deadline = math.inf
        #: Slots whose child will be replaced; the slot being replaced now; and its old child, which is stopping.
        self._roll: deque[ChildSlot] = deque()
        self._rolling: ChildSlot | None = None
        self._leaving: Process | None = None
        self._roll_asked = ""
        self._terminal = _has_terminal()
        self._notifier = SystemdNotifier.from_environ(self.condition)
        self._notify_at = math.inf
        self._nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def run(self) -> ExitStatus:
        """Start the children and supervise them until a signal or a configuration error ends the parent."""
        self._leases.start()
        with self._wakeup.signals():
            for slot in self._slots:
                self._spawn(slot)
            while self._exit_status is None or self._processes:
                self._wait()
                self._handle_requests()
                for process in list(self._processes):
                    self._check_child(process)
                self._do_housekeeping(time.monotonic())
                if self._notifier is not None:
                    self._notify_at = self._notifier.turn()
        self._leases.finish(self._deadline - OWN_EXIT_SECONDS)
        return self._exit_status

    def condition(self) -> ParentCondition:
        """How the parent and its children are. Any thread may call this."""
        slots = [slot for slot in self._slots if not slot.retired]
        alive = [slot.process for slot in slots if slot.process is not None and slot.process.alive]
        return ParentCondition(
            len(slots), len(alive), sum(process.started for process in alive), self._quiet,
            bool(self._roll or self._rolling), self._exit_status is not None, self._leases.is_away,
        )  # fmt: skip

    def roll(self, why: str) -> None:
        """Replace all children, one at a time. Any thread may call this."""
        self._roll_asked = why
        self._wakeup.wake()

    def _wait(self) -> None:
        times = [] if self._quiet else [slot.restart_at for slot in self._slots]
        times.append(self._notify_at)
        times += [at for process in self._processes for at in (process.kill_at, process.look_at)]
        first = min(times, default=math.inf)
        self._wakeup.wait(None if first == math.inf else max(0.0, first - time.monotonic()))

    # Signals and other requests.

    def _handle_requests(self) -> None:
        while self._wakeup.received:
            number = self._wakeup.received.popleft()
            name = signal.Signals(number).name
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop(name)
            elif number in (signal.SIGTSTP, signal.SIGUSR1):
                self._go_quiet(name)
            elif number == signal.SIGHUP:
                # The kernel also sends SIGHUP when the terminal is closed. Then the parent stops.
                if self._terminal and not self._nohup and not _has_terminal():
                    self._stop("the terminal was closed")
                else:
                    self._roll_asked = name
        if self._broken and self._exit_status is None:
            self._end(ExitStatus(EXIT_LOOP_DIED), time.monotonic() + self._config.timeout + OVERTIME_SECONDS)
            for process in self._processes:
                process.stop(self._config.timeout)
        if self._roll_asked and self._exit_status is None:
            why, self._roll_asked = self._roll_asked, ""
            logger.info("%s: replacing the processes one at a time", why)
            self._quiet = False
            self._roll = deque(self._slots)

    def _stop(self, why: str) -> None:
        now = time.monotonic()
        if self._exit_status is not None:
            logger.info("%s received again: returning running jobs to their queues now", why)
            self._deadline = min(self._deadline, now + 1.0 + OVERTIME_SECONDS)
            for process in self._processes:
                process.line.send(Hurry())
                process.kill_by(now + 1.0 + STOP_OVERTIME_SECONDS)
            return
        timeout = self._config.timeout
        logger.info(
            "%s: stopping within %g s. Send it again to return running jobs to their queues now.",
            why,
            timeout,
        )
        self._end(ExitStatus(0), now + timeout + OVERTIME_SECONDS)
        for process in self._processes:
            process.stop(timeout)

    def _end(self, status: ExitStatus, deadline: float) -> None:
        self._exit_status = status
        self._deadline = deadline
        self._roll.clear()
        for slot in self._slots:
            slot.restart_at = math.inf

    def _go_quiet(self, why: str) -> None:
        logger.info("%s: fetching no more jobs", why)
        self._quiet = True
        for process in self._processes:
            process.quiet()

    # The children.

    def _spawn(self, slot: ChildSlot, *, successor: bool = False) -> None:
        config = msgspec.structs.replace(self._config, patient=self._ever_started)
        slot.restart_at = math.inf
        try:
            process = Process(self._command, config)
        except OSError as error:
            self._restart_later(slot, f"a worker process could not be started: {error}")
            return
        self._processes.append(process)
        self._wakeup.watch(process.line)
        if successor:
            slot.successor = process
        else:
            slot.process = process

    def _check_child(self, process: Process) -> None:
        """Handle the messages of a child, and its exit.

        The exit is checked first, so that all messages of a dead child are read before it is replaced.
        """
        process.look()
        for message in process.receive():
            if isinstance(message, Started):
                self._has_started(process)
            elif isinstance(message, Asked):
                logger.info("process %d was asked to stop by an operator", process.pid)
                process.kill_by(time.monotonic() + self._config.timeout + STOP_OVERTIME_SECONDS)
            elif isinstance(message, LoopDied):
                logger.error(
                    "process %d: its %s loop died (%s); it is stopping",
                    process.pid,
                    message.loop,
                    message.error,
                )
                process.kill_by(time.monotonic() + self._config.timeout + STOP_OVERTIME_SECONDS)
            elif isinstance(message, Away):
                self._leases.away(process.pid, Unavailable(message.why))
            elif isinstance(message, Back):
                self._leases.back(process.pid)
            elif isinstance(message, Ended):
                process.kill_by(time.monotonic() + EXIT_SECONDS)
        if process.line.cut:
            self._wakeup.unwatch(process.line)
        if process.code is not None:
            self._has_died(process)

    def _has_started(self, process: Process) -> None:
        hello = process.hello
        if not self._ever_started and hello is not None:
            self._ever_started = True
            if hello.fallback:
                addresses.warn_of_fallback(hello.fallback)
            for line in hello.conflicts:
                logger.warning("%s", line)
            logger.info(
                "%s: %s, processes=%d concurrency=%d namespace=%s redis=%s (%s)",
                self._config.pool, counted(len(hello.names), "job"), self._plan.processes, hello.concurrency, hello.namespace,
                hello.server, hello.origin,
            )  # fmt: skip
        if self._quiet:
            process.quiet()
        slot = self._rolling
        if slot is not None and slot.successor is process:
            self._leaving, slot.process, slot.successor = slot.process, process, None
            if self._leaving is None or self._exit_status is not None:
                self._rolling = None
            else:
                self._leaving.stop(self._config.timeout)

    def _has_died(self, process: Process) -> None:
        self._processes.remove(process)
        self._wakeup.unwatch(process.line)
        self._leases.back(process.pid)
        if process.ids and process.place is not None and process.failure is None:
            causes = process.causes
            if process.ended and not causes:
                # It stopped normally. Attempts that it could not give back must not count a crash.
                causes = {pool_id: Cause("", "stopped") for pool_id in process.ids}
            self._leases.reap(process.place, process.ids, causes)
        process.close()
        if self._leaving is process:
            self._leaving = self._rolling = None
            return
        for slot in self._slots:
            if slot.successor is process:
                self._successor_died(slot, process)
            elif slot.process is process:
                slot.process = None
                self._replace(slot, process)

    def _replace(self, slot: ChildSlot, process: Process) -> None:
        if self._exit_status is not None:
            return
        failure = process.failure
        if failure is not None and not any(other.started for other in self._processes):
            self._give_up(failure)
            return
        if slot.successor is not None:
            return
        if process.asked:
            self._retire(slot)
            return
        slot.reset_pause(process.started_at)
        if process.killed or (process.ended and process.code == 0):
            # The parent killed it, or it was asked to stop: not a crash, so it is restarted without a pause.
            slot.restart_at = time.monotonic()
        else:
            self._restart_later(slot, process.obituary())

    def _retire(self, slot: ChildSlot) -> None:
        """Do not restart a child that an operator stopped. End the parent when no slot is left."""
        slot.restart_at = math.inf
        slot.retired = True
        if all(one.retired for one in self._slots):
            logger.info("an operator asked every process to stop: the parent ends, too")
            self._end(ExitStatus(0), time.monotonic() + OVERTIME_SECONDS)

    def _restart_later(self, slot: ChildSlot, why: str) -> None:
        logger.error("%s; starting another in %g s", why, slot.restart_later())

    def _successor_died(self, slot: ChildSlot, process: Process) -> None:
        slot.successor = self._rolling = None
        self._roll.clear()
        if self._exit_status is not None:
            return
        logger.error(
            "a new process cannot start, so the current processes are not replaced: %s", process.obituary()
        )
        if slot.process is None:
            self._restart_later(slot, "the process that it should have replaced has ended, too")
        else:
            slot.spared_until = time.monotonic() + LAST_PAUSE_SECONDS

    def _give_up(self, failure: Failed) -> None:
        self._end(ExitStatus(failure.code, failure.text), time.monotonic() + OVERTIME_SECONDS)
        for process in self._processes:
            process.stop(0.0)

    # Housekeeping.

    def _do_housekeeping(self, now: float) -> None:
        while self._kills:
            self._end_killed(*self._kills.popleft(), now)
        for process in self._processes:
            if process.kill_at <= now:
                self._kill(process)
            else:
                late = process.overdue(now)
                if late is not None:
                    self._time_out(process, late)
        if self._exit_status is not None:
            return
        for slot in self._slots:
            if slot.restart_at <= now and not self._quiet:
                self._spawn(slot)
            elif self._must_recycle(slot, now):
                self._roll.append(slot)
        while self._roll and self._rolling is None:
            slot = self._roll.popleft()
            # A child that is still starting needs no replacement.
            if slot.process is not None and slot.process.started:
                self._rolling = slot
                self._spawn(slot, successor=True)
                if slot.successor is None:
                    self._rolling = None

    def _must_recycle(self, slot: ChildSlot, now: float) -> bool:
        process, plan = slot.process, self._plan
        if process is None or slot is self._rolling or slot in self._roll or now < slot.spared_until:
            return False
        reason = ""
        # Only after it has run jobs: a successor of an unused process would need as much memory.
        if plan.max_memory is not None and process.report.jobs and process.report.resident > plan.max_memory:
            reason = f"uses {process.report.resident >> 20} MB"
        elif plan.max_jobs is not None and process.report.jobs >= plan.max_jobs:
            reason = f"has run {counted(process.report.jobs, 'job')}"
        if reason:
            logger.info("process %d %s: recycling it", process.pid, reason)
        return bool(reason)

    def _kill(self, process: Process) -> None:
        if not process.causes and not process.ended:
            logger.warning("process %d did not stop in time: killing it", process.pid)
        process.kill("the process did not stop in time and was killed")

    def _time_out(self, process: Process, late: Posted) -> None:
        """Kill a child whose attempt passed its timeout and grace, after Redis has stored which attempt it was."""
        if process.place is None or process.hello is None:
            return
        name = consume.name_in(late.token)
        why = f"timed out after {process.hello.timeouts.get(name, 0.0):g} s and was killed"
        logger.error(
            "job=%s token=%s passed its timeout and does not end: killing process %d",
            name,
            late.token,
            process.pid,
        )
        causes = {
            pool_id: Cause(late.token if place == late.generation else "", why)
            for place, pool_id in enumerate(process.ids)
        }
        self._kill_for(process, process.place, causes)

    def _end_killed(self, pool_id: str, token: str, now: float) -> None:
        """Kill the process of an attempt that an operator killed, if the attempt has not ended by itself in time."""
        process = next((one for one in self._processes if pool_id in one.ids), None)
        if process is None or process.place is None or not process.outlasts_kill(pool_id, token, now):
            return
        name = consume.name_in(token)
        logger.error(
            "job=%s token=%s was killed by an operator and does not end: killing process %d",
            name, token, process.pid,
        )  # fmt: skip
        why = f"its process was replaced to end {name}, which an operator killed"
        # Without a culprit: the other attempts are requeued without a count. Redis already has the killed one marked.
        self._kill_for(process, process.place, {one: Cause("", why) for one in process.ids})

    def _kill_for(self, process: Process, place: PoolAddress, causes: dict[str, Cause]) -> None:
        """Kill a child as soon as Redis has stored the causes, or after SET_CAUSE_SECONDS."""
        process.causes = causes
        process.kill_by(time.monotonic() + SET_CAUSE_SECONDS)

        def cause_stored() -> None:
            process.kill_by(time.monotonic())
            self._wakeup.wake()

        self._leases.set_causes(place, process.causes, cause_stored)

    # Called by ChildLeases, on its thread.

    def _leased_pools(self) -> list[tuple[PoolAddress, str]]:
        return [
            (process.place, process.ids[-1])
            for process in list(self._processes)
            if process.alive and process.place is not None and process.ids
        ]

    def _add_kill(self, pool_id: str, token: str) -> None:
        self._kills.append((pool_id, token))
        self._wakeup.wake()

    def _leases_died(self, problem: BaseException) -> None:
        self._broken = True
        self._wakeup.wake()
        logger.critical(
            "the thread that renews the leases of the child processes died; stopping", exc_info=problem
        )


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
