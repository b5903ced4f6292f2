"""A proxy on loopback that holds everything back for a while, so that round trips cost what they cost on a network.

One thread and select(), whose timeouts are in microseconds. Run: python delay.py TARGET_PORT ROUND_TRIP_SECONDS
"""

from __future__ import annotations

import ctypes
import select
import socket
import sys
import time
from collections import deque

#: Bytes read at once; a whole exchange fits.
READ = 1 << 20
#: prctl option that sets how late timers may fire, in nanoseconds.
PR_SET_TIMERSLACK = 29


class Half:
    """One direction of a connection: what was read and when it may go on."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting: deque[tuple[float, memoryview]] = deque()
        self.blocked = False

    def flush(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            due, data = self.waiting[0]
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                self.blocked = True
                return
            if sent < len(data):
                self.waiting[0] = (due, data[sent:])
            else:
                self.waiting.popleft()
        self.blocked = False


def main(target: int, round_trip: float) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listener.getsockname()[1], flush=True)
    halves: dict[socket.socket, Half] = {}
    while True:
        due = min(
            (half.waiting[0][0] for half in halves.values() if half.waiting and not half.blocked),
            default=None,
        )
        timeout = None if due is None else max(0.0, due - time.monotonic())
        blocked = [half.sink for half in halves.values() if half.blocked]
        readable, writable, _ = select.select([listener, *halves], blocked, [], timeout)
        now = time.monotonic()
        for sock in readable:
            if sock is listener:
                _accept(listener, target, halves)
            elif sock in halves:
                _read(sock, halves, now + round_trip / 2)
        for half in list(halves.values()):
            if half.waiting and (not half.blocked or half.sink in writable):
                try:
                    half.flush(time.monotonic())
                except OSError:
                    _close(half, halves)


def _accept(listener: socket.socket, target: int, halves: dict[socket.socket, Half]) -> None:
    client, _ = listener.accept()
    server = socket.create_connection(("127.0.0.1", target))
    for sock in (client, server):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
    halves[client], halves[server] = Half(client, server), Half(server, client)


def _read(sock: socket.socket, halves: dict[socket.socket, Half], due: float) -> None:
    half = halves[sock]
    try:
        data = sock.recv(READ)
    except BlockingIOError:
        return
    except OSError:
        data = b""
    if data:
        half.waiting.append((due, memoryview(data)))
    else:
        _close(half, halves)


def _close(half: Half, halves: dict[socket.socket, Half]) -> None:
    for sock in (half.source, half.sink):
        halves.pop(sock, None)
        sock.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
