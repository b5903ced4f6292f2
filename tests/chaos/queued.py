"""How long a process waited for a processor: what a loaded machine takes from every deadline."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import psutil


class Queued(threading.Thread):
    """Adds up how long a process, its children and the thread that measures them waited for a processor.

    By the kernel's own count, for the thread of each that waited longest.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        #: Thread, as `<pid>/task/<thread>`, to what the kernel had counted at first and at last.
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._over = threading.Event()
        self._own = f"self/task/{threading.get_native_id()}"
        self._look([self._own])

    def run(self) -> None:
        family = [self._pid, *_children(self._pid)]
        while not self._over.is_set():
            for pid in family:
                with contextlib.suppress(OSError):
                    self._look([f"{pid}/task/{one.name}" for one in Path(f"/proc/{pid}/task").iterdir()])
            self._over.wait(0.01)

    def end(self) -> float:
        """Seconds that the three waited, one after the other: the process, its slowest child, and whoever measures."""
        self._over.set()
        self.join()
        # One that has ended, and that nobody has waited for, still shows its last count.
        self._look([self._own, f"{self._pid}/task/{self._pid}"])
        longest: dict[str, float] = {}
        for thread, waited in self._last.items():
            pid = thread.partition("/")[0]
            longest[pid] = max(waited - self._first[thread], longest.get(pid, 0.0))
        own = longest.pop(str(self._pid), 0.0) + longest.pop("self", 0.0)
        return own + max(longest.values(), default=0.0)

    def _look(self, threads: list[str]) -> None:
        for thread in threads:
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited = int(Path(f"/proc/{thread}/schedstat").read_text().split()[1]) / 1e9
                self._first.setdefault(thread, waited)
                self._last[thread] = waited


def _children(pid: int) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children()]
    return []
