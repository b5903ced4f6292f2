"""DeadlineBoard: the deadlines of running attempts, in memory that a child shares with its parent.

The child writes without a system call, and the parent can read while the child holds the GIL. If the parent reads a
record while the child writes it, the checksum is wrong and the parent skips the record until its next read.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import zlib
from typing import NamedTuple

#: A record is a checksum, a header (generation, deadline, length of the token) and the token.
_SUM = struct.Struct("=I")
_HEAD = struct.Struct("=IdH")
#: A token is a number, a colon and a job name of at most 200 characters.
_RECORD = 1024
_LONGEST = _RECORD - _SUM.size - _HEAD.size


class Posted(NamedTuple):
    """One running attempt that has a deadline."""

    #: The index, among the pool ids that the child has used, of the id that this token belongs to.
    generation: int
    token: str
    #: Monotonic time, which is the same in all processes of a machine.
    deadline: float


def new_file() -> int:
    """An unnamed file that the child inherits through its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dayjob-board")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class DeadlineBoard:
    """The child's side: writes one record for each worker."""

    def __init__(self, fd: int, workers: int) -> None:
        os.ftruncate(fd, workers * _RECORD)
        self._memory = mmap.mmap(fd, workers * _RECORD)
        #: Incremented with each new pool id of the child, because tokens start again from 1 with each id.
        self.generation = -1

    def post(self, worker: int, token: str, deadline: float) -> None:
        """Write that a worker has started an attempt with this monotonic deadline."""
        text = token.encode()[:_LONGEST]
        body = _HEAD.pack(max(0, self.generation), deadline, len(text)) + text
        start = worker * _RECORD
        self._memory[start : start + _SUM.size + len(body)] = _SUM.pack(zlib.crc32(body)) + body

    def clear(self, worker: int) -> None:
        """Clear the record of a worker whose attempt has ended."""
        start = worker * _RECORD
        self._memory[start : start + _SUM.size + _HEAD.size] = bytes(_SUM.size + _HEAD.size)


class DeadlineReader:
    """The parent's side: reads the records."""

    def __init__(self, fd: int, workers: int) -> None:
        self._workers = workers
        self._memory = mmap.mmap(fd, workers * _RECORD, access=mmap.ACCESS_READ)

    def posted(self) -> list[Posted]:
        """All current records."""
        found = (self._read(worker * _RECORD) for worker in range(self._workers))
        return [posted for posted in found if posted is not None]

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.close()

    def _read(self, start: int) -> Posted | None:
        # Most records are empty, so the length is read before the token is copied.
        record = self._memory[start : start + _SUM.size + _HEAD.size]
        generation, deadline, length = _HEAD.unpack_from(record, _SUM.size)
        if not length or length > _LONGEST:
            return None
        body = record[_SUM.size :] + self._memory[start + len(record) : start + len(record) + length]
        if zlib.crc32(body) != _SUM.unpack_from(record)[0]:
            return None
        return Posted(generation, body[_HEAD.size :].decode(errors="replace"), deadline)
