"""Runs `dayjob ...` commands in processes that are forked from one that has imported the package already.

A command takes a third of a second to import what it needs, and the tests of commands run many hundreds of them. Such a
process is a command like any other: its own standard streams, folder, environment and exit code. Only the import is
shared. Tests of the start itself, of signals and of terminals start a new interpreter instead.
"""

from __future__ import annotations

import array
import atexit
import functools
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile

FOLDER = Path(__file__).resolve().parent
SRC = str(FOLDER.parent / "src")
#: Bytes of the longest request.
MAX_REQUEST = 1 << 20


def run_command(
    words: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], text: str = "", timeout: float = 240
) -> CompletedProcess[str]:
    """Run `dayjob WORDS` to its end, as subprocess.run does."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(text.encode())
        given.seek(0)
        code = _server().run(list(map(str, words)), str(cwd), dict(env), (given, out, err), timeout)
        out.seek(0)
        err.seek(0)
        return CompletedProcess(words, code, out.read().decode(), err.read().decode())


class _Server:
    """The process that forks commands, one at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), str(theirs.fileno())],
                pass_fds=[theirs.fileno()], env=os.environ | {"PYTHONPATH": SRC}, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._socket = ours
        self._turn = threading.Lock()
        atexit.register(self.close)

    def run(self, words: list[str], cwd: str, env: dict[str, str], files: tuple, timeout: float) -> int:
        request = json.dumps({"words": words, "cwd": cwd, "env": env}).encode()
        streams = array.array("i", [one.fileno() for one in files])
        with self._turn:
            try:
                self._socket.settimeout(timeout)
                self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
                answer = self._socket.recv(64)
            except TimeoutError:
                # Its late answer must not count as that of the next command.
                self.close()
                raise
        assert answer, "the process that forks commands has ended"
        return int(answer)

    def close(self) -> None:
        """End the process, and with it the command that it waits for."""
        self._socket.close()
        self._process.kill()
        self._process.wait(60)
        _server.cache_clear()


@functools.cache
def _server() -> _Server:
    return _Server()


# In the process that forks.


def _serve(requests: socket.socket) -> None:
    """Fork a command for each request, and answer with its exit code. Ends with the connection."""
    _import_all()
    while True:
        request, ancillary, _, _ = requests.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(3 * 4))
        if not request:
            return
        streams = array.array("i")
        streams.frombytes(ancillary[0][2])
        child = os.fork()
        if child == 0:
            requests.close()
            _become_command(json.loads(request), list(streams))
        for number in streams:
            os.close(number)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.send(str(code).encode())


def _import_all() -> None:
    """Import what the commands import."""
    import dayjob.admin
    import dayjob.cli

    for module in pkgutil.iter_modules(dayjob.cli.__path__, "dayjob.cli."):
        if module.name != "dayjob.cli.mcp":
            importlib.import_module(module.name)


def _become_command(request: dict, streams: list[int]) -> None:
    """Run one command in this process, with the streams, folder and environment of the request."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    sys.argv = ["dayjob", *request["words"]]
    sys.path[:0] = [request["cwd"]]
    code: object = 0
    try:
        from dayjob.__main__ import main

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(code + "\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
