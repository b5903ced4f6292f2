"""Stacks: the stacks of running jobs, when an operator asks for them. Shows source lines, but no values."""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
import time
from functools import lru_cache
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

import msgspec

from dayjob.worker.running.attempt import Attempt
from dayjob.worker.running.event_loop import LoopExecutor

#: Limits: workers, frames of each worker, characters of a source line, and bytes of the whole text.
MAX_WORKERS = 100
MAX_FRAMES = 60
MAX_SOURCE = 200
MAX_BYTES = 65_536

#: Frames and the line that each is at.
Frames = list[tuple[FrameType, int]]

_OURS = str(Path(__file__).resolve().parents[2]) + os.sep
#: The jobs of the demo are in this package, but are shown like the jobs of a program.
_DEMO = f"{_OURS}cli{os.sep}"
_LIBRARIES = tuple(
    path.rstrip(os.sep) + os.sep
    for path in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(), site.getusersitepackages(),
    }
    if path
)  # fmt: skip
#: Folders of installed packages, for a virtual environment inside the folder of the program.
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@lru_cache(maxsize=1000)
def is_own(file: str) -> bool:
    """Whether a file belongs to the program, not to a library, the interpreter or dayjob."""
    if file.startswith(("<", _OURS, *_LIBRARIES)):
        return False
    return not any(part in file for part in _INSTALLED)


def describe(running: list[Attempt], worker_ids: list[str], loop: LoopExecutor | None, at: float) -> bytes:
    """The stacks of the running attempts as JSON of limited size, longest-running first."""
    now = time.monotonic()
    threads = sys._current_frames()
    workers = []
    for attempt in sorted(running, key=lambda one: one.started_at)[:MAX_WORKERS]:
        frames = _inside(_frames(attempt, loop, threads))
        number = attempt.worker
        # A program may be installed like a library, so code in the handler's own package also counts as the program's.
        package = str(getattr(attempt.job_type.type.fn, "__module__", "")).partition(".")[0]
        workers.append(
            {
                "token": attempt.token,
                "name": attempt.name,
                "id": attempt.wire.id,
                "worker_id": worker_ids[number] if 0 <= number < len(worker_ids) else "",
                "colour": "async" if attempt.job_type.is_async else "sync",
                "running_for": round(now - attempt.started_at, 3),
                "frames": [_shown(frame, line, package) for frame, line in frames[-MAX_FRAMES:]],
                "cut": len(frames) > MAX_FRAMES,
            }
        )
    text = msgspec.json.encode({"at": at, "workers": workers})
    while len(text) > MAX_BYTES and workers:
        workers = workers[: len(workers) // 2]
        text = msgspec.json.encode({"at": at, "workers": workers})
    return text


def _frames(attempt: Attempt, loop: LoopExecutor | None, threads: dict[int, FrameType]) -> Frames:
    """The frames of one attempt, outermost first, each with its line."""
    if not attempt.job_type.is_async:
        return _chain(threads.get(attempt.thread_id))
    return [] if loop is None else _awaited(loop.coroutine(attempt), threads)


def _chain(frame: FrameType | None) -> Frames:
    found = []
    while frame is not None:
        found.append((frame, frame.f_lineno or 0))
        frame = frame.f_back
    return found[::-1]


def _awaited(coroutine: Any, threads: dict[int, FrameType]) -> Frames:
    """The frames of a coroutine and of what it awaits. If the coroutine runs now, the stack of its thread."""
    found: Frames = []
    while coroutine is not None:
        frame = next(
            (
                one
                for kind in ("cr", "gi", "ag")
                if (one := getattr(coroutine, f"{kind}_frame", None)) is not None
            ),
            None,
        )
        if frame is None:
            break
        if isinstance(coroutine, CoroutineType) and coroutine.cr_running and not found:
            for top in threads.values():
                chain = _chain(top)
                if any(one is frame for one, _ in chain):
                    return chain
        found.append((frame, frame.f_lineno or 0))
        coroutine = next(
            (
                one
                for name in ("cr_await", "gi_yieldfrom", "ag_await")
                if (one := getattr(coroutine, name, None)) is not None
            ),
            None,
        )
    return found


def _inside(frames: Frames) -> Frames:
    """The frames without those of dayjob that lead to the handler."""
    first = 0
    for number, (frame, _) in enumerate(frames):
        if frame.f_code.co_filename.startswith(_OURS) and not frame.f_code.co_filename.startswith(_DEMO):
            first = number + 1
        elif first:
            break
    return frames[first:]


def _shown(frame: FrameType, line: int, package: str) -> dict[str, Any]:
    code = frame.f_code
    file = code.co_filename
    source = linecache.getline(file, line, frame.f_globals).strip()[:MAX_SOURCE]
    own = is_own(file) or str(frame.f_globals.get("__name__", "")).partition(".")[0] == package
    return {"file": file, "line": line, "function": code.co_qualname, "source": source, "own": own}
