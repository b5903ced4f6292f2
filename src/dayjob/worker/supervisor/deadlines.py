"""Board: the deadlines of running attempts, in memory that a child and its parent share.

The child posts without a system call, the parent reads even while the child holds the GIL. A record that is being
written at that moment fails its checksum and is not seen; the next look sees it.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import zlib
from typing import NamedTuple

#: Checksum; then generation, deadline and length of the token, which follows.
_SUM = struct.Struct("=I")
_HEAD = struct.Struct("=IdH")
#: A token is a number, a colon and a job name of at most 200 characters.
_RECORD = 1024
_LONGEST = _RECORD - _SUM.size - _HEAD.size


class Posted(NamedTuple):
    """One running attempt that has a deadline."""

    #: How many ids the child had taken before the one that this token belongs to.
    generation: int
    token: str
    #: Monotonic, which all processes of a machine share.
    deadline: float


def new_file() -> int:
    """A file without a name, to be shared with a child by its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dayjob-board")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class DeadlineBoard:
    """The child's side: one record for each worker."""

    def __init__(self, fd: int, workers: int) -> None:
        os.ftruncate(fd, workers * _RECORD)
        self._memory = mmap.mmap(fd, workers * _RECORD)
        #: Goes up with each id that the child takes, since tokens begin again with it.
        self.generation = -1

    def post(self, worker: int, token: str, deadline: float) -> None:
        """A worker starts an attempt that must end by a monotonic deadline."""
        text = token.encode()[:_LONGEST]
        body = _HEAD.pack(max(0, self.generation), deadline, len(text)) + text
        start = worker * _RECORD
        self._memory[start : start + _SUM.size + len(body)] = _SUM.pack(zlib.crc32(body)) + body

    def clear(self, worker: int) -> None:
        """The attempt of that worker ended."""
        start = worker * _RECORD
        self._memory[start : start + _SUM.size + _HEAD.size] = bytes(_SUM.size + _HEAD.size)


class DeadlineReader:
    """The parent's side."""

    def __init__(self, fd: int, workers: int) -> None:
        self._workers = workers
        self._memory = mmap.mmap(fd, workers * _RECORD, access=mmap.ACCESS_READ)

    def posted(self) -> list[Posted]:
        """What stands on the board now."""
        found = (self._read(worker * _RECORD) for worker in range(self._workers))
        return [posted for posted in found if posted is not None]

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()

    def _read(self, start: int) -> Posted | None:
        # Most records are empty: look at the length before anything is copied.
        record = self._memory[start : start + _SUM.size + _HEAD.size]
        generation, deadline, length = _HEAD.unpack_from(record, _SUM.size)
        if not length or length > _LONGEST:
            return None
        body = record[_SUM.size :] + self._memory[start + len(record) : start + len(record) + length]
        if zlib.crc32(body) != _SUM.unpack_from(record)[0]:
            return None
        return Posted(generation, body[_HEAD.size :].decode(errors="replace"), deadline)
